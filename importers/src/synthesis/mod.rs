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
use std::sync::Arc;

use maestro_pattern::{Assumption, Axis, AxisShape, Confidence, MOST_RANKS, Measurement, Pattern, Plan, Source, State};

pub use clocks::RankClock;
pub use conservation::Conservation;
pub use contention::{Contention, Executions, Gain};
pub use folding::Folding;
pub use host::{HostSummary, HostTime};
pub use matching::Unmatched;
pub use rates::{CopySummary, Volume};
pub use sizes::Sizes;
pub use summary::{CollectiveSummary, FirstInstance, StepSummary};
pub use understood::{ComputeSummary, HeldKernel};

use crate::capture::Capture;
use crate::{CommKernel, Error, Notes, Result};
use blocks::Rank;
use nesting::HostRanges;
use resolve::{Operation, Resolved};
use unlinked::Links;
use work::Works;

/// What to import of a capture.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the pattern; `None`: after the first file.
    pub name: Option<String>,
    /// Name of the step, or its number; `None`: the last one of typical length.
    pub step: Option<String>,
    /// How much of the host's time is kept.
    pub host: HostTime,
    /// Whether blocks that differ in sizes only, because those depend on the data, stay blocks of their own.
    pub exact: bool,
    /// Names of kernels that communicate, beside those of known libraries.
    pub comm_kernels: Vec<CommKernel>,
    /// Sizes of communications of which the capture holds none.
    pub sizes: Option<Sizes>,
}

/// What a capture became.
#[derive(Clone, Debug)]
pub struct Import {
    /// The pattern.
    pub pattern: Pattern,
    /// The pattern as a plan, or why it is none: a rank of a team was not captured, say.
    pub plan: maestro_pattern::Result<Plan>,
    /// The captured executions of its blocks; times count from the first start in the step, of any rank.
    pub measurements: Vec<Measurement>,
    /// Name of the step that was taken.
    pub chosen_step: Arc<str>,
    /// Every step of every rank.
    pub steps: Vec<StepSummary>,
    /// Every communication of every step of every rank.
    pub collectives: Vec<CollectiveSummary>,
    /// How much of the compute of the chosen step is understood, one a rank that has the step.
    pub compute: Vec<ComputeSummary>,
    /// Every direction of copies of every step of every rank.
    pub copies: Vec<CopySummary>,
    /// Teams of each axis of the pattern.
    pub teams: Vec<(String, Vec<Vec<u32>>)>,
    /// What the chosen step ran alone as well as overlapped.
    pub contention: Vec<Contention>,
    /// What overlap gained in the chosen step, by rank.
    pub gains: Vec<(u32, Gain)>,
    /// Which stream waited for which in the chosen step.
    pub streams: Vec<StreamWaits>,
    /// How many waits of streams the profiler recorded, and of how many something was inferred.
    pub waits: (usize, usize),
    /// Where the activities of the chosen step went.
    pub conservation: Vec<Conservation>,
    /// Ranks in the capture.
    pub ranks: Vec<u32>,
    /// What folding cost; `None` if the pattern makes no plan.
    pub folding: Option<Folding>,
    /// How much of the host's time the pattern has.
    pub host: HostTime,
    /// Spread of the ranks' clocks around their alignment, in nanoseconds.
    pub clock_error_ns: i64,
    /// The clock of each rank, and how often it was waited for.
    pub clocks: Vec<RankClock>,
    /// Communications that several ranks started last at the same nanosecond: they count for no rank.
    pub ties: usize,
    /// Communications that do not match on their ranks, though all of these were captured.
    pub unmatched: Vec<Unmatched>,
}

/// How often a stream of a rank waited for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamWaits {
    /// Global rank.
    pub rank: u32,
    /// The stream that waited.
    pub stream: i64,
    /// The stream that it waited for.
    pub on_stream: i64,
    /// How often.
    pub count: usize,
}

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
    assume(&mut pattern, waits, &collectives, &chosen, timelines.len() as u32, world);
    assumed::arguments(&mut pattern, &ranks);
    if lent > 0 {
        let what = format!("sizes of {lent} communications taken from elsewhere, as asked for, in the order of calls");
        pattern.assumed.push(Assumption { what, confidence: Confidence::Medium });
    }
    if options.host != HostTime::Captured {
        let what = format!("{:.0} % of the captured host time kept, as asked for", 100.0 * options.host.factor());
        pattern.assumed.push(Assumption { what, confidence: Confidence::Medium });
    }
    pattern.assumed.extend(blocks.assumed.clone());
    pattern.assumed.extend(understood::assumption(&compute));
    let teams = axes.axes.iter().zip(&axes.teams).map(|(axis, teams)| (axis.name.clone(), teams.clone())).collect();
    Ok(Import {
        measurements: measurements(&ranks, &blocks, &axes, &lanes, &lane_of, &offset_ns),
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

/// States what was inferred.
fn assume(
    pattern: &mut Pattern,
    (recorded, inferred): (usize, usize),
    collectives: &[CollectiveSummary],
    chosen: &str,
    captured: u32,
    world: u32,
) {
    let mut state = |what: String, confidence| pattern.assumed.push(Assumption { what, confidence });
    match (recorded, inferred) {
        (_, 0) => {}
        (0, _) => {
            state("dependencies between lanes inferred from the host's calls and the times".into(), Confidence::Medium);
        }
        (read, guessed) => state(
            format!(
                "what {guessed} of {} recorded stream waits were for inferred from the host's calls",
                read + guessed
            ),
            Confidence::Medium,
        ),
    }
    let chosen = || collectives.iter().filter(|row| &*row.step == chosen);
    let unknown: usize = chosen().filter(|row| row.size.is_none()).map(|row| row.count).sum();
    if unknown > 0 {
        let what = "communication kernels have no known size; those of no known operation stand as all-reduces";
        state(format!("{unknown} {what}"), Confidence::Low);
    }
    if captured < world {
        state(format!("{} of {world} ranks were not captured and do as the others", world - captured), Confidence::Low);
    }
}

/// The captured executions of all blocks.
fn measurements(
    ranks: &[Rank<'_>],
    blocks: &blocks::Blocks,
    axes: &axes::Axes,
    lanes: &[maestro_pattern::Lane],
    lane_of: &[HashMap<i64, usize>],
    offset_ns: &[i64],
) -> Vec<Measurement> {
    let starts = ranks.iter().zip(offset_ns).filter_map(|(rank, offset_ns)| {
        rank.events.events.iter().map(|event| event.start_ns).min().map(|start_ns| start_ns - offset_ns)
    });
    let zero = starts.min().unwrap_or(0);
    let block_names: Vec<Arc<str>> = blocks.blocks.iter().map(|block| block.name.as_str().into()).collect();
    let axis_names: Vec<Arc<str>> = axes.axes.iter().map(|axis| axis.name.as_str().into()).collect();
    let lane_names: Vec<Arc<str>> = lanes.iter().map(|lane| lane.name.as_str().into()).collect();
    let mut all = Vec::new();
    for (r, rank) in ranks.iter().enumerate() {
        let instances = emit::instances(&blocks.block_of[r]);
        for (e, event) in rank.events.events.iter().enumerate() {
            let block = blocks.block_of[r][e];
            let communication = rank.communication(event);
            let timing = communication.and_then(|(_, timing)| timing);
            let time = |ns: i64| (ns - offset_ns[r] - zero).max(0) as u64;
            all.push(Measurement {
                round: 0,
                iteration: 0,
                rank: rank.rank,
                block: block_names[block].clone(),
                axis: communication.map(|(resolved, _)| axis_names[axes.axis_of[resolved.communicator]].clone()),
                lane: lane_names[lane_of[r].get(&event.stream).copied().unwrap_or_default()].clone(),
                instance: instances[e],
                state: State::Overlapped,
                start_ns: time(event.start_ns),
                end_ns: time(event.end_ns),
                wait_ns: timing.map(|timing| timing.wait_ns as u64),
                transfer_ns: timing.map(|timing| timing.transfer_ns as u64),
                // Its own size, where the block's is a mean.
                size_bytes: communication
                    .and_then(|(resolved, _)| match &resolved.operation {
                        Operation::Collective { collective, .. } => collective.size,
                        Operation::Group(_) | Operation::P2p(_) => None,
                    })
                    .or(blocks.blocks[block].work.size()),
            });
        }
    }
    all
}
