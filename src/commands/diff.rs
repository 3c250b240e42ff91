//! `maestro diff`: two sets of runs, compared, and judged by rules.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use maestro_reports::diff::{Diff, Gate, Judgement, Metric, Options, Outcome, Side};
use maestro_reports::{Format, Run};
#[cfg(feature = "tables")]
use maestro_reports::{PageOptions, page_of_diff};
use serde_json::json;

use super::folders;
use crate::failure::{Failure, INCONCLUSIVE, REGRESSION};
use crate::{cli, output};

pub fn run(args: &cli::Diff) -> Result<(), Failure> {
    let gate = args.gate.as_deref().map(rules).transpose()?;
    let options = options(args, gate.as_ref());
    let (before, after) = (folders::runs(&args.before)?, folders::runs(&args.against)?);
    apart(&before, &after)?;
    let sides = [side(&before, &options)?, side(&after, &options)?];
    let diff = Diff::of(&sides[0], &sides[1], &options)?;
    let judgement = match (&gate, args.gate.as_deref()) {
        (Some(gate), Some(path)) => Some(gate.judge(&diff, path)?),
        _ => None,
    };
    print(args, (&diff, judgement.as_ref()), [(&sides[0], &before), (&sides[1], &after)])?;
    if let Some(file) = &args.markdown {
        output::write(file, text(&diff, judgement.as_ref(), Format::Markdown)?.as_bytes(), "--markdown")?;
    }
    let Some(judgement) = judgement else { return Ok(()) };
    if let Some(file) = &args.junit {
        output::write(file, judgement.junit().as_bytes(), "--junit")?;
    }
    outcome(&judgement)
}

fn rules(path: &Path) -> anyhow::Result<Gate> {
    let text = std::fs::read_to_string(path).with_context(|| {
        format!("{}: the rules cannot be read; docs/DIFF.md shows the format of the file", path.display())
    })?;
    Ok(Gate::read(&text, path)?)
}

fn options(args: &cli::Diff, gate: Option<&Gate>) -> Options {
    let mut metrics: BTreeSet<Metric> = args.metrics.iter().copied().collect();
    metrics.extend(gate.map(Gate::metrics).unwrap_or_default());
    if metrics.is_empty() {
        metrics.extend(Metric::USUAL);
    }
    Options {
        metrics: metrics.into_iter().collect(),
        blocks: args.blocks.clone(),
        alpha: args.alpha,
        threshold: args.threshold,
        declared: args.changed.clone(),
        ..Options::default()
    }
}

/// Refuses a run that is given twice: it would count as two.
fn apart(before: &[PathBuf], after: &[PathBuf]) -> anyhow::Result<()> {
    let mut known = BTreeSet::new();
    for path in before.iter().chain(after) {
        // What is not there is said when it is opened.
        if path.canonicalize().is_ok_and(|real| !known.insert(real)) {
            bail!("{}: this run is given twice, and each counts as one of its own; give it once", path.display());
        }
    }
    Ok(())
}

/// Reads runs one after the other, each no longer than it takes to reduce it.
///
/// # Errors
/// A folder that is no run.
pub fn side(folders: &[PathBuf], options: &Options) -> anyhow::Result<Side> {
    let mut side = Side::default();
    for folder in folders {
        side.add(&Run::open(folder)?, options);
    }
    Ok(side)
}

#[cfg_attr(not(feature = "tables"), expect(unused_variables))]
fn print(
    args: &cli::Diff,
    (diff, judgement): (&Diff, Option<&Judgement>),
    sides: [(&Side, &[PathBuf]); 2],
) -> anyhow::Result<()> {
    let file = args.output.as_deref();
    #[cfg(feature = "tables")]
    if args.html() {
        let [before, after] = sides.map(|(side, folders)| typical(side, folders));
        let options = PageOptions { command: crate::record::command() };
        return output::page(file, &page_of_diff(diff, judgement, [before?, after?], &options)?);
    }
    output::text(file, &text(diff, judgement, args.format())?)
}

/// The run that stands for its side in drawings.
#[cfg(feature = "tables")]
fn typical(side: &Side, folders: &[PathBuf]) -> anyhow::Result<Run> {
    let folder = side.typical().and_then(|run| folders.get(run)).context("a side has no runs")?;
    Ok(Run::open(folder)?)
}

fn text(diff: &Diff, judgement: Option<&Judgement>, format: Format) -> anyhow::Result<String> {
    let mut text = match format {
        Format::Json => return Ok(output::pretty(&document(diff, judgement)?)),
        Format::Table | Format::Markdown | Format::Csv => diff.view().render(format),
    };
    if let (Some(judgement), Format::Table | Format::Markdown) = (judgement, format) {
        text += &format!("\n{}", judgement.view().render(format));
    }
    Ok(text)
}

/// The comparison as one JSON document.
///
/// # Errors
/// As [`Diff::document`].
pub fn document(diff: &Diff, judgement: Option<&Judgement>) -> anyhow::Result<serde_json::Value> {
    let mut document = diff.document()?;
    if let Some(judgement) = judgement {
        document["gate"] = json!({
            "outcome": judgement.outcome().name(),
            "rules": serde_json::to_value(judgement.view())?,
        });
    }
    Ok(document)
}

fn outcome(judgement: &Judgement) -> Result<(), Failure> {
    let names = |outcome: Outcome| {
        let of = judgement.all.iter().filter(|judged| judged.outcome == outcome);
        of.map(|judged| format!("{} on {}", judged.rule, judged.subject)).collect::<Vec<_>>().join(", ")
    };
    match judgement.outcome() {
        Outcome::Pass => Ok(()),
        Outcome::Fail => Err(Failure { code: REGRESSION, error: anyhow!("the gate failed: {}", names(Outcome::Fail)) }),
        Outcome::Inconclusive => Err(Failure {
            code: INCONCLUSIVE,
            error: anyhow!("the gate is inconclusive: {}", names(Outcome::Inconclusive)),
        }),
    }
}
