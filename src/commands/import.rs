//! `maestro import`: a capture becomes a pattern, and says what it saw, kept, dropped and assumed.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use maestro_importers::synthesis::{Import, Options, Sizes, synthesise};
use maestro_importers::{Notes, Reading, capture::Capture};
use maestro_pattern::Plan;
use maestro_replay::dry::Dry;
use maestro_reports::{Fidelity, Origin, RunWriter};

use crate::cli::{self, Choice};
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
    let options = Options {
        name: choice.name.clone(),
        step: choice.step.clone(),
        host: choice.host,
        exact: choice.exact,
        comm_kernels: choice.comm_kernel.clone(),
        // What is odd about that other file is no matter of this capture.
        sizes: choice.lent.as_deref().map(|file| Sizes::read(file, &mut Notes::default())).transpose()?,
    };
    let import = synthesise(&capture, &options, &mut notes)?;
    let text = import.pattern.to_yaml();
    let check = match &import.plan {
        Ok(plan) => self_check(&import, plan),
        Err(why) => Err(format!("the pattern does not run as it is: {why}")),
    };
    Ok(Imported { capture, import, notes, text, check })
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
        let plan = plan.map_err(|why| anyhow::anyhow!("the captured run cannot be saved: {why}"))?;
        let settings = maestro_reports::Settings { iterations: 1, rounds: 1, ..Default::default() };
        let maker = Maker {
            started: SystemTime::now(),
            made_by: Origin::Import,
            backend: self.capture.format,
            settings,
            notes: Vec::new(),
            launched: None,
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
