//! `maestro replay`: runs a pattern, writes the run folder, prints the table.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use maestro_pattern::{Pattern, Plan, Work};
use maestro_replay::{BACKENDS, Backend, Launch, Observer, Settings};
use maestro_reports::{Format, Origin, Run, RunInfo, RunWriter, View};
use serde_json::json;

use super::{ab, check, together};
use crate::cli::How;
use crate::failure::Failure;
use crate::progress::{Progress, Told};
use crate::record::{self, Launched, Maker};
use crate::{cli, output};

pub fn run(args: &cli::Replay) -> Result<(), Failure> {
    if let Some([a, b]) = args.ab.as_deref() {
        return ab::run(args, [a, b]);
    }
    let ((pattern, text), plan) = check::plan(&args.pattern, &args.how.world)?;
    if args.how.plan {
        return show_plan(&plan, &args.how);
    }
    let Some(replayed) = replay(&pattern, &text, &plan, &args.how, args.pattern.parent())? else { return Ok(()) };
    if args.how.json {
        output::json(&replayed.document()?)?;
    } else {
        output::print(&replayed.table()?)?;
    }
    Ok(())
}

/// A finished replay.
pub struct Replayed {
    pub run: Run,
    pub folder: PathBuf,
}

/// Everything that a replay is made of.
pub struct Job<'a> {
    pub pattern: &'a Pattern,
    pub text: &'a str,
    pub plan: &'a Plan,
    pub backend: &'static dyn Backend,
    pub settings: Settings,
    pub progress: Progress,
    /// The run folder, if one was asked for.
    pub output: Option<&'a Path>,
    /// How long processes wait for each other to come.
    pub patience: Duration,
    /// What this run is given as one of two variants.
    pub variant: &'a [(String, String)],
}

/// Runs `plan` and writes the run folder. `beside` is the folder of the pattern's file, if it has one: users' own CUDA
/// sources lie there. Of the processes of a launcher only rank 0 is given the run.
///
/// # Errors
/// An unknown back end or a plan that it cannot run: bad input. A run that hangs, fails or gives wrong data: a failed
/// run.
pub fn replay(
    pattern: &Pattern,
    text: &str,
    plan: &Plan,
    how: &How,
    beside: Option<&Path>,
) -> Result<Option<Replayed>, Failure> {
    let backend = backend(how)?;
    if how.graph && backend.name() != NCCL {
        return Err(anyhow!("--graph is for the back end nccl; {} has no CUDA graphs", backend.name()).into());
    }
    let launch = Launch::from_environment(&|name| std::env::var(name).ok())?.filter(|launch| launch.world > 1);
    let progress = Progress::new();
    // Of several processes one tells how far things are.
    let silent = launch.as_ref().is_some_and(|launch| launch.rank != 0);
    let mut settings = Settings {
        notify: if silent { Observer::default() } else { progress.observer() },
        sources: sources(plan, backend, beside)?,
        ..how.settings(backend.compute())
    };
    if origin(backend) == Origin::Dry {
        // A simulation is exact: more of it would be copies, and statistics on copies look like certainty.
        (settings.warmup, settings.iterations, settings.rounds) = (0, 1, 1);
    }
    let patience = Duration::from_secs(how.patience);
    let output = how.output.as_deref();
    let job = Job { pattern, text, plan, backend, settings, progress, output, patience, variant: &how.variant };
    match launch {
        Some(launch) => together::replay(&job, launch),
        None => alone(&job).map(Some),
    }
}

/// Runs all ranks in this process.
fn alone(job: &Job<'_>) -> Result<Replayed, Failure> {
    job.backend.probe(job.plan, &job.settings)?;
    let folder = record::folder(job.output, &job.pattern.name);
    RunWriter::check(&folder)?;
    let started = SystemTime::now();
    let measured = job.backend.run(job.plan, &job.settings);
    let told = job.progress.finish();
    let measurements = measured.map_err(Failure::run)?;

    let info = job.info(record::id(&folder), started, told, None);
    let writer = RunWriter::create(&folder, &info, job.text)?;
    writer.write_part(0, &measurements)?;
    let run = Run::open(&folder)?;
    Ok(Replayed { run, folder })
}

impl Job<'_> {
    /// How its run came to be.
    pub fn info(&self, id: String, started: SystemTime, told: Told, launched: Option<Launched>) -> RunInfo {
        let maker = Maker {
            started,
            made_by: origin(self.backend),
            backend: self.backend.name(),
            settings: recorded(&self.settings, self.backend),
            notes: told.notes,
            clock_error_ns: told.clock_error.and_then(|error| u64::try_from(error.as_nanos()).ok()),
            launched,
            variant: self.variant.to_vec(),
        };
        record::info(id, self.pattern, self.text, &self.plan.world, maker)
    }
}

/// The back end of a default build that runs on GPUs.
const NCCL: &str = "nccl";

fn backend(how: &How) -> anyhow::Result<&'static dyn Backend> {
    let name = how.backend.as_deref().unwrap_or_else(|| if has_gpus() { NCCL } else { "threads" });
    maestro_replay::backend(name).with_context(|| {
        let known: Vec<&str> = BACKENDS.iter().map(|backend| backend.name()).collect();
        format!("no back end is named `{name}`; there are {}", known.join(", "))
    })
}

fn has_gpus() -> bool {
    #[cfg(feature = "nccl")]
    {
        maestro_replay::nccl::has_gpus()
    }
    #[cfg(not(feature = "nccl"))]
    {
        false
    }
}

/// The texts of users' own CUDA sources that `plan` runs, for back ends that compile them. `beside` is the folder of the
/// pattern's file.
///
/// # Errors
/// The block whose source cannot be read, and its path.
pub fn sources(plan: &Plan, backend: &dyn Backend, beside: Option<&Path>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    for (block, _, _) in plan.uses().into_iter().filter(|_| backend.name() == NCCL) {
        let block = &plan.blocks[block as usize];
        let Work::Cuda(own) = &block.work else { continue };
        let file = beside.unwrap_or(Path::new("")).join(&own.source);
        let text = fs::read_to_string(&file).with_context(|| {
            format!("{}: block `{}` is a kernel of this source, which cannot be read", file.display(), block.name)
        })?;
        texts.insert(own.source.clone(), text);
    }
    Ok(texts)
}

fn origin(backend: &dyn Backend) -> Origin {
    if backend.name() == maestro_replay::dry::Dry.name() { Origin::Dry } else { Origin::Replay }
}

fn recorded(settings: &Settings, backend: &dyn Backend) -> maestro_reports::Settings {
    maestro_reports::Settings {
        warm_up: settings.warmup,
        iterations: settings.iterations,
        rounds: settings.rounds,
        pacing: Some(settings.pacing.name().to_owned()),
        compute: (origin(backend) != Origin::Dry).then(|| settings.compute.name().to_owned()),
        graph: settings.graph,
        back_to_back: settings.back_to_back,
    }
}

impl Replayed {
    /// The table of blocks with its notes, and where the run is.
    ///
    /// # Errors
    /// The report cannot be computed.
    pub fn table(&self) -> anyhow::Result<String> {
        let mut text = blocks(&self.run)?.render(Format::Table);
        text += &format!("Run folder: {}\n", self.folder.display());
        Ok(text)
    }

    /// The same as one JSON document.
    ///
    /// # Errors
    /// As [`Replayed::table`].
    pub fn document(&self) -> anyhow::Result<serde_json::Value> {
        Ok(json!({
            "run": self.folder.display().to_string(),
            "info": serde_json::to_value(&self.run.info)?,
            "blocks": serde_json::to_value(blocks(&self.run)?)?,
        }))
    }
}

#[cfg(feature = "tables")]
fn blocks(run: &Run) -> anyhow::Result<View> {
    let report = maestro_reports::REPORTS.first().context("no report is built in")?;
    Ok(report.view(std::slice::from_ref(run))?)
}

#[cfg(not(feature = "tables"))]
fn blocks(run: &Run) -> anyhow::Result<View> {
    Ok(maestro_reports::summary(run))
}

/// Prints what would run, for `--plan`.
///
/// # Errors
/// An unknown back end.
pub fn show_plan(plan: &Plan, how: &How) -> Result<(), Failure> {
    let backend = backend(how)?;
    let settings = how.settings(backend.compute());
    if !how.json {
        output::print(&describe(plan, backend, &settings))?;
        return Ok(());
    }
    let communicators = plan.communicators.iter().map(|communicator| {
        json!({
            "axis": plan.world.axes()[communicator.axis as usize].name,
            "lane": plan.lanes[communicator.lane as usize].name,
            "ranks": communicator.ranks,
        })
    });
    output::json(&json!({
        "name": plan.name,
        "ranks": plan.world.size(),
        "backend": backend.name(),
        "buffer_bytes": backend.memory(plan, &settings),
        "communicators": communicators.collect::<Vec<_>>(),
    }))?;
    Ok(())
}

/// What would run: memory and communicators.
fn describe(plan: &Plan, backend: &dyn Backend, settings: &Settings) -> String {
    let mut text = format!(
        "{}: {} on {}, {} of buffers\n",
        plan.name,
        output::count(plan.world.size() as usize, "rank"),
        backend.name(),
        output::bytes(backend.memory(plan, settings))
    );
    let rows: Vec<Vec<String>> = plan
        .communicators
        .iter()
        .enumerate()
        .map(|(n, communicator)| {
            vec![
                n.to_string(),
                plan.world.axes()[communicator.axis as usize].name.clone(),
                plan.lanes[communicator.lane as usize].name.clone(),
                format!("{:?}", communicator.ranks),
            ]
        })
        .collect();
    if !rows.is_empty() {
        text += "\nCommunicators, in the order in which every rank makes them\n";
        text += &output::columns(&["Number", "Axis", "Lane", "Ranks"], &rows);
    }
    text
}
