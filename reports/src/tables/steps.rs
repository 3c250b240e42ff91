//! The report `steps`: how long the step of each run is, and what it is made of.

use polars::prelude::*;

use super::{EXPOSED, Report, frame, refused, stack};
use crate::view::{Show, Shown};
use crate::{Result, Run, View, statistics};

/// One row a run. A step lasts as long as its longest rank: from that rank's first start to its last end.
///
/// | column | unit | what |
/// |---|---|---|
/// | run | | id of the run |
/// | steps, ranks | | iterations of the overlapped step, and ranks in them |
/// | step_avg_ms, step_median_ms, step_min_ms, step_max_ms | ms | the step, over iterations |
/// | comm_ms, compute_ms | ms | time in which communication, compute ran: mean over iterations and ranks |
/// | exposed_ms | ms | time in which communication ran and compute did not: mean over iterations and ranks |
/// | exposed_pct | % | exposed_ms / step_avg_ms |
pub(super) struct Steps;

const SHOWN: [Shown; 11] = [
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
];

const METHOD: &str = "A step lasts from the first start to the last end of its longest rank; comm, compute and exposed \
    are means over iterations and ranks. Compute counts its blocks whole, with the gaps between their kernels.";

impl Report for Steps {
    fn name(&self) -> &'static str {
        "steps"
    }

    fn about(&self) -> &'static str {
        "How long the step of each run is, and how much of it is communication, compute and exposed communication."
    }

    fn shown(&self) -> &'static [Shown] {
        &SHOWN
    }

    fn method(&self, _: &View) -> Vec<&'static str> {
        vec![METHOD, EXPOSED]
    }

    fn table(&self, runs: &[Run]) -> Result<DataFrame> {
        stack(runs, table).map_err(refused(self.name()))
    }
}

fn table(run: &Run) -> PolarsResult<DataFrame> {
    // Ranks may differ in how many steps they have, so a mean over ranks and iterations is one over their rows.
    let ranks = rank_steps(run)?.lazy();
    let mean_ns = |name: &str| col(name).mean();
    let parts = ranks.clone().select([mean_ns("comm_ns"), mean_ns("compute_ns"), mean_ns("exposed_ns")]).collect()?;
    let steps =
        ranks.group_by([col("round"), col("iteration")]).agg([col("span_ns").max(), len().alias("ranks")]).collect()?;
    let mut spans_ns: Vec<u64> = steps.column("span_ns")?.u64()?.iter().flatten().collect();
    let median_ns = Float64Chunked::from_slice_options("step_median_ns".into(), &[statistics::median(&mut spans_ns)]);
    let mut table = steps
        .lazy()
        .select([
            len().alias("steps"),
            col("ranks").max(),
            col("span_ns").mean().alias("step_avg_ns"),
            col("span_ns").min().alias("step_min_ns"),
            col("span_ns").max().alias("step_max_ns"),
        ])
        .collect()?
        .hstack(parts.columns())?;
    table.with_column(median_ns.into_column())?;
    for name in ["step_avg", "step_median", "step_min", "step_max", "comm", "compute", "exposed"] {
        table.with_column(frame::milliseconds(&table, name)?)?;
    }
    let exposed_pct = lit(100.0) * col("exposed_ms") / col("step_avg_ms");
    table.lazy().with_column(exposed_pct.alias("exposed_pct")).select(COLUMNS.map(col)).collect()
}

/// The columns of the table in their order, after the run.
const COLUMNS: [&str; 10] = [
    "steps",
    "ranks",
    "step_avg_ms",
    "step_median_ms",
    "step_min_ms",
    "step_max_ms",
    "comm_ms",
    "compute_ms",
    "exposed_ms",
    "exposed_pct",
];

/// One row a rank and iteration, with the figures of the exposure sweep.
fn rank_steps(run: &Run) -> PolarsResult<DataFrame> {
    let steps = &run.exposure().steps;
    let u32s = |name: &str, of: fn(&crate::RankStep) -> u32| {
        UInt32Chunked::from_iter_values(name.into(), steps.iter().map(of)).into_column()
    };
    let u64s = |name: &str, of: fn(&crate::Figures) -> u64| {
        UInt64Chunked::from_iter_values(name.into(), steps.iter().map(|step| of(&step.figures))).into_column()
    };
    DataFrame::new(
        steps.len(),
        vec![
            u32s("round", |step| step.round),
            u32s("iteration", |step| step.iteration),
            u64s("span_ns", |figures| figures.span_ns),
            u64s("comm_ns", |figures| figures.communication_ns),
            u64s("compute_ns", |figures| figures.compute_ns),
            u64s("exposed_ns", |figures| figures.exposed_ns),
        ],
    )
}
