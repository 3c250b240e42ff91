//! Second pass: what each kernel is. Communication or compute, and if communication, which one.
//!
//! In order of trust: the kernel's own metadata; the host record that shares its external id; the records that
//! surround its launch (a batch of sends and receives is one kernel whose records ended before the launch); and last
//! the kernel's name, which tells the operation at best, never sizes, algorithm or protocol.

use std::collections::{HashMap, HashSet};

use maestro_pattern::CollectiveKind;

use crate::Notes;
use crate::capture::{ActivityKind, Annotation, CommFacts, CommOp, CommRecord, HostCall, Timeline};

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

/// Classifies the activities of a timeline: the communication of those that communicate.
pub(crate) fn classify(
    timeline: &Timeline,
    launches: &[Option<usize>],
    notes: &mut Notes,
) -> HashMap<usize, Communication> {
    let records: HashMap<u64, &CommRecord> =
        timeline.records.iter().filter_map(|r| r.external_id.map(|id| (id, r))).collect();
    // Records whose own kernel says so belong to no batch.
    let claimed: HashSet<u64> =
        timeline.activities.iter().filter(|a| a.comm.is_some()).filter_map(|a| a.external_id).collect();
    let mut all = HashMap::new();
    for (index, activity) in timeline.activities.iter().enumerate() {
        if !matches!(activity.kind, ActivityKind::Kernel { .. }) {
            continue;
        }
        let named = is_communication(&activity.name);
        if let Some(facts) = activity.comm.as_deref().filter(|facts| facts.op != CommOp::Wait) {
            let facts = vec![facts.clone()];
            all.insert(index, Communication { facts, trust: Trust::Metadata });
            continue;
        }
        if !named {
            continue;
        }
        let record = activity.external_id.and_then(|id| records.get(&id)).filter(|r| r.facts.op != CommOp::Wait);
        if let Some(record) = record {
            let facts = vec![record.facts.clone()];
            all.insert(index, Communication { facts, trust: Trust::Record });
            continue;
        }
        let launch = launches[index].map(|call| &timeline.calls[call]);
        let surrounding = launch.map(|launch| surrounding(timeline, launch, &claimed)).unwrap_or_default();
        if !surrounding.is_empty() {
            all.insert(index, Communication { facts: surrounding, trust: Trust::Surroundings });
            continue;
        }
        notes.add("communication kernels known by name only: sizes unknown", || activity.name.to_string());
        all.insert(index, Communication { facts: vec![from_name(&activity.name)], trust: Trust::Name });
    }
    all
}

/// Whether a kernel's name is one of a communication library's.
pub(crate) fn is_communication(name: &str) -> bool {
    let name = name.strip_prefix("void ").unwrap_or(name);
    let starts = |prefix: &str| name.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
    ["nccl", "rccl", "msccl"].iter().any(|prefix| starts(prefix))
}

/// The records that a launch flushes: those of its thread since the launch of communication before it. They lie inside
/// the annotation around the launch, or, for a batch, before an `nccl:coalesced` annotation.
fn surrounding(timeline: &Timeline, launch: &HostCall, claimed: &HashSet<u64>) -> Vec<CommFacts> {
    let around = |name: &dyn Fn(&str) -> bool| {
        let before = timeline.annotations.partition_point(|a| a.start_ns <= launch.start_ns);
        // Annotations nest: look at the last few that began before.
        let recent = &timeline.annotations[before.saturating_sub(16)..before];
        recent
            .iter()
            .rev()
            .find(|a: &&Annotation| a.thread == launch.thread && a.end_ns >= launch.start_ns && name(&a.name))
    };
    let before = timeline.records.partition_point(|r| r.start_ns <= launch.start_ns);
    let mine = timeline.records[..before].iter().rev().filter(|r| r.thread == launch.thread);
    if around(&|name| name == "nccl:coalesced").is_some() {
        let mut facts: Vec<CommFacts> = mine
            .take_while(|r| {
                r.facts.op != CommOp::Wait
                    && r.external_id.is_none_or(|id| !claimed.contains(&id))
                    && !launched_since(timeline, r, launch)
            })
            .map(|r| r.facts.clone())
            .collect();
        facts.reverse();
        return facts;
    }
    mine.take(1)
        .filter(|r| r.end_ns >= launch.start_ns && r.facts.op != CommOp::Wait)
        .map(|r| r.facts.clone())
        .collect()
}

/// Whether an `nccl:coalesced` range ended on the same thread between `record` and `launch`: then the record belongs
/// to that earlier batch.
fn launched_since(timeline: &Timeline, record: &CommRecord, launch: &HostCall) -> bool {
    let from = timeline.annotations.partition_point(|a| a.start_ns <= record.end_ns);
    timeline.annotations[from..]
        .iter()
        .take_while(|a| a.start_ns < launch.start_ns)
        .any(|a| a.thread == launch.thread && a.end_ns < launch.start_ns && &*a.name == "nccl:coalesced")
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
    fn names_of_communication_libraries_are_known_in_any_case() {
        for name in [
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
            "void rcclGenericKernel<1, false>(ncclDevComm*)",
            "mscclKernel_Sum_half_Simple",
        ] {
            assert!(is_communication(name), "{name}");
        }
        for name in ["nvjet_sm90_tst_256x128", "void at::native::reduce_kernel<128, 4>", "nc"] {
            assert!(!is_communication(name), "{name}");
        }
    }

    #[test]
    fn a_name_tells_the_operation_and_nothing_else() {
        let facts = from_name("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
        assert_eq!(facts.op, CommOp::Collective(CollectiveKind::ReduceScatter));
        assert_eq!((facts.in_elements, facts.dtype), (0, None));
        assert_eq!(from_name("ncclDevKernel_Generic").op, CommOp::Other);
    }
}
