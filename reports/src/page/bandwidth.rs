//! Bus bandwidth over size: columns of the table `blocks`, with the spread that the table `quantiles` has.

use serde::Serialize;

use super::cells::Cells;
use super::distributions::Curve;
use super::sources::{Blocks, Source};
use crate::View;

/// A block in one state of one run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Point {
    /// Number of the run.
    run: usize,
    /// Number of the block on the page.
    block: usize,
    state: &'static str,
    size_bytes: u64,
    busbw_gbps: f64,
    /// The bandwidths that 5 and 95 % of the executions stay below; missing with few executions.
    spread_gbps: Option<(f64, f64)>,
}

/// Fewest executions for a spread: below, its ends would be the extremes.
const FEWEST_FOR_SPREAD: u64 = 20;

/// The points of all runs: each row that has a size and a bus bandwidth, overlapped and alone.
pub(super) fn all(sources: &[Source<'_>], blocks: &Blocks, table: &View, curves: &[Curve]) -> Vec<Point> {
    let mut points = Vec::new();
    for row in Cells::all(table) {
        let (Some(run), Some(block)) = (row.run(sources), row.block(blocks, "block", "axis")) else { continue };
        // A logarithm of nothing has no place on the axis.
        let Some(size_bytes) = row.count("size_bytes").filter(|bytes| *bytes > 0) else { continue };
        for (state, key, mean) in [
            ("overlapped", "busbw_gbps", "overlap_avg_ms"),
            ("alone", "alone_busbw_gbps", "alone_ms"),
            // What a baseline says, which has no executions of ours and so no spread.
            ("outside", "outside_busbw_gbps", "outside_ms"),
        ] {
            let Some(busbw_gbps) = row.real(key) else { continue };
            // Bandwidth x mean time is what an execution moves; an execution's bandwidth is that over its own time.
            let curve =
                curves.iter().find(|curve| (curve.run, curve.block, curve.state.as_str()) == (run, block, state));
            let spread_gbps = curve.zip(row.real(mean)).and_then(|(curve, mean_ms)| {
                let at = |percent: usize| curve.ns.get(percent).filter(|ns| **ns > 0).map(|ns| *ns as f64 / 1e6);
                let rate = |ms: f64| busbw_gbps * mean_ms / ms;
                (curve.n >= FEWEST_FOR_SPREAD).then_some((rate(at(95)?), rate(at(5)?)))
            });
            points.push(Point { run, block, state, size_bytes, busbw_gbps, spread_gbps });
        }
    }
    points
}
