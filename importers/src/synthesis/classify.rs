//! Second pass: what each kernel is. Communication or compute, and if communication, which one.
//!
//! In order of trust: the kernel's own metadata; the host record that shares its external id; the record around its
//! launch; the records that precede its launch (a batch of sends and receives is one kernel whose records ended before
//! it); the record in its place, where the profiler links none; and last the kernel's name, which tells the operation
//! at best, never sizes, algorithm or protocol. What better evidence leaves open, the next best fills in.

use std::collections::HashMap;
use std::sync::Arc;

use maestro_pattern::CollectiveKind;

use super::nesting::HostRanges;
use super::surroundings::Surroundings;
use super::unlinked::Links;
use crate::Notes;
use crate::capture::{Activity, ActivityKind, CommFacts, CommOp, CommRecord, RecordSource, Timeline};
use crate::libraries::{self, CommKernel};

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
    /// The record around its launch.
    Launch,
    /// The annotation or operator around its launch.
    Annotation,
    /// The records that precede its launch.
    Surroundings,
    /// The record whose turn it was.
    Order,
    /// Its name.
    Name,
}

impl Trust {
    /// Whether what is known so was inferred rather than read.
    pub fn inferred(self) -> bool {
        self >= Self::Surroundings
    }
}

/// Classifies the activities of a timeline: the communication of those that communicate. `ours` are patterns of the
/// user's for names.
pub(crate) fn classify(
    timeline: &Timeline,
    links: &Links,
    ranges: &HostRanges<'_>,
    ours: &[CommKernel],
    notes: &mut Notes,
) -> HashMap<usize, Communication> {
    let records: HashMap<u64, &CommRecord> =
        timeline.records.iter().filter_map(|r| r.external_id.map(|id| (id, r))).collect();
    // Calls that the library's own ranges tell of, and that one kernel runs.
    let mut fused: HashMap<Option<u64>, Vec<&CommRecord>> = HashMap::new();
    for record in timeline.records.iter().filter(|record| record.source == RecordSource::Range) {
        fused.entry(record.external_id).or_default().push(record);
    }
    let surroundings = Surroundings::new(timeline, ranges);
    let mut names = Names { ours, known: HashMap::new() };
    let mut of = |index: usize, activity: &Activity| {
        let ActivityKind::Kernel { .. } = activity.kind else { return None };
        let launch = links.launches[index].map(|call| &timeline.calls[call]);
        let told = activity.external_id.and_then(|id| records.get(&id)).filter(|r| r.facts.op != CommOp::Wait);
        if let Some(unit) = timeline.unit(index) {
            let told = || Communication { facts: unit.comm.clone(), trust: Trust::Metadata };
            return (!unit.comm.is_empty()).then(told);
        }
        if let Some(facts) = activity.comm.as_deref().filter(|facts| facts.op != CommOp::Wait) {
            let mut facts = facts.clone();
            let around = || launch.and_then(|launch| ranges.record(launch.thread, launch.start_ns));
            if let Some(record) = told.copied().or_else(around) {
                correct(&mut facts, &record.facts);
            }
            return Some(Communication { facts: vec![facts], trust: Trust::Metadata });
        }
        if !names.communicate(&activity.name) {
            return None;
        }
        if let Some(record) = told {
            if record.source == RecordSource::Range {
                let all = fused.get(&record.external_id).map(Vec::as_slice).unwrap_or_default();
                let facts = all.iter().map(|record| record.facts.clone()).collect();
                return Some(Communication { facts, trust: Trust::Record });
            }
            let trust = source(record, Trust::Record, notes);
            return Some(Communication { facts: vec![record.facts.clone()], trust });
        }
        if let Some(facts) = links.records.get(&index) {
            notes.add("communication kernels without any link, taken for the records whose turn it was", || {
                format!("{} for {}", activity.name, facts[0].recorded_name)
            });
            return Some(Communication { facts: facts.clone(), trust: Trust::Order });
        }
        // Libraries that leave no records are launched inside records of others at most by chance.
        let recorded = libraries::is_nccl(&activity.name);
        if let Some(launch) = launch.filter(|_| recorded) {
            if let Some(record) = surroundings.around(launch) {
                let trust = source(record, Trust::Launch, notes);
                return Some(Communication { facts: vec![record.facts.clone()], trust });
            }
            let facts = surroundings.batch(launch);
            if !facts.is_empty() {
                return Some(Communication { facts, trust: Trust::Surroundings });
            }
        }
        notes.add("communication kernels known by name only: sizes unknown", || activity.name.to_string());
        let by_user = ours.iter().find(|kernel| kernel.matches(&activity.name));
        let kind = by_user.and_then(|kernel| kernel.kind).or_else(|| libraries::operation(&activity.name));
        let facts = CommFacts::new(kind.map_or(CommOp::Other, CommOp::Collective), activity.name.clone());
        Some(Communication { facts: vec![facts], trust: Trust::Name })
    };
    let all = timeline.activities.iter().enumerate();
    all.filter_map(|(index, activity)| Some((index, of(index, activity)?))).collect()
}

/// Whether names are those of kernels that communicate, asked once a name: they are long and few.
struct Names<'a> {
    ours: &'a [CommKernel],
    /// By where the name is: equal names of a timeline are mostly one.
    known: HashMap<*const u8, bool>,
}

impl Names<'_> {
    fn communicate(&mut self, name: &Arc<str>) -> bool {
        *self
            .known
            .entry(name.as_ptr())
            .or_insert_with(|| libraries::is_communication(name) || self.ours.iter().any(|kernel| kernel.matches(name)))
    }
}

/// Lets a kernel's record say what its metadata leave open or, copied from one tensor of several or from the reduction
/// that makes a barrier, do not say right.
fn correct(facts: &mut CommFacts, record: &CommFacts) {
    let tiny = facts.in_elements <= 1 && facts.op == CommOp::Collective(CollectiveKind::AllReduce);
    if tiny && record.op == CommOp::Collective(CollectiveKind::Barrier) {
        facts.op = record.op;
        return;
    }
    if facts.op != CommOp::Other && std::mem::discriminant(&facts.op) != std::mem::discriminant(&record.op) {
        return;
    }
    if let (CommOp::Collective(a), CommOp::Collective(b)) = (facts.op, record.op)
        && a != b
    {
        return;
    }
    facts.complete(record);
    if facts.recorded_name.contains("coalesced") && record.in_elements > facts.in_elements {
        (facts.in_elements, facts.out_elements) = (record.in_elements, record.out_elements);
    }
}

/// How much a record is trusted, found in a way that is worth `trust`.
fn source(record: &CommRecord, trust: Trust, notes: &mut Notes) -> Trust {
    match record.source {
        RecordSource::Params | RecordSource::Range => trust,
        RecordSource::Annotation | RecordSource::Operator => {
            notes.add("communication kernels described by the annotation around their launch only", || {
                record.facts.recorded_name.to_string()
            });
            Trust::Annotation
        }
    }
}
