//! What each block must give, from the definition of its collectives.
//!
//! Input and output are described as pieces: so many bytes of some content, from some element of it on. "Seat j's
//! bytes from its m-th part on" is all that an all-to-all says about a piece of its output.

use std::collections::HashMap;

use maestro_pattern::{Block, Collective, CollectiveKind, Direction, Dtype, Work, peer};

use super::values::{Content, PERIOD, Reduction, show};
use crate::layout::Layout;

/// How far apart the contents of several parts or messages begin, in elements, so that none passes for another.
const STRIDE: u64 = 977;

/// A run of elements in a buffer.
struct Piece {
    /// Where its part of the buffer begins, in bytes.
    part: usize,
    /// Where it begins in the buffer, in bytes.
    at: usize,
    /// Its length in bytes.
    bytes: usize,
    /// What it holds...
    content: Content,
    /// ...from this element of the content on.
    from: u64,
    /// Element type of the buffer, to count elements in.
    dtype: Dtype,
}

/// How many messages were sent to and received from each seat, to tell them apart.
#[derive(Default)]
pub(super) struct Messages(HashMap<(Direction, usize), u64>);

impl Messages {
    /// The number of the next message that goes this way, to or from this seat. Both ends count alike, because
    /// messages between two ranks do not overtake.
    fn next(&mut self, way: Direction, peer: usize) -> u64 {
        let count = self.0.entry((way, peer)).or_default();
        *count += 1;
        *count - 1
    }
}

/// The input and the expected output of one block on one rank.
pub(super) struct Expected {
    /// Name of the block.
    pub(super) block: String,
    input: Vec<Piece>,
    output: Vec<Piece>,
}

/// The first wrong element.
pub(super) struct Wrong {
    /// Its index in the output of its collective or transfer.
    pub(super) element: u64,
    /// What it should be.
    pub(super) expected: String,
    /// What it is.
    pub(super) found: String,
}

impl Expected {
    /// What `block` takes and gives on the rank in `seat` of a team of `ranks`.
    pub(super) fn new(block: &Block, seat: usize, ranks: usize, messages: &mut Messages) -> Self {
        let layout = Layout::of(&block.work, seat, ranks);
        let (mut input, mut output) = (Vec::new(), Vec::new());
        let mut collective = |collective: &Collective, index: usize| {
            let (part, from) = (&layout.parts[index], index as u64 * STRIDE);
            lay(&mut input, part.input.start, collective.dtype, from, inputs(collective, seat, ranks));
            lay(&mut output, part.output.start, collective.dtype, from, outputs(collective, seat, ranks));
        };
        match &block.work {
            Work::Collective(one) => collective(one, 0),
            Work::Group(all) => all.iter().enumerate().for_each(|(index, one)| collective(one, index)),
            Work::P2p { transfers, wrap } => {
                for (transfer, part) in transfers.iter().zip(&layout.parts) {
                    let Some(there) = peer(seat, transfer.offset, ranks, *wrap) else { continue };
                    let from = messages.next(transfer.direction, there) * STRIDE;
                    let (pieces, at, content) = match transfer.direction {
                        Direction::Send => (&mut input, part.input.start, Content::Message { from: seat, to: there }),
                        Direction::Recv => (&mut output, part.output.start, Content::Message { from: there, to: seat }),
                    };
                    lay(pieces, at, transfer.dtype, from, vec![(transfer.size, content, 0)]);
                }
            }
            Work::Compute(_) | Work::Cuda(_) => {}
        }
        Self { block: block.name.clone(), input, output }
    }

    /// Writes the input.
    pub(super) fn fill(&self, input: &mut [u8]) {
        for piece in &self.input {
            let table = piece.table();
            for run in piece.runs(table.len()) {
                let at = piece.at + run.done;
                input[at..at + run.bytes].copy_from_slice(&table[run.from..run.from + run.bytes]);
            }
        }
    }

    /// The first element of `output` that is not as it must be.
    pub(super) fn compare(&self, output: &[u8]) -> Option<Wrong> {
        for piece in &self.output {
            let table = piece.table();
            for run in piece.runs(table.len()) {
                let at = piece.at + run.done;
                let (found, right) = (&output[at..at + run.bytes], &table[run.from..run.from + run.bytes]);
                if found != right {
                    return Some(piece.wrong(at, found, right));
                }
            }
        }
        None
    }

    /// Bytes that [`Expected::compare`] looks at.
    pub(super) fn output_bytes(&self) -> u64 {
        self.output.iter().map(|piece| piece.bytes as u64).sum()
    }
}

/// One stretch of a piece that lies in one period of its content.
struct Run {
    /// Bytes of the piece before it.
    done: usize,
    /// Where it begins in the table.
    from: usize,
    /// Its length.
    bytes: usize,
}

impl Piece {
    /// The bytes of its content as far as it needs them.
    fn table(&self) -> Vec<u8> {
        self.content.table(self.from + self.bytes.div_ceil(self.content.width()) as u64)
    }

    /// Its stretches, for a table of `period` bytes.
    fn runs(&self, period: usize) -> impl Iterator<Item = Run> + use<> {
        let (total, mut done) = (self.bytes, 0);
        let mut from = (self.from % PERIOD) as usize * self.content.width();
        std::iter::from_fn(move || {
            let bytes = (period - from).min(total - done);
            let run = Run { done, from, bytes };
            done += bytes;
            from = 0;
            (bytes > 0).then_some(run)
        })
    }

    /// The first element that differs in `found`, which begins at byte `at` of the buffer.
    fn wrong(&self, at: usize, found: &[u8], right: &[u8]) -> Wrong {
        let width = self.dtype.bytes() as usize;
        let byte = found.iter().zip(right).position(|(found, right)| found != right).unwrap_or(0);
        // Bytes that are only moved run on without regard to elements, so the element may begin before the run.
        let start = ((at + byte - self.part) / width * width + self.part).saturating_sub(at);
        let end = (start + width).min(found.len());
        Wrong {
            element: ((at + byte - self.part) / width) as u64,
            expected: format!("{} {}", self.dtype.name(), show(&right[start..end])),
            found: format!("{} {}", self.dtype.name(), show(&found[start..end])),
        }
    }
}

/// Appends consecutive pieces, each (bytes, content, first element of it); `from` is added to the first elements.
fn lay(pieces: &mut Vec<Piece>, part: usize, dtype: Dtype, from: u64, all: Vec<(u64, Content, u64)>) {
    let mut at = part;
    for (bytes, content, first) in all {
        let bytes = bytes as usize;
        pieces.push(Piece { part, at, bytes, content, from: from + first, dtype });
        at += bytes;
    }
}

/// What a rank puts in.
fn inputs(collective: &Collective, seat: usize, ranks: usize) -> Vec<(u64, Content, u64)> {
    let bytes = collective.input_bytes(seat, ranks);
    let content = if collective.kind.reduces() {
        Content::Contribution { seat, reduction: reduction(collective, ranks) }
    } else {
        Content::Moved { seat }
    };
    vec![(bytes, content, 0)]
}

/// What a rank must get out.
fn outputs(collective: &Collective, seat: usize, ranks: usize) -> Vec<(u64, Content, u64)> {
    let size = collective.size.unwrap_or(0);
    let (part, width) = (size / ranks as u64, collective.dtype.bytes());
    let (me, root) = (seat as u64, collective.root as usize);
    let reduced = Content::Reduced { reduction: reduction(collective, ranks) };
    let everyone = || (0..ranks).map(|seat| (part, Content::Moved { seat }, 0)).collect();
    match collective.kind {
        CollectiveKind::AllReduce => vec![(size, reduced, 0)],
        CollectiveKind::Reduce if seat == root => vec![(size, reduced, 0)],
        CollectiveKind::ReduceScatter => vec![(part, reduced, me * part / width)],
        CollectiveKind::AllGather => everyone(),
        CollectiveKind::Gather if seat == root => everyone(),
        CollectiveKind::Reduce | CollectiveKind::Gather | CollectiveKind::Barrier => Vec::new(),
        CollectiveKind::Broadcast => vec![(size, Content::Moved { seat: root }, 0)],
        CollectiveKind::Scatter => vec![(part, Content::Moved { seat: root }, me * part)],
        CollectiveKind::AllToAll if collective.splits.is_empty() => {
            (0..ranks).map(|seat| (part, Content::Moved { seat }, me * part)).collect()
        }
        CollectiveKind::AllToAll => (0..ranks)
            .zip(&collective.splits)
            .map(|(from, row)| {
                let before: u64 = row[..seat].iter().sum();
                (row[seat] * width, Content::Moved { seat: from }, before * width)
            })
            .collect(),
    }
}

fn reduction(collective: &Collective, ranks: usize) -> Reduction {
    Reduction { op: collective.op, dtype: collective.dtype, ranks }
}
