//! Third pass: from recorded facts to operations on communicators.
//!
//! A communicator is its set of ranks, and its place among equal sets when there are several; the name that a rank
//! gave its group is only used to tell equal sets apart.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use maestro_pattern::{Collective, CollectiveKind, Direction, Dtype};

use super::classify::{Communication, Trust};
use crate::Notes;
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
    /// Sequence number in its group, if recorded.
    pub seq: Option<u64>,
    /// Whether anything about it was inferred rather than read from its own metadata or record.
    pub inferred: bool,
    /// Whether it is not even known which operation it is. It then stands as an all-reduce of unknown size.
    pub unknown: bool,
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
            Resolved {
                activity,
                communicator: communicators.by_name.get(&(index, ranks, name)).copied().unwrap_or_default(),
                seq: communication.facts.iter().find_map(|facts| facts.seq),
                inferred: communication.trust >= Trust::Surroundings || !known,
                unknown: operation.is_none(),
                operation: operation.unwrap_or_else(Operation::unknown),
            }
        });
        resolved.push(mine.collect());
    }
    (communicators, resolved)
}

impl Communicators {
    /// These communicators, for tests of later passes.
    #[cfg(test)]
    pub fn listed(all: Vec<Communicator>) -> Self {
        Self { all, by_name: HashMap::new() }
    }

    fn gather(capture: &Capture, classified: &[HashMap<usize, Communication>], world: u32) -> Self {
        let mut this = Self::default();
        for (index, (timeline, all)) in capture.timelines.iter().zip(classified).enumerate() {
            // Sorted by group name, so that equal sets get the same index on every rank.
            let mut groups: BTreeSet<(Vec<u32>, Arc<str>)> = BTreeSet::new();
            let mut descs = HashMap::new();
            for communication in all.values() {
                let (ranks, name, _) = identity(timeline, communication, world);
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
}

/// The rank set of a communication, the name that its rank gave it, and whether the set was read: without one, it is
/// taken to be the whole world.
fn identity(timeline: &Timeline, communication: &Communication, world: u32) -> (Vec<u32>, Arc<str>, bool) {
    let name = communication.facts.iter().find_map(|f| f.group_name.clone()).unwrap_or_else(|| "".into());
    let everyone = || (0..world).collect::<Vec<u32>>();
    if let Some(ranks) = communication.facts.iter().find_map(|f| f.ranks.clone()).filter(|ranks| !ranks.is_empty()) {
        return (ranks, name, true);
    }
    match timeline.groups.iter().find(|group| *group.name == *name) {
        Some(group) if group.ranks.is_empty() => (everyone(), name, true),
        Some(group) => (group.ranks.clone(), name, true),
        None => {
            let size = communication.facts.iter().find_map(|f| f.group_size);
            (everyone(), name, size == Some(world))
        }
    }
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
        let all: Vec<Collective> = facts.iter().map(collective).collect::<Option<_>>()?;
        return Some(match (all.as_slice(), facts.as_slice()) {
            ([one], [facts]) => Operation::Collective { collective: one.clone(), row: facts.in_splits.clone() },
            _ => Operation::Group(all),
        });
    }
    let transfers: Vec<GlobalTransfer> =
        facts.iter().filter_map(transfer).filter(|transfer| members.contains(&transfer.peer)).collect();
    if transfers.len() == facts.len() {
        return Some(Operation::P2p(transfers));
    }
    notes.add("batches with a send or receive whose peer is not known: left without sizes", || {
        let names: Vec<&str> = facts.iter().map(|facts| &*facts.recorded_name).collect();
        names.join(", ")
    });
    None
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
/// side; the full matrix corrects it once all ranks are known). `None` of what is no collective.
fn collective(facts: &CommFacts) -> Option<Collective> {
    let kind = match facts.op {
        CommOp::Collective(kind) => kind,
        CommOp::Send { .. } | CommOp::Recv { .. } | CommOp::Wait | CommOp::Other => return None,
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
    Some(collective)
}
