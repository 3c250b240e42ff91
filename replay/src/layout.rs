//! Where the data of a communicating block lies in one rank's input and output buffers.
//!
//! One layout for all back ends, because verification fills inputs and reads outputs without knowing which back end it
//! looks at. Parts begin at multiples of [`ALIGN`], so that every element type and vector width may start there.

use std::collections::HashSet;
use std::ops::Range;

use maestro_pattern::{BlockId, Collective, CollectiveKind, Direction, LaneId, Plan, Work, peer};

use crate::Result;
use crate::meeting::place;
use crate::turn::issues;

/// Alignment of parts in bytes: what GPUs want for their widest accesses.
const ALIGN: usize = 256;

/// The buffers of one rank for one block: a part a collective, or a part a transfer of a p2p.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// In the order of the block.
    pub parts: Vec<Part>,
    /// Bytes of the input buffer.
    pub input_bytes: usize,
    /// Bytes of the output buffer.
    pub output_bytes: usize,
    /// Bytes of the scratch buffer.
    pub scratch_bytes: usize,
}

/// One collective or transfer inside the buffers of its block, as byte ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// What the rank gives; of a send, the message.
    pub input: Range<usize>,
    /// What the rank gets; of a recv, the message.
    pub output: Range<usize>,
    /// Room for the rank's share of a reduction, for back ends on which every rank reduces a share for all.
    pub scratch: Range<usize>,
}

impl Layout {
    /// The layout of `work` for the rank in `seat` of a team of `ranks`. Work that does not communicate has none.
    pub fn of(work: &Work, seat: usize, ranks: usize) -> Self {
        let mut layout = Self::default();
        match work {
            Work::Collective(collective) => layout.collective(collective, seat, ranks),
            Work::Group(all) => all.iter().for_each(|collective| layout.collective(collective, seat, ranks)),
            Work::P2p { transfers, wrap } => {
                for transfer in transfers {
                    let size = if peer(seat, transfer.offset, ranks, *wrap).is_some() { transfer.size } else { 0 };
                    match transfer.direction {
                        Direction::Send => layout.push(size, 0, 0),
                        Direction::Recv => layout.push(0, size, 0),
                    }
                }
            }
            Work::Compute(_) | Work::Cuda(_) => {}
        }
        layout
    }

    fn collective(&mut self, collective: &Collective, seat: usize, ranks: usize) {
        let scratch = match collective.kind {
            CollectiveKind::AllReduce | CollectiveKind::Reduce => {
                let elements = collective.size.unwrap_or(0) / collective.dtype.bytes();
                let share = share(elements, seat, ranks);
                (share.end - share.start) * collective.dtype.bytes()
            }
            CollectiveKind::AllGather
            | CollectiveKind::ReduceScatter
            | CollectiveKind::Broadcast
            | CollectiveKind::Gather
            | CollectiveKind::Scatter
            | CollectiveKind::AllToAll
            | CollectiveKind::Barrier => 0,
        };
        self.push(collective.input_bytes(seat, ranks), collective.output_bytes(seat, ranks), scratch);
    }

    fn push(&mut self, input: u64, output: u64, scratch: u64) {
        self.parts.push(Part {
            input: grow(&mut self.input_bytes, input),
            output: grow(&mut self.output_bytes, output),
            scratch: grow(&mut self.scratch_bytes, scratch),
        });
    }
}

/// Appends `bytes` to a buffer of `total` bytes.
fn grow(total: &mut usize, bytes: u64) -> Range<usize> {
    let start = if bytes == 0 { *total } else { total.next_multiple_of(ALIGN) };
    *total = start + bytes as usize;
    start..*total
}

/// The elements, of `elements`, that the rank in `seat` of `ranks` reduces for all.
pub(crate) fn share(elements: u64, seat: usize, ranks: usize) -> Range<u64> {
    let at = |seat: usize| (u128::from(elements) * seat as u128 / ranks as u128) as u64;
    at(seat)..at(seat + 1)
}

/// What `rank` runs: each block on each of its lanes once, with the layout of its buffers; that of a block that does not
/// communicate is empty.
///
/// # Errors
/// The plan contradicts itself.
pub(crate) fn layouts(plan: &Plan, rank: u32) -> Result<Vec<(BlockId, LaneId, Layout)>> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for issue in issues(plan.program(rank)).filter(|issue| seen.insert((issue.block, issue.axis, issue.lane))) {
        let layout = match issue.axis {
            Some(axis) => {
                let (communicator, seat) = place(plan, rank, issue.block, axis, issue.lane)?;
                let ranks = plan.communicators[communicator as usize].ranks.len();
                Layout::of(&plan.blocks[issue.block as usize].work, seat, ranks)
            }
            None => Layout::default(),
        };
        all.push((issue.block, issue.lane, layout));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use maestro_pattern::{Dtype, Transfer};

    use super::*;

    #[test]
    fn parts_are_aligned_and_disjoint() {
        let gather = Collective::new(CollectiveKind::AllGather, 24, Dtype::F32);
        let reduce = Collective::new(CollectiveKind::AllReduce, 28, Dtype::F32);
        let layout = Layout::of(&Work::Group(vec![gather, reduce]), 1, 2);
        assert_eq!(layout.parts[0], Part { input: 0..12, output: 0..24, scratch: 0..0 });
        assert_eq!(layout.parts[1], Part { input: 256..284, output: 256..284, scratch: 0..16 });
        assert_eq!((layout.input_bytes, layout.output_bytes, layout.scratch_bytes), (284, 284, 16));
    }

    #[test]
    fn a_peer_beyond_the_end_means_no_transfer() {
        assert_eq!((peer(0, -1, 4, false), peer(3, 1, 4, false), peer(1, 2, 4, false)), (None, None, Some(3)));
        assert_eq!((peer(0, -1, 4, true), peer(3, 6, 4, true)), (Some(3), Some(1)));
        let send = Transfer { direction: Direction::Send, offset: 1, size: 8, dtype: Dtype::U8 };
        let work = Work::P2p { transfers: vec![send], wrap: false };
        assert_eq!((Layout::of(&work, 0, 2).input_bytes, Layout::of(&work, 1, 2).input_bytes), (8, 0));
    }

    #[test]
    fn shares_cover_everything_once() {
        for (elements, ranks) in [(0, 3), (2, 8), (37, 8), (64, 4)] {
            let mut next = 0;
            for seat in 0..ranks {
                let share = share(elements, seat, ranks);
                assert_eq!(share.start, next);
                next = share.end;
            }
            assert_eq!(next, elements);
        }
    }
}
