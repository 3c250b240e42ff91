//! Buffers of host ranks: one set a lane, as large as the largest block that the lane runs.
//!
//! Blocks on one lane never run at once, so they can share. The locks are what lets safe code hand one rank's input to
//! another rank; an exchange orders its readers and writers by barriers, so that no thread ever waits at a lock.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use maestro_pattern::{BlockId, LaneId, Plan, Work};

use super::compute::Workspace;
use crate::layout::layouts;
use crate::verify::noise;
use crate::{Compute, Error, Result, Settings};

/// Memory aligned for every element type.
#[derive(Default)]
pub(crate) struct Memory(Vec<u64>);

impl Memory {
    /// At least `bytes` bytes, every page of them touched: filled with noise.
    pub(crate) fn noisy(bytes: usize) -> Self {
        let mut memory = Self(vec![0; bytes.div_ceil(size_of::<u64>())]);
        noise(memory.bytes_mut());
        memory
    }

    /// All of it.
    pub(crate) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    /// All of it, to write.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// The buffers of one lane of one rank.
#[derive(Default)]
pub(crate) struct LaneBuffers {
    /// What the rank gives. Written between executions only.
    pub(crate) input: RwLock<Memory>,
    /// What the rank gets. Touched by the rank alone.
    pub(crate) output: RwLock<Memory>,
    /// The rank's share of a reduction.
    pub(crate) scratch: RwLock<Memory>,
}

impl LaneBuffers {
    /// Allocates. The rank's host does, so that on a machine of several memory nodes its pages lie near it.
    pub(super) fn allocate(&self, sizes: &Sizes) {
        *write(&self.input) = Memory::noisy(sizes.input);
        *write(&self.output) = Memory::noisy(sizes.output);
        *write(&self.scratch) = Memory::noisy(sizes.scratch);
    }
}

/// A lock to read. A panic elsewhere ends the world by itself, so poison says nothing new.
pub(crate) fn read(memory: &RwLock<Memory>) -> RwLockReadGuard<'_, Memory> {
    memory.read().unwrap_or_else(PoisonError::into_inner)
}

/// A lock to write.
pub(crate) fn write(memory: &RwLock<Memory>) -> RwLockWriteGuard<'_, Memory> {
    memory.write().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of the buffers of one lane of one rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) scratch: usize,
    /// What compute works on.
    pub(super) workspace: Workspace,
    /// The block with the largest buffers, and their bytes.
    largest: Option<(usize, BlockId)>,
}

impl Sizes {
    fn total(&self) -> usize {
        [self.input, self.output, self.scratch, self.workspace.bytes()].iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    fn hold(&mut self, block: BlockId, bytes: usize) {
        self.largest = self.largest.max(Some((bytes, block)));
    }
}

/// The sizes of every lane that `rank` uses.
///
/// # Errors
/// The plan contradicts itself.
pub(super) fn sizes(plan: &Plan, settings: &Settings, rank: u32) -> Result<BTreeMap<LaneId, Sizes>> {
    let mut lanes: BTreeMap<LaneId, Sizes> = BTreeMap::new();
    for (block, lane, layout) in layouts(plan, rank)? {
        let sizes = lanes.entry(lane).or_default();
        match &plan.blocks[block as usize].work {
            Work::Compute(kernels) if settings.compute == Compute::Work => {
                let workspace = Workspace::of(kernels);
                sizes.hold(block, workspace.bytes());
                sizes.workspace.cover(&workspace);
            }
            Work::Compute(_) | Work::Cuda(_) => {}
            Work::Collective(_) | Work::P2p { .. } | Work::Group(_) => {
                let all = [layout.input_bytes, layout.output_bytes, layout.scratch_bytes];
                sizes.hold(block, all.into_iter().fold(0, usize::saturating_add));
                sizes.input = sizes.input.max(layout.input_bytes);
                sizes.output = sizes.output.max(layout.output_bytes);
                sizes.scratch = sizes.scratch.max(layout.scratch_bytes);
            }
        }
    }
    Ok(lanes)
}

/// Bytes that the ranks of this process allocate.
pub(crate) fn needed(plan: &Plan, settings: &Settings, ranks: &[u32]) -> u64 {
    let lanes = ranks.iter().filter_map(|rank| sizes(plan, settings, *rank).ok());
    lanes.flat_map(BTreeMap::into_values).fold(0, |sum: u64, sizes| sum.saturating_add(sizes.total() as u64))
}

/// Refuses a plan that does not fit.
///
/// # Errors
/// The bytes needed and available, and the block that takes most.
pub(crate) fn check_memory(plan: &Plan, settings: &Settings, ranks: &[u32], available: Option<u64>) -> Result<()> {
    let needed = needed(plan, settings, ranks);
    let Some(available) = available.filter(|available| needed > *available) else { return Ok(()) };
    let mut largest = None;
    for rank in ranks {
        for (lane, sizes) in sizes(plan, settings, *rank)? {
            largest = largest.max(sizes.largest.map(|(bytes, block)| (bytes, block, lane)));
        }
    }
    let (bytes, block, lane) = largest.unwrap_or_default();
    Err(Error::Memory {
        needed,
        available,
        block: plan.blocks[block as usize].name.clone(),
        lane: plan.lanes[lane as usize].name.clone(),
        largest: bytes as u64,
    })
}

/// Bytes that this process may still allocate: what the system says is available, and no more than its control group
/// allows. `None` where neither is told.
pub fn available_memory() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib << 10)
    });
    let number = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    // Cached file pages count as used, but give way.
    let cached = || {
        let text = fs::read_to_string("/sys/fs/cgroup/memory.stat").ok()?;
        text.lines().find_map(|line| line.strip_prefix("inactive_file "))?.trim().parse::<u64>().ok()
    };
    let group = number("/sys/fs/cgroup/memory.max").map(|most| {
        let used = number("/sys/fs/cgroup/memory.current").unwrap_or(0).saturating_sub(cached().unwrap_or(0));
        most.saturating_sub(used)
    });
    match (system, group) {
        (Some(system), Some(group)) => Some(system.min(group)),
        (system, group) => system.or(group),
    }
}
