//! Plans as Chakra execution traces, a file a rank.
//!
//! Attributes are of the kinds that the readers of this format ask for, because some read any other kind as 0 and say
//! nothing. All that must have ended before a node is among its `data_deps`, the order of its lane included, and no
//! node depends on a later one. Host time is a node of the host that each later launch depends on. What the schema has
//! no place for (blocks, exact sizes, element types, nanoseconds) stands in attributes of our own, which others pass
//! over and our importer reads.

use std::collections::BTreeMap;

use maestro_pattern::{Block, Collective, GemmLayout, Instruction, Kernel, Plan, Priority, Work};
use prost::Message;
use serde_json::json;

use super::Exporter;
use super::routes::{Numbers, route, transfers};
use crate::chakra::comm::number;
use crate::chakra::proto::{Attribute, GROUPS, GlobalMetadata, IoInfo, Node, Value, names, node_type};

/// Version of the schema.
const VERSION: &str = "0.0.4";

/// Number of the first node. 0 would not be on the wire.
const FIRST: u64 = 1;

/// See the module.
pub(super) struct Chakra;

impl Exporter for Chakra {
    fn name(&self) -> &'static str {
        "chakra"
    }

    fn about(&self) -> &'static str {
        "Chakra execution traces, one PREFIX.<rank>.et a rank, for ASTRA-sim and MLCommons' tools"
    }

    fn file(&self, prefix: &str, rank: u32) -> String {
        format!("{prefix}.{rank}.et")
    }

    fn write(&self, plan: &Plan, rank: u32) -> Vec<u8> {
        let mut writer = Writer::new(plan, rank);
        for instruction in &plan.program(rank).instructions {
            writer.instruction(instruction);
        }
        writer.out
    }

    fn left_out(&self, plan: &Plan) -> Vec<String> {
        let mut left_out = Vec::new();
        let settings = plan.communicators.iter().filter(|c| c.settings != Default::default()).count();
        if settings > 0 {
            left_out.push(format!("settings of {settings} communicators: the format has none"));
        }
        let cuda = plan.blocks.iter().filter(|block| matches!(block.work, Work::Cuda(_))).count();
        if cuda > 0 {
            left_out.push(format!("the sources of {cuda} blocks' own kernels: they are compute of a duration"));
        }
        let timeless = plan.blocks.iter().filter(|block| block.captured_ns.is_none()).count();
        if timeless > 0 {
            left_out.push(format!("durations of {timeless} blocks: nobody captured any, and 0 stands for them"));
        }
        let sized = |block: &&Block| match &block.work {
            Work::Collective(collective) => collective.size.is_none(),
            Work::Group(all) => all.iter().any(|collective| collective.size.is_none()),
            Work::P2p { .. } | Work::Compute(_) | Work::Cuda(_) => false,
        };
        let sizeless = plan.blocks.iter().filter(sized).count();
        if sizeless > 0 {
            left_out.push(format!("sizes of {sizeless} blocks: they are not known, and 0 stands for them"));
        }
        left_out
    }
}

/// The file of a rank in the making.
struct Writer<'a> {
    plan: &'a Plan,
    rank: u32,
    numbers: Numbers,
    /// Names of process groups by (axis, team).
    groups: BTreeMap<(u32, u32), String>,
    out: Vec<u8>,
    next: u64,
    /// The latest node of the host.
    host: Option<u64>,
    /// The latest nodes of each lane.
    lanes: Vec<Vec<u64>>,
    /// Per instruction so far: the nodes that end it.
    issued: Vec<Vec<u64>>,
}

impl<'a> Writer<'a> {
    fn new(plan: &'a Plan, rank: u32) -> Self {
        let mut attr = vec![
            Attribute::new(names::RANK, Value::int64(u64::from(rank))),
            Attribute::new(names::WORLD, Value::int64(u64::from(plan.world.size()))),
        ];
        let source = plan.source.as_ref();
        let step = source.and_then(|source| source.step.clone()).unwrap_or_else(|| plan.name.clone());
        attr.push(Attribute::new(names::STEP, Value::text(step)));
        if let Some(device) = source.and_then(|source| source.device.clone()) {
            attr.push(Attribute::new(names::DEVICE, Value::text(device)));
        }
        let mut writer = Self {
            plan,
            rank,
            numbers: Numbers::of(plan, rank),
            groups: groups(plan),
            out: Vec::new(),
            next: FIRST,
            host: None,
            lanes: vec![Vec::new(); plan.lanes.len()],
            issued: Vec::new(),
        };
        writer.message(&GlobalMetadata { version: VERSION.to_owned(), attr });
        let inputs = IoInfo { values: writer.group_list(), shapes: "[[]]".to_owned(), types: "['String']".to_owned() };
        writer.node(Node {
            name: GROUPS.to_owned(),
            kind: node_type::METADATA,
            inputs: Some(inputs),
            ..Node::default()
        });
        writer
    }

    fn message(&mut self, message: &impl Message) {
        self.out.extend(message.encode_length_delimited_to_vec());
    }

    fn node(&mut self, node: Node) -> u64 {
        let id = self.next;
        self.next += 1;
        self.message(&Node { id, ..node });
        id
    }

    /// The list of process groups as PyTorch's traces have it: a JSON text in a Python list.
    fn group_list(&self) -> String {
        let axes = self.plan.world.axes();
        let groups = self.groups.iter().map(|((axis, team), name)| {
            let ranks = &self.plan.world.teams(*axis as usize)[*team as usize];
            let desc = format!("mesh_{}", axes[*axis as usize].name);
            json!({"pg_name": name, "pg_desc": desc, "pg_size": ranks.len(), "ranks": ranks})
        });
        let text = serde_json::Value::Array(groups.collect()).to_string();
        format!("['{}']", text.replace('\\', "\\\\").replace('\'', "\\'"))
    }

    fn instruction(&mut self, instruction: &Instruction) {
        let ends = match instruction {
            Instruction::Host(ns) => self.host_node("host", *ns, Vec::new()),
            Instruction::Wait(of) => {
                let of = self.issued.get(*of as usize).cloned().unwrap_or_default();
                self.host_node("wait", 0, of)
            }
            Instruction::Issue { block, axis, lane, after, instance } => {
                let mut deps: Vec<u64> = self.host.into_iter().chain(self.lanes[*lane as usize].clone()).collect();
                deps.extend(after.iter().flat_map(|of| self.issued.get(*of as usize).into_iter().flatten()));
                deps.sort_unstable();
                deps.dedup();
                let block = &self.plan.blocks[*block as usize];
                let nodes = self.nodes(block, *axis, *lane, *instance);
                // A p2p whose peers all lie beyond an end does nothing; what waits for it waits for what it would.
                let ends: Vec<u64> = match nodes.is_empty() {
                    true => deps,
                    false => nodes.into_iter().map(|n| self.node(Node { data_deps: deps.clone(), ..n })).collect(),
                };
                self.lanes[*lane as usize].clone_from(&ends);
                ends
            }
        };
        self.issued.push(ends);
    }

    fn host_node(&mut self, name: &str, ns: u64, mut deps: Vec<u64>) -> Vec<u64> {
        deps.extend(self.host);
        deps.sort_unstable();
        deps.dedup();
        let attr = vec![
            Attribute::new(names::IS_CPU_OP, Value::Bool(true)),
            Attribute::new(names::TID, Value::Int64(0)),
            Attribute::new(names::CAPTURED, Value::int64(ns)),
        ];
        let (name, kind, duration_micros) = (name.to_owned(), node_type::COMP, micros(ns));
        let id = self.node(Node { name, kind, data_deps: deps, duration_micros, attr, ..Node::default() });
        self.host = Some(id);
        vec![id]
    }

    /// The nodes of an execution of a block, without numbers and dependencies.
    fn nodes(&mut self, block: &Block, axis: Option<u32>, lane: u32, instance: u32) -> Vec<Node> {
        let ns = block.captured_on(self.rank as usize);
        let mut attr = vec![
            Attribute::new(names::IS_CPU_OP, Value::Bool(false)),
            Attribute::new(names::STREAM, Value::int64(u64::from(lane))),
            Attribute::new(names::BLOCK, Value::text(&block.name)),
            Attribute::new(names::ITERATION, Value::int64(u64::from(instance))),
            Attribute::new(names::LANE, Value::text(&self.plan.lanes[lane as usize].name)),
        ];
        attr.extend(ns.map(|ns| Attribute::new(names::CAPTURED, Value::int64(ns))));
        if let (1.., Some(ns), Some(mean)) = (block.idle_ns, ns, block.captured_ns.filter(|mean| *mean > 0)) {
            // A rank that takes longer is idle for longer.
            let idle_ns = (block.idle_ns as f64 * ns as f64 / mean as f64).round() as u64;
            attr.push(Attribute::new(names::IDLE, Value::int64(idle_ns)));
        }
        let base = Node {
            name: block.name.clone(),
            kind: node_type::COMP,
            duration_micros: ns.map_or(0, micros),
            attr,
            ..Node::default()
        };
        match (&block.work, axis) {
            (Work::Compute(kernels), _) => vec![compute(base, kernels)],
            (Work::Cuda(_), _) => vec![compute(base, &[])],
            (Work::Collective(collective), Some(axis)) => {
                self.collective(&base, axis, lane, collective).into_iter().collect()
            }
            (Work::Group(all), Some(axis)) => {
                all.iter().filter_map(|collective| self.collective(&base, axis, lane, collective)).collect()
            }
            (Work::P2p { .. }, Some(axis)) => self.transfers(&base, axis, lane, &block.work),
            // No checked plan runs communication on no axis.
            (Work::Collective(_) | Work::Group(_) | Work::P2p { .. }, None) => Vec::new(),
        }
    }

    /// What all communication has, on the team of an axis: the communicator, the seat and the attributes.
    fn team(&self, base: &Node, axis: u32, lane: u32) -> Option<(u32, usize, Node)> {
        let (team, seat) = self.plan.world.seat(axis as usize, self.rank)?;
        let communicator = self.plan.communicator(self.rank, axis, lane)?;
        let priority = match self.plan.lanes[lane as usize].priority {
            Priority::High => 1,
            Priority::Normal => 0,
            Priority::Low => -1,
        };
        let mut node = base.clone();
        node.attr.extend([
            Attribute::new(names::PG_NAME, Value::text(self.groups.get(&(axis, team)).cloned().unwrap_or_default())),
            Attribute::new(names::COMM_PRIORITY, Value::Int32(priority)),
            Attribute::new(names::AXIS, Value::text(&self.plan.world.axes()[axis as usize].name)),
        ]);
        Some((communicator, seat as usize, node))
    }

    fn collective(&mut self, base: &Node, axis: u32, lane: u32, collective: &Collective) -> Option<Node> {
        let (communicator, seat, mut node) = self.team(base, axis, lane)?;
        let ranks = self.plan.communicators[communicator as usize].ranks.len();
        node.kind = node_type::COMM_COLL;
        node.attr.extend([
            Attribute::new(names::COMM_TYPE, Value::Int64(number(collective.kind))),
            Attribute::new(names::COMM_SIZE, Value::int64(collective.input_bytes(seat, ranks))),
            Attribute::new(names::DTYPE, Value::text(collective.dtype.name())),
            Attribute::new(names::SEQ, Value::int64(self.numbers.collective(lane, communicator))),
        ]);
        node.attr.extend(collective.size.map(|size| Attribute::new(names::SIZE, Value::int64(size))));
        if collective.kind.reduces() {
            node.attr.push(Attribute::new(names::OP, Value::text(collective.op.name())));
        }
        if collective.kind.rooted() {
            node.attr.push(Attribute::new(names::ROOT, Value::int64(u64::from(collective.root))));
        }
        if collective.in_place {
            node.attr.push(Attribute::new(names::IN_PLACE, Value::Bool(true)));
        }
        if let Some(row) = collective.splits.get(seat) {
            let column = collective.splits.iter().map(|row| row.get(seat).copied().unwrap_or(0));
            node.attr.push(Attribute::new(names::SPLITS, Value::list(row.iter().copied())));
            node.attr.push(Attribute::new(names::RECEIVED, Value::list(column)));
        }
        Some(node)
    }

    fn transfers(&mut self, base: &Node, axis: u32, lane: u32, work: &Work) -> Vec<Node> {
        let Some((communicator, _, base)) = self.team(base, axis, lane) else { return Vec::new() };
        let mut nodes = Vec::new();
        for (transfer, peer) in transfers(self.plan, self.rank, axis, work) {
            let route = route(transfer.direction, self.rank, peer);
            let tag = self.numbers.tag(route, communicator);
            let int32 = |number: u64| Value::Int32(i32::try_from(number).unwrap_or(i32::MAX));
            let mut node = base.clone();
            node.kind = match transfer.direction {
                maestro_pattern::Direction::Send => node_type::COMM_SEND,
                maestro_pattern::Direction::Recv => node_type::COMM_RECV,
            };
            node.attr.extend([
                Attribute::new(names::COMM_SIZE, Value::int64(transfer.size)),
                Attribute::new(names::COMM_SRC, int32(u64::from(route.0))),
                Attribute::new(names::COMM_DST, int32(u64::from(route.1))),
                Attribute::new(names::COMM_TAG, int32(tag)),
                Attribute::new(names::SIZE, Value::int64(transfer.size)),
                Attribute::new(names::DTYPE, Value::text(transfer.dtype.name())),
                Attribute::new(names::SEQ, Value::int64(tag)),
            ]);
            nodes.push(node);
        }
        nodes
    }
}

/// Names of process groups: numbers, as readers expect, in digits enough that their order as texts is their order.
fn groups(plan: &Plan) -> BTreeMap<(u32, u32), String> {
    let used: BTreeMap<(u32, u32), ()> = plan.communicators.iter().map(|c| ((c.axis, c.team), ())).collect();
    let width = used.len().to_string().len();
    used.into_keys().enumerate().map(|(n, group)| (group, format!("{:0width$}", n + 1))).collect()
}

/// Nanoseconds as the schema has them; what takes time takes at least one.
fn micros(ns: u64) -> u64 {
    (ns.saturating_add(500) / 1000).max(u64::from(ns > 0))
}

/// A compute node: operations and bytes as others read them, and what it does as we do.
fn compute(mut node: Node, kernels: &[Kernel]) -> Node {
    let flops: f64 = kernels.iter().map(Kernel::flops).sum();
    let bytes = kernels.iter().filter_map(Kernel::bytes).fold(0u64, u64::saturating_add);
    let texts: Vec<String> = kernels
        .iter()
        .map(|kernel| match kernel {
            Kernel::Gemm { m, n, k, batch, dtype, layout, times } => {
                let product = format!("gemm {m} {n} {k} {batch} {} {times}", dtype.name());
                // Last, and only if it is another than that of old files, which have none.
                if *layout == GemmLayout::default() { product } else { format!("{product} {}", layout.name()) }
            }
            Kernel::Memory { bytes, lasts_ns: None, times } => format!("memory {bytes} {times}"),
            Kernel::Memory { bytes, lasts_ns: Some(ns), times } => format!("memory {bytes} {times} {ns}"),
            Kernel::Hold { duration_ns, sms, times } => format!("hold {duration_ns} {} {times}", sms.unwrap_or(0)),
            Kernel::Copy { direction, size, times } => format!("copy {} {size} {times}", direction.name()),
            Kernel::Set { size, times } => format!("set {size} {times}"),
        })
        .collect();
    node.attr.extend([
        Attribute::new(names::NUM_OPS, Value::Int64(flops as i64)),
        Attribute::new(names::TENSOR_SIZE, Value::Uint64(bytes)),
    ]);
    if !texts.is_empty() {
        node.attr.push(Attribute::new(names::WORK, Value::text(texts.join("; "))));
    }
    node
}
