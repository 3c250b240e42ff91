//! From the nodes of a file to a graph of host time and of what the device does.
//!
//! A node of the host is one whose `is_cpu_op` says so; all others are the device's, on the stream that they name.
//! Nodes that name none get one by what they do. Sends and receives share theirs, because a pattern pairs the messages
//! of one lane.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::proto::{Attributes, GlobalMetadata, Node, names, node_type};
use super::{comm, groups, work};
use crate::Notes;
use crate::capture::{
    ActivityKind, CommFacts, CommOp, OperatorWork, ProcessGroup, Stated, StatedLane, StatedNode, StatedPart, Timeline,
    Unit,
};

/// No duration is longer; a number beyond it is damage. About three years.
const MOST_NS: u64 = 100_000_000_000_000_000;

/// The graph of a file while its nodes come in.
pub(super) struct Graph {
    timeline: Timeline,
    stated: Stated,
    /// Place of each node by its number; several numbers may be one place.
    place_of: HashMap<u64, u32>,
    /// Per place: the numbers of what must have ended first.
    after: Vec<Vec<u64>>,
    /// Nodes that communicate, with which of their parts, until all groups are known.
    waiting: Vec<(u32, Node)>,
    streams: HashMap<String, i64>,
    without_duration: u64,
    host_nodes: usize,
    ours: bool,
}

impl Graph {
    pub fn new(metadata: &GlobalMetadata) -> Self {
        let attributes = Attributes(&metadata.attr);
        let timeline = Timeline {
            rank: attributes.narrow(names::RANK).or_else(|| attributes.narrow("rank")),
            world_size: attributes.narrow(names::WORLD),
            process: attributes.integer("pid"),
            device_name: attributes.text(names::DEVICE),
            ..Timeline::default()
        };
        let stated = Stated { step: attributes.text(names::STEP).map(Into::into), ..Stated::default() };
        Self {
            ours: attributes.narrow(names::RANK).is_some(),
            timeline,
            stated,
            place_of: HashMap::new(),
            after: Vec::new(),
            waiting: Vec::new(),
            streams: HashMap::new(),
            without_duration: 0,
            host_nodes: 0,
        }
    }

    pub fn host_nodes(&self) -> usize {
        self.host_nodes
    }

    /// Takes a node in.
    pub fn add(&mut self, mut node: Node, notes: &mut Notes) {
        if groups::lists(&node) {
            self.timeline.groups.extend(groups::read(&node, notes));
        }
        // Long texts, of which nothing else is used.
        (node.inputs, node.outputs) = (None, None);
        if self.place_of.contains_key(&node.id) {
            notes.add("nodes whose number another one has, left out", || format!("{} {}", node.id, node.name));
            return;
        }
        let attributes = Attributes(&node.attr);
        let communicates = matches!(node.kind, node_type::COMM_SEND | node_type::COMM_RECV | node_type::COMM_COLL);
        if !(node_type::METADATA..=node_type::COMM_COLL).contains(&node.kind) {
            notes.add("nodes of a type that is not known, taken for compute", || {
                format!("{} of {}", node.kind, node.name)
            });
        }
        let told = attributes.count(names::CAPTURED);
        let duration_ns = told.unwrap_or_else(|| node.duration_micros.saturating_mul(1000)).min(MOST_NS) as i64;
        let host = attributes.truth(names::IS_CPU_OP) || node.kind == node_type::METADATA;
        // The converter of PyTorch traces hangs operators below kernels that they launch later: a circle with the data.
        let before = node.ctrl_deps.len();
        let id = node.id;
        node.ctrl_deps.retain(|before| *before < id);
        let later = (before - node.ctrl_deps.len()) as u64;
        notes.add_many("control dependencies on later nodes, left out", later, || format!("of {id} {}", node.name));
        let after: Vec<u64> = node.ctrl_deps.drain(..).chain(node.data_deps.drain(..)).collect();
        if host {
            self.host_nodes += 1;
            let lane = StatedLane::Host(attributes.integer(names::TID).unwrap_or(0));
            self.push(node.id, after, StatedNode { lane, duration_ns, ..StatedNode::default() });
            return;
        }
        let unit = unit(&attributes);
        let lane = StatedLane::Stream(self.stream(&node, &attributes));
        // A group, or a batch of sends and receives, is one thing that was launched, and a node for each of them.
        let place = match self.stated.nodes.last_mut() {
            Some(last) if communicates && unit.is_some() && same(&last.unit, &unit) && last.lane == lane => {
                let place = self.stated.nodes.len() - 1;
                self.after[place].extend(after);
                self.place_of.insert(node.id, place as u32);
                place
            }
            _ => {
                self.without_duration += u64::from(duration_ns == 0);
                let parts = if communicates { Vec::new() } else { self.compute(&node, &attributes, notes) };
                self.push(node.id, after, StatedNode { lane, duration_ns, parts, unit, ..StatedNode::default() });
                self.stated.nodes.len() - 1
            }
        };
        if communicates {
            self.waiting.push((place as u32, node));
        }
    }

    fn push(&mut self, id: u64, after: Vec<u64>, node: StatedNode) {
        self.place_of.insert(id, self.stated.nodes.len() as u32);
        self.after.push(after);
        self.stated.nodes.push(node);
    }

    fn stream(&mut self, node: &Node, attributes: &Attributes<'_>) -> i64 {
        // A device's thread is its stream in PyTorch traces.
        let told = attributes.integer(names::STREAM).or_else(|| attributes.integer(names::TID));
        let name = attributes.text(names::LANE);
        let stream = told.unwrap_or_else(|| {
            let what = match node.kind {
                node_type::COMM_SEND | node_type::COMM_RECV => "messages",
                node_type::COMM_COLL => "collectives",
                node_type::MEM_LOAD | node_type::MEM_STORE => "memory",
                _ => "compute",
            };
            let next = self.streams.len() as i64;
            *self.streams.entry(what.to_owned()).or_insert(next)
        });
        if let Some(name) = name {
            self.stated.lanes.entry(stream).or_insert_with(|| name.into());
        }
        stream
    }

    /// What a node that does not communicate does.
    fn compute(&mut self, node: &Node, attributes: &Attributes<'_>, notes: &mut Notes) -> Vec<StatedPart> {
        let name: Arc<str> = attributes.text(names::BLOCK).unwrap_or_else(|| node.name.clone()).into();
        if let Some(text) = attributes.text(names::WORK) {
            if let Some(parts) = work::parts(&name, &text) {
                let held = parts.iter().filter_map(|part| match part.work {
                    Some(OperatorWork::Held { sms, .. }) => sms,
                    _ => None,
                });
                self.timeline.device_sms = held.chain(self.timeline.device_sms).max();
                return parts;
            }
            notes.add("texts of work that cannot be read: held for their time", || text.chars().take(100).collect());
        }
        let kind = match node.kind {
            node_type::MEM_LOAD | node_type::MEM_STORE => {
                ActivityKind::Copy { direction: None, bytes: attributes.count(names::TENSOR_SIZE).unwrap_or(0) }
            }
            _ => ActivityKind::Kernel { blocks: 0 },
        };
        vec![StatedPart { name, kind, work: None, comm: Vec::new() }]
    }

    /// The timeline; `None` of a file in which a device does nothing.
    pub fn finish(mut self, file: &Path, notes: &mut Notes) -> Option<Timeline> {
        let mut tags = HashMap::new();
        for (place, node) in std::mem::take(&mut self.waiting) {
            let mut facts = comm::facts(&node, &self.timeline.groups, notes);
            if matches!(facts.op, CommOp::Send { .. } | CommOp::Recv { .. }) && facts.seq.is_none() {
                // Messages of one tag are received in the order in which they are sent; many writers have but one.
                let tag = Attributes(&node.attr).count(names::COMM_TAG).unwrap_or(0);
                let count = tags.entry((facts.op, tag)).or_insert(0u64);
                facts.seq = Some((tag << 32).saturating_add(*count));
                *count += 1;
            }
            let stated = &mut self.stated.nodes[place as usize];
            match stated.parts.first_mut() {
                Some(part) => part.comm.push(facts),
                None => {
                    let name = Attributes(&node.attr).text(names::BLOCK).unwrap_or(node.name);
                    let kind = ActivityKind::Kernel { blocks: 0 };
                    stated.parts = vec![StatedPart { name: name.into(), kind, work: None, comm: vec![facts] }];
                }
            }
        }
        if self.stated.nodes.iter().all(|node| node.parts.is_empty()) {
            return None;
        }
        let mut lost = 0;
        for (place, after) in self.after.iter_mut().enumerate() {
            let before: Vec<u32> = after.iter().filter_map(|id| self.place_of.get(id).copied()).collect();
            lost += after.len() - before.len();
            *after = Vec::new();
            let mine = &mut self.stated.nodes[place].after;
            *mine = before.into_iter().filter(|before| *before as usize != place).collect();
            mine.sort_unstable();
            mine.dedup();
        }
        notes.add_many("dependencies on nodes that are not in the file", lost as u64, || file.display().to_string());
        notes.add_many("nodes of a device without a duration, taken to last no time", self.without_duration, || {
            file.display().to_string()
        });
        if !self.ours {
            notes.add("graphs without start times: worked out from dependencies, order and durations", || {
                file.display().to_string()
            });
        }
        let world = world(&self.timeline.groups, self.stated.nodes.iter().flat_map(|n| &n.parts).flat_map(|p| &p.comm));
        let mut timeline = self.timeline;
        timeline.world_size = timeline.world_size.or(world);
        timeline.file = file.to_owned();
        timeline.stated = Some(Box::new(self.stated));
        Some(timeline)
    }
}

/// As many ranks as anything speaks of.
fn world<'a>(groups: &[ProcessGroup], facts: impl Iterator<Item = &'a CommFacts>) -> Option<u32> {
    let peers = facts.filter_map(|facts| match facts.op {
        CommOp::Send { to } => to,
        CommOp::Recv { from } => from,
        CommOp::Collective(_) | CommOp::Wait | CommOp::Other => None,
    });
    groups.iter().flat_map(|group| group.ranks.iter().copied()).chain(peers).max().map(|rank| rank.saturating_add(1))
}

fn unit(attributes: &Attributes<'_>) -> Option<Unit> {
    let name = attributes.text(names::BLOCK)?.into();
    let instance = attributes.narrow(names::ITERATION).unwrap_or(0);
    let idle_ns = attributes.integer(names::IDLE).unwrap_or(0).max(0);
    Some(Unit { name, instance, idle_ns, comm: Vec::new() })
}

fn same(a: &Option<Unit>, b: &Option<Unit>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if (&a.name, a.instance) == (&b.name, b.instance))
}
