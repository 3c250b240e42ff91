//! Sixth pass: from activities to events, each the execution of one block.
//!
//! Every communication is an event. Compute, copies and sets that follow each other on a lane become one event as long
//! as nothing could tell them apart from outside: until a point where lanes meet (somebody waits for this one, or this
//! one for somebody), where the host stood still, or where the step enters another phase.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::depend::{Dependencies, HostWait, Issue};
use super::nesting::HostRanges;
use crate::capture::Timeline;

/// One execution of a block.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub stream: i64,
    /// Activities in lane order; one if it communicates.
    pub activities: Vec<usize>,
    /// Part of the step: `forward`, `backward`, or what an annotation around the launch says.
    pub phase: Arc<str>,
    /// Whether the thread that marks the steps launched it, and not autograd's, say.
    pub main: bool,
    /// The graph that it is part of.
    pub graph: Option<Graph>,
    /// When the host had issued its first activity.
    pub issued_ns: i64,
    /// Start of the first activity.
    pub start_ns: i64,
    /// End of the last activity to end.
    pub end_ns: i64,
    /// Time between start and end in which none of its activities ran and the next was not issued yet.
    pub idle_ns: i64,
    /// Events that must have ended first, beside the lane's own; reduced to those that others do not imply.
    pub after: Vec<usize>,
}

impl Events {
    /// When the step began: with its first launch, or, if the device was busy with earlier work for long after that,
    /// with the first thing it did. What the host had launched by then it had launched in advance. `None` of a step
    /// without events.
    pub(crate) fn begin_ns(&self) -> Option<i64> {
        /// A launch takes no longer than this to begin on an idle device.
        const LAUNCH_NS: i64 = 100_000;
        let issued_ns = self.events.first()?.issued_ns;
        let start_ns = self.events.iter().map(|event| event.start_ns).min()?;
        Some(if start_ns - issued_ns > LAUNCH_NS { start_ns } else { issued_ns })
    }
}

/// A launch of a graph, of which an event is a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Graph {
    /// Correlation of the launch.
    pub launch: u64,
    /// The profiler's number of the graph.
    pub id: Option<u64>,
}

/// A step of one timeline as events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    /// In issue order.
    pub events: Vec<Event>,
    /// Host waits: the wait, the event waited for, and the number of events issued before it.
    pub host_waits: Vec<(HostWait, usize, usize)>,
}

/// Fuses the launches of a step.
pub(crate) fn fuse(
    timeline: &Timeline,
    issues: &[Issue],
    ranges: &HostRanges<'_>,
    dependencies: &Dependencies,
) -> Events {
    let causes: HashSet<usize> = dependencies.edges.iter().map(|(cause, _)| *cause).collect();
    let effects: HashSet<usize> = dependencies.edges.iter().map(|(_, effect)| *effect).collect();
    let main = timeline.steps.first().map(|step| step.thread);
    let mut events: Vec<Event> = Vec::new();
    let mut open: HashMap<i64, usize> = HashMap::new();
    let mut event_of: HashMap<usize, usize> = HashMap::new();
    let mut waits = dependencies.host_waits.iter().peekable();
    let mut host_waits = Vec::new();
    let graphs = graphs(timeline, issues);
    for issue in issues {
        let graph = timeline.activities[issue.activity].correlation.and_then(|launch| graphs.get(&launch)).copied();
        while let Some(wait) = waits.next_if(|wait| wait.start_ns <= issue.asked_ns) {
            // Nothing issued later may join an event that the host has waited behind.
            open.clear();
            if let Some(event) = event_of.get(&wait.activity) {
                host_waits.push((*wait, *event, events.len()));
            }
        }
        let phase = match timeline.unit(issue.activity) {
            Some(unit) => unit.name.clone(),
            None => phase(ranges, issue, main),
        };
        let joins = open.get(&issue.stream).copied().filter(|event| {
            // Where the recording says what its activities are executions of, nothing else is asked.
            let first = events[*event].activities[0];
            let same = match (timeline.unit(first), timeline.unit(issue.activity)) {
                (None, None) => events[*event].phase == phase && events[*event].graph == graph,
                (Some(a), Some(b)) => (&a.name, a.instance) == (&b.name, b.instance),
                (Some(_), None) | (None, Some(_)) => false,
            };
            issue.communicates.is_none() && !effects.contains(&issue.activity) && same
        });
        let event = match joins {
            Some(event) => {
                extend(&mut events[event], timeline, issue);
                event
            }
            None => {
                let mut event = begin(timeline, issue, phase, main.is_none_or(|main| main == issue.thread));
                event.graph = graph;
                events.push(event);
                events.len() - 1
            }
        };
        event_of.insert(issue.activity, event);
        if issue.communicates.is_some() || causes.contains(&issue.activity) {
            open.remove(&issue.stream);
        } else {
            open.insert(issue.stream, event);
        }
    }
    for (cause, effect) in &dependencies.edges {
        if let (Some(cause), Some(effect)) = (event_of.get(cause), event_of.get(effect))
            && cause < effect
        {
            events[*effect].after.push(*cause);
        }
    }
    reduce(&mut events);
    hold_back(&mut events);
    Events { events, host_waits }
}

/// Graphs by their launches: several activities of one launch are one, whether or not the profiler numbers it.
fn graphs(timeline: &Timeline, issues: &[Issue]) -> HashMap<u64, Graph> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for launch in issues.iter().filter_map(|issue| timeline.activities[issue.activity].correlation) {
        *counts.entry(launch).or_default() += 1;
    }
    let graph = |launch| Graph { launch, id: timeline.graphs.get(&launch).copied() };
    let several = |(launch, count): (u64, usize)| (count > 1 && launch > 0).then_some((launch, graph(launch)));
    counts.into_iter().filter_map(several).collect()
}

fn begin(timeline: &Timeline, issue: &Issue, phase: Arc<str>, main: bool) -> Event {
    let activity = &timeline.activities[issue.activity];
    Event {
        stream: issue.stream,
        activities: vec![issue.activity],
        phase,
        main,
        graph: None,
        issued_ns: issue.issued_ns,
        start_ns: activity.start_ns,
        end_ns: activity.end_ns(),
        idle_ns: timeline.unit(issue.activity).map_or(0, |unit| unit.idle_ns),
        after: Vec::new(),
    }
}

fn extend(event: &mut Event, timeline: &Timeline, issue: &Issue) {
    let activity = &timeline.activities[issue.activity];
    // The lane was idle for want of work from its last end until the next was issued.
    event.idle_ns += (issue.issued_ns.min(activity.start_ns) - event.end_ns).max(0);
    event.activities.push(issue.activity);
    event.end_ns = event.end_ns.max(activity.end_ns());
}

/// What part of the step a launch belongs to: the innermost annotation around it, without what numbers it, else
/// `forward` on the thread that marks the steps and `backward` on any other (autograd's).
fn phase(ranges: &HostRanges<'_>, issue: &Issue, main: Option<i64>) -> Arc<str> {
    let around = ranges.name(issue.thread, issue.asked_ns);
    match around.map(|name| plain(name)).filter(|name| !name.is_empty()) {
        Some(name) => name.into(),
        None if main.is_none_or(|main| main == issue.thread) => "forward".into(),
        None => "backward".into(),
    }
}

/// `FSDP::all_gather (blocks.1)` -> `fsdp_all_gather`, `Optimizer.step#AdamW.step` -> `optimizer_step`.
fn plain(annotation: &str) -> String {
    let end = annotation.find(['(', '#']).unwrap_or(annotation.len());
    let head = annotation[..end].split(" for ").next().unwrap_or_default();
    let mut name = String::new();
    for c in head.trim().chars() {
        match c {
            c if c.is_ascii_alphanumeric() => name.push(c.to_ascii_lowercase()),
            _ if !name.ends_with('_') => name.push('_'),
            _ => {}
        }
    }
    let name = name.trim_matches('_');
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("phase_{name}") } else { name.to_owned() }
}

/// Leaves out dependencies that lane order and other dependencies imply.
fn reduce(events: &mut [Event]) {
    // Per event, per stream: how many of the stream's events have ended when this one has.
    let mut ended: Vec<HashMap<i64, usize>> = Vec::with_capacity(events.len());
    let mut place = vec![0; events.len()];
    let mut last: HashMap<i64, usize> = HashMap::new();
    let mut count: HashMap<i64, usize> = HashMap::new();
    let streams: Vec<i64> = events.iter().map(|event| event.stream).collect();
    for (index, event) in events.iter_mut().enumerate() {
        let on_stream = count.entry(event.stream).or_default();
        place[index] = *on_stream;
        *on_stream += 1;
        let mut known = last.get(&event.stream).map(|before| ended[*before].clone()).unwrap_or_default();
        event.after.sort_unstable_by(|a, b| b.cmp(a));
        event.after.dedup();
        event.after.retain(|cause| {
            if known.get(&streams[*cause]).is_some_and(|n| *n > place[*cause]) {
                return false;
            }
            for (stream, n) in &ended[*cause] {
                let mine = known.entry(*stream).or_default();
                *mine = (*mine).max(*n);
            }
            true
        });
        event.after.sort_unstable();
        known.insert(event.stream, place[index] + 1);
        last.insert(event.stream, index);
        ended.push(known);
    }
}

/// Issues later what began late for no reason that the capture shows, as far as that holds up no other launch: the
/// host's time is the one place where a pattern can keep it.
fn hold_back(events: &mut [Event]) {
    /// What takes no longer to begin is a launch.
    const LAUNCH_NS: i64 = 50_000;
    let mut free: HashMap<i64, i64> = HashMap::new();
    let mut reason_ns: Vec<i64> = Vec::with_capacity(events.len());
    for event in events.iter() {
        let causes = event.after.iter().map(|cause| events[*cause].end_ns).max();
        let lane = free.insert(event.stream, event.end_ns);
        reason_ns.push([Some(event.issued_ns), lane, causes].into_iter().flatten().max().unwrap_or(event.start_ns));
    }
    let mut next_ns = i64::MAX;
    for (event, reason_ns) in events.iter_mut().zip(reason_ns).rev() {
        if event.start_ns - reason_ns > LAUNCH_NS {
            event.issued_ns = event.start_ns.min(next_ns).max(event.issued_ns);
        }
        next_ns = event.issued_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_lose_what_numbers_them() {
        assert_eq!(plain("FSDP::all_gather (blocks.1)"), "fsdp_all_gather");
        assert_eq!(plain("Optimizer.step#AdamW.step"), "optimizer_step");
        assert_eq!(plain("FSDP::backward_prefetch for blocks.3"), "fsdp_backward_prefetch");
        assert_eq!(plain("## 2d mesh ##"), "");
        assert_eq!(plain("2d mesh"), "phase_2d_mesh");
    }

    fn event(stream: i64, after: &[usize]) -> Event {
        Event {
            stream,
            activities: vec![0],
            phase: "forward".into(),
            main: true,
            graph: None,
            issued_ns: 0,
            start_ns: 0,
            end_ns: 0,
            idle_ns: 0,
            after: after.to_vec(),
        }
    }

    #[test]
    fn what_begins_late_for_no_reason_is_issued_late_if_that_holds_up_nothing() {
        let mut events = vec![event(1, &[]), event(2, &[0]), event(3, &[]), event(4, &[])];
        (events[0].start_ns, events[0].end_ns) = (0, 400_000);
        (events[1].start_ns, events[1].end_ns, events[1].issued_ns) = (401_000, 500_000, 20_000);
        (events[2].start_ns, events[2].end_ns, events[2].issued_ns) = (300_000, 350_000, 30_000);
        (events[3].start_ns, events[3].end_ns, events[3].issued_ns) = (600_000, 700_000, 90_000);
        hold_back(&mut events);
        let issued: Vec<i64> = events.iter().map(|event| event.issued_ns).collect();
        assert_eq!(issued, [0, 20_000, 300_000, 600_000]);
        // What comes behind was issued soon after.
        events[3].start_ns = events[3].issued_ns;
        events[2].issued_ns = 30_000;
        events[3].issued_ns = 90_000;
        events[3].start_ns = 95_000;
        hold_back(&mut events);
        assert_eq!((events[2].issued_ns, events[3].issued_ns), (90_000, 90_000));
    }

    #[test]
    fn implied_dependencies_are_left_out() {
        // 0 and 1 on stream 1; 2 on stream 2 waits for both; 3 on stream 3 waits for 2 and, needlessly, for 0.
        let mut events = vec![event(1, &[]), event(1, &[]), event(2, &[0, 1]), event(3, &[0, 2]), event(3, &[1])];
        reduce(&mut events);
        let after: Vec<Vec<usize>> = events.into_iter().map(|e| e.after).collect();
        assert_eq!(after, [vec![], vec![], vec![1], vec![2], vec![]]);
    }
}
