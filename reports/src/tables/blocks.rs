//! The report `blocks`: each block overlapped, beside the same block alone. The table of design section 9.

use polars::prelude::*;

use super::{EXPOSED, Report, frame, refused, stack};
use crate::statistics::{Ratio, Sample, median, ratio_of_medians};
use crate::view::{Show, Shown};
use crate::{Result, Run, Value, View, method};

/// One row a block and axis, all of its executions together, in the order of the pattern's blocks.
///
/// | column | unit | what |
/// |---|---|---|
/// | run | | id of the run |
/// | block, axis, kind | | names; axis of blocks that communicate; kind as `Work::kind` has it |
/// | size_bytes | B | S of nccl-tests; the largest, where executions differ |
/// | executions | | overlapped executions, of all ranks and iterations |
/// | calls_per_step | | executions a step of a rank that runs the block at all |
/// | avg_ms, min_ms, max_ms | ms | latency overlapped: time on its lane, waiting for late ranks included |
/// | p99_ms | ms | nearest rank; null under 100 executions |
/// | avg_gbps | GB/s | mean over executions of size / latency; decimal |
/// | busbw_gbps | GB/s | mean over executions of size / transfer x bus factor of nccl-tests; decimal |
/// | alone_ms, alone_busbw_gbps | ms, GB/s | the same means of the block alone |
/// | slowdown | | median overlapped / median alone, of transfer for communication, of latency for the rest |
/// | slowdown_lo, slowdown_hi | | its 95 % interval; null with fewer than 3 iterations a side |
/// | wait_ms | ms | median wait for the last rank of the team, overlapped |
/// | exposed_ms | ms | communication that no compute hides, a step, mean over all ranks; adds up over blocks |
pub(super) struct Blocks;

const SHOWN: [Shown; 12] = [
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
];

/// Fewest executions for a P99: below, it would be the maximum.
const FEWEST_FOR_P99: u32 = 100;

const INTERVAL: &str = "In brackets its 95 % interval by a bootstrap over iterations (2,000 resamples, fixed seed).";
const FEW: &str = "Intervals are given from 3 iterations a side on.";
const P99: &str = "P99 is given from 100 executions on.";

impl Report for Blocks {
    fn name(&self) -> &'static str {
        "blocks"
    }

    fn about(&self) -> &'static str {
        "Each block's latency and bandwidth while overlapped, beside the same block alone, and what no compute hid."
    }

    fn shown(&self) -> &'static [Shown] {
        &SHOWN
    }

    fn method(&self, view: &View) -> Vec<&'static str> {
        let mut lines = Vec::new();
        let (compared, _) = presence(view, "slowdown");
        let (bounded, _) = presence(view, "slowdown_lo");
        let has = |row: usize, key: &str| *view.value(row, key) != Value::Missing;
        let unbounded = (0..view.rows.len()).any(|row| has(row, "slowdown") && !has(row, "slowdown_lo"));
        if compared {
            lines.push(method::SLOWDOWN);
        }
        if bounded {
            lines.push(INTERVAL);
        }
        if unbounded {
            lines.push(FEW);
        }
        lines.push(EXPOSED);
        if presence(view, "p99_ms").1 {
            lines.push(P99);
        }
        lines
    }

    fn table(&self, runs: &[Run]) -> Result<DataFrame> {
        stack(runs, table).map_err(refused(self.name()))
    }
}

/// Whether any row has a value under `key`, and whether any lacks one.
fn presence(view: &View, key: &str) -> (bool, bool) {
    let missing = |row: usize| *view.value(row, key) == Value::Missing;
    ((0..view.rows.len()).any(|row| !missing(row)), (0..view.rows.len()).any(missing))
}

fn table(run: &Run) -> PolarsResult<DataFrame> {
    let mut groups = frame::executions(run)?.lazy().group_by([col("block"), col("axis")]).agg(figures()).collect()?;
    groups.sort_in_place(["block", "axis"], SortMultipleOptions::default())?;
    let rank_steps = run.exposure().steps.len() as f64;
    let exposed_ns = groups.column("exposed_total_ns")?.f64()?.apply_values(|total_ns| total_ns / rank_steps);
    let mut columns = names(run, &groups)?;
    columns.extend(medians(&groups)?);
    columns.push(exposed_ns.with_name("exposed_ns".into()).into_column());
    let mut table = groups;
    for column in columns {
        table.with_column(column)?;
    }
    for name in ["avg", "min", "max", "p99", "alone", "wait", "exposed"] {
        table.with_column(frame::milliseconds(&table, name)?)?;
    }
    table.lazy().select(COLUMNS.map(col)).collect()
}

/// The columns of the table in their order, after the run.
const COLUMNS: [&str; 19] = [
    "block",
    "axis",
    "kind",
    "size_bytes",
    "executions",
    "calls_per_step",
    "avg_ms",
    "min_ms",
    "max_ms",
    "p99_ms",
    "avg_gbps",
    "busbw_gbps",
    "alone_ms",
    "alone_busbw_gbps",
    "slowdown",
    "slowdown_lo",
    "slowdown_hi",
    "wait_ms",
    "exposed_ms",
];

/// What Polars computes of each group, and the lists from which the medians are computed.
fn figures() -> Vec<Expr> {
    let real = |name: &str| col(name).cast(DataType::Float64);
    let overlapped = || col("overlapped");
    let alone = || col("overlapped").not();
    let latency_ns = |state: Expr| col("latency_ns").filter(state);
    // Bytes a nanosecond are decimal gigabytes a second. What took no time has no bandwidth.
    let given = |condition: Expr, value: Expr| when(condition).then(value).otherwise(lit(NULL));
    let took = |ns: &str| col(ns).gt(lit(0u64));
    let avg_gbps = (real("size_bytes") / real("latency_ns")).filter(overlapped().and(took("latency_ns"))).mean();
    // As nccl-tests: all bytes / all time.
    let bus_gbps = |state: Expr| {
        let moved = state.and(took("transfer_ns")).and(col("bus_bytes").is_not_null());
        let total = |name: &str| real(name).filter(moved.clone()).sum();
        given(total("transfer_ns").gt(lit(0.0)), total("bus_bytes") / total("transfer_ns"))
    };
    let executions = || overlapped().sum();
    let p99_ns = latency_ns(overlapped()).quantile(lit(0.99), QuantileMethod::Equiprobable);
    // One number for a step of a rank, to count those that run the block.
    let rank_step = col("step").cast(DataType::UInt64) * lit(1u64 << 32) + col("rank").cast(DataType::UInt64);
    let calls_per_step = executions().cast(DataType::Float64) / rank_step.filter(overlapped()).n_unique();
    let list = |name: &str, with: &str, state: Expr| col(name).filter(state.and(col(with).is_not_null()));
    vec![
        col("size_bytes").max(),
        executions().alias("executions"),
        given(executions().gt(lit(0u32)), calls_per_step).alias("calls_per_step"),
        latency_ns(overlapped()).mean().alias("avg_ns"),
        latency_ns(overlapped()).min().alias("min_ns"),
        latency_ns(overlapped()).max().alias("max_ns"),
        given(executions().gt_eq(lit(FEWEST_FOR_P99)), p99_ns).alias("p99_ns"),
        avg_gbps.alias("avg_gbps"),
        bus_gbps(overlapped()).alias("busbw_gbps"),
        col("compared_ns").filter(alone()).mean().alias("alone_ns"),
        bus_gbps(alone()).alias("alone_busbw_gbps"),
        given(col("exposed_ns").count().gt(lit(0u32)), real("exposed_ns").sum()).alias("exposed_total_ns"),
        list("compared_ns", "compared_ns", overlapped()).alias("overlapped_compared_ns"),
        list("step", "compared_ns", overlapped()).alias("overlapped_steps"),
        list("compared_ns", "compared_ns", alone()).alias("alone_compared_ns"),
        list("step", "compared_ns", alone()).alias("alone_steps"),
        list("wait_ns", "wait_ns", overlapped()).alias("waits_ns"),
    ]
}

/// Names in place of indices, and kinds.
fn names(run: &Run, groups: &DataFrame) -> PolarsResult<Vec<Column>> {
    let (blocks, axes) = (groups.column("block")?.u32()?, groups.column("axis")?.u32()?);
    let pattern = |index: Option<u32>| index.and_then(|index| run.pattern.blocks.get(index as usize));
    let axis = |index: Option<u32>| index.and_then(|index| run.world.axes().get(index as usize));
    let kinds = blocks.iter().map(|index| pattern(index).map(|block| block.work.kind()));
    let names = blocks.iter().map(|index| pattern(index).map(|block| block.name.as_str()));
    let axes = axes.iter().map(|index| axis(index).map(|axis| axis.name.as_str()));
    Ok(vec![
        StringChunked::from_iter_options("block".into(), names).into_column(),
        StringChunked::from_iter_options("axis".into(), axes).into_column(),
        StringChunked::from_iter_options("kind".into(), kinds).into_column(),
    ])
}

/// The columns that need medians: slowdown with its interval, and wait.
fn medians(groups: &DataFrame) -> PolarsResult<Vec<Column>> {
    let mut ratios: Vec<Option<Ratio>> = Vec::with_capacity(groups.height());
    let mut waits_ns: Vec<Option<f64>> = Vec::with_capacity(groups.height());
    for group in 0..groups.height() {
        let overlapped = sample(groups, "overlapped_compared_ns", "overlapped_steps", group)?;
        let alone = sample(groups, "alone_compared_ns", "alone_steps", group)?;
        ratios.push(ratio_of_medians(&overlapped, &alone));
        waits_ns.push(median(&mut u64s(groups, "waits_ns", group)?));
    }
    let bound =
        |which: fn((f64, f64)) -> f64| ratios.iter().map(move |ratio| ratio.and_then(|r| r.interval).map(which));
    let column = |name: &str, values: Vec<Option<f64>>| {
        Float64Chunked::from_iter_options(name.into(), values.into_iter()).into_column()
    };
    Ok(vec![
        column("slowdown", ratios.iter().map(|ratio| ratio.map(|r| r.value)).collect()),
        column("slowdown_lo", bound(|(low, _)| low).collect()),
        column("slowdown_hi", bound(|(_, high)| high).collect()),
        column("wait_ns", waits_ns),
    ])
}

/// The times of one group with the iterations they belong to.
fn sample(groups: &DataFrame, times: &str, steps: &str, group: usize) -> PolarsResult<Sample> {
    let Some(steps) = groups.column(steps)?.list()?.get_as_series(group) else { return Ok(Sample::new(Vec::new())) };
    let times = u64s(groups, times, group)?;
    Ok(Sample::new(times.into_iter().zip(steps.u32()?.iter().flatten()).collect()))
}

fn u64s(groups: &DataFrame, name: &str, group: usize) -> PolarsResult<Vec<u64>> {
    let Some(list) = groups.column(name)?.list()?.get_as_series(group) else { return Ok(Vec::new()) };
    Ok(list.u64()?.iter().flatten().collect())
}
