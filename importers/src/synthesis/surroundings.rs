//! The records that a launch flushes, for kernels that no id links to their record.
//!
//! A launch inside a record is that record's. A batch of calls (`nccl:coalesced`) is launched at its end: what it
//! launches are the records of its thread since the batch before it, but for those whose own kernel says so.

use std::collections::{HashMap, HashSet};

use super::nesting::HostRanges;
use crate::capture::{CommFacts, CommOp, CommRecord, HostCall, Timeline};

/// The annotation around the launch of a batch.
pub(crate) const BATCH: &str = "nccl:coalesced";

/// The records of a timeline, ready to be asked.
pub(crate) struct Surroundings<'a> {
    ranges: &'a HostRanges<'a>,
    /// Per thread, the records by start.
    by_thread: HashMap<i64, Vec<&'a CommRecord>>,
    /// Per thread, the ends of `nccl:coalesced` annotations, ascending.
    batches: HashMap<i64, Vec<i64>>,
    /// Records whose own kernel says so: they belong to no batch.
    claimed: HashSet<u64>,
}

impl<'a> Surroundings<'a> {
    pub fn new(timeline: &'a Timeline, ranges: &'a HostRanges<'a>) -> Self {
        let mut by_thread: HashMap<i64, Vec<&CommRecord>> = HashMap::new();
        for record in &timeline.records {
            by_thread.entry(record.thread).or_default().push(record);
        }
        let mut batches: HashMap<i64, Vec<i64>> = HashMap::new();
        for annotation in timeline.annotations.iter().filter(|a| &*a.name == BATCH) {
            batches.entry(annotation.thread).or_default().push(annotation.end_ns);
        }
        batches.values_mut().for_each(|ends| ends.sort_unstable());
        let claimed = timeline.activities.iter().filter(|a| a.comm.is_some()).filter_map(|a| a.external_id).collect();
        Self { ranges, by_thread, batches, claimed }
    }

    /// The record around a launch that is in no batch.
    pub fn around(&self, launch: &HostCall) -> Option<&'a CommRecord> {
        let record = self.ranges.record(launch.thread, launch.start_ns)?;
        (record.facts.op != CommOp::Wait && !self.in_batch(launch.thread, launch.start_ns)).then_some(record)
    }

    /// What the records say that a launch in a batch flushes.
    pub fn batch(&self, launch: &HostCall) -> Vec<CommFacts> {
        if !self.in_batch(launch.thread, launch.start_ns) {
            return Vec::new();
        }
        self.flushed(launch.thread, launch.start_ns).map(|record| record.facts.clone()).collect()
    }

    /// Whether a batch is being launched.
    pub fn in_batch(&self, thread: i64, at_ns: i64) -> bool {
        self.ranges.annotations(thread, at_ns).any(|annotation| &*annotation.name == BATCH)
    }

    /// The records that a batch launched at `at_ns` flushes, in their order.
    pub fn flushed(&self, thread: i64, at_ns: i64) -> impl Iterator<Item = &'a CommRecord> {
        let mine = self.by_thread.get(&thread).map(Vec::as_slice).unwrap_or_default();
        let before = &mine[..mine.partition_point(|record| record.start_ns <= at_ns)];
        let count = before
            .iter()
            .rev()
            .take_while(|record| {
                record.facts.op != CommOp::Wait
                    && record.external_id.is_none_or(|id| !self.claimed.contains(&id))
                    && !self.batch_between(record, thread, at_ns)
            })
            .count();
        before[before.len() - count..].iter().copied()
    }

    /// Whether a batch ended on the same thread between `record` and `at_ns`: then the record belongs to that one.
    fn batch_between(&self, record: &CommRecord, thread: i64, at_ns: i64) -> bool {
        let ends = self.batches.get(&thread).map(Vec::as_slice).unwrap_or_default();
        let first = ends.partition_point(|end| *end <= record.end_ns);
        ends.get(first).is_some_and(|end| *end < at_ns)
    }
}
