//! Waits of which something has to be found out: for what, and often on which stream.
//!
//! Whoever makes a stream wait does so just before launching on it. A wait inside the host's record of a communication
//! belongs to the communication; any other to the next launch on another lane, and two in a row to two lanes. A wait that
//! does not follow its record at once is for an event kept from earlier: if the annotation around it names an operation
//! (`FSDP::all_gather_copy_out`), for the oldest such communication that nobody has waited for yet; else for the latest
//! event that nobody has. What the times contradict (the cause ended after the effect began) is given up for an earlier
//! event, or dropped and counted. How often that is right: `tests` next door compare it with recorded waits.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

use super::recorded::{AT_ONCE_NS, Known, Pinned, Recorded};
use super::{Dependencies, Issue, Streams, asked_before, asked_until};
use crate::Notes;
use crate::capture::{CallKind, CommOp, HostCall, Timeline};
use crate::synthesis::nesting::HostRanges;

/// How many events to go back when the times contradict the latest.
const TRIES: usize = 8;

/// How many events to go back for one that was kept.
const KEPT: usize = 64;

/// What the latest wait was for.
struct Latest {
    /// Index of the call.
    wait: usize,
    thread: i64,
    cause: usize,
    /// The streams that this event cannot hold back any more: its own and those that wait already.
    streams: Vec<i64>,
}

/// What a wait comes to.
pub(super) enum Found {
    /// (cause, effect), as indices into the issues.
    Edge(usize, usize),
    /// It holds nothing back.
    Nothing,
    /// It holds something back, but not known for what.
    Unknown,
}

/// Finds edges, wait by wait in host order.
pub(super) struct Inference<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) issues: &'a [Issue],
    ranges: &'a HostRanges<'a>,
    streams: Streams,
    pinned: &'a Pinned,
    /// The calls of the step.
    calls: Range<usize>,
    /// Per thread, its event records in the step.
    event_records: HashMap<i64, Vec<usize>>,
    /// Per operation, the communications that nobody has waited for yet, oldest first, as indices into the issues.
    kept: HashMap<&'static str, VecDeque<usize>>,
    edges: HashSet<(usize, usize)>,
    streams_held: BTreeMap<(i64, i64), usize>,
    /// Issues that somebody waits for.
    waited: HashSet<usize>,
    latest: Option<Latest>,
}

impl<'a> Inference<'a> {
    pub(super) fn new(
        timeline: &'a Timeline,
        issues: &'a [Issue],
        ranges: &'a HostRanges<'a>,
        streams: Streams,
        pinned: &'a Pinned,
        calls: Range<usize>,
    ) -> Self {
        let mut event_records: HashMap<i64, Vec<usize>> = HashMap::new();
        for index in calls.clone() {
            let call = &timeline.calls[index];
            if matches!(call.kind, CallKind::EventRecord { .. }) {
                event_records.entry(call.thread).or_default().push(index);
            }
        }
        let mut kept: HashMap<&'static str, VecDeque<usize>> = HashMap::new();
        for (index, issue) in issues.iter().enumerate() {
            if let Some(operation) = issue.communicates {
                kept.entry(operation).or_default().push_back(index);
            }
        }
        let (edges, streams_held, waited) = Default::default();
        Self {
            timeline,
            issues,
            ranges,
            streams,
            pinned,
            calls,
            event_records,
            kept,
            edges,
            streams_held,
            waited,
            latest: None,
        }
    }

    /// All edges of the step; the host's waits are another's matter.
    pub(super) fn dependencies(mut self, recorded: &Recorded, notes: &mut Notes) -> Dependencies {
        let (mut read, mut inferred) = (0, 0);
        for index in self.calls.clone().filter(|index| self.timeline.calls[*index].kind == CallKind::StreamWait) {
            let call = &self.timeline.calls[index];
            let edge = match recorded.wait(index) {
                Some(known) => {
                    *(if known.told() { &mut read } else { &mut inferred }) += 1;
                    self.known(Some(index), known)
                }
                // The profiler leaves out what it saw hold nothing back.
                None if !recorded.is_empty() => Found::Nothing,
                None => {
                    inferred += 1;
                    self.found_out(index)
                }
            };
            self.count(&edge, recorded.wait(index));
            self.take(edge, call.start_ns, notes);
        }
        let begin_ns = self.issues.first().map_or(0, |issue| issue.asked_ns);
        let ends = self.issues.iter().map(|issue| self.timeline.activities[issue.activity].end_ns());
        let step = begin_ns..=ends.max().unwrap_or(begin_ns);
        for known in recorded.orphans().iter().filter(|known| step.contains(&known.at_ns)) {
            *(if known.told() { &mut read } else { &mut inferred }) += 1;
            let edge = self.known(None, *known);
            self.count(&edge, Some(*known));
            self.take(edge, known.at_ns, notes);
        }
        if recorded.is_empty() {
            self.join_leftovers();
        }
        inferred += self.held_back(recorded.is_empty() && read + inferred == 0);
        let Self { edges, streams_held: streams, .. } = self;
        Dependencies { edges, streams, host_waits: Vec::new(), recorded: read, inferred }
    }

    /// Counts who waits for whom.
    pub(super) fn count(&mut self, found: &Found, known: Option<Known>) {
        let pair = match (found, known) {
            (Found::Edge(cause, effect), _) => Some((self.issues[*effect].stream, self.issues[*cause].stream)),
            (Found::Nothing, Some(Known { stream, on_stream: Some(on_stream), .. })) => Some((stream, on_stream)),
            (Found::Nothing | Found::Unknown, _) => None,
        };
        if let Some(pair) = pair.filter(|(waits, on)| waits != on) {
            *self.streams_held.entry(pair).or_default() += 1;
        }
    }

    fn take(&mut self, found: Found, at_ns: i64, notes: &mut Notes) {
        match found {
            Found::Edge(cause, effect) => self.insert(cause, effect),
            Found::Nothing => {}
            Found::Unknown => notes.add("stream waits whose cause is outside the step or not found", || {
                format!("asked for at {at_ns} ns")
            }),
        }
    }

    pub(super) fn insert(&mut self, cause: usize, effect: usize) {
        self.edges.insert((self.issues[cause].activity, self.issues[effect].activity));
        self.waited.insert(cause);
    }

    /// The edge of a wait of which the stream was recorded.
    fn known(&mut self, index: Option<usize>, known: Known) -> Found {
        // A wait after which its stream did nothing more holds nothing back.
        let Some(effect) = self.streams.first(known.stream, asked_until(self.issues, known.at_ns)) else {
            return Found::Nothing;
        };
        let cause = match (known.record, known.on_stream) {
            (Some(record), on_stream) => {
                let record = &self.timeline.calls[record];
                let before = asked_before(self.issues, record.start_ns);
                on_stream.or_else(|| self.working(record, before)).and_then(|stream| self.streams.last(stream, before))
            }
            (None, Some(on_stream)) => self.streams.last(on_stream, asked_before(self.issues, known.at_ns)),
            (None, None) => index.and_then(|index| self.cause_of(index, effect)),
        };
        match cause {
            Some(cause) if self.issues[cause].stream == known.stream => Found::Nothing,
            Some(cause) if self.agrees(cause, effect) => Found::Edge(cause, effect),
            _ => Found::Unknown,
        }
    }

    /// What the wait that is call `index`, and holds back `effect`, may be for: the latest event that the times allow.
    fn cause_of(&self, index: usize, effect: usize) -> Option<usize> {
        self.records_before(index).take(TRIES).find_map(|record| {
            let record = &self.timeline.calls[record];
            let before = asked_before(self.issues, record.start_ns);
            let cause = self.streams.last(self.working(record, before)?, before)?;
            (self.issues[cause].stream != self.issues[effect].stream && self.agrees(cause, effect)).then_some(cause)
        })
    }

    /// The stream that the thread of `record` was working on, as far as the first `before` issues tell.
    fn working(&self, record: &HostCall, before: usize) -> Option<i64> {
        let mine = self.issues[..before].iter().rev().find(|issue| issue.thread == record.thread);
        mine.map(|issue| issue.stream)
    }

    /// The edge of a wait of which nothing was recorded.
    fn found_out(&mut self, index: usize) -> Found {
        let call = &self.timeline.calls[index];
        let edge = match self.record_around(call) {
            Some(record_end) => match self.launch_of_record(call, record_end) {
                Some(effect) => self.cause_of_communication(index, effect).map(|cause| (cause, effect)),
                // After the launch: the calling stream waits for the communication it just issued, on itself.
                None => return Found::Nothing,
            },
            None => self.cause_and_effect(index),
        };
        edge.map_or(Found::Unknown, |(cause, effect)| Found::Edge(cause, effect))
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
        let record = &self.timeline.calls[self.records_before(index).next()?];
        let before = asked_before(self.issues, record.start_ns);
        let lane = self.issues[effect].stream;
        let elsewhere = || self.issues[..before].iter().rev().filter(|issue| issue.stream != lane);
        let mine = elsewhere().find(|issue| issue.thread == record.thread);
        let stream = mine.or_else(|| elsewhere().next())?.stream;
        // What the times contradict it did not wait for, but for something before that on the same stream.
        self.streams.latest(stream, before).find(|cause| self.agrees(*cause, effect))
    }

    /// The event of any other wait, and the launch that it holds back.
    fn cause_and_effect(&mut self, index: usize) -> Option<(usize, usize)> {
        let call = &self.timeline.calls[index];
        let after = asked_until(self.issues, call.start_ns);
        let soon = |before: usize| call.start_ns - self.timeline.calls[before].end_ns <= AT_ONCE_NS;
        let record = self.records_before(index).next();
        // Two waits in a row are for one event, by two streams.
        if let Some(same) = self.latest.take_if(|latest| {
            latest.thread == call.thread && soon(latest.wait) && record.is_none_or(|record| record < latest.wait)
        }) {
            let effect = self.issues[after..].iter().position(|issue| !same.streams.contains(&issue.stream))? + after;
            return self.held(index, same.cause, effect, same.streams);
        }
        let operation = self.operation_around(call);
        let cause = if record.is_some_and(soon) {
            self.records_before(index).take(TRIES).find_map(|record| self.possible(record, after, |_| true))
        } else if let Some(operation) = operation {
            self.kept_event(call, operation)
        } else {
            self.stored_event(index, after)
        }?;
        let effect = self.next_elsewhere(cause, after)?;
        self.held(index, cause, effect, vec![self.issues[cause].stream])
    }

    /// Remembers what a wait was for, should another follow at once.
    fn held(&mut self, wait: usize, cause: usize, effect: usize, mut streams: Vec<i64>) -> Option<(usize, usize)> {
        streams.push(self.issues[effect].stream);
        self.latest = Some(Latest { wait, thread: self.timeline.calls[wait].thread, cause, streams });
        self.agrees(cause, effect).then_some((cause, effect))
    }

    /// What `record` stands for, if that is `wanted` and the times allow that the next launch elsewhere waited for it.
    fn possible(&self, record: usize, after: usize, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let record = &self.timeline.calls[record];
        let before = asked_before(self.issues, record.start_ns);
        let cause = self.streams.last(self.working(record, before)?, before)?;
        (wanted(cause) && self.next_elsewhere(cause, after).is_some_and(|effect| self.agrees(cause, effect)))
            .then_some(cause)
    }

    /// An event kept from earlier that nothing around its wait speaks of: the latest that nobody has waited for yet.
    /// PyTorch waits for communication by calls that say so, so compute comes first.
    fn stored_event(&self, index: usize, after: usize) -> Option<usize> {
        let records = || self.records_before(index).filter(|record| !self.pinned.is(*record)).take(KEPT);
        let communicates = |cause: usize| self.issues[cause].communicates.is_some();
        let fresh = |cause: usize| !self.waited.contains(&cause);
        let by = |wanted: &dyn Fn(usize) -> bool| records().find_map(|record| self.possible(record, after, wanted));
        by(&|cause| fresh(cause) && !communicates(cause)).or_else(|| by(&fresh)).or_else(|| by(&|_| true))
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

    /// The oldest communication of this operation that nobody has waited for yet.
    fn kept_event(&mut self, call: &HostCall, operation: &str) -> Option<usize> {
        let now = asked_until(self.issues, call.start_ns);
        let kept = self.kept.get_mut(operation)?;
        while kept.front().is_some_and(|oldest| self.waited.contains(oldest)) {
            kept.pop_front();
        }
        kept.front().copied().filter(|oldest| *oldest < now)
    }

    /// Event records of the same thread before call `index`, latest first. Where the profiler records none at all, as
    /// ROCm's does not, the wait itself stands for one right before it.
    fn records_before(&self, index: usize) -> impl Iterator<Item = usize> {
        let mine = self.event_records.get(&self.timeline.calls[index].thread).map(Vec::as_slice).unwrap_or_default();
        let recorded = mine[..mine.partition_point(|record| *record < index)].iter().rev().copied();
        recorded.chain(self.event_records.is_empty().then_some(index))
    }

    /// Whether the times allow that `effect` waited for `cause`.
    pub(super) fn agrees(&self, cause: usize, effect: usize) -> bool {
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
            let since = self.timeline.calls.partition_point(|call| call.start_ns <= issue.issued_ns);
            let told = self.timeline.calls[since..self.calls.end.max(since)]
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
