//! Ninth pass: repeated sequences become loops, so that a step reads as a page and not as a log.
//!
//! Works on leaves that refer to each other relatively ("the last execution of block 3"), so that the iterations of a
//! loop look the same. Two leaves are the same if they run the same block on the same lane and wait for the same; what
//! one waits for and the other does not is no difference where there was nothing to wait for yet, as in the first
//! iteration of a loop. Host time is averaged over what is folded together, which keeps its sum.

use std::collections::BTreeSet;

/// A relative reference: the execution of a block, 0 for the last one issued before.
pub(crate) type Back = (usize, u32);

/// One thing a host does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// Issues a block.
    Run { block: usize, axis: Option<usize>, lane: usize, after: BTreeSet<Back> },
    /// Waits for the execution of a block.
    Wait(Back),
}

/// A leaf, or many that were folded together.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    pub leaf: Leaf,
    /// Host time before it, in nanoseconds, summed over `places`.
    pub host_ns: f64,
    /// Where it stands in the unrolled sequence.
    pub places: Vec<usize>,
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
        .map(|(place, (leaf, host_ns))| Tree::Leaf(Timed { leaf, host_ns, places: vec![place] }))
        .collect();
    loops(trees, &issued)
}

/// Where each block was issued in the unrolled sequence.
struct Issued(Vec<Vec<usize>>);

impl Issued {
    fn new(leaves: &[(Leaf, f64)]) -> Self {
        let mut places: Vec<Vec<usize>> = Vec::new();
        for (place, (leaf, _)) in leaves.iter().enumerate() {
            if let Leaf::Run { block, .. } = leaf {
                if places.len() <= *block {
                    places.resize(block + 1, Vec::new());
                }
                places[*block].push(place);
            }
        }
        Self(places)
    }

    /// Whether `reference` finds nothing at any of `places`.
    fn vacuous(&self, (block, back): Back, places: &[usize]) -> bool {
        let Some(issued) = self.0.get(block) else { return true };
        places.iter().all(|place| issued.partition_point(|other| other < place) <= back as usize)
    }
}

/// Replaces repetitions by loops, the one that saves most first.
fn loops(mut trees: Vec<Tree>, issued: &Issued) -> Vec<Tree> {
    while let Some((start, period, times)) = best(&trees, issued) {
        let mut body: Vec<Tree> = trees[start..start + period].to_vec();
        for n in 1..times {
            let from = start + n * period;
            for (tree, other) in body.iter_mut().zip(&trees[from..from + period]) {
                merge(tree, other);
            }
        }
        let body = loops(body, issued);
        trees.splice(start..start + period * times, [Tree::Loop { times, body }]);
    }
    trees
}

/// (start, period, times) of the repetition that saves most lines; the shorter period among equals.
fn best(trees: &[Tree], issued: &Issued) -> Option<(usize, usize, usize)> {
    let mut best = None;
    let mut most = 0;
    for period in 1..=trees.len() / 2 {
        let mut start = 0;
        while start + 2 * period <= trees.len() {
            let times = repetitions(&trees[start..], period, issued);
            if times > 1 {
                // A loop costs two lines of its own.
                let saved = (lines(&trees[start..start + period]) * (times - 1)).saturating_sub(2);
                if saved > most {
                    most = saved;
                    best = Some((start, period, times));
                }
            }
            start += 1;
        }
    }
    best
}

/// How often the first `period` trees stand in a row.
fn repetitions(trees: &[Tree], period: usize, issued: &Issued) -> usize {
    let mut body: Option<Vec<Tree>> = None;
    let mut times = 1;
    while (times + 1) * period <= trees.len() {
        let next = &trees[times * period..(times + 1) * period];
        let so_far = body.as_deref().unwrap_or(&trees[..period]);
        if !so_far.iter().zip(next).all(|(a, b)| same(a, b, issued)) {
            break;
        }
        // Sameness is not transitive: compare with everything merged so far.
        let merged = body.get_or_insert_with(|| trees[..period].to_vec());
        for (tree, other) in merged.iter_mut().zip(next) {
            merge(tree, other);
        }
        times += 1;
    }
    times
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
    match (&a.leaf, &b.leaf) {
        (
            Leaf::Run { block, axis, lane, after },
            Leaf::Run { block: other_block, axis: other_axis, lane: other_lane, after: other_after },
        ) => {
            (block, axis, lane) == (other_block, other_axis, other_lane)
                && after.difference(other_after).all(|back| issued.vacuous(*back, &b.places))
                && other_after.difference(after).all(|back| issued.vacuous(*back, &a.places))
        }
        (Leaf::Wait(a), Leaf::Wait(b)) => a == b,
        _ => false,
    }
}

/// Merges `other` into `tree`, which is the same.
fn merge(tree: &mut Tree, other: &Tree) {
    match (tree, other) {
        (Tree::Leaf(one), Tree::Leaf(other)) => {
            one.host_ns += other.host_ns;
            one.places.extend(&other.places);
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
mod tests {
    use super::*;

    fn run(block: usize, after: &[Back]) -> (Leaf, f64) {
        (Leaf::Run { block, axis: None, lane: 0, after: after.iter().copied().collect() }, 10.0)
    }

    /// `a b*3 (c d)*2`, leaves as block numbers.
    fn show(trees: &[Tree]) -> String {
        let shown = trees.iter().map(|tree| match tree {
            Tree::Leaf(Timed { leaf: Leaf::Run { block, .. }, .. }) => block.to_string(),
            Tree::Leaf(_) => "w".to_owned(),
            Tree::Loop { times, body } => format!("({})*{times}", show(body)),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    fn folded(blocks: &[usize]) -> String {
        show(&fold(blocks.iter().map(|block| run(*block, &[])).collect()))
    }

    #[test]
    fn repetitions_become_loops() {
        assert_eq!(folded(&[0, 1, 2, 1, 2, 1, 2, 3]), "0 (1 2)*3 3");
        assert_eq!(folded(&[0, 1, 2]), "0 1 2");
    }

    #[test]
    fn loops_nest() {
        assert_eq!(folded(&[0, 1, 1, 1, 1, 2, 0, 1, 1, 1, 1, 2]), "(0 (1)*4 2)*2");
    }

    #[test]
    fn what_saves_no_line_stays() {
        assert_eq!(folded(&[5, 5]), "5 5");
        assert_eq!(folded(&[5, 5, 5]), "(5)*3");
    }

    #[test]
    fn a_reference_to_nothing_is_no_difference() {
        // The first iteration has no gather before its own to wait for.
        let first = vec![run(0, &[]), run(1, &[(0, 0)])];
        let later = [run(0, &[]), run(1, &[(0, 0), (0, 1)])];
        let all: Vec<_> = first.into_iter().chain(later.clone()).chain(later.clone()).collect();
        let trees = fold(all);
        assert_eq!(show(&trees), "(0 1)*3");
        // But a real difference is one.
        let other = [run(0, &[]), run(1, &[])];
        assert_eq!(show(&fold(later.iter().chain(&other).cloned().collect())), "0 1 0 1");
    }

    #[test]
    fn host_time_keeps_its_sum() {
        let leaves = (0..6).map(|n| (run(n % 2, &[]).0, n as f64)).collect();
        let [Tree::Loop { body, .. }] = &fold(leaves)[..] else { panic!("one loop") };
        let sums: Vec<f64> =
            body.iter().map(|tree| if let Tree::Leaf(leaf) = tree { leaf.host_ns } else { 0.0 }).collect();
        assert_eq!(sums, [0.0 + 2.0 + 4.0, 1.0 + 3.0 + 5.0]);
    }
}
