//! Which nodes of different ranks are one communication.
//!
//! A collective by its group and its sequence number, where it was recorded, else its place among the group's; a send
//! and its receive by sender, receiver and number. Nodes that share a message are one meeting. What lacks a member is
//! none.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::At;
use crate::Notes;
use crate::capture::{CommFacts, CommOp, StatedNode, Timeline};

/// Sets of nodes that end together.
pub(super) struct Meetings {
    all: Vec<Vec<At>>,
    of: HashMap<At, usize>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Clone)]
enum Key {
    Collective { ranks: Vec<u32>, group: Arc<str>, number: u64 },
    Message { from: u32, to: u32, number: u64 },
}

impl Meetings {
    pub fn of(&self, at: At) -> Option<&[At]> {
        self.of.get(&at).map(|meeting| self.all[*meeting].as_slice())
    }

    /// The meetings of the graphs of these timelines, whose nodes are taken in the given orders.
    pub fn gather(timelines: &[&Timeline], orders: &[Vec<u32>], notes: &mut Notes) -> Self {
        let mut members: BTreeMap<Key, Vec<At>> = BTreeMap::new();
        for (g, (timeline, order)) in timelines.iter().zip(orders).enumerate() {
            let mut counts: HashMap<Key, u64> = HashMap::new();
            let mut number = |key: Key, told: Option<u64>| {
                let count = counts.entry(key).or_default();
                *count += 1;
                told.unwrap_or(*count)
            };
            let rank = timeline.rank.unwrap_or(g as u32);
            let nodes = super::nodes(timeline);
            for node in order {
                for facts in communications(&nodes[*node as usize]) {
                    let Some(key) = key(timeline, rank, facts, &mut number) else { continue };
                    members.entry(key).or_default().push((g, *node as usize));
                }
            }
        }
        let mut this = Self { all: Vec::new(), of: HashMap::new() };
        let alone = timelines.len() == 1;
        for (key, at) in members {
            let wanted = match &key {
                Key::Collective { ranks, .. } => ranks.len(),
                Key::Message { .. } => 2,
            };
            if at.len() == wanted {
                this.join(&at);
            } else if !alone {
                notes.add(
                    "communications that are not on all their ranks, scheduled on each for itself",
                    || match key {
                        Key::Collective { ranks, number, .. } => format!("number {number} of ranks {ranks:?}"),
                        Key::Message { from, to, number } => format!("message {number} from rank {from} to rank {to}"),
                    },
                );
            }
        }
        this
    }

    fn join(&mut self, at: &[At]) {
        let known: Vec<usize> = at.iter().filter_map(|at| self.of.get(at).copied()).collect();
        let target = known.first().copied().unwrap_or_else(|| {
            self.all.push(Vec::new());
            self.all.len() - 1
        });
        for other in known.into_iter().filter(|other| *other != target) {
            for at in std::mem::take(&mut self.all[other]) {
                self.of.insert(at, target);
                self.all[target].push(at);
            }
        }
        for at in at {
            if self.of.insert(*at, target).is_none() {
                self.all[target].push(*at);
            }
        }
    }
}

fn communications(node: &StatedNode) -> impl Iterator<Item = &CommFacts> {
    node.parts.iter().flat_map(|part| &part.comm)
}

fn key(
    timeline: &Timeline,
    rank: u32,
    facts: &CommFacts,
    number: &mut impl FnMut(Key, Option<u64>) -> u64,
) -> Option<Key> {
    let message = |from: u32, to: u32| Key::Message { from, to, number: 0 };
    match facts.op {
        CommOp::Send { to } => {
            let (from, to) = (rank, to?);
            Some(Key::Message { from, to, number: number(message(from, to), facts.seq) })
        }
        CommOp::Recv { from } => {
            let (from, to) = (from?, rank);
            Some(Key::Message { from, to, number: number(message(from, to), facts.seq) })
        }
        CommOp::Collective(_) | CommOp::Other => {
            let everyone = || timeline.world_size.map(|world| (0..world).collect());
            let ranks: Vec<u32> = facts.ranks.clone().or_else(everyone)?;
            let group = facts.group_name.clone().unwrap_or_else(|| "".into());
            let number = number(Key::Collective { ranks: ranks.clone(), group: group.clone(), number: 0 }, facts.seq);
            Some(Key::Collective { ranks, group, number })
        }
        CommOp::Wait => None,
    }
}
