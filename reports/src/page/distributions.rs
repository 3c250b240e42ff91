//! How the times of each block are distributed, overlapped and alone: the table `quantiles`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::Cells;
use super::sources::{Blocks, Source};
use crate::View;

/// The times of a block in one state of one run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Curve {
    /// Number of the block on the page.
    pub block: usize,
    /// Number of the run.
    pub run: usize,
    pub state: String,
    /// Executions.
    pub n: u64,
    /// The percentiles from 0 to 100.
    pub ns: Vec<u64>,
}

/// The curves of all runs, by block, then run.
pub(super) fn all(sources: &[Source<'_>], blocks: &Blocks, table: &View) -> Vec<Curve> {
    let mut curves: BTreeMap<(usize, usize, String), Curve> = BTreeMap::new();
    for row in Cells::all(table) {
        let (Some(run), Some(block)) = (row.run(sources), row.block(blocks, "block", "axis")) else { continue };
        let (Some(state), Some(n), Some(ns)) = (row.text("state"), row.count("executions"), row.ns("time_ms")) else {
            continue;
        };
        curves
            .entry((block, run, state.to_owned()))
            .or_insert_with(|| Curve { block, run, state: state.to_owned(), n, ns: Vec::new() })
            .ns
            .push(ns);
    }
    curves.into_values().collect()
}
