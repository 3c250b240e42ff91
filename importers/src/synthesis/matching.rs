//! Fourth pass: the same communication on different ranks, the clocks that this aligns, and waiting apart from
//! transfer.
//!
//! Kernels match by (communicator, step, sequence number) where all ranks recorded one, by order elsewhere; sends and
//! receives by (sender, receiver, step, order). What matches must agree in kind and size. `clocks` aligns the ranks on
//! the ends of what matched; `splits` completes uneven all-to-alls. The first instance of each kind in the recording is
//! marked, because ranks begin to record at different times and the late ones let the others wait in it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use maestro_pattern::{CollectiveKind, Direction};

use super::clocks::{self, Clock, Lateness};
use super::resolve::{CommId, Communicators, Operation, Resolved};
use super::splits;
use super::steps::Steps;
use crate::Notes;
use crate::capture::Capture;

/// Where a communication kernel is: (timeline, index into its resolved list).
pub(crate) type At = (usize, usize);

/// Kernels that run together.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    pub at: Vec<At>,
    /// Whether it is the whole team.
    pub whole: bool,
}

/// What matching found out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matches {
    /// The clock of each timeline.
    pub clocks: Vec<Clock>,
    /// Wait and transfer of each resolved kernel of each timeline, where its whole team was captured.
    pub timing: Vec<Vec<Option<Timing>>>,
    /// Of each timeline, the resolved kernels that are the first of their communicator and kind in the recording, if
    /// others follow.
    pub first: Vec<HashSet<usize>>,
    /// How often each timeline came last.
    pub arrivals: Vec<Lateness>,
    /// Communications to which nobody came last alone.
    pub ties: usize,
    /// What did not match though all its ranks were captured.
    pub unmatched: Vec<Unmatched>,
}

/// A communication whose ranks were all captured, and that does not match on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// Name of the step.
    pub step: Arc<str>,
    /// Its place among the communications of its ranks in the step, or its sequence number; `None` for sends and
    /// receives.
    pub number: Option<u64>,
    /// Global ranks of its team.
    pub ranks: Vec<u32>,
    /// What each rank that it was seen on did, with its size.
    pub seen: Vec<(u32, String)>,
}

/// The calls of a communicator in a step.
type Calls = (CommId, Arc<str>);

/// How a communication kernel spent its time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Latest start over the team - own start.
    pub wait_ns: i64,
    /// Own end - latest start over the team.
    pub transfer_ns: i64,
}

/// Matches the communication of all timelines, completing uneven all-to-alls on the way.
pub(crate) fn matches(
    capture: &Capture,
    steps: &[Steps],
    communicators: &Communicators,
    resolved: &mut [Vec<Resolved>],
    notes: &mut Notes,
) -> Matches {
    let step_of = step_of(capture, steps);
    let (meetings, unmatched) = meet(capture, communicators, &step_of, resolved, notes);
    for meeting in &meetings {
        splits::complete(capture, communicators, meeting, resolved, notes);
    }
    let clocks = clocks::align(capture, resolved, &meetings);
    let (arrivals, ties) = clocks::arrivals(capture, resolved, &meetings, &clocks);
    let mut timing: Vec<Vec<Option<Timing>>> = resolved.iter().map(|all| vec![None; all.len()]).collect();
    for meeting in meetings.iter().filter(|meeting| meeting.whole) {
        let span = |(t, i): At| {
            let activity = &capture.timelines[t].activities[resolved[t][i].activity];
            (activity.start_ns - clocks[t].offset_ns, activity.end_ns() - clocks[t].offset_ns)
        };
        let latest = meeting.at.iter().map(|at| span(*at).0).max().unwrap_or(0);
        for at in &meeting.at {
            let (start, end) = span(*at);
            // A rank that ended before the last one started was misread by its clock; it transferred nothing then.
            timing[at.0][at.1] = Some(Timing { wait_ns: latest - start, transfer_ns: (end - latest).max(0) });
        }
    }
    let first: Vec<HashSet<usize>> = resolved.iter().map(|all| first(all)).collect();
    Matches { clocks, timing, first, arrivals, ties, unmatched }
}

/// Of the kernels of a timeline, those that are the first of their communicator and kind, if others follow.
fn first(all: &[Resolved]) -> HashSet<usize> {
    let mut met: HashMap<(CommId, &'static str), (usize, usize)> = HashMap::new();
    for (i, kernel) in all.iter().enumerate().filter(|(_, kernel)| !kernel.unknown) {
        met.entry((kernel.communicator, kernel.operation.name())).or_insert((i, 0)).1 += 1;
    }
    met.into_values().filter(|(_, count)| *count > 1).map(|(i, _)| i).collect()
}

/// Name of the step of every activity of every timeline.
fn step_of(capture: &Capture, steps: &[Steps]) -> Vec<Vec<Option<Arc<str>>>> {
    let mut all = Vec::new();
    for (timeline, steps) in capture.timelines.iter().zip(steps) {
        let mut names = vec![None; timeline.activities.len()];
        for step in &steps.steps {
            for activity in &step.activities {
                names[*activity] = Some(step.name.clone());
            }
        }
        all.push(names);
    }
    all
}

/// Sets of kernels that run together.
fn meet(
    capture: &Capture,
    communicators: &Communicators,
    step_of: &[Vec<Option<Arc<str>>>],
    resolved: &[Vec<Resolved>],
    notes: &mut Notes,
) -> (Vec<Meeting>, Vec<Unmatched>) {
    // Kernels that run together, each on another timeline. Ordered maps, so that the same capture gives the same result
    // every time.
    let sequenced = sequenced(resolved, step_of);
    let mut collectives: BTreeMap<(CommId, Arc<str>, u64), Vec<At>> = BTreeMap::new();
    let mut transfers: BTreeMap<(u32, u32, Arc<str>, usize), Vec<At>> = BTreeMap::new();
    for (t, all) in resolved.iter().enumerate() {
        let mut next: HashMap<Calls, u64> = HashMap::new();
        let mut sent: HashMap<(u32, u32, Arc<str>), usize> = HashMap::new();
        for (i, kernel) in all.iter().enumerate() {
            let Some(step) = &step_of[t][kernel.activity] else { continue };
            match &kernel.operation {
                Operation::Collective { .. } | Operation::Group(_) => {
                    let key = (kernel.communicator, step.clone());
                    let n = next.entry(key.clone()).or_default();
                    let number = kernel.seq.filter(|_| sequenced.contains(&key)).unwrap_or(*n);
                    *n += 1;
                    collectives.entry((key.0, key.1, number)).or_default().push((t, i));
                }
                Operation::P2p(list) => {
                    for transfer in list {
                        let (from, to) = match transfer.direction {
                            Direction::Send => (capture.rank(t), transfer.peer),
                            Direction::Recv => (transfer.peer, capture.rank(t)),
                        };
                        let n = sent.entry((from, to, step.clone())).or_default();
                        transfers.entry((from, to, step.clone(), *n)).or_default().push((t, i));
                        *n += 1;
                    }
                }
            }
        }
    }
    let (mut meetings, mut unmatched) = (Vec::new(), Vec::new());
    let several = capture.timelines.len() > 1;
    let captured: HashSet<u32> = (0..capture.timelines.len()).map(|t| capture.rank(t)).collect();
    let seen = |at: &[At]| -> Vec<(u32, String)> {
        at.iter().map(|at| (capture.rank(at.0), resolved[at.0][at.1].operation.shown())).collect()
    };
    for ((communicator, step, n), at) in collectives {
        let (t, i) = at[0];
        let ranks = &communicators.all[communicator].ranks;
        let agree = at.iter().all(|at| same_call(&resolved[t][i], &resolved[at.0][at.1]));
        let whole = at.len() == ranks.len();
        if !(agree && whole) && ranks.iter().all(|rank| captured.contains(rank)) {
            let (step, number, ranks) = (step.clone(), Some(n), ranks.clone());
            unmatched.push(Unmatched { step, number, ranks, seen: seen(&at) });
        }
        if !agree {
            notes.add("communications whose ranks disagree on kind or size", || {
                let said = seen(&at).into_iter().map(|(rank, what)| format!("rank {rank}: {what}"));
                format!("number {n} of step {step} on ranks {ranks:?}; {}", said.collect::<Vec<_>>().join(", "))
            });
            continue;
        }
        if !whole && several {
            notes.add(UNMATCHED, || {
                let met: Vec<u32> = at.iter().map(|at| capture.rank(at.0)).collect();
                let shown = resolved[t][i].operation.shown();
                format!("{shown}, number {n} of step {step} on ranks {ranks:?}: only on {met:?}")
            });
        }
        meetings.push(Meeting { at, whole });
    }
    for (at, whole) in joined(transfers) {
        let (t, i) = at[0];
        let ranks = &communicators.all[resolved[t][i].communicator].ranks;
        if !whole && ranks.iter().all(|rank| captured.contains(rank)) {
            let step = step_of[t][resolved[t][i].activity].clone().unwrap_or_else(|| "".into());
            unmatched.push(Unmatched { step, number: None, ranks: ranks.clone(), seen: seen(&at) });
        }
        if !whole && several {
            notes.add(UNMATCHED, || {
                let met: Vec<u32> = at.iter().map(|at| capture.rank(at.0)).collect();
                format!("sends and receives of ranks {met:?}, some without their other side")
            });
        }
        meetings.push(Meeting { at, whole });
    }
    (meetings, unmatched)
}

/// What is said of communications that not all ranks of their team are seen in.
const UNMATCHED: &str = "communications without all their ranks: wait and transfer unknown";

/// The (communicator, step) pairs in which every kernel of every rank has a sequence number of its own.
fn sequenced(resolved: &[Vec<Resolved>], step_of: &[Vec<Option<Arc<str>>>]) -> HashSet<Calls> {
    let mut numbers: HashMap<Calls, HashSet<(usize, u64)>> = HashMap::new();
    let mut without = HashSet::new();
    for (t, all) in resolved.iter().enumerate() {
        for kernel in all.iter().filter(|kernel| !matches!(kernel.operation, Operation::P2p(_))) {
            let Some(step) = &step_of[t][kernel.activity] else { continue };
            let key = (kernel.communicator, step.clone());
            let fresh = kernel.seq.is_some_and(|seq| numbers.entry(key.clone()).or_default().insert((t, seq)));
            if !fresh {
                without.insert(key);
            }
        }
    }
    numbers.into_keys().filter(|key| !without.contains(key)).collect()
}

/// Kernels that share a transfer run together: joins pairs into sets, and tells whether every transfer of a set has
/// both its sides.
fn joined(transfers: BTreeMap<(u32, u32, Arc<str>, usize), Vec<At>>) -> Vec<(Vec<At>, bool)> {
    let mut sets: Vec<(Vec<At>, bool)> = Vec::new();
    let mut set_of: HashMap<At, usize> = HashMap::new();
    for pair in transfers.values() {
        let known: Vec<usize> = pair.iter().filter_map(|at| set_of.get(at).copied()).collect();
        let target = match known.first() {
            Some(first) => *first,
            None => {
                sets.push((Vec::new(), true));
                sets.len() - 1
            }
        };
        for other in known.into_iter().filter(|set| *set != target) {
            let (moved, complete) = std::mem::take(&mut sets[other]);
            for at in &moved {
                set_of.insert(*at, target);
            }
            sets[target].0.extend(moved);
            sets[target].1 &= complete;
        }
        for at in pair {
            if set_of.insert(*at, target) != Some(target) {
                sets[target].0.push(*at);
            }
        }
        sets[target].1 &= pair.len() == 2;
    }
    sets.retain(|(set, _)| !set.is_empty());
    sets
}

/// Whether two ranks made the same call. Uneven all-to-alls differ in size by nature.
fn same_call(a: &Resolved, b: &Resolved) -> bool {
    let uneven = |kernel: &Resolved| match &kernel.operation {
        Operation::Collective { row, .. } => !row.is_empty() || kernel.splits_unknown,
        Operation::Group(_) | Operation::P2p(_) => false,
    };
    match (&a.operation, &b.operation) {
        (Operation::Collective { collective: x, .. }, Operation::Collective { collective: y, .. }) => {
            let uneven = x.kind == CollectiveKind::AllToAll && (uneven(a) || uneven(b));
            x.kind == y.kind && x.dtype == y.dtype && (uneven || x.size == y.size)
        }
        (Operation::Group(a), Operation::Group(b)) => a == b,
        _ => false,
    }
}
