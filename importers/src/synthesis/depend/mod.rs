//! Fifth pass: what waited for what across lanes, and where the host waited.
//!
//! Ordinary captures tell that a stream was told to wait, neither which nor for what: [`inferred`] finds out. Where the
//! profiler was asked to record waits, [`recorded`] has the stream, and mostly the event; what is missing is inferred
//! here too, but for that stream. [`timed`] has what only the times can tell. Either way an event is taken to be on the stream that its thread was working on, so it
//! stands for everything launched there so far, and a wait holds back the next launch on its stream.

mod inferred;
mod recorded;
#[cfg(test)]
mod tests;
mod timed;

use std::collections::{BTreeMap, HashSet};

use self::inferred::Inference;
use self::recorded::{Pinned, Recorded};
use super::nesting::HostRanges;
use crate::Notes;
use crate::capture::{CallKind, HostCall, Stated, Timeline};

/// One launch of the step, in host order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    /// Index of the activity.
    pub activity: usize,
    /// Stream.
    pub stream: i64,
    /// Thread that launched it.
    pub thread: i64,
    /// When the host asked for it.
    pub asked_ns: i64,
    /// When it was on its way: the call had returned, or it already ran.
    pub issued_ns: i64,
    /// Name of the operation, if it communicates.
    pub communicates: Option<&'static str>,
}

/// The host stood still until an activity had ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostWait {
    /// Index of the activity.
    pub activity: usize,
    /// When the host began to wait.
    pub start_ns: i64,
    /// When it went on.
    pub end_ns: i64,
}

/// Dependencies of one step of one timeline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dependencies {
    /// (cause, effect), as activity indices.
    pub edges: HashSet<(usize, usize)>,
    /// In host order.
    pub host_waits: Vec<HostWait>,
    /// How often each stream waited for another, as (who waits, for whom); recorded waits count even if the waiting stream
    /// did nothing more.
    pub streams: BTreeMap<(i64, i64), usize>,
    /// Waits of which the profiler recorded the stream and, by name or by number, the event.
    pub recorded: usize,
    /// Waits of which something was inferred.
    pub inferred: usize,
}

/// The launches of a step in host order.
pub(crate) fn issues(
    timeline: &Timeline,
    launches: &[Option<usize>],
    activities: &[usize],
    communicates: impl Fn(usize) -> Option<&'static str>,
) -> Vec<Issue> {
    let mut issues: Vec<Issue> = activities
        .iter()
        .map(|&index| {
            let activity = &timeline.activities[index];
            let call = launches[index].map(|call| timeline.calls[call]);
            // The clocks of host and device differ a little: what already ran had been asked for.
            let asked_ns = call.map_or(activity.start_ns, |call| call.start_ns.min(activity.start_ns));
            Issue {
                activity: index,
                stream: activity.stream,
                thread: call.map_or(0, |call| call.thread),
                asked_ns,
                issued_ns: call.map_or(activity.start_ns, |call| call.end_ns).min(activity.start_ns).max(asked_ns),
                communicates: communicates(index),
            }
        })
        .collect();
    // In the order of the calls, then by device start among equals: a graph's kernels share one launch.
    issues.sort_by_key(|issue| {
        (issue.asked_ns, launches[issue.activity], timeline.activities[issue.activity].start_ns, issue.activity)
    });
    // All that a launch launches is on its way at once.
    for next in 1..issues.len() {
        let launch = |index: usize| timeline.activities[issues[index].activity].correlation;
        if launch(next).is_some_and(|correlation| correlation > 0 && launch(next - 1) == Some(correlation)) {
            issues[next].issued_ns = issues[next - 1].issued_ns;
        }
    }
    issues
}

/// Finds the dependencies of the step whose launches are `issues`.
pub(crate) fn dependencies(
    timeline: &Timeline,
    issues: &[Issue],
    ranges: &HostRanges<'_>,
    notes: &mut Notes,
) -> Dependencies {
    if let Some(stated) = &timeline.stated {
        return told(timeline, stated, issues);
    }
    let Some((first, last)) = issues.first().zip(issues.last()) else { return Dependencies::default() };
    let from = timeline.calls.partition_point(|call| call.start_ns < first.asked_ns);
    let to = timeline.calls.partition_point(|call| call.start_ns <= last.asked_ns);
    let calls = &timeline.calls[from..to];
    let streams = Streams::new(issues);
    let host_waits = host_waits(timeline, issues, &streams, calls);
    let pinned = Pinned::new(timeline);
    let recorded = Recorded::new(timeline, &pinned);
    let inference = Inference::new(timeline, issues, ranges, streams, &pinned, from..to);
    Dependencies { host_waits, ..inference.dependencies(&recorded, notes) }
}

/// The dependencies of a step that the recording states.
fn told(timeline: &Timeline, stated: &Stated, issues: &[Issue]) -> Dependencies {
    let mut found = Dependencies::default();
    let step: HashSet<usize> = issues.iter().map(|issue| issue.activity).collect();
    let stream = |activity: usize| timeline.activities[activity].stream;
    for (cause, effect) in stated.edges.iter().map(|(cause, effect)| (*cause as usize, *effect as usize)) {
        if step.contains(&cause) && step.contains(&effect) {
            found.edges.insert((cause, effect));
            *found.streams.entry((stream(effect), stream(cause))).or_default() += 1;
        }
    }
    found.recorded = found.edges.len();
    let waits = stated.waits.iter().filter(|wait| step.contains(&(wait.activity as usize)));
    found.host_waits = waits
        .map(|wait| HostWait { activity: wait.activity as usize, start_ns: wait.start_ns, end_ns: wait.end_ns })
        .collect();
    found
}

/// The launches of each stream in host order, as indices into the issues.
struct Streams(BTreeMap<i64, Vec<usize>>);

impl Streams {
    fn new(issues: &[Issue]) -> Self {
        let mut streams: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (index, issue) in issues.iter().enumerate() {
            streams.entry(issue.stream).or_default().push(index);
        }
        Self(streams)
    }

    /// The last launch on `stream` among the first `before` issues.
    fn last(&self, stream: i64, before: usize) -> Option<usize> {
        let mine = self.0.get(&stream)?;
        mine.partition_point(|index| *index < before).checked_sub(1).map(|place| mine[place])
    }

    /// The launches on `stream` among the first `before` issues, the last first.
    fn latest(&self, stream: i64, before: usize) -> impl Iterator<Item = usize> {
        let mine = self.0.get(&stream).map(Vec::as_slice).unwrap_or_default();
        mine[..mine.partition_point(|index| *index < before)].iter().rev().copied()
    }

    /// The first launch on `stream` from issue `from` on.
    fn first(&self, stream: i64, from: usize) -> Option<usize> {
        let mine = self.0.get(&stream)?;
        mine.get(mine.partition_point(|index| *index < from)).copied()
    }
}

/// How many issues were asked for before `ns`.
fn asked_before(issues: &[Issue], ns: i64) -> usize {
    issues.partition_point(|issue| issue.asked_ns < ns)
}

/// How many issues were asked for up to `ns`.
fn asked_until(issues: &[Issue], ns: i64) -> usize {
    issues.partition_point(|issue| issue.asked_ns <= ns)
}

/// Where the host waited with work still to launch: for the last-ending activity that had ended when it went on.
fn host_waits(timeline: &Timeline, issues: &[Issue], streams: &Streams, calls: &[HostCall]) -> Vec<HostWait> {
    let end_ns = |index: usize| timeline.activities[issues[index].activity].end_ns();
    let mut waits = Vec::new();
    for call in calls.iter().filter(|call| call.kind == CallKind::Synchronize) {
        let before = asked_before(issues, call.start_ns);
        if before == issues.len() {
            continue;
        }
        // A stream's activities end in its order, so the last that had ended is near the last that was launched.
        let ended = streams.0.values().filter_map(|mine| {
            let launched = &mine[..mine.partition_point(|index| *index < before)];
            launched.iter().rev().copied().find(|index| end_ns(*index) <= call.end_ns)
        });
        if let Some(last) = ended.max_by_key(|index| end_ns(*index)) {
            waits.push(HostWait { activity: issues[last].activity, start_ns: call.start_ns, end_ns: call.end_ns });
        }
    }
    waits
}
