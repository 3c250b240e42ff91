//! The report `steps`: how long the step of each run is, and what it is made of.

use polars::prelude::*;

use super::frame::{Row, ms};
use super::{EXPOSED, Field, Report, refused, stack};
use crate::doubts;
use crate::exposure::RankStep;
use crate::view::{Show, Shown};
use crate::{Result, Run, Value, View};

/// One row a run. A step lasts as long as its longest rank: from that rank's first start to its last end.
pub(super) struct Steps;

const FIELDS: [Field; 18] = [
    Field::count("steps", "iterations of the overlapped step"),
    Field::count("ranks", "ranks that ran something"),
    Field::real("step_avg_ms", "ms", "mean over iterations of the step: the span of its longest rank"),
    Field::real("step_median_ms", "ms", "median of the same"),
    Field::real("step_min_ms", "ms", "shortest"),
    Field::real("step_max_ms", "ms", "longest"),
    Field::real("comm_ms", "ms", "time in which communication ran; mean over iterations and ranks, as all below"),
    Field::real("compute_ms", "ms", "time in which compute ran"),
    Field::real("exposed_ms", "ms", "time in which communication ran and compute did not"),
    Field::real("exposed_pct", "%", "exposed_ms / step_avg_ms"),
    Field::real("hidden_pct", "%", "the part of comm_ms in which compute ran"),
    Field::real("copies_ms", "ms", "time in which only copies and sets ran"),
    Field::real("idle_ms", "ms", "time in which nothing ran"),
    Field::real("uneven_ms", "ms", "what the longest rank has more than the mean rank"),
    Field::real("wait_ms", "ms", "waiting for late ranks, summed over executions"),
    Field::real("step_cv_pct", "%", "standard deviation / mean of the step"),
    Field::real("drift", "", "Spearman's correlation of the step with the order of iterations; from 10 iterations on"),
    Field::text("flags", "`drift` where the drift is more than chance at 1 %"),
];

const SHOWN: [Shown; 12] = [
    Shown::new("Run", "run", Show::Text),
    Shown::new("Steps", "steps", Show::Count),
    Shown::new("Ranks", "ranks", Show::Count),
    Shown::new("Avg step (ms)", "step_avg_ms", Show::Millis),
    Shown::new("Median", "step_median_ms", Show::Millis),
    Shown::new("Min", "step_min_ms", Show::Millis),
    Shown::new("Max", "step_max_ms", Show::Millis),
    Shown::new("Comm (ms)", "comm_ms", Show::Millis).after_bar(),
    Shown::new("Compute (ms)", "compute_ms", Show::Millis),
    Shown::new("Exposed (ms)", "exposed_ms", Show::Millis),
    Shown::new("Exposed (%)", "exposed_pct", Show::Percent),
    Shown::new("Flags", "flags", Show::Text),
];

const METHOD: &str = "A step lasts from the first start to the last end of its longest rank; comm, compute and exposed \
    are means over iterations and ranks. Compute counts its blocks whole, with the gaps between their kernels.";
const DRIFT: &str = "drift: steps grow longer or shorter from iteration to iteration, more than chance would (1 %): more \
    warm-up, or a look at clocks and neighbours, is due.";

impl Report for Steps {
    fn name(&self) -> &'static str {
        "steps"
    }

    fn about(&self) -> &'static str {
        "How long the step of each run is, and how much of it is communication, compute and exposed communication."
    }

    fn fields(&self) -> &'static [Field] {
        &FIELDS
    }

    fn shown(&self) -> &'static [Shown] {
        &SHOWN
    }

    fn method(&self, view: &View) -> Vec<&'static str> {
        let mut lines = vec![METHOD, EXPOSED];
        if super::presence(view, "flags").0 {
            lines.push(DRIFT);
        }
        lines
    }

    fn table(&self, runs: &[Run]) -> Result<DataFrame> {
        stack(&FIELDS, runs, |run| Ok(vec![row(run)?])).map_err(refused(self.name()))
    }
}

fn row(run: &Run) -> PolarsResult<Row> {
    let mut spans = Vec::new();
    let mut ranks = 0;
    for step in run.exposure().iterations() {
        spans.extend(step.iter().map(|rank| rank.figures.span_ns).max());
        ranks = ranks.max(step.len());
    }
    let mut sorted = spans.clone();
    sorted.sort_unstable();
    let spread = super::frame::Spread::of(&sorted)?;
    let drift = doubts::drift(&spans.iter().map(|ns| *ns as f64).collect::<Vec<_>>());

    // Ranks may differ in how many steps they have, so a mean over ranks and iterations is one over their rows.
    let means = rank_steps(run)?.lazy().select([col("*").mean()]).collect()?;
    let mean = |name: &str| -> PolarsResult<Option<f64>> { Ok(means.column(name)?.f64()?.get(0)) };
    let (comm, exposed) = (mean("comm_ns")?, mean("exposed_ns")?);
    let percent =
        |part: Option<f64>, whole: Option<f64>| Value::real(part.zip(whole).map(|(part, whole)| 100.0 * part / whole));
    Ok(vec![
        ("steps", Value::Integer(spans.len() as u64)),
        ("ranks", Value::integer((ranks > 0).then_some(ranks as u64))),
        ("step_avg_ms", ms(spread.avg)),
        ("step_median_ms", ms(spread.median)),
        ("step_min_ms", ms(spread.min)),
        ("step_max_ms", ms(spread.max)),
        ("step_cv_pct", spread.cv_pct()),
        ("comm_ms", ms(comm)),
        ("compute_ms", ms(mean("compute_ns")?)),
        ("exposed_ms", ms(exposed)),
        ("exposed_pct", percent(exposed.map(|ns| ns / 1e6), spread.avg.map(|ns| ns / 1e6))),
        ("hidden_pct", percent(comm.zip(exposed).map(|(comm, exposed)| comm - exposed), comm)),
        ("copies_ms", ms(mean("copies_ns")?)),
        ("idle_ms", ms(mean("idle_ns")?)),
        ("uneven_ms", ms(spread.avg.zip(mean("span_ns")?).map(|(step, rank)| step - rank))),
        ("wait_ms", ms(mean("wait_ns")?)),
        ("drift", Value::real(drift)),
        ("flags", Value::text(drift.filter(|drift| doubts::is_drift(*drift, spans.len())).map(|_| "drift"))),
    ])
}

/// One row a rank and iteration, with the figures of the exposure sweep.
fn rank_steps(run: &Run) -> PolarsResult<DataFrame> {
    let steps = &run.exposure().steps;
    let column = |name: &str, of: fn(&RankStep) -> u64| {
        UInt64Chunked::from_iter_values(name.into(), steps.iter().map(of)).into_column()
    };
    DataFrame::new(
        steps.len(),
        vec![
            column("span_ns", |step| step.figures.span_ns),
            column("comm_ns", |step| step.figures.communication_ns),
            column("compute_ns", |step| step.figures.compute_ns),
            column("exposed_ns", |step| step.figures.exposed_ns),
            column("copies_ns", |step| step.figures.copies_ns),
            column("idle_ns", |step| step.figures.idle_ns()),
            column("wait_ns", |step| step.waits.wait_ns),
        ],
    )
}
