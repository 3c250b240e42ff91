//! What is written, by an independent reader of the documented schema.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::wire::{self, Node};
use crate::{CAPTURES, capture, exported};

const METADATA: u64 = 1;
const COMP: u64 = 4;
const SEND: u64 = 5;
const RECV: u64 = 6;
const COLL: u64 = 7;

/// Kinds of values, by the schema's field numbers.
const INT32: u64 = 7;
const INT64: u64 = 9;
const UINT64: u64 = 13;
const BOOL: u64 = 27;
const STRING: u64 = 29;

/// What readers ask attributes for; of another kind they read nothing and say nothing.
const KINDS: [(&str, u64); 11] = [
    ("is_cpu_op", BOOL),
    ("comm_type", INT64),
    ("comm_size", INT64),
    ("num_ops", INT64),
    ("tensor_size", UINT64),
    ("comm_src", INT32),
    ("comm_dst", INT32),
    ("comm_tag", INT32),
    ("comm_priority", INT32),
    ("pg_name", STRING),
    ("stream", INT64),
];

/// All files of a capture, by rank.
fn files(name: &str) -> Vec<Vec<Node>> {
    let import = capture(name);
    let files = exported(import.plan.as_ref().expect("a plan"));
    let read = |(rank, file): (usize, &Vec<u8>)| {
        let (version, metadata, nodes) = wire::file(file);
        assert!(!version.is_empty());
        assert_eq!(metadata["maestro.rank"].1.number(), rank as u64);
        nodes
    };
    files.iter().enumerate().map(read).collect()
}

fn has(node: &Node, name: &str) -> bool {
    node.attributes.contains_key(name)
}

fn number(node: &Node, name: &str) -> u64 {
    node.attributes.get(name).unwrap_or_else(|| panic!("node {} {} without {name}", node.id, node.name)).1.number()
}

#[test]
fn attributes_are_of_the_kinds_that_readers_ask_for() {
    for name in CAPTURES {
        let mut seen: HashSet<&str> = HashSet::new();
        for node in files(name).iter().flatten() {
            for (attribute, kind) in KINDS {
                if let Some((found, _)) = node.attributes.get(attribute) {
                    assert_eq!(*found, kind, "{attribute} of {}", node.name);
                    seen.insert(attribute);
                }
            }
            let required: &[&str] = match node.kind {
                METADATA => &[],
                COMP if number(node, "is_cpu_op") == 1 => &[],
                COMP => &["num_ops", "tensor_size"],
                SEND | RECV => &["comm_size", "comm_src", "comm_dst", "comm_tag", "comm_priority", "pg_name"],
                COLL => &["comm_type", "comm_size", "comm_priority", "pg_name"],
                kind => panic!("a node of kind {kind}"),
            };
            assert!(required.iter().all(|required| has(node, required)), "{name}: {} {:?}", node.name, node.attributes);
            // A node of the host that communicates is refused by readers.
            assert!(node.kind == COMP || node.kind == METADATA || number(node, "is_cpu_op") == 0, "{}", node.name);
        }
        assert!(seen.len() >= 7, "{name} shows only {seen:?}");
    }
}

#[test]
fn dependencies_go_back_only_and_hold_the_order_of_lanes() {
    for name in CAPTURES {
        for nodes in files(name) {
            let mut met: HashSet<u64> = HashSet::new();
            // Per lane: the latest node that is no part of the one being looked at.
            let mut lanes: HashMap<u64, (String, Vec<u64>)> = HashMap::new();
            let (mut previous, mut crossing, mut gaps) = (None, 0, 0);
            for node in &nodes {
                assert!(node.ctrl_deps.is_empty());
                assert!(node.data_deps.iter().all(|dep| met.contains(dep)), "{name}: node {} depends on none", node.id);
                assert!(met.insert(node.id), "{name}: two nodes {}", node.id);
                if node.kind == METADATA {
                    continue;
                }
                if number(node, "is_cpu_op") == 1 {
                    assert!(previous.iter().all(|before| node.data_deps.contains(before)));
                    gaps += u64::from(node.duration_us > 0);
                    previous = Some(node.id);
                    continue;
                }
                assert!(previous.iter().all(|before| node.data_deps.contains(before)), "{name}: launched before time");
                let (stream, unit) = (number(node, "stream"), unit(node));
                let lane = lanes.entry(stream).or_default();
                if lane.0 == unit {
                    lane.1.push(node.id);
                    continue;
                }
                assert!(lane.1.iter().all(|before| node.data_deps.contains(before)), "{name}: {} overtakes", node.name);
                crossing += node.data_deps.len() - lane.1.len() - usize::from(previous.is_some());
                *lane = (unit, vec![node.id]);
            }
            assert!(gaps > 0 || name == "graph", "{name}: no host time");
            assert!(crossing > 0 || name == "graph" || name == "moe", "{name}: no dependency crosses lanes");
        }
    }
}

fn unit(node: &Node) -> String {
    format!("{} {}", node.attributes["maestro.block"].1.text(), number(node, "maestro.iteration"))
}

#[test]
fn every_send_has_its_receive() {
    let mut messages = 0;
    for name in CAPTURES {
        let mut sides: [BTreeMap<(u64, u64, u64), u64>; 2] = Default::default();
        for (rank, nodes) in files(name).iter().enumerate() {
            for node in nodes.iter().filter(|node| node.kind == SEND || node.kind == RECV) {
                let (from, to) = (number(node, "comm_src"), number(node, "comm_dst"));
                assert_eq!(rank as u64, if node.kind == SEND { from } else { to });
                let (key, side) = ((from, to, number(node, "comm_tag")), usize::from(node.kind == RECV));
                assert!(sides[side].insert(key, number(node, "comm_size")).is_none(), "{name}: two of {key:?}");
            }
        }
        let [sent, received] = sides;
        assert_eq!(sent, received, "{name}");
        messages += sent.len();
    }
    assert!(messages >= 8, "only {messages}");
}

#[test]
fn ranks_of_a_group_issue_the_same_collectives_in_the_same_order() {
    for name in CAPTURES {
        let mut groups: BTreeMap<String, Vec<Vec<(u64, u64)>>> = BTreeMap::new();
        for (rank, nodes) in files(name).iter().enumerate() {
            let list = nodes.iter().find(|node| node.name.contains("process_group:init")).expect("the list of groups");
            let text = list.inputs.as_deref().expect("inputs");
            let json = text.strip_prefix("['").and_then(|text| text.strip_suffix("']")).expect("a Python list");
            let listed: Vec<serde_json::Value> = serde_json::from_str(json).expect("JSON inside");
            let mut mine: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
            for node in nodes.iter().filter(|node| node.kind == COLL) {
                let group = node.attributes["pg_name"].1.text().to_owned();
                let entry = listed.iter().find(|entry| entry["pg_name"] == group.as_str()).expect("a listed group");
                assert!(entry["ranks"].as_array().expect("ranks").iter().any(|other| other == rank));
                let size = node.attributes.get("maestro.size").map_or(0, |(_, size)| size.number());
                mine.entry(group).or_default().push((number(node, "comm_type"), size));
            }
            for (group, calls) in mine {
                groups.entry(group).or_default().push(calls);
            }
        }
        for (group, calls) in groups {
            assert!(calls.len() > 1 && calls.windows(2).all(|pair| pair[0] == pair[1]), "{name}, group {group}");
        }
    }
}
