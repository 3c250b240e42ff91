//! `maestro import`: a capture becomes a pattern, and says what it saw, kept, dropped and assumed.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, anyhow, bail};
use maestro_importers::synthesis::{HostTime, Import, Options, Sizes, synthesise};
use maestro_importers::{Notes, Reading, capture::Capture};
use maestro_pattern::{Plan, format_duration};
use maestro_replay::dry::Dry;
use maestro_reports::{Fidelity, Origin, RunWriter};

use crate::cli::{self, Choice, Host};
use crate::failure::Failure;
use crate::output;
use crate::record::{self, Maker};

/// A capture that became a pattern.
pub struct Imported {
    pub capture: Capture,
    pub import: Import,
    pub notes: Notes,
    /// The pattern's text.
    pub text: String,
    /// The dry run beside the capture, or why there is none.
    pub check: Result<Fidelity, String>,
}

pub fn run(args: &cli::Import) -> Result<(), Failure> {
    let imported = import(&args.captures, &args.choice)?;
    if let Some(folder) = &args.run {
        imported.save_run(folder)?;
    }
    let written = imported.write(args)?;
    if args.json {
        output::json(&imported.document())?;
        return Ok(());
    }
    let mut text = imported.describe();
    if let Some(path) = written {
        text += &format!("Pattern written to {}\n", path.display());
    }
    if args.output.as_deref() == Some(Path::new("-")) {
        // Standard output carries the pattern; what was seen goes beside it.
        eprint!("{text}");
        output::print(&imported.text)?;
    } else {
        output::print(&text)?;
    }
    Ok(())
}

/// Reads captures, makes a pattern of them and checks it against them.
///
/// # Errors
/// What is wrong with the capture, with file and position.
pub fn import(captures: &[PathBuf], choice: &Choice) -> anyhow::Result<Imported> {
    let mut notes = Notes::default();
    let reading = Reading { strict: choice.strict, ..Reading::default() };
    let mut capture = maestro_importers::read(captures, &reading, &mut notes)?;
    if let Some(pattern) = &choice.steps {
        maestro_importers::mark_steps(&mut capture, pattern)?;
    }
    let mut options = Options {
        name: choice.name.clone(),
        step: choice.step.clone(),
        host: HostTime::Captured,
        exact: choice.exact,
        comm_kernels: choice.comm_kernel.clone(),
        // What is odd about that other file is no matter of this capture.
        sizes: choice.lent.as_deref().map(|file| Sizes::read(file, &mut Notes::default())).transpose()?,
    };
    options.host = match choice.host {
        Host::Share(share) => share,
        Host::Step(step) => share_of_host(&capture, &options, step)?,
    };
    let import = synthesise(&capture, &options, &mut notes)?;
    let text = import.pattern.to_yaml();
    let check = match &import.plan {
        Ok(plan) => self_check(&import, plan),
        Err(why) => Err(format!("the pattern does not run as it is: {why}")),
    };
    Ok(Imported { capture, import, notes, text, check })
}

/// The share of the captured host time, in thousandths, with which the simulated step comes nearest to `step`
/// nanoseconds.
///
/// # Errors
/// No share between none and all of it gives such a step.
fn share_of_host(capture: &Capture, options: &Options, step: u64) -> anyhow::Result<HostTime> {
    const ALL: u32 = 1_000;
    let share = |thousandths: u32| HostTime::Scaled(f64::from(thousandths) / f64::from(ALL));
    let simulated = |thousandths: u32| -> anyhow::Result<u64> {
        let options = Options { host: share(thousandths), ..options.clone() };
        // What is odd about the capture is told when it is imported for good.
        let import = synthesise(capture, &options, &mut Notes::default())?;
        let plan = import.plan.map_err(|why| anyhow!("the pattern does not run as it is: {why}"))?;
        Ok(Dry::step(&plan)?.iter().map(|row| row.end_ns).max().unwrap_or(0))
    };
    let (none, all) = (simulated(0)?, simulated(ALL)?);
    if !(none..=all).contains(&step) {
        bail!(
            "--host step={}: no share of the captured host time gives such a step; without any it takes {}, with all of \
             it {}",
            format_duration(step),
            format_duration(none),
            format_duration(all)
        );
    }
    // A step grows with its host time, so the share lies between one that is too small and one that is not.
    let (mut small, mut large) = ((0, none), (ALL, all));
    while large.0 - small.0 > 1 {
        let middle = (small.0 + large.0) / 2;
        let found = (middle, simulated(middle)?);
        if found.1 < step { small = found } else { large = found }
    }
    let nearest = if small.1.abs_diff(step) < large.1.abs_diff(step) { small } else { large };
    Ok(share(nearest.0))
}

/// Runs the pattern by the exact simulation and compares with the capture, by the code that compares any two runs.
fn self_check(import: &Import, plan: &Plan) -> Result<Fidelity, String> {
    let simulated = Dry::step(plan).map_err(|error| error.to_string())?;
    Fidelity::of(&import.pattern, &import.measurements, &simulated).ok_or_else(|| "the step takes no time".to_owned())
}

impl Imported {
    /// Writes the pattern where it shall go; gives the path, if it is a file.
    fn write(&self, args: &cli::Import) -> anyhow::Result<Option<PathBuf>> {
        let path = match &args.output {
            Some(path) if path == Path::new("-") => return Ok(None),
            Some(path) => path.clone(),
            // JSON is for programs: they say where a file shall go, or want none.
            None if args.json => return Ok(None),
            None => {
                let path = PathBuf::from(format!("{}.yaml", self.import.pattern.name));
                if std::fs::read_to_string(&path).is_ok_and(|old| old != self.text) {
                    bail!(
                        "{}: there is another pattern in this file, maybe one that was edited; name one with -o",
                        path.display()
                    );
                }
                path
            }
        };
        std::fs::write(&path, &self.text)
            .with_context(|| format!("{}: the pattern cannot be written", path.display()))?;
        Ok(Some(path))
    }

    /// Writes the captured executions as a run.
    fn save_run(&self, folder: &Path) -> anyhow::Result<()> {
        let plan = self.import.plan.as_ref();
        let plan = plan.map_err(|why| anyhow!("the captured run cannot be saved: {why}"))?;
        let settings = maestro_reports::Settings { iterations: 1, rounds: 1, ..Default::default() };
        let maker = Maker {
            started: SystemTime::now(),
            made_by: Origin::Import,
            backend: self.capture.format,
            settings,
            notes: Vec::new(),
            clock_error_ns: u64::try_from(self.import.clock_error_ns).ok(),
            launched: None,
            variant: Vec::new(),
        };
        let info = record::info(record::id(folder), &self.import.pattern, &self.text, &plan.world, maker);
        let writer = RunWriter::create(folder, &info, &self.text)?;
        writer.write_part(0, &self.import.measurements)?;
        Ok(())
    }

    /// Blocks, lines, and instructions of the longest program, host time included.
    pub fn shape(&self) -> (usize, usize, usize) {
        let instructions = self
            .import
            .plan
            .as_ref()
            .map_or(0, |plan| plan.programs.iter().map(|program| program.instructions.len()).max().unwrap_or(0));
        (self.import.pattern.blocks.len(), self.text.lines().count(), instructions)
    }
}
