//! What the capture itself shows of contention: the same kernel overlapped in one place and alone in another.
//!
//! A step runs many kernels more than once, and some of them both beside communication and without it. The two kinds of
//! executions stand beside each other here, never in one mean. What is covered only in part is counted apart, because it
//! says little of either.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::blocks::Rank;
use super::intervals::Union;
use super::rates::{self, Volume};
use super::resolve::{Communicators, Operation};
use super::steps::Step;
use super::summary::described;
use crate::capture::{ActivityKind, Product};

/// Shares of a duration within this of nothing and of all count as that.
const EDGE: f64 = 0.01;

/// Executions in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executions {
    /// How many.
    pub count: usize,
    /// Their durations together, in nanoseconds; of communication the transfers, where they are known.
    pub duration_ns: i64,
}

impl Executions {
    /// Mean duration in nanoseconds; `None` without executions.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.duration_ns as f64 / self.count as f64)
    }

    fn add(&mut self, duration_ns: i64) {
        self.count += 1;
        self.duration_ns += duration_ns;
    }
}

/// One communication or compute kernel that a step ran alone as well as overlapped.
#[derive(Clone, Debug, PartialEq)]
pub struct Contention {
    /// Global rank.
    pub rank: u32,
    /// Operation and size, or the kernel's name.
    pub what: Arc<str>,
    /// Whether it communicates, and so was overlapped by compute; else by communication.
    pub communicates: bool,
    /// What makes its bandwidths, if it communicates and that is known.
    pub volume: Option<Volume>,
    /// With nothing of the other kind beside it.
    pub alone: Executions,
    /// Covered by the other kind from its start to its end.
    pub together: Executions,
    /// Covered in part.
    pub partly: Executions,
}

impl Contention {
    /// Algorithm bandwidth in decimal GB/s of an execution of `ns` nanoseconds.
    pub fn gbps(&self, ns: f64) -> Option<f64> {
        rates::gbps(self.volume?.algorithm, ns)
    }

    /// The same for the bus bandwidth.
    pub fn bus_gbps(&self, ns: f64) -> Option<f64> {
        rates::gbps(self.volume?.bus?, ns)
    }

    /// Mean duration overlapped over that alone.
    pub fn slowdown(&self) -> Option<f64> {
        Some(self.together.mean_ns()? / self.alone.mean_ns().filter(|alone| *alone > 0.0)?)
    }
}

/// What overlap gained in a step, over the stretches of time of which everything that ran was also seen alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gain {
    /// Stretches in which communication and compute ran at once.
    pub stretches: usize,
    /// How long they lasted, in nanoseconds.
    pub together_ns: f64,
    /// How long the same takes one after the other, each as long as alone.
    pub back_to_back_ns: f64,
    /// The most that overlap can gain: of communication and compute alone the lesser, stretch by stretch.
    pub most_ns: f64,
}

impl Gain {
    /// What was gained of what could be, in percent; `None` where nothing was seen.
    pub fn efficiency_pct(&self) -> Option<f64> {
        (self.most_ns > 0.0).then(|| 100.0 * (self.back_to_back_ns - self.together_ns) / self.most_ns)
    }
}

/// What makes two kernels the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Same {
    Communication(usize, String),
    Compute(Arc<str>, u64, Option<Product>),
}

/// One kernel of the step.
struct Ran {
    same: Same,
    start_ns: i64,
    end_ns: i64,
    /// What counts as its duration.
    duration_ns: i64,
    volume: Option<Volume>,
}

impl Ran {
    fn communicates(&self) -> bool {
        matches!(self.same, Same::Communication(..))
    }
}

/// Looks at one step of one rank: what ran both alone and overlapped, most time first, and what overlap gained.
pub(crate) fn contention(rank: &Rank<'_>, step: &Step, communicators: &Communicators) -> (Vec<Contention>, Gain) {
    let ran: Vec<Ran> = step.activities.iter().filter_map(|index| ran(rank, *index, communicators)).collect();
    let union =
        |wanted: bool| Union::new(ran.iter().filter(|r| r.communicates() == wanted).map(|r| (r.start_ns, r.end_ns)));
    let (comm, compute) = (union(true), union(false));
    let mut rows: BTreeMap<&Same, Contention> = BTreeMap::new();
    for r in ran.iter().filter(|r| r.end_ns > r.start_ns) {
        let other = if r.communicates() { &compute } else { &comm };
        let covered = Union::new([(r.start_ns, r.end_ns)]).overlap(other) as f64 / (r.end_ns - r.start_ns) as f64;
        let row = rows.entry(&r.same).or_insert_with(|| Contention {
            rank: rank.rank,
            what: match &r.same {
                Same::Communication(_, what) => what.as_str().into(),
                Same::Compute(name, ..) => name.clone(),
            },
            communicates: r.communicates(),
            volume: r.volume,
            alone: Executions::default(),
            together: Executions::default(),
            partly: Executions::default(),
        });
        let state = match covered {
            covered if covered < EDGE => &mut row.alone,
            covered if covered > 1.0 - EDGE => &mut row.together,
            _ => &mut row.partly,
        };
        state.add(r.duration_ns);
    }
    let alone: HashMap<&Same, f64> =
        rows.iter().filter_map(|(same, row)| Some((*same, row.alone.mean_ns()?))).collect();
    let gain = gain(&ran, &alone);
    let mut rows: Vec<Contention> =
        rows.into_values().filter(|row| row.alone.count > 0 && row.together.count > 0).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.together.duration_ns));
    (rows, gain)
}

fn ran(rank: &Rank<'_>, index: usize, communicators: &Communicators) -> Option<Ran> {
    let activity = &rank.timeline.activities[index];
    let ActivityKind::Kernel { blocks } = activity.kind else { return None };
    let (start_ns, end_ns) = (activity.start_ns, activity.end_ns());
    let Some(&i) = rank.resolved_of.get(&index) else {
        let same = Same::Compute(activity.name.clone(), blocks, rank.works.shape(index));
        return Some(Ran { same, start_ns, end_ns, duration_ns: activity.duration_ns, volume: None });
    };
    let resolved = &rank.resolved[i];
    let (op, dtype, size) = described(&resolved.operation);
    let what = match (&resolved.operation, size) {
        (Operation::Collective { .. } | Operation::Group(_) | Operation::P2p(_), Some(size)) => {
            format!("{op} {} {size} B", dtype.unwrap_or("-"))
        }
        (_, None) => format!("{op} of unknown size"),
    };
    let duration_ns = rank.timing[i].map_or(activity.duration_ns, |timing| timing.transfer_ns);
    let ranks = communicators.all[resolved.communicator].ranks.len();
    let volume = rates::volume(&resolved.operation, ranks).filter(|_| !resolved.unknown);
    Some(Ran { same: Same::Communication(resolved.communicator, what), start_ns, end_ns, duration_ns, volume })
}

/// Goes through the stretches in which something ran without a pause, and keeps those with both kinds in which
/// everything was seen alone elsewhere.
fn gain(ran: &[Ran], alone: &HashMap<&Same, f64>) -> Gain {
    let mut gain = Gain::default();
    let mut order: Vec<&Ran> = ran.iter().collect();
    order.sort_by_key(|r| r.start_ns);
    let mut from = 0;
    while from < order.len() {
        let mut end_ns = order[from].end_ns;
        let mut to = from + 1;
        while to < order.len() && order[to].start_ns <= end_ns {
            end_ns = end_ns.max(order[to].end_ns);
            to += 1;
        }
        let stretch = &order[from..to];
        let sum = |wanted: bool| {
            let mine = stretch.iter().filter(|r| r.communicates() == wanted);
            mine.map(|r| alone.get(&r.same).copied()).sum::<Option<f64>>()
        };
        if let (Some(comm), Some(compute)) = (sum(true), sum(false))
            && comm.min(compute) > 0.0
        {
            gain.stretches += 1;
            gain.together_ns += (end_ns - order[from].start_ns) as f64;
            gain.back_to_back_ns += comm + compute;
            gain.most_ns += comm.min(compute);
        }
        from = to;
    }
    gain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(same: &Same, start_ns: i64, end_ns: i64) -> Ran {
        Ran { same: same.clone(), start_ns, end_ns, duration_ns: end_ns - start_ns, volume: None }
    }

    #[test]
    fn a_stretch_counts_if_all_of_it_was_seen_alone() {
        let comm = Same::Communication(0, "all_reduce".into());
        let gemm = Same::Compute("gemm".into(), 8, None);
        let other = Same::Compute("other".into(), 8, None);
        let all = [
            // Together 360 for what takes 3 x 100 and 200 one after the other.
            ran(&gemm, 2000, 2120),
            ran(&comm, 2000, 2300),
            ran(&gemm, 2120, 2240),
            ran(&gemm, 2240, 2360),
            // Communication alone, and a stretch with something that was never alone.
            ran(&comm, 3000, 3200),
            ran(&comm, 4000, 4200),
            ran(&other, 4100, 4300),
        ];
        let alone = HashMap::from([(&comm, 200.0), (&gemm, 100.0)]);
        let gain = gain(&all, &alone);
        let expected = Gain { stretches: 1, together_ns: 360.0, back_to_back_ns: 500.0, most_ns: 200.0 };
        assert_eq!((gain, gain.efficiency_pct()), (expected, Some(70.0)));
        assert_eq!(Gain::default().efficiency_pct(), None);
    }
}
