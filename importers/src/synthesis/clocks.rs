//! The ranks' clocks, and who came last.
//!
//! The members of a communication that synchronises end together, so the median difference of their ends is the offset
//! between two clocks, and the median distance from it the error. With the clocks aligned, the latest start of a
//! communication names the rank that the others waited for; starts that are equal name nobody.

use std::collections::{HashMap, VecDeque};

use maestro_pattern::CollectiveKind;

use super::blocks::Rank;
use super::matching::{At, Matches, Meeting};
use super::resolve::{Operation, Resolved};
use crate::capture::Capture;

/// The clock of a timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    /// What to subtract from its times to get the first timeline's.
    pub offset_ns: i64,
    /// Spread of the ends around the offset (median absolute deviation).
    pub error_ns: i64,
}

/// How often a rank came last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lateness {
    /// Communications that it alone started last.
    pub last: usize,
    /// Communications of its that some rank alone started last.
    pub decided: usize,
}

/// The clock of a rank, and how often the others waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankClock {
    /// Global rank.
    pub rank: u32,
    /// What was subtracted from its times to get the first rank's, in nanoseconds.
    pub offset_ns: i64,
    /// Spread of that over the ends of communications (median absolute deviation), in nanoseconds.
    pub error_ns: i64,
    /// Communications of the recording that it alone started last.
    pub last: usize,
    /// Communications of its that one rank alone started last.
    pub decided: usize,
}

/// What is told of the ranks' clocks.
pub(crate) fn of_ranks(ranks: &[Rank<'_>], matches: &Matches) -> Vec<RankClock> {
    let all = ranks.iter().zip(&matches.clocks).zip(&matches.arrivals);
    all.map(|((rank, clock), arrivals)| RankClock {
        rank: rank.rank,
        offset_ns: clock.offset_ns,
        error_ns: clock.error_ns,
        last: arrivals.last,
        decided: arrivals.decided,
    })
    .collect()
}

/// Clocks relative to the first timeline, through whoever meets whom.
pub(crate) fn align(capture: &Capture, resolved: &[Vec<Resolved>], meetings: &[Meeting]) -> Vec<Clock> {
    let count = capture.timelines.len();
    if capture.timelines.iter().all(|timeline| timeline.stated.is_some()) {
        // Times that were worked out are on one clock.
        return vec![Clock::default(); count];
    }
    let mut together: HashMap<(usize, usize), Vec<i64>> = HashMap::new();
    let mut loose: HashMap<(usize, usize), Vec<i64>> = HashMap::new();
    let end = |(t, i): At| capture.timelines[t].activities[resolved[t][i].activity].end_ns();
    for meeting in meetings {
        let synchronises = meeting.at.iter().all(|(t, i)| synchronises(&resolved[*t][*i].operation));
        let differences = if synchronises { &mut together } else { &mut loose };
        for one in &meeting.at {
            for other in meeting.at.iter().filter(|other| other.0 != one.0) {
                differences.entry((one.0, other.0)).or_default().push(end(*other) - end(*one));
            }
        }
    }
    let mut clocks = vec![Clock::default(); count];
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
                let Some(list) = together.get(&(one, other)).or_else(|| loose.get(&(one, other))) else { continue };
                let offset = median(list.clone());
                let error_ns = median(list.iter().map(|d| (d - offset).abs()).collect());
                clocks[other] = Clock { offset_ns: clocks[one].offset_ns + offset, error_ns };
                known[other] = true;
                queue.push_back(other);
            }
        }
    }
    clocks
}

/// Whether no rank can end long before another: of the others, a root may be done when it has sent.
fn synchronises(operation: &Operation) -> bool {
    match operation {
        Operation::Collective { collective, .. } => match collective.kind {
            CollectiveKind::AllReduce
            | CollectiveKind::AllGather
            | CollectiveKind::ReduceScatter
            | CollectiveKind::AllToAll
            | CollectiveKind::Barrier => true,
            CollectiveKind::Broadcast | CollectiveKind::Reduce | CollectiveKind::Gather | CollectiveKind::Scatter => {
                false
            }
        },
        Operation::Group(_) => true,
        Operation::P2p(_) => false,
    }
}

/// How often each timeline came last, and how many communications nobody came last to.
pub(crate) fn arrivals(
    capture: &Capture,
    resolved: &[Vec<Resolved>],
    meetings: &[Meeting],
    clocks: &[Clock],
) -> (Vec<Lateness>, usize) {
    let mut all = vec![Lateness::default(); clocks.len()];
    let mut ties = 0;
    for meeting in meetings.iter().filter(|meeting| meeting.whole && meeting.at.len() > 1) {
        let start =
            |&(t, i): &At| capture.timelines[t].activities[resolved[t][i].activity].start_ns - clocks[t].offset_ns;
        let latest = meeting.at.iter().map(start).max().unwrap_or(0);
        let mut last = meeting.at.iter().filter(|at| start(at) == latest);
        let (Some((last, _)), None) = (last.next(), last.next()) else {
            ties += 1;
            continue;
        };
        all[*last].last += 1;
        meeting.at.iter().for_each(|(t, _)| all[*t].decided += 1);
    }
    (all, ties)
}

/// The lower median.
fn median(mut list: Vec<i64>) -> i64 {
    list.sort_unstable();
    list.get((list.len().max(1) - 1) / 2).copied().unwrap_or(0)
}
