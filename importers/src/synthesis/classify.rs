//! Second pass: what each kernel is. Communication or compute, and if communication, which one.
//!
//! In order of trust: the kernel's own metadata; the host record that shares its external id; the records that
//! surround its launch (a batch of sends and receives is one kernel whose records ended before the launch); and last
//! the kernel's name, which tells the operation at best, never sizes, algorithm or protocol.

use std::collections::{HashMap, HashSet};

use maestro_pattern::CollectiveKind;

use super::nesting::HostRanges;
use crate::Notes;
use crate::capture::{self, Activity, ActivityKind, CommFacts, CommOp, CommRecord, HostCall, Timeline};

/// What a communication kernel does, and how that is known.
#[derive(Clone, Debug)]
pub(crate) struct Communication {
    /// One set of facts; several for a group issued as one kernel.
    pub facts: Vec<CommFacts>,
    /// Where the facts came from.
    pub trust: Trust,
}

/// How it is known what a kernel does, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    /// Its own metadata.
    Metadata,
    /// The record that shares its external id.
    Record,
    /// The records that precede its launch.
    Surroundings,
    /// Its name.
    Name,
}

/// The annotation around the launch of a batch.
const BATCH: &str = "nccl:coalesced";

/// Classifies the activities of a timeline: the communication of those that communicate.
pub(crate) fn classify(
    timeline: &Timeline,
    launches: &[Option<usize>],
    ranges: &HostRanges<'_>,
    notes: &mut Notes,
) -> HashMap<usize, Communication> {
    let records: HashMap<u64, &CommRecord> =
        timeline.records.iter().filter_map(|r| r.external_id.map(|id| (id, r))).collect();
    let surroundings = Surroundings::new(timeline, ranges);
    let mut of = |index: usize, activity: &Activity| {
        let ActivityKind::Kernel { .. } = activity.kind else { return None };
        if let Some(facts) = activity.comm.as_deref().filter(|facts| facts.op != CommOp::Wait) {
            return Some(Communication { facts: vec![facts.clone()], trust: Trust::Metadata });
        }
        if !capture::is_communication(&activity.name) {
            return None;
        }
        let record = activity.external_id.and_then(|id| records.get(&id)).filter(|r| r.facts.op != CommOp::Wait);
        if let Some(record) = record {
            return Some(Communication { facts: vec![record.facts.clone()], trust: Trust::Record });
        }
        let launch = launches[index].map(|call| &timeline.calls[call]);
        let facts = launch.map(|launch| surroundings.of(launch)).unwrap_or_default();
        if !facts.is_empty() {
            return Some(Communication { facts, trust: Trust::Surroundings });
        }
        notes.add("communication kernels known by name only: sizes unknown", || activity.name.to_string());
        Some(Communication { facts: vec![from_name(&activity.name)], trust: Trust::Name })
    };
    let all = timeline.activities.iter().enumerate();
    all.filter_map(|(index, activity)| Some((index, of(index, activity)?))).collect()
}

/// The records that a launch flushes: those of its thread since the launch of communication before it. They lie inside
/// the annotation around the launch, or, for a batch, before an `nccl:coalesced` annotation.
struct Surroundings<'a> {
    ranges: &'a HostRanges<'a>,
    /// Per thread, the records by start.
    by_thread: HashMap<i64, Vec<&'a CommRecord>>,
    /// Per thread, the ends of `nccl:coalesced` annotations, ascending.
    batches: HashMap<i64, Vec<i64>>,
    /// Records whose own kernel says so: they belong to no batch.
    claimed: HashSet<u64>,
}

impl<'a> Surroundings<'a> {
    fn new(timeline: &'a Timeline, ranges: &'a HostRanges<'a>) -> Self {
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

    fn of(&self, launch: &HostCall) -> Vec<CommFacts> {
        if !self.ranges.annotations(launch.thread, launch.start_ns).any(|annotation| &*annotation.name == BATCH) {
            let record = self.ranges.record(launch.thread, launch.start_ns);
            return record.filter(|r| r.facts.op != CommOp::Wait).map(|r| r.facts.clone()).into_iter().collect();
        }
        let mine = self.by_thread.get(&launch.thread).map(Vec::as_slice).unwrap_or_default();
        let before = mine.partition_point(|record| record.start_ns <= launch.start_ns);
        let mut facts: Vec<CommFacts> = mine[..before]
            .iter()
            .rev()
            .take_while(|record| {
                record.facts.op != CommOp::Wait
                    && record.external_id.is_none_or(|id| !self.claimed.contains(&id))
                    && !self.batch_between(record, launch)
            })
            .map(|record| record.facts.clone())
            .collect();
        facts.reverse();
        facts
    }

    /// Whether a batch ended on the same thread between `record` and `launch`: then the record belongs to that one.
    fn batch_between(&self, record: &CommRecord, launch: &HostCall) -> bool {
        let ends = self.batches.get(&launch.thread).map(Vec::as_slice).unwrap_or_default();
        let first = ends.partition_point(|end| *end <= record.end_ns);
        ends.get(first).is_some_and(|end| *end < launch.start_ns)
    }
}

/// What a kernel's name alone tells: the operation, and that only where the name is not the generic one.
fn from_name(name: &str) -> CommFacts {
    let lower = name.to_ascii_lowercase();
    let kinds = [
        ("allreduce", CollectiveKind::AllReduce),
        ("allgather", CollectiveKind::AllGather),
        ("reducescatter", CollectiveKind::ReduceScatter),
        ("broadcast", CollectiveKind::Broadcast),
        ("alltoall", CollectiveKind::AllToAll),
        ("_reduce_", CollectiveKind::Reduce),
    ];
    let kind = kinds.iter().find(|(part, _)| lower.contains(part));
    CommFacts {
        op: kind.map_or(CommOp::Other, |(_, kind)| CommOp::Collective(*kind)),
        recorded_name: name.into(),
        dtype: None,
        in_elements: 0,
        out_elements: 0,
        in_splits: Vec::new(),
        out_splits: Vec::new(),
        group_size: None,
        ranks: None,
        group_name: None,
        group_desc: None,
        seq: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_operation_and_nothing_else() {
        let facts = from_name("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
        assert_eq!(facts.op, CommOp::Collective(CollectiveKind::ReduceScatter));
        assert_eq!((facts.in_elements, facts.dtype), (0, None));
        assert_eq!(from_name("ncclDevKernel_Generic").op, CommOp::Other);
    }
}
