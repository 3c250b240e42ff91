//! What a block does on a device, with everything looked up: which calls on which memory.
//!
//! Made once by `prepare`; running it only makes the calls.

use std::rc::Rc;
use std::sync::Arc;

use maestro_pattern::{Collective, CollectiveKind, CopyDirection, Direction, Dtype, Kernel, ReduceOp, Work};

use super::buffers::{BLAS_WORKSPACE, Buffers, STREAM};
use super::ffi::Native;
use super::ffi::blas::{Gemm, Handle, Product};
use super::ffi::cuda::{self, Shape, Slice, Stream};
use super::ffi::nccl::{Comm, Nccl};
use super::kernels::Kernels;
use crate::layout::{Layout, Part};
use crate::meeting::exchanges;

/// A block that communicates.
pub(super) struct Exchange {
    nccl: Arc<Nccl>,
    comm: Arc<Comm>,
    calls: Vec<Call>,
    /// Whether the calls are one launch.
    grouped: bool,
    /// Where what lies in the lane's input goes before a collective in place: into its output.
    placed: Vec<(Slice, Slice)>,
}

/// One call of NCCL.
enum Call {
    AllReduce { from: Slice, to: Slice, dtype: Dtype, op: ReduceOp },
    Reduce { from: Slice, to: Slice, dtype: Dtype, op: ReduceOp, root: u32 },
    Broadcast { from: Slice, to: Slice, dtype: Dtype, root: u32 },
    AllGather { from: Slice, to: Slice, dtype: Dtype },
    ReduceScatter { from: Slice, to: Slice, dtype: Dtype, op: ReduceOp },
    AllToAll { from: Slice, to: Slice, dtype: Dtype, ranks: usize },
    Send { from: Slice, dtype: Dtype, peer: u32 },
    Recv { to: Slice, dtype: Dtype, peer: u32 },
}

impl Exchange {
    /// `work` for the rank in `seat` of `ranks`, in the buffers of its lane.
    pub(super) fn new(
        nccl: &Arc<Nccl>,
        comm: &Arc<Comm>,
        work: &Work,
        (seat, ranks): (usize, usize),
        buffers: &Buffers,
    ) -> Self {
        let layout = Layout::of(work, seat, ranks);
        let (input, output) = (buffers.input(), buffers.output());
        let mut this =
            Self { nccl: nccl.clone(), comm: comm.clone(), calls: Vec::new(), grouped: false, placed: Vec::new() };
        match work {
            Work::Collective(one) => {
                if let Some(part) = layout.parts.first() {
                    this.collective(one, part, (seat, ranks), input, output);
                }
                this.grouped = this.calls.len() > 1;
            }
            Work::Group(all) => {
                for (one, part) in all.iter().zip(&layout.parts) {
                    this.collective(one, part, (seat, ranks), input, output);
                }
                this.grouped = true;
            }
            Work::P2p { transfers, wrap } => {
                for (transfer, peer) in exchanges(transfers, *wrap, seat, ranks) {
                    // Parts lie in the order of the block's transfers, those that this rank does not make included.
                    let index = transfers.iter().position(|one| std::ptr::eq(one, transfer)).unwrap_or_default();
                    let (part, dtype, peer) = (&layout.parts[index], transfer.dtype, peer as u32);
                    this.calls.push(match transfer.direction {
                        Direction::Send => Call::Send { from: input.part(&part.input), dtype, peer },
                        Direction::Recv => Call::Recv { to: output.part(&part.output), dtype, peer },
                    });
                }
                this.grouped = true;
            }
            Work::Compute(_) | Work::Cuda(_) => {}
        }
        this
    }

    fn collective(
        &mut self,
        one: &Collective,
        part: &Part,
        (seat, ranks): (usize, usize),
        input: Slice,
        output: Slice,
    ) {
        let (from, to) = (input.part(&part.input), output.part(&part.output));
        let (dtype, root) = (one.dtype, one.root);
        // One rank's average is what it has. NCCL (2.28) refuses to divide 8-bit floats of a team of one.
        let op = if ranks == 1 && one.op == ReduceOp::Avg { ReduceOp::Sum } else { one.op };
        let me = seat as u32;
        let equal = |slice: Slice, seat: u32| {
            let each = slice.bytes / ranks;
            slice.part(&(seat as usize * each..(seat as usize + 1) * each))
        };
        let from = if one.in_place {
            let place = match one.kind {
                CollectiveKind::AllGather => equal(to, me),
                _ if me == root => to,
                _ => Slice::default(),
            };
            self.placed.push((from, place));
            // Who only gets gives NCCL no address of its own: the output stands for both.
            if place.bytes > 0 { place } else { to }
        } else {
            from
        };
        match one.kind {
            CollectiveKind::AllReduce => self.calls.push(Call::AllReduce { from, to, dtype, op }),
            CollectiveKind::AllGather => self.calls.push(Call::AllGather { from, to, dtype }),
            CollectiveKind::ReduceScatter => self.calls.push(Call::ReduceScatter { from, to, dtype, op }),
            CollectiveKind::Broadcast => self.calls.push(Call::Broadcast { from, to, dtype, root }),
            CollectiveKind::Reduce => self.calls.push(Call::Reduce { from, to, dtype, op, root }),
            CollectiveKind::Gather => {
                self.calls.push(Call::Send { from, dtype, peer: root });
                if me == root {
                    self.calls.extend((0..ranks as u32).map(|peer| Call::Recv { to: equal(to, peer), dtype, peer }));
                }
            }
            CollectiveKind::Scatter => {
                if me == root {
                    let parts = (0..ranks as u32).map(|peer| Call::Send { from: equal(from, peer), dtype, peer });
                    self.calls.extend(parts);
                }
                self.calls.push(Call::Recv { to, dtype, peer: root });
            }
            CollectiveKind::AllToAll if one.splits.is_empty() && self.nccl.has_all_to_all() => {
                self.calls.push(Call::AllToAll { from, to, dtype, ranks });
            }
            CollectiveKind::AllToAll if one.splits.is_empty() => {
                for peer in 0..ranks as u32 {
                    self.calls.push(Call::Send { from: equal(from, peer), dtype, peer });
                    self.calls.push(Call::Recv { to: equal(to, peer), dtype, peer });
                }
            }
            CollectiveKind::AllToAll => {
                let bytes = |elements: u64| (elements * dtype.bytes()) as usize;
                let (mut sent, mut received) = (0, 0);
                for peer in 0..ranks {
                    let (give, get) = (bytes(one.splits[seat][peer]), bytes(one.splits[peer][seat]));
                    if give > 0 {
                        let from = from.part(&(sent..sent + give));
                        self.calls.push(Call::Send { from, dtype, peer: peer as u32 });
                    }
                    if get > 0 {
                        let to = to.part(&(received..received + get));
                        self.calls.push(Call::Recv { to, dtype, peer: peer as u32 });
                    }
                    sent += give;
                    received += get;
                }
            }
            // NCCL has none: as PyTorch does, one element is reduced.
            CollectiveKind::Barrier => self.calls.push(Call::AllReduce {
                from: input.first(4),
                to: output.first(4),
                dtype: Dtype::F32,
                op: ReduceOp::Sum,
            }),
        }
    }

    /// Puts what was loaded into the lane's input where a collective in place takes it from.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn place(&self, on: &Stream) -> Native<()> {
        self.placed.iter().try_for_each(|(from, to)| on.copy(*from, *to))
    }

    /// Puts it on a stream.
    ///
    /// # Errors
    /// NCCL's.
    pub(super) fn run(&self, on: &Stream) -> Native<()> {
        if !self.grouped {
            return self.calls.iter().try_for_each(|call| self.call(call, on));
        }
        if self.calls.is_empty() {
            return Ok(());
        }
        self.nccl.group_start()?;
        let called = self.calls.iter().try_for_each(|call| self.call(call, on));
        // The group is closed whatever happened in it; the first failure is the one to tell.
        let closed = self.nccl.group_end();
        called.and(closed)
    }

    fn call(&self, call: &Call, on: &Stream) -> Native<()> {
        let comm = &self.comm;
        match *call {
            Call::AllReduce { from, to, dtype, op } => comm.all_reduce(from, to, dtype, op, on),
            Call::Reduce { from, to, dtype, op, root } => comm.reduce(from, to, dtype, op, root, on),
            Call::Broadcast { from, to, dtype, root } => comm.broadcast(from, to, dtype, root, on),
            Call::AllGather { from, to, dtype } => comm.all_gather(from, to, dtype, on),
            Call::ReduceScatter { from, to, dtype, op } => comm.reduce_scatter(from, to, dtype, op, on),
            Call::AllToAll { from, to, dtype, ranks } => comm.all_to_all(from, to, dtype, ranks, on),
            Call::Send { from, dtype, peer } => comm.send(from, dtype, peer, on),
            Call::Recv { to, dtype, peer } => comm.recv(to, dtype, peer, on),
        }
    }
}

/// One entry of a compute block.
pub(super) enum Op {
    /// A product.
    Product { product: Rc<Product>, operands: [Slice; 3], workspace: Slice, times: u64 },
    /// Memory traffic, in runs over the same buffers.
    Stream { memory: [Slice; 3], bytes: u64, ns: u64, times: u64 },
    /// Has nothing to do.
    Idle { ns: u64, slot: Slice },
    /// Keeps multiprocessors busy.
    Hold { ns: u64, sms: Option<u32>, times: u64, slot: Slice },
    /// A copy by the copy engine.
    Copy { from: Slice, to: Slice, times: u64 },
    /// Fills memory.
    Set { to: Slice, times: u64 },
    /// A user's own kernel.
    Cuda { kernel: cuda::Kernel, shape: Shape },
}

/// Most parts that a block's memory traffic is divided into.
const PARTS: u64 = 32;

/// How products that are done so often each take turns with the parts of memory traffic: runs of (product, times, whether a
/// part follows). The parts are evenly apart.
fn turns(times: &[u64]) -> Vec<(usize, u64, bool)> {
    let products: u64 = times.iter().sum();
    let each = products.div_ceil(PARTS).max(1);
    let (mut turns, mut done) = (Vec::new(), 0);
    for (product, times) in times.iter().enumerate() {
        let mut left = *times;
        while left > 0 {
            let run = left.min(each - done % each);
            (left, done) = (left - run, done + run);
            turns.push((product, run, done.is_multiple_of(each) || done == products));
        }
    }
    turns
}

/// Spreads the memory traffic of a block evenly between its products. A pattern keeps the order of products and the sum
/// of traffic, so behind the products all of it would run beside what in truth ran beside some of each.
pub(super) fn spread(ops: Vec<Op>) -> Vec<Op> {
    let times = |op: &Op| if let Op::Product { times, .. } = op { *times } else { 0 };
    let turns = turns(&ops.iter().map(times).collect::<Vec<_>>());
    let mut streams = ops.iter().filter_map(|op| match op {
        Op::Stream { memory, bytes, ns, times: 1 } => Some((*memory, *bytes, *ns)),
        _ => None,
    });
    let (Some((memory, bytes, ns)), None, false) = (streams.next(), streams.next(), turns.is_empty()) else {
        return ops;
    };
    let parts = turns.iter().filter(|(_, _, follows)| *follows).count() as u128;
    let until = |all: u64, part: u128| (u128::from(all) * part / parts) as u64;
    let part = |part| {
        let share = |all| until(all, part + 1) - until(all, part);
        Op::Stream { memory, bytes: share(bytes), ns: share(ns), times: 1 }
    };
    let (mut spread, mut turns, mut next) = (Vec::new(), turns.into_iter().peekable(), 0);
    for (index, op) in ops.into_iter().enumerate() {
        match op {
            Op::Stream { .. } => {}
            Op::Product { product, operands, workspace, .. } => {
                while let Some((_, times, follows)) = turns.next_if(|(of, ..)| *of == index) {
                    spread.push(Op::Product { product: product.clone(), operands, workspace, times });
                    if follows {
                        spread.push(part(next));
                        next += 1;
                    }
                }
            }
            other => spread.push(other),
        }
    }
    spread
}

impl Op {
    /// What `kernel` does in the buffers of its lane. `slot` is the lane's memory for timed kernels.
    ///
    /// # Errors
    /// cuBLASLt's: no kernel for this shape and element type.
    pub(super) fn new(kernel: &Kernel, blas: Option<&Rc<Handle>>, buffers: &Buffers, slot: Slice) -> Native<Self> {
        Ok(match *kernel {
            Kernel::Gemm { m, n, k, batch, dtype, layout, times } => {
                let Some(blas) = blas else {
                    return Err(super::ffi::Failure {
                        call: "cublasLtCreate",
                        what: "cuBLASLt was not found; `maestro doctor` says where it was looked for".into(),
                    });
                };
                Self::Product {
                    product: Rc::new(Product::new(blas, Gemm { m, n, k, batch, dtype, layout }, BLAS_WORKSPACE)?),
                    operands: [buffers.left(), buffers.right(), buffers.result()],
                    workspace: buffers.blas(),
                    times,
                }
            }
            Kernel::Memory { bytes, lasts_ns, times } => Self::Stream {
                memory: [buffers.left(), buffers.right(), slot],
                bytes,
                ns: lasts_ns.unwrap_or(0),
                times,
            },
            Kernel::Hold { duration_ns, sms, times } => Self::Hold { ns: duration_ns, sms, times, slot },
            Kernel::Copy { direction, size, times } => {
                let (from, to) = match direction {
                    CopyDirection::H2d => (buffers.pinned(), buffers.result()),
                    CopyDirection::D2h => (buffers.result(), buffers.pinned()),
                    CopyDirection::D2d => (buffers.left(), buffers.right()),
                };
                let size = size as usize;
                Self::Copy { from: from.first(size), to: to.first(size), times }
            }
            Kernel::Set { size, times } => Self::Set { to: buffers.result().first(size as usize), times },
        })
    }

    /// How many launches it is.
    pub(super) fn launches(&self) -> u32 {
        let launches = match self {
            Self::Stream { bytes, times, .. } => times.saturating_mul(bytes.div_ceil(2).div_ceil(STREAM)),
            Self::Product { times, .. }
            | Self::Hold { times, .. }
            | Self::Copy { times, .. }
            | Self::Set { times, .. } => *times,
            Self::Idle { .. } | Self::Cuda { .. } => 1,
        };
        u32::try_from(launches).unwrap_or(u32::MAX)
    }

    /// Puts it on a stream.
    ///
    /// # Errors
    /// The library's.
    pub(super) fn run(&self, kernels: &Kernels, on: &Stream) -> Native<()> {
        match self {
            Self::Product { product, operands, workspace, times } => {
                (0..*times).try_for_each(|_| product.run(*operands, *workspace, on))
            }
            Self::Stream { memory, bytes, ns, times } => {
                // Half is read, half is written.
                let half = bytes.div_ceil(2);
                (0..*times).try_for_each(|_| {
                    let mut left = half;
                    while left > 0 {
                        let run = left.min(STREAM);
                        let share = u128::from(*ns) * u128::from(run) / u128::from(half);
                        kernels.stream(*memory, run, share as u64, on)?;
                        left -= run;
                    }
                    Ok(())
                })
            }
            Self::Idle { ns, slot } => kernels.idle(*ns, *slot, on),
            Self::Hold { ns, sms, times, slot } => (0..*times).try_for_each(|_| kernels.hold(*ns, *sms, *slot, on)),
            Self::Copy { from, to, times } => (0..*times).try_for_each(|_| on.copy(*from, *to)),
            Self::Set { to, times } => (0..*times).try_for_each(|_| on.set(*to, 0)),
            Self::Cuda { kernel, shape } => on.launch(kernel, *shape, &mut []),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::turns;

    #[test]
    fn parts_of_traffic_come_evenly_between_products() {
        assert_eq!(turns(&[0, 2, 0, 1]), [(1, 1, true), (1, 1, true), (3, 1, true)]);
        assert!(turns(&[0, 0]).is_empty());
        // 70 products: a part behind each three, and one behind the last.
        let turns = turns(&[40, 30]);
        assert_eq!(turns.iter().map(|(_, times, _)| times).sum::<u64>(), 70);
        assert_eq!(turns[12..=15], [(0, 3, true), (0, 1, false), (1, 2, true), (1, 3, true)]);
        assert_eq!(turns.last(), Some(&(1, 1, true)));
        assert_eq!(turns.iter().filter(|(_, _, follows)| *follows).count(), 24);
    }
}
