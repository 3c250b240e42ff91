//! The report `quantiles`: the whole distribution of each block's times, overlapped and alone; what ECDFs are drawn from.

use polars::prelude::*;
use rayon::prelude::*;

use super::frame::{self, Group, Row, ms};
use super::{Field, Report, refused, stack};
use crate::view::{Show, Shown};
use crate::{Result, Run, Value, View};

/// One row a block, axis, state and percentile, from the smallest (0) to the largest (100).
pub(super) struct Quantiles;

const FIELDS: [Field; 7] = [
    Field::text("block", "name of the block"),
    Field::text("axis", "axis, of blocks that communicate"),
    Field::text("kind", "kind of the block"),
    Field::text("state", "overlapped or alone"),
    Field::count("executions", "executions with a time"),
    Field::real("percent", "%", "share of the executions that take no longer"),
    Field::real("time_ms", "ms", "nearest rank of the times: transfer of communication, latency of the rest"),
];

const SHOWN: [Shown; 6] = [
    Shown::new("Run", "run", Show::Text),
    Shown::new("Block", "block", Show::Text),
    Shown::new("Axis", "axis", Show::Text),
    Shown::new("State", "state", Show::Text),
    Shown::new("Percent", "percent", Show::Percent),
    Shown::new("Time (ms)", "time_ms", Show::Millis),
];

const METHOD: &str = "Time = transfer of communication, latency of the rest. Nearest rank: the smallest measured time \
    that so many percent of the executions do not exceed; of few executions neighbours are equal.";

impl Report for Quantiles {
    fn name(&self) -> &'static str {
        "quantiles"
    }

    fn about(&self) -> &'static str {
        "How the times of each block are distributed, overlapped and alone, percent by percent."
    }

    fn fields(&self) -> &'static [Field] {
        &FIELDS
    }

    fn shown(&self) -> &'static [Shown] {
        &SHOWN
    }

    fn method(&self, _: &View) -> Vec<&'static str> {
        vec![METHOD]
    }

    fn table(&self, runs: &[Run]) -> Result<DataFrame> {
        stack(&FIELDS, runs, rows).map_err(refused(self.name()))
    }
}

fn rows(run: &Run) -> PolarsResult<Vec<Row>> {
    let of_group = |group: &Group| -> PolarsResult<Vec<Row>> {
        let mut rows = of_state(run, group, "overlapped", &group.overlapped)?;
        rows.extend(of_state(run, group, "alone", &group.alone)?);
        Ok(rows)
    };
    let groups: Vec<Vec<Row>> = frame::groups(run).par_iter().map(of_group).collect::<PolarsResult<_>>()?;
    Ok(groups.into_iter().flatten().collect())
}

/// The percentiles of one state; none where nothing has a time.
fn of_state(run: &Run, group: &Group, state: &'static str, executions: &[u32]) -> PolarsResult<Vec<Row>> {
    let mut times: Vec<u64> = executions.iter().filter_map(|row| run.compared_ns(*row as usize)).collect();
    times.sort_unstable();
    let mut sorted = UInt64Chunked::from_slice("ns".into(), &times);
    sorted.set_sorted_flag(polars::series::IsSorted::Ascending);
    let percents = if times.is_empty() { 0..0 } else { 0..101 };
    let row = |percent: u32| -> PolarsResult<Row> {
        let ns = sorted.quantile(f64::from(percent) / 100.0, QuantileMethod::Equiprobable)?;
        let mut row = Row::from(group.names(run));
        row.extend([
            ("state", Value::Text(state.to_owned())),
            ("executions", Value::Integer(times.len() as u64)),
            ("percent", Value::Real(percent.into())),
            ("time_ms", ms(ns)),
        ]);
        Ok(row)
    };
    percents.map(row).collect()
}
