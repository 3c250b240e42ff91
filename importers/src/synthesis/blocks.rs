//! Eighth pass: which events are executions of the same block, what the blocks are called and what they do.
//!
//! Two events are the same block if they do the same: the same collective on the same axis, or the same kernels in the
//! same order. What the forward and the backward pass do is two blocks even so, because it overlaps different work and
//! that is what a replay is for. Durations are averaged over executions; where ranks differ by more than a hundredth,
//! each rank keeps its own factor.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use maestro_pattern::{Block, Collective, Direction, FACTORS, Kernel, MOST_BYTES, MOST_COUNT, MOST_NS, Transfer, Work};

use super::axes::Axes;
use super::fuse::{Event, Events};
use super::matching::Timing;
use super::resolve::{CommId, Communicators, Operation, Resolved};
use crate::capture::{ActivityKind, Product, Timeline};

/// Ranks whose mean differs by less than this share of it are taken as alike.
pub(crate) const SKEW: f64 = 0.01;

/// What makes two events the same block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Communication { axis: usize, main: bool, what: What },
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
    /// it.
    pub fn duration_ns(&self, event: &Event) -> i64 {
        let timing = self.communication(event).and_then(|(_, timing)| timing);
        timing.map_or(event.end_ns - event.start_ns, |timing| timing.transfer_ns)
    }
}

/// The blocks of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    pub blocks: Vec<Block>,
    /// Per rank, per event: its block.
    pub block_of: Vec<Vec<usize>>,
}

/// What is known of a block while its executions are gathered.
struct Draft {
    key: Key,
    /// Per rank: (duration, idle) of each execution, in nanoseconds.
    executions: BTreeMap<u32, Vec<(i64, i64)>>,
    /// The first execution: (rank index, event index).
    first: (usize, usize),
}

/// Finds the blocks of all ranks' events.
pub(crate) fn blocks(ranks: &[Rank<'_>], communicators: &Communicators, axes: &Axes, world: u32) -> Blocks {
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
            let duration = rank.duration_ns(event);
            drafts[id].executions.entry(rank.rank).or_default().push((duration, event.idle_ns.min(duration)));
            mine.push(id);
        }
        block_of.push(mine);
    }
    let names = names(&drafts);
    let blocks = drafts
        .iter()
        .zip(names)
        .map(|(draft, name)| {
            let (r, e) = draft.first;
            let mut block = Block::new(name, work(&draft.key, &ranks[r], &ranks[r].events.events[e]));
            measure(&mut block, draft, world);
            block
        })
        .collect();
    Blocks { blocks, block_of }
}

fn key(rank: &Rank<'_>, event: &Event, communicators: &Communicators, axes: &Axes) -> Key {
    let Some((resolved, _)) = rank.communication(event) else {
        let kernels = event.activities.iter().map(|index| {
            let activity = &rank.timeline.activities[*index];
            let shape = match activity.kind {
                ActivityKind::Kernel { blocks } => {
                    let product = activity.external_id.and_then(|id| rank.timeline.products.get(&id));
                    Shape::Kernel(blocks, product.copied())
                }
                ActivityKind::Copy { bytes, .. } | ActivityKind::Set { bytes } => Shape::Bytes(bytes),
            };
            (activity.name.clone(), shape)
        });
        return Key::Compute { phase: event.phase.clone(), main: event.main, kernels: kernels.collect() };
    };
    let what = match &resolved.operation {
        Operation::Collective { collective, .. } => What::Collective(collective.clone()),
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
    Key::Communication { axis: axes.axis_of[resolved.communicator], main: event.main, what }
}

fn seat(communicators: &Communicators, id: CommId, rank: u32) -> i64 {
    communicators.all[id].ranks.iter().position(|other| *other == rank).unwrap_or_default() as i64
}

/// Mean duration and idle time, and skew where ranks differ.
fn measure(block: &mut Block, draft: &Draft, world: u32) {
    let all: Vec<&(i64, i64)> = draft.executions.values().flatten().collect();
    let mean = |values: &mut dyn Iterator<Item = i64>, count: usize| values.sum::<i64>() as f64 / count.max(1) as f64;
    let duration = mean(&mut all.iter().map(|(duration, _)| *duration), all.len());
    let idle = mean(&mut all.iter().map(|(_, idle)| *idle), all.len());
    block.captured_ns = Some(readable(duration));
    // A hundredth of idleness is within what averaging blurs, and not worth a reader's eye.
    if idle > 0.01 * duration {
        block.idle_ns = readable(idle).min(readable(duration));
    }
    if block.work.communicates() || draft.executions.len() < 2 || duration <= 0.0 {
        return;
    }
    let factor = |rank: u32| match draft.executions.get(&rank) {
        Some(mine) => mean(&mut mine.iter().map(|(duration, _)| *duration), mine.len()) / duration,
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
        Key::Compute { .. } => Work::Compute(kernels(rank.timeline, event)),
    }
}

/// What a compute event does: its products, its copies and sets, and a remainder to hold.
fn kernels(timeline: &Timeline, event: &Event) -> Vec<Kernel> {
    let mut found: Vec<Kernel> = Vec::new();
    let mut hold_ns = 0;
    let mut hold_sms = 0;
    let products = product_kernels(timeline, event);
    for &index in &event.activities {
        let activity = &timeline.activities[index];
        let kernel = match activity.kind {
            ActivityKind::Set { bytes } => Kernel::Set { size: bytes.min(MOST_BYTES), times: 1 },
            ActivityKind::Copy { direction: Some(direction), bytes } => {
                Kernel::Copy { direction, size: bytes.min(MOST_BYTES), times: 1 }
            }
            ActivityKind::Copy { direction: None, bytes } => {
                Kernel::Memory { bytes: bytes.saturating_mul(2).min(MOST_BYTES), times: 1 }
            }
            ActivityKind::Kernel { blocks } => match products.get(&index) {
                Some(Product { m, n, k, batch, dtype }) => {
                    Kernel::Gemm { m: *m, n: *n, k: *k, batch: *batch, dtype: *dtype, times: 1 }
                }
                None => {
                    let most = timeline.device_sms.unwrap_or(u32::MAX);
                    hold_ns += activity.duration_ns;
                    hold_sms = hold_sms.max(u32::try_from(blocks).unwrap_or(most).min(most));
                    continue;
                }
            },
        };
        match found.iter_mut().find(|other| once(other) == kernel) {
            Some(other) => *times(other) += 1,
            None => found.push(kernel),
        }
    }
    if hold_ns > 0 {
        let sms = (hold_sms > 0 && timeline.device_sms.is_some()).then_some(hold_sms);
        found.push(Kernel::Hold { duration_ns: readable(hold_ns as f64), sms, times: 1 });
    }
    found
}

/// The kernel of each matrix product: of those that an operator launched, the longest.
fn product_kernels(timeline: &Timeline, event: &Event) -> HashMap<usize, Product> {
    let mut longest: HashMap<u64, usize> = HashMap::new();
    for &index in &event.activities {
        let activity = &timeline.activities[index];
        let usable = |p: &Product| [p.m, p.n, p.k, p.batch].iter().all(|side| (1..=MOST_COUNT).contains(side));
        let known = |id: &u64| timeline.products.get(id).is_some_and(usable);
        let Some(id) = activity.external_id.filter(known) else { continue };
        if !matches!(activity.kind, ActivityKind::Kernel { .. }) {
            continue;
        }
        let best = longest.entry(id).or_insert(index);
        if timeline.activities[*best].duration_ns < activity.duration_ns {
            *best = index;
        }
    }
    longest.into_iter().filter_map(|(id, index)| timeline.products.get(&id).map(|p| (index, *p))).collect()
}

fn once(kernel: &Kernel) -> Kernel {
    let mut kernel = kernel.clone();
    *times(&mut kernel) = 1;
    kernel
}

fn times(kernel: &mut Kernel) -> &mut u64 {
    match kernel {
        Kernel::Gemm { times, .. }
        | Kernel::Memory { times, .. }
        | Kernel::Hold { times, .. }
        | Kernel::Copy { times, .. }
        | Kernel::Set { times, .. } => times,
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
