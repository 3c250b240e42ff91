//! `maestro check`: is this pattern right, and what would it take to run it?

use std::path::Path;

use anyhow::Context;
use maestro_pattern::{AxisSize, Instruction, Plan};
use maestro_replay::{BACKENDS, Settings};

use crate::failure::Failure;
use crate::{cli, output, sniff};

pub fn run(args: &cli::Check) -> Result<(), Failure> {
    for path in &args.patterns {
        let (_, plan) = plan(path, &args.world.sizes)?;
        output::print(&describe(path, &plan))?;
    }
    Ok(())
}

/// Reads and plans a pattern; gives its text, too.
///
/// # Errors
/// What is wrong with it, with the file and the place in it.
pub fn plan(path: &Path, sizes: &[AxisSize]) -> anyhow::Result<((maestro_pattern::Pattern, String), Plan)> {
    let (pattern, text) = sniff::pattern(path)?;
    let plan = Plan::new(&pattern, sizes).with_context(|| path.display().to_string())?;
    Ok(((pattern, text), plan))
}

/// A line of facts, then a line a back end.
fn describe(path: &Path, plan: &Plan) -> String {
    let instructions: usize = (0..plan.world.size()).map(|rank| plan.program(rank).instructions.len()).sum();
    let issues = |i: &&Instruction| matches!(i, Instruction::Issue { .. });
    let executions: usize =
        (0..plan.world.size()).map(|rank| plan.program(rank).instructions.iter().filter(issues).count()).sum();
    let mut text = format!(
        "{}: right. {} ranks in {} programs, {} blocks, {} lanes, {} communicators; {executions} executions and \
         {instructions} instructions a step over all ranks.\n",
        path.display(),
        plan.world.size(),
        plan.programs.len(),
        plan.blocks.len(),
        plan.lanes.len(),
        plan.communicators.len(),
    );
    let settings = Settings::default();
    for backend in BACKENDS {
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
