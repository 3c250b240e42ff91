//! `maestro report`: tables of saved runs, their timeline, or the page.

#[cfg(feature = "tables")]
use maestro_reports::{PageOptions, page};
use maestro_reports::{Run, Traced, View, perfetto};

use crate::failure::Failure;
use crate::{cli, output};

pub fn run(args: &cli::Report) -> Result<(), Failure> {
    let runs = args.runs.iter().map(|folder| Run::open(folder)).collect::<Result<Vec<Run>, _>>()?;
    let file = args.output.as_deref();
    #[cfg(feature = "tables")]
    if args.html() {
        let options = PageOptions { link_gbps: args.link_rate, command: crate::record::command() };
        output::text(file, &page(runs, &options)?)?;
        return Ok(());
    }
    if args.perfetto() {
        output::timeline(file, &perfetto(&Traced::runs(&runs)))?;
    } else {
        output::text(file, &view(args, &runs)?.render(args.format()))?;
    }
    Ok(())
}

#[cfg(feature = "tables")]
fn view(args: &cli::Report, runs: &[Run]) -> anyhow::Result<View> {
    use anyhow::Context;
    use maestro_reports::REPORTS;

    let report = REPORTS.iter().find(|report| report.name() == args.table).with_context(|| {
        let known: Vec<&str> = REPORTS.iter().map(|report| report.name()).collect();
        format!("no table is named `{}`; there are {}", args.table, known.join(", "))
    })?;
    Ok(report.view(runs)?)
}

#[cfg(not(feature = "tables"))]
fn view(_: &cli::Report, runs: &[Run]) -> anyhow::Result<View> {
    match runs {
        [run] => Ok(maestro_reports::summary(run)),
        _ => anyhow::bail!("the lean replayer sums up one run at a time; the default build reports on several"),
    }
}
