//! The file of rules. YAML, read by serde: unknown keys and wrong types are refused with line and column.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _, Visitor};

use crate::diff::{Metric, Row, Subject, glob};
use crate::{Error, Result};

/// Rules, read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// Chance of any false failure, if nothing changed.
    pub(super) alpha: f64,
    /// Fewest runs a side.
    pub(super) min_runs: usize,
    pub(super) rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    pub name: String,
    pub select: Option<Select>,
    pub metric: Metric,
    pub direction: Direction,
    /// As a fraction.
    pub threshold: f64,
}

/// In which direction a change breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    Increase,
    Decrease,
    Either,
}

/// Which blocks a rule is about; what is not given takes all.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Select {
    /// Name, with `*` for any text.
    pub block: Option<String>,
    pub axis: Option<String>,
    pub kind: Option<String>,
    #[serde(deserialize_with = "bytes")]
    pub min_size: Option<u64>,
    #[serde(deserialize_with = "bytes")]
    pub max_size: Option<u64>,
}

/// The file as it is written.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    gate: u32,
    #[serde(default = "usual_alpha")]
    alpha: f64,
    #[serde(default = "usual_min_runs")]
    min_runs: usize,
    rules: Vec<WrittenRule>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    name: Option<String>,
    select: Option<Select>,
    metric: Named,
    direction: Option<Direction>,
    threshold: Percent,
}

fn usual_alpha() -> f64 {
    0.05
}

fn usual_min_runs() -> usize {
    6
}

impl Gate {
    /// Reads rules from `text`, the content of `path`, which is for messages only.
    ///
    /// # Errors
    /// What is wrong, with line and column where there is one, and what would help.
    pub fn read(text: &str, path: &Path) -> Result<Self> {
        let wrong = |why: String| Error::Rules { path: path.to_owned(), why };
        let written: Written = serde_saphyr::from_str(text).map_err(|error| wrong(explained(&error)))?;
        if written.gate != 1 {
            return Err(wrong(format!("gate: {}: this maestro reads version 1; write gate: 1", written.gate)));
        }
        if !(written.alpha > 0.0 && written.alpha < 0.5) {
            return Err(wrong(format!("alpha: {}: give a chance above 0 and below 0.5, as 0.05", written.alpha)));
        }
        if written.rules.is_empty() {
            return Err(wrong("rules: there are none, and a gate without rules lets everything pass; add one".into()));
        }
        let mut names = BTreeSet::new();
        let mut rules = Vec::with_capacity(written.rules.len());
        for (place, rule) in written.rules.into_iter().enumerate() {
            let rule = rule.checked(place + 1).map_err(wrong)?;
            if !names.insert(rule.name.clone()) {
                return Err(wrong(format!("rules: two are named `{}`; give each its own name", rule.name)));
            }
            rules.push(rule);
        }
        Ok(Self { alpha: written.alpha, min_runs: written.min_runs.max(1), rules })
    }

    /// The metrics that the rules are about, which the comparison must have.
    pub fn metrics(&self) -> Vec<Metric> {
        self.rules.iter().map(|rule| rule.metric).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl WrittenRule {
    fn checked(self, place: usize) -> std::result::Result<Rule, String> {
        let metric = self.metric.0;
        let name = self.name.unwrap_or_else(|| format!("rule {place}"));
        if self.select.is_some() && !metric.of_blocks() {
            return Err(format!(
                "rule `{name}`: {} is of the step, and `select` chooses blocks; leave it out",
                metric.name()
            ));
        }
        let worse = if metric.more_is_better() { Direction::Decrease } else { Direction::Increase };
        let direction = self.direction.unwrap_or(worse);
        Ok(Rule { name, select: self.select, metric, direction, threshold: self.threshold.0 })
    }
}

impl Rule {
    /// Whether the rule is about `row`. What the step has, too, is of the step unless blocks are selected.
    pub(super) fn selects(&self, row: &Row) -> bool {
        if row.metric != self.metric {
            return false;
        }
        match (&row.subject, &self.select) {
            (Subject::Step, select) => select.is_none(),
            (Subject::Block { .. }, None) => !self.metric.of_step(),
            (Subject::Block { block, axis }, Some(select)) => {
                let is = |wanted: &Option<String>, found: Option<&str>| {
                    wanted.as_deref().is_none_or(|wanted| found.is_some_and(|found| glob::matches(wanted, found)))
                };
                is(&select.block, Some(block))
                    && is(&select.axis, axis.as_deref())
                    && is(&select.kind, row.kind)
                    && select.min_size.is_none_or(|least| row.size_bytes.is_some_and(|size| size >= least))
                    && select.max_size.is_none_or(|most| row.size_bytes.is_some_and(|size| size <= most))
            }
        }
    }

    /// Whether a change in this direction breaks the rule.
    pub(super) fn forbids(&self, change: f64) -> bool {
        match self.direction {
            Direction::Increase => change > 0.0,
            Direction::Decrease => change < 0.0,
            Direction::Either => change != 0.0,
        }
    }
}

/// The reader's error in one line, with its place.
fn explained(error: &serde_saphyr::Error) -> String {
    let message = error.without_snippet().to_string();
    let message = message.lines().next().unwrap_or("not YAML").trim_end_matches('.');
    let what = message.split(" at line ").next().unwrap_or(message);
    let what =
        what.split_once(": ").filter(|(start, _)| start.starts_with("error: line ")).map_or(what, |(_, what)| what);
    let place = error.location().map(|at| format!("line {}, column {}: ", at.line(), at.column())).unwrap_or_default();
    format!("{place}{what}; docs/DIFF.md shows the format")
}

/// A metric by its name.
struct Named(Metric);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Metric::from_name(&name).map(Self).map_err(D::Error::custom)
    }
}

/// A percentage, as a fraction. With its sign, because a bare 0.05 may mean either.
struct Percent(f64);

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Wanted;
        impl Visitor<'_> for Wanted {
            type Value = Percent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a percentage such as 5%")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Percent, E> {
                let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
                let number = number.filter(|number| (0.0..=1000.0).contains(number));
                number.map(|number| Percent(number / 100.0)).ok_or_else(|| {
                    E::custom(format!("`{text}` is no percentage from 0% to 1000%; write it as threshold: 5%"))
                })
            }
        }
        deserializer.deserialize_str(Wanted)
    }
}

/// A size as in patterns: 4194304, 4MiB.
fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let size = text.parse().ok().or_else(|| maestro_pattern::parse_bytes(&text));
    size.map(Some).ok_or_else(|| D::Error::custom(format!("`{text}` is no size; write it as 4194304, 64MiB or 1.2GB")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Gate> {
        Gate::read(text, Path::new("rules.yaml"))
    }

    #[test]
    fn a_file_with_everything() {
        let gate = read(
            "gate: 1\nalpha: 0.01\nmin_runs: 8\nrules:\n\
             - {name: a, select: {block: 'g*', axis: dp, kind: all_gather, min_size: 1MiB, max_size: 4096}, \
               metric: busbw, direction: either, threshold: 2.5 %}\n\
             - {metric: step, threshold: 3%}\n\
             - {name: c, metric: busbw, threshold: 0%}\n",
        )
        .unwrap();
        assert_eq!((gate.alpha, gate.min_runs, gate.metrics()), (0.01, 8, vec![Metric::Step, Metric::Busbw]));
        let select = gate.rules[0].select.clone().unwrap();
        assert_eq!((select.min_size, select.max_size), (Some(1 << 20), Some(4096)));
        assert_eq!((gate.rules[0].threshold, gate.rules[0].direction), (0.025, Direction::Either));
        assert_eq!((gate.rules[1].name.as_str(), gate.rules[1].direction), ("rule 2", Direction::Increase));
        assert_eq!(gate.rules[2].direction, Direction::Decrease);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let rule = |rule: &str| format!("gate: 1\nrules:\n- {rule}\n");
        let mut failed = Vec::new();
        for (text, words) in [
            (rule("{metric: stp, threshold: 3%}"), ["line 3, column 12", "no metric is named `stp`; there are step"]),
            (
                rule("{metric: step, treshold: 3%}"),
                ["line 3, column 18", "expected one of name, select, metric, direction, threshold"],
            ),
            (rule("{metric: step, threshold: 3}"), ["line 3, column 29", "`3` is no percentage"]),
            (rule("{metric: step, threshold: -3%}"), ["line 3, column 29", "`-3%` is no percentage"]),
            (rule("{metric: step}"), ["line 3", "threshold"]),
            (rule("{metric: step, select: {axis: dp}, threshold: 3%}"), ["rule 1", "leave it out"]),
            (rule("{metric: alone, select: {min_size: big}, threshold: 3%}"), ["line 3", "`big` is no size"]),
            (rule("{metric: alone, direction: up, threshold: 3%}"), ["line 3", "increase"]),
            ("gate: 2\nrules: []\n".into(), ["version 1", "gate: 1"]),
            ("gate: 1\nrules: []\n".into(), ["rules.yaml", "add one"]),
            ("rules: []\n".into(), ["line 1", "gate"]),
            ("gate: 1\nalpha: 5\nrules: []\n".into(), ["alpha", "0.05"]),
            ("".into(), ["rules.yaml", "docs/DIFF.md"]),
            ("gate: [1\n".into(), ["rules.yaml", "docs/DIFF.md"]),
            (
                "gate: 1\nrules:\n- {name: a, metric: step, threshold: 1%}\n- {name: a, metric: step, threshold: 2%}\n"
                    .into(),
                ["`a`", "its own name"],
            ),
        ] {
            let said = read(&text).unwrap_err().to_string();
            if !(words.iter().all(|word| said.contains(word)) && said.lines().count() == 1) {
                failed.push(format!("{text}: {said}"));
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}
