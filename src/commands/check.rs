//! `maestro check`: is this pattern right, and what would it take to run it?

use std::path::Path;

use anyhow::Context;
use maestro_pattern::{Instruction, Pattern, Plan};
use maestro_replay::{BACKENDS, Settings};

use super::replay::sources;
use crate::failure::Failure;
use crate::{cli, output, sniff};

pub fn run(args: &cli::Check) -> Result<(), Failure> {
    for path in &args.patterns {
        let (_, plan) = plan(path, &args.world)?;
        output::print(&describe(path, &plan))?;
    }
    Ok(())
}

/// Reads and plans a pattern; gives its text, too.
///
/// # Errors
/// What is wrong with it, with the file and the place in it.
pub fn plan(path: &Path, world: &cli::World) -> anyhow::Result<((Pattern, String), Plan)> {
    let (mut pattern, mut text) = sniff::pattern(path)?;
    if world.even || !world.set.is_empty() {
        changed(&mut pattern, world)?;
        text = pattern.to_yaml();
    }
    let plan = Plan::new(&pattern, &world.sizes).with_context(|| path.display().to_string())?;
    Ok(((pattern, text), plan))
}

/// Makes of a pattern what the command line wants it to be, beside the sizes.
///
/// # Errors
/// A setting of an axis or lane that the pattern does not have, or that cannot be so.
pub fn changed(pattern: &mut Pattern, world: &cli::World) -> anyhow::Result<()> {
    if world.even {
        even(pattern);
    }
    for setting in &world.set {
        pattern.set(setting).with_context(|| format!("--set {setting}"))?;
    }
    Ok(())
}

/// Takes all ranks as alike.
fn even(pattern: &mut Pattern) {
    pattern.host_skew.clear();
    pattern.blocks.iter_mut().for_each(|block| block.skew.clear());
}

/// A line of facts, then a line a back end.
fn describe(path: &Path, plan: &Plan) -> String {
    let instructions: usize = (0..plan.world.size()).map(|rank| plan.program(rank).instructions.len()).sum();
    let issues = |i: &&Instruction| matches!(i, Instruction::Issue { .. });
    let executions: usize =
        (0..plan.world.size()).map(|rank| plan.program(rank).instructions.iter().filter(issues).count()).sum();
    let mut text = format!(
        "{}: right. {} in {}, {}, {}, {}; {executions} executions and {instructions} instructions a step over all \
         ranks.\n",
        path.display(),
        output::count(plan.world.size() as usize, "rank"),
        output::count(plan.programs.len(), "program"),
        output::count(plan.blocks.len(), "block"),
        output::count(plan.lanes.len(), "lane"),
        output::count(plan.communicators.len(), "communicator"),
    );
    for backend in BACKENDS {
        let sources = match sources(plan, *backend, path.parent()) {
            Ok(sources) => sources,
            Err(why) => {
                text += &format!("  {}: {why:#}\n", backend.name());
                continue;
            }
        };
        let settings = Settings { compute: backend.compute(), sources, ..Settings::default() };
        text += &match backend.probe(plan, &settings) {
            Ok(()) => format!(
                "  {}: can run it here, with {} of buffers\n",
                backend.name(),
                output::bytes(backend.memory(plan, &settings))
            ),
            Err(why) => format!("  {why}\n"),
        };
    }
    text
}
