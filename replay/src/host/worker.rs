//! The worker of one lane: takes issued blocks in order, waits for what they depend on, executes them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use maestro_pattern::{BlockId, Kernel, LaneId};

use super::board::Board;
use super::compute::Bench;
use super::watchdog::{Doing, Post};
use super::{End, Exchange, Monitor, World};
use crate::Result;

/// What the execution of a block is, with everything looked up.
pub(super) enum Task {
    /// It communicates.
    Exchange(Exchange),
    /// It keeps its lane busy for so long.
    Hold(BlockId, Duration),
    /// It computes.
    Work(BlockId, Vec<Kernel>),
}

/// One issued block.
pub(super) struct Job {
    /// Index of its instruction.
    pub(super) index: u32,
    /// Instructions that must have ended first.
    pub(super) after: Vec<u32>,
    /// What to do.
    pub(super) task: Arc<Task>,
}

/// What the host has issued on a lane and its worker has not taken.
#[derive(Clone)]
pub(super) struct Queue(Arc<Monitor<Jobs>>);

#[derive(Default)]
struct Jobs {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Queue {
    pub(super) fn new(end: &Arc<End>) -> Self {
        Self(end.monitor(Jobs::default()))
    }

    pub(super) fn push(&self, job: Job) {
        self.0.update(|queue| queue.jobs.push_back(job));
    }

    /// Says that nothing more will come.
    pub(super) fn close(&self) {
        self.0.update(|queue| queue.closed = true);
    }

    /// The next job; `None` when there will be none.
    fn next(&self) -> Result<Option<Job>> {
        self.0.wait(|queue| match queue.jobs.pop_front() {
            Some(job) => Some(Some(job)),
            None => queue.closed.then_some(None),
        })
    }
}

/// The worker of one lane of one rank.
pub(super) struct Worker<'w> {
    pub(super) world: &'w World<'w>,
    pub(super) rank: u32,
    pub(super) lane: LaneId,
    pub(super) queue: Queue,
    pub(super) board: Board,
    pub(super) bench: Bench,
    /// Where holds sleep.
    pub(super) nap: Arc<Monitor<()>>,
    /// Where the watchdog looks what the lane is doing.
    pub(super) post: Post,
    /// When the last hold should have ended, and when it did.
    pub(super) held: Option<(Instant, Instant)>,
}

/// A lane that goes on within this time had its next job waiting.
const STRAIGHT_ON: Duration = Duration::from_micros(100);

impl Worker<'_> {
    /// Works until the queue is closed.
    ///
    /// # Errors
    /// The world ended, or an execution failed.
    pub(super) fn run(mut self) -> Result<()> {
        while let Some(job) = self.queue.next()? {
            self.board.wait(&job.after)?;
            let start = Instant::now();
            let due = self.execute(&job.task, start)?;
            let end = Instant::now();
            self.held = due.map(|due| (due, end));
            self.board.end(job.index, start, end);
        }
        Ok(())
    }

    /// When a hold that begins now counts as begun: a sleeper wakes late, and a lane that goes straight on would add
    /// that up hold by hold, so it goes on from when the last one should have ended.
    fn hold_start(&self, start: Instant) -> Instant {
        let straight = |(_, ended): &(Instant, Instant)| start.saturating_duration_since(*ended) <= STRAIGHT_ON;
        self.held.filter(straight).map_or(start, |(due, _)| due)
    }

    /// Executes a task; of a hold, gives when it should have ended.
    fn execute(&mut self, task: &Task, start: Instant) -> Result<Option<Instant>> {
        let (block, communicator) = match task {
            Task::Exchange(exchange) => (exchange.block, Some(exchange.communicator)),
            Task::Hold(block, _) | Task::Work(block, _) => (*block, None),
        };
        self.post.begin(Doing { rank: self.rank, lane: self.lane, block, communicator, since: start });
        let mut due = None;
        match task {
            Task::Exchange(exchange) => self.world.fabric.exchange(exchange)?,
            // One sleep to an absolute deadline: the lane is busy and the cores are free for the lanes that move bytes.
            Task::Hold(_, time) => self.nap.sleep_until(*due.insert(self.hold_start(start) + *time))?,
            Task::Work(_, kernels) => self.bench.run(kernels, &self.world.end, &self.nap)?,
        }
        self.post.end(&self.world.watch);
        Ok(due)
    }
}
