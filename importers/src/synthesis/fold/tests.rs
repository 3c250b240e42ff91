use super::*;

/// A run on a lane of the block's own, so that no order of lanes makes waiting needless.
fn run(block: usize, after: &[Back]) -> (Leaf, f64) {
    (Leaf::Run { block, axis: None, lane: block, after: after.iter().copied().collect(), graph: None }, 10.0)
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
fn what_has_ended_anyway_is_no_difference() {
    // Each 1 waits for the 0 before it, the first for a 2 that came before the loop: when the second 1 begins, that has
    // ended, because the first 1 on the same lane has.
    let mut leaves = vec![run(2, &[]), run(0, &[]), run(1, &[(2, 0)])];
    leaves.extend((0..4).flat_map(|_| [run(0, &[]), run(1, &[(0, 1)])]));
    assert_eq!(show(&fold(leaves)), "2 (0 1)*5");
    // For the host's waits likewise, and not where each is on a lane of its own.
    let waited = [run(2, &[]), (Leaf::Wait((2, 0)), 0.0)];
    let leaves = |head: &[(Leaf, f64)]| {
        let body = (0..6).map(|n| run(3, if n % 2 == 0 { &[(2, 0)] } else { &[] }));
        show(&fold(head.iter().cloned().chain(body).collect()))
    };
    assert_eq!(leaves(&waited), "2 w (3)*6");
    assert_eq!(leaves(&waited[..1]), "2 (3)*6", "after the first, the order of the lane");
}

#[test]
fn what_waits_differently_at_times_is_a_longer_loop() {
    // All of one class, so only what they wait for tells that the period is 3.
    let leaves = (0..300).flat_map(|n| [run(1, &[]), if n % 3 == 1 { run(0, &[(1, 0)]) } else { run(0, &[]) }]);
    assert_eq!(show(&fold(leaves.collect())), "(1 0 1 0 1 0)*100");
}

#[test]
fn what_is_the_same_as_its_neighbours_only_makes_shorter_loops() {
    // (1, 3) finds nothing before the fourth, so that each is the same as the next, but the fourth not as the first.
    let leaves = (0..12).flat_map(|n| [run(1, &[]), if n == 0 { run(0, &[(1, 3)]) } else { run(0, &[]) }]);
    assert_eq!(show(&fold(leaves.collect())), "(1 0)*3 (1 0)*9");
}

#[test]
fn long_sequences_fold_like_short_ones() {
    assert_eq!(folded(&[4; 10_000]), "(4)*10000");
    let nested: Vec<usize> = (0..10_000).map(|n| [0, 1, 1, 1, 1, 2, 3, 1, 1, 1][n % 10]).collect();
    assert_eq!(folded(&nested), "(0 (1)*4 2 3 (1)*3)*1000");
}

#[test]
fn long_sequences_without_repetitions_stay() {
    // Blocks in the order of the Thue-Morse word without squares, of three letters.
    let ones = |n: usize| n.count_ones() as usize;
    let squarefree: Vec<usize> = (0..20_000).map(|n| (1 + ones(n + 1) % 2) - ones(n) % 2).collect();
    assert_eq!(fold(squarefree.iter().map(|block| run(*block, &[])).collect()).len(), squarefree.len());
}

#[test]
fn host_times_are_kept_place_by_place() {
    let leaves = (0..6).map(|n| (run(n % 2, &[]).0, n as f64)).collect();
    let [Tree::Loop { body, .. }] = &fold(leaves)[..] else { panic!("one loop") };
    let places = |tree: &Tree| if let Tree::Leaf(leaf) = tree { leaf.places.clone() } else { Vec::new() };
    let all: Vec<_> = body.iter().map(places).collect();
    assert_eq!(all, [vec![(0, 0.0), (2, 2.0), (4, 4.0)], vec![(1, 1.0), (3, 3.0), (5, 5.0)]]);
}
