//! Ninth pass, in between: host time of a folded sequence, spelled out.
//!
//! What was folded together shares one host time, the mean, which keeps the sum. That alone would be wrong about loops
//! that a host enters in another rhythm than it goes round in: the first iteration of a step's layers is launched at
//! once and the others while the device is busy, and a mean would make every later launch late. So a loop whose first
//! host time differs from its others keeps it: what is more stands before the loop; if it is less, the host time moves
//! to the end of the loop's body, and what follows the loop has that much less before it. Where nothing follows, the first
//! iteration stands alone, if it matters.

use std::collections::VecDeque;

use super::fold::{Leaf, Timed, Tree};

/// Host times within this of each other are alike, in nanoseconds.
const ALIKE_NS: f64 = 10_000.0;

/// Or within this share.
const ALIKE: f64 = 0.1;

/// A step of a folded sequence.
#[derive(Clone, Debug)]
pub(crate) enum Beat {
    /// Host time in nanoseconds.
    Host(f64),
    Leaf(Leaf),
    Loop {
        times: usize,
        body: Vec<Beat>,
    },
}

/// Spells out the host time of `trees`. From `matters_ns` on, in nanoseconds, a wrong host time is worth the lines of a
/// loop's first iteration.
pub(crate) fn beats(trees: Vec<Tree>, matters_ns: f64) -> Vec<Beat> {
    spelled(trees, 1, matters_ns)
}

/// That of a sequence that stands in loops which run it `outer` times.
fn spelled(trees: Vec<Tree>, outer: usize, matters_ns: f64) -> Vec<Beat> {
    let mut beats = Vec::new();
    let host = |beats: &mut Vec<Beat>, ns: f64| {
        if ns > 0.0 {
            beats.push(Beat::Host(ns));
        }
    };
    let mut trees = VecDeque::from(trees);
    while let Some(tree) = trees.pop_front() {
        match tree {
            Tree::Leaf(timed) => {
                let sum: f64 = timed.places.iter().map(|(_, host_ns)| host_ns).sum();
                host(&mut beats, sum / timed.places.len() as f64);
                beats.push(Beat::Leaf(timed.leaf));
            }
            Tree::Loop { times, mut body } => {
                let follower = trees.front_mut().and_then(first);
                let entry = body.first_mut().and_then(first).map(|leaf| entry(leaf, follower, outer, times));
                let (before, behind) = match entry.unwrap_or(Entry::Alike) {
                    Entry::Alike => (0.0, 0.0),
                    Entry::Moved { before, behind } => (before, behind),
                    Entry::Off(by_ns) if by_ns < matters_ns => (0.0, 0.0),
                    Entry::Off(_) => {
                        let (entering, again) = parted(&body, outer, times);
                        if times > 2 {
                            trees.push_front(Tree::Loop { times: times - 1, body: again });
                        } else {
                            again.into_iter().rev().for_each(|tree| trees.push_front(tree));
                        }
                        entering.into_iter().rev().for_each(|tree| trees.push_front(tree));
                        continue;
                    }
                };
                host(&mut beats, before);
                let mut body = spelled(body, outer * times, matters_ns);
                host(&mut body, behind);
                beats.push(Beat::Loop { times, body });
            }
        }
    }
    beats
}

/// The first leaf of a tree.
fn first(tree: &mut Tree) -> Option<&mut Timed> {
    match tree {
        Tree::Leaf(timed) => Some(timed),
        Tree::Loop { body, .. } => first(body.first_mut()?),
    }
}

/// How the host time with which a loop is entered becomes right.
enum Entry {
    /// It is that of the other iterations.
    Alike,
    /// By host time before the loop and at the end of its body, in nanoseconds, taken from leaves.
    Moved { before: f64, behind: f64 },
    /// Not by moving any; the mean is off by this, in nanoseconds.
    Off(f64),
}

/// Looks at the loop whose first leaf is `leaf`, with `follower` behind it, which runs `times` times, each of `outer`
/// times. Takes from both what is to be moved.
fn entry(leaf: &mut Timed, follower: Option<&mut Timed>, outer: usize, times: usize) -> Entry {
    // A leaf in inner loops has several places in an iteration; the first is the iteration's.
    let inner = leaf.places.len() / (outer * times);
    if inner == 0 || times < 2 {
        return Entry::Alike;
    }
    let (mut entering, mut again) = (0.0, 0.0);
    for (n, (_, host_ns)) in leaf.places.iter().step_by(inner).enumerate() {
        *(if n.is_multiple_of(times) { &mut entering } else { &mut again }) += host_ns;
    }
    entering /= outer as f64;
    again /= (outer * (times - 1)) as f64;
    if (entering - again).abs() <= ALIKE_NS.max(ALIKE * again) {
        return Entry::Alike;
    }
    if entering > again {
        leaf.places.iter_mut().step_by(inner * times).for_each(|(_, host_ns)| *host_ns -= entering - again);
        return Entry::Moved { before: entering - again, behind: 0.0 };
    }
    let off = Entry::Off((again - entering) * (times - 1) as f64 / times as f64);
    let Some(follower) = follower else { return off };
    let each = (follower.places.len() / outer).max(1);
    let leaving = follower.places.iter().step_by(each).map(|(_, host_ns)| host_ns).sum::<f64>() / outer as f64;
    if leaving <= entering {
        return off;
    }
    // The end of the last iteration comes before what follows; all that host time is what there is for both.
    let behind = if leaving >= again { again } else { (again * (times - 1) as f64 + leaving) / times as f64 };
    leaf.places.iter_mut().step_by(inner).for_each(|(_, host_ns)| *host_ns = 0.0);
    follower.places.iter_mut().step_by(each).for_each(|(_, host_ns)| *host_ns -= leaving.min(again));
    Entry::Moved { before: entering, behind }
}

/// The first iteration of a loop's body, and all others together.
fn parted(body: &[Tree], outer: usize, times: usize) -> (Vec<Tree>, Vec<Tree>) {
    let part = |tree: &Tree| match tree {
        Tree::Leaf(timed) => {
            let chunk = (timed.places.len() / (outer * times)).max(1);
            let places = |wanted: fn(usize) -> bool| {
                let chunks = timed.places.chunks(chunk).enumerate().filter(|(n, _)| wanted(n % times));
                let places = chunks.flat_map(|(_, chunk)| chunk.iter().copied()).collect();
                Tree::Leaf(Timed { leaf: timed.leaf.clone(), places })
            };
            (places(|n| n == 0), places(|n| n > 0))
        }
        Tree::Loop { times: inner, body } => {
            // An inner loop goes round in every iteration, so the places of one are still in a row.
            let (entering, again) = parted(body, outer, times);
            (Tree::Loop { times: *inner, body: entering }, Tree::Loop { times: *inner, body: again })
        }
    };
    body.iter().map(part).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthesis::fold::fold;

    /// Folds runs of blocks, each with the host time before it.
    fn shown(runs: &[(usize, f64)]) -> String {
        fn show(beats: &[Beat]) -> String {
            let text = beats.iter().map(|beat| match beat {
                Beat::Host(ns) => format!("+{}", ns.round()),
                Beat::Leaf(Leaf::Run { block, .. }) => block.to_string(),
                Beat::Leaf(Leaf::Wait(_) | Leaf::Delay { .. }) => "w".to_owned(),
                Beat::Loop { times, body } => format!("({})*{times}", show(body)),
            });
            text.collect::<Vec<String>>().join(" ")
        }
        let leaf = |block| Leaf::Run { block, axis: None, lane: 0, after: Default::default(), graph: None };
        show(&beats(fold(runs.iter().map(|(block, host_ns)| (leaf(*block), *host_ns)).collect()), 210e3))
    }

    #[test]
    fn alike_host_times_are_averaged() {
        let runs = [(1, 50e3), (2, 7e3), (1, 52e3), (2, 9e3), (1, 54e3), (2, 8e3), (3, 0.0)];
        assert_eq!(shown(&runs), "(+52000 1 +8000 2)*3 3");
    }

    #[test]
    fn a_late_entry_stands_before_the_loop() {
        let runs = [(1, 900e3), (2, 7e3), (1, 50e3), (2, 7e3), (1, 50e3), (2, 7e3)];
        assert_eq!(shown(&runs), "+850000 (+50000 1 +7000 2)*3");
    }

    #[test]
    fn an_early_entry_moves_host_time_to_the_end() {
        let runs = [(1, 5e3), (2, 7e3), (1, 300e3), (2, 7e3), (1, 300e3), (2, 7e3), (3, 400e3)];
        assert_eq!(shown(&runs), "+5000 (1 +7000 2 +300000)*3 +100000 3");
        // What follows comes sooner than another iteration would: the sum is kept.
        let runs = [(1, 5e3), (2, 7e3), (1, 300e3), (2, 7e3), (1, 300e3), (2, 7e3), (3, 240e3)];
        assert_eq!(shown(&runs), "+5000 (1 +7000 2 +280000)*3 3");
    }

    #[test]
    fn with_nothing_behind_the_loop_its_first_iteration_stands_alone_if_it_matters() {
        let runs = [(1, 0.0), (2, 7e3), (1, 300e3), (2, 7e3), (1, 300e3), (2, 7e3)];
        assert_eq!(shown(&runs), "(+200000 1 +7000 2)*3");
        let runs = [(1, 0.0), (2, 5e3), (1, 600e3), (2, 7e3), (1, 600e3), (2, 7e3)];
        assert_eq!(shown(&runs), "1 +5000 2 (+600000 1 +7000 2)*2");
        let runs = [(1, 0.0), (2, 5e3), (3, 0.0), (1, 600e3), (2, 7e3), (3, 0.0)];
        assert_eq!(shown(&runs), "1 +5000 2 3 +600000 1 +7000 2 3");
    }

    #[test]
    fn loops_in_loops_enter_by_their_own_times() {
        let mut runs = Vec::new();
        for outer in 0..3 {
            runs.push((1, if outer == 0 { 0.0 } else { 500e3 }));
            runs.extend([(2, 90e3), (3, 6e3), (2, 30e3), (3, 6e3), (2, 30e3), (3, 6e3)]);
        }
        runs.push((4, 500e3));
        assert_eq!(shown(&runs), "(1 +60000 (+30000 2 +6000 3)*3 +500000)*3 4");
    }
}
