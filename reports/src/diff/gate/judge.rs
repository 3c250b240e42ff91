//! Judges rules on a comparison.

use std::collections::BTreeSet;
use std::path::Path;

use super::rules::{Gate, Rule};
use crate::diff::{Diff, Row, Verdict, rank_test, runs_needed};
use crate::{Error, Result};

/// What becomes of a rule on one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No change beyond the threshold, and one would have been seen.
    Pass,
    /// A change beyond the threshold is proved.
    Fail,
    /// Neither can be said.
    Inconclusive,
}

impl Outcome {
    /// As reports say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// A rule, judged on the step or on one block.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The rule's name.
    pub rule: String,
    /// What it was judged on.
    pub subject: String,
    /// Name of the metric.
    pub metric: &'static str,
    /// What became of it.
    pub outcome: Outcome,
    /// Why, in one sentence.
    pub why: String,
}

/// All rules, judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Each rule on each block, in the order of the rules.
    pub all: Vec<Judged>,
}

impl Gate {
    /// Judges every rule on every row of `diff` that it selects. `path` is the file of the rules, for messages.
    ///
    /// # Errors
    /// A rule that selects nothing: it would let everything pass.
    pub fn judge(&self, diff: &Diff, path: &Path) -> Result<Judgement> {
        let mut chosen: BTreeSet<usize> = BTreeSet::new();
        for rule in &self.rules {
            let rows: Vec<usize> = (0..diff.rows.len()).filter(|row| rule.selects(&diff.rows[*row])).collect();
            if rows.is_empty() {
                return Err(Error::Rules { path: path.to_owned(), why: selects_nothing(rule, diff) });
            }
            chosen.extend(rows);
        }
        // What no rule asks about is no comparison of this gate, and needs no correction.
        let p: Vec<f64> = chosen.iter().map(|row| diff.rows[*row].p.unwrap_or(1.0)).collect();
        let corrected = rank_test::holm(&p);
        let p_of = |row: usize| chosen.iter().position(|one| *one == row).map_or(1.0, |place| corrected[place]);
        let mut all = Vec::new();
        for rule in &self.rules {
            for (place, row) in diff.rows.iter().enumerate().filter(|(_, row)| rule.selects(row)) {
                let (outcome, why) = self.one(rule, row, p_of(place), p.len());
                let (subject, metric) = (row.name(), row.metric.name());
                all.push(Judged { rule: rule.name.clone(), subject, metric, outcome, why });
            }
        }
        Ok(Judgement { all })
    }

    fn one(&self, rule: &Rule, row: &Row, p: f64, comparisons: usize) -> (Outcome, String) {
        let inconclusive = |why: String| (Outcome::Inconclusive, why);
        if row.verdict == Verdict::Refused {
            return inconclusive("more changed than was declared, or the runs are simulated: see the notes".into());
        }
        let runs = row.runs.0.min(row.runs.1);
        if runs < self.min_runs || !row.decidable(comparisons, self.alpha) {
            let needed = self.min_runs.max(runs_needed(comparisons, self.alpha));
            return inconclusive(format!(
                "{} + {} runs are too few: {comparisons} comparisons at alpha {} take {needed} a side",
                row.runs.0, row.runs.1, self.alpha
            ));
        }
        let (change, threshold) = (row.change(), 100.0 * rule.threshold);
        let changed = if change.is_infinite() { "from 0".to_owned() } else { format!("{:+.1} %", 100.0 * change) };
        let (forbidden, proved) = (rule.forbids(change), p <= self.alpha);
        if forbidden && proved && row.beyond(rule.threshold) {
            return (Outcome::Fail, format!("{changed}, proved (p {p:.4}), where {threshold} % are allowed"));
        }
        let floor = row.floor.unwrap_or(0.0);
        if floor > rule.threshold {
            return inconclusive(format!(
                "{changed}; the runs before differ among themselves by {:.1} %, more than the {threshold} % to be seen: \
                 make them quieter, make more, or allow more",
                100.0 * floor
            ));
        }
        if forbidden && change.abs() > rule.threshold {
            return inconclusive(format!(
                "{changed}, more than {threshold} %, but not proved (p {p:.4}): make more runs"
            ));
        }
        (Outcome::Pass, format!("{changed}, where {threshold} % are allowed"))
    }
}

fn selects_nothing(rule: &Rule, diff: &Diff) -> String {
    let of_metric = diff.rows.iter().filter(|row| row.metric == rule.metric);
    let there: Vec<String> = of_metric.map(|row| format!("{} {}", row.kind.unwrap_or("the"), row.name())).collect();
    let there = if there.is_empty() { "nothing".to_owned() } else { there.join(", ") };
    format!("rule `{}` selects nothing; {} is compared of {there}", rule.name, rule.metric.name())
}

impl Judgement {
    /// What becomes of the whole: one failure fails it, and without one what is inconclusive leaves it so.
    pub fn outcome(&self) -> Outcome {
        let any = |outcome| self.all.iter().any(|judged| judged.outcome == outcome);
        if any(Outcome::Fail) {
            Outcome::Fail
        } else if any(Outcome::Inconclusive) {
            Outcome::Inconclusive
        } else {
            Outcome::Pass
        }
    }

    /// How many came out so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.all.iter().filter(|judged| judged.outcome == outcome).count()
    }
}
