//! A host rank as an endpoint: issues to its lanes' workers, waits on its board, spends host time by deadline.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::thread::Scope;
use std::time::{Duration, Instant};

use maestro_pattern::{Kernel, LaneId, Program, State, Work};

use super::board::Board;
use super::buffers::sizes;
use super::compute::Bench;
use super::worker::{Job, Queue, Task, Worker};
use super::{Exchange, LaneBuffers, Monitor, World, read, write};
use crate::meeting::place;
use crate::turn::issues;
use crate::{Compute, Endpoint, Error, Issue, Pacing, Result, Span, idle_ns, nominal_ns};

/// One rank of this process.
pub(super) struct Rank<'w> {
    world: &'w World<'w>,
    rank: u32,
    /// Of the lanes that it uses.
    queues: BTreeMap<LaneId, Queue>,
    board: Board,
    /// Per instruction of the program, if it is an issue.
    tasks: Vec<Option<Arc<Task>>>,
    /// When the iteration began.
    zero: Instant,
    /// Until when the host has spent its time. Deadlines follow each other from the barrier on, so that oversleeping
    /// one gap shortens the next and drift does not add up.
    clock: Instant,
    nap: Arc<Monitor<()>>,
}

impl<'w> Rank<'w> {
    /// Allocates the buffers of `rank` and starts the workers of its lanes.
    ///
    /// # Errors
    /// The plan contradicts itself, or the system gives no thread.
    pub(super) fn new(world: &'w World<'w>, scope: &'w Scope<'w, '_>, rank: u32) -> Result<Self> {
        let now = Instant::now();
        let mut this = Self {
            world,
            rank,
            queues: BTreeMap::new(),
            board: Board::new(&world.end),
            tasks: Vec::new(),
            zero: now,
            clock: now,
            nap: world.end.monitor(()),
        };
        for (lane, sizes) in sizes(world.plan, world.settings, rank)? {
            this.buffers(lane).allocate(&sizes);
            let queue = Queue::new(&world.end);
            let worker = Worker {
                world,
                rank,
                lane,
                queue: queue.clone(),
                board: this.board.clone(),
                bench: Bench::new(&sizes.workspace),
                nap: world.end.monitor(()),
                post: world.watch.post(),
                held: None,
            };
            this.queues.insert(lane, queue);
            let name = format!("rank {rank} {}", world.plan.lanes[lane as usize].name);
            world.spawn(scope, rank, name, || worker.run()).ok_or(Error::Ended)?;
        }
        Ok(this)
    }

    fn buffers(&self, lane: LaneId) -> Arc<LaneBuffers> {
        self.world.buffers[&(self.rank, lane)].clone()
    }

    /// Looks everything up that executing an issue takes.
    fn task(&self, issue: Issue<'_>) -> Result<Task> {
        let plan = self.world.plan;
        let block = &plan.blocks[issue.block as usize];
        let contradiction = |what: &str| Error::Plan { rank: self.rank, block: block.name.clone(), what: what.into() };
        let hold = || {
            let ns = nominal_ns(block, self.rank, self.world.settings.pacing);
            let ns = ns.ok_or_else(|| contradiction("it has no duration to hold its lane for"))?;
            Ok(Task::Hold(issue.block, Duration::from_nanos(ns)))
        };
        match &block.work {
            Work::Collective(_) | Work::P2p { .. } | Work::Group(_) => {
                let axis = issue.axis.ok_or_else(|| contradiction("it communicates and is on no axis"))?;
                let (communicator, seat) = place(plan, self.rank, issue.block, axis, issue.lane)?;
                Ok(Task::Exchange(Exchange {
                    block: issue.block,
                    communicator,
                    seat,
                    layouts: self.world.layouts(issue.block, plan.communicators[communicator as usize].ranks.len()),
                    buffers: self.buffers(issue.lane),
                }))
            }
            Work::Compute(kernels) => match self.world.settings.compute {
                Compute::Hold => hold(),
                Compute::Work => {
                    let idle = Some(idle_ns(block, self.world.settings.pacing)).filter(|ns| *ns > 0);
                    let idle = idle.map(|duration_ns| Kernel::Hold { duration_ns, sms: None, times: 1 });
                    Ok(Task::Work(issue.block, idle.into_iter().chain(kernels.iter().cloned()).collect()))
                }
            },
            Work::Cuda(_) => hold(),
        }
    }

    /// The exchange of an instruction.
    fn exchange(&self, index: u32) -> Result<&Exchange> {
        match self.tasks.get(index as usize).and_then(Option::as_deref) {
            Some(Task::Exchange(exchange)) => Ok(exchange),
            Some(Task::Hold(block, _) | Task::Work(block, _)) => Err(Error::Plan {
                rank: self.rank,
                block: self.world.plan.blocks[*block as usize].name.clone(),
                what: "only blocks that communicate have an input and an output".into(),
            }),
            None => Err(self.no_issue(index)),
        }
    }

    fn no_issue(&self, index: u32) -> Error {
        Error::Plan { rank: self.rank, block: String::new(), what: format!("instruction {index} is no issue") }
    }
}

impl Endpoint for Rank<'_> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn prepare(&mut self, program: &Program, _: State) -> Result<()> {
        let mut known = HashMap::new();
        let mut tasks = vec![None; program.instructions.len()];
        for issue in issues(program) {
            let task = match known.get(&(issue.block, issue.axis, issue.lane)) {
                Some(task) => Arc::clone(task),
                None => Arc::new(self.task(issue)?),
            };
            known.insert((issue.block, issue.axis, issue.lane), task.clone());
            tasks[issue.index as usize] = Some(task);
        }
        self.tasks = tasks;
        self.board.clear(program.instructions.len());
        Ok(())
    }

    fn barrier(&mut self) -> Result<()> {
        self.zero = self.world.fabric.barrier(self.rank)?;
        self.clock = self.zero;
        Ok(())
    }

    fn issue(&mut self, issue: Issue<'_>) -> Result<()> {
        let task = self.tasks.get(issue.index as usize).cloned().flatten();
        let (Some(task), Some(queue)) = (task, self.queues.get(&issue.lane)) else {
            return Err(self.no_issue(issue.index));
        };
        self.board.issue();
        queue.push(Job { index: issue.index, after: issue.after.to_vec(), task });
        Ok(())
    }

    fn wait(&mut self, index: u32) -> Result<()> {
        self.board.wait(&[index])?;
        self.clock = self.clock.max(Instant::now());
        Ok(())
    }

    fn host(&mut self, ns: u64) -> Result<()> {
        match self.world.settings.pacing {
            Pacing::Gaps => {
                self.clock += Duration::from_nanos(ns);
                self.nap.sleep_until(self.clock)
            }
            Pacing::Asap => Ok(()),
        }
    }

    fn drain(&mut self) -> Result<Vec<Span>> {
        self.board.drain(self.zero)
    }

    fn load(&mut self, index: u32, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let exchange = self.exchange(index)?;
        let layout = &exchange.layouts[exchange.seat];
        fill(&mut write(&exchange.buffers.input).bytes_mut()[..layout.input_bytes]);
        write(&exchange.buffers.output).bytes_mut()[..layout.output_bytes].fill(POISON);
        Ok(())
    }

    fn inspect(&mut self, index: u32, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        let exchange = self.exchange(index)?;
        look(&read(&exchange.buffers.output).bytes()[..exchange.layouts[exchange.seat].output_bytes]);
        Ok(())
    }
}

/// What outputs hold before data is verified: no right result of any test data, which is mostly zeros for narrow types
/// and large teams.
const POISON: u8 = 0xa5;

impl Drop for Rank<'_> {
    /// Lets the workers go home.
    fn drop(&mut self) {
        self.queues.values().for_each(Queue::close);
    }
}
