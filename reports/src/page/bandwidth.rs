//! Bus bandwidth over size, of the table `blocks`.

use serde::Serialize;

use super::sources::{Blocks, Source};
use crate::{Value, View};

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

/// The points of all runs: each row of `blocks` that has a size and a bus bandwidth, overlapped and alone.
pub(super) fn all(sources: &[Source<'_>], blocks: &Blocks, table: &View) -> Vec<Point> {
    let mut points = Vec::new();
    for row in 0..table.rows.len() {
        let text = |key| match table.value(row, key) {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        };
        let run = sources.iter().position(|source| Some(source.run.info.id.as_str()) == text("run"));
        let block = text("block").and_then(|name| blocks.named(name, text("axis")));
        let (Some(run), Some(block)) = (run, block) else { continue };
        let Value::Integer(size_bytes) = *table.value(row, "size_bytes") else { continue };
        for (state, key) in [("overlapped", "busbw_gbps"), ("alone", "alone_busbw_gbps")] {
            if let Value::Real(busbw_gbps) = *table.value(row, key) {
                points.push(Point { run, block, state, size_bytes, busbw_gbps });
            }
        }
    }
    points
}
