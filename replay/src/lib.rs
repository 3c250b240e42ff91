//! Back ends that bring a Plan's ranks to life, run it and time every block.
//!
//! A [`Backend`] takes a [`Plan`] and gives [`Measurement`]s. Those with live ranks give each an [`Endpoint`], and one
//! loop, [`executor::drive`], runs a rank's program on whatever endpoint it is handed; overlapped and alone,
//! verification and warm-up are arranged above that loop ([`executor::Session`]) and so are the same everywhere.
//! [`BACKENDS`] is the registry: a new back end is one module and one line there.
//!
//! This crate reads no captures and no YAML, writes no files and prints nothing: what a person should know while it
//! runs goes to [`Settings::notify`].

pub mod conformance;
mod crew;
pub mod dry;
mod error;
pub mod executor;
mod host;
mod launch;
mod layout;
mod meeting;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(feature = "nccl")]
pub mod nccl;
mod reduce;
mod settings;
mod starts;
pub mod store;
pub mod threads;
mod timing;
mod turn;
mod verify;

use maestro_pattern::{AxisId, BlockId, LaneId, Measurement, Plan, Program, State};

pub use crew::{Crew, Spread, spread};
pub use error::{Error, Result};
pub use host::available_memory;
pub use launch::{Launch, Launcher};
pub use layout::{Layout, Part};
pub use meeting::{Execution, Meeting, Meetings};
pub use settings::{Compute, Notice, Observer, Pacing, Phase, Settings, idle_ns, nominal_ns};
pub use turn::Turn;

/// Every back end, simplest first.
pub static BACKENDS: &[&dyn Backend] = &[
    &dry::Dry,
    &threads::Threads,
    #[cfg(feature = "mpi")]
    &mpi::Mpi,
    #[cfg(feature = "nccl")]
    &nccl::Nccl,
];

/// The back end of this name.
pub fn backend(name: &str) -> Option<&'static dyn Backend> {
    BACKENDS.iter().copied().find(|backend| backend.name() == name)
}

/// A way of bringing ranks to life and running a plan on them.
pub trait Backend: Sync {
    /// The name on the command line and in run folders.
    fn name(&self) -> &'static str;

    /// One sentence for a person who chooses.
    fn about(&self) -> &'static str;

    /// How its ranks live in processes of their own, if they can.
    fn spread(&self) -> Option<&dyn Spread> {
        None
    }

    /// What becomes of compute where nobody says.
    fn compute(&self) -> Compute {
        Compute::Hold
    }

    /// Whether it can run `plan` on this machine.
    ///
    /// # Errors
    /// Why not, naming the block that stands in the way where one does, and what would help.
    fn probe(&self, plan: &Plan, settings: &Settings) -> Result<()>;

    /// Bytes that [`Backend::run`] will allocate for buffers on this machine, all local ranks together.
    fn memory(&self, plan: &Plan, settings: &Settings) -> u64;

    /// Runs `plan` as [`Settings`] say and gives every timed execution of the ranks that live in this process.
    ///
    /// # Errors
    /// Whatever [`Backend::probe`] refuses, too little memory, wrong data, a rank that hangs or fails. One failing rank
    /// ends them all; the error is of the one that failed first.
    fn run(&self, plan: &Plan, settings: &Settings) -> Result<Vec<Measurement>>;
}

/// One live rank inside a back end.
///
/// [`executor::drive`] calls `prepare` once for a program and then, for each iteration, `barrier`, one of `issue`,
/// `wait` and `host` for each instruction, and `drain`. Issuing and completing are different calls: that lets workers
/// and streams share one loop. `load` and `inspect` are called only while data is verified, on an execution that is not
/// running.
pub trait Endpoint {
    /// The global rank that it is.
    fn rank(&self) -> u32;

    /// Makes ready to run `program`, so that nothing is created or looked up while it is timed. Of a program that is
    /// measured alone, which has no waits, the host's own time is no part: what is issued may be held back until all of
    /// it was, so that no execution is timed while its lane waits for the host.
    ///
    /// # Errors
    /// What could not be made ready.
    fn prepare(&mut self, program: &Program, state: State) -> Result<()>;

    /// Waits for every rank of the world. Its release is time 0 of an iteration.
    ///
    /// # Errors
    /// The world ended.
    fn barrier(&mut self) -> Result<()>;

    /// Puts a block on its lane and returns without waiting for it.
    ///
    /// # Errors
    /// The world ended, or the block could not be issued.
    fn issue(&mut self, issue: Issue<'_>) -> Result<()>;

    /// The host waits until the issued instruction `index` has ended.
    ///
    /// # Errors
    /// The world ended.
    fn wait(&mut self, index: u32) -> Result<()>;

    /// The host spends `ns` nanoseconds, as far as the pacing keeps host time.
    ///
    /// # Errors
    /// The world ended.
    fn host(&mut self, ns: u64) -> Result<()>;

    /// Waits until everything issued since the barrier has ended; gives one span an instruction, in ascending order. Of
    /// executions in a row that are timed as one it goes from the start of the first to the end of the last.
    ///
    /// # Errors
    /// The world ended.
    fn drain(&mut self) -> Result<Vec<Span>>;

    /// Has `fill` write the input of instruction `index` (laid out as [`Layout`] says) and clears its output, so that
    /// nothing an earlier execution left there can pass for a result.
    ///
    /// # Errors
    /// The buffer could not be written.
    fn load(&mut self, index: u32, fill: &mut dyn FnMut(&mut [u8])) -> Result<()>;

    /// Shows `look` the output of instruction `index`, laid out as [`Layout`] says.
    ///
    /// # Errors
    /// The buffer could not be read.
    fn inspect(&mut self, index: u32, look: &mut dyn FnMut(&[u8])) -> Result<()>;
}

/// One `Issue` instruction, as an endpoint is given it.
#[derive(Clone, Copy, Debug)]
pub struct Issue<'p> {
    /// Its index in the program.
    pub index: u32,
    /// Which block.
    pub block: BlockId,
    /// Axis of a block that communicates.
    pub axis: Option<AxisId>,
    /// Which lane.
    pub lane: LaneId,
    /// Indices of instructions that must have ended first, beside the lane's own earlier work.
    pub after: &'p [u32],
    /// Whether its start counts. Not if the same instruction was issued just before, in a row that is timed as one.
    pub first: bool,
    /// Whether its end counts. Not if the same instruction is issued next, in a row that is timed as one.
    pub last: bool,
}

/// When one execution of a block ran, in nanoseconds from the barrier that opened its iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of its instruction in the program.
    pub instruction: u32,
    /// When its lane began it: its predecessors had ended.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_back_end_has_a_name_of_its_own_and_says_what_it_is() {
        let names: HashSet<_> = BACKENDS.iter().map(|b| b.name()).collect();
        assert_eq!(names.len(), BACKENDS.len());
        for known in BACKENDS {
            assert!(!known.about().is_empty());
            assert_eq!(backend(known.name()).map(Backend::name), Some(known.name()));
        }
        assert!(backend("smoke signals").is_none());
    }
}
