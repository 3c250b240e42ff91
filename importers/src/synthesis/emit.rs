//! Ninth pass, the ends: a rank's events as leaves to be folded, and what was folded as items of the pattern format.

use std::collections::{BTreeMap, HashMap, HashSet};

use maestro_pattern::{Block, Body, Item, Lane, Motif, Reference, Step, When};

use super::axes::Axes;
use super::blocks::{Blocks, Rank, readable};
use super::fold::{Back, Leaf, Part};
use super::fresh;
use super::fuse::Graph;
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
    let mut now = rank.events.begin_ns().unwrap_or(0);
    for (e, event) in events.iter().enumerate() {
        while let Some((wait, cause, _)) = waits.next_if(|(_, _, before)| *before <= e) {
            leaves.push((Leaf::Wait(back(&places, block_of[*cause], *cause, e)), host(now, wait.start_ns)));
            now = now.max(wait.end_ns);
        }
        let axis = rank.communication(event).map(|(resolved, _)| parts.axes.axis_of[resolved.communicator]);
        let after = event.after.iter().map(|cause| back(&places, block_of[*cause], *cause, e)).collect();
        let lane = parts.lane_of[r].get(&event.stream).copied().unwrap_or_default();
        let first = |graph: &Graph| {
            let before = e.checked_sub(1).and_then(|before| events[before].graph);
            Part { id: graph.id, first: before.is_none_or(|before| before.launch != graph.launch) }
        };
        let leaf = Leaf::Run { block: block_of[e], axis, lane, after, graph: event.graph.as_ref().map(first) };
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
    /// The graphs met so far.
    pub(crate) motifs: Vec<Motif>,
}

impl<'a> Writer<'a> {
    /// `motifs` are the graphs met so far.
    pub(crate) fn new(
        blocks: &'a [Block],
        parts: &'a Parts<'a>,
        alone: &'a dyn Fn(usize) -> When,
        motifs: Vec<Motif>,
    ) -> Self {
        Self { blocks, parts, alone, frames: Vec::new(), rest_ns: 0.0, motifs }
    }

    pub(crate) fn items(&mut self, beats: &[Beat]) -> Vec<Item> {
        let parts = parts(beats);
        self.frames.push((parts.iter().map(|part| part.iter().flat_map(issued).collect()).collect(), 0));
        let mut items = Vec::new();
        for (n, part) in parts.into_iter().enumerate() {
            if let Some(frame) = self.frames.last_mut() {
                frame.1 = n;
            }
            match part {
                [Beat::Host(ns)] => self.rest_ns += ns,
                [Beat::Leaf(leaf)] => {
                    self.host(&mut items);
                    items.push(self.item(leaf));
                }
                [Beat::Loop { times, body }] => {
                    // Host time before a loop is not that of its first launch, which has its own every time.
                    self.host(&mut items);
                    let before = std::mem::take(&mut self.rest_ns);
                    let mut inner = self.items(body);
                    self.host(&mut inner);
                    // What is left at the end of an iteration is left as often as it goes round.
                    self.rest_ns = before + std::mem::take(&mut self.rest_ns) * *times as f64;
                    items.push(Item::new(Step::Repeat { times: *times as u64, body: Body::Inline(inner) }));
                }
                graph => {
                    self.host(&mut items);
                    let motif = self.graph(graph);
                    items.push(Item::new(Step::Repeat { times: 1, body: Body::Motif(motif) }));
                }
            }
        }
        self.frames.pop();
        items
    }

    /// The motif of a graph's parts, which a replay may launch at once.
    fn graph(&mut self, parts: &[Beat]) -> String {
        let inner: Vec<Beat> = parts.iter().cloned().map(plain).collect();
        let items = self.items(&inner);
        if let Some(known) = self.motifs.iter().find(|motif| motif.items == items) {
            return known.name.clone();
        }
        let id = parts.first().and_then(starts).and_then(|part| part.id);
        let stem = id.map_or_else(|| "graph".to_owned(), |id| format!("graph_{id}"));
        let name = fresh(&stem, "_", |name| self.motifs.iter().any(|motif| motif.name == name));
        self.motifs.push(Motif { name: name.clone(), items, place: Default::default() });
        name
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
            Leaf::Run { block, axis, lane, after, graph: _ } => Step::Run {
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

/// The beats one by one, but the parts of a graph's launch together.
fn parts(beats: &[Beat]) -> Vec<&[Beat]> {
    let mut parts = Vec::new();
    let mut from = 0;
    while from < beats.len() {
        let mut to = from + 1;
        if starts(&beats[from]).is_some_and(|part| part.first) {
            while beats.get(to).is_some_and(goes_on) {
                to += 1;
            }
        }
        parts.push(&beats[from..to]);
        from = to;
    }
    parts
}

/// The part of a graph that a leaf is.
fn starts(beat: &Beat) -> Option<Part> {
    if let Beat::Leaf(Leaf::Run { graph, .. }) = beat { *graph } else { None }
}

/// Whether all of a beat is inside a launch that began before it.
fn goes_on(beat: &Beat) -> bool {
    match beat {
        Beat::Loop { body, .. } => body.iter().all(goes_on),
        Beat::Leaf(_) => starts(beat).is_some_and(|part| !part.first),
        Beat::Host(_) => false,
    }
}

/// The same, in no graph.
fn plain(beat: Beat) -> Beat {
    match beat {
        Beat::Leaf(Leaf::Run { block, axis, lane, after, .. }) => {
            Beat::Leaf(Leaf::Run { block, axis, lane, after, graph: None })
        }
        Beat::Loop { times, body } => Beat::Loop { times, body: body.into_iter().map(plain).collect() },
        Beat::Leaf(_) | Beat::Host(_) => beat,
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
