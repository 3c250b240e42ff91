//! Collectives through the memory that all ranks of a process share.
//!
//! A collective is three steps between barriers, each taken by all ranks at once: every rank reduces its own share of
//! everybody's inputs; every rank copies what it gets out of others' inputs or shares; everybody has read everything,
//! so inputs may change again. The first barrier is the rendezvous, which makes ranks wait for the last to arrive; the
//! last makes the end of an execution mean what it means in MPI and NCCL.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use maestro_pattern::{Collective, CollectiveKind, Plan, Work};

use super::mail::Mail;
use crate::host::{AllBuffers, End, Exchange, Fabric, Gate, LaneBuffers, read, write};
use crate::layout::share;
use crate::reduce::reduce;
use crate::{Error, Result};

/// The fabric of the threads back end.
pub(super) struct Shared<'p> {
    plan: &'p Plan,
    world: Gate,
    /// A team a communicator of the plan.
    teams: Vec<Team>,
}

/// The live object of one communicator.
struct Team {
    gate: Gate,
    mail: Mail,
    /// Per seat: the buffers of its lane.
    buffers: Vec<Arc<LaneBuffers>>,
}

impl<'p> Shared<'p> {
    pub(super) fn new(plan: &'p Plan, end: &Arc<End>, buffers: &AllBuffers) -> Self {
        let team = |ranks: &[u32], lane: u32| Team {
            gate: Gate::new(end, ranks.len()),
            mail: Mail::new(end, ranks.len()),
            buffers: ranks.iter().map(|rank| buffers[&(*rank, lane)].clone()).collect(),
        };
        let teams = plan.communicators.iter().map(|c| team(&c.ranks, c.lane)).collect();
        Self { plan, world: Gate::new(end, plan.world.size() as usize), teams }
    }
}

impl Fabric for Shared<'_> {
    fn barrier(&self, rank: u32) -> Result<Instant> {
        self.world.pass(rank as usize)
    }

    fn exchange(&self, exchange: &Exchange) -> Result<()> {
        let team = &self.teams[exchange.communicator as usize];
        let block = &self.plan.blocks[exchange.block as usize];
        match &block.work {
            Work::Collective(one) => team.collectives(std::slice::from_ref(one), exchange),
            Work::Group(all) => team.collectives(all, exchange),
            Work::P2p { transfers, wrap } => {
                let unmatched = team.mail.exchange(transfers, *wrap, exchange, &team.buffers)?;
                unmatched.map_or(Ok(()), |what| {
                    let rank = self.plan.communicators[exchange.communicator as usize].ranks[exchange.seat];
                    Err(Error::Plan { rank, block: block.name.clone(), what })
                })
            }
            Work::Compute(_) | Work::Cuda(_) => Ok(()),
        }
    }

    fn missing(&self, communicator: u32, rank: u32) -> Vec<u32> {
        let ranks = &self.plan.communicators[communicator as usize].ranks;
        let team = &self.teams[communicator as usize];
        let Some(seat) = ranks.iter().position(|other| *other == rank) else { return Vec::new() };
        let mut seats = team.gate.missing(seat);
        seats.extend(team.mail.missing(seat));
        seats.sort_unstable();
        seats.dedup();
        seats.into_iter().map(|seat| ranks[seat]).collect()
    }
}

impl Team {
    fn collectives(&self, all: &[Collective], exchange: &Exchange) -> Result<()> {
        let seat = exchange.seat;
        self.gate.pass(seat)?;
        if all.iter().any(|one| one.kind.reduces()) {
            for (part, one) in all.iter().enumerate() {
                self.reduce_share(one, part, exchange);
            }
            self.gate.pass(seat)?;
        }
        for (part, one) in all.iter().enumerate() {
            self.deliver(one, part, exchange);
        }
        self.gate.pass(seat)?;
        Ok(())
    }

    /// Reduces this rank's share: of a reduce-scatter into its output, otherwise into its scratch, for all to fetch.
    fn reduce_share(&self, collective: &Collective, part: usize, exchange: &Exchange) {
        let (seat, ranks, width) = (exchange.seat, self.buffers.len(), collective.dtype.bytes());
        let elements = collective.size.unwrap_or(0) / width;
        let own = &exchange.layouts[seat].parts[part];
        let (target, at) = match collective.kind {
            CollectiveKind::AllReduce | CollectiveKind::Reduce => (&exchange.buffers.scratch, own.scratch.clone()),
            CollectiveKind::ReduceScatter => (&exchange.buffers.output, own.output.clone()),
            CollectiveKind::AllGather
            | CollectiveKind::Broadcast
            | CollectiveKind::Gather
            | CollectiveKind::Scatter
            | CollectiveKind::AllToAll
            | CollectiveKind::Barrier => return,
        };
        let mine = bytes(share(elements, seat, ranks), width);
        let locks: Vec<_> = self.buffers.iter().map(|buffers| read(&buffers.input)).collect();
        let inputs: Vec<&[u8]> = locks
            .iter()
            .zip(exchange.layouts.iter())
            .map(|(input, layout)| &input.bytes()[layout.parts[part].input.clone()][mine.clone()])
            .collect();
        reduce(collective.dtype, collective.op, &inputs, &mut write(target).bytes_mut()[at]);
    }

    /// Copies to this rank's output what it gets.
    fn deliver(&self, collective: &Collective, part: usize, exchange: &Exchange) {
        let (seat, ranks, root) = (exchange.seat, self.buffers.len(), collective.root as usize);
        let own = &exchange.layouts[seat].parts[part];
        let mut output = write(&exchange.buffers.output);
        let output = &mut output.bytes_mut()[own.output.clone()];
        // Seat `from`'s input from byte `at` on, as much as fits into `to`.
        let fetch = |from: usize, at: usize, to: &mut [u8]| {
            let input = read(&self.buffers[from].input);
            let input = &input.bytes()[exchange.layouts[from].parts[part].input.clone()];
            to.copy_from_slice(&input[at..at + to.len()]);
        };
        let piece = collective.size.unwrap_or(0) as usize / ranks;
        match collective.kind {
            CollectiveKind::AllReduce => self.collect_shares(part, exchange, output),
            CollectiveKind::Reduce if seat == root => self.collect_shares(part, exchange, output),
            CollectiveKind::AllGather => {
                (0..ranks).for_each(|from| fetch(from, 0, &mut output[from * piece..(from + 1) * piece]));
            }
            CollectiveKind::Gather if seat == root => {
                (0..ranks).for_each(|from| fetch(from, 0, &mut output[from * piece..(from + 1) * piece]));
            }
            CollectiveKind::Broadcast => fetch(root, 0, output),
            CollectiveKind::Scatter => fetch(root, seat * piece, output),
            CollectiveKind::AllToAll => {
                let mut rest = output;
                for from in 0..ranks {
                    let (at, length) = part_of(collective, from, seat, piece);
                    let (now, later) = rest.split_at_mut(length);
                    fetch(from, at, now);
                    rest = later;
                }
            }
            CollectiveKind::Reduce
            | CollectiveKind::Gather
            | CollectiveKind::ReduceScatter
            | CollectiveKind::Barrier => {}
        }
    }

    /// Copies the shares of all ranks, which lie in their scratch buffers, one after the other.
    fn collect_shares(&self, part: usize, exchange: &Exchange, output: &mut [u8]) {
        let mut rest = output;
        for (buffers, layout) in self.buffers.iter().zip(exchange.layouts.iter()) {
            let scratch = read(&buffers.scratch);
            let share = &scratch.bytes()[layout.parts[part].scratch.clone()];
            let (now, later) = rest.split_at_mut(share.len());
            now.copy_from_slice(share);
            rest = later;
        }
    }
}

/// Where in its input an all-to-all's sender has what goes to a receiver, and how many bytes of it there are. `even` is
/// a part's length where there are no splits.
fn part_of(collective: &Collective, from: usize, to: usize, even: usize) -> (usize, usize) {
    match collective.splits.get(from) {
        Some(row) => {
            let width = collective.dtype.bytes() as usize;
            (row[..to].iter().sum::<u64>() as usize * width, row[to] as usize * width)
        }
        None => (to * even, even),
    }
}

/// A range of elements in bytes.
fn bytes(elements: Range<u64>, width: u64) -> Range<usize> {
    (elements.start * width) as usize..(elements.end * width) as usize
}
