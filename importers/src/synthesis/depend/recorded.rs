//! Waits that the profiler recorded: which stream each held back, and what the event stood for.
//!
//! Such a row always names the waiting stream. Where the profiler also saw the event being recorded, it names that call
//! too; otherwise all there is beside is the event's number, and that is enough more often than not. PyTorch makes an
//! event the first time that it records it, so new events count up in the order of their first records. A wait right
//! behind a record is for that record, which ties a number to a place in this order; numbers between two such ties are
//! counted off from both, and taken where both counts agree. (Left out of the order are the records that use old events:
//! NCCL's own, made by the call without flags, and those of the allocator of pinned host memory, made right behind a
//! copy from or to it.)

use std::collections::HashMap;

use crate::capture::{ActivityKind, CallKind, HostCall, StreamWait, Timeline};

/// A wait that follows a record this closely is for the event just recorded.
pub(super) const AT_ONCE_NS: i64 = 20_000;

/// What was recorded of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// When the host asked for it.
    pub at_ns: i64,
    /// The stream that waits.
    pub stream: i64,
    /// The stream that the event is on.
    pub on_stream: Option<i64>,
    /// Index of the call that recorded the event.
    pub record: Option<usize>,
}

impl Known {
    /// Whether it is known what it waits for.
    pub(super) fn told(&self) -> bool {
        self.record.is_some() || self.on_stream.is_some()
    }
}

/// The recorded waits of a timeline.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// By the index of the call that waits.
    by_call: HashMap<usize, Known>,
    /// Those whose call is not in the capture.
    orphans: Vec<Known>,
}

impl Recorded {
    pub(super) fn new(timeline: &Timeline, pinned: &Pinned) -> Self {
        let calls = &timeline.calls;
        let place: HashMap<u64, usize> =
            calls.iter().enumerate().filter_map(|(index, call)| Some((call.correlation?, index))).collect();
        let call_of = |wait: &StreamWait| place.get(&wait.correlation).copied();
        let mut events = Events::new(calls, pinned);
        for wait in &timeline.stream_waits {
            if let (Some(call), Some(event)) = (call_of(wait), wait.event) {
                events.tie(call, event);
            }
        }
        let mut recorded = Self::default();
        for wait in &timeline.stream_waits {
            let call = call_of(wait);
            let said = wait.record_correlation.and_then(|correlation| place.get(&correlation).copied());
            let counted = || call.zip(wait.event).and_then(|(call, event)| events.record_of(call, event));
            let known = Known {
                at_ns: call.map_or(wait.at_ns, |call| calls[call].start_ns),
                stream: wait.stream,
                on_stream: wait.on_stream,
                record: said.or_else(counted),
            };
            match call {
                Some(call) => {
                    recorded.by_call.insert(call, known);
                }
                None => recorded.orphans.push(known),
            }
        }
        recorded
    }

    /// Whether no wait was recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.by_call.is_empty() && self.orphans.is_empty()
    }

    /// What is known of the wait that is call `index`.
    pub(super) fn wait(&self, index: usize) -> Option<Known> {
        self.by_call.get(&index).copied()
    }

    /// Recorded waits whose call is not in the capture.
    pub(super) fn orphans(&self) -> &[Known] {
        &self.orphans
    }
}

/// Which records of a thread are for the allocator of pinned host memory, right behind a copy.
pub(super) struct Pinned(Vec<bool>);

impl Pinned {
    pub(super) fn new(timeline: &Timeline) -> Self {
        let copies: HashMap<u64, bool> = timeline
            .activities
            .iter()
            .filter(|activity| matches!(activity.kind, ActivityKind::Copy { .. }))
            .filter_map(|activity| Some((activity.correlation?, activity.name.contains("Pinned"))))
            .collect();
        let mut pinned = vec![false; timeline.calls.len()];
        // Whether the latest launch of each thread was such a copy, with nothing recorded since.
        let mut copied: HashMap<i64, bool> = HashMap::new();
        for (index, call) in timeline.calls.iter().enumerate() {
            let copied = copied.entry(call.thread).or_default();
            match call.kind {
                CallKind::Launch => {
                    *copied = call.correlation.and_then(|id| copies.get(&id)).copied().unwrap_or(false);
                }
                CallKind::EventRecord { .. } => pinned[index] = std::mem::take(copied),
                CallKind::StreamWait | CallKind::Synchronize => {}
            }
        }
        Self(pinned)
    }

    /// Whether call `index` is such a record.
    pub(super) fn is(&self, index: usize) -> bool {
        self.0[index]
    }
}

/// The record right before the wait that is call `index`, with at most other waits between, and whether there are any.
pub(super) fn at_once(calls: &[HostCall], index: usize) -> Option<(usize, bool)> {
    let mut later = &calls[index];
    let mut waits = false;
    for (place, call) in calls[..index].iter().enumerate().rev() {
        if call.thread != later.thread {
            continue;
        }
        if later.start_ns - call.end_ns > AT_ONCE_NS {
            return None;
        }
        match call.kind {
            CallKind::EventRecord { .. } => return Some((place, waits)),
            CallKind::StreamWait => waits = true,
            CallKind::Launch | CallKind::Synchronize => return None,
        }
        later = call;
    }
    None
}

/// The order of records that make new events, with the numbers that are known.
struct Events<'a> {
    calls: &'a [HostCall],
    /// Records that make events, as indices into the calls.
    fresh: Vec<usize>,
    /// (event, place in `fresh`), ascending in both.
    ties: Vec<(u64, usize)>,
    /// Events whose record is at once before their first wait, by the wait.
    tied: HashMap<u64, usize>,
}

impl<'a> Events<'a> {
    fn new(calls: &'a [HostCall], pinned: &Pinned) -> Self {
        let makes = |(index, call): &(usize, &HostCall)| {
            call.kind == CallKind::EventRecord { flags: true } && !pinned.is(*index)
        };
        let fresh = calls.iter().enumerate().filter(makes).map(|(index, _)| index).collect();
        Self { calls, fresh, ties: Vec::new(), tied: HashMap::new() }
    }

    /// Learns from the wait for `event` that is call `wait`; waits come in order.
    fn tie(&mut self, wait: usize, event: u64) {
        let Some((record, behind_others)) = at_once(self.calls, wait) else { return };
        if behind_others {
            return;
        }
        let Ok(place) = self.fresh.binary_search(&record) else { return };
        if self.ties.last().is_none_or(|(number, at)| *number < event && *at < place) {
            self.ties.push((event, place));
            self.tied.insert(event, record);
        }
    }

    /// The record of `event`, for which call `wait` waits.
    fn record_of(&self, wait: usize, event: u64) -> Option<usize> {
        if let Some(record) = self.tied.get(&event) {
            return Some(*record);
        }
        // An old event, recorded anew each time it is used: at once or not at all.
        if let Some((record, false)) = at_once(self.calls, wait)
            && !self.fresh.contains(&record)
        {
            return Some(record);
        }
        let after = self.ties.partition_point(|(number, _)| *number < event);
        let from = after.checked_sub(1).map(|tie| self.ties[tie]);
        let forward = from.and_then(|(number, place)| place.checked_add(usize::try_from(event - number).ok()?));
        let backward =
            self.ties.get(after).and_then(|(number, place)| place.checked_sub(usize::try_from(number - event).ok()?));
        let place = match (forward, backward) {
            (Some(forward), Some(backward)) if forward == backward => forward,
            (Some(forward), None) => forward,
            _ => return None,
        };
        self.fresh.get(place).copied().filter(|record| *record < wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: CallKind, start_ns: i64) -> HostCall {
        HostCall { kind, thread: 1, start_ns, end_ns: start_ns + 1_000, correlation: Some(start_ns as u64) }
    }

    fn wait(at_ns: i64, event: u64) -> StreamWait {
        let correlation = at_ns as u64;
        StreamWait { stream: 9, on_stream: None, at_ns, correlation, record_correlation: None, event: Some(event) }
    }

    /// Which call each wait's event was recorded by, as its start.
    fn records(calls: Vec<HostCall>, stream_waits: Vec<StreamWait>) -> Vec<Option<i64>> {
        let timeline = Timeline { calls, stream_waits, ..Timeline::default() };
        let recorded = Recorded::new(&timeline, &Pinned::new(&timeline));
        let waits = timeline.calls.iter().enumerate().filter(|(_, call)| call.kind == CallKind::StreamWait);
        waits
            .map(|(index, _)| recorded.wait(index).unwrap().record.map(|record| timeline.calls[record].start_ns))
            .collect()
    }

    const RECORD: CallKind = CallKind::EventRecord { flags: true };
    const NCCL: CallKind = CallKind::EventRecord { flags: false };
    const WAIT: CallKind = CallKind::StreamWait;

    #[test]
    fn events_between_two_ties_are_counted_off() {
        let calls = vec![
            call(RECORD, 0),
            call(WAIT, 5_000),
            call(NCCL, 100_000),
            call(RECORD, 200_000),
            call(RECORD, 300_000),
            call(RECORD, 400_000),
            call(WAIT, 500_000),
            call(WAIT, 600_000),
            call(RECORD, 700_000),
            call(WAIT, 705_000),
        ];
        let waits = vec![wait(5_000, 40), wait(500_000, 42), wait(600_000, 43), wait(705_000, 44)];
        assert_eq!(records(calls.clone(), waits), [Some(0), Some(300_000), Some(400_000), Some(700_000)]);
        // Another record that makes no event, and the counts from both sides differ: nothing is said.
        let waits = vec![wait(5_000, 40), wait(500_000, 42), wait(600_000, 41), wait(705_000, 43)];
        assert_eq!(records(calls, waits), [Some(0), None, None, Some(700_000)]);
    }

    #[test]
    fn an_old_event_is_the_one_recorded_at_once() {
        let calls =
            vec![call(NCCL, 0), call(WAIT, 2_000), call(NCCL, 100_000), call(WAIT, 102_000), call(WAIT, 300_000)];
        let waits = vec![wait(2_000, 4), wait(102_000, 4), wait(300_000, 4)];
        assert_eq!(records(calls, waits), [Some(0), Some(100_000), None]);
    }
}
