//! How much memory of a device a rank needs, lane by lane, and the buffers themselves.
//!
//! Blocks of one lane never run at once, so they share: one set a lane, as large as the largest block that it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use maestro_pattern::{BlockId, Kernel, LaneId, Plan, Work};

use super::ffi::Native;
use super::ffi::blas::result_bytes;
use super::ffi::cuda::{Cuda, DeviceMemory, PinnedMemory, Slice};
use crate::layout::layouts;
use crate::{Compute, Error, Result, Settings};

/// Bytes that streaming goes through before it begins again, each of what is read and of what is written: far more than
/// any device caches.
pub(super) const STREAM: u64 = 512 << 20;

/// Bytes that a product may use beside its operands: what PyTorch gives cuBLAS on recent devices.
pub(super) const BLAS_WORKSPACE: usize = 32 << 20;

/// Smallest buffer, so that a barrier has something to reduce.
const LEAST: usize = 256;

/// Bytes of the buffers of one lane of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    /// What a block that communicates gives.
    pub(super) input: usize,
    /// What it gets.
    pub(super) output: usize,
    /// Left operands of products; what streaming reads.
    left: usize,
    /// Right operands of products; what streaming writes.
    right: usize,
    /// Results of products; what copies and sets write.
    result: usize,
    /// Pinned memory of the host, for copies.
    pinned: usize,
    /// What cuBLASLt works in.
    blas: usize,
    /// The block with the largest buffers, and their bytes.
    largest: Option<(usize, BlockId)>,
}

impl Sizes {
    /// Bytes on the device.
    fn total(&self) -> usize {
        let parts = [self.input, self.output, self.left, self.right, self.result, self.blas];
        parts.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Grows each part to what `other` needs, for `block`.
    fn cover(&mut self, other: &Self, block: BlockId) {
        for (mine, theirs) in [
            (&mut self.input, other.input),
            (&mut self.output, other.output),
            (&mut self.left, other.left),
            (&mut self.right, other.right),
            (&mut self.result, other.result),
            (&mut self.pinned, other.pinned),
            (&mut self.blas, other.blas),
        ] {
            *mine = (*mine).max(theirs);
        }
        self.largest = self.largest.max(Some((other.total(), block)));
    }

    /// What one kernel works on.
    fn of(kernel: &Kernel) -> Self {
        let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let product = |factors: &[u64]| bytes(factors.iter().fold(1u64, |all, n| all.saturating_mul(*n)));
        match *kernel {
            Kernel::Gemm { m, n, k, batch, dtype, .. } => Self {
                left: product(&[batch, m, k, dtype.bytes()]),
                right: product(&[batch, k, n, dtype.bytes()]),
                result: product(&[batch, m, n, result_bytes(dtype).unwrap_or(0)]),
                blas: BLAS_WORKSPACE,
                ..Self::default()
            },
            Kernel::Memory { bytes: size, .. } => {
                let half = bytes(size.div_ceil(2).min(STREAM).next_multiple_of(16));
                Self { left: half, right: half, ..Self::default() }
            }
            Kernel::Hold { .. } => Self::default(),
            Kernel::Copy { direction: maestro_pattern::CopyDirection::D2d, size, .. } => {
                Self { left: bytes(size), right: bytes(size), ..Self::default() }
            }
            Kernel::Copy { size, .. } => Self { pinned: bytes(size), result: bytes(size), ..Self::default() },
            Kernel::Set { size, .. } => Self { result: bytes(size), ..Self::default() },
        }
    }
}

/// The sizes of every lane that `rank` uses.
///
/// # Errors
/// The plan contradicts itself.
pub(super) fn sizes(plan: &Plan, settings: &Settings, rank: u32) -> Result<BTreeMap<LaneId, Sizes>> {
    let mut lanes: BTreeMap<LaneId, Sizes> = BTreeMap::new();
    for (block, lane, layout) in layouts(plan, rank)? {
        let lane = lanes.entry(lane).or_default();
        match &plan.blocks[block as usize].work {
            Work::Compute(kernels) if settings.compute == Compute::Work => {
                kernels.iter().for_each(|kernel| lane.cover(&Sizes::of(kernel), block));
            }
            Work::Compute(_) | Work::Cuda(_) => {}
            Work::Collective(_) | Work::P2p { .. } | Work::Group(_) => {
                let (input, output) = (layout.input_bytes.max(LEAST), layout.output_bytes.max(LEAST));
                lane.cover(&Sizes { input, output, ..Sizes::default() }, block);
            }
        }
    }
    Ok(lanes)
}

/// Bytes that `rank` needs on its device.
///
/// # Errors
/// The plan contradicts itself.
pub(super) fn needed(plan: &Plan, settings: &Settings, rank: u32) -> Result<u64> {
    Ok(sizes(plan, settings, rank)?.values().fold(0, |sum: u64, lane| sum.saturating_add(lane.total() as u64)))
}

/// Refuses buffers that do not fit into `available` bytes.
///
/// # Errors
/// The bytes needed and available, and the block that takes most.
pub(super) fn check(plan: &Plan, settings: &Settings, rank: u32, available: u64) -> Result<()> {
    let needed = needed(plan, settings, rank)?;
    if needed <= available {
        return Ok(());
    }
    let lanes = sizes(plan, settings, rank)?;
    let largest = lanes.iter().filter_map(|(lane, sizes)| sizes.largest.map(|(bytes, block)| (bytes, block, *lane)));
    let (bytes, block, lane) = largest.max().unwrap_or_default();
    Err(Error::Memory {
        needed,
        available,
        block: plan.blocks[block as usize].name.clone(),
        lane: plan.lanes[lane as usize].name.clone(),
        largest: bytes as u64,
    })
}

/// The buffers of one lane.
pub(super) struct Buffers {
    input: DeviceMemory,
    output: DeviceMemory,
    left: DeviceMemory,
    right: DeviceMemory,
    result: DeviceMemory,
    blas: DeviceMemory,
    pinned: PinnedMemory,
}

impl Buffers {
    /// Allocates.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(cuda: &Arc<Cuda>, sizes: &Sizes) -> Native<Self> {
        // A multiple of what the kernel that fills them writes at once.
        let device = |bytes: usize| DeviceMemory::new(cuda, bytes.next_multiple_of(16));
        Ok(Self {
            input: device(sizes.input)?,
            output: device(sizes.output)?,
            left: device(sizes.left)?,
            right: device(sizes.right)?,
            result: device(sizes.result)?,
            blas: device(sizes.blas)?,
            pinned: PinnedMemory::new(cuda, sizes.pinned)?,
        })
    }

    pub(super) fn input(&self) -> Slice {
        self.input.all()
    }

    pub(super) fn output(&self) -> Slice {
        self.output.all()
    }

    pub(super) fn left(&self) -> Slice {
        self.left.all()
    }

    pub(super) fn right(&self) -> Slice {
        self.right.all()
    }

    pub(super) fn result(&self) -> Slice {
        self.result.all()
    }

    pub(super) fn blas(&self) -> Slice {
        self.blas.all()
    }

    pub(super) fn pinned(&self) -> Slice {
        self.pinned.all()
    }
}

#[cfg(test)]
mod tests {
    use maestro_pattern::{Dtype, Pattern};

    use super::*;

    fn plan() -> Plan {
        let text = "maestro: 1\nname: test\naxes: {dp: {size: 2}}\nblocks:\n  \
                    gather: {all_gather: {size: 64MiB, dtype: bf16}}\n  \
                    work: {compute: [{gemm: {m: 1024, n: 512, k: 256, dtype: bf16}}, {memory: 8GiB}]}\n\
                    lanes: {x: {}, y: {}}\n\
                    schedule: [{run: gather, on: dp, lane: x}, {run: work, lane: y}]\n";
        Plan::new(&Pattern::from_yaml(text).unwrap(), &[]).unwrap()
    }

    #[test]
    fn buffers_are_as_large_as_the_largest_block_of_a_lane() {
        let settings = Settings { compute: Compute::Work, ..Settings::default() };
        let lanes = sizes(&plan(), &settings, 0).unwrap();
        assert_eq!((lanes[&0].input, lanes[&0].output), (32 << 20, 64 << 20));
        assert_eq!((lanes[&1].left, lanes[&1].right), (STREAM as usize, STREAM as usize));
        assert_eq!((lanes[&1].result, lanes[&1].blas), (1024 * 512 * 2, BLAS_WORKSPACE));
        // What is only held needs no operands.
        let held = sizes(&plan(), &Settings::default(), 0).unwrap();
        assert_eq!(held[&1].total(), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let settings = Settings { compute: Compute::Work, ..Settings::default() };
        let error = check(&plan(), &settings, 1, 1 << 30).unwrap_err().to_string();
        assert!(error.contains("`work`") && error.contains("`y`"), "{error}");
        assert!(check(&plan(), &settings, 1, 4 << 30).is_ok());
    }

    #[test]
    fn eight_bit_floats_give_sixteen_bits() {
        let sizes = Sizes::of(&Kernel::Gemm {
            m: 16,
            n: 32,
            k: 64,
            batch: 3,
            dtype: Dtype::F8e4m3,
            layout: Default::default(),
            times: 9,
        });
        assert_eq!((sizes.left, sizes.right, sizes.result), (3 * 16 * 64, 3 * 64 * 32, 3 * 16 * 32 * 2));
    }
}
