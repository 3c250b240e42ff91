//! Fifth pass: what waited for what across lanes, and where the host waited.
//!
//! Ordinary captures record that a stream was told to wait, not for what. Two facts fill the gap. An event is recorded
//! on the stream that the thread was working on, so it stands for everything launched there so far; and whoever makes a
//! stream wait does so just before launching on it. A wait inside the host's record of a communication belongs to the
//! communication; any other to the next launch on another lane. A wait that does not follow its record at once is for an
//! event kept from earlier: if the annotation around it names an operation (`FSDP::all_gather_copy_out`), for the oldest
//! such communication that nobody has waited for yet. What the times contradict (the cause ended after the effect began)
//! is given up for an earlier event, or dropped and counted.
//!
//! Where the profiler recorded the waits themselves, those are taken instead.

use std::collections::{HashMap, HashSet};

use crate::Notes;
use crate::capture::{CallKind, CommOp, HostCall, Timeline};

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
    /// Whether the edges were read rather than inferred.
    pub recorded: bool,
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
            let asked_ns = call.map_or(activity.start_ns, |call| call.start_ns);
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
    // By device start among equals: a graph's kernels share one launch.
    issues.sort_by_key(|issue| (issue.asked_ns, timeline.activities[issue.activity].start_ns, issue.activity));
    issues
}

/// Finds the dependencies of the step whose launches are `issues`.
pub(crate) fn dependencies(timeline: &Timeline, issues: &[Issue], notes: &mut Notes) -> Dependencies {
    let Some((first, last)) = issues.first().zip(issues.last()) else { return Dependencies::default() };
    let from = timeline.calls.partition_point(|call| call.start_ns < first.asked_ns);
    let to = timeline.calls.partition_point(|call| call.start_ns <= last.asked_ns);
    let calls = &timeline.calls[from..to];
    let host_waits = host_waits(timeline, issues, calls);
    let recorded = recorded_edges(timeline, issues);
    if !recorded.is_empty() {
        return Dependencies { edges: recorded, host_waits, recorded: true };
    }
    let inference = Inference { timeline, issues, calls };
    Dependencies { edges: inference.edges(notes), host_waits, recorded: false }
}

/// Edges from waits that the profiler recorded.
fn recorded_edges(timeline: &Timeline, issues: &[Issue]) -> HashSet<(usize, usize)> {
    let times: HashMap<u64, i64> =
        timeline.calls.iter().filter_map(|call| call.correlation.map(|c| (c, call.start_ns))).collect();
    let mut edges = HashSet::new();
    for wait in &timeline.stream_waits {
        let record = wait.record_correlation.and_then(|id| times.get(&id));
        let (Some(waited), Some(recorded), Some(on_stream)) = (times.get(&wait.correlation), record, wait.on_stream)
        else {
            continue;
        };
        let cause = issues.iter().rev().find(|i| i.stream == on_stream && i.asked_ns < *recorded);
        let effect = issues.iter().find(|i| i.stream == wait.stream && i.asked_ns > *waited);
        if let (Some(cause), Some(effect)) = (cause, effect)
            && cause.stream != effect.stream
        {
            edges.insert((cause.activity, effect.activity));
        }
    }
    edges
}

/// Where the host waited with work still to launch: for the last-ending activity that had ended when it went on.
fn host_waits(timeline: &Timeline, issues: &[Issue], calls: &[HostCall]) -> Vec<HostWait> {
    let mut waits = Vec::new();
    for call in calls.iter().filter(|call| call.kind == CallKind::Synchronize) {
        let before = issues.partition_point(|issue| issue.asked_ns < call.start_ns);
        let ended = issues[..before]
            .iter()
            .map(|issue| issue.activity)
            .filter(|activity| timeline.activities[*activity].end_ns() <= call.end_ns)
            .max_by_key(|activity| timeline.activities[*activity].end_ns());
        if let (Some(activity), true) = (ended, before < issues.len()) {
            waits.push(HostWait { activity, start_ns: call.start_ns, end_ns: call.end_ns });
        }
    }
    waits
}

struct Inference<'a> {
    timeline: &'a Timeline,
    issues: &'a [Issue],
    calls: &'a [HostCall],
}

impl Inference<'_> {
    fn edges(&self, notes: &mut Notes) -> HashSet<(usize, usize)> {
        let mut edges = HashSet::new();
        for (index, call) in self.calls.iter().enumerate() {
            if call.kind != CallKind::StreamWait {
                continue;
            }
            let edge = match self.record_around(call) {
                Some(record_end) => match self.launch_of_record(call, record_end) {
                    Some(effect) => self.cause_of_communication(index, effect).map(|cause| (cause, effect)),
                    // After the launch: the calling stream waits for the communication it just issued, on itself.
                    None => continue,
                },
                None => self.cause_and_effect(index, &edges),
            };
            match edge {
                Some((cause, effect)) => {
                    edges.insert((cause.activity, effect.activity));
                }
                None => notes.add("stream waits whose cause is outside the step or not found", || {
                    format!("at {} ns on thread {}", call.start_ns, call.thread)
                }),
            }
        }
        self.join_leftovers(&mut edges);
        edges
    }

    /// End of the communication record or `nccl:` annotation that `call` lies in; `i64::MAX` for a send or receive,
    /// which are launched later, as a batch.
    fn record_around(&self, call: &HostCall) -> Option<i64> {
        let around = |start: i64, end: i64| start <= call.start_ns && call.start_ns <= end;
        let before = self.timeline.records.partition_point(|r| r.start_ns <= call.start_ns);
        let record = self.timeline.records[before.saturating_sub(8)..before]
            .iter()
            .rev()
            .find(|r| r.thread == call.thread && around(r.start_ns, r.end_ns));
        if let Some(record) = record {
            return match record.facts.op {
                CommOp::Wait => None,
                CommOp::Send { .. } | CommOp::Recv { .. } => Some(i64::MAX),
                CommOp::Collective(_) | CommOp::Other => Some(record.end_ns),
            };
        }
        let before = self.timeline.annotations.partition_point(|a| a.start_ns <= call.start_ns);
        self.timeline.annotations[before.saturating_sub(8)..before]
            .iter()
            .rev()
            .find(|a| a.thread == call.thread && a.name.starts_with("nccl:") && around(a.start_ns, a.end_ns))
            .map(|a| a.end_ns)
    }

    /// The communication that a wait inside its record belongs to.
    fn launch_of_record(&self, call: &HostCall, record_end: i64) -> Option<&Issue> {
        let after = self.issues.partition_point(|issue| issue.asked_ns <= call.start_ns);
        let mine = |issue: &&Issue| issue.communicates.is_some() && issue.thread == call.thread;
        let next = self.issues[after..].iter().find(mine)?;
        (next.asked_ns <= record_end).then_some(next)
    }

    /// A communication waits for the stream that its caller was working on.
    fn cause_of_communication(&self, index: usize, effect: &Issue) -> Option<&Issue> {
        let record = self.records_before(index).next()?;
        let before = &self.issues[..self.issues.partition_point(|issue| issue.asked_ns < record.start_ns)];
        let elsewhere = |issue: &&Issue| issue.stream != effect.stream;
        let mine = before.iter().rev().filter(elsewhere).find(|issue| issue.thread == record.thread);
        let stream = mine.or_else(|| before.iter().rev().find(elsewhere))?.stream;
        let cause = before.iter().rev().find(|issue| issue.stream == stream)?;
        self.agrees(cause, effect).then_some(cause)
    }

    /// The event of any other wait, and the launch that it holds back. `edges` are those found for earlier waits.
    fn cause_and_effect(&self, index: usize, edges: &HashSet<(usize, usize)>) -> Option<(&Issue, &Issue)> {
        /// How many events to go back when the times contradict the latest.
        const TRIES: usize = 8;
        /// A wait that follows a record this closely is for the event just recorded.
        const AT_ONCE_NS: i64 = 20_000;
        let call = &self.calls[index];
        let at_once = |record: &HostCall| call.start_ns - record.end_ns <= AT_ONCE_NS;
        if let Some(operation) = self.operation_around(call)
            && !self.records_before(index).next().is_some_and(at_once)
        {
            return self.kept_event(call, operation, edges);
        }
        let after = self.issues.partition_point(|issue| issue.asked_ns <= call.start_ns);
        for record in self.records_before(index).take(TRIES) {
            let before = &self.issues[..self.issues.partition_point(|issue| issue.asked_ns < record.start_ns)];
            let Some(working) = before.iter().rev().find(|issue| issue.thread == record.thread) else { continue };
            let Some(cause) = before.iter().rev().find(|issue| issue.stream == working.stream) else { continue };
            let Some(effect) = self.issues[after..].iter().find(|issue| issue.stream != cause.stream) else { continue };
            if self.agrees(cause, effect) {
                return Some((cause, effect));
            }
        }
        None
    }

    /// The operation that the innermost annotation around `call` names, `nccl:` ranges apart.
    fn operation_around(&self, call: &HostCall) -> Option<&'static str> {
        let annotations = &self.timeline.annotations;
        let before = annotations.partition_point(|a| a.start_ns <= call.start_ns);
        let around = annotations[before.saturating_sub(16)..before]
            .iter()
            .rev()
            .find(|a| a.thread == call.thread && a.end_ns >= call.start_ns && !a.name.starts_with("nccl:"))?;
        // `post_backward_reduce` speaks of a reduce-scatter, so the longer names come first.
        let names = [("all_gather", "all_gather"), ("all_to_all", "all_to_all"), ("reduce", "reduce_scatter")];
        names.iter().find(|(word, _)| around.name.contains(word)).map(|(_, operation)| *operation)
    }

    /// The oldest communication of this operation that nobody has waited for yet, and what waits for it now.
    fn kept_event(
        &self,
        call: &HostCall,
        operation: &str,
        edges: &HashSet<(usize, usize)>,
    ) -> Option<(&Issue, &Issue)> {
        let now = self.issues.partition_point(|issue| issue.asked_ns <= call.start_ns);
        let waited: HashSet<usize> = edges.iter().map(|(cause, _)| *cause).collect();
        let cause = self.issues[..now]
            .iter()
            .find(|issue| issue.communicates == Some(operation) && !waited.contains(&issue.activity))?;
        let effect = self.issues[now..].iter().find(|issue| issue.stream != cause.stream)?;
        self.agrees(cause, effect).then_some((cause, effect))
    }

    /// Event records of the same thread before call `index`, latest first.
    fn records_before(&self, index: usize) -> impl Iterator<Item = &HostCall> {
        let thread = self.calls[index].thread;
        self.calls[..index].iter().rev().filter(move |call| call.kind == CallKind::EventRecord && call.thread == thread)
    }

    /// Whether the times allow that `effect` waited for `cause`.
    fn agrees(&self, cause: &Issue, effect: &Issue) -> bool {
        self.timeline.activities[cause.activity].end_ns() <= self.timeline.activities[effect.activity].start_ns
    }

    /// Somebody must wait for every communication. If nobody does for the last of a lane, the first launch elsewhere
    /// that was told to wait for something since, and that the times allow, does.
    fn join_leftovers(&self, edges: &mut HashSet<(usize, usize)>) {
        let causes: HashSet<usize> = edges.iter().map(|(cause, _)| *cause).collect();
        let mut seen = HashSet::new();
        for issue in self.issues.iter().rev().filter(|issue| issue.communicates.is_some()) {
            if !seen.insert(issue.stream) || causes.contains(&issue.activity) {
                continue;
            }
            let told = self.calls.iter().enumerate().find(|(_, call)| {
                call.kind == CallKind::StreamWait
                    && call.start_ns > issue.issued_ns
                    && self.record_around(call).is_none()
            });
            let Some((_, told)) = told else { continue };
            let after = self.issues.partition_point(|other| other.asked_ns <= told.start_ns);
            let effect =
                self.issues[after..].iter().find(|other| other.stream != issue.stream && self.agrees(issue, other));
            if let Some(effect) = effect {
                edges.insert((issue.activity, effect.activity));
            }
        }
    }
}
