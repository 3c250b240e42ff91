//! Which host call launched each activity, and what stands in for that where the profiler linked nothing.
//!
//! AMD's tracer has given all kernels of its library the correlation 0. Then order is all there is: what one stream
//! ran is what one group recorded, one for one and in that order. It is used only where a stream can be told to belong
//! to a group: because there is one of each, or because just one has as many records as the stream has kernels.
//! Kernels at the front of a window, launched before it, have no record; they start before the first record does.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::nesting::HostRanges;
use super::surroundings::{BATCH, Surroundings};
use crate::capture::{ActivityKind, CallKind, CommFacts, CommOp, CommRecord, Timeline};
use crate::{Notes, libraries};

/// What launched the activities of a timeline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    /// Index into the timeline's calls, by activity.
    pub launches: Vec<Option<usize>>,
    /// What the records say whose turn it was, by activity without any link.
    pub records: HashMap<usize, Vec<CommFacts>>,
}

/// One launch that the host recorded without a link: a record, or a batch of them.
struct Unit {
    thread: i64,
    start_ns: i64,
    end_ns: i64,
    facts: Vec<CommFacts>,
}

impl Links {
    pub fn new(timeline: &Timeline, ranges: &HostRanges<'_>) -> Self {
        let mut links = Self { launches: launches(timeline), records: HashMap::new() };
        let known: HashSet<u64> = timeline.records.iter().filter_map(|record| record.external_id).collect();
        let mut streams: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (index, activity) in timeline.activities.iter().enumerate() {
            let linked = links.launches[index].is_some()
                || activity.comm.is_some()
                || activity.correlation.is_some()
                || activity.external_id.is_some_and(|id| known.contains(&id));
            let kernel = matches!(activity.kind, ActivityKind::Kernel { .. });
            if kernel && !linked && libraries::is_nccl(&activity.name) {
                streams.entry(activity.stream).or_default().push(index);
            }
        }
        if streams.is_empty() {
            return links;
        }
        let mut groups: BTreeMap<String, Vec<Unit>> = BTreeMap::new();
        for unit in units(timeline, &links, ranges) {
            let name = unit.facts.iter().find_map(|facts| facts.group_name.clone());
            groups.entry(name.map_or_else(String::new, |name| name.to_string())).or_default().push(unit);
        }
        for (stream, mut kernels) in pairs(timeline, streams, &mut groups) {
            // Kernels of a window's front were launched before it, and records of its end have no kernel yet.
            let first = stream.first().map_or(i64::MAX, |unit| unit.start_ns);
            kernels.retain(|index| timeline.activities[*index].start_ns >= first);
            kernels.drain(..kernels.len().saturating_sub(stream.len()));
            let causal = |(index, unit): (&usize, &Unit)| timeline.activities[*index].start_ns >= unit.start_ns;
            if !kernels.iter().zip(&stream).all(causal) {
                continue;
            }
            for (index, unit) in kernels.into_iter().zip(stream) {
                links.launches[index] = launch_inside(timeline, &unit);
                links.records.insert(index, unit.facts);
            }
        }
        links
    }
}

/// Notes kernels that start before the call that launched them: their clock is converted, the host's is not.
pub(crate) fn early(timelines: &[Timeline], links: &[Links], notes: &mut Notes) {
    let lead = timelines.iter().zip(links).flat_map(|(timeline, links)| {
        let launched = timeline.activities.iter().zip(&links.launches);
        launched.filter_map(|(activity, launch)| {
            let lead = timeline.calls[(*launch)?].start_ns - activity.start_ns;
            (lead > 0).then_some((lead, &activity.name))
        })
    });
    let (mut count, mut most) = (0, None);
    for lead in lead {
        count += 1;
        most = most.max(Some(lead));
    }
    notes.add_many("kernels that start before their launch call", count, || {
        most.map_or_else(String::new, |(lead, name)| format!("the largest by {} us, {name}", lead as f64 / 1e3))
    });
}

/// When the host launched each activity: index into the timeline's calls.
fn launches(timeline: &Timeline) -> Vec<Option<usize>> {
    let calls: HashMap<u64, usize> = timeline
        .calls
        .iter()
        .enumerate()
        .filter(|(_, call)| call.kind == CallKind::Launch)
        .filter_map(|(i, call)| call.correlation.map(|c| (c, i)))
        .collect();
    timeline.activities.iter().map(|a| a.correlation.and_then(|c| calls.get(&c)).copied()).collect()
}

/// The launches that no kernel is linked to, by start.
fn units(timeline: &Timeline, links: &Links, ranges: &HostRanges<'_>) -> Vec<Unit> {
    let surroundings = Surroundings::new(timeline, ranges);
    // Records that a linked kernel belongs to.
    let mut taken: HashSet<*const CommRecord> = HashSet::new();
    let by_id: HashMap<u64, &CommRecord> =
        timeline.records.iter().filter_map(|r| r.external_id.map(|id| (id, r))).collect();
    for (index, activity) in timeline.activities.iter().enumerate() {
        taken.extend(activity.external_id.and_then(|id| by_id.get(&id)).map(|record| *record as *const _));
        if let Some(call) = links.launches[index].map(|call| &timeline.calls[call])
            && libraries::is_nccl(&activity.name)
        {
            taken.extend(surroundings.around(call).map(|record| record as *const _));
            if surroundings.in_batch(call.thread, call.start_ns) {
                taken.extend(surroundings.flushed(call.thread, call.start_ns).map(|record| record as *const _));
            }
        }
    }
    let mut units = Vec::new();
    for batch in timeline.annotations.iter().filter(|annotation| &*annotation.name == BATCH) {
        let records: Vec<&CommRecord> = surroundings
            .flushed(batch.thread, batch.start_ns)
            .filter(|record| taken.insert(*record as *const _))
            .collect();
        if !records.is_empty() {
            let facts = records.iter().map(|record| record.facts.clone()).collect();
            units.push(Unit { thread: batch.thread, start_ns: batch.start_ns, end_ns: batch.end_ns, facts });
        }
    }
    for record in timeline.records.iter().filter(|record| record.facts.op != CommOp::Wait) {
        if taken.insert(record as *const _) {
            let facts = vec![record.facts.clone()];
            units.push(Unit { thread: record.thread, start_ns: record.start_ns, end_ns: record.end_ns, facts });
        }
    }
    units.sort_by_key(|unit| unit.start_ns);
    units
}

/// Which group's launches a stream ran.
fn pairs(
    timeline: &Timeline,
    streams: BTreeMap<i64, Vec<usize>>,
    groups: &mut BTreeMap<String, Vec<Unit>>,
) -> Vec<(Vec<Unit>, Vec<usize>)> {
    if streams.len() == 1 {
        // One stream runs all groups' launches in the order in which they were made.
        let mut all: Vec<Unit> = std::mem::take(groups).into_values().flatten().collect();
        all.sort_by_key(|unit| unit.start_ns);
        return streams.into_values().map(|kernels| (std::mem::take(&mut all), kernels)).collect();
    }
    let fits = |units: &[Unit], kernels: &[usize]| {
        let first = units.first().map_or(i64::MAX, |unit| unit.start_ns);
        units.len() == kernels.iter().filter(|index| timeline.activities[**index].start_ns >= first).count()
    };
    let mut found = Vec::new();
    for kernels in streams.values() {
        let mut fitting = groups.iter().filter(|(_, units)| fits(units, kernels)).map(|(name, _)| name.clone());
        if let (Some(name), None) = (fitting.next(), fitting.next())
            && streams.values().filter(|other| fits(&groups[&name], other)).count() == 1
        {
            found.push((name, kernels.clone()));
        }
    }
    found.into_iter().filter_map(|(name, kernels)| Some((groups.remove(&name)?, kernels))).collect()
}

/// The last launch inside a unit.
fn launch_inside(timeline: &Timeline, unit: &Unit) -> Option<usize> {
    let end = timeline.calls.partition_point(|call| call.start_ns <= unit.end_ns);
    let start = timeline.calls.partition_point(|call| call.start_ns < unit.start_ns);
    (start..end).rev().find(|call| {
        let call = &timeline.calls[*call];
        call.kind == CallKind::Launch && call.thread == unit.thread
    })
}
