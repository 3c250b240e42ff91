//! Ranks on the host: a thread a rank that issues, and a worker thread a lane that does.
//!
//! This is everything a host rank needs but the moving of bytes between ranks, which is a [`Fabric`]'s: shared memory
//! for threads, MPI for processes. A lane is a queue that its worker empties in order, an `after` or a wait is a
//! ticket on the rank's board, host time is a deadline.

mod board;
mod buffers;
mod compute;
mod monitor;
mod rank;
mod watchdog;
mod worker;

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{self, Builder, Scope};
use std::time::Instant;

use maestro_pattern::{BlockId, Collective, CollectiveKind, CommSettings, LaneId, Plan, Priority, Work};

pub use self::buffers::available_memory;
pub(crate) use self::buffers::{LaneBuffers, Memory, check_memory, needed, read, write};
pub(crate) use self::monitor::{End, Gate, Monitor, lock};
use self::rank::Rank;
#[cfg(any(feature = "mpi", feature = "nccl"))]
pub(crate) use self::watchdog::longest_silence;
use self::watchdog::{Watch, supervise};
use crate::executor::Record;
use crate::layout::Layout;
use crate::{Compute, Endpoint, Error, Notice, Result, Settings, nominal_ns};

/// What moves bytes between host ranks.
pub(crate) trait Fabric: Sync {
    /// Waits for every rank of the world; gives the moment of release, the same on all ranks.
    ///
    /// # Errors
    /// The world ended.
    fn barrier(&self, rank: u32) -> Result<Instant>;

    /// Executes a communicating block on one rank and returns when the rank's output is complete and its input may be
    /// overwritten.
    ///
    /// # Errors
    /// The world ended, or the ranks do not agree on what is exchanged.
    fn exchange(&self, exchange: &Exchange) -> Result<()>;

    /// The global ranks that `rank` waits for in an exchange on `communicator`.
    fn missing(&self, communicator: u32, rank: u32) -> Vec<u32>;
}

/// A communicating block on one rank, with everything looked up.
pub(crate) struct Exchange {
    /// Which block.
    pub(crate) block: BlockId,
    /// Index of its communicator.
    pub(crate) communicator: u32,
    /// The rank's place in the communicator.
    pub(crate) seat: usize,
    /// The layouts of all seats.
    pub(crate) layouts: Arc<[Layout]>,
    /// The buffers of the rank's lane.
    pub(crate) buffers: Arc<LaneBuffers>,
}

/// The buffers of every (rank, lane) of this process.
pub(crate) type AllBuffers = HashMap<(u32, LaneId), Arc<LaneBuffers>>;

/// The layouts of all seats, by block and size of the team.
type AllLayouts = HashMap<(BlockId, usize), Arc<[Layout]>>;

/// What the ranks of this process share.
pub(crate) struct World<'p> {
    plan: &'p Plan,
    settings: &'p Settings,
    fabric: &'p dyn Fabric,
    end: Arc<End>,
    /// The ranks that live in this process.
    ranks: Vec<u32>,
    buffers: AllBuffers,
    layouts: Mutex<AllLayouts>,
    watch: Watch,
}

/// What is run on every rank: mostly [`crate::executor::Session::perform`].
pub(crate) type Body<'b> = &'b (dyn Fn(&mut dyn Endpoint) -> Result<Record> + Sync);

/// Buffers, not yet allocated, for every lane of `ranks`.
pub(crate) fn all_buffers(plan: &Plan, ranks: &[u32]) -> AllBuffers {
    let lanes = plan.lanes.len() as LaneId;
    ranks.iter().flat_map(|rank| (0..lanes).map(|lane| ((*rank, lane), Arc::default()))).collect()
}

/// Refuses blocks that host ranks cannot run.
///
/// # Errors
/// The first such block and what would help.
pub(crate) fn probe(backend: &'static str, plan: &Plan, settings: &Settings) -> Result<()> {
    for (block, _, _) in plan.uses() {
        let block = &plan.blocks[block as usize];
        let no_size = match &block.work {
            Work::Collective(one) => lacks_size(one),
            Work::Group(all) => all.iter().any(lacks_size),
            Work::P2p { .. } | Work::Compute(_) | Work::Cuda(_) => false,
        };
        if no_size {
            return Err(Error::Unusable {
                backend,
                what: format!("block `{}` has no size", block.name),
                help: "write its size into the pattern, or simulate it with the dry back end".into(),
            });
        }
        let instead = match &block.work {
            Work::Collective(_) | Work::P2p { .. } | Work::Group(_) => continue,
            Work::Compute(_) => match settings.compute {
                Compute::Hold => "`--compute work` runs its kernels; or give it a captured duration",
                Compute::Work => continue,
            },
            Work::Cuda(_) => "CUDA sources run on GPUs only; here give it a captured duration",
        };
        if nominal_ns(block, 0, settings.pacing).is_none() {
            return Err(Error::Unusable {
                backend,
                what: format!("block `{}` has no captured duration to hold its lane for", block.name),
                help: instead.into(),
            });
        }
    }
    Ok(())
}

pub(crate) fn lacks_size(collective: &Collective) -> bool {
    collective.size.is_none() && collective.kind != CollectiveKind::Barrier
}

impl<'p> World<'p> {
    pub(crate) fn new(
        plan: &'p Plan,
        settings: &'p Settings,
        fabric: &'p dyn Fabric,
        end: Arc<End>,
        ranks: Vec<u32>,
        buffers: AllBuffers,
    ) -> Self {
        let (layouts, watch) = (Mutex::default(), Watch::default());
        Self { plan, settings, fabric, end, ranks, buffers, layouts, watch }
    }

    /// The layouts of a block for all seats of a team of `ranks`, made once.
    fn layouts(&self, block: BlockId, ranks: usize) -> Arc<[Layout]> {
        let work = &self.plan.blocks[block as usize].work;
        lock(&self.layouts)
            .entry((block, ranks))
            .or_insert_with(|| (0..ranks).map(|seat| Layout::of(work, seat, ranks)).collect())
            .clone()
    }

    /// Runs `body` on every local rank, each in a thread of its own, and gives what they return.
    ///
    /// # Errors
    /// The error of the rank that failed first; the others are ended and joined.
    pub(crate) fn run(&self, body: Body<'_>) -> Result<Vec<(u32, Record)>> {
        let finished = self.end.monitor(false);
        let records: Vec<(u32, Record)> = thread::scope(|scope| {
            let hosts: Vec<_> = self
                .ranks
                .iter()
                .map_while(|rank| {
                    let host = move || {
                        let mut endpoint = Rank::new(self, scope, *rank)?;
                        body(&mut endpoint)
                    };
                    self.spawn(scope, *rank, format!("rank {rank}"), host)
                })
                .collect();
            let _watchdog = self.spawn(scope, self.ranks[0], "watchdog".into(), || supervise(self, &finished));
            let join = |(host, rank): (thread::ScopedJoinHandle<'_, Option<Record>>, &u32)| {
                host.join().ok().flatten().map(|record| (*rank, record))
            };
            let records = hosts.into_iter().zip(&self.ranks).filter_map(join).collect();
            finished.update(|finished| *finished = true);
            records
        });
        match self.end.take() {
            Some(error) => Err(error),
            None if records.len() < self.ranks.len() => Err(Error::Ended),
            None => Ok(records),
        }
    }

    /// Starts a thread of `rank`, whose error or panic ends the world.
    fn spawn<'scope, T: Send + 'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        rank: u32,
        name: String,
        work: impl FnOnce() -> Result<T> + Send + 'scope,
    ) -> Option<thread::ScopedJoinHandle<'scope, Option<T>>> {
        let guarded = move || match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(result)) => Some(result),
            Ok(Err(error)) => {
                self.end.fail(error);
                None
            }
            Err(panic) => {
                self.end.fail(Error::Panicked { rank, message: said(panic.as_ref()) });
                None
            }
        };
        match Builder::new().name(name).spawn_scoped(scope, guarded) {
            Ok(handle) => Some(handle),
            Err(source) => {
                self.end.fail(Error::Thread { rank, source });
                None
            }
        }
    }
}

/// What a panic said.
pub(crate) fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}

/// Tells what of the plan has no meaning on the host. `library` is what moves the bytes, `backend` the back end's name.
pub(crate) fn note_what_is_ignored(plan: &Plan, settings: &Settings, library: &str, backend: &str) {
    let note = |text: String| settings.notify.tell(Notice::Note(text));
    if plan.communicators.iter().any(|c| c.settings != CommSettings::default()) {
        note(format!("{library} has no communicator settings: those of the pattern are ignored"));
    }
    if plan.lanes.iter().any(|lane| lane.priority != Priority::Normal) {
        note(format!("{library} has no lane priorities: those of the pattern are ignored"));
    }
    let compute = |(block, _, _): &(u32, _, _)| !plan.blocks[*block as usize].work.communicates();
    if settings.compute == Compute::Hold && plan.uses().iter().any(compute) {
        note("compute only holds its lane for the captured time and takes no core, so it has no slowdown".into());
    }
    for (block, _, _) in plan.uses() {
        let block = &plan.blocks[block as usize];
        if let Work::Cuda(kernel) = &block.work {
            note(format!("{backend} cannot run {}: block `{}` holds its lane instead", kernel.source, block.name));
        }
    }
}
