//! From the executions of a block to its row.

use polars::prelude::*;
use rayon::prelude::*;

use super::flags::{self, Evidence};
use super::frame::{self, Group, Row, Spread, ms};
use super::outside;
use crate::doubts::{drift, is_drift, severe_outliers};
use crate::statistics::{Sample, ratio_of_medians};
use crate::{Headline, Role, Run, Value};

/// The rows of a run, in the order of the pattern's blocks; computed at the first call, then kept.
pub(in crate::tables) fn rows(run: &Run) -> PolarsResult<&[Row]> {
    if let Some(known) = run.block_rows.get() {
        return Ok(known);
    }
    let rows = compute(run)?;
    Ok(run.block_rows.get_or_init(|| rows))
}

fn compute(run: &Run) -> PolarsResult<Vec<Row>> {
    let steps = frame::steps(run.measurements());
    let step_ms = Headline::of(run).map(|headline| headline.step_mean_ms);
    frame::groups(run).par_iter().map(|group| row(run, group, &steps, step_ms)).collect()
}

/// What one state of a block, overlapped or alone, sums up to.
struct Side {
    /// Per execution: what slowdown compares.
    times: Sample,
    /// The same by iteration, in the order of the run: mean.
    by_iteration: Vec<f64>,
    spread: Spread,
    /// Iterations with executions, and steps of ranks with executions.
    iterations: u64,
    rank_steps: u64,
    /// One row of figures by Polars.
    figures: DataFrame,
}

impl Side {
    fn of(run: &Run, rows: &[u32], steps: &[u32]) -> PolarsResult<Self> {
        let figures = frame::executions(run, rows)?.lazy().select(figures()).collect()?;
        let timed = rows.iter().filter_map(|row| Some((run.compared_ns(*row as usize)?, steps[*row as usize])));
        let timed: Vec<(u64, u32)> = timed.collect();
        let by_iteration = means(&timed);
        let times = Sample::new(timed);
        let spread = Spread::of(times.values())?;
        let rank = |row: &u32| run.measurements().rank[*row as usize] as usize;
        let ranks = run.world.size() as usize;
        let rank_steps = distinct(rows.iter().map(|row| steps[*row as usize] as usize * ranks + rank(row)));
        let iterations = distinct(rows.iter().map(|row| steps[*row as usize] as usize));
        Ok(Self { times, by_iteration, spread, iterations, rank_steps, figures })
    }

    fn count(&self, name: &str) -> PolarsResult<u64> {
        Ok(self.figures.column(name)?.cast(&DataType::UInt64)?.u64()?.get(0).unwrap_or(0))
    }

    fn real(&self, name: &str) -> PolarsResult<Option<f64>> {
        Ok(self.figures.column(name)?.cast(&DataType::Float64)?.f64()?.get(0))
    }
}

/// How many different numbers there are among these, which are small.
fn distinct(numbers: impl Iterator<Item = usize> + Clone) -> u64 {
    let mut seen = vec![false; numbers.clone().max().map_or(0, |most| most + 1)];
    numbers.for_each(|number| seen[number] = true);
    seen.into_iter().filter(|seen| *seen).count() as u64
}

/// The mean of each iteration, in their order; iterations of a run stand together, those of several ranks apart.
fn means(timed: &[(u64, u32)]) -> Vec<f64> {
    let most = timed.iter().map(|(_, iteration)| *iteration as usize + 1).max().unwrap_or(0);
    let mut sums = vec![(0u64, 0u64); most];
    for (ns, iteration) in timed {
        let (sum, count) = &mut sums[*iteration as usize];
        *sum += ns;
        *count += 1;
    }
    sums.into_iter().filter(|(_, count)| *count > 0).map(|(sum, count)| sum as f64 / count as f64).collect()
}

/// What Polars computes of the executions of one state.
fn figures() -> Vec<Expr> {
    let real = |name: &str| col(name).cast(DataType::Float64);
    let given = |condition: Expr, value: Expr| when(condition).then(value).otherwise(lit(NULL));
    let took = |ns: &str| col(ns).gt(lit(0u64));
    // Bytes a nanosecond are decimal gigabytes a second. What took no time has no bandwidth. As nccl-tests: all bytes /
    // all time, of executions whose bytes are known.
    let rate = |bytes: &str| {
        let moved = took("transfer_ns").and(col(bytes).is_not_null());
        let total = |name: &str| real(name).filter(moved.clone()).sum();
        given(total("transfer_ns").gt(lit(0.0)), total(bytes) / total("transfer_ns"))
    };
    vec![
        len().alias("executions"),
        col("size_bytes").max().alias("size_bytes"),
        col("size_bytes").min().alias("least_bytes"),
        col("ranks").max().alias("ranks"),
        col("ranks").min().alias("least_ranks"),
        (real("size_bytes") / real("latency_ns")).filter(took("latency_ns")).mean().alias("avg_gbps"),
        rate("size_bytes").alias("algbw_gbps"),
        rate("bus_bytes").alias("busbw_gbps"),
        col("transfer_ns").median().alias("transfer_ns"),
        real("latency_ns").sum().alias("latency_sum_ns"),
        real("wait_ns").sum().alias("wait_sum_ns"),
        col("wait_ns").count().alias("waits"),
        col("wait_ns").median().alias("wait_ns"),
        col("wait_ns").mean().alias("wait_avg_ns"),
        col("wait_ns").max().alias("wait_max_ns"),
        given(col("exposed_ns").count().gt(lit(0u32)), col("exposed_ns").sum()).alias("exposed_ns"),
    ]
}

fn row(run: &Run, group: &Group, steps: &[u32], step_ms: Option<f64>) -> PolarsResult<Row> {
    let (name, work) = (&run.pattern.blocks[group.block as usize].name, &run.pattern.blocks[group.block as usize].work);
    let communicates = Role::of(work) == Role::Communication;
    let (overlapped, alone) = (Side::of(run, &group.overlapped, steps)?, Side::of(run, &group.alone, steps)?);
    let latency = latency(run, &group.overlapped)?;
    let ratio = ratio_of_medians(&overlapped.times, &alone.times);
    let bound = |which: fn((f64, f64)) -> f64| Value::real(ratio.and_then(|ratio| ratio.interval).map(which));
    // The larger of both states: a block may have run in one alone.
    let most = |name: &str| -> PolarsResult<Option<u64>> {
        Ok(overlapped.real(name)?.into_iter().chain(alone.real(name)?).map(|value| value as u64).max())
    };
    let (size_bytes, ranks) = (most("size_bytes")?, most("ranks")?);
    let (executions, iterations) = (overlapped.count("executions")?, overlapped.iterations);
    let (alone_executions, alone_iterations) = (alone.count("executions")?, alone.iterations);
    let calls = executions as f64 / overlapped.rank_steps as f64;
    let exposed_ns = overlapped.real("exposed_ns")?.map(|ns| ns / run.exposure().steps.len() as f64);
    let wait_share = overlapped.real("wait_sum_ns")?.zip(overlapped.real("latency_sum_ns")?);
    let wait_pct = wait_share.filter(|_| communicates).map(|(wait, latency)| 100.0 * wait / latency);
    let link_pct = |busbw: Option<f64>| busbw.zip(run.link_gbps).map(|(busbw, link)| 100.0 * busbw / link);
    let links = [link_pct(overlapped.real("busbw_gbps")?), link_pct(alone.real("busbw_gbps")?)];
    let trend = drift(&overlapped.by_iteration);
    let evidence = Evidence {
        communicates,
        iterations: [iterations, alone_iterations],
        times: [overlapped.times.values(), alone.times.values()],
        drifts: trend.is_some_and(|drift| is_drift(drift, overlapped.by_iteration.len())),
        wait_ns: overlapped.real("wait_ns")?,
        wait_pct,
        clock_error_ns: run.info.clock_error_ns,
        sized: overlapped.real("size_bytes")?.or(alone.real("size_bytes")?).is_some(),
        mixed: overlapped.real("size_bytes")? != overlapped.real("least_bytes")?
            || overlapped.real("ranks")? != overlapped.real("least_ranks")?,
        inferred: run.pattern.assumed.iter().any(|assumption| assumption.blocks.contains(name)),
        link_pct: links.into_iter().flatten().reduce(f64::max),
    };

    let mut row = Row::from(group.names(run));
    row.extend([
        ("size_bytes", Value::integer(size_bytes)),
        ("executions", Value::Integer(executions)),
        ("calls_per_step", Value::real(Some(calls))),
        ("avg_ms", ms(latency.avg)),
        ("min_ms", ms(latency.min)),
        ("max_ms", ms(latency.max)),
        ("p99_ms", ms(latency.p99)),
        ("avg_gbps", Value::real(overlapped.real("avg_gbps")?)),
        ("busbw_gbps", Value::real(overlapped.real("busbw_gbps")?)),
        ("alone_ms", ms(alone.spread.avg)),
        ("alone_busbw_gbps", Value::real(alone.real("busbw_gbps")?)),
        ("slowdown", Value::real(ratio.map(|ratio| ratio.value))),
        ("slowdown_lo", bound(|(low, _)| low)),
        ("slowdown_hi", bound(|(_, high)| high)),
        ("wait_ms", ms(overlapped.real("wait_ns")?)),
        ("exposed_ms", ms(exposed_ns)),
        ("dtype", Value::text(work.dtype().map(maestro_pattern::Dtype::name))),
        ("ranks", Value::integer(ranks)),
        ("iterations", Value::Integer(iterations)),
        ("alone_executions", Value::Integer(alone_executions)),
        ("alone_iterations", Value::Integer(alone_iterations)),
        ("samples", Value::Text(samples([(iterations, executions), (alone_iterations, alone_executions)]))),
        ("median_ms", ms(latency.median)),
        ("p95_ms", ms(latency.p95)),
        ("overlap_median_ms", ms(overlapped.spread.median)),
        ("overlap_avg_ms", ms(overlapped.spread.avg)),
        ("overlap_min_ms", ms(overlapped.spread.min)),
        ("overlap_max_ms", ms(overlapped.spread.max)),
        ("overlap_p95_ms", ms(overlapped.spread.p95)),
        ("overlap_p99_ms", ms(overlapped.spread.p99)),
        ("overlap_cv_pct", overlapped.spread.cv_pct()),
        ("alone_median_ms", ms(alone.spread.median)),
        ("alone_min_ms", ms(alone.spread.min)),
        ("alone_max_ms", ms(alone.spread.max)),
        ("alone_p95_ms", ms(alone.spread.p95)),
        ("alone_p99_ms", ms(alone.spread.p99)),
        ("alone_cv_pct", alone.spread.cv_pct()),
        ("algbw_gbps", Value::real(overlapped.real("algbw_gbps")?)),
        ("alone_algbw_gbps", Value::real(alone.real("algbw_gbps")?)),
        ("wait_avg_ms", ms(overlapped.real("wait_avg_ns")?)),
        ("wait_max_ms", ms(overlapped.real("wait_max_ns")?)),
        ("wait_pct", Value::real(wait_pct)),
        ("transfer_ms", ms(overlapped.real("transfer_ns")?)),
        ("exposed_pct", Value::real(exposed_ns.zip(step_ms).map(|(ns, step)| 100.0 * (ns / 1e6) / step))),
        ("outliers", Value::Integer(severe_outliers(overlapped.times.values()) as u64)),
        ("alone_outliers", Value::Integer(severe_outliers(alone.times.values()) as u64)),
        ("drift", Value::real(trend)),
        ("flags", Value::text(Some(flags::of(&evidence)).as_deref().filter(|flags| !flags.is_empty()))),
        ("link_pct", Value::real(links[0])),
        ("alone_link_pct", Value::real(links[1])),
    ]);
    if communicates && let Some(baseline) = &run.baseline {
        row.extend(outside::values(baseline, work, (size_bytes, ranks), alone.spread.median));
    }
    Ok(row)
}

/// The spread of the latency, which of what does not communicate is the time that is compared.
fn latency(run: &Run, rows: &[u32]) -> PolarsResult<Spread> {
    let columns = run.measurements();
    let mut latencies: Vec<u64> = rows.iter().map(|row| columns.latency_ns(*row as usize)).collect();
    latencies.sort_unstable();
    Spread::of(&latencies)
}

/// `12 x 8 / 10 x 2`: iterations x executions an iteration, overlapped / alone. Only one of them where it did not run in
/// both.
fn samples(states: [(u64, u64); 2]) -> String {
    let of = |(iterations, executions): (u64, u64)| {
        let each = executions as f64 / iterations as f64;
        if iterations == 0 {
            "-".to_owned()
        } else if each.fract() == 0.0 {
            format!("{iterations}x{each}")
        } else {
            format!("{iterations}x{each:.1}")
        }
    };
    states.map(of).join(" / ")
}
