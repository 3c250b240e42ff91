//! Eighth pass: which events are executions of the same block, what the blocks are called and what they do.
//!
//! Two events are the same block if they do the same: the same collective on the same axis, or the same kernels in the
//! same order. What the forward and the backward pass do is two blocks even so, because it overlaps different work and
//! that is what a replay is for. Durations are averaged over executions; where ranks differ by more than a hundredth,
//! each rank keeps its own factor.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use maestro_pattern::{
    Assumption, Block, Collective, CollectiveKind, Direction, FACTORS, Kernel, MOST_NS, Transfer, Work,
};

use super::alike::{self, Alike};
use super::axes::Axes;
use super::fuse::{Event, Events};
use super::matching::Timing;
use super::resolve::{CommId, Communicators, Operation, Resolved};
use super::work::Works;
use crate::capture::{ActivityKind, Product, Timeline};

/// Ranks whose mean differs by less than this share of it are taken as alike.
pub(crate) const SKEW: f64 = 0.01;

/// What makes two events the same block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Communication { axis: usize, main: bool, what: What, unit: Option<Arc<str>> },
    Compute { phase: Arc<str>, main: bool, kernels: Vec<(Arc<str>, Shape)> },
}

/// A communication, with peers relative to the rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum What {
    Collective(Collective),
    Group(Vec<Collective>),
    P2p(Vec<Transfer>),
}

/// What of an activity beside its name makes it the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Shape {
    Kernel(u64, Option<Product>),
    Bytes(u64),
}

/// What later passes need of one timeline.
pub(crate) struct Rank<'a> {
    pub rank: u32,
    pub timeline: &'a Timeline,
    pub events: &'a Events,
    /// Index into the resolved list, by activity.
    pub resolved_of: &'a HashMap<usize, usize>,
    pub resolved: &'a [Resolved],
    pub timing: &'a [Option<Timing>],
    /// Share of the host's time that is kept.
    pub host: f64,
    pub works: &'a Works<'a>,
    /// Places in the resolved list of the first communications of their kind in the recording.
    pub first: &'a HashSet<usize>,
}

impl Rank<'_> {
    /// The communication of an event.
    pub fn communication(&self, event: &Event) -> Option<(&Resolved, Option<Timing>)> {
        let index = *self.resolved_of.get(event.activities.first()?)?;
        Some((&self.resolved[index], self.timing[index]))
    }

    /// How long an event lasts by itself, in nanoseconds: the transfer, where waiting can be told from it, else all of
    /// it, with as much of its idleness as is kept of the host's time.
    pub fn duration_ns(&self, event: &Event) -> i64 {
        let timing = self.communication(event).and_then(|(_, timing)| timing);
        let all = event.end_ns - event.start_ns - event.idle_ns + self.idle_ns(event);
        timing.map_or(all, |timing| timing.transfer_ns)
    }

    /// How long an event has nothing to do because the host has not launched the next part, as far as it is kept.
    pub fn idle_ns(&self, event: &Event) -> i64 {
        (event.idle_ns as f64 * self.host) as i64
    }
}

/// The blocks of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    pub blocks: Vec<Block>,
    /// Per rank, per event: its block.
    pub block_of: Vec<Vec<usize>>,
    /// What was taken as the same in other sizes.
    pub assumed: Option<Assumption>,
}

/// What is known of a block while its executions are gathered.
struct Draft {
    key: Key,
    /// Per rank.
    executions: BTreeMap<u32, Vec<Spent>>,
    /// The first execution: (rank index, event index).
    first: (usize, usize),
}

/// What one execution took, in nanoseconds.
#[derive(Clone, Copy)]
struct Spent {
    all: i64,
    /// In which it had nothing to do.
    idle: i64,
    /// For which memory traffic is known to be the reason.
    traffic: Option<i64>,
}

/// Finds the blocks of all ranks' events. Those whose sizes depend on the data are one, unless `exact`.
pub(crate) fn blocks(
    ranks: &[Rank<'_>],
    communicators: &Communicators,
    axes: &Axes,
    world: u32,
    exact: bool,
) -> Blocks {
    let mut drafts: Vec<Draft> = Vec::new();
    let mut known: HashMap<Key, usize> = HashMap::new();
    let mut block_of = Vec::new();
    for (r, rank) in ranks.iter().enumerate() {
        let mut mine = Vec::with_capacity(rank.events.events.len());
        for (e, event) in rank.events.events.iter().enumerate() {
            let key = key(rank, event, communicators, axes);
            let id = *known.entry(key.clone()).or_insert_with(|| {
                drafts.push(Draft { key, executions: BTreeMap::new(), first: (r, e) });
                drafts.len() - 1
            });
            let all = rank.duration_ns(event);
            let spent = Spent { all, idle: rank.idle_ns(event).min(all), traffic: rank.works.traffic_ns(event) };
            drafts[id].executions.entry(rank.rank).or_default().push(spent);
            mine.push(id);
        }
        block_of.push(mine);
    }
    let mut works: Vec<(Work, usize)> = Vec::new();
    for draft in &drafts {
        let (r, e) = draft.first;
        let count = draft.executions.values().map(Vec::len).sum();
        works.push((work(&draft.key, &ranks[r], &ranks[r].events.events[e]), count));
    }
    let (mut assumed, mut averaged) = (None, Vec::new());
    if !exact {
        let phases: Vec<_> = drafts.iter().map(|draft| draft.key.phase()).collect();
        let alike = alike::alike(&works, &phases, &block_of);
        assumed = alike.assumed.clone();
        (drafts, works, averaged) = joined(drafts, works, alike, &mut block_of);
    }
    let names = names(&drafts);
    if let Some(assumed) = &mut assumed {
        assumed.blocks = averaged.into_iter().map(|block: usize| names[block].clone()).collect();
    }
    let blocks = drafts
        .iter()
        .zip(works)
        .zip(names)
        .map(|((draft, (work, _)), name)| {
            let mut block = Block::new(name, work);
            measure(&mut block, draft, world);
            block
        })
        .collect();
    Blocks { blocks, block_of, assumed }
}

/// Drafts that are one become one, with new numbers for all. Gives those that are means of others, too, by their new
/// numbers.
fn joined(
    drafts: Vec<Draft>,
    works: Vec<(Work, usize)>,
    mut alike: Alike,
    block_of: &mut [Vec<usize>],
) -> (Vec<Draft>, Vec<(Work, usize)>, Vec<usize>) {
    let (mut kept, mut kept_works, mut averaged): (Vec<Draft>, Vec<_>, Vec<usize>) = Default::default();
    let mut number = Vec::with_capacity(drafts.len());
    for (block, (mut draft, (work, count))) in drafts.into_iter().zip(works).enumerate() {
        let first = alike.first[block];
        if first < block {
            let place: usize = number[first];
            number.push(place);
            for (rank, executions) in draft.executions {
                kept[place].executions.entry(rank).or_default().extend(executions);
            }
            continue;
        }
        number.push(kept.len());
        let mean = alike.work.remove(&block);
        averaged.extend(mean.as_ref().map(|_| kept.len()));
        if let (Some(Work::Collective(mean)), Key::Communication { what, .. }) = (&mean, &mut draft.key) {
            // Names speak of sizes.
            *what = What::Collective(mean.clone());
        }
        kept.push(draft);
        kept_works.push((mean.unwrap_or(work), count));
    }
    block_of.iter_mut().flatten().for_each(|block| *block = number[*block]);
    (kept, kept_works, averaged)
}

impl Key {
    /// What must be equal of blocks that are the same in other sizes.
    fn phase(&self) -> (Option<usize>, bool, Option<&Arc<str>>) {
        match self {
            Self::Communication { axis, main, unit, .. } => (Some(*axis), *main, unit.as_ref()),
            Self::Compute { phase, main, .. } => (None, *main, Some(phase)),
        }
    }
}

/// Whether this is an all-gather of FSDP, which gathers in place: a rank's part is a slice of the whole.
pub(crate) fn gathers_in_place(collective: &Collective, event: &Event) -> bool {
    collective.kind == CollectiveKind::AllGather && event.phase.starts_with("fsdp_all_gather")
}

fn key(rank: &Rank<'_>, event: &Event, communicators: &Communicators, axes: &Axes) -> Key {
    let Some((resolved, _)) = rank.communication(event) else {
        let kernels = event.activities.iter().map(|index| {
            let activity = &rank.timeline.activities[*index];
            let shape = match activity.kind {
                ActivityKind::Kernel { blocks } => Shape::Kernel(blocks, rank.works.shape(*index)),
                ActivityKind::Copy { bytes, .. } | ActivityKind::Set { bytes } => Shape::Bytes(bytes),
            };
            (activity.name.clone(), shape)
        });
        return Key::Compute { phase: event.phase.clone(), main: event.main, kernels: kernels.collect() };
    };
    let what = match &resolved.operation {
        Operation::Collective { collective, .. } => {
            let in_place = collective.in_place || gathers_in_place(collective, event);
            What::Collective(Collective { in_place, ..collective.clone() })
        }
        Operation::Group(all) => What::Group(all.clone()),
        Operation::P2p(transfers) => {
            let seat = |of: u32| seat(communicators, resolved.communicator, of);
            let relative = transfers.iter().map(|t| Transfer {
                direction: t.direction,
                offset: seat(t.peer) - seat(rank.rank),
                size: t.bytes,
                dtype: t.dtype,
            });
            What::P2p(relative.collect())
        }
    };
    let unit = rank.timeline.unit(resolved.activity).map(|unit| unit.name.clone());
    Key::Communication { axis: axes.axis_of[resolved.communicator], main: event.main, what, unit }
}

fn seat(communicators: &Communicators, id: CommId, rank: u32) -> i64 {
    communicators.all[id].ranks.iter().position(|other| *other == rank).unwrap_or_default() as i64
}

/// Mean duration, idle time and time of memory traffic, and skew where ranks differ.
fn measure(block: &mut Block, draft: &Draft, world: u32) {
    let all: Vec<&Spent> = draft.executions.values().flatten().collect();
    let mean = |values: &mut dyn Iterator<Item = i64>, count: usize| values.sum::<i64>() as f64 / count.max(1) as f64;
    let duration = mean(&mut all.iter().map(|spent| spent.all), all.len());
    let idle = mean(&mut all.iter().map(|spent| spent.idle), all.len());
    let traffic: Option<Vec<i64>> = all.iter().map(|spent| spent.traffic).collect();
    if let (Work::Compute(kernels), Some(traffic)) = (&mut block.work, traffic) {
        let ns = readable(mean(&mut traffic.iter().copied(), traffic.len()));
        for kernel in kernels {
            if let Kernel::Memory { lasts_ns, times: 1, .. } = kernel {
                *lasts_ns = Some(ns).filter(|ns| *ns > 0);
            }
        }
    }
    block.captured_ns = Some(readable(duration));
    // A hundredth of idleness is within what averaging blurs, and not worth a reader's eye.
    if idle > 0.01 * duration {
        block.idle_ns = readable(idle).min(readable(duration));
    }
    if block.work.communicates() || draft.executions.len() < 2 || duration <= 0.0 {
        return;
    }
    let factor = |rank: u32| match draft.executions.get(&rank) {
        Some(mine) => mean(&mut mine.iter().map(|spent| spent.all), mine.len()) / duration,
        None => 1.0,
    };
    let factors: Vec<f64> = (0..world).map(factor).collect();
    if factors.iter().any(|factor| (factor - 1.0).abs() > SKEW) {
        block.skew = factors.iter().map(|factor| rounded_factor(*factor)).collect();
    }
}

/// A skew to three decimals, within what a pattern may hold.
pub(crate) fn rounded_factor(factor: f64) -> f64 {
    ((factor * 1e3).round() / 1e3).clamp(*FACTORS.start(), *FACTORS.end())
}

/// Nanoseconds rounded to tenths of a microsecond from 10 us up: finer digits are noise. Damage may have put two times
/// years apart; a pattern holds no more than [`MOST_NS`].
pub(crate) fn readable(ns: f64) -> u64 {
    let ns = ns.min(MOST_NS as f64);
    if ns < 1e4 { ns.round() as u64 } else { (ns / 100.0).round() as u64 * 100 }
}

fn work(key: &Key, rank: &Rank<'_>, event: &Event) -> Work {
    match key {
        Key::Communication { what: What::Collective(collective), .. } => Work::Collective(collective.clone()),
        Key::Communication { what: What::Group(all), .. } => Work::Group(all.clone()),
        Key::Communication { what: What::P2p(transfers), .. } => {
            Work::P2p { transfers: transfers.clone(), wrap: false }
        }
        Key::Compute { .. } => Work::Compute(rank.works.kernels(event)),
    }
}

/// One name a block: what it is, then as much as tells it from others of the same name.
fn names(drafts: &[Draft]) -> Vec<String> {
    let plain: Vec<String> = drafts.iter().map(|draft| stem(&draft.key)).collect();
    let sized: Vec<String> =
        drafts.iter().zip(&plain).map(|(draft, name)| qualified(name, &draft.key, false)).collect();
    let full: Vec<String> = drafts.iter().zip(&plain).map(|(draft, name)| qualified(name, &draft.key, true)).collect();
    let levels = [&plain, &sized, &full].map(|names| {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        names.iter().for_each(|name| *counts.entry(name).or_default() += 1);
        (names, counts)
    });
    let single = |i: usize| levels.iter().find(|(names, counts)| counts[&*names[i]] == 1).map(|(names, _)| &names[i]);
    let mut taken: HashSet<String> = HashSet::new();
    // Names that are one of a kind are given out first, so that no number makes another block's name.
    let mut given: Vec<Option<String>> = Vec::with_capacity(drafts.len());
    for i in 0..drafts.len() {
        given.push(single(i).filter(|name| taken.insert((*name).clone())).cloned());
    }
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut number = |i: usize| {
        let n = numbers.entry(&full[i]).or_default();
        loop {
            *n += 1;
            let name = format!("{}_{n}", full[i]);
            if taken.insert(name.clone()) {
                return name;
            }
        }
    };
    given.into_iter().enumerate().map(|(i, name)| name.unwrap_or_else(|| number(i))).collect()
}

fn stem(key: &Key) -> String {
    match key {
        Key::Compute { phase, .. } => phase.to_string(),
        Key::Communication { unit: Some(unit), .. } => unit.to_string(),
        Key::Communication { what: What::Collective(collective), .. } => collective.kind.name().to_owned(),
        Key::Communication { what: What::Group(all), .. } => match all.first() {
            Some(first) => format!("{}_group", first.kind.name()),
            None => "group".to_owned(),
        },
        Key::Communication { what: What::P2p(transfers), .. } => {
            let mut names: Vec<String> = transfers
                .iter()
                .map(|transfer| {
                    let verb = match transfer.direction {
                        Direction::Send => "send",
                        Direction::Recv => "recv",
                    };
                    match transfer.offset {
                        1 => format!("{verb}_next"),
                        -1 => format!("{verb}_prev"),
                        0.. => format!("{verb}_plus_{}", transfer.offset),
                        _ => format!("{verb}_minus_{}", transfer.offset.unsigned_abs()),
                    }
                })
                .collect();
            names.dedup();
            names.join("_")
        }
    }
}

/// The stem with its size and, if `pass`, with its pass.
fn qualified(stem: &str, key: &Key, pass: bool) -> String {
    let (main, what) = match key {
        Key::Communication { main, what, .. } => (main, what),
        Key::Compute { main: false, .. } if pass && !stem.contains("backward") => return format!("{stem}_backward"),
        Key::Compute { .. } => return stem.to_owned(),
    };
    let size = match what {
        What::Collective(collective) => collective.size,
        What::Group(all) => all.iter().map(|c| c.size).sum(),
        What::P2p(transfers) => transfers.iter().map(|t| t.size).max(),
    };
    let size = size.map_or_else(|| "unknown".to_owned(), short_size);
    let pass = if pass && !main { "_backward" } else { "" };
    format!("{stem}_{size}{pass}")
}

/// `402759680` -> `384M`, for names.
fn short_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "K", "M", "G"] {
        if value < 1023.5 || unit == "G" {
            return format!("{value:.0}{unit}");
        }
        value /= 1024.0;
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_names_are_short() {
        assert_eq!([16, 1024, 402_759_680, 1 << 30, 1 << 41].map(short_size), ["16B", "1K", "384M", "1G", "2048G"]);
    }

    #[test]
    fn digits_that_are_noise_are_rounded() {
        assert_eq!([812.4, 9_999.6, 123_456.0].map(readable), [812, 10_000, 123_500]);
    }
}
