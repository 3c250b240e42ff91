//! From a capture to a pattern: passes over facts, each a file, called here in the one order in which they make sense.
//!
//! 1. `steps`: which activity belongs to which step; which step is taken.
//! 2. `classify`: what each kernel is, by the best evidence there is.
//! 3. `resolve`: communicators by their ranks, sizes as nccl-tests counts them.
//! 4. `matching`: the same communication on different ranks; clocks; waiting apart from transfer.
//! 5. `depend`: what waited for what across lanes; where the host waited.
//! 6. `fuse`: activities to events.
//! 7. `axes` and `lanes`: names for communicators and streams.
//! 8. `blocks`: which events are the same block; `alike`: which are so in other sizes; `work`: what that does; `understood`: how much of it is known.
//! 9. `ranks`, `fold`, `gaps` and `emit`: who shares a schedule, loops, their host time, and the items.
//! 10. `motifs`: sequences that stand in several places.
//! 11. `folding`: what all that averaging cost.
//!
//! The result holds the captured executions of its blocks as Measurements, so that a replay compares with the capture
//! by the code that compares two replays. This is the only part of the crate that knows what a pattern is.

mod alike;
mod assumed;
mod axes;
mod blocks;
mod captured;
mod classify;
mod clocks;
mod communicators;
mod conservation;
mod contention;
mod depend;
mod emit;
mod fold;
mod folding;
mod fuse;
mod gaps;
mod host;
mod import;
mod intervals;
mod lanes;
mod matching;
mod motifs;
mod nesting;
mod periods;
mod ranks;
mod rates;
mod resolve;
mod sizes;
mod spans;
mod splits;
mod steps;
mod summary;
mod surroundings;
mod understood;
mod unlinked;
mod work;

use std::collections::HashMap;

use maestro_pattern::{Assumption, Axis, AxisShape, Confidence, MOST_RANKS, Pattern, Plan, Source};

pub use clocks::RankClock;
pub use conservation::Conservation;
pub use contention::{Contention, Executions, Gain};
pub use folding::Folding;
pub use host::{HostSummary, HostTime};
pub use import::{Import, Options, StreamWaits};
pub use matching::Unmatched;
pub use rates::{CopySummary, Volume};
pub use sizes::Sizes;
pub use summary::{CollectiveSummary, FirstInstance, StepSummary};
pub use understood::{ComputeSummary, HeldKernel};

use crate::capture::Capture;
use crate::{Error, Notes, Result};
use blocks::Rank;
use nesting::HostRanges;
use resolve::Resolved;
use unlinked::Links;
use work::Works;

/// Makes a pattern of one step of `capture`.
///
/// # Errors
/// No step has the wanted name, or none is in all ranks; a capture without anything to run.
pub fn synthesise(capture: &Capture, options: &Options, notes: &mut Notes) -> Result<Import> {
    let timelines = &capture.timelines;
    let ranges: Vec<_> = timelines.iter().map(HostRanges::new).collect();
    let links: Vec<_> = timelines.iter().zip(&ranges).map(|(t, r)| Links::new(t, r)).collect();
    let marked = || timelines.iter().zip(&links).map(|(t, l)| steps::assign(t, &l.launches)).collect();
    let steps: Vec<_> = periods::steps(timelines, &links, notes).unwrap_or_else(marked);
    let chosen = steps::choose(capture, &steps, options.step.as_deref())?;
    unlinked::early(timelines, &links, notes);

    let mut classified = Vec::new();
    for ((timeline, links), ranges) in timelines.iter().zip(&links).zip(&ranges) {
        classified.push(classify::classify(timeline, links, ranges, &options.comm_kernels, notes));
    }
    let world = world(capture)?;
    let (communicators, mut resolved) = resolve::resolve(capture, &classified, world, notes);
    let lent = options
        .sizes
        .as_ref()
        .map_or(0, |sizes| sizes::complete(capture, &steps, &chosen, &mut resolved, sizes, notes));
    let matches = matching::matches(capture, &steps, &communicators, &mut resolved, notes);
    let places = |all: &Vec<Resolved>| all.iter().enumerate().map(|(i, kernel)| (kernel.activity, i)).collect();
    let resolved_of: Vec<HashMap<usize, usize>> = resolved.iter().map(places).collect();

    // Stream waits that were recorded, and those of which something was inferred.
    let mut waits = (0, 0);
    let mut streams = Vec::new();
    let mut events = Vec::new();
    for (t, timeline) in timelines.iter().enumerate() {
        let step = steps[t].steps.iter().find(|step| step.name == chosen);
        let activities = step.map(|step| step.activities.as_slice()).unwrap_or_default();
        let operation = |index| resolved_of[t].get(&index).map(|i| resolved[t][*i].operation.name());
        let issues = depend::issues(timeline, &links[t].launches, activities, operation);
        let dependencies = depend::dependencies(timeline, &issues, &ranges[t], notes);
        let rank = capture.rank(t);
        streams.extend(dependencies.streams.iter().map(|((waits, on), count)| StreamWaits {
            rank,
            stream: *waits,
            on_stream: *on,
            count: *count,
        }));
        waits.0 += dependencies.recorded;
        waits.1 += dependencies.inferred;
        events.push(fuse::fuse(timeline, &issues, &ranges[t], &dependencies));
    }

    for (t, timeline) in timelines.iter().enumerate() {
        let step = steps[t].steps.iter().find(|step| step.name == chosen);
        let lost = step.iter().flat_map(|step| &step.activities).filter(|index| links[t].launches[**index].is_none());
        let lost: Vec<&usize> = lost.collect();
        notes.add_many(
            "activities of the step without a recorded launch, placed by their own start",
            lost.len() as u64,
            || lost.first().map_or_else(String::new, |index| timeline.activities[**index].name.to_string()),
        );
    }

    let captured: Vec<u32> = (0..timelines.len()).map(|t| capture.rank(t)).collect();
    let axes = axes::axes(&communicators, &resolved, &captured, world);
    let works: Vec<Works<'_>> = timelines.iter().map(|timeline| Works::new(timeline, notes)).collect();
    let ranks: Vec<Rank<'_>> = timelines
        .iter()
        .enumerate()
        .map(|(t, timeline)| Rank {
            rank: capture.rank(t),
            timeline,
            events: &events[t],
            resolved_of: &resolved_of[t],
            resolved: &resolved[t],
            timing: &matches.timing[t],
            host: options.host.factor(),
            works: &works[t],
            first: &matches.first[t],
        })
        .collect();
    let (lanes, lane_of) = lanes::lanes(&ranks);
    let blocks = blocks::blocks(&ranks, &communicators, &axes, world, options.exact);

    let offset_ns: Vec<i64> = matches.clocks.iter().map(|clock| clock.offset_ns).collect();
    let issued = |t: usize| events[t].begin_ns().map(|begin_ns| begin_ns - offset_ns[t]);
    let zero = (0..timelines.len()).filter_map(issued).min().unwrap_or(0);
    let late_ns: Vec<i64> = (0..timelines.len()).map(|t| issued(t).map_or(0, |at| at - zero)).collect();
    let mut summaries = Vec::new();
    let mut collectives = Vec::new();
    let mut compute = Vec::new();
    let (mut contention, mut gains) = (Vec::new(), Vec::new());
    let mut copies = Vec::new();
    for (t, rank) in ranks.iter().enumerate() {
        for step in &steps[t].steps {
            if step.name == chosen {
                compute.push(understood::compute(rank, step));
                let (rows, gain) = contention::contention(rank, step, &communicators);
                contention.extend(rows);
                gains.push((rank.rank, gain));
            }
            summaries.push(summary::step(rank, &links[t].launches, step));
            collectives.extend(summary::collectives(rank, step, &communicators, &axes));
            copies.extend(rates::copies(rank, step));
        }
    }
    let first = collectives.iter().filter(|row| row.step == chosen && row.first.is_some()).count() as u64;
    notes.add_many(
        "first communications of their kind in the recording, left out of steady sums and rates",
        first,
        || "ranks begin to record at different times, and who is first waits there for the last".to_owned(),
    );
    let alone: Vec<HashMap<usize, bool>> = events.iter().map(alone).collect();
    let conservation = conservation::conservation(timelines, &steps, &chosen, |t, index| alone[t].get(&index).copied());

    let mut pattern = Pattern {
        name: options.name.clone().unwrap_or_else(|| name(capture)),
        source: Some(source(capture, &chosen, &summaries)),
        axes: axes.axes.clone(),
        blocks: blocks.blocks.clone(),
        lanes: lanes.clone(),
        assumed: axes.assumed.clone(),
        ..Pattern::default()
    };
    if pattern.axes.is_empty() {
        // A step without communication still has ranks.
        pattern.axes = vec![Axis {
            name: "rank".into(),
            shape: AxisShape::Size(world),
            settings: Default::default(),
            place: Default::default(),
        }];
    }
    let parts = emit::Parts {
        ranks: &ranks,
        blocks: &blocks,
        axes: &axes,
        lanes: &lanes,
        lane_of: &lane_of,
        late_ns: &late_ns,
        world,
        host: options.host.factor(),
    };
    ranks::schedule(&mut pattern, &parts, notes);
    motifs::extract(&mut pattern);
    let plan = Plan::new(&pattern, &[]);
    let folding = plan.as_ref().ok().map(|plan| folding::error(plan, &ranks, &blocks, |r| emit::host_times(&parts, r)));
    assumed::inferred(&mut pattern, waits, &collectives, &chosen, timelines.len() as u32, world);
    assumed::arguments(&mut pattern, &ranks, &blocks);
    if lent > 0 {
        let what = format!("sizes of {lent} communications taken from elsewhere, as asked for, in the order of calls");
        pattern.assumed.push(Assumption::new(what, Confidence::Medium));
    }
    if options.host != HostTime::Captured {
        let what = format!("{:.0} % of the captured host time kept, as asked for", 100.0 * options.host.factor());
        pattern.assumed.push(Assumption::new(what, Confidence::Medium));
    }
    pattern.assumed.extend(blocks.assumed.clone());
    // A pattern that was written down states its traffic.
    if timelines.iter().any(|timeline| timeline.stated.as_ref().is_none_or(|stated| stated.units.is_empty())) {
        pattern.assumed.extend(understood::assumption(&compute));
    }
    let teams = axes.axes.iter().zip(&axes.teams).map(|(axis, teams)| (axis.name.clone(), teams.clone())).collect();
    Ok(Import {
        measurements: captured::measurements(&ranks, &blocks, &axes, &lanes, &lane_of, &offset_ns),
        pattern,
        plan,
        chosen_step: chosen,
        steps: summaries,
        collectives,
        compute,
        copies,
        teams,
        conservation,
        ranks: ranks.iter().map(|rank| rank.rank).collect(),
        streams,
        waits,
        contention,
        gains,
        folding,
        host: options.host,
        clock_error_ns: matches.clocks.iter().map(|clock| clock.error_ns).max().unwrap_or(0),
        clocks: clocks::of_ranks(&ranks, &matches),
        ties: matches.ties,
        unmatched: matches.unmatched,
    })
}

/// Number of ranks of the job.
fn world(capture: &Capture) -> Result<u32> {
    let told = capture.timelines.iter().filter_map(|t| t.world_size).max().map_or(0, u64::from);
    let seen = (0..capture.timelines.len()).map(|t| u64::from(capture.rank(t)) + 1).max().unwrap_or(1);
    match told.max(seen) {
        ranks @ ..=MOST_RANKS => Ok(ranks as u32),
        ranks => Err(Error::TooManyRanks { ranks, most: MOST_RANKS }),
    }
}

/// `fsdp_large_rank0.json.gz` -> `fsdp_large`.
fn name(capture: &Capture) -> String {
    let file = capture.files.first().and_then(|file| file.file_name()).map(|name| name.to_string_lossy().into_owned());
    let stem = file.as_deref().and_then(|name| name.split('.').next()).unwrap_or("capture");
    let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = stem.strip_suffix("rank").unwrap_or(stem).trim_end_matches(['_', '-']);
    if stem.is_empty() { "capture".to_owned() } else { stem.to_owned() }
}

fn source(capture: &Capture, chosen: &str, steps: &[StepSummary]) -> Source {
    Source {
        format: capture.format.to_owned(),
        files: capture.files.len() as u32,
        step: Some(chosen.to_owned()),
        step_ns: steps.iter().filter(|step| &*step.name == chosen).map(|step| step.span_ns as u64).max(),
        device: capture.timelines.iter().find_map(|timeline| timeline.device_name.clone()),
    }
}

/// Whether each activity of the step is an event of its own.
fn alone(events: &fuse::Events) -> HashMap<usize, bool> {
    let events = events.events.iter();
    events.flat_map(|event| event.activities.iter().map(|index| (*index, event.activities.len() == 1))).collect()
}

/// `stem`, or it with the first number from 2 on that gives a name which is not `taken`.
fn fresh(stem: &str, joint: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut name = stem.to_owned();
    let mut n = 2;
    while taken(&name) {
        name = format!("{stem}{joint}{n}");
        n += 1;
    }
    name
}
