//! `maestro export`: a pattern, or the pattern of a capture, in the format of another tool.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use maestro_importers::export::{EXPORTERS, Exporter};
use maestro_pattern::{Instruction, Plan};

use crate::failure::Failure;
use crate::sniff::{self, Kind};
use crate::{cli, output};

pub fn run(args: &cli::Export) -> Result<(), Failure> {
    let plan = plan(args)?;
    let exporter = EXPORTERS.iter().find(|exporter| exporter.name() == args.format);
    let exporter = exporter.with_context(|| format!("no format is called {}", args.format))?;
    let prefix = args.output.clone().unwrap_or_else(|| PathBuf::from(&plan.name));
    let files = files(*exporter, &plan, &prefix)?;
    for (rank, file) in files.iter().enumerate() {
        std::fs::write(file, exporter.write(&plan, rank as u32))
            .with_context(|| format!("{}: the export cannot be written", file.display()))?;
    }
    output::print(&describe(*exporter, &plan, &files))?;
    Ok(())
}

/// The plan of what is to be exported.
fn plan(args: &cli::Export) -> anyhow::Result<Plan> {
    let pattern_alone = || match args.what.as_slice() {
        [what] => Some((what, sniff::kind(what))).filter(|(_, kind)| *kind != Kind::Capture),
        _ => None,
    };
    match pattern_alone() {
        Some((path, Kind::Run)) => {
            bail!("{}: this is a run; export its pattern, {}", path.display(), path.join("pattern.yaml").display())
        }
        Some((path, _)) => {
            if args.choice != cli::Choice::default() {
                bail!("{}: this is a pattern; what to take of a capture cannot be chosen of it", path.display());
            }
            Ok(super::check::plan(path, &args.world)?.1)
        }
        None => {
            let mut import = super::import::import(&args.what, &args.choice)?.import;
            super::check::changed(&mut import.pattern, &args.world)?;
            Plan::new(&import.pattern, &args.world.sizes).context("the capture's pattern does not run as it is")
        }
    }
}

/// The files to write, a rank each: none that is there and is something else.
fn files(exporter: &dyn Exporter, plan: &Plan, prefix: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let Some(stem) = prefix.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        bail!("{}: names no file; -o takes the beginning of the files' names, as step or out/step", prefix.display());
    };
    if let Some(folder) = prefix.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("{}: the folder cannot be made", folder.display()))?;
    }
    Ok((0..plan.world.size()).map(|rank| prefix.with_file_name(exporter.file(&stem, rank))).collect())
}

fn describe(exporter: &dyn Exporter, plan: &Plan, files: &[PathBuf]) -> String {
    let issues = |rank: u32| {
        let instructions = plan.program(rank).instructions.iter();
        instructions.filter(|instruction| matches!(instruction, Instruction::Issue { .. })).count()
    };
    let executions: usize = (0..plan.world.size()).map(issues).sum();
    let shown = match files {
        [] => String::new(),
        [one] => one.display().to_string(),
        [first, .., last] => format!("{} to {}", first.display(), last.display()),
    };
    let mut text = format!(
        "{}: {executions} executions of {} on {} as {}, written to {shown}\n",
        plan.name,
        output::count(plan.blocks.len(), "block"),
        output::count(files.len(), "rank"),
        exporter.name(),
    );
    for sentence in exporter.left_out(plan) {
        text += &format!("Left out: {sentence}\n");
    }
    text
}
