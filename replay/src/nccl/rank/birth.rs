//! How a rank comes to life: its context, its lanes with their buffers, its communicators.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use maestro_pattern::{AxisId, LaneId, Priority};

use super::{Lane, Rank, Way};
use crate::nccl::buffers::{self, Buffers};
use crate::nccl::clock::Clock;
use crate::nccl::ffi::Failure;
use crate::nccl::ffi::blas::Handle;
use crate::nccl::ffi::cuda::{Context, DeviceMemory, Event, PinnedMemory, Stream};
use crate::nccl::ffi::nccl::Comm;
use crate::nccl::gate::Gate;
use crate::nccl::kernels::{Kernels, SLOT};
use crate::nccl::marks::Marks;
use crate::nccl::world::World;
use crate::{Error, Result};

impl Rank {
    /// Brings `rank` to life on device `ordinal`: buffers, streams, communicators.
    ///
    /// # Errors
    /// Too little memory, a library that fails, a rank that does not come.
    pub(in crate::nccl) fn new(world: &Arc<World>, rank: u32, ordinal: u32) -> Result<Self> {
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
