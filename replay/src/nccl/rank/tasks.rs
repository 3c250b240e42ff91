//! What an issue is on a device, with everything looked up: made once by `prepare`.

use maestro_pattern::{BlockId, LaneId, Work};

use super::Rank;
use crate::layout::Layout;
use crate::meeting::place;
use crate::nccl::ffi::cuda::{self, Shape};
use crate::nccl::ffi::nvrtc::Target;
use crate::nccl::ffi::{Failure, Native};
use crate::nccl::work::{Exchange, Op, spread};
use crate::{Compute, Error, Issue, Result, idle_ns, nominal_ns};

/// One block of one lane, ready to run.
pub(super) struct Task {
    pub(super) block: BlockId,
    pub(super) lane: LaneId,
    /// Of a block that communicates.
    pub(super) communicator: Option<u32>,
    pub(super) work: Act,
    /// How many launches it is.
    pub(super) launches: u32,
    /// Where its input and output lie.
    pub(super) layout: Layout,
}

pub(super) enum Act {
    Exchange(Exchange),
    Compute(Vec<Op>),
}

impl Rank {
    /// Looks everything up that executing an issue takes.
    pub(super) fn task(&self, issue: Issue<'_>) -> Result<Task> {
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
                    Ok(compute(spread(ops.map_err(on)?)))
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
}
