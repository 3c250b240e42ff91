//! Which kernels an operator launched, once all rows of a file are there.
//!
//! A kernel carries the external id of the operator that was current at its launch, the innermost. Where that one has
//! no work of its own, or where there is no id (until 2023, and of some launchers), the innermost operator of known
//! work around the launch on its thread has launched it, unless one inside of that has launched a product already: the
//! same work would count twice.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::{Operators, Seen, Work, lists};
use crate::capture::{Activity, ActivityKind, HostCall, Launched, OperatorWork, Timeline};
use crate::libraries::is_communication;

/// A kernel that no id links to an operator of known work.
struct Lost {
    thread: i64,
    /// When it was launched.
    at_ns: i64,
    activity: usize,
    /// Whether it has an id all the same.
    identified: bool,
}

impl Operators {
    /// Gives `timeline`, whose times are `base_ns` later than the rows', what operators launched its kernels.
    pub(in super::super) fn link(&self, timeline: &mut Timeline, base_ns: i64) {
        let mut of: Vec<(usize, usize)> = Vec::new();
        let lost = self.by_id(timeline, &mut of);
        self.by_time(base_ns, lost, &mut of);
        of.sort_unstable();

        let mut launched: HashMap<usize, Vec<usize>> = HashMap::new();
        of.iter().for_each(|(activity, seen)| launched.entry(*seen).or_default().push(*activity));
        let mut works: HashMap<OperatorWork, u32> = HashMap::new();
        let mut numbers: HashMap<usize, Option<(u32, u32)>> = HashMap::new();
        for (activity, seen) in of {
            let next = numbers.len() as u32;
            let number = numbers.entry(seen).or_insert_with(|| {
                let kernels = launched[&seen].iter().map(|kernel| &timeline.activities[*kernel]);
                let work = self.works[self.seen[seen].work as usize].settled(kernels)?;
                let places = works.len() as u32;
                Some((next, *works.entry(work).or_insert(places)))
            });
            if let Some((operator, work)) = *number {
                timeline.launched.push(Launched { activity: activity as u32, operator, work });
            }
        }
        let mut works: Vec<_> = works.into_iter().collect();
        works.sort_unstable_by_key(|(_, place)| *place);
        timeline.works = works.into_iter().map(|(work, _)| work).collect();
    }

    /// Links kernels by their ids; gives those that are left.
    fn by_id(&self, timeline: &Timeline, of: &mut Vec<(usize, usize)>) -> Vec<Lost> {
        let kernels = || {
            let all = timeline.activities.iter().enumerate();
            all.filter(|(_, a)| matches!(a.kind, ActivityKind::Kernel { .. }))
                .filter(|(_, a)| a.comm.is_none() && !is_communication(&a.name))
        };
        let wanted: HashSet<u64> = kernels().filter_map(|(_, kernel)| kernel.external_id).collect();
        let seen = self.seen.iter().enumerate();
        let seen: HashMap<u64, usize> = seen
            .filter(|(_, seen)| wanted.contains(&seen.external_id))
            .map(|(n, seen)| (seen.external_id, n))
            .collect();
        // One launch of a graph has many kernels, of which none is what the operator around it does.
        let mut left: HashMap<u64, Option<(usize, bool)>> = HashMap::new();
        for (activity, kernel) in kernels() {
            if let Some(&seen) = kernel.external_id.and_then(|id| seen.get(&id)) {
                of.push((activity, seen));
            } else if let Some(correlation) = kernel.correlation {
                let one = Some((activity, kernel.external_id.is_some()));
                left.entry(correlation).and_modify(|one| *one = None).or_insert(one);
            }
        }
        let launch = |call: &HostCall| {
            let (activity, identified) = (*left.get(&call.correlation?)?)?;
            Some(Lost { thread: call.thread, at_ns: call.start_ns, activity, identified })
        };
        timeline.calls.iter().filter_map(launch).collect()
    }

    /// Links what is left by the time of its launch.
    fn by_time(&self, base_ns: i64, mut lost: Vec<Lost>, of: &mut Vec<(usize, usize)>) {
        if lost.is_empty() {
            return;
        }
        lost.sort_unstable_by_key(|lost| (lost.thread, lost.at_ns, lost.activity));
        let mut order: Vec<usize> = (0..self.seen.len()).collect();
        // Of those that begin together the longer is around the shorter.
        let start = |n: usize| (self.seen[n].thread, self.seen[n].start_ns + base_ns);
        order.sort_unstable_by_key(|n| (start(*n), Reverse(self.seen[*n].duration_ns), *n));
        let end = |n: usize| start(n).1 + i64::from(self.seen[n].duration_ns);
        let multiplies = |seen: &Seen| matches!(self.works[seen.work as usize], Work::Products(_) | Work::Attention(_));
        let busy: HashSet<usize> = of.iter().map(|(_, seen)| *seen).filter(|n| multiplies(&self.seen[*n])).collect();
        let mut taken: HashMap<usize, bool> = HashMap::new();
        let mut around: Vec<usize> = Vec::new();
        let mut next = 0;
        for lost in lost {
            while next < order.len() && start(order[next]) <= (lost.thread, lost.at_ns) {
                let inner = start(order[next]);
                around.retain(|place| start(order[*place]).0 == inner.0 && end(order[*place]) >= inner.1);
                around.push(next);
                next += 1;
            }
            around.retain(|place| start(order[*place]).0 == lost.thread && end(order[*place]) >= lost.at_ns);
            let Some(&place) = around.last() else { continue };
            let seen = order[place];
            let guessed = matches!(self.works[self.seen[seen].work as usize], Work::Traffic { guessed: true, .. });
            let free = *taken.entry(place).or_insert_with(|| {
                let inside = order[place + 1..].iter().take_while(|n| start(**n) <= (lost.thread, end(seen)));
                !(multiplies(&self.seen[seen]) && inside.into_iter().any(|n| busy.contains(n)))
            });
            if free && !(guessed && lost.identified) {
                of.push((lost.activity, seen));
            }
        }
    }
}

impl Work {
    /// The work, now that the kernels that do it are known; `None`: their names and sizes do not tell enough.
    fn settled<'a>(&self, kernels: impl Iterator<Item = &'a Activity> + Clone) -> Option<OperatorWork> {
        Some(match self {
            Self::Products(products) => OperatorWork::Products(products.clone()),
            Self::Attention(attention) => OperatorWork::Attention(*attention),
            Self::Traffic { bytes, guessed } => {
                OperatorWork::Traffic { bytes: *bytes, guessed: *guessed, lasts_ns: None }
            }
            Self::Lists { elements, reads, writes } => lists::traffic(*elements, (*reads, *writes), kernels)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Notes;
    use crate::capture::CallKind;

    use super::*;

    fn kernel(name: &str, external_id: Option<u64>, correlation: u64, blocks: u64) -> Activity {
        Activity {
            kind: ActivityKind::Kernel { blocks },
            name: name.into(),
            start_ns: 0,
            duration_ns: 1_000,
            stream: 7,
            correlation: Some(correlation),
            external_id,
            comm: None,
        }
    }

    /// Operators as (name, dims, id, start, end) on one thread; launches at given times, one after another.
    fn linked(operators: &[(&str, &str, u64, i64, i64)], kernels: Vec<(Activity, i64)>) -> Timeline {
        let mut all = Operators::default();
        for (name, dims, id, start_ns, end_ns) in operators {
            let list = if dims.starts_with("[[[") || *dims == "[[], []]" { "TensorList" } else { "float" };
            let json = format!(
                r#"{{"External id": {id}, "Input Dims": {dims}, "Input type": ["{list}", "{list}", "float", "float"]}}"#
            );
            let args = super::super::Args::of(&json);
            all.take(name, &args, 1, (*start_ns, *end_ns), &mut Notes::default());
        }
        let mut timeline = Timeline::default();
        for (kernel, at_ns) in kernels {
            let correlation = kernel.correlation;
            let (start_ns, end_ns) = (at_ns + 5_000, at_ns + 5_010);
            timeline.calls.push(HostCall { kind: CallKind::Launch, thread: 1, start_ns, end_ns, correlation });
            timeline.activities.push(kernel);
        }
        all.link(&mut timeline, 5_000);
        timeline
    }

    fn numbers(timeline: &Timeline) -> Vec<Option<u32>> {
        (0..timeline.activities.len()).map(|n| timeline.operator(n).map(|(number, _)| number)).collect()
    }

    const MM: &str = "[[2, 3], [3, 5]]";

    #[test]
    fn kernels_of_one_operator_share_its_number() {
        let operators =
            [("aten::mm", MM, 6, 0, 100), ("aten::mm", MM, 7, 200, 300), ("aten::relu", "[[9]]", 8, 400, 500)];
        let kernels = [(6, 1), (6, 2), (8, 3), (7, 4), (99, 5)];
        let kernels = kernels.map(|(id, correlation)| (kernel("k", Some(id), correlation, 1), 900));
        let timeline = linked(&operators, kernels.into());
        assert_eq!(numbers(&timeline), [Some(0), Some(0), Some(1), Some(2), None]);
        assert_eq!(timeline.works.len(), 2, "two calls of one shape are one kind of work");
        assert_eq!(
            timeline.operator(2).unwrap().1,
            &OperatorWork::Traffic { bytes: 72, guessed: false, lasts_ns: None }
        );
    }

    #[test]
    fn without_ids_the_operator_around_the_launch_counts() {
        let operators = [("aten::addmm", "[[5], [2, 3], [3, 5]]", 6, 0, 100), ("aten::relu", "[[9]]", 8, 40, 60)];
        let at = |at_ns, correlation, id| (kernel("k", id, correlation, 1), at_ns);
        let kernels = vec![at(20, 1, None), at(50, 2, None), at(80, 3, Some(99)), at(150, 4, None)];
        assert_eq!(numbers(&linked(&operators, kernels)), [Some(0), Some(1), Some(0), None]);
    }

    #[test]
    fn a_product_inside_another_operator_counts_once() {
        let operators = [("aten::linear", "[[2, 3], [5, 3]]", 6, 0, 100), ("aten::mm", MM, 7, 40, 60)];
        let kernels = vec![(kernel("k", Some(7), 1, 1), 50), (kernel("helper", Some(99), 2, 1), 80)];
        assert_eq!(numbers(&linked(&operators, kernels)), [Some(0), None]);
    }

    #[test]
    fn graphs_are_no_operators() {
        let kernels = vec![(kernel("k", None, 1, 1), 50), (kernel("k", None, 1, 1), 50)];
        assert_eq!(numbers(&linked(&[("aten::mm", MM, 6, 0, 100)], kernels)), [None, None]);
    }

    #[test]
    fn lists_that_are_too_long_are_counted_by_thread_blocks() {
        let name = "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>";
        let kernels = vec![(kernel(name, Some(6), 1, 320), 50), (kernel(name, Some(6), 2, 9), 50)];
        let timeline = linked(&[("aten::_fused_adamw_", "[[], []]", 6, 0, 100)], kernels);
        let bytes = 329 * 65_536 * 7 * 4;
        assert_eq!(timeline.operator(1).unwrap().1, &OperatorWork::Traffic { bytes, guessed: true, lasts_ns: None });
    }
}
