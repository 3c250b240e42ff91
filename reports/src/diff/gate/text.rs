//! What became of the rules, as a table like any other.

use super::judge::{Judgement, Outcome};
use crate::view::{Show, Shown};
use crate::{Value, View};

const SHOWN: [Shown; 5] = [
    Shown::new("Rule", "rule", Show::Text),
    Shown::new("Of", "of", Show::Text),
    Shown::new("Metric", "metric", Show::Text),
    Shown::new("Outcome", "outcome", Show::Text),
    Shown::new("Why", "why", Show::Text),
];

impl Judgement {
    /// A row a rule and block, and the outcome of all below.
    pub fn view(&self) -> View {
        let rows = self.all.iter().map(|judged| {
            [&judged.rule, &judged.subject, judged.metric, judged.outcome.name(), &judged.why]
                .map(|text| Value::Text(text.to_owned()))
                .to_vec()
        });
        let [failed, open] = [Outcome::Fail, Outcome::Inconclusive].map(|outcome| self.count(outcome));
        let passed = self.all.len() - failed - open;
        let (outcome, code) = match self.outcome() {
            Outcome::Pass => ("passed", 0),
            Outcome::Fail => ("failed", 1),
            Outcome::Inconclusive => ("inconclusive", 3),
        };
        View {
            keys: SHOWN.map(|shown| shown.key.to_owned()).to_vec(),
            rows: rows.collect(),
            shown: SHOWN.to_vec(),
            notes: vec![format!(
                "Gate {outcome} (exit code {code}): {failed} failed, {open} inconclusive, {passed} passed."
            )],
        }
    }
}
