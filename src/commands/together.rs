//! `maestro replay` where a launcher started a process for each rank: what one of them does.
//!
//! Whatever one process may find wrong alone (no GPU, no folder, a full disk) all agree on before any goes on, so that
//! all end with the same code and none waits for one that left. Rank 0 speaks for all.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use maestro_replay::{Crew, Error, Launch, Spread};
use maestro_reports::{PatternInfo, Run, RunWriter};

use super::replay::{Job, Replayed};
use crate::failure::Failure;
use crate::record::{self, Launched};

/// How long a file system of a network may take to show a new file to another machine.
const SEEN: Duration = Duration::from_secs(15);

/// Why this process cannot go on.
enum Stop {
    /// All processes have agreed on it.
    Agreed(Error),
    /// A process failed, this one or another, or is gone.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Runs this process's rank. Gives the run to rank 0, and nothing to the others.
///
/// # Errors
/// As [`super::replay::replay`], or the processes do not fit the pattern, or one of them failed or did not come.
pub fn replay(job: &Job<'_>, launch: Launch) -> Result<Option<Replayed>, Failure> {
    let spread = maestro_replay::spread(job.backend, job.plan, &launch)?;
    let crew = Crew::join(launch, job.patience).map_err(Failure::run)?;
    perform(job, spread, &crew).map_err(|stop| end(stop, &crew))
}

fn perform(job: &Job<'_>, spread: &dyn Spread, crew: &Crew) -> Result<Option<Replayed>, Stop> {
    let (launch, leads) = (crew.launch(), crew.leads());
    alike(job, crew)?;
    agree(crew, spread.probe_one(job.plan, &job.settings, launch).map_err(Into::into))?;
    let folder = folder(job, crew)?;
    let launched = Launched { processes: launch.world, hosts: crew.hosts()?, by: launch.by.name() };
    let started = SystemTime::now();
    let measured = spread.run_one(job.plan, &job.settings, crew);
    let told = job.progress.finish();
    let measurements = measured?;

    let writer = if leads { RunWriter::replace(&folder) } else { Ok(RunWriter::beside(&folder)) };
    let writer = agree(crew, writer.map_err(Into::into))?;
    agree(crew, writer.write_part(launch.rank, &measurements).map_err(Into::into))?;
    let finish = || {
        let info = job.info(record::id(&folder), started, told, Some(launched));
        writer.finish(&info, job.text)?;
        Ok(Replayed { run: Run::open(&folder)?, folder: folder.clone() })
    };
    agree(crew, leads.then(finish).transpose())
}

/// Whether all processes run the same thing.
fn alike(job: &Job<'_>, crew: &Crew) -> Result<(), Stop> {
    let version = env!("CARGO_PKG_VERSION");
    let hash = PatternInfo::new(&job.pattern.name, job.text).hash;
    let mine = format!("{version} {hash} {:?} {:?}", job.plan.world.axes(), job.settings);
    let theirs = crew.share(crew.leads().then_some(&mine))?;
    let alike = || {
        if mine != theirs {
            bail!(
                "its pattern, options or version of Maestro are not those of rank 0; give all machines the same files"
            );
        }
        Ok(())
    };
    agree(crew, alike())
}

/// The run folder, which rank 0 chooses and all see.
fn folder(job: &Job<'_>, crew: &Crew) -> Result<PathBuf, Stop> {
    let offer = || {
        let folder = std::path::absolute(record::folder(job.output, &job.pattern.name))?;
        let mark = RunWriter::offer(&folder)?;
        mark.into_os_string().into_string().ok().context("the path of the run folder is no text; choose another by -o")
    };
    let mark = agree(crew, crew.leads().then(offer).transpose())?;
    let mark = PathBuf::from(crew.share(mark.as_deref())?);
    let patience = if crew.leads() { Duration::ZERO } else { SEEN };
    let folder = agree(crew, RunWriter::await_offer(&mark, patience).map_err(Into::into));
    let withdrawn = if crew.leads() { withdraw(&mark) } else { Ok(()) };
    let folder = folder?;
    agree(crew, withdrawn)?;
    Ok(folder)
}

fn withdraw(mark: &Path) -> anyhow::Result<()> {
    Ok(RunWriter::withdraw(mark)?)
}

/// What this process did, if no other refuses; else the refusal.
fn agree<T>(crew: &Crew, mine: anyhow::Result<T>) -> Result<T, Stop> {
    let (refusal, done) = match mine {
        Ok(done) => (Ok(()), Ok(done)),
        Err(error) => {
            let what = error.to_string();
            (Err(what.clone()), Err(Error::Rank { rank: crew.launch().rank, what }))
        }
    };
    crew.agree(refusal)?.map_err(Stop::Agreed)?;
    done.map_err(Stop::Agreed)
}

/// What this process says at its end: rank 0 why, the others that it does, unless it is rank 0 that is gone.
fn end(stop: Stop, crew: &Crew) -> Failure {
    let (agreed, mut failure) = match stop {
        Stop::Agreed(error) => (true, Failure::from(error)),
        Stop::Failed(error) => {
            crew.fail(&error.to_string());
            (false, Failure::run(error))
        }
    };
    let rank_0_tells = crew.ended();
    if !crew.leads() && (agreed || rank_0_tells) {
        failure.error = anyhow!("rank {} ended with the others; rank 0 says why", crew.launch().rank);
    }
    failure
}
