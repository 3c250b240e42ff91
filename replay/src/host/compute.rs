//! Compute on the host: products, memory traffic, copies and fills, for real.
//!
//! This is for watching communication beside compute that takes cores and memory bandwidth; it says nothing about how
//! fast a GPU would be. Products of f64 matrices are done in f64 and all others in f32, because no CPU library
//! multiplies narrower types faster; the layout of a product's operands is ignored, because what it costs is a matter of a
//! GPU's library. Streams longer than [`STREAM`] go round in a buffer of that size, which is beyond the caches all the
//! same.

use std::hint::black_box;
use std::time::{Duration, Instant};

use maestro_pattern::{Dtype, Kernel};
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, LinalgScalar};

use super::{End, Memory, Monitor};
use crate::Result;

/// Most bytes of each of the two buffers between which memory is streamed.
const STREAM: u64 = 128 << 20;

/// Bytes of what compute works on: left and right operand and result of a product, the first two also source and
/// target of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Workspace {
    left: usize,
    right: usize,
    result: usize,
}

impl Workspace {
    /// What `kernels` need.
    pub(super) fn of(kernels: &[Kernel]) -> Self {
        let mut this = Self::default();
        for kernel in kernels {
            this.cover(&match *kernel {
                Kernel::Gemm { m, n, k, dtype, .. } => {
                    let matrix =
                        |rows: u64, columns: u64| bytes(rows.saturating_mul(columns).saturating_mul(width(dtype)));
                    Self { left: matrix(m, k), right: matrix(k, n), result: matrix(m, n) }
                }
                Kernel::Memory { bytes, .. } => Self::stream(bytes / 2),
                Kernel::Copy { size, .. } => Self::stream(size),
                Kernel::Set { size, .. } => Self { right: bytes(size.min(STREAM)), ..Self::default() },
                Kernel::Hold { .. } => Self::default(),
            });
        }
        this
    }

    fn stream(size: u64) -> Self {
        let side = bytes(size.min(STREAM));
        Self { left: side, right: side, result: 0 }
    }

    /// Grows to serve for `other`, too.
    pub(super) fn cover(&mut self, other: &Self) {
        self.left = self.left.max(other.left);
        self.right = self.right.max(other.right);
        self.result = self.result.max(other.result);
    }

    /// All of it.
    pub(super) fn bytes(&self) -> usize {
        self.left.saturating_add(self.right).saturating_add(self.result)
    }
}

/// A byte count of an address space; one too large for it fits no memory either, and is refused there.
fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Bytes of the elements in which products of a type are computed.
fn width(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::F64 => 8,
        Dtype::F32
        | Dtype::F16
        | Dtype::Bf16
        | Dtype::F8e4m3
        | Dtype::F8e5m2
        | Dtype::I64
        | Dtype::I32
        | Dtype::I8
        | Dtype::U8 => 4,
    }
}

/// One lane's working memory.
pub(super) struct Bench {
    left: Memory,
    right: Memory,
    result: Memory,
}

impl Bench {
    /// Allocates. The rank's host does, so that on a machine of several memory nodes its pages lie near it.
    pub(super) fn new(size: &Workspace) -> Self {
        Self { left: Memory::noisy(size.left), right: Memory::noisy(size.right), result: Memory::noisy(size.result) }
    }

    /// Does what `kernels` state. `nap` is where holds sleep.
    ///
    /// # Errors
    /// The world ended; a product or stream under way is finished first.
    pub(super) fn run(&mut self, kernels: &[Kernel], end: &End, nap: &Monitor<()>) -> Result<()> {
        for kernel in kernels {
            let (Kernel::Gemm { times, .. }
            | Kernel::Memory { times, .. }
            | Kernel::Hold { times, .. }
            | Kernel::Copy { times, .. }
            | Kernel::Set { times, .. }) = *kernel;
            for _ in 0..times {
                end.check()?;
                match *kernel {
                    Kernel::Gemm { m, n, k, batch, dtype, .. } => {
                        for _ in 0..batch {
                            self.product([m as usize, n as usize, k as usize], dtype);
                        }
                    }
                    Kernel::Memory { bytes, .. } => self.copy(bytes / 2),
                    Kernel::Hold { duration_ns, .. } => {
                        nap.sleep_until(Instant::now() + Duration::from_nanos(duration_ns))?;
                    }
                    Kernel::Copy { size, .. } => self.copy(size),
                    Kernel::Set { size, .. } => self.set(size),
                }
            }
        }
        Ok(())
    }

    fn product(&mut self, shape: [usize; 3], dtype: Dtype) {
        let (left, right, result) = (self.left.bytes(), self.right.bytes(), self.result.bytes_mut());
        if width(dtype) == 8 {
            multiply::<f64>(
                shape,
                bytemuck::cast_slice(left),
                bytemuck::cast_slice(right),
                bytemuck::cast_slice_mut(result),
            );
        } else {
            multiply::<f32>(
                shape,
                bytemuck::cast_slice(left),
                bytemuck::cast_slice(right),
                bytemuck::cast_slice_mut(result),
            );
        }
        black_box(&self.result);
    }

    /// Reads `bytes` and writes as many.
    fn copy(&mut self, bytes: u64) {
        for run in runs(bytes) {
            self.right.bytes_mut()[..run].copy_from_slice(&self.left.bytes()[..run]);
            black_box(&self.right);
        }
    }

    /// Writes `bytes`.
    fn set(&mut self, bytes: u64) {
        for run in runs(bytes) {
            self.right.bytes_mut()[..run].fill(0x3c);
            black_box(&self.right);
        }
    }
}

/// `bytes` in runs of at most [`STREAM`].
fn runs(bytes: u64) -> impl Iterator<Item = usize> {
    let last = bytes % STREAM;
    (0..bytes / STREAM).map(|_| STREAM as usize).chain((last > 0).then_some(last as usize))
}

/// result = left x right, all row by row whatever the layout, in the first elements of each slice.
fn multiply<T: LinalgScalar>([m, n, k]: [usize; 3], left: &[T], right: &[T], result: &mut [T]) {
    let views = (
        ArrayView2::from_shape((m, k), &left[..m * k]),
        ArrayView2::from_shape((k, n), &right[..k * n]),
        ArrayViewMut2::from_shape((m, n), &mut result[..m * n]),
    );
    // The slices have just been cut to their shapes, so all three are views.
    if let (Ok(left), Ok(right), Ok(mut result)) = views {
        general_mat_mul(T::one(), &left, &right, T::zero(), &mut result);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use maestro_pattern::GemmLayout;

    use super::*;

    #[test]
    fn products_are_products() {
        let mut result = [0.0f32; 4];
        multiply([2, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], &mut result);
        assert_eq!(result, [4.0, 5.0, 10.0, 11.0]);
    }

    #[test]
    fn a_long_stream_goes_round() {
        assert_eq!(runs(2 * STREAM + 5).collect::<Vec<_>>(), [STREAM as usize, STREAM as usize, 5]);
        assert_eq!(runs(0).count(), 0);
        let kernel = Kernel::Memory { bytes: 8 * STREAM, lasts_ns: None, times: 1 };
        assert_eq!(Workspace::of(&[kernel]).bytes(), 2 * STREAM as usize);
    }

    #[test]
    fn every_kernel_runs_in_the_workspace_it_asks_for() {
        let kernels = [
            Kernel::Gemm { m: 5, n: 7, k: 3, batch: 2, dtype: Dtype::F64, layout: GemmLayout::Tn, times: 2 },
            Kernel::Gemm { m: 9, n: 2, k: 4, batch: 1, dtype: Dtype::Bf16, layout: GemmLayout::Nt, times: 1 },
            Kernel::Memory { bytes: 1001, lasts_ns: None, times: 3 },
            Kernel::Hold { duration_ns: 1, sms: None, times: 1 },
            Kernel::Copy { direction: maestro_pattern::CopyDirection::H2d, size: 4097, times: 1 },
            Kernel::Set { size: 8191, times: 1 },
        ];
        let end = Arc::new(End::default());
        let nap = end.monitor(());
        for kernel in kernels {
            let kernels = [kernel];
            Bench::new(&Workspace::of(&kernels)).run(&kernels, &end, &nap).unwrap();
        }
    }
}
