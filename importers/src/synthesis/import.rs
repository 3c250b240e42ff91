//! What is asked of an import, and what it gives.

use std::sync::Arc;

use maestro_pattern::{Measurement, Pattern, Plan};

use super::{
    CollectiveSummary, ComputeSummary, Conservation, Contention, CopySummary, Folding, Gain, HostTime, RankClock,
    Sizes, StepSummary, Unmatched,
};
use crate::CommKernel;

/// What to import of a capture.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the pattern; `None`: after the first file.
    pub name: Option<String>,
    /// Name of the step, or its number; `None`: the last one of typical length.
    pub step: Option<String>,
    /// How much of the host's time is kept.
    pub host: HostTime,
    /// Whether blocks that differ in sizes only, because those depend on the data, stay blocks of their own.
    pub exact: bool,
    /// Names of kernels that communicate, beside those of known libraries.
    pub comm_kernels: Vec<CommKernel>,
    /// Sizes of communications of which the capture holds none.
    pub sizes: Option<Sizes>,
}

/// What a capture became.
#[derive(Clone, Debug)]
pub struct Import {
    /// The pattern.
    pub pattern: Pattern,
    /// The pattern as a plan, or why it is none: a rank of a team was not captured, say.
    pub plan: maestro_pattern::Result<Plan>,
    /// The captured executions of its blocks; times count from the first start in the step, of any rank.
    pub measurements: Vec<Measurement>,
    /// Name of the step that was taken.
    pub chosen_step: Arc<str>,
    /// Every step of every rank.
    pub steps: Vec<StepSummary>,
    /// Every communication of every step of every rank.
    pub collectives: Vec<CollectiveSummary>,
    /// How much of the compute of the chosen step is understood, one a rank that has the step.
    pub compute: Vec<ComputeSummary>,
    /// Every direction of copies of every step of every rank.
    pub copies: Vec<CopySummary>,
    /// Teams of each axis of the pattern.
    pub teams: Vec<(String, Vec<Vec<u32>>)>,
    /// What the chosen step ran alone as well as overlapped.
    pub contention: Vec<Contention>,
    /// What overlap gained in the chosen step, by rank.
    pub gains: Vec<(u32, Gain)>,
    /// Which stream waited for which in the chosen step.
    pub streams: Vec<StreamWaits>,
    /// How many waits of streams the profiler recorded, and of how many something was inferred.
    pub waits: (usize, usize),
    /// Where the activities of the chosen step went.
    pub conservation: Vec<Conservation>,
    /// Ranks in the capture.
    pub ranks: Vec<u32>,
    /// What folding cost; `None` if the pattern makes no plan.
    pub folding: Option<Folding>,
    /// How much of the host's time the pattern has.
    pub host: HostTime,
    /// Spread of the ranks' clocks around their alignment, in nanoseconds.
    pub clock_error_ns: i64,
    /// The clock of each rank, and how often it was waited for.
    pub clocks: Vec<RankClock>,
    /// Communications that several ranks started last at the same nanosecond: they count for no rank.
    pub ties: usize,
    /// Communications that do not match on their ranks, though all of these were captured.
    pub unmatched: Vec<Unmatched>,
}

/// How often a stream of a rank waited for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamWaits {
    /// Global rank.
    pub rank: u32,
    /// The stream that waited.
    pub stream: i64,
    /// The stream that it waited for.
    pub on_stream: i64,
    /// How often.
    pub count: usize,
}
