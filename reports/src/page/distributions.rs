//! How the times of each block are distributed, overlapped and alone.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sources::{Blocks, Source};

/// Most points of a curve. With more executions these are its percentiles, from the smallest to the largest.
const POINTS: usize = 101;

/// The times of a block in one state of one run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Curve {
    /// Number of the block on the page.
    block: usize,
    /// Number of the run.
    run: usize,
    state: &'static str,
    /// Executions.
    n: usize,
    /// What slowdown compares, ascending: all of them if they are few, else percentiles.
    ns: Vec<u64>,
}

/// The curves of all runs, by block, then run, overlapped before alone.
pub(super) fn all(sources: &[Source<'_>], blocks: &Blocks) -> Vec<Curve> {
    let mut groups: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for (run, source) in sources.iter().enumerate() {
        let columns = source.run.measurements();
        for row in 0..columns.len() {
            let Some(ns) = source.run.compared_ns(row) else { continue };
            let block = blocks.number(sources, run, row);
            groups.entry((block, run, columns.state[row])).or_default().push(ns);
        }
    }
    groups
        .into_iter()
        .map(|((block, run, of), mut values)| {
            values.sort_unstable();
            Curve { block, run, state: of.name(), n: values.len(), ns: points(&values) }
        })
        .collect()
}

/// At most [`POINTS`] of ascending values, the first and the last among them.
fn points(sorted: &[u64]) -> Vec<u64> {
    if sorted.len() <= POINTS {
        return sorted.to_vec();
    }
    // Nearest rank, by integers: place of the i-th of 100 parts.
    (0..POINTS).map(|i| sorted[(i * (sorted.len() - 1) + (POINTS - 1) / 2) / (POINTS - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_values_become_percentiles() {
        let all: Vec<u64> = (0..1001).collect();
        let points = points(&all);
        assert_eq!(points.len(), 101);
        assert_eq!((points[0], points[50], points[99], points[100]), (0, 500, 990, 1000));
        assert_eq!(super::points(&all[..101]), all[..101]);
    }
}
