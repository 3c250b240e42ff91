//! How long each rank waited for others in each step: the table `waits`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::Cells;
use super::sources::Source;
use crate::View;

/// Most columns. With more steps, each is the mean of neighbours.
const MOST: usize = 240;
/// Most rows. With more ranks, those that came last most often: they are the ones that the others wait for.
const MOST_RANKS: usize = 128;

/// Rank x step of one run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Waits {
    /// Number of the run.
    run: usize,
    /// Overlapped steps.
    steps: usize,
    /// Steps that a column is the mean of; the last column may have fewer.
    a_column: usize,
    ranks: Vec<u64>,
    /// Ranks that are left out.
    left_out: usize,
    /// Per rank, per column: waits of all communication of a step, added up; mean over the column.
    wait_ns: Vec<Vec<Option<u64>>>,
    /// Per rank: calls in which it came last, and all whose wait is known.
    last: Vec<(u64, u64)>,
}

/// The waits of run number `run`; `None` if none is known.
pub(super) fn of(sources: &[Source<'_>], run: usize, table: &View) -> Option<Waits> {
    let mut steps: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let mut ranks: BTreeMap<u64, Rank> = BTreeMap::new();
    for row in Cells::all(table).filter(|row| row.run(sources) == Some(run)) {
        let (Some(round), Some(iteration), Some(rank)) =
            (row.count("round"), row.count("iteration"), row.count("rank"))
        else {
            continue;
        };
        steps.insert((round, iteration), 0);
        let calls = row.count("calls").unwrap_or(0);
        if let Some(ns) = row.ns("wait_ms").filter(|_| calls > 0) {
            let rank = ranks.entry(rank).or_default();
            rank.waits.push(((round, iteration), ns));
            rank.last.0 += row.count("last").unwrap_or(0);
            rank.last.1 += calls;
        }
    }
    let left_out = ranks.len().saturating_sub(MOST_RANKS);
    if left_out > 0 {
        let mut by_last: Vec<(u64, u64)> = ranks.iter().map(|(number, rank)| (rank.last.0, *number)).collect();
        by_last.sort_unstable();
        by_last.iter().take(left_out).for_each(|(_, number)| drop(ranks.remove(number)));
    }
    steps.values_mut().enumerate().for_each(|(n, step)| *step = n);
    let a_column = steps.len().div_ceil(MOST).max(1);
    let columns = steps.len().div_ceil(a_column);
    let mean = |rank: &Rank| {
        let mut cells: Vec<(u128, u128)> = vec![(0, 0); columns];
        for (step, ns) in &rank.waits {
            let cell = &mut cells[steps[step] / a_column];
            *cell = (cell.0 + u128::from(*ns), cell.1 + 1);
        }
        // A mean of u64 is one.
        cells.into_iter().map(|(sum, n)| (n > 0).then(|| (sum / n) as u64)).collect()
    };
    (!ranks.is_empty()).then(|| Waits {
        run,
        steps: steps.len(),
        a_column,
        ranks: ranks.keys().copied().collect(),
        left_out,
        wait_ns: ranks.values().map(mean).collect(),
        last: ranks.values().map(|rank| rank.last).collect(),
    })
}

#[derive(Default)]
struct Rank {
    /// Round and iteration, wait.
    waits: Vec<((u64, u64), u64)>,
    last: (u64, u64),
}
