//! What each block costs the others beside which it runs: the table `interference`.

use serde::Serialize;

use super::cells::Cells;
use super::sources::{Blocks, Source};
use crate::View;

/// One block beside another in one run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Pair {
    /// Number of the run.
    run: usize,
    /// The block whose time is looked at, by its number on the page.
    block: usize,
    /// The one beside it.
    beside: usize,
    /// Executions beside which the other ran for at least half of their time.
    with: u64,
    /// The part of its time in which the other ran, in percent.
    beside_pct: Option<f64>,
    with_ns: Option<u64>,
    without_ns: Option<u64>,
    alone_ns: Option<u64>,
    /// With the other beside it / alone.
    against_alone: Option<f64>,
    /// With the other beside it / without.
    against_without: Option<f64>,
}

/// The pairs of all runs.
pub(super) fn all(sources: &[Source<'_>], blocks: &Blocks, table: &View) -> Vec<Pair> {
    Cells::all(table)
        .filter_map(|row| {
            Some(Pair {
                run: row.run(sources)?,
                block: row.block(blocks, "block", "axis")?,
                beside: row.block(blocks, "beside", "beside_axis")?,
                with: row.count("with")?,
                beside_pct: row.real("beside_pct"),
                with_ns: row.ns("with_ms"),
                without_ns: row.ns("without_ms"),
                alone_ns: row.ns("alone_ms"),
                against_alone: row.real("against_alone"),
                against_without: row.real("against_without"),
            })
        })
        .collect()
}
