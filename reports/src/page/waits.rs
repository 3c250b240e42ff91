//! How long each rank waited for others in each step.

use std::collections::BTreeMap;

use maestro_pattern::State;
use serde::Serialize;

use super::sources::Source;

/// Most columns. With more steps, each is the mean of neighbours.
const MOST: usize = 240;

/// Rank x step of one run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Waits {
    /// Number of the run.
    run: usize,
    /// Overlapped steps.
    steps: usize,
    /// Steps that a column is the mean of; the last column may have fewer.
    a_column: usize,
    ranks: Vec<u32>,
    /// Per rank, per column: waits of all communication of a step, added up; mean over the column.
    wait_ns: Vec<Vec<Option<u64>>>,
}

/// The waits of run number `run`; `None` if none is known.
pub(super) fn of(sources: &[Source<'_>], run: usize) -> Option<Waits> {
    let columns = sources[run].run.measurements();
    let mut steps: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut sums: BTreeMap<u32, BTreeMap<(u32, u32), u64>> = BTreeMap::new();
    for row in (0..columns.len()).filter(|row| columns.state[*row] == State::Overlapped) {
        let step = (columns.round[row], columns.iteration[row]);
        steps.insert(step, 0);
        if let Some(ns) = columns.wait_ns.get(row) {
            let sum = sums.entry(columns.rank[row]).or_default().entry(step).or_default();
            *sum = sum.saturating_add(ns);
        }
    }
    steps.values_mut().enumerate().for_each(|(n, step)| *step = n);
    let a_column = steps.len().div_ceil(MOST).max(1);
    let mut wait_ns = Vec::with_capacity(sums.len());
    for of_step in sums.values() {
        let mut cells: Vec<(u128, u128)> = vec![(0, 0); steps.len().div_ceil(a_column)];
        for (step, ns) in of_step {
            let cell = &mut cells[steps[step] / a_column];
            *cell = (cell.0 + u128::from(*ns), cell.1 + 1);
        }
        // A mean of u64 is one.
        wait_ns.push(cells.into_iter().map(|(sum, n)| (n > 0).then(|| (sum / n) as u64)).collect());
    }
    (!sums.is_empty()).then(|| Waits {
        run,
        steps: steps.len(),
        a_column,
        ranks: sums.keys().copied().collect(),
        wait_ns,
    })
}
