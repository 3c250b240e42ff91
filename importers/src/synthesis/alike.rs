//! Eighth pass, in between: blocks whose sizes depend on the data, such as the experts of a layer and the all-to-alls
//! around them.
//!
//! Every layer and every rank has another number of tokens for its expert. Kept apart, each would be a block of its own
//! and no layer a loop; what a reader, and a replay, is after is the layer. So such blocks are one, with the mean of
//! their sizes, and the pattern states that with the largest difference. That sizes depend on the data is not guessed
//! from their names: it shows where two ranks do the same at the same place in other sizes. An all-to-all is the same
//! as another if the same block comes before both, or after both.

use std::collections::HashMap;

use maestro_pattern::{Assumption, Collective, CollectiveKind, Confidence, Kernel, Work};

/// Sizes whose ratio is above this are not the same thing in another size.
const RATIO: f64 = 2.0;

/// Which blocks are one, and what that one does.
pub(crate) struct Alike {
    /// Per block: the first of those that are one with it.
    pub first: Vec<usize>,
    /// The work of each such first block.
    pub work: HashMap<usize, Work>,
    /// What was averaged, without its blocks, which have no names yet; `None`: nothing.
    pub assumed: Option<Assumption>,
}

/// Finds blocks that differ in sizes only. `works` are the blocks' with how often each is executed, `phases` what else
/// makes blocks the same; `block_of` tells each rank's sequence of blocks.
pub(crate) fn alike<P: PartialEq>(works: &[(Work, usize)], phases: &[P], block_of: &[Vec<usize>]) -> Alike {
    let mut sets = Sets((0..works.len()).collect());
    let mut varies = vec![false; works.len()];
    let same = |a: usize, b: usize| phases[a] == phases[b] && mean(&[(&works[a].0, 1), (&works[b].0, 1)]).is_some();
    for (one, other) in block_of.iter().zip(block_of.iter().skip(1)).filter(|(a, b)| a.len() == b.len()) {
        for (a, b) in one.iter().zip(other).filter(|(a, b)| a != b) {
            if sets.find(*a) == sets.find(*b) || (compute(&works[*a].0) && same(*a, *b)) {
                sets.join(*a, *b);
                varies[*a] = true;
                varies[*b] = true;
            }
        }
    }
    let varying: Vec<usize> = (0..works.len()).filter(|block| varies[*block]).collect();
    for (n, a) in varying.iter().enumerate() {
        for b in &varying[..n] {
            if sets.find(*a) != sets.find(*b) && same(*a, *b) {
                sets.join(*a, *b);
            }
        }
    }
    join_all_to_alls(works, phases, block_of, &mut sets);
    let first: Vec<usize> = (0..works.len()).map(|block| sets.find(block)).collect();
    let mut members: HashMap<usize, Vec<(&Work, usize)>> = HashMap::new();
    for (block, first) in first.iter().enumerate() {
        members.entry(*first).or_default().push((&works[block].0, works[block].1));
    }
    let (mut averaged, mut most) = (0, 0.0f64);
    let mut work = HashMap::new();
    for (first, members) in members.into_iter().filter(|(_, members)| members.len() > 1) {
        let Some(mean) = mean(&members) else { continue };
        averaged += members.len();
        most = members.iter().map(|(work, _)| difference(work, &mean)).fold(most, f64::max);
        work.insert(first, mean);
    }
    let assumed = (averaged > 0).then(|| {
        let what = format!(
            "{averaged} blocks whose sizes depend on the data stand as {} with mean sizes, up to {:.0} % off",
            work.len(),
            100.0 * most
        );
        Assumption::new(what, Confidence::Medium)
    });
    // What has no mean after all stays apart.
    let first =
        first.into_iter().enumerate().map(|(block, first)| if work.contains_key(&first) { first } else { block });
    Alike { first: first.collect(), work, assumed }
}

fn compute(work: &Work) -> bool {
    matches!(work, Work::Compute(_))
}

/// Joins uneven all-to-alls by the blocks around them.
fn join_all_to_alls<P: PartialEq>(works: &[(Work, usize)], phases: &[P], block_of: &[Vec<usize>], sets: &mut Sets) {
    let mut neighbours: [HashMap<usize, Vec<usize>>; 2] = Default::default();
    for blocks in block_of {
        for (place, block) in blocks.iter().enumerate() {
            if !uneven(&works[*block].0) {
                continue;
            }
            let around = [place.checked_sub(1).map(|before| blocks[before]), blocks.get(place + 1).copied()];
            for (neighbours, block_beside) in neighbours.iter_mut().zip(around) {
                if let Some(beside) = block_beside.filter(|beside| !uneven(&works[*beside].0)) {
                    neighbours.entry(sets.find(beside)).or_default().push(*block);
                }
            }
        }
    }
    for mut beside in neighbours.into_iter().flat_map(|side| side.into_values()) {
        beside.sort_unstable();
        beside.dedup();
        for pair in beside.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            if phases[a] == phases[b] && mean(&[(&works[a].0, 1), (&works[b].0, 1)]).is_some() {
                sets.join(a, b);
            }
        }
    }
}

fn uneven(work: &Work) -> bool {
    matches!(work, Work::Collective(collective) if collective.kind == CollectiveKind::AllToAll && !collective.splits.is_empty())
}

/// Sets of blocks that are one, each named by its first.
struct Sets(Vec<usize>);

impl Sets {
    fn find(&self, mut block: usize) -> usize {
        while self.0[block] != block {
            block = self.0[block];
        }
        block
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// The mean of works, each with its weight, if they are the same in other sizes.
fn mean(works: &[(&Work, usize)]) -> Option<Work> {
    let (first, _) = *works.first()?;
    match first {
        Work::Compute(kernels) => {
            let mut all = Vec::new();
            for (work, weight) in works {
                match work {
                    Work::Compute(kernels) => all.push((kernels.as_slice(), *weight)),
                    _ => return None,
                }
            }
            // One dimension of the data varies, and with it whatever has that dimension.
            for (other, _) in &all {
                let pairs = differing(kernels, other)?;
                if pairs.windows(2).any(|pair| pair[0] != pair[1]) {
                    return None;
                }
            }
            (0..kernels.len())
                .map(|n| mean_kernel(&all.iter().map(|(kernels, weight)| (&kernels[n], *weight)).collect::<Vec<_>>()))
                .collect::<Option<Vec<Kernel>>>()
                .map(Work::Compute)
        }
        Work::Collective(collective) if uneven(first) => {
            let side = collective.splits.len();
            let mut sum = vec![vec![0u128; side]; side];
            for (work, weight) in works {
                let Work::Collective(other) = work else { return None };
                let same = other.kind == collective.kind && other.dtype == collective.dtype;
                if !same || other.splits.len() != side || !close(other.size?, collective.size?) {
                    return None;
                }
                for (row, other) in sum.iter_mut().zip(&other.splits) {
                    for (cell, split) in row.iter_mut().zip(other) {
                        *cell += u128::from(*split) * *weight as u128;
                    }
                }
            }
            let weights = works.iter().map(|(_, weight)| *weight as u128).sum::<u128>().max(1);
            let round = |cell: u128| u64::try_from((cell + weights / 2) / weights).unwrap_or(u64::MAX);
            let splits: Vec<Vec<u64>> = sum.into_iter().map(|row| row.into_iter().map(round).collect()).collect();
            let size = super::splits::largest_side(&splits).saturating_mul(collective.dtype.bytes());
            Some(Work::Collective(Collective { splits, size: Some(size), ..collective.clone() }))
        }
        Work::Collective(_) | Work::Group(_) | Work::P2p { .. } | Work::Cuda(_) => None,
    }
}

fn close(a: u64, b: u64) -> bool {
    a == b || (a.min(b) as f64 * RATIO >= a.max(b) as f64 && a.min(b) > 0)
}

/// The pairs of sides in which products differ; `None` if the kernels are not the same in other sizes.
fn differing(a: &[Kernel], b: &[Kernel]) -> Option<Vec<(u64, u64)>> {
    if a.len() != b.len() {
        return None;
    }
    let mut pairs = Vec::new();
    for (a, b) in a.iter().zip(b) {
        let alike = match (a, b) {
            (
                Kernel::Gemm { m, n, k, batch, dtype, layout, times },
                Kernel::Gemm { m: m2, n: n2, k: k2, batch: batch2, dtype: dtype2, layout: layout2, times: times2 },
            ) => {
                let sides = [(*m, *m2), (*n, *n2), (*k, *k2)];
                pairs.extend(sides.into_iter().filter(|(a, b)| a != b));
                let same = (batch, dtype, layout, times) == (batch2, dtype2, layout2, times2);
                same && sides.iter().all(|(a, b)| close(*a, *b))
            }
            (Kernel::Memory { bytes, times, .. }, Kernel::Memory { bytes: other, times: times2, .. })
            | (Kernel::Set { size: bytes, times }, Kernel::Set { size: other, times: times2 }) => {
                times == times2 && close(*bytes, *other)
            }
            (Kernel::Hold { duration_ns, times, .. }, Kernel::Hold { duration_ns: other, times: times2, .. }) => {
                times == times2 && close(*duration_ns, *other)
            }
            (
                Kernel::Copy { direction, size, times },
                Kernel::Copy { direction: direction2, size: other, times: times2 },
            ) => direction == direction2 && times == times2 && close(*size, *other),
            _ => false,
        };
        if !alike {
            return None;
        }
    }
    Some(pairs)
}

/// The mean of kernels that are the same in other sizes.
fn mean_kernel(kernels: &[(&Kernel, usize)]) -> Option<Kernel> {
    let weights = kernels.iter().map(|(_, weight)| *weight as u128).sum::<u128>().max(1);
    let of = |value: fn(&Kernel) -> u64| {
        let sum: u128 = kernels.iter().map(|(kernel, weight)| u128::from(value(kernel)) * *weight as u128).sum();
        u64::try_from((sum + weights / 2) / weights).unwrap_or(u64::MAX)
    };
    let side = |n: usize| {
        let sides = |kernel: &Kernel| match kernel {
            Kernel::Gemm { m, n, k, .. } => [*m, *n, *k],
            Kernel::Memory { .. } | Kernel::Hold { .. } | Kernel::Copy { .. } | Kernel::Set { .. } => [0; 3],
        };
        let sum: u128 = kernels.iter().map(|(kernel, weight)| u128::from(sides(kernel)[n]) * *weight as u128).sum();
        u64::try_from((sum + weights / 2) / weights).unwrap_or(u64::MAX)
    };
    let mut kernel = kernels.first()?.0.clone();
    match &mut kernel {
        Kernel::Gemm { m, n, k, .. } => (*m, *n, *k) = (side(0), side(1), side(2)),
        Kernel::Memory { bytes: size, .. } | Kernel::Copy { size, .. } | Kernel::Set { size, .. } => {
            *size = of(size_of)
        }
        Kernel::Hold { duration_ns, .. } => *duration_ns = super::blocks::readable(of(size_of) as f64),
    }
    Some(kernel)
}

/// Bytes, or nanoseconds to hold.
fn size_of(kernel: &Kernel) -> u64 {
    match kernel {
        Kernel::Memory { bytes: size, .. } | Kernel::Copy { size, .. } | Kernel::Set { size, .. } => *size,
        Kernel::Hold { duration_ns, .. } => *duration_ns,
        Kernel::Gemm { .. } => 0,
    }
}

/// How far a work is from the mean that stands for it, as a share of it: of products the operations, of all-to-alls the
/// size.
fn difference(work: &Work, mean: &Work) -> f64 {
    let amount = |work: &Work| match work {
        Work::Compute(kernels) => kernels.iter().map(Kernel::flops).sum(),
        _ => work.size().unwrap_or(0) as f64,
    };
    let (one, mean) = (amount(work), amount(mean));
    if mean > 0.0 { (one - mean).abs() / mean } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use maestro_pattern::{Dtype, GemmLayout};

    use super::*;

    fn expert(tokens: u64) -> Work {
        let dtype = Dtype::Bf16;
        let gemm = |m, n, k| Kernel::Gemm { m, n, k, batch: 1, dtype, layout: GemmLayout::Nt, times: 1 };
        let memory = Kernel::Memory { bytes: tokens * 100, lasts_ns: None, times: 1 };
        Work::Compute(vec![gemm(tokens, 512, 64), gemm(tokens, 64, 512), memory])
    }

    fn all_to_all(splits: [[u64; 2]; 2]) -> Work {
        let mut collective = Collective::new(CollectiveKind::AllToAll, 0, Dtype::Bf16);
        collective.splits = splits.iter().map(|row| row.to_vec()).collect();
        collective.size = Some(2 * splits.iter().map(|row| row.iter().sum::<u64>()).max().unwrap_or(0));
        Work::Collective(collective)
    }

    fn attention() -> Work {
        let dtype = Dtype::Bf16;
        Work::Compute(vec![Kernel::Gemm { m: 900, n: 64, k: 64, batch: 8, dtype, layout: GemmLayout::Nn, times: 1 }])
    }

    /// Two layers of two ranks: attention, all-to-all, expert, all-to-all back.
    fn layers() -> (Vec<(Work, usize)>, Vec<Vec<usize>>) {
        let works = vec![
            (attention(), 4),
            (all_to_all([[10, 20], [30, 40]]), 2),
            (expert(40), 1),
            (all_to_all([[10, 30], [20, 40]]), 2),
            (all_to_all([[20, 20], [24, 36]]), 2),
            (expert(44), 1),
            (all_to_all([[20, 24], [20, 36]]), 2),
            (expert(60), 1),
            (expert(56), 1),
        ];
        (works, vec![vec![0, 1, 2, 3, 0, 4, 5, 6], vec![0, 1, 7, 3, 0, 4, 8, 6]])
    }

    #[test]
    fn layers_become_the_same_blocks_with_mean_sizes() {
        let (works, block_of) = layers();
        let alike = alike(&works, &[(); 9], &block_of);
        // Dispatch and its way back stay two blocks: other blocks are around them.
        assert_eq!(alike.first, [0, 1, 2, 3, 1, 2, 3, 2, 2]);
        assert_eq!(alike.work[&2], expert(50));
        assert_eq!(alike.work[&1], all_to_all([[15, 20], [27, 38]]));
        assert_eq!(
            alike.assumed.map(|a| a.what).as_deref(),
            Some("8 blocks whose sizes depend on the data stand as 3 with mean sizes, up to 20 % off")
        );
    }

    #[test]
    fn what_no_two_ranks_do_differently_is_no_matter_of_data() {
        let (works, block_of) = layers();
        let one_rank = &block_of[..1];
        let alike = alike(&works, &[(); 9], one_rank);
        assert_eq!(alike.first[2], 2);
        assert_eq!(alike.first[5], 5, "layers of different sizes are layers of different sizes");
    }

    #[test]
    fn two_dimensions_that_vary_or_one_that_varies_much_are_something_else() {
        assert!(mean(&[(&expert(40), 1), (&expert(79), 1)]).is_some());
        assert!(mean(&[(&expert(40), 1), (&expert(81), 1)]).is_none());
        let dtype = Dtype::Bf16;
        let laid = |m, n, layout| Work::Compute(vec![Kernel::Gemm { m, n, k: 8, batch: 1, dtype, layout, times: 1 }]);
        let gemms = |m, n| laid(m, n, GemmLayout::Nn);
        assert!(mean(&[(&gemms(40, 40), 1), (&laid(50, 50, GemmLayout::Tn), 1)]).is_none());
        assert!(mean(&[(&gemms(40, 30), 1), (&gemms(50, 35), 1)]).is_none());
        assert!(mean(&[(&gemms(40, 40), 1), (&gemms(50, 50), 1)]).is_some());
        assert!(mean(&[(&gemms(40, 40), 1), (&attention(), 1)]).is_none());
    }
}
