//! The report `blocks`: each block overlapped, beside the same block alone. `blocks-wide` is the same table with more of
//! its columns for people to see.

mod fields;
mod flags;
mod outside;
mod row;

use polars::prelude::DataFrame;

use super::{EXPOSED, Field, Report, frame, presence, refused, stack};
use crate::view::{Show, Shown};
use crate::{Result, Run, Value, View, method};
use fields::FIELDS;
pub(super) use row::rows;

/// One row a block and axis, all of its executions together, in the order of the pattern's blocks.
pub(super) struct Blocks;

/// The same table, of which people see more.
pub(super) struct Wide;

const SHOWN: [Shown; 14] = [
    Shown::new("Run", "run", Show::Text),
    Shown::new("Block", "block", Show::Text),
    Shown::new("Axis", "axis", Show::Text),
    Shown::new("Size (B)", "size_bytes", Show::Bytes),
    Shown::new("Avg lat (ms)", "avg_ms", Show::Millis),
    Shown::new("Min lat", "min_ms", Show::Millis),
    Shown::new("Max lat", "max_ms", Show::Millis),
    Shown::new("P99 lat", "p99_ms", Show::Millis),
    Shown::new("Avg BW (GB/s)", "avg_gbps", Show::Rate),
    Shown::new("Alone (ms)", "alone_ms", Show::Millis).after_bar(),
    Shown::new("Slowdown", "slowdown", Show::Factor),
    Shown::new("Exposed (ms)", "exposed_ms", Show::Millis),
    Shown::new("Outside (ms)", "outside_ms", Show::Millis).after_bar().optional(),
    Shown::new("Alone / outside", "outside_ratio", Show::Factor).optional(),
];

const SHOWN_WIDE: [Shown; 31] = [
    Shown::new("Run", "run", Show::Text),
    Shown::new("Block", "block", Show::Text),
    Shown::new("Axis", "axis", Show::Text),
    Shown::new("Kind", "kind", Show::Text),
    Shown::new("Type", "dtype", Show::Text),
    Shown::new("Size (B)", "size_bytes", Show::Bytes),
    Shown::new("Ranks", "ranks", Show::Count),
    Shown::new("Calls", "calls_per_step", Show::Percent),
    Shown::new("t_overlap (ms)", "overlap_median_ms", Show::Millis).after_bar(),
    Shown::new("Mean", "overlap_avg_ms", Show::Millis),
    Shown::new("Min", "overlap_min_ms", Show::Millis),
    Shown::new("P95", "overlap_p95_ms", Show::Millis),
    Shown::new("P99", "overlap_p99_ms", Show::Millis),
    Shown::new("Max", "overlap_max_ms", Show::Millis),
    Shown::new("t_alone (ms)", "alone_median_ms", Show::Millis).after_bar(),
    Shown::new("P95", "alone_p95_ms", Show::Millis),
    Shown::new("Slowdown", "slowdown", Show::Factor),
    Shown::new("algbw (GB/s)", "algbw_gbps", Show::Rate).after_bar(),
    Shown::new("busbw", "busbw_gbps", Show::Rate),
    Shown::new("busbw alone", "alone_busbw_gbps", Show::Rate),
    Shown::new("of link (%)", "link_pct", Show::Percent).optional(),
    Shown::new("alone", "alone_link_pct", Show::Percent).optional(),
    Shown::new("Wait (ms)", "wait_ms", Show::Millis).after_bar(),
    Shown::new("Wait (%)", "wait_pct", Show::Percent),
    Shown::new("Exposed (ms)", "exposed_ms", Show::Millis),
    Shown::new("of step (%)", "exposed_pct", Show::Percent),
    Shown::new("Outside (ms)", "outside_ms", Show::Millis).after_bar().optional(),
    Shown::new("busbw", "outside_busbw_gbps", Show::Rate).optional(),
    Shown::new("Alone / outside", "outside_ratio", Show::Factor).optional(),
    Shown::new("n", "samples", Show::Text).after_bar(),
    Shown::new("Flags", "flags", Show::Text),
];

const INTERVAL: &str = "In brackets its 95 % interval by a bootstrap over iterations (2,000 resamples, fixed seed).";
const FEW: &str = "Intervals are given from 3 iterations a side on.";
const P99: &str = "P99 is given from 100 executions on.";
const TIMES: &str = "t_overlap and t_alone are what slowdown compares: the transfer time of communication, the latency \
    of the rest; medians where nothing else is said. P95 is given from 20 executions on, P99 from 100.";
const WIDE: &str = "Wait = median time until the last rank of the team arrived, and the share of all waiting in all \
    latency. n = iterations x executions an iteration, overlapped / alone.";

impl Report for Blocks {
    fn name(&self) -> &'static str {
        "blocks"
    }

    fn about(&self) -> &'static str {
        "Each block's latency and bandwidth while overlapped, beside the same block alone, and what no compute hid."
    }

    fn fields(&self) -> &'static [Field] {
        &FIELDS
    }

    fn shown(&self) -> &'static [Shown] {
        &SHOWN
    }

    fn method(&self, view: &View) -> Vec<&'static str> {
        let mut lines = slowdown(view);
        lines.push(EXPOSED);
        if presence(view, "p99_ms").1 {
            lines.push(P99);
        }
        lines
    }

    fn remarks(&self, runs: &[Run], view: &View) -> Vec<String> {
        outside::remarks(runs, view)
    }

    fn table(&self, runs: &[Run]) -> Result<DataFrame> {
        stack(&FIELDS, runs, |run| Ok(rows(run)?.to_vec())).map_err(refused(self.name()))
    }
}

impl Report for Wide {
    fn name(&self) -> &'static str {
        "blocks-wide"
    }

    fn about(&self) -> &'static str {
        "The table `blocks` with more of its columns: spreads, bandwidths, waits, counts and flags."
    }

    fn fields(&self) -> &'static [Field] {
        &FIELDS
    }

    fn shown(&self) -> &'static [Shown] {
        &SHOWN_WIDE
    }

    fn method(&self, view: &View) -> Vec<&'static str> {
        let mut lines = vec![TIMES];
        lines.extend(slowdown(view));
        lines.extend([WIDE, EXPOSED]);
        lines.extend(flags::meanings(view));
        lines
    }

    fn remarks(&self, runs: &[Run], view: &View) -> Vec<String> {
        outside::remarks(runs, view)
    }

    fn table(&self, runs: &[Run]) -> Result<DataFrame> {
        stack(&FIELDS, runs, |run| Ok(rows(run)?.to_vec())).map_err(refused(self.name()))
    }
}

/// What the slowdown and its interval are, as far as the table has any.
fn slowdown(view: &View) -> Vec<&'static str> {
    let has = |row: usize, key: &str| *view.value(row, key) != Value::Missing;
    let any = |wanted: &dyn Fn(usize) -> bool| (0..view.rows.len()).any(wanted);
    let mut lines = Vec::new();
    if any(&|row| has(row, "slowdown")) {
        lines.push(method::SLOWDOWN);
    }
    if any(&|row| has(row, "slowdown_lo")) {
        lines.push(INTERVAL);
    }
    if any(&|row| has(row, "slowdown") && !has(row, "slowdown_lo")) {
        lines.push(FEW);
    }
    lines
}
