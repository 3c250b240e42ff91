//! Fourth pass: the same communication on different ranks, the clocks that this aligns, and waiting apart from
//! transfer.
//!
//! Kernels match by (communicator, step, sequence number) where all ranks recorded one, by order elsewhere; sends and
//! receives by (sender, receiver, step, order). What matches must agree in kind and size. Because the members of a
//! communication end together, the median difference of their ends is the offset between their clocks, and the spread
//! around it the error.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use maestro_pattern::{CollectiveKind, Direction};

use super::resolve::{CommId, Communicators, Operation, Resolved};
use super::steps::Steps;
use crate::Notes;
use crate::capture::Capture;

/// Where a communication kernel is: (timeline, index into its resolved list).
type At = (usize, usize);

/// What matching found out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matches {
    /// What to subtract from each timeline's times.
    pub offset_ns: Vec<i64>,
    /// Spread of the ends around the offset (median absolute deviation), the largest over the timelines.
    pub clock_error_ns: i64,
    /// Wait and transfer of each resolved kernel of each timeline, where its whole team was captured.
    pub timing: Vec<Vec<Option<Timing>>>,
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
    let (meetings, whole) = meet(capture, communicators, &step_of, resolved, notes);
    for (meeting, whole) in meetings.iter().zip(&whole) {
        complete_splits(capture, communicators, meeting, *whole, resolved);
    }
    let (offset_ns, clock_error_ns) = align(capture, resolved, &meetings);
    let mut timing: Vec<Vec<Option<Timing>>> = resolved.iter().map(|all| vec![None; all.len()]).collect();
    for (meeting, whole) in meetings.iter().zip(&whole) {
        if !whole {
            continue;
        }
        let span = |(t, i): At| {
            let activity = &capture.timelines[t].activities[resolved[t][i].activity];
            (activity.start_ns - offset_ns[t], activity.end_ns() - offset_ns[t])
        };
        let latest = meeting.iter().map(|at| span(*at).0).max().unwrap_or(0);
        for at in meeting {
            let (start, end) = span(*at);
            // A rank that ended before the last one started was misread by its clock; it transferred nothing then.
            timing[at.0][at.1] = Some(Timing { wait_ns: latest - start, transfer_ns: (end - latest).max(0) });
        }
    }
    Matches { offset_ns, clock_error_ns, timing }
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

/// Sets of kernels that run together, and whether each set is its whole team.
fn meet(
    capture: &Capture,
    communicators: &Communicators,
    step_of: &[Vec<Option<Arc<str>>>],
    resolved: &[Vec<Resolved>],
    notes: &mut Notes,
) -> (Vec<Vec<At>>, Vec<bool>) {
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
    let (mut meetings, mut whole) = (Vec::new(), Vec::new());
    for ((communicator, step, n), meeting) in collectives {
        let (t, i) = meeting[0];
        let agrees = |at: &At| same_call(&resolved[t][i].operation, &resolved[at.0][at.1].operation);
        if !meeting.iter().all(agrees) {
            notes.add("communications whose ranks disagree on kind or size", || {
                format!("number {n} of step {step} on ranks {:?}", communicators.all[communicator].ranks)
            });
            continue;
        }
        whole.push(meeting.len() == communicators.all[communicator].ranks.len());
        meetings.push(meeting);
    }
    for (meeting, complete) in joined(transfers) {
        whole.push(complete);
        meetings.push(meeting);
    }
    let missing = whole.iter().filter(|whole| !**whole).count();
    if missing > 0 && capture.timelines.len() > 1 {
        for _ in 0..missing {
            notes.add("communications without all their ranks: wait and transfer unknown", || {
                "a rank of the team is not in the capture, or lost the kernel".to_owned()
            });
        }
    }
    (meetings, whole)
}

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
fn same_call(a: &Operation, b: &Operation) -> bool {
    match (a, b) {
        (Operation::Collective { collective: a, row: row_a }, Operation::Collective { collective: b, row: row_b }) => {
            let uneven = a.kind == CollectiveKind::AllToAll && !(row_a.is_empty() && row_b.is_empty());
            a.kind == b.kind && a.dtype == b.dtype && (uneven || a.size == b.size)
        }
        (Operation::Group(a), Operation::Group(b)) => a == b,
        _ => false,
    }
}

/// Puts the rows of an uneven all-to-all together, in team order. With rows missing it stays even, which the pattern
/// then states as assumed.
fn complete_splits(
    capture: &Capture,
    communicators: &Communicators,
    meeting: &[At],
    whole: bool,
    resolved: &mut [Vec<Resolved>],
) {
    let mut rows: Vec<(usize, Vec<u64>)> = Vec::new();
    for (t, i) in meeting {
        let kernel = &resolved[*t][*i];
        let rank = capture.rank(*t);
        let seat = communicators.all[kernel.communicator].ranks.iter().position(|other| *other == rank);
        if let (Operation::Collective { row, .. }, Some(seat)) = (&kernel.operation, seat)
            && !row.is_empty()
        {
            rows.push((seat, row.clone()));
        }
    }
    rows.sort_by_key(|(seat, _)| *seat);
    let rows: Vec<Vec<u64>> = rows.into_iter().map(|(_, row)| row).collect();
    let first = rows.first().and_then(|row| row.first());
    let even = rows.iter().flatten().all(|split| Some(split) == first);
    if !whole || rows.len() != meeting.len() || even || rows.iter().any(|row| row.len() != rows.len()) {
        return;
    }
    let most = largest_side(&rows);
    for (t, i) in meeting {
        if let Operation::Collective { collective, .. } = &mut resolved[*t][*i].operation {
            collective.splits = rows.clone();
            collective.size = Some(most.saturating_mul(collective.dtype.bytes()));
        }
    }
}

/// The most elements that any rank sends or receives in an all-to-all of these splits: S of nccl-tests.
pub(crate) fn largest_side(splits: &[Vec<u64>]) -> u64 {
    let total = |splits: &mut dyn Iterator<Item = u64>| splits.fold(0u64, u64::saturating_add);
    let columns = (0..splits.len()).map(|to| total(&mut splits.iter().map(|row| row.get(to).copied().unwrap_or(0))));
    splits.iter().map(|row| total(&mut row.iter().copied())).chain(columns).max().unwrap_or(0)
}

/// Offsets of the clocks relative to the first timeline, through whoever meets whom, and their error.
fn align(capture: &Capture, resolved: &[Vec<Resolved>], meetings: &[Vec<At>]) -> (Vec<i64>, i64) {
    let count = capture.timelines.len();
    let mut differences: HashMap<(usize, usize), Vec<i64>> = HashMap::new();
    let end = |(t, i): At| capture.timelines[t].activities[resolved[t][i].activity].end_ns();
    for meeting in meetings {
        for one in meeting {
            for other in meeting.iter().filter(|other| other.0 != one.0) {
                differences.entry((one.0, other.0)).or_default().push(end(*other) - end(*one));
            }
        }
    }
    let mut offsets = vec![0; count];
    let mut error = 0;
    let mut known = vec![false; count];
    // Timelines that meet nobody keep their own clock.
    for root in 0..count {
        if std::mem::replace(&mut known[root], true) {
            continue;
        }
        let mut queue = VecDeque::from([root]);
        while let Some(one) = queue.pop_front() {
            for other in 0..count {
                if known[other] {
                    continue;
                }
                let Some(list) = differences.get(&(one, other)) else { continue };
                let offset = median(list.clone());
                error = error.max(median(list.iter().map(|d| (d - offset).abs()).collect()));
                offsets[other] = offsets[one] + offset;
                known[other] = true;
                queue.push_back(other);
            }
        }
    }
    (offsets, error)
}

/// The lower median.
fn median(mut list: Vec<i64>) -> i64 {
    list.sort_unstable();
    list.get((list.len().max(1) - 1) / 2).copied().unwrap_or(0)
}
