//! What a comparison of several runs a side proves: the words at the top of the page, and the drawing of its changes.

use serde::Serialize;

use super::headline::{Number, ms};
use crate::diff::{Diff, Metric, Row, Subject, Verdict};

/// A row of the comparison, as it is drawn.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Change {
    /// `step`, or the block with its axis.
    name: String,
    metric: &'static str,
    /// after / before - 1, in percent; missing where before is 0.
    change_pct: Option<f64>,
    /// Its 95 % interval.
    interval_pct: Option<(f64, f64)>,
    /// What the runs before differ by among themselves.
    noise_pct: Option<f64>,
    verdict: &'static str,
}

/// Every row, in the order of the comparison.
pub(super) fn changes(diff: &Diff) -> Vec<Change> {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let of = |row: &Row| Change {
        name: row.name(),
        metric: row.metric.name(),
        change_pct: row.ratio.map(percent),
        interval_pct: row.interval.map(|(low, high)| (percent(low), percent(high))),
        noise_pct: row.floor.map(|floor| 100.0 * floor),
        verdict: row.verdict.name(),
    };
    diff.rows.iter().map(of).collect()
}

/// The step, where it is compared.
fn step_row(diff: &Diff) -> Option<&Row> {
    diff.rows.iter().find(|row| row.subject == Subject::Step && row.metric == Metric::Step)
}

/// What became of the step; of what is compared without it, what became of that.
pub(super) fn sentence(diff: &Diff) -> String {
    let times = step_row(diff).and_then(|row| Some((row, row.before?, row.after?)));
    let Some((row, before, after)) = times else {
        return diff.headline().unwrap_or_else(|| "The comparison gives no verdict".to_owned());
    };
    let (before, after) = (ms(before), ms(after));
    let takes = format!("After, the step takes {after} ms");
    let percent = 100.0 * row.change();
    match row.verdict {
        Verdict::Worse => format!("{takes}, {percent:.1} % more than before ({before} ms)"),
        Verdict::Better => format!("{takes}, {:.1} % less than before ({before} ms)", -percent),
        Verdict::Unclear => format!("{takes}, before {before} ms: no change of it is proved"),
        Verdict::TooFew => format!("{takes}, before {before} ms: too few runs for a verdict"),
        Verdict::Refused => format!("{takes}, before {before} ms: no verdict can be given"),
    }
}

/// How many verdicts there are of which kind, where the sentence does not say so.
pub(super) fn lead(diff: &Diff) -> Option<String> {
    step_row(diff).and_then(|_| diff.headline())
}

/// The step's number, where it is compared.
pub(super) fn step(diff: &Diff) -> Option<Number> {
    let row = step_row(diff)?;
    let mut beside =
        format!("median of {} runs; before {} ms, {:+.1} %", row.runs.1, ms(row.before?), 100.0 * row.change());
    if let Some((low, high)) = row.interval {
        beside += &format!(" [{:+.1}, {:+.1}]", 100.0 * (low - 1.0), 100.0 * (high - 1.0));
    }
    Some(Number { name: "Step", value: ms(row.after?), unit: "ms", beside })
}
