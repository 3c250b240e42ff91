//! The lines below a table: what was run, how it was measured, what the columns mean, and the step in one sentence.
//!
//! A number without its method is not worth much, so no view is without these. The sentences say only what is true of
//! the table above them: a note on missing figures appears where some are missing.

use crate::{AxisInfo, Origin, Run, statistics};

/// A run in a few numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Headline {
    /// Median over iterations of the step: the longest rank's span, in milliseconds.
    pub step_median_ms: f64,
    /// Mean of the same, in milliseconds.
    pub step_mean_ms: f64,
    /// Exposed communication a step, mean over iterations and ranks, in milliseconds.
    pub exposed_ms: f64,
    /// `exposed_ms` / mean step, in percent.
    pub exposed_pct: f64,
}

impl Headline {
    /// The headline of a run; `None` if no step of it took any time.
    pub fn of(run: &Run) -> Option<Self> {
        let steps = &run.exposure().steps;
        let mut spans_ns: Vec<u64> = run
            .exposure()
            .iterations()
            .filter_map(|ranks| ranks.iter().map(|step| step.figures.span_ns).max())
            .collect();
        let mean_ns = spans_ns.iter().sum::<u64>() as f64 / spans_ns.len() as f64;
        let exposed_ns = steps.iter().map(|step| step.figures.exposed_ns).sum::<u64>() as f64 / steps.len() as f64;
        let step_median_ms = statistics::median(&mut spans_ns).filter(|ns| *ns > 0.0)? / 1e6;
        let exposed_pct = 100.0 * exposed_ns / mean_ns;
        Some(Self { step_median_ms, step_mean_ms: mean_ns / 1e6, exposed_ms: exposed_ns / 1e6, exposed_pct })
    }
}

/// What was run and how, its headline, and what it noted: at least two lines a run.
pub(crate) fn runs(runs: &[Run]) -> Vec<String> {
    let mut lines = Vec::new();
    for run in runs {
        let name = if runs.len() > 1 { format!("{}: ", run.info.id) } else { String::new() };
        lines.push(format!("{name}{}", setup(run)));
        if let Some(headline) = Headline::of(run) {
            let Headline { step_median_ms, exposed_ms, exposed_pct, .. } = headline;
            lines.push(format!(
                "{name}Step {step_median_ms:.3} ms (median), exposed communication {exposed_ms:.3} ms \
                 ({exposed_pct:.1} % of the mean step)."
            ));
        }
        lines.extend(run.info.notes.iter().map(|note| format!("{name}Note: {note}.")));
    }
    lines
}

/// One line: pattern, back end, world, counts, settings.
fn setup(run: &Run) -> String {
    let (info, settings) = (&run.info, &run.info.settings);
    let origin = match info.made_by {
        Origin::Replay => "replayed on",
        Origin::Import => "captured, read by",
        Origin::Dry => "simulated by",
    };
    let axes: Vec<String> = info.axes.iter().map(axis).collect();
    let mut line = format!(
        "{} {origin} {}, {} ({}): {} x {}, {} a turn dropped",
        info.pattern.name,
        info.backend,
        count(info.ranks, "rank"),
        axes.join(", "),
        count(settings.iterations, "iteration"),
        count(settings.rounds, "round"),
        count(settings.warm_up, "warm-up iteration"),
    );
    for (what, value) in [("pacing", &settings.pacing), ("compute", &settings.compute)] {
        if let Some(value) = value {
            line += &format!(", {what} {value}");
        }
    }
    if settings.back_to_back > 1 {
        line += &format!(", alone the mean of {} back to back", settings.back_to_back);
    }
    line + "."
}

fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn axis(axis: &AxisInfo) -> String {
    match (axis.size, &axis.teams) {
        (Some(size), _) => format!("{}={size}", axis.name),
        (None, Some(teams)) => format!("{}={} teams", axis.name, teams.len()),
        (None, None) => axis.name.clone(),
    }
}

/// What slowdown means.
pub(crate) const SLOWDOWN: &str = "Slowdown = median overlapped / median alone, of the transfer time (from the last \
    rank's arrival) of communication and of the latency of compute.";
