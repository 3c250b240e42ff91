//! A rank on a device as an endpoint: a lane is a stream, an `after` an event, host time a deadline.
//!
//! Executions are timed by events on the device ([`Marks`]). Their times are put on the host's clock by an event whose
//! moment the host knows: recorded anew before each barrier, so that clocks which drift apart have no time to.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use maestro_pattern::{AxisId, BlockId, LaneId, Priority, Program, State, Work};

use super::buffers::{self, Buffers};
use super::clock::Clock;
use super::ffi::blas::Handle;
use super::ffi::cuda::{Context, DeviceMemory, Event, Graph, PinnedMemory, Shape, Stream};
use super::ffi::nccl::Comm;
use super::ffi::nvrtc::Target;
use super::ffi::{Failure, Native, cuda};
use super::gate::Gate;
use super::kernels::{Kernels, SLOT};
use super::marks::Marks;
use super::work::{Exchange, Op};
use super::world::World;
use crate::layout::Layout;
use crate::meeting::place;
use crate::turn::issues;
use crate::{Compute, Endpoint, Error, Issue, Pacing, Result, Span, idle_ns, nominal_ns};

type Use = (BlockId, Option<AxisId>, LaneId);

/// How often a waiting host looks whether its communicators are well.
const HEALTH: Duration = Duration::from_millis(50);

/// What outputs hold before data is verified, as on the host.
const POISON: u8 = 0xa5;

/// One block of one lane, ready to run.
struct Task {
    block: BlockId,
    lane: LaneId,
    /// Of a block that communicates.
    communicator: Option<u32>,
    work: Act,
    /// How many launches it is.
    launches: u32,
    /// Where its input and output lie.
    layout: Layout,
}

enum Act {
    Exchange(Exchange),
    Compute(Vec<Op>),
}

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
pub(super) struct Rank {
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
    /// Brings `rank` to life on device `ordinal`: buffers, streams, communicators.
    ///
    /// # Errors
    /// Too little memory, a library that fails, a rank that does not come.
    pub(super) fn new(world: &Arc<World>, rank: u32, ordinal: u32) -> Result<Self> {
        let on = |failure: Failure| world.failed(rank, None, failure);
        let plan = &world.plan;
        let cuda = &world.cuda;
        let context = Context::new(cuda, ordinal).map_err(on)?;
        let sizes = buffers::sizes(plan, &world.settings, rank)?;
        buffers::check(plan, &world.settings, rank, context.free_memory().map_err(on)?)?;
        let device = world.devices.get(ordinal as usize).ok_or(Error::Ended)?;
        let kernels = Kernels::new(cuda, device).map_err(on)?;
        let blas = world.blas.as_ref().map(Handle::new).transpose().map_err(on)?;
        let (least, most) = context.priorities().map_err(on)?;
        let device_clock = Clock::new(cuda, most).map_err(on)?;
        let mut lanes = BTreeMap::new();
        let mut staged = 0;
        for (lane, sizes) in sizes {
            let made = (|| {
                let made = Lane {
                    stream: Stream::new(cuda, priority(plan.lanes[lane as usize].priority, least, most))?,
                    buffers: Buffers::new(cuda, &sizes)?,
                    slot: DeviceMemory::new(cuda, SLOT)?,
                };
                made.stream.set(made.slot.all(), 0)?;
                let b = &made.buffers;
                let all = [b.input(), b.output(), b.left(), b.right(), b.result()];
                for (seed, memory) in (1u64..).zip(all) {
                    kernels.fill(memory, seed << 40 | u64::from(rank) << 20, &made.stream)?;
                }
                made.stream.synchronize()?;
                Ok(made)
            })();
            staged = staged.max(sizes.input).max(sizes.output);
            lanes.insert(lane, made.map_err(on)?);
        }
        let staged = if world.settings.verify { staged } else { 0 };
        let now = Instant::now();
        let mut this = Self {
            graph: None,
            graph_end: Event::new(cuda, false).map_err(on)?,
            gate: Gate::new(cuda).map_err(on)?,
            marks: Marks::new(cuda),
            tasks: Vec::new(),
            known: HashMap::new(),
            comms: BTreeMap::new(),
            whole: None,
            lanes,
            staging: PinnedMemory::new(cuda, staged).map_err(on)?,
            kernels,
            capability: device.capability,
            blas,
            device_clock,
            _context: context,
            world: world.clone(),
            rank,
            way: Way::Eager,
            graphs: false,
            gated: false,
            zero: now,
            clock: now,
            issuing: Duration::ZERO,
            issues: 0,
        };
        this.communicators()?;
        Ok(this)
    }

    /// Makes every communicator that this rank is in, in the one global order: first the whole world, then each
    /// (axis, lane) split off it for all teams at once.
    fn communicators(&mut self) -> Result<()> {
        let world = self.world.clone();
        let plan = &world.plan;
        if plan.communicators.is_empty() {
            return Ok(());
        }
        let (rank, ranks) = (self.rank, plan.world.size());
        let on = |failure: Failure| world.failed(rank, None, failure);
        let mine = (rank == 0).then(|| world.nccl.unique_id()).transpose().map_err(on)?;
        let id = world.party.share(mine)?;
        world.doing(rank, "joins the communicator of all ranks");
        let whole = Comm::join(&world.nccl, &id, rank, ranks, &Default::default(), "world").map_err(on)?;
        let mut splits: Vec<(AxisId, LaneId)> = plan.communicators.iter().map(|c| (c.axis, c.lane)).collect();
        splits.sort_unstable();
        splits.dedup();
        for (axis, lane) in splits {
            let own = plan.communicator(rank, axis, lane).map(|id| &plan.communicators[id as usize]);
            // All teams of an axis share its settings; a rank outside them needs none.
            let settings = own.map(|own| own.settings.clone()).unwrap_or_default();
            let seat = plan.world.seat(axis as usize, rank).map_or(0, |(_, seat)| seat);
            let (axis_name, lane_name) = (&plan.world.axes()[axis as usize].name, &plan.lanes[lane as usize].name);
            world.doing(rank, &format!("makes the communicator of axis {axis_name} on lane {lane_name}"));
            let name = format!("{axis_name}.{lane_name}");
            let made = whole.split(own.map(|own| own.team), seat, &settings, &name).map_err(on)?;
            if let Some(made) = made {
                self.comms.insert((axis, lane), Arc::new(made));
            }
        }
        self.whole = Some(whole);
        world.idle(rank);
        Ok(())
    }

    /// Whether turns run as graphs from now on.
    pub(super) fn run_as_graphs(&mut self, graphs: bool) {
        self.graphs = graphs;
    }

    /// Nanoseconds that the host took for an issue, on average, and how far off the moments of executions may be.
    pub(super) fn costs(&self) -> (f64, Duration) {
        (
            self.issuing.as_nanos() as f64 / self.issues.max(1) as f64,
            self.device_clock.error() + self.world.party.clock_error(),
        )
    }

    /// What timing a block costs on the device: nanoseconds by which a kernel that does nothing takes longer with an
    /// event behind it, as where its lane goes straight on, and with one before and one behind.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn cost_of_events(&self) -> Result<[f64; 2]> {
        const KERNELS: usize = 200;
        let on = |failure: Failure| self.world.failed(self.rank, None, failure);
        let main = self.device_clock.stream();
        let measure = |events: usize| -> Native<f64> {
            let (first, last) = (Event::new(&self.world.cuda, true)?, Event::new(&self.world.cuda, true)?);
            let all: Native<Vec<Event>> = (0..2 * KERNELS).map(|_| Event::new(&self.world.cuda, true)).collect();
            let all = all?;
            // The device is kept busy while the host enqueues, so that only the device's own time counts.
            let lane = self.lanes.values().next().map(|lane| lane.slot.all());
            if let Some(slot) = lane {
                self.kernels.hold(10_000_000, None, slot, main)?;
            }
            first.record(main)?;
            for pair in all.chunks(2) {
                if events > 1 {
                    pair[0].record(main)?;
                }
                self.kernels.nothing(main)?;
                if events > 0 {
                    pair[1].record(main)?;
                }
            }
            last.record(main)?;
            main.synchronize()?;
            last.since(&first)
        };
        let mut best = [f64::INFINITY; 2];
        for _ in 0..3 {
            let plain = measure(0).map_err(on)?;
            for (events, best) in (1..).zip(&mut best) {
                *best = best.min((measure(events).map_err(on)? - plain) / KERNELS as f64);
            }
        }
        Ok(best.map(|cost| cost.max(0.0)))
    }

    /// Looks everything up that executing an issue takes.
    fn task(&self, issue: Issue<'_>) -> Result<Task> {
        let world = &self.world;
        let plan = &world.plan;
        let block = &plan.blocks[issue.block as usize];
        let contradiction = |what: &str| Error::Plan { rank: self.rank, block: block.name.clone(), what: what.into() };
        let on = |failure: Failure| world.failed(self.rank, Some(issue.block), failure);
        let lane = self.lanes.get(&issue.lane).ok_or_else(|| contradiction("its lane has no stream"))?;
        let task = |work, launches| Task {
            block: issue.block,
            lane: issue.lane,
            communicator: None,
            work,
            launches,
            layout: Layout::default(),
        };
        let compute = |ops: Vec<Op>| {
            let launches = ops.iter().map(Op::launches).fold(0, u32::saturating_add);
            task(Act::Compute(ops), launches)
        };
        let held = || {
            let ns = nominal_ns(block, self.rank, world.settings.pacing);
            let ns = ns.ok_or_else(|| contradiction("it has no duration to hold its lane for"))?;
            Ok(compute(vec![Op::Hold { ns, sms: None, times: 1, slot: lane.slot.all() }]))
        };
        match &block.work {
            work @ (Work::Collective(_) | Work::P2p { .. } | Work::Group(_)) => {
                let axis = issue.axis.ok_or_else(|| contradiction("it communicates and is on no axis"))?;
                let (communicator, seat) = place(plan, self.rank, issue.block, axis, issue.lane)?;
                let ranks = plan.communicators[communicator as usize].ranks.len();
                let comm = self.comms.get(&(axis, issue.lane)).ok_or_else(|| contradiction("no communicator"))?;
                let exchange = Exchange::new(&world.nccl, comm, work, (seat, ranks), &lane.buffers);
                Ok(Task {
                    communicator: Some(communicator),
                    layout: Layout::of(work, seat, ranks),
                    ..task(Act::Exchange(exchange), 1)
                })
            }
            Work::Compute(kernels) => match world.settings.compute {
                Compute::Hold => held(),
                Compute::Work => {
                    let slot = lane.slot.all();
                    let idle = Some(idle_ns(block, world.settings.pacing)).filter(|ns| *ns > 0);
                    let idle = idle.map(|ns| Ok(Op::Idle { ns, slot }));
                    let op = |kernel| Op::new(kernel, self.blas.as_ref(), &lane.buffers, slot);
                    let ops: Native<Vec<Op>> = idle.into_iter().chain(kernels.iter().map(op)).collect();
                    Ok(compute(ops.map_err(on)?))
                }
            },
            Work::Cuda(own) => match world.settings.compute {
                Compute::Hold => held(),
                Compute::Work => {
                    let kernel = self.own_kernel(&own.source, &own.entry).map_err(on)?;
                    let shape = Shape { grid: own.grid, threads: own.threads, shared_memory: 0 };
                    Ok(compute(vec![Op::Cuda { kernel, shape }]))
                }
            },
        }
    }

    /// Compiles a user's source for this device.
    fn own_kernel(&self, source: &str, entry: &str) -> Native<cuda::Kernel> {
        let missing = |what: String| Failure { call: "nvrtcCompileProgram", what };
        let text = self.world.settings.sources.get(source).ok_or_else(|| missing(format!("no text of {source}")))?;
        let nvrtc = self.world.nvrtc.as_ref().map_err(|why| missing(why.clone()))?;
        let (major, minor) = self.capability;
        let image = nvrtc.compile(text, source, Target::Cubin(10 * major + minor))?;
        cuda::Module::new(&self.world.cuda, &image)?.kernel(entry, 0)
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
            for comm in self.comms.values() {
                comm.health().map_err(on)?;
            }
            let now = progress();
            if now != state {
                (state, moved) = (now, looked);
            }
            if moved.elapsed() > self.world.silence {
                return Err(stuck());
            }
        }
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

    /// The lane and the layout of an instruction that communicates.
    fn exchange(&self, index: u32) -> Result<(&Lane, &Layout)> {
        let task = self.tasks.get(index as usize).and_then(Option::as_deref);
        let lane = task.and_then(|task| self.lanes.get(&task.lane));
        match (task, lane) {
            (Some(Task { work: Act::Exchange(_), layout, .. }), Some(lane)) => Ok((lane, layout)),
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
        let (lane, layout) = self.exchange(index)?;
        let load = || {
            lane.stream.copy(self.staging.all().first(input), lane.buffers.input().first(input))?;
            lane.stream.set(lane.buffers.output().first(layout.output_bytes), POISON)?;
            lane.stream.synchronize()
        };
        load().map_err(self.on())
    }

    fn inspect(&mut self, index: u32, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (lane, layout) = self.exchange(index)?;
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

/// A stream's priority, as CUDA counts them: smaller is more urgent, `least` is what a stream has by itself.
fn priority(lane: Priority, least: i32, most: i32) -> i32 {
    match lane {
        Priority::High => most,
        // Lanes below the normal one need room below it, so the normal one is not the least.
        Priority::Normal => (least + most) / 2,
        Priority::Low => least,
    }
}
