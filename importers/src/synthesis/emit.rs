//! Ninth pass, the ends: a rank's events as leaves to be folded, and what was folded as items of the pattern format.

use std::collections::{BTreeMap, HashMap, HashSet};

use maestro_pattern::{Block, Body, Item, Lane, Reference, Step, When};

use super::axes::Axes;
use super::blocks::{Blocks, Rank, readable};
use super::fold::{Back, Leaf};
use super::gaps::Beat;

/// One rank's step as leaves, each with the host time before it in nanoseconds.
pub(crate) type Leaves = Vec<(Leaf, f64)>;

/// What the schedule is made of.
pub(crate) struct Parts<'a> {
    pub ranks: &'a [Rank<'a>],
    pub blocks: &'a Blocks,
    pub axes: &'a Axes,
    pub lanes: &'a [Lane],
    pub lane_of: &'a [HashMap<i64, usize>],
    /// When each rank issued its first event, in nanoseconds after the first rank did.
    pub late_ns: &'a [i64],
    /// Number of ranks of the job.
    pub world: u32,
    /// Share of the host's time that is kept.
    pub host: f64,
}

/// What rank `r` does in the step.
pub(crate) fn leaves(parts: &Parts<'_>, r: usize) -> Leaves {
    let rank = &parts.ranks[r];
    let block_of = &parts.blocks.block_of[r];
    let places = places(block_of);
    let events = &rank.events.events;
    let mut waits = rank.events.host_waits.iter().peekable();
    let mut leaves = Vec::new();
    let host = |from: i64, to: i64| parts.host * (to - from).max(0) as f64;
    let mut now = events.first().map_or(0, |event| event.issued_ns);
    for (e, event) in events.iter().enumerate() {
        while let Some((wait, cause, _)) = waits.next_if(|(_, _, before)| *before <= e) {
            leaves.push((Leaf::Wait(back(&places, block_of[*cause], *cause, e)), host(now, wait.start_ns)));
            now = now.max(wait.end_ns);
        }
        let axis = rank.communication(event).map(|(resolved, _)| parts.axes.axis_of[resolved.communicator]);
        let after = event.after.iter().map(|cause| back(&places, block_of[*cause], *cause, e)).collect();
        let lane = parts.lane_of[r].get(&event.stream).copied().unwrap_or_default();
        let leaf = Leaf::Run { block: block_of[e], axis, lane, after };
        leaves.push((leaf, host(now, event.issued_ns)));
        now = now.max(event.issued_ns);
    }
    leaves
}

/// Host time before each event and host wait of rank `r`, in nanoseconds.
pub(crate) fn host_times(parts: &Parts<'_>, r: usize) -> Vec<f64> {
    leaves(parts, r).into_iter().map(|(_, host_ns)| host_ns).collect()
}

/// Where each block is issued.
fn places(block_of: &[usize]) -> HashMap<usize, Vec<usize>> {
    let mut places: HashMap<usize, Vec<usize>> = HashMap::new();
    for (event, block) in block_of.iter().enumerate() {
        places.entry(*block).or_default().push(event);
    }
    places
}

/// Event `cause` of `block` as seen when `issued` events have been issued.
fn back(places: &HashMap<usize, Vec<usize>>, block: usize, cause: usize, issued: usize) -> Back {
    let mine = places.get(&block).map(Vec::as_slice).unwrap_or_default();
    let since = mine.partition_point(|event| *event < issued) - mine.partition_point(|event| *event <= cause);
    (block, since as u32)
}

/// Host time below this waits for more to make an item.
const LEAST_NS: f64 = 1_000.0;

/// Turns beats into items, and relative references into those of the pattern format, which count from the one of this
/// iteration, issued or not.
pub(crate) struct Writer<'a> {
    blocks: &'a [Block],
    parts: &'a Parts<'a>,
    /// The condition for a delay of one rank, by its index.
    alone: &'a dyn Fn(usize) -> When,
    /// The sequences around: blocks issued in each of their beats, and the place of the current one.
    frames: Vec<(Vec<HashSet<usize>>, usize)>,
    /// Host time too short for an item of its own, in nanoseconds.
    rest_ns: f64,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(blocks: &'a [Block], parts: &'a Parts<'a>, alone: &'a dyn Fn(usize) -> When) -> Self {
        Self { blocks, parts, alone, frames: Vec::new(), rest_ns: 0.0 }
    }

    pub(crate) fn items(&mut self, beats: &[Beat]) -> Vec<Item> {
        self.frames.push((beats.iter().map(issued).collect(), 0));
        let mut items = Vec::new();
        for (n, beat) in beats.iter().enumerate() {
            if let Some(frame) = self.frames.last_mut() {
                frame.1 = n;
            }
            match beat {
                Beat::Host(ns) => self.rest_ns += ns,
                Beat::Leaf(leaf) => {
                    self.host(&mut items);
                    items.push(self.item(leaf));
                }
                Beat::Loop { times, body } => {
                    // Host time before a loop is not that of its first launch, which has its own every time.
                    self.host(&mut items);
                    let before = std::mem::take(&mut self.rest_ns);
                    let mut inner = self.items(body);
                    self.host(&mut inner);
                    // What is left at the end of an iteration is left as often as it goes round.
                    self.rest_ns = before + std::mem::take(&mut self.rest_ns) * *times as f64;
                    items.push(Item::new(Step::Repeat { times: *times as u64, body: Body::Inline(inner) }));
                }
            }
        }
        self.frames.pop();
        items
    }

    /// Spends the host time that has come together, if it is enough for an item.
    fn host(&mut self, items: &mut Vec<Item>) {
        if self.rest_ns >= LEAST_NS {
            items.push(Item::new(Step::Host(readable((self.rest_ns / 100.0).round() * 100.0))));
            self.rest_ns = 0.0;
        }
    }

    fn item(&self, leaf: &Leaf) -> Item {
        let mut item = Item::new(match leaf {
            Leaf::Delay { ns, .. } => Step::Host(*ns),
            Leaf::Wait(back) => Step::Wait(vec![self.reference(*back)]),
            Leaf::Run { block, axis, lane, after } => Step::Run {
                block: self.blocks[*block].name.clone(),
                on: axis.map(|axis| self.parts.axes.axes[axis].name.clone()),
                lane: (self.parts.lanes.len() > 1).then(|| self.parts.lanes[*lane].name.clone()),
                label: None,
                after: after.iter().map(|back| self.reference(*back)).collect(),
            },
        });
        if let Leaf::Delay { rank, .. } = leaf {
            item.when = (self.alone)(*rank);
        }
        item
    }

    fn reference(&self, (block, back): Back) -> Reference {
        let ahead = self.frames.iter().rev().find_map(|(inside, place)| {
            let holds = |range: &[HashSet<usize>]| range.iter().any(|blocks| blocks.contains(&block));
            if holds(&inside[..*place]) { Some(false) } else { holds(&inside[*place..]).then_some(true) }
        });
        Reference { label: self.blocks[block].name.clone(), back: back + u32::from(ahead == Some(true)) }
    }
}

/// Blocks that a beat issues.
fn issued(beat: &Beat) -> HashSet<usize> {
    match beat {
        Beat::Leaf(Leaf::Run { block, .. }) => HashSet::from([*block]),
        Beat::Leaf(Leaf::Wait(_) | Leaf::Delay { .. }) | Beat::Host(_) => HashSet::new(),
        Beat::Loop { body, .. } => body.iter().flat_map(issued).collect(),
    }
}

/// How often each rank executes each block, for the numbers of captured executions.
pub(crate) fn instances(block_of: &[usize]) -> Vec<u32> {
    let mut next: BTreeMap<usize, u32> = BTreeMap::new();
    block_of
        .iter()
        .map(|block| {
            let n = next.entry(*block).or_default();
            *n += 1;
            *n - 1
        })
        .collect()
}
