//! From times of nodes to a timeline: activities, the launches behind them, dependencies and waits of the host.
//!
//! A node's parts share its time evenly, for nobody recorded how it was spent; all that the host asked for at one
//! moment keeps the order of the recording.

use std::collections::HashMap;
use std::sync::Arc;

use super::Times;
use crate::capture::{
    Activity, CallKind, HostCall, Launched, OperatorWork, StatedLane, StatedNode, StatedWait, StepMark, Timeline,
};

/// Fills `timeline` with what its graph gives at these times.
pub(super) fn fill(timeline: &mut Timeline, order: &[u32], times: &[Times]) {
    let Some(mut stated) = timeline.stated.take() else { return };
    let nodes = std::mem::take(&mut stated.nodes);
    // (start, place in the order, part): the order of activities.
    let mut all: Vec<(i64, usize, usize)> = Vec::new();
    for (place, node) in order.iter().enumerate() {
        let count = nodes[*node as usize].parts.len();
        all.extend((0..count).map(|part| (bound(&times[*node as usize], part, count), place, part)));
    }
    all.sort_unstable();
    // Per place in the order: where each of its parts went.
    let mut index: Vec<Vec<u32>> = order.iter().map(|node| vec![0; nodes[*node as usize].parts.len()]).collect();
    let mut activities = Vec::with_capacity(all.len());
    let (mut works, mut launched) = (Vec::new(), Vec::new());
    let mut known: HashMap<&OperatorWork, u32> = HashMap::new();
    stated.units.clear();
    for (start_ns, place, part) in all {
        let node = order[place] as usize;
        let (what, count) = (&nodes[node].parts[part], nodes[node].parts.len());
        let number = activities.len() as u32;
        index[place][part] = number;
        if let Some(work) = &what.work {
            let work = *known.entry(work).or_insert_with(|| {
                works.push(work.clone());
                works.len() as u32 - 1
            });
            launched.push(Launched { activity: number, operator: number, work });
        }
        let mut comm = None;
        match &nodes[node].unit {
            Some(unit) => {
                let mut unit = unit.clone();
                unit.comm.clone_from(&what.comm);
                unit.idle_ns = if part == 0 { unit.idle_ns } else { 0 };
                stated.units.insert(number, unit);
            }
            None => comm = what.comm.first().cloned().map(Box::new),
        }
        let stream = match nodes[node].lane {
            StatedLane::Stream(stream) => stream,
            StatedLane::Host(_) => 0,
        };
        activities.push(Activity {
            kind: what.kind,
            name: what.name.clone(),
            start_ns,
            duration_ns: bound(&times[node], part + 1, count) - start_ns,
            stream,
            correlation: None,
            external_id: None,
            comm,
        });
    }
    let mut place_of = vec![0; nodes.len()];
    order.iter().enumerate().for_each(|(place, node)| place_of[*node as usize] = place);
    let mut calls = Vec::with_capacity(activities.len());
    (stated.edges, stated.waits) = Default::default();
    for (place, node) in order.iter().enumerate() {
        let node = *node as usize;
        let first = index[place].first().copied();
        for before in &nodes[node].after {
            // Without what was passed over for closing a circle.
            let Some(cause) = index[place_of[*before as usize]].last().filter(|_| place_of[*before as usize] < place)
            else {
                continue;
            };
            match first {
                Some(effect) if nodes[*before as usize].lane != nodes[node].lane => stated.edges.push((*cause, effect)),
                Some(_) => {}
                None => stated.waits.push(StatedWait {
                    activity: *cause,
                    start_ns: times[node].free_ns,
                    end_ns: times[node].start_ns,
                }),
            }
        }
        for activity in &index[place] {
            let correlation = calls.len() as u64 + 1;
            activities[*activity as usize].correlation = Some(correlation);
            calls.push(HostCall {
                kind: CallKind::Launch,
                thread: thread(&nodes, node),
                start_ns: times[node].asked_ns,
                end_ns: times[node].asked_ns,
                correlation: Some(correlation),
            });
        }
    }
    // Stable: what was asked for at once keeps its order.
    calls.sort_by_key(|call| call.start_ns);
    stated.waits.sort_by_key(|wait| wait.start_ns);
    let end_ns = times.iter().map(|times| times.end_ns).max().unwrap_or(0);
    let mark = |name: &Arc<str>| StepMark { name: name.clone(), thread: 0, start_ns: 0, end_ns };
    timeline.steps = stated.step.iter().map(mark).collect();
    timeline.works = works;
    timeline.launched = launched;
    timeline.activities = activities;
    timeline.calls = calls;
    stated.nodes = nodes;
    timeline.stated = Some(stated);
}

/// Where part `part` of `count` of a node begins, or the one before it ends.
fn bound(times: &Times, part: usize, count: usize) -> i64 {
    let span = i128::from(times.end_ns - times.start_ns) * part as i128 / count.max(1) as i128;
    times.start_ns + span as i64
}

/// The thread that launched a node: that of the host node that it depends on.
fn thread(nodes: &[StatedNode], node: usize) -> i64 {
    let mut threads = nodes[node].after.iter().rev().filter_map(|before| match nodes[*before as usize].lane {
        StatedLane::Host(thread) => Some(thread),
        StatedLane::Stream(_) => None,
    });
    threads.next().unwrap_or(0)
}
