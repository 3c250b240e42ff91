//! `maestro sweep`: the same pattern over sizes of its collectives, a run each, and one table of all.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use maestro_pattern::{CollectiveKind, Pattern, Plan, Work};
use maestro_reports::{Format, REPORTS, Run};

use super::{check, replay};
use crate::failure::Failure;
use crate::{cli, output};

pub fn run(args: &cli::Sweep) -> Result<(), Failure> {
    let ((pattern, _), _) = check::plan(&args.pattern, &args.how.world)?;
    let folder = args.how.output.clone().unwrap_or_else(|| PathBuf::from(format!("sweep-{}", pattern.name)));
    // All sizes are tried before the first one is run: a sweep that fails half way has cost hours.
    let sizes = args.size.sizes();
    let planned: Vec<(u64, Pattern, Plan)> = sizes
        .into_iter()
        .map(|size| {
            let resized = resized(&pattern, &args.block, size, &args.pattern)?;
            let plan = Plan::new(&resized, &args.how.world.sizes).with_context(|| format!("with size {size} B"))?;
            Ok((size, resized, plan))
        })
        .collect::<anyhow::Result<_>>()?;
    if args.how.plan {
        return planned.iter().try_for_each(|(_, _, plan)| replay::show_plan(plan, &args.how));
    }
    let mut runs: Vec<Run> = Vec::new();
    for (size, pattern, plan) in &planned {
        let how = cli::How { output: Some(folder.join(size.to_string())), ..args.how.clone() };
        let replayed = replay::replay(pattern, &pattern.to_yaml(), plan, &how, args.pattern.parent())?;
        runs.extend(replayed.map(|replayed| replayed.run));
    }
    if runs.is_empty() {
        // Of the processes of a launcher only one reports.
        return Ok(());
    }
    let view = REPORTS.first().context("no report is built in")?.view(&runs)?;
    let format = if args.how.json { Format::Json } else { Format::Table };
    let mut text = view.render(format);
    if !args.how.json {
        text += &format!("Run folders: {}, one a size; `maestro report` takes them all\n", folder.display());
    }
    output::print(&text)?;
    Ok(())
}

/// The pattern with `size` in place of the sizes of the named blocks, or of all collectives.
///
/// # Errors
/// A name that no block has, or a block that has no one size.
fn resized(pattern: &Pattern, names: &[String], size: u64, file: &Path) -> anyhow::Result<Pattern> {
    let mut pattern = pattern.clone();
    if let Some(name) = names.iter().find(|name| pattern.blocks.iter().all(|block| block.name != **name)) {
        let known: Vec<&str> = pattern.blocks.iter().map(|block| block.name.as_str()).collect();
        bail!("{}: no block is named `{name}`; there are {}", file.display(), known.join(", "));
    }
    let mut changed = 0;
    for block in &mut pattern.blocks {
        let named = names.contains(&block.name);
        match &mut block.work {
            Work::Collective(one)
                if (named || names.is_empty()) && one.kind != CollectiveKind::Barrier && one.splits.is_empty() =>
            {
                one.size = Some(size);
                // What took so long was another size.
                block.captured_ns = None;
                block.skew = Vec::new();
                changed += 1;
            }
            _ if named => bail!(
                "{}: block `{}` has no one size to sweep; name a collective that is no barrier and has no splits",
                file.display(),
                block.name
            ),
            _ => {}
        }
    }
    if changed == 0 {
        bail!("{}: no block is a collective of one size, so there is nothing to sweep", file.display());
    }
    Ok(pattern)
}
