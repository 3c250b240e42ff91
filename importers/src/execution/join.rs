//! An execution trace joined with the timeline of its rank.
//!
//! Rows and nodes share the id of the recorded function, unless that was written as 0; then the calls of a thread of
//! the profile are found, in their order, among those of a thread of the trace. Where they are found in several places
//! that say different things, nothing is taken.

use std::collections::{BTreeMap, HashMap};

use super::{ExecutionTrace, Node};
use crate::Notes;
use crate::capture::{CommFacts, CommOp, CommRecord, Timeline};
use crate::source::rank_in_name;

/// Node of each record, by the record's index.
type Joined = BTreeMap<usize, CommFacts>;

/// Fills in what the timelines lack. A trace is of the rank that its process or its name tells, or else of the one it
/// fits best.
pub(crate) fn join(traces: &[ExecutionTrace], timelines: &mut [Timeline], notes: &mut Notes) {
    for trace in traces {
        let told = trace.file.file_name().and_then(|name| rank(&name.to_string_lossy()));
        let named = timelines.iter().position(|timeline| told.is_some() && timeline.rank == told);
        let fits = |t: usize| joined(trace, &timelines[t]);
        let best = match (by_process(trace, timelines), named) {
            (Some(t), _) => Some((t, fits(t), "of its process")),
            (None, Some(t)) => Some((t, fits(t), "by its name")),
            (None, None) => best(timelines.len(), fits).map(|(t, joined)| (t, joined, "the one it fits")),
        };
        let Some((t, joined, why)) = best.filter(|(_, joined, _)| !joined.is_empty()) else {
            notes.add("execution traces that fit no rank of the capture, or several: not used", || {
                trace.file.display().to_string()
            });
            continue;
        };
        let (matched, records) = (joined.len(), timelines[t].records.len());
        let filled = fill(&joined, trace, &mut timelines[t]);
        let rank = timelines[t].rank.unwrap_or(t as u32);
        notes.add("execution traces joined with the profile of their rank", || {
            format!(
                "{} with rank {rank} ({why}): {matched} of {records} records found, {filled} completed",
                trace.file.display()
            )
        });
    }
}

/// The only timeline of the trace's process.
fn by_process(trace: &ExecutionTrace, timelines: &[Timeline]) -> Option<usize> {
    let process = trace.process?;
    let mut same = timelines.iter().enumerate().filter(|(_, timeline)| timeline.process == Some(process));
    let only = same.next()?.0;
    same.next().is_none().then_some(only)
}

/// The rank that a trace's name tells: as of any capture, or a number at its end (`host_3.json`).
fn rank(name: &str) -> Option<u32> {
    let stem = name.split('.').next().unwrap_or_default();
    rank_in_name(name).or_else(|| stem.rsplit_once(['_', '-'])?.1.parse().ok())
}

/// The timeline that most records were found for, if no other has as many.
fn best(count: usize, fits: impl Fn(usize) -> Joined) -> Option<(usize, Joined)> {
    let mut all: Vec<(usize, Joined)> = (0..count).map(|t| (t, fits(t))).collect();
    all.sort_by_key(|(t, joined)| (std::cmp::Reverse(joined.len()), *t));
    let tied = all.len() > 1 && all[0].1.len() == all[1].1.len();
    if tied { None } else { all.into_iter().next() }
}

fn joined(trace: &ExecutionTrace, timeline: &Timeline) -> Joined {
    let by_id: HashMap<u64, &Node> = trace.nodes.iter().filter_map(|node| Some((node.function_id?, node))).collect();
    let mut joined = Joined::new();
    for (index, record) in timeline.records.iter().enumerate() {
        if let Some(node) = record.function_id.and_then(|id| by_id.get(&id)).filter(|node| agrees(record, node)) {
            joined.insert(index, node.facts.clone());
        }
    }
    if !joined.is_empty() {
        return joined;
    }
    let mut threads: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (index, record) in timeline.records.iter().enumerate() {
        threads.entry(record.thread).or_default().push(index);
    }
    let mut traced: BTreeMap<i64, Vec<&Node>> = BTreeMap::new();
    for node in &trace.nodes {
        traced.entry(node.thread).or_default().push(node);
    }
    for records in threads.values() {
        let places = traced.values().flat_map(|nodes| nodes.windows(records.len()));
        let mut fitting = places.filter(|nodes| {
            records.iter().zip(nodes.iter()).all(|(index, node)| agrees(&timeline.records[*index], node))
        });
        let Some(first) = fitting.next() else { continue };
        let same = |nodes: &[&Node]| first.iter().zip(nodes).all(|(a, b)| a.facts == b.facts);
        if fitting.all(same) {
            joined.extend(records.iter().zip(first).map(|(index, node)| (*index, node.facts.clone())));
        }
    }
    joined
}

/// Whether a record and a node may be the same call: operation and, where both tell, sizes.
fn agrees(record: &CommRecord, node: &Node) -> bool {
    let (a, b) = (&record.facts, &node.facts);
    let same = match (a.op, b.op) {
        (CommOp::Collective(a), CommOp::Collective(b)) => a == b,
        (a, b) => std::mem::discriminant(&a) == std::mem::discriminant(&b),
    };
    let fits = |a: u64, b: u64| a == 0 || b == 0 || a == b;
    let coalesced = a.recorded_name.contains("coalesced");
    same && (coalesced || fits(a.in_elements, b.in_elements) && fits(a.out_elements, b.out_elements))
}

/// Fills records and kernels in; gives how many records gained something.
fn fill(joined: &Joined, trace: &ExecutionTrace, timeline: &mut Timeline) -> usize {
    let complete = |facts: &mut CommFacts, node: &CommFacts| {
        let before = facts.clone();
        let name = facts.group_name.as_ref().or(node.group_name.as_ref());
        if facts.ranks.is_none() {
            facts.ranks = name.and_then(|name| trace.groups.get(&**name)).cloned();
        }
        facts.complete(node);
        if facts.recorded_name.contains("coalesced") && node.in_elements > facts.in_elements {
            (facts.in_elements, facts.out_elements) = (node.in_elements, node.out_elements);
        }
        *facts != before
    };
    let mut by_id: HashMap<u64, &CommFacts> = HashMap::new();
    let mut filled = 0;
    for (index, node) in joined {
        let Some(record) = timeline.records.get_mut(*index) else { continue };
        filled += usize::from(complete(&mut record.facts, node));
        by_id.extend(record.external_id.map(|id| (id, node)));
    }
    for activity in &mut timeline.activities {
        let node = activity.external_id.and_then(|id| by_id.get(&id));
        if let (Some(facts), Some(node)) = (activity.comm.as_deref_mut(), node) {
            complete(facts, node);
        }
    }
    filled
}
