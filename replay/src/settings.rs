//! How a plan is run: plain data with documented defaults, and the way in which a run tells what it is doing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use maestro_pattern::{Block, Kernel, Work};

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Iterations at the start of every turn that are not recorded. Default 1.
    pub warmup: u32,
    /// Recorded iterations of each turn in each round. Default 5.
    pub iterations: u32,
    /// Rounds: each has a turn of the whole step, then a turn of every block alone. Default 2.
    pub rounds: u32,
    /// What becomes of host time. Default [`Pacing::Gaps`].
    pub pacing: Pacing,
    /// What becomes of compute. Default [`Compute::Hold`].
    pub compute: Compute,
    /// Whether blocks are run alone, too. Default true.
    pub alone: bool,
    /// Executions of a block alone that are timed as one, back to back, at least 1: what is recorded is their mean.
    /// Default 1.
    pub back_to_back: u32,
    /// Whether the data of every block that communicates is verified, once and untimed, before anything is measured.
    /// Default true.
    pub verify: bool,
    /// Whether each turn runs as a CUDA graph: one launch for all, without host time and host waits. For back ends on
    /// GPUs. Default false.
    pub graph: bool,
    /// The texts of users' own CUDA sources, by the path in the pattern. Default: none.
    pub sources: BTreeMap<String, String>,
    /// How long a world in which no execution ends may live, beyond the longest duration in the plan. Default 30 s.
    pub watchdog: Duration,
    /// Who is told what a run is doing. Default: nobody.
    pub notify: Observer,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            warmup: 1,
            iterations: 5,
            rounds: 2,
            pacing: Pacing::Gaps,
            compute: Compute::Hold,
            alone: true,
            back_to_back: 1,
            verify: true,
            graph: false,
            sources: BTreeMap::new(),
            watchdog: Duration::from_secs(30),
            notify: Observer::default(),
        }
    }
}

impl Settings {
    /// Whether compute does the work that its kernels state, rather than stand for it.
    pub fn works(&self) -> bool {
        match self.compute {
            Compute::Work => true,
            Compute::Hold => false,
        }
    }
}

/// What becomes of the time that hosts spend between issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pacing {
    /// It is kept.
    Gaps,
    /// It is left out, and so is the time that a block's lane idled because of it ([`Block::idle_ns`]).
    Asap,
}

impl Pacing {
    /// Every pacing, the default first.
    pub const ALL: [Self; 2] = [Self::Gaps, Self::Asap];

    /// The name on the command line and in run folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gaps => "gaps",
            Self::Asap => "asap",
        }
    }
}

/// What becomes of compute blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compute {
    /// They keep their lane busy for as long as they took where they were captured, or as their hold kernels say.
    Hold,
    /// They do the work that their kernels state: products, memory traffic, copies, fills and holds. On the host
    /// products of f64 are computed in f64 and all others in f32.
    Work,
}

impl Compute {
    /// Every way, the default first.
    pub const ALL: [Self; 2] = [Self::Hold, Self::Work];

    /// The name on the command line and in run folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Work => "work",
        }
    }
}

/// How long `block` lasts on `rank` by what is known of it, in nanoseconds: its captured duration with the rank's skew
/// (of a compute block under [`Pacing::Asap`] without its idle part), else the sum of its kernels if all are holds.
pub fn nominal_ns(block: &Block, rank: u32, pacing: Pacing) -> Option<u64> {
    let captured = block.captured_on(rank as usize);
    match &block.work {
        Work::Collective(_) | Work::P2p { .. } | Work::Group(_) => captured,
        Work::Cuda(_) => captured.map(|ns| busy(block, ns, pacing)),
        Work::Compute(kernels) => captured.map(|ns| busy(block, ns, pacing)).or_else(|| held(kernels)),
    }
}

/// How long `block` keeps its lane without anything to do before it does its work, in nanoseconds: the idle part of what
/// was captured, as far as the pacing keeps host time.
pub fn idle_ns(block: &Block, pacing: Pacing) -> u64 {
    match pacing {
        Pacing::Gaps => block.idle_ns,
        Pacing::Asap => 0,
    }
}

fn busy(block: &Block, ns: u64, pacing: Pacing) -> u64 {
    match pacing {
        Pacing::Gaps => ns,
        Pacing::Asap => ns.saturating_sub(block.idle_ns),
    }
}

fn held(kernels: &[Kernel]) -> Option<u64> {
    kernels
        .iter()
        .map(|kernel| match kernel {
            Kernel::Hold { duration_ns, times, .. } => Some(duration_ns.saturating_mul(*times)),
            Kernel::Gemm { .. } | Kernel::Memory { .. } | Kernel::Copy { .. } | Kernel::Set { .. } => None,
        })
        .try_fold(0u64, |total, ns| ns.map(|ns| total.saturating_add(ns)))
}

/// Something that a run tells while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A phase began.
    Phase(Phase),
    /// Iterations of all turns and rounds, warm-up included, as the first local rank counts them.
    Progress {
        /// How many have ended.
        done: u64,
        /// How many there are.
        total: u64,
    },
    /// One rank found all its data right.
    Verified {
        /// The rank.
        rank: u32,
        /// How many executions it compared.
        executions: u64,
        /// How many bytes of output it compared.
        bytes: u64,
    },
    /// How far times of one rank may be off those of another, beyond what was told before: errors of several kinds (a
    /// device's clock against its host's, one host's against another's) add up.
    ClockError(Duration),
    /// Something that a reader of the numbers should know: a full sentence without its full stop.
    Note(String),
}

/// The phases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Ranks come to life, buffers and communicators are made.
    Prepare,
    /// Data is verified.
    Verify,
    /// Turns are run and timed.
    Measure,
}

/// Who is told what a run is doing. Called from the run's threads, so it should be quick.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(Notice) + Send + Sync>);

impl Observer {
    /// Has `tell` called with every notice.
    pub fn new(tell: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells it.
    pub fn tell(&self, notice: Notice) {
        (self.0)(notice);
    }
}

impl Default for Observer {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(us: u64, times: u64) -> Kernel {
        Kernel::Hold { duration_ns: us * 1_000, sms: None, times }
    }

    #[test]
    fn captured_wins_over_holds_and_takes_the_skew() {
        let mut block = Block::new("x", Work::Compute(vec![hold(5, 2), hold(1, 1)]));
        assert_eq!(nominal_ns(&block, 1, Pacing::Gaps), Some(11_000));
        block.captured_ns = Some(20_000);
        block.skew = vec![1.0, 1.5];
        block.idle_ns = 4_000;
        assert_eq!(nominal_ns(&block, 1, Pacing::Gaps), Some(30_000));
        assert_eq!(nominal_ns(&block, 1, Pacing::Asap), Some(26_000));
        assert_eq!((idle_ns(&block, Pacing::Gaps), idle_ns(&block, Pacing::Asap)), (4_000, 0));
    }

    #[test]
    fn work_that_no_clock_has_seen_has_no_duration() {
        let block =
            Block::new("x", Work::Compute(vec![hold(5, 1), Kernel::Memory { bytes: 8, lasts_ns: None, times: 1 }]));
        assert_eq!(nominal_ns(&block, 0, Pacing::Gaps), None);
    }
}
