//! Ninth pass: repeated sequences become loops, so that a step reads as a page and not as a log.
//!
//! Works on leaves that refer to each other relatively ("the last execution of block 3"), so that the iterations of a
//! loop look the same. Two leaves are the same if they run the same block on the same lane and wait for the same; what
//! one waits for and the other does not is no difference where the other would not wait: where there was nothing to wait
//! for yet, as in the first iteration of a loop, or where it has ended anyway, by the order of lanes and what else is
//! waited for, as what came before the loop has in the second. What host time becomes of that is decided next door, in [`super::gaps`].
//!
//! A step has tens of thousands of leaves, so nothing is compared that cannot matter. Runs of equal classes (what
//! [`same`] needs whatever there is to wait for) are found for all periods at once and taken by the lines that they can
//! save at most; only a run that comes to the top is compared leaf by leaf, and only one that stays there is merged,
//! which is what decides. Periods have no limit: a loop over half a step is found like one over two launches.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use super::spans::Spans;

/// A relative reference: the execution of a block, 0 for the last one issued before.
pub(crate) type Back = (usize, u32);

/// One thing a host does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// Issues a block.
    Run {
        block: usize,
        axis: Option<usize>,
        lane: usize,
        after: BTreeSet<Back>,
        /// The graph that it is part of.
        graph: Option<Part>,
    },
    /// Waits for the execution of a block.
    Wait(Back),
    /// Host time in nanoseconds that one rank, given by its index, spends here and the others do not.
    Delay { rank: usize, ns: u64 },
}

/// A part of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    /// The profiler's number of the graph.
    pub id: Option<u64>,
    /// Whether it is the first of its launch.
    pub first: bool,
}

impl Leaf {
    /// Whether both do the same, whatever they wait for before.
    pub fn does_as(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Run { block, axis, lane, graph, after: _ },
                Self::Run { block: other_block, axis: other_axis, lane: other_lane, graph: other_graph, after: _ },
            ) => (block, axis, lane, graph) == (other_block, other_axis, other_lane, other_graph),
            (Self::Wait(_), _) | (Self::Delay { .. }, _) | (Self::Run { .. }, _) => self == other,
        }
    }
}

/// A leaf, or many that were folded together.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    pub leaf: Leaf,
    /// Where it stands in the unrolled sequence, ascending, each with the host time before it in nanoseconds.
    pub places: Vec<(usize, f64)>,
}

/// A folded sequence.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Leaf(Timed),
    Loop { times: usize, body: Vec<Tree> },
}

/// Folds a sequence of leaves, each with the host time before it.
pub(crate) fn fold(leaves: Vec<(Leaf, f64)>) -> Vec<Tree> {
    let issued = Issued::new(&leaves);
    let trees = leaves
        .into_iter()
        .enumerate()
        .map(|(place, (leaf, host_ns))| Tree::Leaf(Timed { leaf, places: vec![(place, host_ns)] }))
        .collect();
    loops(trees, &issued)
}

/// Where each block was issued in the unrolled sequence, and what has ended wherever something is issued.
struct Issued {
    /// By block, ascending.
    places: Vec<Vec<usize>>,
    /// Per place: its lane, and which one it is there; of a wait of the host nothing.
    seats: Vec<Option<(usize, u32)>>,
    /// Per place and lane: how many of the lane's have ended for certain when this one begins. Empty if there are so
    /// many lanes that it would take much memory; then nothing counts as ended.
    ended: Vec<u32>,
    lanes: usize,
}

impl Issued {
    fn new(leaves: &[(Leaf, f64)]) -> Self {
        /// Most lanes for which what has ended is kept.
        const MOST_LANES: usize = 32;
        let lane = |leaf: &Leaf| if let Leaf::Run { lane, .. } = leaf { Some(*lane) } else { None };
        let lanes = leaves.iter().filter_map(|(leaf, _)| lane(leaf)).max().map_or(0, |most| most + 1);
        let mut all = Self { places: Vec::new(), seats: Vec::new(), ended: Vec::new(), lanes };
        // What has ended for the host, and the latest place of each lane.
        let mut host = vec![0; lanes];
        let mut latest: Vec<Option<usize>> = vec![None; lanes];
        let mut counts = vec![0; lanes];
        for (place, (leaf, _)) in leaves.iter().enumerate() {
            let mut now = host.clone();
            let mut causes: Vec<usize> = Vec::new();
            match leaf {
                Leaf::Run { lane, after, .. } => {
                    causes.extend(latest[*lane]);
                    causes.extend(after.iter().filter_map(|back| all.found(*back, place)));
                }
                Leaf::Wait(back) => causes.extend(all.found(*back, place)),
                Leaf::Delay { .. } => {}
            }
            if lanes <= MOST_LANES {
                for cause in causes {
                    all.ended_with(cause, &mut now);
                }
                if let Leaf::Wait(_) = leaf {
                    host.clone_from(&now);
                }
                all.ended.extend(&now);
            }
            let seat = lane(leaf).map(|lane| (lane, counts[lane]));
            all.seats.push(seat);
            if let Leaf::Run { block, lane, .. } = leaf {
                counts[*lane] += 1;
                latest[*lane] = Some(place);
                if all.places.len() <= *block {
                    all.places.resize(block + 1, Vec::new());
                }
                all.places[*block].push(place);
            }
        }
        all
    }

    /// Adds to `now` what has ended when the run at `place` has.
    fn ended_with(&self, place: usize, now: &mut [u32]) {
        let row = self.ended.get(place * self.lanes..(place + 1) * self.lanes).unwrap_or_default();
        now.iter_mut().zip(row).for_each(|(mine, ended)| *mine = (*mine).max(*ended));
        if let Some((lane, count)) = self.seats[place] {
            now[lane] = now[lane].max(count + 1);
        }
    }

    /// What a reference finds at `place`.
    fn found(&self, (block, back): Back, place: usize) -> Option<usize> {
        let mine = self.places.get(block)?;
        let before = mine.partition_point(|issued| *issued < place);
        before.checked_sub(back as usize + 1).map(|found| mine[found])
    }

    /// Whether nobody would wait for `reference` at any of `places`: it finds nothing, or what has ended already.
    fn vacuous(&self, reference: Back, places: &[(usize, f64)]) -> bool {
        places.iter().all(|(place, _)| {
            self.found(reference, *place).is_none_or(|found| {
                let ended = |(lane, count): (usize, u32)| self.ended.get(place * self.lanes + lane) > Some(&count);
                self.seats[found].is_some_and(ended)
            })
        })
    }
}

/// Replaces repetitions by loops, until a loop makes no more of them.
fn loops(mut trees: Vec<Tree>, issued: &Issued) -> Vec<Tree> {
    loop {
        let found = repetitions(&trees, issued);
        if found.is_empty() {
            return trees;
        }
        let mut rest = trees.into_iter();
        let mut at = 0;
        trees = Vec::new();
        for (start, Repetition { end, times, body }) in found {
            trees.extend(rest.by_ref().take(start - at));
            trees.push(Tree::Loop { times, body: loops(body, issued) });
            rest.by_ref().take(end - start).for_each(drop);
            at = end;
        }
        trees.extend(rest);
    }
}

/// A sequence that stands several times in a row, merged.
struct Repetition {
    end: usize,
    times: usize,
    body: Vec<Tree>,
}

/// Trees from `start` to `end` of which each may be the same as the one a period later. In the order in which they are
/// taken: what saves most lines, then the shorter period, then the earlier.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    saved: usize,
    period: Reverse<usize>,
    start: Reverse<usize>,
    end: usize,
    /// Whether each was compared with the one a period later; else only their classes were.
    compared: bool,
}

impl Run {
    /// `None` if a loop would save nothing. `lines` are those before each tree.
    fn new(start: usize, end: usize, period: usize, compared: bool, lines: &[usize]) -> Option<Self> {
        let times = end.saturating_sub(start) / period;
        // A loop costs two lines of its own.
        let saved = ((lines.get(start + period)? - lines[start]) * times.saturating_sub(1)).saturating_sub(2);
        (saved > 0).then_some(Self { saved, period: Reverse(period), start: Reverse(start), end, compared })
    }
}

/// Repetitions that do not overlap, by where they start: the one that saves most, then the next in what is left.
fn repetitions(trees: &[Tree], issued: &Issued) -> BTreeMap<usize, Repetition> {
    let marks = marks(trees, issued);
    let mut before = vec![0];
    for tree in trees {
        before.push(before[before.len() - 1] + lines(std::slice::from_ref(tree)));
    }
    let classes: Vec<u32> = marks.iter().map(|mark| mark.class).collect();
    let run = |start, end, period, compared| Run::new(start, end, period, compared, &before);
    let mut runs: BinaryHeap<Run> =
        periodic(&classes).into_iter().filter_map(|(start, end, period)| run(start, end, period, false)).collect();
    let mut found: BTreeMap<usize, Repetition> = BTreeMap::new();
    while let Some(Run { period: Reverse(period), start: Reverse(start), end, compared, .. }) = runs.pop() {
        let taken = found.range(..end).next_back().map(|(from, taken)| (*from, taken.end));
        if let Some((from, to)) = taken.filter(|(_, to)| *to > start) {
            runs.extend(run(start, from, period, compared));
            runs.extend(run(to.max(start), end, period, compared));
            continue;
        }
        if !compared {
            let mut from = start;
            for at in start..end - period {
                let other = at + period;
                if !(marks[at].agrees(&marks[other]) && loops_agree(&trees[at], &trees[other], issued)) {
                    runs.extend(run(from, other, period, true));
                    from = at + 1;
                }
            }
            runs.extend(run(from, end, period, true));
            continue;
        }
        let (times, body) = merged(&trees[start..end], period, issued);
        let until = start + times * period;
        if times == (end - start) / period {
            found.insert(start, Repetition { end: until, times, body });
        } else {
            // What is the same as its neighbour need not be the same as all before merged: sameness is not transitive.
            // It is where every reference finds something, as a capture's do, so what is left needs no finer search.
            runs.extend(run(start, until, period, true));
            runs.extend(run(until, end, period, true));
        }
    }
    found
}

/// (start, end, period) of every longest stretch, two periods or more, in which all is as a period later.
fn periodic(classes: &[u32]) -> Vec<(usize, usize, usize)> {
    let spans = Spans::new(classes);
    let mut all = Vec::new();
    for period in 1..=classes.len() / 2 {
        // A stretch of two periods holds a multiple of the period and the place a period later.
        let mut at = 0;
        while at + period < classes.len() {
            let ahead = spans.ahead(at, at + period);
            let (start, end) = (at - spans.behind(at, at + period), at + period + ahead);
            if end - start >= 2 * period {
                all.push((start, end, period));
            }
            at = ((at + ahead) / period + 1) * period;
        }
    }
    all
}

/// How often the first `period` trees stand in a row, and all of them merged.
fn merged(trees: &[Tree], period: usize, issued: &Issued) -> (usize, Vec<Tree>) {
    let mut body = trees[..period].to_vec();
    let mut times = 1;
    for next in trees.chunks_exact(period).skip(1) {
        if !body.iter().zip(next).all(|(a, b)| same(a, b, issued)) {
            break;
        }
        body.iter_mut().zip(next).for_each(|(tree, other)| merge(tree, other));
        times += 1;
    }
    (times, body)
}

/// What two trees that are the same have in common, so cheap that it can be compared for every period.
struct Mark {
    /// Number of what is done, whatever it waits for.
    class: u32,
    /// What a leaf waits for: a bit for each reference that leaves of its class have, shared if there are more than 64.
    waits: u64,
    /// That, and what it may as well wait for.
    may_wait: u64,
}

impl Mark {
    fn agrees(&self, other: &Self) -> bool {
        self.class == other.class && self.waits & !other.may_wait == 0 && other.waits & !self.may_wait == 0
    }
}

/// What a tree does, whatever it waits for.
#[derive(PartialEq, Eq, Hash)]
enum Class {
    Run(usize, Option<usize>, usize, Option<Part>),
    Wait(Back),
    Delay(usize, u64),
    Loop(usize, Vec<u32>),
}

fn marks(trees: &[Tree], issued: &Issued) -> Vec<Mark> {
    let mut numbers = HashMap::new();
    let classes: Vec<u32> = trees.iter().map(|tree| class(tree, &mut numbers)).collect();
    // The references of each class with their bits.
    let mut references: Vec<HashMap<Back, usize>> = vec![HashMap::new(); numbers.len()];
    for (tree, class) in trees.iter().zip(&classes) {
        let bits = &mut references[*class as usize];
        for back in waits_for(tree) {
            let bit = bits.len();
            bits.entry(*back).or_insert(bit);
        }
    }
    let mark = |(tree, class): (&Tree, u32)| {
        let bits = &references[class as usize];
        let waits = waits_for(tree).filter_map(|back| bits.get(back)).fold(0, |all, bit| all | 1 << (bit % 64));
        let may_wait = match tree {
            // With more references than bits, which share them, the closer look decides.
            Tree::Leaf(timed) if bits.len() <= 64 => bits
                .iter()
                .filter(|(back, _)| issued.vacuous(**back, &timed.places))
                .fold(waits, |all, (_, bit)| all | 1 << bit),
            _ => u64::MAX,
        };
        Mark { class, waits, may_wait }
    };
    trees.iter().zip(classes).map(mark).collect()
}

fn class(tree: &Tree, numbers: &mut HashMap<Class, u32>) -> u32 {
    let class = match tree {
        Tree::Leaf(Timed { leaf: Leaf::Run { block, axis, lane, graph, .. }, .. }) => {
            Class::Run(*block, *axis, *lane, *graph)
        }
        Tree::Leaf(Timed { leaf: Leaf::Wait(back), .. }) => Class::Wait(*back),
        Tree::Leaf(Timed { leaf: Leaf::Delay { rank, ns }, .. }) => Class::Delay(*rank, *ns),
        Tree::Loop { times, body } => Class::Loop(*times, body.iter().map(|tree| class(tree, numbers)).collect()),
    };
    let next = numbers.len() as u32;
    *numbers.entry(class).or_insert(next)
}

/// What a leaf that issues a block waits for.
fn waits_for(tree: &Tree) -> impl Iterator<Item = &Back> {
    let after = if let Tree::Leaf(Timed { leaf: Leaf::Run { after, .. }, .. }) = tree { Some(after) } else { None };
    after.into_iter().flatten()
}

/// Marks say all about leaves, but nothing about what waits inside loops.
fn loops_agree(a: &Tree, b: &Tree, issued: &Issued) -> bool {
    matches!(a, Tree::Leaf(_)) || same(a, b, issued)
}

fn lines(trees: &[Tree]) -> usize {
    trees
        .iter()
        .map(|tree| match tree {
            // Most leaves have a line of host time beside their own.
            Tree::Leaf(_) => 2,
            Tree::Loop { body, .. } => 2 + lines(body),
        })
        .sum()
}

fn same(a: &Tree, b: &Tree, issued: &Issued) -> bool {
    match (a, b) {
        (Tree::Leaf(a), Tree::Leaf(b)) => same_leaf(a, b, issued),
        (Tree::Loop { times, body }, Tree::Loop { times: other_times, body: other }) => {
            times == other_times && body.len() == other.len() && body.iter().zip(other).all(|(a, b)| same(a, b, issued))
        }
        _ => false,
    }
}

fn same_leaf(a: &Timed, b: &Timed, issued: &Issued) -> bool {
    if !a.leaf.does_as(&b.leaf) {
        return false;
    }
    let (Leaf::Run { after, .. }, Leaf::Run { after: other, .. }) = (&a.leaf, &b.leaf) else { return true };
    after.difference(other).all(|back| issued.vacuous(*back, &b.places))
        && other.difference(after).all(|back| issued.vacuous(*back, &a.places))
}

/// Merges `other` into `tree`, which is the same.
fn merge(tree: &mut Tree, other: &Tree) {
    match (tree, other) {
        (Tree::Leaf(one), Tree::Leaf(other)) => {
            one.places.extend(&other.places);
            // A loop in a loop merges the inner one last, whose places are between those of the outer one.
            one.places.sort_by_key(|(place, _)| *place);
            if let (Leaf::Run { after, .. }, Leaf::Run { after: more, .. }) = (&mut one.leaf, &other.leaf) {
                after.extend(more);
            }
        }
        (Tree::Loop { body, .. }, Tree::Loop { body: other, .. }) => {
            for (one, other) in body.iter_mut().zip(other) {
                merge(one, other);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
