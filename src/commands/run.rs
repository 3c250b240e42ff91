//! `maestro run`: import, replay and report in one go.

use maestro_pattern::Plan;
use maestro_reports::Fidelity;

use super::replay::{replay, show_plan};
use super::{check, import};
use crate::failure::Failure;
use crate::sniff::{self, Kind};
use crate::{cli, output};

pub fn run(args: &cli::Run) -> Result<(), Failure> {
    if let [path] = args.what.as_slice()
        && sniff::kind(path) == Kind::Pattern
    {
        if args.choice != cli::Choice::default() {
            return Err(anyhow::anyhow!(
                "{}: a pattern has all this already; --step, --name, --host, --exact, --strict and --comm-kernel are for captures",
                path.display()
            )
            .into());
        }
        let ((pattern, text), plan) = check::plan(path, &args.how.world)?;
        if args.how.plan {
            return show_plan(&plan, &args.how);
        }
        let Some(replayed) = replay(&pattern, &text, &plan, &args.how, path.parent())? else { return Ok(()) };
        return finish(&replayed, args, String::new(), None);
    }
    let imported = import::import(&args.what, &args.choice)?;
    let mut pattern = imported.import.pattern.clone();
    check::changed(&mut pattern, &args.how.world)?;
    let plan = Plan::new(&pattern, &args.how.world.sizes)?;
    if args.how.plan {
        return show_plan(&plan, &args.how);
    }
    let Some(replayed) = replay(&pattern, &pattern.to_yaml(), &plan, &args.how, None)? else { return Ok(()) };
    let fidelity =
        Fidelity::of(&pattern, &imported.import.measurements, &replayed.run.measurements().iter().collect::<Vec<_>>());
    finish(&replayed, args, format!("{}\n", imported.describe()), fidelity)
}

/// Prints what was imported, the table, and the replayed step beside the captured one.
fn finish(
    replayed: &super::replay::Replayed,
    args: &cli::Run,
    imported: String,
    fidelity: Option<Fidelity>,
) -> Result<(), Failure> {
    if args.how.json {
        let mut document = replayed.document()?;
        document["captured"] = serde_json::to_value(fidelity)?;
        output::json(&document)?;
        return Ok(());
    }
    let mut text = imported + &replayed.table()?;
    if let Some(fidelity) = fidelity {
        text += &format!(
            "Captured step {:.3} ms, replayed step {:.3} ms (median).\n",
            fidelity.captured_step_us / 1e3,
            fidelity.other_step_us / 1e3
        );
    }
    output::print(&text)?;
    Ok(())
}
