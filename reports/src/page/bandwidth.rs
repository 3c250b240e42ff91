//! Bus bandwidth over size: columns of the table `blocks`.

use serde::Serialize;

use super::cells::Cells;
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
}

/// The points of all runs: each row that has a size and a bus bandwidth, overlapped and alone.
pub(super) fn all(sources: &[Source<'_>], blocks: &Blocks, table: &View) -> Vec<Point> {
    let mut points = Vec::new();
    for row in Cells::all(table) {
        let (Some(run), Some(block)) = (row.run(sources), row.block(blocks, "block", "axis")) else { continue };
        // A logarithm of nothing has no place on the axis.
        let Some(size_bytes) = row.count("size_bytes").filter(|bytes| *bytes > 0) else { continue };
        for (state, key) in [("overlapped", "busbw_gbps"), ("alone", "alone_busbw_gbps")] {
            if let Some(busbw_gbps) = row.real(key) {
                points.push(Point { run, block, state, size_bytes, busbw_gbps });
            }
        }
    }
    points
}
