//! A comparison as a table with its method, and as one JSON document.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::{Diff, Metric, Row, Subject, Verdict, runs_needed};
use crate::view::{Show, Shown};
use crate::{Value, View};

/// Version of the JSON document, key `schema`.
const SCHEMA: u32 = 1;

const KEYS: [&str; 17] = [
    "block",
    "axis",
    "kind",
    "size_bytes",
    "metric",
    "unit",
    "before",
    "after",
    "change_pct",
    "change_pct_lo",
    "change_pct_hi",
    "p",
    "p_holm",
    "noise_floor_pct",
    "before_runs",
    "after_runs",
    "verdict",
];

const SHOWN: [Shown; 10] = [
    Shown::new("Block", "block", Show::Text),
    Shown::new("Axis", "axis", Show::Text),
    Shown::new("Metric", "metric", Show::Text),
    Shown::new("Unit", "unit", Show::Text),
    Shown::new("Before", "before", Show::Significant),
    Shown::new("After", "after", Show::Significant),
    Shown::new("Change (%)", "change_pct", Show::Change).after_bar(),
    Shown::new("Noise (%)", "noise_floor_pct", Show::Percent),
    Shown::new("p", "p_holm", Show::Significant),
    Shown::new("Verdict", "verdict", Show::Text),
];

impl Diff {
    /// The table: one row a metric of the step or of a block, and the method below.
    pub fn view(&self) -> View {
        View {
            keys: KEYS.map(str::to_owned).to_vec(),
            rows: self.rows.iter().map(Row::cells).collect(),
            shown: SHOWN.to_vec(),
            notes: self.notes(),
        }
    }

    /// Everything as one document.
    ///
    /// # Errors
    /// None that could be foreseen: it is written to memory.
    pub fn document(&self) -> serde_json::Result<Json> {
        let changes = self.changes.iter().map(|change| {
            json!({
                "key": change.key, "before": change.before, "after": change.after, "declared": change.declared,
            })
        });
        let means: BTreeMap<&str, Json> = self
            .means
            .iter()
            .map(|(metric, ratio, blocks)| (metric.name(), json!({"ratio": ratio, "blocks": blocks})))
            .collect();
        Ok(json!({
            "schema": SCHEMA,
            "before": self.before,
            "after": self.after,
            "changes": changes.collect::<Vec<_>>(),
            "rows": serde_json::to_value(self.view())?,
            "geometric_means": means,
            "alpha": self.options.alpha,
            "threshold_pct": 100.0 * self.options.threshold,
            "resamples": self.options.resamples,
            "seed": self.options.seed,
            "notes": self.notes(),
        }))
    }

    /// The verdicts in one line: how many, and the largest changes. `None` where there are none.
    pub fn headline(&self) -> Option<String> {
        /// Most rows of a verdict that are named.
        const MOST: usize = 3;
        let of = |verdict: Verdict| {
            let mut rows: Vec<&Row> = self.rows.iter().filter(|row| row.verdict == verdict).collect();
            // As factors, so that halving and doubling count alike.
            rows.sort_by(|a, b| {
                let size = |row: &Row| (1.0 + row.change()).ln().abs();
                size(b).total_cmp(&size(a))
            });
            rows
        };
        let [worse, better, open] = [Verdict::Worse, Verdict::Better, Verdict::Unclear].map(of);
        if worse.is_empty() && better.is_empty() && open.is_empty() {
            return None;
        }
        let mut text =
            format!("{} worse, {} better, of {} no change is proved.", worse.len(), better.len(), open.len());
        for (which, rows) in [("Worse", worse), ("Better", better)].into_iter().filter(|(_, rows)| !rows.is_empty()) {
            let mut named: Vec<String> = rows.iter().take(MOST).map(|row| row.sentence()).collect();
            named.extend(rows.len().checked_sub(MOST + 1).map(|more| format!("and {} more", more + 1)));
            text += &format!(" {which}: {}.", named.join(", "));
        }
        Some(text)
    }

    /// Why there are no verdicts, or none of some rows.
    pub(crate) fn why_no_verdict(&self) -> Vec<String> {
        let mut why = Vec::new();
        if self.simulated {
            why.push(
                "Simulated runs repeat exactly, so statistics on them would look like certainty: there is no verdict."
                    .into(),
            );
        }
        if self.changes.iter().any(|change| !change.declared) {
            why.push("There is no verdict while more changed than was declared.".into());
        }
        let (alpha, comparisons) = (self.options.alpha, self.rows.len());
        if self.rows.iter().any(|row| row.verdict == Verdict::TooFew) {
            why.push(format!(
                "Too few runs: to prove any of {comparisons} comparisons takes {} runs a side at alpha {alpha}. Make more \
                 runs, or compare less with --metric and --block.",
                runs_needed(comparisons, alpha)
            ));
        }
        why
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.headline().into_iter().collect();
        notes.push(format!(
            "Before: {} ({}). After: {} ({}).",
            runs(self.before.len()),
            self.before.join(", "),
            runs(self.after.len()),
            self.after.join(", ")
        ));
        let (declared, undeclared): (Vec<_>, Vec<_>) = self.changes.iter().partition(|change| change.declared);
        notes.extend(declared.iter().map(|change| format!("Changed on purpose: {change}.")));
        notes.extend(undeclared.iter().map(|change| {
            format!("Changed, too: {change}. If that is what you compare, say so with --changed {}.", change.key)
        }));
        notes.extend(self.why_no_verdict());
        let (alpha, comparisons) = (self.options.alpha, self.rows.len());
        for (metric, ratio, blocks) in &self.means {
            notes
                .push(format!("Geometric mean of after / before over {blocks} blocks: {} {ratio:.3}x.", metric.name()));
        }
        notes.push(format!(
            "Each run counts as one value, its median; before and after are medians of those. A change is called better or \
             worse if the runs of the two sides differ by a Mann-Whitney test (p corrected for {comparisons} comparisons by \
             Holm, at most {alpha}) and it exceeds both {} % and the noise, which is what halves of the runs before differ \
             by (95th percentile).",
            100.0 * self.options.threshold
        ));
        if self.rows.iter().any(|row| row.interval.is_some()) {
            notes.push(format!(
                "In brackets the 95 % interval of the change, by a bootstrap over runs and iterations in them ({} \
                 resamples, fixed seed).",
                self.options.resamples
            ));
        }
        notes.extend(self.remarks.iter().cloned());
        notes
    }
}

fn runs(number: usize) -> String {
    format!("{number} run{}", if number == 1 { "" } else { "s" })
}

impl Row {
    /// `scatter overlapped +9.9 %`
    fn sentence(&self) -> String {
        let change = self.ratio.map_or_else(|| "from 0".to_owned(), |ratio| format!("{:+.1} %", 100.0 * (ratio - 1.0)));
        match &self.subject {
            Subject::Step if self.metric == Metric::Step => format!("step {change}"),
            Subject::Step => format!("step's {} {change}", self.metric.name()),
            Subject::Block { block, .. } => format!("{block} {} {change}", self.metric.name()),
        }
    }

    fn cells(&self) -> Vec<Value> {
        let (block, axis) = match &self.subject {
            Subject::Step => (None, None),
            Subject::Block { block, axis } => (Some(block.as_str()), axis.as_deref()),
        };
        let percent = |ratio: Option<f64>| Value::real(ratio.map(|ratio| 100.0 * (ratio - 1.0)));
        vec![
            Value::text(block),
            Value::text(axis),
            Value::text(self.kind),
            Value::integer(self.size_bytes),
            Value::text(Some(self.metric.name())),
            Value::text(Some(self.metric.unit())),
            Value::real(self.before),
            Value::real(self.after),
            percent(self.ratio),
            percent(self.interval.map(|(low, _)| low)),
            percent(self.interval.map(|(_, high)| high)),
            Value::real(self.p),
            Value::real(self.p_holm),
            Value::real(self.floor.map(|floor| 100.0 * floor)),
            Value::Integer(self.runs.0 as u64),
            Value::Integer(self.runs.1 as u64),
            Value::text(Some(self.verdict.name())),
        ]
    }
}
