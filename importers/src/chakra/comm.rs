//! What a node communicates. Our own attributes are exact and win; what others write is taken for what it says.

use std::sync::Arc;

use maestro_pattern::{CollectiveKind, Dtype, ReduceOp};

use super::proto::{Attributes, Node, names, node_type};
use crate::capture::{CommFacts, CommOp, ProcessGroup};
use crate::{Notes, libraries};

/// Collectives by the schema's numbers.
const KINDS: [CollectiveKind; 10] = [
    CollectiveKind::AllReduce,
    CollectiveKind::Reduce,
    CollectiveKind::AllGather,
    CollectiveKind::Gather,
    CollectiveKind::Scatter,
    CollectiveKind::Broadcast,
    CollectiveKind::AllToAll,
    CollectiveKind::ReduceScatter,
    // "Reduce-scatter block": the same with equal parts.
    CollectiveKind::ReduceScatter,
    CollectiveKind::Barrier,
];

/// The schema's number of a collective.
pub(crate) fn number(kind: CollectiveKind) -> i64 {
    KINDS.iter().position(|other| *other == kind).unwrap_or_default() as i64
}

/// The facts of a node that communicates. The type of node says what it is, whatever its `comm_type` says.
pub(super) fn facts(node: &Node, groups: &[ProcessGroup], notes: &mut Notes) -> CommFacts {
    let attributes = Attributes(&node.attr);
    let name: Arc<str> = node.name.as_str().into();
    let op = match node.kind {
        node_type::COMM_SEND => CommOp::Send { to: attributes.narrow(names::COMM_DST) },
        node_type::COMM_RECV => CommOp::Recv { from: attributes.narrow(names::COMM_SRC) },
        _ => collective(node, &attributes, notes),
    };
    let mut facts = CommFacts::new(op, name);
    if let Some(group) = attributes.text(names::PG_NAME) {
        if let Some(listed) = groups.iter().find(|listed| listed.name == group) {
            facts.group_size = Some(listed.ranks.len() as u32).filter(|size| *size > 0);
            facts.ranks = Some(listed.ranks.clone()).filter(|ranks| !ranks.is_empty());
            facts.group_desc = Some(listed.desc.as_str().into()).filter(|desc: &Arc<str>| !desc.is_empty());
        }
        facts.group_name = Some(group.into());
    }
    if let Some(dtype) = attributes.text(names::DTYPE).and_then(|dtype| Dtype::from_name(&dtype)) {
        exact(&mut facts, dtype, &attributes);
        return facts;
    }
    let bytes = attributes.count(names::COMM_SIZE);
    if op != CommOp::Collective(CollectiveKind::Barrier) {
        match bytes {
            Some(1..) => notes.add("communications in bytes: element types are not recorded", || node.name.clone()),
            Some(0) => notes.add("communications of zero bytes: their size is unknown", || node.name.clone()),
            None => notes.add("communications without a size", || node.name.clone()),
        }
    }
    facts.dtype = Some(Dtype::U8);
    facts.stands_for = bytes.filter(|bytes| *bytes > 0).map(|_| "not recorded".into());
    (facts.in_elements, facts.out_elements) = match op {
        // Inputs are counted, which is a part of what a gather makes.
        CommOp::Collective(CollectiveKind::AllGather | CollectiveKind::Gather) => (bytes.unwrap_or(0), 0),
        _ => (bytes.unwrap_or(0), bytes.unwrap_or(0)),
    };
    facts
}

/// Which collective; without a type it is what its name says, and never the type whose number is 0.
fn collective(node: &Node, attributes: &Attributes<'_>, notes: &mut Notes) -> CommOp {
    match attributes.integer(names::COMM_TYPE) {
        Some(number) => match usize::try_from(number).ok().and_then(|number| KINDS.get(number)) {
            Some(kind) => CommOp::Collective(*kind),
            None => {
                notes.add("collectives of a type that is not known", || format!("{number} of {}", node.name));
                CommOp::Other
            }
        },
        None => {
            notes.add("collectives without a type, known by their names at most", || node.name.clone());
            libraries::operation(&node.name).map_or(CommOp::Other, CommOp::Collective)
        }
    }
}

/// What `maestro export` wrote.
fn exact(facts: &mut CommFacts, dtype: Dtype, attributes: &Attributes<'_>) {
    let elements = attributes.count(names::SIZE).unwrap_or(0) / dtype.bytes();
    facts.dtype = Some(dtype);
    (facts.in_elements, facts.out_elements) = (elements, elements);
    facts.in_splits = attributes.list(names::SPLITS);
    facts.out_splits = attributes.list(names::RECEIVED);
    facts.seq = attributes.count(names::SEQ);
    facts.reduction = attributes.text(names::OP).and_then(|op| ReduceOp::from_name(&op));
    facts.root = attributes.narrow(names::ROOT);
    facts.in_place = attributes.truth(names::IN_PLACE);
}
