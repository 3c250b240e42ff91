//! Third pass: from recorded facts to operations on communicators.
//!
//! A communicator is its set of ranks, and its place among equal sets when there are several; the name that a rank
//! gave its group is only used to tell equal sets apart.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use maestro_pattern::{Collective, CollectiveKind, Direction, Dtype};

use super::classify::{Communication, Trust};
use crate::capture::{Capture, CommFacts, CommOp, Timeline};

/// No buffer has more elements than this; a count beyond it is damage.
const MOST_ELEMENTS: u64 = 1 << 44;

/// Index into [`Communicators::all`].
pub(crate) type CommId = usize;

/// A communicator of the capture.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Communicator {
    /// Global ranks, in group order.
    pub ranks: Vec<u32>,
    /// Which among the communicators with the same ranks.
    pub index: usize,
    /// What its groups are described as, best known.
    pub desc: String,
}

/// Every communicator that the capture uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Communicators {
    pub all: Vec<Communicator>,
    /// (rank set, group name on that timeline) -> communicator.
    by_name: HashMap<(usize, Vec<u32>, Arc<str>), CommId>,
}

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
    /// Whether anything about it was inferred rather than read from its own metadata or record.
    pub inferred: bool,
}

/// Resolves the communication of every timeline.
pub(crate) fn resolve(
    capture: &Capture,
    classified: &[HashMap<usize, Communication>],
) -> (Communicators, Vec<Vec<Resolved>>) {
    let communicators = Communicators::gather(capture, classified);
    let resolved = capture
        .timelines
        .iter()
        .zip(classified)
        .enumerate()
        .map(|(index, (timeline, all))| {
            let mut resolved: Vec<Resolved> = all
                .iter()
                .map(|(activity, communication)| Resolved {
                    activity: *activity,
                    communicator: communicators.of(index, timeline, communication),
                    operation: operation(communication),
                    inferred: communication.trust >= Trust::Surroundings,
                })
                .collect();
            resolved.sort_by_key(|r| r.activity);
            resolved
        })
        .collect();
    (communicators, resolved)
}

impl Communicators {
    /// These communicators, for tests of later passes.
    #[cfg(test)]
    pub fn listed(all: Vec<Communicator>) -> Self {
        Self { all, by_name: HashMap::new() }
    }

    fn gather(capture: &Capture, classified: &[HashMap<usize, Communication>]) -> Self {
        let mut this = Self::default();
        for (index, (timeline, all)) in capture.timelines.iter().zip(classified).enumerate() {
            // Sorted by group name, so that equal sets get the same index on every rank.
            let mut groups: BTreeSet<(Vec<u32>, Arc<str>)> = BTreeSet::new();
            let mut descs = HashMap::new();
            for communication in all.values() {
                let (ranks, name) = identity(timeline, communication);
                if let Some(desc) = communication.facts.iter().find_map(|f| f.group_desc.clone()) {
                    descs.insert((ranks.clone(), name.clone()), desc.to_string());
                }
                groups.insert((ranks, name));
            }
            let mut equal: HashMap<Vec<u32>, usize> = HashMap::new();
            for (ranks, name) in groups {
                let count = equal.entry(ranks.clone()).or_default();
                let desc = descs.get(&(ranks.clone(), name.clone())).cloned().unwrap_or_default();
                let id = this.intern(Communicator { ranks: ranks.clone(), index: *count, desc });
                *count += 1;
                this.by_name.insert((index, ranks, name), id);
            }
        }
        this
    }

    fn intern(&mut self, wanted: Communicator) -> CommId {
        let same = |c: &Communicator| (&c.ranks, c.index) == (&wanted.ranks, wanted.index);
        match self.all.iter().position(same) {
            Some(id) => {
                if self.all[id].desc.is_empty() {
                    self.all[id].desc = wanted.desc;
                }
                id
            }
            None => {
                self.all.push(wanted);
                self.all.len() - 1
            }
        }
    }

    fn of(&self, index: usize, timeline: &Timeline, communication: &Communication) -> CommId {
        let (ranks, name) = identity(timeline, communication);
        self.by_name.get(&(index, ranks, name)).copied().unwrap_or_default()
    }
}

/// The rank set of a communication and the name that its rank gave it.
fn identity(timeline: &Timeline, communication: &Communication) -> (Vec<u32>, Arc<str>) {
    let name = communication.facts.iter().find_map(|f| f.group_name.clone()).unwrap_or_else(|| "".into());
    let recorded = communication.facts.iter().find_map(|f| f.ranks.clone());
    let world = || (0..timeline.world_size.unwrap_or(1)).collect::<Vec<u32>>();
    let ranks = recorded.unwrap_or_else(|| match timeline.groups.iter().find(|g| *g.name == *name) {
        Some(group) if !group.ranks.is_empty() => group.ranks.clone(),
        _ => world(),
    });
    (ranks, name)
}

fn operation(communication: &Communication) -> Operation {
    let p2p: Vec<GlobalTransfer> = communication.facts.iter().filter_map(transfer).collect();
    if !p2p.is_empty() {
        return Operation::P2p(p2p);
    }
    match communication.facts.as_slice() {
        [one] => Operation::Collective { collective: collective(one), row: one.in_splits.clone() },
        many => Operation::Group(many.iter().map(collective).collect()),
    }
}

fn transfer(facts: &CommFacts) -> Option<GlobalTransfer> {
    let dtype = facts.dtype.unwrap_or(Dtype::U8);
    let (direction, peer, elements) = match facts.op {
        CommOp::Send { to } => (Direction::Send, to?, facts.in_elements),
        CommOp::Recv { from } => (Direction::Recv, from?, facts.out_elements),
        CommOp::Collective(_) | CommOp::Wait | CommOp::Other => return None,
    };
    Some(GlobalTransfer { direction, peer, bytes: elements.min(MOST_ELEMENTS) * dtype.bytes(), dtype })
}

/// S of nccl-tests from element counts: all-gather's output, everyone else's input (of an uneven all-to-all the larger
/// side; the full matrix corrects it once all ranks are known).
fn collective(facts: &CommFacts) -> Collective {
    let kind = match facts.op {
        CommOp::Collective(kind) => kind,
        // An operation that nothing names: kept as an all-reduce of unknown size, which no replay accepts.
        CommOp::Send { .. } | CommOp::Recv { .. } | CommOp::Wait | CommOp::Other => CollectiveKind::AllReduce,
    };
    let elements = match kind {
        CollectiveKind::AllGather | CollectiveKind::Gather => facts.out_elements,
        CollectiveKind::AllReduce
        | CollectiveKind::ReduceScatter
        | CollectiveKind::Reduce
        | CollectiveKind::Scatter => facts.in_elements,
        CollectiveKind::Broadcast | CollectiveKind::AllToAll => facts.in_elements.max(facts.out_elements),
        CollectiveKind::Barrier => 0,
    };
    let mut collective = Collective::new(kind, 0, facts.dtype.unwrap_or(Dtype::U8));
    collective.size = match (kind, facts.dtype) {
        (CollectiveKind::Barrier, _) => Some(0),
        (_, Some(dtype)) if (1..=MOST_ELEMENTS).contains(&elements) => Some(elements * dtype.bytes()),
        _ => None,
    };
    collective
}
