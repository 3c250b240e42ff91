//! Numbers for messages and collectives that both ends, or all members, arrive at by themselves.
//!
//! A plan is checked: on a communicator the n-th message from a to b is the n-th that b receives from a. So whoever
//! counts the messages of a route on each communicator knows the other end's numbers, and a tag that counts on through
//! the communicators in their one order is unique on the route.

use std::collections::{BTreeMap, HashMap};

use maestro_pattern::{Direction, Instruction, Plan, Transfer, Work};

/// From rank, to rank.
pub(super) type Route = (u32, u32);

/// The numbers of one rank.
pub(super) struct Numbers {
    /// Next tag of a route on a communicator.
    tags: HashMap<(Route, u32), u64>,
    /// Collectives of a communicator so far.
    counts: HashMap<u32, u64>,
}

impl Numbers {
    pub fn of(plan: &Plan, rank: u32) -> Self {
        let mut messages: BTreeMap<(Route, u32), u64> = BTreeMap::new();
        for instruction in &plan.program(rank).instructions {
            let Instruction::Issue { block, axis: Some(axis), lane, .. } = instruction else { continue };
            let Some(communicator) = plan.communicator(rank, *axis, *lane) else { continue };
            for (transfer, peer) in transfers(plan, rank, *axis, &plan.blocks[*block as usize].work) {
                *messages.entry((route(transfer.direction, rank, peer), communicator)).or_default() += 1;
            }
        }
        let (mut tags, mut next): (_, HashMap<Route, u64>) = (HashMap::new(), HashMap::new());
        for ((route, communicator), count) in messages {
            let next = next.entry(route).or_default();
            tags.insert((route, communicator), *next);
            *next += count;
        }
        Self { tags, counts: HashMap::new() }
    }

    /// The tag of the next message of a route.
    pub fn tag(&mut self, route: Route, communicator: u32) -> u64 {
        let tag = self.tags.entry((route, communicator)).or_default();
        *tag += 1;
        *tag - 1
    }

    /// The number of the next collective in a group that several lanes share, each with a communicator.
    pub fn collective(&mut self, lane: u32, communicator: u32) -> u64 {
        let count = self.counts.entry(communicator).or_default();
        *count += 1;
        (u64::from(lane) << 32) + *count
    }
}

/// The transfers of a p2p that `rank` really makes, each with its peer.
pub(super) fn transfers<'a>(
    plan: &'a Plan,
    rank: u32,
    axis: u32,
    work: &'a Work,
) -> impl Iterator<Item = (&'a Transfer, u32)> {
    let (all, wrap) = match work {
        Work::P2p { transfers, wrap } => (transfers.as_slice(), *wrap),
        Work::Collective(_) | Work::Group(_) | Work::Compute(_) | Work::Cuda(_) => (&[][..], false),
    };
    all.iter().filter_map(move |t| Some((t, plan.world.peer(axis as usize, rank, t.offset, wrap)?)))
}

pub(super) fn route(direction: Direction, rank: u32, peer: u32) -> Route {
    match direction {
        Direction::Send => (rank, peer),
        Direction::Recv => (peer, rank),
    }
}
