//! A rank on a device as an endpoint: a lane is a stream, an `after` an event, host time a deadline.
//!
//! Executions are timed by events on the device ([`Marks`]). Their times are put on the host's clock by an event whose
//! moment the host knows: recorded anew before each barrier, so that clocks which drift apart have no time to.

mod birth;
mod costs;
mod tasks;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use maestro_pattern::{AxisId, BlockId, LaneId, Program, State};

use self::tasks::{Act, Task};
use super::buffers::Buffers;
use super::clock::Clock;
use super::ffi::blas::Handle;
use super::ffi::cuda::{Context, DeviceMemory, Event, Graph, PinnedMemory, Stream};
use super::ffi::nccl::Comm;
use super::ffi::{Failure, Native};
use super::gate::Gate;
use super::kernels::Kernels;
use super::marks::Marks;
use super::work::Exchange;
use super::world::World;
use crate::layout::Layout;
use crate::turn::issues;
use crate::{Endpoint, Error, Issue, Pacing, Result, Span};

type Use = (BlockId, Option<AxisId>, LaneId);

/// How often a waiting host looks whether its communicators are well.
const HEALTH: Duration = Duration::from_millis(50);

/// What outputs hold before data is verified, as on the host.
const POISON: u8 = 0xa5;

/// One lane.
struct Lane {
    stream: Stream,
    buffers: Buffers,
    /// Where its timed kernels keep their begin.
    slot: DeviceMemory,
}

/// How instructions reach the device.
#[derive(PartialEq, Eq)]
enum Way {
    /// Each by itself.
    Eager,
    /// Each into the graph that is being made.
    Capturing,
    /// All at once, by the graph.
    Graph,
}

/// One rank of this process.
pub(in crate::nccl) struct Rank {
    // Fields are dropped in this order: what uses the context before the context.
    graph: Option<Graph>,
    /// Behind a launched graph.
    graph_end: Event,
    marks: Marks,
    tasks: Vec<Option<Rc<Task>>>,
    known: HashMap<Use, Rc<Task>>,
    comms: BTreeMap<(AxisId, LaneId), Arc<Comm>>,
    whole: Option<Comm>,
    lanes: BTreeMap<LaneId, Lane>,
    // After the lanes' memory, whose freeing waits for what is on the lanes.
    gate: Gate,
    staging: PinnedMemory,
    kernels: Kernels,
    capability: (u32, u32),
    blas: Option<Rc<Handle>>,
    device_clock: Clock,
    _context: Context,
    world: Arc<World>,
    rank: u32,
    way: Way,
    /// Whether turns shall run as graphs.
    graphs: bool,
    /// Whether lanes wait until all is issued.
    gated: bool,
    zero: Instant,
    /// Until when the host has spent its time.
    clock: Instant,
    issuing: Duration,
    issues: u64,
}

impl Rank {
    /// Whether turns run as graphs from now on.
    pub(in crate::nccl) fn run_as_graphs(&mut self, graphs: bool) {
        self.graphs = graphs;
    }

    /// Waits until `ready`, looking after the world meanwhile. `doing` names what has not ended, for the watchdog.
    fn spin(
        &self,
        mut ready: impl FnMut() -> Native<bool>,
        mut progress: impl FnMut() -> u64,
        stuck: impl Fn() -> Error,
    ) -> Result<()> {
        let on = |failure: Failure| self.world.failed(self.rank, None, failure);
        let (mut looked, mut moved, mut state) = (Instant::now(), Instant::now(), progress());
        let mut turns = 0u32;
        loop {
            if ready().map_err(on)? {
                return Ok(());
            }
            turns = turns.wrapping_add(1);
            if !turns.is_multiple_of(256) || looked.elapsed() < HEALTH {
                std::hint::spin_loop();
                continue;
            }
            looked = Instant::now();
            self.world.party.check()?;
            self.health()?;
            let now = progress();
            if now != state {
                (state, moved) = (now, looked);
            }
            if moved.elapsed() > self.world.silence {
                return Err(stuck());
            }
        }
    }

    /// Asks each communicator whether something went wrong on it since: it did in what has not ended.
    fn health(&self) -> Result<()> {
        for ((_, lane), comm) in &self.comms {
            comm.health().map_err(|failure| {
                let task =
                    self.marks.stuck(self.graph_clock()).and_then(|index| self.tasks.get(index as usize)?.as_ref());
                let block = task.filter(|task| task.lane == *lane).map(|task| task.block);
                self.world.failed(self.rank, block, failure)
            })?;
        }
        Ok(())
    }

    /// The error of a hang: of the execution that has begun and not ended, else of the first that has not ended.
    fn stuck(&self) -> Error {
        let index = self.marks.stuck(self.graph_clock());
        match index.and_then(|index| self.tasks.get(index as usize)) {
            Some(Some(task)) => {
                self.world.hang(self.rank, task.block, task.lane, task.communicator, self.world.silence)
            }
            _ => Error::Ended,
        }
    }

    /// What tells this run of a graph from the one before.
    fn graph_clock(&self) -> Option<&Clock> {
        (self.way == Way::Graph).then_some(&self.device_clock)
    }

    /// Puts an issue on its lane.
    fn put(&mut self, issue: &Issue<'_>, now: Instant) -> Native<()> {
        let (Some(lane), Some(Some(task))) = (self.lanes.get(&issue.lane), self.tasks.get(issue.index as usize)) else {
            return Ok(());
        };
        let captured = self.way == Way::Capturing;
        self.marks.wait(issue, &lane.stream, captured)?;
        if issue.first {
            self.marks.begin(issue, now, &lane.stream, self.gate.is_closed(), captured)?;
        }
        match &task.work {
            Act::Exchange(exchange) => exchange.run(&lane.stream)?,
            Act::Compute(ops) => ops.iter().try_for_each(|op| op.run(&self.kernels, &lane.stream))?,
        }
        if issue.last {
            self.marks.end(issue, &lane.stream, captured)?;
        }
        self.gate.launched(task.launches);
        Ok(())
    }

    /// Lets every lane's work become part of the graph that begins on the main stream.
    fn fork(&self) -> Native<()> {
        let main = self.device_clock.stream();
        main.begin_capture()?;
        let fork = Event::new(&self.world.cuda, false)?;
        fork.record(main)?;
        self.lanes.values().try_for_each(|lane| lane.stream.wait(&fork))
    }

    /// Joins the lanes again, and makes the graph.
    fn join(&self) -> Native<Graph> {
        let joints: Native<Vec<Event>> = self.lanes.values().map(|_| Event::new(&self.world.cuda, false)).collect();
        let main = self.device_clock.stream();
        for (lane, joint) in self.lanes.values().zip(&joints?) {
            joint.record(&lane.stream)?;
            main.wait(joint)?;
        }
        main.end_capture()
    }

    /// The lane and the layout of an instruction that communicates, and what it does.
    fn exchange(&self, index: u32) -> Result<(&Lane, &Layout, &Exchange)> {
        let task = self.tasks.get(index as usize).and_then(Option::as_deref);
        let lane = task.and_then(|task| self.lanes.get(&task.lane));
        match (task, lane) {
            (Some(Task { work: Act::Exchange(exchange), layout, .. }), Some(lane)) => Ok((lane, layout, exchange)),
            _ => Err(Error::Plan {
                rank: self.rank,
                block: task.map_or_else(String::new, |task| self.world.plan.blocks[task.block as usize].name.clone()),
                what: format!("instruction {index} has no input and no output"),
            }),
        }
    }

    fn on(&self) -> impl Fn(Failure) -> Error + use<> {
        let (world, rank) = (self.world.clone(), self.rank);
        move |failure| world.failed(rank, None, failure)
    }
}

impl Endpoint for Rank {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn prepare(&mut self, program: &Program, state: State) -> Result<()> {
        let mut tasks = vec![None; program.instructions.len()];
        for issue in issues(program) {
            let this = (issue.block, issue.axis, issue.lane);
            let task = match self.known.get(&this) {
                Some(task) => task.clone(),
                None => Rc::new(self.task(issue)?),
            };
            self.known.insert(this, task.clone());
            tasks[issue.index as usize] = Some(task);
        }
        self.tasks = tasks;
        self.marks.prepare(program).map_err(self.on())?;
        self.gated = state == State::Alone && !self.graphs;
        self.graph = None;
        self.way = if self.graphs { Way::Capturing } else { Way::Eager };
        Ok(())
    }

    fn barrier(&mut self) -> Result<()> {
        let on = self.on();
        self.device_clock.sight().map_err(&on)?;
        match self.way {
            Way::Eager => self.marks.clear(),
            Way::Capturing => {
                self.marks.clear();
                self.fork().map_err(&on)?;
            }
            Way::Graph => {}
        }
        if self.gated {
            self.gate.close(self.lanes.values().map(|lane| &lane.stream)).map_err(&on)?;
        }
        self.zero = self.world.party.barrier()?;
        self.clock = self.zero;
        Ok(())
    }

    fn issue(&mut self, issue: Issue<'_>) -> Result<()> {
        if self.way == Way::Graph {
            return Ok(());
        }
        let began = Instant::now();
        self.world.issuing(self.rank, issue.index, began);
        self.put(&issue, began).map_err(|failure| self.world.failed(self.rank, Some(issue.block), failure))?;
        self.world.idle(self.rank);
        self.issuing += began.elapsed();
        self.issues += 1;
        Ok(())
    }

    fn wait(&mut self, index: u32) -> Result<()> {
        // A graph has no host in it.
        if self.way != Way::Eager {
            return Ok(());
        }
        self.spin(|| self.marks.ended(index), || 0, || self.stuck())?;
        self.clock = self.clock.max(Instant::now());
        Ok(())
    }

    fn host(&mut self, ns: u64) -> Result<()> {
        /// Below this the host spins: a sleep ends late by about as much.
        const SPIN: Duration = Duration::from_micros(200);
        if self.way != Way::Eager || self.world.settings.pacing == Pacing::Asap {
            return Ok(());
        }
        self.clock += Duration::from_nanos(ns);
        let (clock, mut looked) = (self.clock, Instant::now());
        loop {
            let now = Instant::now();
            let left = clock.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(());
            }
            if now - looked > HEALTH {
                looked = now;
                self.world.party.check()?;
            }
            if left > 2 * SPIN {
                std::thread::sleep((left - SPIN).min(HEALTH));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn drain(&mut self) -> Result<Vec<Span>> {
        let on = self.on();
        self.gate.open();
        if self.way == Way::Capturing {
            self.graph = Some(self.join().map_err(&on)?);
            self.way = Way::Graph;
        }
        if let Some(graph) = self.graph.as_ref().filter(|_| self.way == Way::Graph) {
            let main = self.device_clock.stream();
            main.launch_graph(graph).map_err(&on)?;
            // Events keep their times of the last run until this one comes to them, so all of it is awaited first.
            self.graph_end.record(main).map_err(&on)?;
            self.spin(|| self.graph_end.ended(), || self.marks.reached(self.graph_clock()), || self.stuck())?;
        }
        let ended = std::cell::Cell::new(0u64);
        for index in self.marks.issued() {
            self.spin(|| self.marks.ended(*index), || ended.get(), || self.stuck())?;
            ended.set(ended.get() + 1);
        }
        self.marks.spans(&self.device_clock, self.zero).map_err(on)
    }

    fn load(&mut self, index: u32, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let input = self.exchange(index)?.1.input_bytes;
        fill(&mut self.staging.bytes_mut()[..input]);
        let (lane, layout, exchange) = self.exchange(index)?;
        let load = || {
            lane.stream.copy(self.staging.all().first(input), lane.buffers.input().first(input))?;
            lane.stream.set(lane.buffers.output().first(layout.output_bytes), POISON)?;
            exchange.place(&lane.stream)?;
            lane.stream.synchronize()
        };
        load().map_err(self.on())
    }

    fn inspect(&mut self, index: u32, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (lane, layout, _) = self.exchange(index)?;
        let output = layout.output_bytes;
        let fetch = || {
            lane.stream.copy(lane.buffers.output().first(output), self.staging.all().first(output))?;
            lane.stream.synchronize()
        };
        fetch().map_err(self.on())?;
        look(&self.staging.bytes_mut()[..output]);
        Ok(())
    }
}

impl Drop for Rank {
    /// In a world that ended kernels may wait for peers that never come: communicators are given up, or freeing what the
    /// kernels use would wait for ever.
    fn drop(&mut self) {
        self.gate.open();
        if self.world.party.check().is_err() {
            self.comms.values().for_each(|comm| comm.abort());
            self.whole.iter().for_each(Comm::abort);
        }
    }
}
