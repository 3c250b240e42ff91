//! Before and after: whether two sets of runs differ, in what, by how much, and how sure that is.
//!
//! The unit is the run: a process of its own with communicators of its own. Iterations of one run share its memory
//! placement and its neighbours, so a thousand of them are still one sample of what changes from run to run. Each run
//! is one number for each metric (its median), and sides are compared by these:
//!
//! - a Mann-Whitney test tells whether they differ (`rank_test`), corrected by Holm for asking of every block and metric;
//! - a bootstrap on two levels, runs and then iterations, tells by how much (`interval`);
//! - what the halves of the runs before differ by is the noise floor: less than that no verdict speaks of;
//! - and no verdict at all is given where something else changed (`changes`).
//!
//! No Polars here: the lean replayer compares, too. What is seldom obvious: a family of many comparisons needs more runs,
//! because the smallest p-value of few runs is large. Six runs a side can decide 23 comparisons, seven 85.

mod changes;
mod figures;
mod gate;
mod glob;
mod interval;
mod metric;
mod rank_test;
mod tail;
#[cfg(test)]
mod vectors;
mod verdict;
mod view;

use std::collections::BTreeSet;

pub use changes::Change;
pub use figures::Subject;
pub use gate::{Gate, Judged, Judgement, Outcome};
pub use metric::Metric;
pub use rank_test::runs_needed;
pub use verdict::Verdict;

use changes::Facts;
use figures::{About, Figure, Figures};

use crate::{Error, Headline, Origin, Result, Run, RunInfo};

/// How to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What is compared.
    pub metrics: Vec<Metric>,
    /// Names of the blocks that are compared, with `*` for any text; empty for all.
    pub blocks: Vec<String>,
    /// Chance of any false verdict in the whole comparison, if nothing changed.
    pub alpha: f64,
    /// Least change that is spoken of, as a fraction.
    pub threshold: f64,
    /// Facts that are meant to differ, with `*` for any text.
    pub declared: Vec<String>,
    /// Resamples of the bootstrap.
    pub resamples: usize,
    /// Its seed.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            metrics: Metric::USUAL.to_vec(),
            blocks: Vec::new(),
            alpha: 0.05,
            threshold: 0.01,
            declared: Vec::new(),
            resamples: 10_000,
            seed: 0x006d_6165_7374_726f,
        }
    }
}

/// The runs of one side, each reduced to what is compared.
#[derive(Debug, Default)]
pub struct Side {
    runs: Vec<Reduced>,
}

#[derive(Debug)]
struct Reduced {
    info: RunInfo,
    facts: Facts,
    figures: Figures,
    /// Its median step, if it took any time.
    step_ms: Option<f64>,
}

impl Side {
    /// Adds a run; it is not needed afterwards.
    pub fn add(&mut self, run: &Run, options: &Options) {
        self.runs.push(Reduced {
            info: run.info.clone(),
            facts: changes::facts(&run.info, &run.pattern),
            figures: Figures::of(run, &options.metrics),
            step_ms: Headline::of(run).map(|headline| headline.step_median_ms),
        });
    }

    /// Which of its runs, in the order in which they were added, has the middle one of their median steps: of an even
    /// number the lower. `None` if there are none.
    pub fn typical(&self) -> Option<usize> {
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by(|a, b| {
            let step = |run: &usize| self.runs[*run].step_ms.unwrap_or(0.0);
            step(a).total_cmp(&step(b))
        });
        order.get(order.len().saturating_sub(1) / 2).copied()
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    fn figures(&self, subject: &Subject, metric: Metric) -> Vec<&Figure> {
        self.runs.iter().filter_map(|run| run.figures.all.get(&(subject.clone(), metric))).collect()
    }

    /// Its blocks in the order of the first run that has them.
    fn blocks(&self) -> Vec<(&Subject, &About)> {
        let mut known = BTreeSet::new();
        let all = self.runs.iter().flat_map(|run| &run.figures.blocks);
        all.filter(|(subject, _)| known.insert(subject)).map(|(subject, about)| (subject, about)).collect()
    }
}

/// One metric of the step or of a block, before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is of.
    pub subject: Subject,
    /// What it is.
    pub metric: Metric,
    /// Kind of the block; `None` of the step.
    pub kind: Option<&'static str>,
    /// Size of the block, where it has one.
    pub size_bytes: Option<u64>,
    /// Median over the runs before, in the metric's unit.
    pub before: Option<f64>,
    /// Median over the runs after.
    pub after: Option<f64>,
    /// after / before; `None` where before is 0.
    pub ratio: Option<f64>,
    /// The 95 % interval of the ratio; from five runs a side on.
    pub interval: Option<(f64, f64)>,
    /// Runs before and after that have it.
    pub runs: (usize, usize),
    /// p-value of the Mann-Whitney test.
    pub p: Option<f64>,
    /// The same, corrected for all rows (Holm).
    pub p_holm: Option<f64>,
    /// What the runs before differ by among themselves, as a fraction; from four runs on.
    pub floor: Option<f64>,
    /// What is said of it.
    pub verdict: Verdict,
}

impl Row {
    /// after / before - 1; infinite where something came of nothing.
    pub(crate) fn change(&self) -> f64 {
        match (self.ratio, self.before, self.after) {
            (Some(ratio), ..) => ratio - 1.0,
            (None, Some(before), Some(after)) if after > before => f64::INFINITY,
            _ => 0.0,
        }
    }

    /// Whether the change is larger than `threshold` and than noise.
    pub(crate) fn beyond(&self, threshold: f64) -> bool {
        self.change().abs() > self.floor.unwrap_or(0.0).max(threshold)
    }

    /// Whether so many runs could prove anything among `comparisons`.
    pub(crate) fn decidable(&self, comparisons: usize, alpha: f64) -> bool {
        rank_test::smallest_p(self.runs.0, self.runs.1) * comparisons as f64 <= alpha
    }

    /// `block (axis)`, or `step`.
    pub(crate) fn name(&self) -> String {
        match &self.subject {
            Subject::Step => "step".to_owned(),
            Subject::Block { block, axis: None } => block.clone(),
            Subject::Block { block, axis: Some(axis) } => format!("{block} ({axis})"),
        }
    }
}

/// Two sets of runs, compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// Ids of the runs before.
    pub before: Vec<String>,
    /// Ids of the runs after.
    pub after: Vec<String>,
    /// What else differs.
    pub changes: Vec<Change>,
    /// The step first, then the blocks in the pattern's order.
    pub rows: Vec<Row>,
    /// Geometric mean of after / before over blocks, and of how many, by metric.
    pub means: Vec<(Metric, f64, usize)>,
    /// How it was compared.
    pub options: Options,
    /// What a reader should know beside.
    remarks: Vec<String>,
    /// Whether any run is a simulation.
    simulated: bool,
}

impl Diff {
    /// Compares two sides, whose runs were added with the same `options`.
    ///
    /// # Errors
    /// A side without runs, or sides that have nothing in common that is asked for.
    pub fn of(before: &Side, after: &Side, options: &Options) -> Result<Self> {
        if before.is_empty() || after.is_empty() {
            return Err(incomparable("a side has no runs; give run folders before and after --against".into()));
        }
        let mut rows = rows(before, after, options);
        if rows.is_empty() {
            return Err(incomparable(nothing(before, options)));
        }
        let variants = before.runs.iter().chain(&after.runs).flat_map(|run| run.info.environment.variant.keys());
        let declared: Vec<String> = options.declared.iter().cloned().chain(variants.cloned()).collect();
        let facts = |side: &Side| side.runs.iter().map(|run| run.facts.clone()).collect::<Vec<_>>();
        let (of_before, of_after) = (facts(before), facts(after));
        let changes =
            changes::changes(&of_before.iter().collect::<Vec<_>>(), &of_after.iter().collect::<Vec<_>>(), &declared);

        let simulated = before.runs.iter().chain(&after.runs).any(|run| run.info.made_by == Origin::Dry);
        let refused = simulated || changes.iter().any(|change| !change.declared);
        decide(&mut rows, options, refused);
        let ids = |side: &Side| side.runs.iter().map(|run| run.info.id.clone()).collect();
        Ok(Self {
            before: ids(before),
            after: ids(after),
            changes,
            means: means(&rows),
            rows,
            options: options.clone(),
            remarks: remarks(before, after),
            simulated,
        })
    }

    /// Whether verdicts are refused.
    pub fn refused(&self) -> bool {
        self.rows.iter().any(|row| row.verdict == Verdict::Refused)
    }
}

fn incomparable(why: String) -> Error {
    Error::Incomparable { why }
}

/// Why there is nothing to compare.
fn nothing(before: &Side, options: &Options) -> String {
    let blocks: Vec<&str> = before
        .blocks()
        .into_iter()
        .filter_map(|(subject, _)| match subject {
            Subject::Step => None,
            Subject::Block { block, .. } => Some(block.as_str()),
        })
        .collect();
    let metrics: Vec<&str> = options.metrics.iter().map(|metric| metric.name()).collect();
    let blocks = if blocks.is_empty() { "no block that communicates".to_owned() } else { blocks.join(", ") };
    format!(
        "nothing to compare: no block that was asked for has {} on both sides; the runs before have {blocks}",
        metrics.join(", ")
    )
}

/// Every subject and metric that both sides have, without verdicts.
fn rows(before: &Side, after: &Side, options: &Options) -> Vec<Row> {
    let asked = |subject: &Subject| match subject {
        Subject::Step => true,
        Subject::Block { block, .. } => {
            options.blocks.is_empty() || options.blocks.iter().any(|pattern| glob::matches(pattern, block))
        }
    };
    let step = (&Subject::Step, None);
    let blocks = before.blocks().into_iter().map(|(subject, about)| (subject, Some(about)));
    let mut rows = Vec::new();
    for (subject, about) in [step].into_iter().chain(blocks).filter(|(subject, _)| asked(subject)) {
        for metric in Metric::ALL.into_iter().filter(|metric| options.metrics.contains(metric)) {
            let seed = options.seed.wrapping_add(rows.len() as u64);
            let sides = [before, after].map(|side| side.figures(subject, metric));
            rows.extend(row(subject, about, metric, &sides, options.resamples, seed));
        }
    }
    rows
}

fn row(
    subject: &Subject,
    about: Option<&About>,
    metric: Metric,
    [before, after]: &[Vec<&Figure>; 2],
    resamples: usize,
    seed: u64,
) -> Option<Row> {
    let values = |side: &[&Figure]| side.iter().filter_map(|figure| figure.value()).collect::<Vec<f64>>();
    let (of_before, of_after) = (values(before), values(after));
    let p = rank_test::mann_whitney(&of_before, &of_after)?;
    let median_before = interval::median(&mut of_before.clone());
    let median_after = interval::median(&mut of_after.clone());
    let ratio = median_before.filter(|before| *before > 0.0).zip(median_after).map(|(before, after)| after / before);
    Some(Row {
        subject: subject.clone(),
        metric,
        kind: about.map(|about| about.kind),
        size_bytes: about.and_then(|about| about.size_bytes),
        before: median_before,
        after: median_after,
        ratio,
        interval: ratio.and_then(|_| interval::ratio(before, after, resamples, seed)),
        runs: (of_before.len(), of_after.len()),
        p: Some(p),
        p_holm: None,
        floor: interval::noise_floor(&of_before, seed),
        verdict: Verdict::Unclear,
    })
}

/// Corrects the p-values and says what is proved.
fn decide(rows: &mut [Row], options: &Options, refused: bool) {
    let p: Vec<f64> = rows.iter().map(|row| row.p.unwrap_or(1.0)).collect();
    let comparisons = rows.len();
    for (row, p_holm) in rows.iter_mut().zip(rank_test::holm(&p)) {
        row.p_holm = Some(p_holm);
        row.verdict = if refused {
            Verdict::Refused
        } else if !row.decidable(comparisons, options.alpha) {
            Verdict::TooFew
        } else if p_holm > options.alpha || !row.beyond(options.threshold) {
            Verdict::Unclear
        } else if (row.change() > 0.0) == row.metric.more_is_better() {
            Verdict::Better
        } else {
            Verdict::Worse
        };
    }
}

/// The geometric mean of the ratios over blocks, of metrics that several have.
fn means(rows: &[Row]) -> Vec<(Metric, f64, usize)> {
    let mean = |metric: Metric| {
        let of_blocks = rows.iter().filter(|row| row.metric == metric && row.subject != Subject::Step);
        let logs: Vec<f64> = of_blocks.filter_map(|row| row.ratio).filter(|r| *r > 0.0).map(f64::ln).collect();
        (logs.len() > 1).then(|| (metric, (logs.iter().sum::<f64>() / logs.len() as f64).exp(), logs.len()))
    };
    Metric::ALL.into_iter().filter_map(mean).collect()
}

/// What a reader should know beside the table.
fn remarks(before: &Side, after: &Side) -> Vec<String> {
    let mut remarks = Vec::new();
    let started = |side: &Side| side.runs.iter().map(|run| run.info.started_unix_s).collect::<Vec<_>>();
    let (first, second) = (started(before), started(after));
    let apart = |a: &[u64], b: &[u64]| a.iter().max() < b.iter().min();
    if before.len() + after.len() > 2 && (apart(&first, &second) || apart(&second, &first)) {
        remarks.push(
            "All runs of one side were made before those of the other, so what drifts on a machine looks like a change: \
             `maestro replay --ab` takes turns."
                .into(),
        );
    }
    if before.runs.iter().chain(&after.runs).any(|run| run.figures.left_out_held) {
        remarks.push("Compute that only holds its lane is not compared: it lasts as long as it is told to.".into());
    }
    let names = |side: &Side| side.blocks().into_iter().map(|(subject, _)| subject.clone()).collect::<BTreeSet<_>>();
    let (ours, theirs) = (names(before), names(after));
    for (which, missing) in [("before", ours.difference(&theirs)), ("after", theirs.difference(&ours))] {
        let listed: Vec<String> = missing
            .map(|subject| match subject {
                Subject::Step => "step".to_owned(),
                Subject::Block { block, .. } => block.clone(),
            })
            .collect();
        if !listed.is_empty() {
            remarks.push(format!("Only {which}, and so not compared: {}.", listed.join(", ")));
        }
    }
    remarks
}
