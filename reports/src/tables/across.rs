//! The report `across`: what repeated runs of one pattern have in common, the run being the unit.
//!
//! Each run counts as one value, its median, as in [`crate::diff`]: iterations of one run share its communicators, its
//! memory and its neighbours. Runs that differ in pattern, settings or what they were given are not repeats of each other
//! and have rows of their own.

use polars::prelude::{DataFrame, PolarsResult};

use super::blocks::rows;
use super::frame::{self, Row};
use super::{EXPOSED, Field, RUN, Report, presence, refused};
use crate::statistics::median_interval;
use crate::view::{Show, Shown};
use crate::{Headline, Result, Run, Value, View};

/// One row for the step and one a block, of each set of repeated runs.
pub(super) struct Across;

const FIELDS: [Field; 24] = [
    Field::text("level", "step or block"),
    Field::text("block", "name of the block"),
    Field::text("axis", "axis, of blocks that communicate"),
    Field::text("kind", "kind of the block"),
    Field::bytes("size_bytes", "S of nccl-tests; the largest, where executions differ"),
    Field::count("runs", "runs that have it overlapped, or alone if none has"),
    Field::count("iterations", "iterations with overlapped executions, of all runs together"),
    Field::real("overlap_median_ms", "ms", "median over runs of their median time overlapped; of the step its length"),
    Field::real("overlap_lo_ms", "ms", "lower end of its 95 % interval; from 6 runs on"),
    Field::real("overlap_hi_ms", "ms", "upper end"),
    Field::real("overlap_min_ms", "ms", "the least of the runs' medians"),
    Field::real("overlap_max_ms", "ms", "the largest"),
    Field::real("overlap_cv_pct", "%", "standard deviation / mean of the runs' medians"),
    Field::real("alone_median_ms", "ms", "median over runs of their median time alone"),
    Field::real("alone_lo_ms", "ms", "lower end of its 95 % interval; from 6 runs on"),
    Field::real("alone_hi_ms", "ms", "upper end"),
    Field::real("alone_cv_pct", "%", "standard deviation / mean of the runs' medians"),
    Field::real("slowdown", "", "median over runs of their slowdown"),
    Field::real("slowdown_lo", "", "lower end of its 95 % interval; from 6 runs on"),
    Field::real("slowdown_hi", "", "upper end"),
    Field::real("exposed_ms", "ms", "communication that no compute hides, a step: median over runs"),
    Field::real("busbw_gbps", "GB/s", "bus bandwidth overlapped: median over runs"),
    Field::real("alone_busbw_gbps", "GB/s", "the same alone"),
    Field::text("samples", "runs x iterations of a run"),
];

const SHOWN: [Shown; 14] = [
    Shown::new("Run", "run", Show::Text),
    Shown::new("Of", "level", Show::Text),
    Shown::new("Block", "block", Show::Text),
    Shown::new("Axis", "axis", Show::Text),
    Shown::new("Size (B)", "size_bytes", Show::Bytes),
    Shown::new("n", "samples", Show::Text),
    Shown::new("t_overlap (ms)", "overlap_median_ms", Show::Millis).after_bar(),
    Shown::new("Least", "overlap_min_ms", Show::Millis),
    Shown::new("Most", "overlap_max_ms", Show::Millis),
    Shown::new("CV (%)", "overlap_cv_pct", Show::Percent),
    Shown::new("t_alone (ms)", "alone_median_ms", Show::Millis).after_bar(),
    Shown::new("CV (%)", "alone_cv_pct", Show::Percent),
    Shown::new("Slowdown", "slowdown", Show::Factor),
    Shown::new("Exposed (ms)", "exposed_ms", Show::Millis),
];

const METHOD: &str = "Each run counts as one value, its median; the table has the median of those, the least and the most, \
    and their standard deviation / mean. n = runs x iterations of a run.";
const INTERVAL: &str = "In brackets the 95 % interval of the median over runs, from the order of their values (two of six \
    runs or more that enclose it in at least 95 % of cases, whatever their distribution).";
const SINGLE: &str = "Runs of another pattern, or given something else, are no repeats: they have rows of their own.";

impl Report for Across {
    fn name(&self) -> &'static str {
        "across"
    }

    fn about(&self) -> &'static str {
        "Repeated runs of one pattern as one row a block: how much runs differ among themselves."
    }

    fn fields(&self) -> &'static [Field] {
        &FIELDS
    }

    fn shown(&self) -> &'static [Shown] {
        &SHOWN
    }

    fn method(&self, view: &View) -> Vec<&'static str> {
        let mut lines = vec![METHOD];
        lines.extend(presence(view, "slowdown_lo").0.then_some(INTERVAL));
        let first = (0..view.rows.len()).filter(|row| *view.value(*row, "level") == Value::text(Some("step"))).count();
        lines.extend((first > 1).then_some(SINGLE));
        lines.push(EXPOSED);
        lines
    }

    fn table(&self, runs: &[Run]) -> Result<DataFrame> {
        table(runs).map_err(refused(self.name()))
    }
}

fn table(runs: &[Run]) -> PolarsResult<DataFrame> {
    let mut sets: Vec<Vec<&Run>> = Vec::new();
    for run in runs {
        match sets.iter_mut().find(|set| repeats(set[0], run)) {
            Some(set) => set.push(run),
            None => sets.push(vec![run]),
        }
    }
    let mut all = Vec::new();
    for set in &sets {
        let id = match set.as_slice() {
            [run] => run.info.id.clone(),
            [first, others @ ..] => format!("{} and {} more", first.info.id, others.len()),
            [] => continue,
        };
        all.extend(of_set(set)?.into_iter().map(|mut row| {
            row.push((RUN.key, Value::Text(id.clone())));
            row
        }));
    }
    let mut fields = vec![RUN];
    fields.extend_from_slice(&FIELDS);
    frame::table(&fields, &all)
}

/// Whether two runs did the same.
fn repeats(one: &Run, other: &Run) -> bool {
    let (one, other) = (&one.info, &other.info);
    (&one.pattern, &one.axes, &one.backend, one.made_by, &one.settings, &one.environment.variant)
        == (&other.pattern, &other.axes, &other.backend, other.made_by, &other.settings, &other.environment.variant)
}

/// The rows of a set of runs.
fn of_set(set: &[&Run]) -> PolarsResult<Vec<Row>> {
    let headlines: Vec<Headline> = set.iter().filter_map(|run| Headline::of(run)).collect();
    let iterations: Vec<u64> = set.iter().map(|run| run.exposure().iterations().count() as u64).collect();
    let of_runs: Vec<&[Row]> = set.iter().map(|run| rows(run)).collect::<PolarsResult<_>>()?;
    let mut all = vec![of_step(&headlines, &iterations)];
    let mut known: Vec<(&Value, &Value)> = Vec::new();
    for row in of_runs.iter().copied().flatten() {
        let name = (cell(row, "block"), cell(row, "axis"));
        if known.contains(&name) {
            continue;
        }
        known.push(name);
        let same = of_runs.iter().copied().flatten().filter(|row| (cell(row, "block"), cell(row, "axis")) == name);
        all.push(of_block(&same.collect::<Vec<_>>()));
    }
    Ok(all)
}

fn of_step(headlines: &[Headline], iterations: &[u64]) -> Row {
    let times = Spread::of(headlines.iter().map(|headline| headline.step_median_ms));
    let exposed = Spread::of(headlines.iter().map(|headline| headline.exposed_ms));
    let mut row: Row = vec![("level", Value::text(Some("step"))), ("exposed_ms", Value::real(exposed.median))];
    row.extend(times.overlapped());
    row.extend(counts(headlines.len(), iterations));
    row
}

/// The row of a block from its rows of all runs.
fn of_block(same: &[&Row]) -> Row {
    let reals = |key| {
        Spread::of(
            same.iter().filter_map(|row| if let Value::Real(value) = cell(row, key) { Some(*value) } else { None }),
        )
    };
    let integers =
        |key| same.iter().filter_map(move |row| if let Value::Integer(n) = cell(row, key) { Some(*n) } else { None });
    let (overlapped, alone, slowdown) = (reals("overlap_median_ms"), reals("alone_median_ms"), reals("slowdown"));
    let mut row: Row = vec![("level", Value::text(Some("block")))];
    row.extend(["block", "axis", "kind"].map(|key| (key, cell(same[0], key).clone())));
    row.push(("size_bytes", Value::integer(integers("size_bytes").max())));
    row.extend(overlapped.overlapped());
    row.extend([
        ("alone_median_ms", Value::real(alone.median)),
        ("alone_lo_ms", Value::real(alone.interval.map(|(low, _)| low))),
        ("alone_hi_ms", Value::real(alone.interval.map(|(_, high)| high))),
        ("alone_cv_pct", Value::real(alone.cv_pct)),
        ("slowdown", Value::real(slowdown.median)),
        ("slowdown_lo", Value::real(slowdown.interval.map(|(low, _)| low))),
        ("slowdown_hi", Value::real(slowdown.interval.map(|(_, high)| high))),
    ]);
    row.extend(["exposed_ms", "busbw_gbps", "alone_busbw_gbps"].map(|key| (key, Value::real(reals(key).median))));
    row.extend(counts(overlapped.n.max(alone.n), &integers("iterations").collect::<Vec<_>>()));
    row
}

/// The value under `key`; missing if there is none.
fn cell<'a>(row: &'a Row, key: &str) -> &'a Value {
    row.iter().find(|(known, _)| *known == key).map_or(&Value::Missing, |(_, value)| value)
}

fn counts(runs: usize, iterations: &[u64]) -> [(&'static str, Value); 3] {
    let (least, most) = (iterations.iter().min().copied().unwrap_or(0), iterations.iter().max().copied().unwrap_or(0));
    let each = if least == most { most.to_string() } else { format!("{least}..{most}") };
    [
        ("runs", Value::Integer(runs as u64)),
        ("iterations", Value::Integer(iterations.iter().sum())),
        ("samples", Value::Text(format!("{runs}x{each}"))),
    ]
}

/// How the values of runs are spread, one a run.
struct Spread {
    n: usize,
    median: Option<f64>,
    /// The 95 % interval of the median.
    interval: Option<(f64, f64)>,
    ends: Option<(f64, f64)>,
    /// Standard deviation of a sample / mean.
    cv_pct: Option<f64>,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|value| (value - mean) * (value - mean)).sum();
        let cv_pct = (n > 1 && mean > 0.0).then(|| 100.0 * (squares / (n as f64 - 1.0)).sqrt() / mean);
        let interval = median_interval(n).map(|(low, high)| (sorted[low], sorted[high]));
        let ends = sorted.first().copied().zip(sorted.last().copied());
        Self { n, median: (n > 0).then(|| (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0), interval, ends, cv_pct }
    }

    /// As the columns of times overlapped.
    fn overlapped(&self) -> [(&'static str, Value); 6] {
        [
            ("overlap_median_ms", Value::real(self.median)),
            ("overlap_lo_ms", Value::real(self.interval.map(|(low, _)| low))),
            ("overlap_hi_ms", Value::real(self.interval.map(|(_, high)| high))),
            ("overlap_min_ms", Value::real(self.ends.map(|(least, _)| least))),
            ("overlap_max_ms", Value::real(self.ends.map(|(_, most)| most))),
            ("overlap_cv_pct", Value::real(self.cv_pct)),
        ]
    }
}
