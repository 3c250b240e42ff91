//! One timed execution of a block: what a replay gives, and what an import gives of the captured step.

use std::sync::Arc;

/// Whether a block ran inside the step or by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Inside the step, beside whatever the step runs beside it.
    Overlapped,
    /// By itself: on every team and rank that runs it at once, with no other block beside it.
    Alone,
}

impl State {
    /// The name in run folders and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overlapped => "overlapped",
            Self::Alone => "alone",
        }
    }
}

/// One execution of a block on one rank.
///
/// Times are nanoseconds on a clock common to all ranks of the run, counted from the start of the iteration (the
/// barrier that opens it), so that iterations compare directly.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Round of the interleaving: each has a turn of the step and a turn of every block alone.
    pub round: u32,
    /// Iteration inside the round; warm-ups are not recorded.
    pub iteration: u32,
    /// Global rank.
    pub rank: u32,
    /// Name of the block.
    pub block: Arc<str>,
    /// Name of the axis, for blocks that communicate.
    pub axis: Option<Arc<str>>,
    /// Name of the lane.
    pub lane: Arc<str>,
    /// Which execution of this block in the step, from 0, in the rank's issue order.
    pub instance: u32,
    /// Inside the step or by itself.
    pub state: State,
    /// When it began on its lane.
    pub start_ns: u64,
    /// When it ended on its lane.
    pub end_ns: u64,
    /// How long it waited for the last rank to arrive, where all ranks of the team are known: latest start over the
    /// team - own start. Only of blocks that communicate.
    pub wait_ns: Option<u64>,
    /// How long moving the data took: own end - latest start over the team. Only of blocks that communicate.
    pub transfer_ns: Option<u64>,
    /// S of nccl-tests in bytes, where the block has one.
    pub size_bytes: Option<u64>,
}

impl Measurement {
    /// Time on its lane, in nanoseconds.
    pub fn latency_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}
