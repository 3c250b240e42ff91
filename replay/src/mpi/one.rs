//! One rank in this process, the others in theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use maestro_pattern::{Measurement, Plan};

use super::birth::communicators;
use super::fabric::Mpi as Fabric;
use super::ffi::signal::Held;
use super::ffi::{Library, tune};
use super::{Mpi, NAME, largest_all_reduce, runnable, unusable};
use crate::crew::{Crew, Spread};
use crate::executor::{Record, Session};
use crate::host::{self, End, World};
use crate::store::Store;
use crate::{Error, Launch, Notice, Phase, Result, Settings};

/// How long the processes wait for each other beyond what one of them may be silent for. A process that is gone is
/// noticed at once and one that hangs notices it itself, so this is only for a machine that fell off the network;
/// meanwhile ranks may differ by as much as a step lasts.
const PATIENCE: Duration = Duration::from_secs(600);

impl Spread for Mpi {
    fn probe_one(&self, plan: &Plan, settings: &Settings, launch: &Launch) -> Result<()> {
        runnable(plan, settings)?;
        host::check_memory(plan, settings, &[launch.rank], host::available_memory())?;
        let library = library()?;
        alike(library, launch)
    }

    fn run_one(&self, plan: &Plan, settings: &Settings, crew: &Crew) -> Result<Vec<Measurement>> {
        let (store, rank) = (crew.store(), crew.launch().rank);
        let held = Held::new();
        let run = || -> Result<Vec<Measurement>> {
            host::note_what_is_ignored(plan, settings, "MPI", NAME);
            settings.notify.tell(Notice::Phase(Phase::Prepare));
            let library = library()?;
            let silence = settings.watchdog + host::longest_silence(plan);
            store.set_patience(silence + PATIENCE);
            if tune::ring(largest_all_reduce(plan).is_some_and(|ranks| ranks < 4)) {
                let what = "all-reduces ran as a ring, where Open MPI would send everything to one rank and back";
                settings.notify.tell(Notice::Note(format!("{what}; coll_libnbc_iallreduce_algorithm chooses")));
            }
            let comms = communicators(plan, rank, library, store, silence)?;
            let end = Arc::new(End::default());
            let fabric = Fabric::new(plan, rank, library, store, &end, comms);
            let session = Session::new(plan, settings)?;
            let own = live(&session, (plan, settings), &fabric, &end, store, (rank, &held))?;
            let apart = 2 * fabric.clock_error();
            settings.notify.tell(Notice::ClockError(apart));
            settings.notify.tell(Notice::Note(format!(
                "{}; each rank was a process; their clocks, and so starts on different ranks, agree within {:.1} us",
                library.version,
                apart.as_secs_f64() * 1e6
            )));
            // All have ended when all have told when they began.
            let records = crew.exchange(own)?;
            fabric.free()?;
            Ok(session.measurements_of(rank, records))
        };
        run().map_err(|error| {
            store.fail(&error.to_string());
            // Several ranks may fail at the same time. What all say is what they heard of first.
            match (store.check().err(), error) {
                (Some(Error::Rank { rank: first, .. }), Error::Rank { rank: told, what }) if first == told => {
                    Error::Rank { rank: told, what }
                }
                (heard, error) => heard.unwrap_or(error),
            }
        })
    }
}

/// Runs the rank, from the birth of its lanes to its record.
///
/// # Errors
/// Its own failure, or another rank's, with the block in which this one waited for it.
fn live(
    session: &Session<'_>,
    (plan, settings): (&Plan, &Settings),
    fabric: &Fabric<'_>,
    end: &Arc<End>,
    store: &Store,
    (rank, held): (u32, &Held),
) -> Result<Record> {
    let buffers = host::all_buffers(plan, &[rank]);
    let world = World::new(plan, settings, fabric, end.clone(), vec![rank], buffers);
    let over = AtomicBool::new(false);
    let records = thread::scope(|scope| {
        scope.spawn(|| listen(store, rank, held, &over).unwrap_or_else(|error| end.fail(error)));
        let records = world.run(&|endpoint| session.perform(endpoint, rank == 0));
        over.store(true, Ordering::SeqCst);
        store.wake();
        records
    });
    match records {
        Ok(mut records) => Ok(records.pop().map(|(_, record)| record).unwrap_or_default()),
        Err(Error::Rank { rank: gone, what }) => {
            Err(Error::Rank { rank: gone, what: what + &waited(plan, fabric, rank, gone) })
        }
        Err(error) => Err(error),
    }
}

/// In which block this rank waited for another that failed.
fn waited(plan: &Plan, fabric: &Fabric<'_>, rank: u32, gone: u32) -> String {
    let Some((block, lane)) = fabric.waits_for(gone) else { return String::new() };
    let (block, lane) = (&plan.blocks[block as usize].name, &plan.lanes[lane as usize].name);
    format!("; rank {rank} waited for it in block `{block}` on lane `{lane}`")
}

/// Listens for the failure of another rank, until the run is over.
///
/// # Errors
/// That failure, or somebody asks this process to end.
fn listen(store: &Store, rank: u32, held: &Held, over: &AtomicBool) -> Result<()> {
    /// How often it is looked whether somebody asked this process to end: a signal can wake no thread.
    const LOOK: Duration = Duration::from_millis(50);
    /// How long it then waits to hear of a reason. Launchers kill a second later.
    const REASON: Duration = Duration::from_millis(500);
    let over = || over.load(Ordering::SeqCst);
    let mut asked: Option<Instant> = None;
    while !over() {
        store.watch(LOOK, over)?;
        if held.asked() && asked.get_or_insert_with(Instant::now).elapsed() > REASON {
            return Err(Error::Rank { rank, what: "somebody asked its process to end (SIGTERM)".into() });
        }
    }
    Ok(())
}

fn library() -> Result<&'static Library> {
    Library::get().map_err(|what| unusable(what, "take an MPI that is built with threads"))
}

/// Whether MPI's ranks are those of the launcher.
fn alike(library: &Library, launch: &Launch) -> Result<()> {
    let (own, theirs) = ((library.rank, library.size), (launch.rank, launch.world));
    if own == theirs {
        return Ok(());
    }
    Err(unusable(
        format!(
            "{} says that this is rank {} of {}, and {} that it is rank {} of {}",
            library.version,
            own.0,
            own.1,
            launch.by.name(),
            theirs.0,
            theirs.1
        ),
        "start by the mpirun of the MPI that this program was built with, or by srun --mpi=pmix or --mpi=pmi2",
    ))
}
