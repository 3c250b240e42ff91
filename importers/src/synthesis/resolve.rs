//! Third pass: from recorded facts to operations on communicators.
//!
//! Sizes are those of nccl-tests, so that a block means the same whatever recorded it. What the facts leave open stays
//! open: an operation that nothing names is unknown, a size that nothing tells is none.

use std::collections::HashMap;
use std::sync::Arc;

use maestro_pattern::{Collective, CollectiveKind, Direction, Dtype};

use super::classify::{Communication, Trust};
use super::communicators::identity;
pub(crate) use super::communicators::{CommId, Communicator, Communicators};
use crate::Notes;
use crate::capture::{Capture, CommFacts, CommOp, ElementSource};

/// No buffer has more elements than this; a count beyond it is damage.
const MOST_ELEMENTS: u64 = 1 << 44;

/// What one communication kernel does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    /// One collective; `row` is this rank's row of splits in elements, empty if even.
    Collective { collective: Collective, row: Vec<u64> },
    /// Collectives fused into one launch.
    Group(Vec<Collective>),
    /// Sends and receives with global peers.
    P2p(Vec<GlobalTransfer>),
}

impl Operation {
    /// A collective's name, `group` or `p2p`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Collective { collective, .. } => collective.kind.name(),
            Self::Group(_) => "group",
            Self::P2p(_) => "p2p",
        }
    }

    /// The same with its size, for a person.
    pub fn shown(&self) -> String {
        match self {
            Self::Collective { collective, .. } => match collective.size {
                Some(size) => format!("{} of {size} B {}", self.name(), collective.dtype.name()),
                None => format!("{} of unknown size", self.name()),
            },
            Self::Group(all) => format!("group of {}", all.len()),
            Self::P2p(all) => format!("{} sends and receives", all.len()),
        }
    }
}

/// A send or receive with a global peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GlobalTransfer {
    pub direction: Direction,
    pub peer: u32,
    pub bytes: u64,
    pub dtype: Dtype,
}

/// One communication kernel, understood as far as its own rank tells.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// Index of the activity in its timeline.
    pub activity: usize,
    pub communicator: CommId,
    pub operation: Operation,
    /// Sequence number in its group, if recorded.
    pub seq: Option<u64>,
    /// How it is known what it does.
    pub trust: Trust,
    /// Whether its group was read; else it is taken to be of all ranks.
    pub group_known: bool,
    /// Whether it is not even known which operation it is. It then stands as an all-reduce of unknown size.
    pub unknown: bool,
    /// Elements that this rank is to receive from each, empty if even or not recorded.
    pub received: Vec<u64>,
    /// Whether it is an all-to-all that may be uneven: its splits were cut, or not recorded though its sides differ.
    pub splits_unknown: bool,
    /// The element type as recorded, where the operation has another of the same size.
    pub stands_for: Option<Arc<str>>,
    /// How its element type is known.
    pub element: ElementSource,
}

impl Resolved {
    /// Whether anything about it was inferred rather than read from its own metadata or record.
    pub fn inferred(&self) -> bool {
        self.trust.inferred() || !self.group_known
    }
}

/// Resolves the communication of every timeline of a world of `world` ranks.
pub(crate) fn resolve(
    capture: &Capture,
    classified: &[HashMap<usize, Communication>],
    world: u32,
    notes: &mut Notes,
) -> (Communicators, Vec<Vec<Resolved>>) {
    let communicators = Communicators::gather(capture, classified, world);
    let mut resolved = Vec::new();
    for (index, (timeline, all)) in capture.timelines.iter().zip(classified).enumerate() {
        let mut activities: Vec<usize> = all.keys().copied().collect();
        activities.sort_unstable();
        let mine = activities.into_iter().map(|activity| {
            let communication = &all[&activity];
            let (ranks, name, known) = identity(timeline, communication, world);
            if !known {
                notes.add("communication kernels without a group, taken to be of all ranks", || {
                    timeline.activities[activity].name.to_string()
                });
            }
            let operation = operation(communication, &ranks, notes);
            let one = match communication.facts.as_slice() {
                [facts] => Some(facts),
                _ => None,
            };
            Resolved {
                activity,
                seq: communication.facts.iter().find_map(|facts| facts.seq),
                trust: communication.trust,
                group_known: known,
                unknown: operation.is_none(),
                received: one.map(|facts| facts.out_splits.clone()).unwrap_or_default(),
                splits_unknown: one.is_some_and(|facts| splits_unknown(facts, ranks.len() as u64)),
                stands_for: communication.facts.iter().find_map(|facts| facts.stands_for.clone()),
                element: communication.facts.first().map(|facts| facts.element).unwrap_or_default(),
                operation: operation.unwrap_or_else(Operation::unknown),
                communicator: communicators.of(index, ranks, name),
            }
        });
        resolved.push(mine.collect());
    }
    (communicators, resolved)
}

/// Whether an all-to-all without splits may be uneven. PyTorch has written an empty list for uneven splits, too, so
/// that an empty list is only even where both sides are the same and divide by the ranks.
fn splits_unknown(facts: &CommFacts, ranks: u64) -> bool {
    let (input, output) = (facts.in_elements, facts.out_elements);
    facts.op == CommOp::Collective(CollectiveKind::AllToAll)
        && facts.in_splits.is_empty()
        && (input, output) != (0, 0)
        && (facts.splits_cut || input != output || !input.is_multiple_of(ranks.max(1)))
}

impl Operation {
    /// What stands for an operation that nothing names.
    fn unknown() -> Self {
        let collective = Collective { size: None, ..Collective::new(CollectiveKind::AllReduce, 0, Dtype::U8) };
        Self::Collective { collective, row: Vec::new() }
    }
}

/// What a communication does; `None` if its facts do not tell. A batch of which only a part is understood is not
/// understood.
fn operation(communication: &Communication, members: &[u32], notes: &mut Notes) -> Option<Operation> {
    let facts = &communication.facts;
    let p2p = |facts: &CommFacts| matches!(facts.op, CommOp::Send { .. } | CommOp::Recv { .. });
    if !facts.iter().any(p2p) {
        let collective = |facts| collective(facts, members.len() as u64);
        let all: Vec<Collective> = facts.iter().map(collective).collect::<Option<_>>()?;
        return Some(match (all.as_slice(), facts.as_slice()) {
            ([one], [facts]) => Operation::Collective { collective: one.clone(), row: facts.in_splits.clone() },
            _ => Operation::Group(all),
        });
    }
    let transfers: Vec<GlobalTransfer> =
        facts.iter().filter_map(|facts| transfer(facts, members)).filter(|t| members.contains(&t.peer)).collect();
    if transfers.len() == facts.len() {
        return Some(Operation::P2p(transfers));
    }
    notes.add("batches with a send or receive whose peer is not known: left without sizes", || {
        let names: Vec<&str> = facts.iter().map(|facts| &*facts.recorded_name).collect();
        names.join(", ")
    });
    None
}

fn transfer(facts: &CommFacts, members: &[u32]) -> Option<GlobalTransfer> {
    let dtype = facts.dtype.unwrap_or(Dtype::U8);
    let by_seat = facts.group_peer.and_then(|seat| members.get(seat as usize)).copied();
    let (direction, peer, elements) = match facts.op {
        CommOp::Send { to } => (Direction::Send, to.or(by_seat)?, facts.in_elements),
        CommOp::Recv { from } => (Direction::Recv, from.or(by_seat)?, facts.out_elements),
        CommOp::Collective(_) | CommOp::Wait | CommOp::Other => return None,
    };
    // Some versions record one side only.
    let elements = if elements > 0 { elements } else { facts.in_elements.max(facts.out_elements) };
    Some(GlobalTransfer { direction, peer, bytes: elements.min(MOST_ELEMENTS) * dtype.bytes(), dtype })
}

/// S of nccl-tests from element counts on a group of `ranks`: all-gather's output, everyone else's input (of an uneven
/// all-to-all the larger side; the full matrix corrects it once all ranks are known). `None` of what is no collective.
fn collective(facts: &CommFacts, ranks: u64) -> Option<Collective> {
    let kind = match facts.op {
        CommOp::Collective(kind) => kind,
        CommOp::Send { .. } | CommOp::Recv { .. } | CommOp::Wait | CommOp::Other => return None,
    };
    // An annotation tells one side only.
    let whole = |whole: u64, part: u64| if whole > 0 { whole } else { part.saturating_mul(ranks) };
    let elements = match kind {
        CollectiveKind::AllGather | CollectiveKind::Gather => whole(facts.out_elements, facts.in_elements),
        CollectiveKind::ReduceScatter | CollectiveKind::Scatter => whole(facts.in_elements, facts.out_elements),
        CollectiveKind::AllReduce | CollectiveKind::Reduce => facts.in_elements,
        CollectiveKind::Broadcast | CollectiveKind::AllToAll => facts.in_elements.max(facts.out_elements),
        CollectiveKind::Barrier => 0,
    };
    let mut collective = Collective::new(kind, 0, facts.dtype.unwrap_or(Dtype::U8));
    collective.op = facts.reduction.unwrap_or(collective.op);
    collective.root = facts.root.filter(|root| u64::from(*root) < ranks).unwrap_or(collective.root);
    collective.in_place = facts.in_place && kind.may_be_in_place();
    collective.size = match (kind, facts.dtype) {
        (CollectiveKind::Barrier, _) => Some(0),
        (_, Some(dtype)) if (1..=MOST_ELEMENTS).contains(&elements) => Some(elements * dtype.bytes()),
        _ => None,
    };
    if splits_unknown(facts, ranks) {
        collective.size = collective.size.map(|size| even(size, collective.dtype, ranks));
    }
    Some(collective)
}

/// The next size that divides evenly: what an all-to-all of unknown splits is taken as.
fn even(size: u64, dtype: Dtype, ranks: u64) -> u64 {
    size.next_multiple_of(dtype.bytes() * ranks.max(1))
}
