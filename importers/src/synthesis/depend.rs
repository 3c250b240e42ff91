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

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::nesting::HostRanges;
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
pub(crate) fn dependencies(
    timeline: &Timeline,
    issues: &[Issue],
    ranges: &HostRanges<'_>,
    notes: &mut Notes,
) -> Dependencies {
    let Some((first, last)) = issues.first().zip(issues.last()) else { return Dependencies::default() };
    let from = timeline.calls.partition_point(|call| call.start_ns < first.asked_ns);
    let to = timeline.calls.partition_point(|call| call.start_ns <= last.asked_ns);
    let calls = &timeline.calls[from..to];
    let streams = Streams::new(issues);
    let host_waits = host_waits(timeline, issues, &streams, calls);
    let recorded = recorded_edges(timeline, issues, &streams);
    if !recorded.is_empty() {
        return Dependencies { edges: recorded, host_waits, recorded: true };
    }
    let edges = Inference::new(timeline, issues, ranges, streams, calls).edges(notes);
    Dependencies { edges, host_waits, recorded: false }
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

/// Edges from waits that the profiler recorded.
fn recorded_edges(timeline: &Timeline, issues: &[Issue], streams: &Streams) -> HashSet<(usize, usize)> {
    let times: HashMap<u64, i64> =
        timeline.calls.iter().filter_map(|call| call.correlation.map(|c| (c, call.start_ns))).collect();
    let mut edges = HashSet::new();
    for wait in &timeline.stream_waits {
        let record = wait.record_correlation.and_then(|id| times.get(&id));
        let (Some(waited), Some(recorded), Some(on_stream)) = (times.get(&wait.correlation), record, wait.on_stream)
        else {
            continue;
        };
        let cause = streams.last(on_stream, asked_before(issues, *recorded));
        let effect = streams.first(wait.stream, asked_until(issues, *waited));
        if let (Some(cause), Some(effect)) = (cause, effect)
            && on_stream != wait.stream
        {
            edges.insert((issues[cause].activity, issues[effect].activity));
        }
    }
    edges
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

/// Infers edges, wait by wait in host order.
struct Inference<'a> {
    timeline: &'a Timeline,
    issues: &'a [Issue],
    ranges: &'a HostRanges<'a>,
    streams: Streams,
    calls: &'a [HostCall],
    /// Per thread, its event records as indices into the calls.
    event_records: HashMap<i64, Vec<usize>>,
    /// Per operation, the communications that nobody has waited for yet, oldest first, as indices into the issues.
    kept: HashMap<&'static str, VecDeque<usize>>,
    edges: HashSet<(usize, usize)>,
    /// Issues that somebody waits for.
    waited: HashSet<usize>,
}

impl<'a> Inference<'a> {
    fn new(
        timeline: &'a Timeline,
        issues: &'a [Issue],
        ranges: &'a HostRanges<'a>,
        streams: Streams,
        calls: &'a [HostCall],
    ) -> Self {
        let mut event_records: HashMap<i64, Vec<usize>> = HashMap::new();
        for (index, call) in calls.iter().enumerate().filter(|(_, call)| call.kind == CallKind::EventRecord) {
            event_records.entry(call.thread).or_default().push(index);
        }
        let mut kept: HashMap<&'static str, VecDeque<usize>> = HashMap::new();
        for (index, issue) in issues.iter().enumerate() {
            if let Some(operation) = issue.communicates {
                kept.entry(operation).or_default().push_back(index);
            }
        }
        Self {
            timeline,
            issues,
            ranges,
            streams,
            calls,
            event_records,
            kept,
            edges: HashSet::new(),
            waited: HashSet::new(),
        }
    }

    fn edges(mut self, notes: &mut Notes) -> HashSet<(usize, usize)> {
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
                None => self.cause_and_effect(index),
            };
            match edge {
                Some((cause, effect)) => self.insert(cause, effect),
                None => notes.add("stream waits whose cause is outside the step or not found", || {
                    format!("at {} ns on thread {}", call.start_ns, call.thread)
                }),
            }
        }
        self.join_leftovers();
        self.edges
    }

    fn insert(&mut self, cause: usize, effect: usize) {
        self.edges.insert((self.issues[cause].activity, self.issues[effect].activity));
        self.waited.insert(cause);
    }

    /// End of the communication record or `nccl:` annotation that `call` lies in; `i64::MAX` for a send or receive,
    /// which are launched later, as a batch.
    fn record_around(&self, call: &HostCall) -> Option<i64> {
        if let Some(record) = self.ranges.record(call.thread, call.start_ns) {
            return match record.facts.op {
                CommOp::Wait => None,
                CommOp::Send { .. } | CommOp::Recv { .. } => Some(i64::MAX),
                CommOp::Collective(_) | CommOp::Other => Some(record.end_ns),
            };
        }
        let mut annotations = self.ranges.annotations(call.thread, call.start_ns);
        annotations.find(|a| a.name.starts_with("nccl:")).map(|a| a.end_ns)
    }

    /// The communication that a wait inside its record belongs to.
    fn launch_of_record(&self, call: &HostCall, record_end: i64) -> Option<usize> {
        let after = asked_until(self.issues, call.start_ns);
        let mine = |issue: &Issue| issue.communicates.is_some() && issue.thread == call.thread;
        let next = self.issues[after..].iter().position(mine)? + after;
        (self.issues[next].asked_ns <= record_end).then_some(next)
    }

    /// A communication waits for the stream that its caller was working on.
    fn cause_of_communication(&self, index: usize, effect: usize) -> Option<usize> {
        let record = self.records_before(index).next()?;
        let before = asked_before(self.issues, record.start_ns);
        let lane = self.issues[effect].stream;
        let elsewhere = || self.issues[..before].iter().rev().filter(|issue| issue.stream != lane);
        let mine = elsewhere().find(|issue| issue.thread == record.thread);
        let cause = self.streams.last(mine.or_else(|| elsewhere().next())?.stream, before)?;
        self.agrees(cause, effect).then_some(cause)
    }

    /// The event of any other wait, and the launch that it holds back.
    fn cause_and_effect(&mut self, index: usize) -> Option<(usize, usize)> {
        /// How many events to go back when the times contradict the latest.
        const TRIES: usize = 8;
        /// A wait that follows a record this closely is for the event just recorded.
        const AT_ONCE_NS: i64 = 20_000;
        let call = &self.calls[index];
        let at_once = |record: &HostCall| call.start_ns - record.end_ns <= AT_ONCE_NS;
        if let Some(operation) = self.operation_around(call)
            && !self.records_before(index).next().is_some_and(at_once)
        {
            return self.kept_event(call, operation);
        }
        let after = asked_until(self.issues, call.start_ns);
        for record in self.records_before(index).take(TRIES) {
            let before = asked_before(self.issues, record.start_ns);
            let working = self.issues[..before].iter().rev().find(|issue| issue.thread == record.thread);
            let Some(cause) = working.and_then(|working| self.streams.last(working.stream, before)) else { continue };
            let Some(effect) = self.next_elsewhere(cause, after) else { continue };
            if self.agrees(cause, effect) {
                return Some((cause, effect));
            }
        }
        None
    }

    /// The first launch from issue `from` on that is on another stream than `cause`.
    fn next_elsewhere(&self, cause: usize, from: usize) -> Option<usize> {
        let stream = self.issues[cause].stream;
        self.issues[from..].iter().position(|issue| issue.stream != stream).map(|place| place + from)
    }

    /// The operation that the innermost annotation around `call` names, `nccl:` ranges apart.
    fn operation_around(&self, call: &HostCall) -> Option<&'static str> {
        let name = self.ranges.name(call.thread, call.start_ns)?;
        // `post_backward_reduce` speaks of a reduce-scatter, so the longer names come first.
        let words = [("all_gather", "all_gather"), ("all_to_all", "all_to_all"), ("reduce", "reduce_scatter")];
        words.iter().find(|(word, _)| name.contains(word)).map(|(_, operation)| *operation)
    }

    /// The oldest communication of this operation that nobody has waited for yet, and what waits for it now.
    fn kept_event(&mut self, call: &HostCall, operation: &str) -> Option<(usize, usize)> {
        let now = asked_until(self.issues, call.start_ns);
        let kept = self.kept.get_mut(operation)?;
        while kept.front().is_some_and(|oldest| self.waited.contains(oldest)) {
            kept.pop_front();
        }
        let cause = kept.front().copied().filter(|oldest| *oldest < now)?;
        let effect = self.next_elsewhere(cause, now)?;
        self.agrees(cause, effect).then_some((cause, effect))
    }

    /// Event records of the same thread before call `index`, latest first.
    fn records_before(&self, index: usize) -> impl Iterator<Item = &'a HostCall> {
        let calls = self.calls;
        let mine = self.event_records.get(&calls[index].thread).map(Vec::as_slice).unwrap_or_default();
        mine[..mine.partition_point(|record| *record < index)].iter().rev().map(move |record| &calls[*record])
    }

    /// Whether the times allow that `effect` waited for `cause`.
    fn agrees(&self, cause: usize, effect: usize) -> bool {
        let activity = |index: usize| &self.timeline.activities[self.issues[index].activity];
        activity(cause).end_ns() <= activity(effect).start_ns
    }

    /// Somebody must wait for every communication. If nobody does for the last of a lane, the first launch elsewhere
    /// that was told to wait for something since, and that the times allow, does.
    fn join_leftovers(&mut self) {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for (index, issue) in self.issues.iter().enumerate().rev().filter(|(_, issue)| issue.communicates.is_some()) {
            if !seen.insert(issue.stream) || self.waited.contains(&index) {
                continue;
            }
            let since = self.calls.partition_point(|call| call.start_ns <= issue.issued_ns);
            let told = self.calls[since..]
                .iter()
                .find(|call| call.kind == CallKind::StreamWait && self.record_around(call).is_none());
            let Some(told) = told else { continue };
            let after = asked_until(self.issues, told.start_ns);
            let mut later = (after..self.issues.len()).filter(|other| self.issues[*other].stream != issue.stream);
            found.extend(later.find(|other| self.agrees(index, *other)).map(|effect| (index, effect)));
        }
        for (cause, effect) in found {
            self.insert(cause, effect);
        }
    }
}
