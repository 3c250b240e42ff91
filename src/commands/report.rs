//! `maestro report`: tables of saved runs, their timeline, or the page.

#[cfg(feature = "tables")]
use maestro_reports::{PageOptions, page};
use maestro_reports::{Run, Traced, View, perfetto};
#[cfg(feature = "tables")]
use {
    anyhow::Context,
    maestro_reports::{Baseline, REPORTS, Report},
    std::sync::Arc,
};

use super::folders;
use crate::failure::Failure;
use crate::{cli, output};

pub fn run(args: &cli::Report) -> Result<(), Failure> {
    let runs = open(args)?;
    let file = args.output.as_deref();
    #[cfg(feature = "tables")]
    if args.html() {
        let options = PageOptions { command: crate::record::command() };
        output::page(file, &page(runs, &options)?)?;
        return Ok(());
    }
    if args.perfetto() {
        output::timeline(file, &perfetto(&Traced::runs(&runs)))?;
        return Ok(());
    }
    #[cfg(feature = "tables")]
    if let Some(format) = args.file_format() {
        output::binary(file, &report(args)?.file(&runs, format)?)?;
        return Ok(());
    }
    output::text(file, &view(args, &runs)?.render(args.format()))?;
    Ok(())
}

/// The runs, with the baseline that is given beside them.
fn open(args: &cli::Report) -> Result<Vec<Run>, Failure> {
    let runs = folders::runs(&args.runs)?.iter().map(|folder| Run::open(folder)).collect::<Result<Vec<Run>, _>>()?;
    #[cfg(feature = "tables")]
    let runs = {
        let baseline = args.baseline.as_deref().map(Baseline::read).transpose()?.map(Arc::new);
        runs.into_iter().map(|run| run.beside(baseline.clone(), args.link_rate)).collect()
    };
    Ok(runs)
}

#[cfg(feature = "tables")]
fn report(args: &cli::Report) -> anyhow::Result<&'static dyn Report> {
    REPORTS.iter().copied().find(|report| report.name() == args.table).with_context(|| {
        let known: Vec<&str> = REPORTS.iter().map(|report| report.name()).collect();
        format!("no table is named `{}`; there are {}", args.table, known.join(", "))
    })
}

#[cfg(feature = "tables")]
fn view(args: &cli::Report, runs: &[Run]) -> anyhow::Result<View> {
    Ok(report(args)?.view(runs)?)
}

#[cfg(not(feature = "tables"))]
fn view(_: &cli::Report, runs: &[Run]) -> anyhow::Result<View> {
    match runs {
        [run] => Ok(maestro_reports::summary(run)),
        _ => anyhow::bail!("the lean replayer sums up one run at a time; the default build reports on several"),
    }
}
