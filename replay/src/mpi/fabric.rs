//! Blocks that communicate, by nonblocking calls of MPI whose progress the lane's worker polls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use maestro_pattern::{BlockId, Collective, CollectiveKind, Direction, LaneId, Plan, ReduceOp, Work, peer};

use super::birth::Comms;
use super::ffi::flight::{Flight, Move, Reduce, Waits};
use super::ffi::{Failure, Library, Native};
use crate::host::{End, Exchange, Fabric, lock, read, write};
use crate::layout::{Layout, Part};
use crate::reduce::divide;
use crate::store::Store;
use crate::{Error, Result};

/// How often MPI is called in a row before the core is offered to others. What is short has ended by then, and over
/// what is long a lane must not keep its core from lanes that move bytes, too, or from another rank.
const IN_A_ROW: u32 = 64;

/// The fabric of one rank.
pub(super) struct Mpi<'p> {
    plan: &'p Plan,
    rank: u32,
    library: &'static Library,
    store: &'p Store,
    end: Arc<End>,
    comms: Comms,
    /// By communicator: what its lane is in.
    under_way: HashMap<u32, Mutex<Option<UnderWay>>>,
    /// The largest error of the clocks since the beginning.
    error_ns: AtomicU64,
}

/// An exchange that has not ended.
#[derive(Clone)]
struct UnderWay {
    block: BlockId,
    /// The ranks that it waits for.
    ranks: Vec<u32>,
}

impl<'p> Mpi<'p> {
    pub(super) fn new(
        plan: &'p Plan,
        rank: u32,
        library: &'static Library,
        store: &'p Store,
        end: &Arc<End>,
        comms: Comms,
    ) -> Self {
        let under_way = comms.keys().map(|index| (*index, Mutex::default())).collect();
        let this = Self { plan, rank, library, store, end: end.clone(), comms, under_way, error_ns: AtomicU64::new(0) };
        this.note_error();
        this
    }

    /// By how much the clock of a rank may be off from the clock of rank 0.
    pub(super) fn clock_error(&self) -> Duration {
        Duration::from_nanos(self.error_ns.load(Ordering::Relaxed))
    }

    fn note_error(&self) {
        let error_ns = u64::try_from(self.store.clock_error().as_nanos()).unwrap_or(u64::MAX);
        self.error_ns.fetch_max(error_ns, Ordering::Relaxed);
    }

    /// The block that this rank waits for `other` in, and its lane, if it does.
    pub(super) fn waits_for(&self, other: u32) -> Option<(BlockId, LaneId)> {
        self.under_way.iter().find_map(|(index, under_way)| {
            let under_way = lock(under_way);
            let here = under_way.as_ref().filter(|here| here.ranks.contains(&other))?;
            Some((here.block, self.plan.communicators[*index as usize].lane))
        })
    }

    /// Frees the communicators, in the order in which they were made.
    pub(super) fn free(&self) -> Result<()> {
        let mut indices: Vec<u32> = self.comms.keys().copied().collect();
        indices.sort_unstable();
        let freed = indices.iter().try_for_each(|index| self.comms[index].free());
        freed.map_err(|failure| Error::Native { rank: self.rank, block: None, what: failure.to_string() })
    }

    /// Says whom the calls of an exchange wait for.
    fn note(&self, exchange: &Exchange, flight: &Flight<'_>) {
        let members = &self.plan.communicators[exchange.communicator as usize].ranks;
        let mut ranks: Vec<u32> = flight
            .waits()
            .flat_map(|waits| match waits {
                Waits::All => members.clone(),
                Waits::Seat(seat) => vec![members[seat]],
            })
            .filter(|rank| *rank != self.rank)
            .collect();
        ranks.sort_unstable();
        ranks.dedup();
        if let Some(under_way) = self.under_way.get(&exchange.communicator) {
            *lock(under_way) = Some(UnderWay { block: exchange.block, ranks });
        }
    }

    fn failed(&self, block: BlockId, failure: &Failure) -> Error {
        let block = Some(self.plan.blocks[block as usize].name.clone());
        Error::Native { rank: self.rank, block, what: failure.to_string() }
    }

    /// Calls MPI until all calls of an exchange have ended.
    fn finish(&self, exchange: &Exchange, mut flight: Flight<'_>) -> Result<()> {
        self.note(exchange, &flight);
        let mut polls = 0u32;
        loop {
            if flight.test().map_err(|failure| self.failed(exchange.block, &failure))? {
                if flight.is_over() {
                    break;
                }
                self.note(exchange, &flight);
            }
            self.end.check()?;
            polls = polls.saturating_add(1);
            if polls < IN_A_ROW {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        if let Some(under_way) = self.under_way.get(&exchange.communicator) {
            *lock(under_way) = None;
        }
        Ok(())
    }
}

impl Fabric for Mpi<'_> {
    fn barrier(&self, _: u32) -> Result<Instant> {
        self.end.check()?;
        let moment = self.store.barrier()?;
        self.note_error();
        Ok(moment)
    }

    fn exchange(&self, exchange: &Exchange) -> Result<()> {
        let Some(comm) = self.comms.get(&exchange.communicator).copied() else {
            return Err(Error::Plan {
                rank: self.rank,
                block: self.plan.blocks[exchange.block as usize].name.clone(),
                what: "it communicates on an axis that does not hold this rank".into(),
            });
        };
        let work = &self.plan.blocks[exchange.block as usize].work;
        let ranks = exchange.layouts.len();
        let (input, mut output) = (read(&exchange.buffers.input), write(&exchange.buffers.output));
        let mut flight = Flight::new(self.library, comm, input.bytes(), output.bytes_mut(), exchange.buffers.clone());
        let layout = &exchange.layouts[exchange.seat];
        start(work, exchange.seat, ranks, layout, &mut flight)
            .map_err(|failure| self.failed(exchange.block, &failure))?;
        self.finish(exchange, flight)?;
        for (collective, part) in collectives(work).iter().zip(&layout.parts) {
            if collective.kind.reduces() && collective.op == ReduceOp::Avg {
                divide(collective.dtype, ranks, &mut output.bytes_mut()[part.output.clone()]);
            }
        }
        Ok(())
    }

    fn missing(&self, communicator: u32, _: u32) -> Vec<u32> {
        let under_way = self.under_way.get(&communicator).map(lock);
        under_way.and_then(|under_way| Some(under_way.as_ref()?.ranks.clone())).unwrap_or_default()
    }
}

/// The collectives of a block.
fn collectives(work: &Work) -> &[Collective] {
    match work {
        Work::Collective(one) => std::slice::from_ref(one),
        Work::Group(all) => all,
        Work::P2p { .. } | Work::Compute(_) | Work::Cuda(_) => &[],
    }
}

/// Starts the calls of a block, all before any is waited for.
fn start(work: &Work, seat: usize, ranks: usize, layout: &Layout, flight: &mut Flight<'_>) -> Native<()> {
    match work {
        Work::Collective(_) | Work::Group(_) => collectives(work)
            .iter()
            .zip(&layout.parts)
            .try_for_each(|(one, part)| collective(one, seat, ranks, part, flight)),
        Work::P2p { transfers, wrap } => {
            let made = transfers
                .iter()
                .zip(&layout.parts)
                .filter_map(|(transfer, part)| Some((transfer, part, peer(seat, transfer.offset, ranks, *wrap)?)));
            // Receives first: a message that is awaited needs no copy of its own.
            let (receives, sends): (Vec<_>, Vec<_>) =
                made.partition(|(transfer, _, _)| transfer.direction == Direction::Recv);
            receives
                .into_iter()
                .try_for_each(|(transfer, part, there)| flight.receive(there, transfer.dtype, &part.output))?;
            sends.into_iter().try_for_each(|(transfer, part, there)| flight.send(there, transfer.dtype, &part.input))
        }
        Work::Compute(_) | Work::Cuda(_) => Ok(()),
    }
}

fn collective(one: &Collective, seat: usize, ranks: usize, part: &Part, flight: &mut Flight<'_>) -> Native<()> {
    let (input, output, root) = (&part.input, &part.output, one.root as usize);
    let piece = one.size.unwrap_or(0) as usize / ranks;
    let reduction = (one.dtype, one.op);
    match one.kind {
        CollectiveKind::AllReduce => flight.reduce(Reduce::All, reduction, input, output),
        CollectiveKind::ReduceScatter => flight.reduce(Reduce::Scatter, reduction, input, output),
        CollectiveKind::Reduce => flight.reduce(Reduce::To(root), reduction, input, output),
        CollectiveKind::AllGather => flight.shift(Move::AllGather, one.dtype, piece, input, output),
        CollectiveKind::Gather => flight.shift(Move::Gather(root), one.dtype, piece, input, output),
        CollectiveKind::Scatter => flight.shift(Move::Scatter(root), one.dtype, piece, input, output),
        CollectiveKind::AllToAll if one.splits.is_empty() => {
            flight.shift(Move::AllToAll, one.dtype, piece, input, output)
        }
        CollectiveKind::AllToAll => {
            let received: Vec<u64> = one.splits.iter().map(|row| row[seat]).collect();
            flight.all_to_all(one.dtype, (&one.splits[seat], &received), input, output)
        }
        CollectiveKind::Broadcast => flight.broadcast(root, seat, one.dtype, input, output),
        CollectiveKind::Barrier => flight.barrier(),
    }
}
