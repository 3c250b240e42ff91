//! Ninth pass, second half: the pattern's schedule, from every rank's events.
//!
//! Ranks whose events are the same blocks in the same order share one schedule; what their captures disagree on about
//! waiting is left out, because a dependency that one rank's times contradict is none. Ranks that differ get roles by
//! their coordinate on an axis.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use maestro_pattern::{
    Axis, AxisShape, Block, Body, Item, Lane, Pattern, Reference, Role, Selector, Step, When, World,
};

use super::axes::Axes;
use super::blocks::{Blocks, Rank, SKEW, readable, rounded_factor};
use super::fold::{Back, Leaf, fold};
use super::gaps::{Beat, beats};
use crate::Notes;

/// One rank's step as leaves, each with the host time before it in nanoseconds.
type Leaves = Vec<(Leaf, f64)>;

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
}

/// Fills the schedule, or roles, of `pattern`, whose axes, blocks and lanes are there.
pub(crate) fn schedule(pattern: &mut Pattern, parts: &Parts<'_>, notes: &mut Notes) {
    let mut classes: Vec<(Vec<usize>, Leaves)> = Vec::new();
    // Per rank, host time between its first and its last launch, without waiting.
    let mut host_ns: Vec<f64> = Vec::new();
    for (r, rank) in parts.ranks.iter().enumerate() {
        let leaves = leaves(parts, r, rank);
        host_ns.push(leaves.iter().map(|(_, host_ns)| host_ns).sum());
        match classes.iter_mut().find(|(_, other)| same_blocks(other, &leaves)) {
            Some((members, common)) => {
                meet(common, &leaves);
                members.push(r);
            }
            None => classes.push((vec![r], leaves)),
        }
    }
    let mut skew = vec![1.0; parts.world as usize];
    for (members, leaves) in &mut classes {
        leaves.iter_mut().for_each(|(_, host_ns)| *host_ns /= members.len() as f64);
        let mean: f64 = leaves.iter().map(|(_, host_ns)| host_ns).sum();
        for member in members.iter().filter(|_| mean > 0.0) {
            let rank = &parts.ranks[*member];
            skew[rank.rank as usize] = rounded_factor(host_ns[*member] / mean);
        }
    }
    if skew.iter().any(|factor: &f64| (factor - 1.0).abs() > SKEW) {
        pattern.host_skew = skew;
    }
    let Ok(world) = World::new(&pattern.axes, &[]) else { return };
    let single = classes.len() == 1;
    let members = with_uncaptured(parts, &classes, world.size());
    let listed = !single && members.iter().any(|ranks| role(&world, ranks).is_none());
    if listed {
        notes.add("steps whose ranks differ by no coordinate of one axis: roles list their ranks", || {
            format!("{members:?}")
        });
        let shape = AxisShape::Teams(vec![(0..world.size()).collect()]);
        let name = EVERYONE.to_owned();
        pattern.axes.push(Axis { name, shape, settings: Default::default(), place: Default::default() });
    }
    for ((captured, leaves), ranks) in classes.into_iter().zip(members) {
        let mut items = late_starts(parts, &captured, &world, &pattern.host_skew, single);
        items.extend(Writer::new(&pattern.blocks, parts).items(&beats(fold(leaves))));
        if single {
            pattern.schedule = items;
            return;
        }
        let (name, when) = role(&world, &ranks).filter(|_| !listed).unwrap_or_else(|| {
            let name = format!("{EVERYONE}_{}", ranks.first().copied().unwrap_or_default());
            (name, When(vec![(EVERYONE.to_owned(), Selector::These(ranks))]))
        });
        pattern.roles.push(Role { name, when, schedule: items, place: Default::default() });
    }
}

/// The axis that tells single ranks apart where no other does.
const EVERYONE: &str = "rank";

/// The ranks of each class. Ranks that were not captured do as the largest class does, which the pattern states.
fn with_uncaptured(parts: &Parts<'_>, classes: &[(Vec<usize>, Leaves)], world: u32) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> =
        classes.iter().map(|(members, _)| members.iter().map(|r| parts.ranks[*r].rank).collect()).collect();
    let captured: HashSet<u32> = all.iter().flatten().copied().collect();
    if let Some(largest) = all.iter_mut().rev().max_by_key(|ranks| ranks.len()) {
        largest.extend((0..world).filter(|rank| !captured.contains(rank)));
        largest.sort_unstable();
    }
    all
}

fn leaves(parts: &Parts<'_>, r: usize, rank: &Rank<'_>) -> Leaves {
    let block_of = &parts.blocks.block_of[r];
    let places = places(block_of);
    let events = &rank.events.events;
    let mut waits = rank.events.host_waits.iter().peekable();
    let mut leaves = Vec::new();
    let mut now = events.first().map_or(0, |event| event.issued_ns);
    for (e, event) in events.iter().enumerate() {
        while let Some((wait, cause, _)) = waits.next_if(|(_, _, before)| *before <= e) {
            leaves.push((Leaf::Wait(back(&places, block_of[*cause], *cause, e)), (wait.start_ns - now).max(0) as f64));
            now = now.max(wait.end_ns);
        }
        let axis = rank.communication(event).map(|(resolved, _)| parts.axes.axis_of[resolved.communicator]);
        let after = event.after.iter().map(|cause| back(&places, block_of[*cause], *cause, e)).collect();
        let lane = parts.lane_of[r].get(&event.stream).copied().unwrap_or_default();
        let leaf = Leaf::Run { block: block_of[e], axis, lane, after };
        leaves.push((leaf, (event.issued_ns - now).max(0) as f64));
        now = now.max(event.issued_ns);
    }
    leaves
}

/// Host time before each event and host wait of rank `r`, in nanoseconds.
pub(crate) fn host_times(parts: &Parts<'_>, r: usize) -> Vec<f64> {
    leaves(parts, r, &parts.ranks[r]).into_iter().map(|(_, host_ns)| host_ns).collect()
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

fn same_blocks(a: &Leaves, b: &Leaves) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((a, _), (b, _))| a.does_as(b))
}

/// Keeps of `common` what `other` agrees with, and adds its host time.
fn meet(common: &mut Leaves, other: &Leaves) {
    for ((leaf, host_ns), (other, more)) in common.iter_mut().zip(other) {
        *host_ns += more;
        if let (Leaf::Run { after, .. }, Leaf::Run { after: other, .. }) = (leaf, other) {
            after.retain(|back| other.contains(back));
        }
    }
}

/// Host time at the start of the ranks that began the step later than the first: the latest ones. Less than a thousandth
/// of the step is left out.
///
/// A rank's factor of `host_skew` will multiply what is written here as all other host time, and so divides it.
fn late_starts(parts: &Parts<'_>, members: &[usize], world: &World, host_skew: &[f64], single: bool) -> Vec<Item> {
    let span = |r: &usize| {
        let events = &parts.ranks[*r].events.events;
        let end = events.iter().map(|event| event.end_ns).max().unwrap_or(0);
        end - events.first().map_or(end, |event| event.issued_ns)
    };
    let least = members.iter().map(span).max().unwrap_or(0) / 1000;
    let late = |r: &&usize| parts.late_ns[**r] > least;
    let written = |r: usize| {
        let factor = host_skew.get(parts.ranks[r].rank as usize).copied().unwrap_or(1.0);
        parts.late_ns[r] as f64 / factor
    };
    if !single && members.iter().all(|r| late(&r)) {
        // One coordinate, usually one rank: the role's own first item, no condition needed.
        let mean = members.iter().map(|r| written(*r)).sum::<f64>() / members.len() as f64;
        return vec![Item::new(Step::Host(readable(mean)))];
    }
    /// More lines than this say less than they cost.
    const MOST: usize = 8;
    let mut latest: Vec<&usize> = members.iter().filter(late).collect();
    latest.sort_by_key(|r| std::cmp::Reverse(parts.late_ns[**r]));
    latest.truncate(MOST);
    latest.sort();
    latest
        .into_iter()
        .map(|r| {
            let mut item = Item::new(Step::Host(readable(written(*r))));
            item.when = coordinates(world, parts.ranks[*r].rank);
            item
        })
        .collect()
}

/// The condition that selects exactly one rank: its coordinate on the axes that form the grid.
fn coordinates(world: &World, rank: u32) -> When {
    let mut all = Vec::new();
    let mut alone: HashSet<u32> = (0..world.size()).collect();
    for (axis, described) in world.axes().iter().enumerate() {
        if alone.len() == 1 {
            break;
        }
        if let Some((_, place)) = world.seat(axis, rank) {
            alone.retain(|other| world.seat(axis, *other).is_some_and(|(_, theirs)| theirs == place));
            all.push((described.name.clone(), Selector::These(vec![place])));
        }
    }
    When(all)
}

/// Name and condition of a role that is a set of coordinates on one axis.
fn role(world: &World, ranks: &[u32]) -> Option<(String, When)> {
    for (axis, described) in world.axes().iter().enumerate() {
        let place = |rank: u32| world.seat(axis, rank).map(|(_, place)| place);
        let places: BTreeSet<u32> = ranks.iter().filter_map(|rank| place(*rank)).collect();
        let selected = (0..world.size()).filter(|rank| place(*rank).is_some_and(|p| places.contains(&p)));
        if selected.collect::<Vec<u32>>() != ranks {
            continue;
        }
        let places: Vec<u32> = places.into_iter().collect();
        let shown: Vec<String> = places.iter().map(u32::to_string).collect();
        let name = format!("{}_{}", described.name, shown.join("_"));
        return Some((name, When(vec![(described.name.clone(), Selector::These(places))])));
    }
    None
}

/// Host time below this waits for more to make an item.
const LEAST_NS: f64 = 1_000.0;

/// Turns beats into items, and relative references into those of the pattern format, which count from the one of this
/// iteration, issued or not.
struct Writer<'a> {
    blocks: &'a [Block],
    parts: &'a Parts<'a>,
    /// The sequences around: blocks issued in each of their beats, and the place of the current one.
    frames: Vec<(Vec<HashSet<usize>>, usize)>,
    /// Host time too short for an item of its own, in nanoseconds.
    rest_ns: f64,
}

impl<'a> Writer<'a> {
    fn new(blocks: &'a [Block], parts: &'a Parts<'a>) -> Self {
        Self { blocks, parts, frames: Vec::new(), rest_ns: 0.0 }
    }

    fn items(&mut self, beats: &[Beat]) -> Vec<Item> {
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
        Item::new(match leaf {
            Leaf::Wait(back) => Step::Wait(vec![self.reference(*back)]),
            Leaf::Run { block, axis, lane, after } => Step::Run {
                block: self.blocks[*block].name.clone(),
                on: axis.map(|axis| self.parts.axes.axes[axis].name.clone()),
                lane: (self.parts.lanes.len() > 1).then(|| self.parts.lanes[*lane].name.clone()),
                label: None,
                after: after.iter().map(|back| self.reference(*back)).collect(),
            },
        })
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
        Beat::Leaf(Leaf::Wait(_)) | Beat::Host(_) => HashSet::new(),
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
