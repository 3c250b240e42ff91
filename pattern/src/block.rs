//! Blocks: the reusable units of work.

use crate::{Collective, CollectiveKind, Dtype, GemmLayout, Place};

/// A named unit of work that a schedule runs, once or many times.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Its name, unique in the pattern.
    pub name: String,
    /// What it does.
    pub work: Work,
    /// How long it lasted where it was captured, from its start to its end on its lane, in nanoseconds; of a
    /// collective, the transfer alone (from the last arrival to the end).
    pub captured_ns: Option<u64>,
    /// The part of `captured_ns` in which the lane had nothing to do because the host had not issued the rest of the
    /// block yet, in nanoseconds.
    pub idle_ns: u64,
    /// Factors on `captured_ns`, one a rank of the world, where ranks differ. Empty: all alike.
    pub skew: Vec<f64>,
    /// Where its name stands.
    pub place: Place,
}

impl Block {
    /// A block of this name and work, never captured.
    pub fn new(name: impl Into<String>, work: Work) -> Self {
        Self { name: name.into(), work, captured_ns: None, idle_ns: 0, skew: Vec::new(), place: Place::default() }
    }

    /// `captured_ns` on `rank`, with its skew.
    pub fn captured_on(&self, rank: usize) -> Option<u64> {
        let factor = self.skew.get(rank).copied().unwrap_or(1.0);
        self.captured_ns.map(|ns| (ns as f64 * factor).round() as u64)
    }
}

/// What a block does. A closed set.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// One collective over a team.
    Collective(Collective),
    /// Sends and receives issued together, as ncclGroupStart and ncclGroupEnd or batch_isend_irecv do.
    P2p {
        /// The sends and receives, in issue order.
        transfers: Vec<Transfer>,
        /// Whether the axis is a ring. Without it, a peer beyond an end means no transfer, as in MPI_Cart_shift.
        wrap: bool,
    },
    /// Collectives fused into one launch.
    Group(Vec<Collective>),
    /// Kernels one after the other on one lane.
    Compute(Vec<Kernel>),
    /// A user's own CUDA source.
    Cuda(CudaKernel),
}

impl Work {
    /// Whether it needs a team of ranks, and so an axis to run on.
    pub fn communicates(&self) -> bool {
        match self {
            Self::Collective(_) | Self::P2p { .. } | Self::Group(_) => true,
            Self::Compute(_) | Self::Cuda(_) => false,
        }
    }

    /// Its kind in reports: a collective's name, `p2p`, `group`, `compute`, `copy`, `set` or `kernel`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Collective(collective) => collective.kind.name(),
            Self::P2p { .. } => "p2p",
            Self::Group(_) => "group",
            Self::Compute(kernels) => match kernels.as_slice() {
                [Kernel::Copy { .. }] => "copy",
                [Kernel::Set { .. }] => "set",
                _ => "compute",
            },
            Self::Cuda(_) => "kernel",
        }
    }

    /// The bytes that a report's size column and bandwidth speak of: S of a collective, the sum over a group, what one
    /// rank sends (or receives, if that is more) of a p2p, what copies, sets and memory kernels move. `None` where that is
    /// unknown or not the point, as in compute with products.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Collective(c) if c.kind == CollectiveKind::Barrier => None,
            Self::Collective(c) => c.size,
            Self::Group(all) => total(all.iter().map(|c| c.size)),
            Self::P2p { transfers, .. } => Some(exchanged(transfers)),
            Self::Compute(kernels) => total(kernels.iter().map(Kernel::bytes)),
            Self::Cuda(_) => None,
        }
    }

    /// The element type of what it moves or multiplies, where it is one.
    pub fn dtype(&self) -> Option<Dtype> {
        let all: Vec<Dtype> = match self {
            Self::Collective(collective) => vec![collective.dtype],
            Self::P2p { transfers, .. } => transfers.iter().map(|transfer| transfer.dtype).collect(),
            Self::Group(collectives) => collectives.iter().map(|collective| collective.dtype).collect(),
            Self::Compute(kernels) => kernels
                .iter()
                .filter_map(|kernel| match kernel {
                    Kernel::Gemm { dtype, .. } => Some(*dtype),
                    Kernel::Memory { .. } | Kernel::Hold { .. } | Kernel::Copy { .. } | Kernel::Set { .. } => None,
                })
                .collect(),
            Self::Cuda(_) => Vec::new(),
        };
        let first = *all.first()?;
        all.iter().all(|dtype| *dtype == first).then_some(first)
    }

    /// busbw / algbw over a team of `ranks`, where a bandwidth means something.
    pub fn bus_factor(&self, ranks: usize) -> Option<f64> {
        match self {
            Self::Collective(c) => c.kind.bus_factor(ranks),
            Self::P2p { .. } => Some(1.0),
            Self::Group(_) | Self::Compute(_) | Self::Cuda(_) => None,
        }
    }
}

/// Bytes that `transfers` send, or receive if that is more; as many as there can be if they are more.
pub fn exchanged<'a>(transfers: impl IntoIterator<Item = &'a Transfer>) -> u64 {
    let (mut sent, mut received) = (0u64, 0u64);
    for transfer in transfers {
        let way = match transfer.direction {
            Direction::Send => &mut sent,
            Direction::Recv => &mut received,
        };
        *way = way.saturating_add(transfer.size);
    }
    sent.max(received)
}

/// The sum of bytes that are all known; as many as there can be if they are more.
fn total(mut bytes: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    bytes.try_fold(0u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
}

/// Whether a transfer sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To the peer.
    Send,
    /// From the peer.
    Recv,
}

/// One send or receive of a p2p block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Send or receive.
    pub direction: Direction,
    /// The peer, as an offset on the axis that the block runs on: +1 is the next coordinate.
    pub offset: i64,
    /// Bytes.
    pub size: u64,
    /// Element type.
    pub dtype: Dtype,
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyDirection {
    /// Host to device.
    H2d,
    /// Device to host.
    D2h,
    /// Inside a device.
    D2d,
}

impl CopyDirection {
    /// Every direction.
    pub const ALL: [Self; 3] = [Self::H2d, Self::D2h, Self::D2d];

    /// The name in patterns.
    pub fn name(self) -> &'static str {
        match self {
            Self::H2d => "h2d",
            Self::D2h => "d2h",
            Self::D2d => "d2d",
        }
    }
}

/// One entry of a compute block: what a kernel does, `times` in a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// `batch` products of an m x k and a k x n matrix.
    Gemm {
        /// Rows of the result.
        m: u64,
        /// Columns of the result.
        n: u64,
        /// Inner dimension.
        k: u64,
        /// Independent products.
        batch: u64,
        /// Element type.
        dtype: Dtype,
        /// How the operands lie in memory.
        layout: GemmLayout,
        /// How often.
        times: u64,
    },
    /// Streams memory.
    Memory {
        /// Bytes read and written, each time.
        bytes: u64,
        /// How long it took where it was captured, in nanoseconds, each time: no device is given less time. `None`: as
        /// fast as the device can.
        lasts_ns: Option<u64>,
        /// How often.
        times: u64,
    },
    /// What is not understood: keeps `sms` multiprocessors busy for a time.
    Hold {
        /// How long, in nanoseconds, each time.
        duration_ns: u64,
        /// Multiprocessors; `None`: all.
        sms: Option<u32>,
        /// How often.
        times: u64,
    },
    /// A copy by the copy engine.
    Copy {
        /// From where to where.
        direction: CopyDirection,
        /// Bytes.
        size: u64,
        /// How often.
        times: u64,
    },
    /// Fills memory with a value.
    Set {
        /// Bytes.
        size: u64,
        /// How often.
        times: u64,
    },
}

impl Kernel {
    /// Bytes that it moves, all times together, where moving bytes is what it does: reads and writes of a memory
    /// kernel, the size of a copy or set. A product's figure is its operations, a hold's its time.
    pub fn bytes(&self) -> Option<u64> {
        match *self {
            Self::Gemm { .. } | Self::Hold { .. } => None,
            Self::Memory { bytes: size, times, .. } | Self::Copy { size, times, .. } | Self::Set { size, times } => {
                Some(size.saturating_mul(times))
            }
        }
    }

    /// Floating-point operations, all times together: 2 m n k a product.
    pub fn flops(&self) -> f64 {
        match *self {
            Self::Gemm { m, n, k, batch, times, .. } => [m, n, k, batch, times].iter().fold(2.0, |f, n| f * *n as f64),
            Self::Memory { .. } | Self::Hold { .. } | Self::Copy { .. } | Self::Set { .. } => 0.0,
        }
    }
}

/// A kernel from a user's own CUDA source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CudaKernel {
    /// Path of the source, relative to the pattern's file.
    pub source: String,
    /// Name of the `extern "C" __global__` function.
    pub entry: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block in x, y, z.
    pub threads: [u32; 3],
}
