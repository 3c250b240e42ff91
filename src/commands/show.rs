//! `maestro show`: a capture, a pattern or a run as a person wants to see it.

use std::path::Path;

use anyhow::bail;
use maestro_pattern::{AxisShape, Measurement, Pattern, Plan, World};
use maestro_replay::{Settings, dry::Dry, nominal_ns};
use maestro_reports::{Origin, Run, Traced, perfetto};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, columns, ms};
use crate::sniff::{self, Kind};
use crate::{cli, draw};

pub fn run(args: &cli::Show) -> Result<(), Failure> {
    let shown = match sniff::kind(&args.what) {
        Kind::Pattern => of_pattern(&args.what)?,
        Kind::Run => of_run(&args.what)?,
        Kind::Capture => of_capture(args)?,
    };
    let file = args.output.as_deref();
    if args.perfetto() {
        output::timeline(file, &shown.timeline(args)?)?;
    } else if args.json() {
        output::text(file, &output::pretty(&shown.document()))?;
    } else {
        output::text(file, &shown.text(args))?;
    }
    Ok(())
}

/// What is shown: a pattern, and executions of its blocks to draw.
struct Shown {
    title: String,
    /// What became of the step: captured, replayed or simulated.
    how: &'static str,
    pattern: Pattern,
    world: World,
    /// What the arrows of a timeline come from, if the pattern makes a plan.
    plan: Option<Plan>,
    measurements: Vec<Measurement>,
    /// How much of the compute is understood, where captures tell: as text, and for a program.
    compute: Option<(String, serde_json::Value)>,
}

fn of_pattern(path: &Path) -> anyhow::Result<Shown> {
    let ((pattern, _), plan) = super::check::plan(path, &cli::World::default())?;
    // A pattern with a block that nobody has timed has no timeline yet.
    let (measurements, how) = match Dry::step(&plan) {
        Ok(measurements) => (measurements, "drawn by dry run"),
        Err(_) => (Vec::new(), "without a timeline: not every block has a captured duration"),
    };
    let title = format!("{}: a pattern of {}, {how}", pattern.name, output::count(plan.world.size() as usize, "rank"));
    let how = Origin::Dry.participle();
    Ok(Shown { title, how, pattern, world: plan.world.clone(), plan: Some(plan), measurements, compute: None })
}

fn of_run(path: &Path) -> anyhow::Result<Shown> {
    let run = Run::open(path)?;
    let measurements = run.measurements().iter().collect();
    let title = format!(
        "{}: {} on {}, {}, {} x {} iterations; drawn is the first",
        run.info.id,
        run.pattern.name,
        run.info.backend,
        output::count(run.info.ranks as usize, "rank"),
        run.info.settings.rounds,
        run.info.settings.iterations
    );
    let how = run.info.made_by.participle();
    let plan = run.plan().ok();
    Ok(Shown { title, how, world: run.world.clone(), plan, pattern: run.pattern, measurements, compute: None })
}

#[cfg(feature = "import")]
fn of_capture(args: &cli::Show) -> anyhow::Result<Shown> {
    let choice = cli::Choice { step: args.step.clone(), strict: args.strict, ..cli::Choice::default() };
    let imported = super::import::import(std::slice::from_ref(&args.what), &choice)?;
    let title = imported.describe();
    let import = imported.import;
    let compute = Some((super::compute::table(&import.compute), super::compute::document(&import.compute)));
    let world = World::new(&import.pattern.axes, &[])?;
    let how = Origin::Import.participle();
    let (pattern, plan, measurements) = (import.pattern, import.plan.ok(), import.measurements);
    Ok(Shown { title, how, world, pattern, plan, measurements, compute })
}

#[cfg(not(feature = "import"))]
fn of_capture(args: &cli::Show) -> anyhow::Result<Shown> {
    anyhow::bail!(
        "{}: neither a pattern nor a run; captures are read by the default build, not by the lean replayer",
        args.what.display()
    )
}

impl Shown {
    fn text(&self, args: &cli::Show) -> String {
        let mut text = format!("{}\n", self.title);
        text += "\nAxes\n";
        text += &columns(&["Axis", "Size", "Teams"], &self.axes());
        text += "\nBlocks\n";
        text += &columns(&["Block", "Kind", "Size", "TFLOP", "Captured (ms)"], &self.blocks());
        if let Some((compute, _)) = &self.compute {
            text += "\nCompute that is understood, a rank\n";
            text += compute;
        }
        text += "\nTimeline\n";
        text += &draw::timeline(&self.pattern, &self.measurements, args.rank, usize::from(args.width));
        text
    }

    /// A file for Perfetto, of one rank if `args` say which.
    fn timeline(&self, args: &cli::Show) -> anyhow::Result<Vec<u8>> {
        let mut measurements = self.measurements.clone();
        measurements.retain(|m| args.rank.is_none_or(|rank| rank == m.rank));
        if measurements.is_empty() {
            let what = args.what.display();
            match args.rank {
                Some(rank) if !self.measurements.is_empty() => {
                    bail!("{what}: nothing ran on rank {rank}; there are ranks 0 to {}", self.world.size() - 1)
                }
                _ => bail!(
                    "{what}: nothing was timed, so there is no timeline; a pattern has one if every block says how \
                     long it took (captured: 120us), and a replay of it always"
                ),
            }
        }
        Ok(perfetto(&[Traced::new(self.how, &self.pattern, self.plan.as_ref(), measurements)]))
    }

    fn axes(&self) -> Vec<Vec<String>> {
        let teams = |axis: usize| {
            let all = self.world.teams(axis);
            let shown: Vec<String> = all.iter().take(4).map(|team| format!("{team:?}")).collect();
            let more = if all.len() > 4 { format!(" and {} more", all.len() - 4) } else { String::new() };
            shown.join(" ") + &more
        };
        let size = |shape: &AxisShape| match shape {
            AxisShape::Size(size) => size.to_string(),
            AxisShape::Teams(_) => "listed".to_owned(),
        };
        let axes = self.world.axes().iter().enumerate();
        axes.map(|(n, axis)| vec![axis.name.clone(), size(&axis.shape), teams(n)]).collect()
    }

    fn blocks(&self) -> Vec<Vec<String>> {
        let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        self.pattern
            .blocks
            .iter()
            .map(|block| {
                let nominal = nominal_ns(block, 0, Settings::default().pacing);
                vec![
                    block.name.clone(),
                    block.work.kind().to_owned(),
                    known(block.work.size().map(output::bytes)),
                    known(flops(block).map(|flops| format!("{:.3}", flops / 1e12))),
                    known(nominal.map(|ns| ms(ns as i64))),
                ]
            })
            .collect()
    }

    fn document(&self) -> serde_json::Value {
        let mut document = json!({
            "name": self.pattern.name,
            "ranks": self.world.size(),
            "axes": self.world.axes().iter().enumerate().map(|(n, axis)| {
                json!({"name": axis.name, "teams": self.world.teams(n)})
            }).collect::<Vec<_>>(),
            "blocks": self.pattern.blocks.iter().map(|block| json!({
                "name": block.name, "kind": block.work.kind(), "size": block.work.size(), "flops": flops(block),
                "captured_ns": block.captured_ns,
            })).collect::<Vec<_>>(),
            "lanes": self.pattern.lanes.iter().map(|lane| lane.name.as_str()).collect::<Vec<_>>(),
            "executions": self.measurements.iter().map(|m| json!({
                "round": m.round, "iteration": m.iteration, "rank": m.rank, "block": &*m.block, "lane": &*m.lane,
                "instance": m.instance, "state": m.state.name(), "start_ns": m.start_ns, "end_ns": m.end_ns,
            })).collect::<Vec<_>>(),
        });
        if let Some((_, compute)) = &self.compute {
            document["compute"] = compute.clone();
        }
        document
    }
}

/// Floating-point operations of a compute block, where its products are known.
fn flops(block: &maestro_pattern::Block) -> Option<f64> {
    match &block.work {
        maestro_pattern::Work::Compute(kernels) => {
            Some(kernels.iter().map(|kernel| kernel.flops()).sum()).filter(|flops| *flops > 0.0)
        }
        _ => None,
    }
}
