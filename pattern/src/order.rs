//! The proof that a plan cannot deadlock, made before anything runs.
//!
//! First everything that communicates is matched: the n-th collective of a communicator on every member, the n-th
//! send from a to b with the n-th receive of b from a. Then a graph of starts and ends is built (lane order, `after`,
//! host waits, "ends only when all partners have started") and sorted; what cannot be sorted would wait for ever.

use std::collections::HashMap;

use crate::{Direction, Dtype, Error, Instruction, Plan, Result, Work};

/// Checks `plan`.
///
/// # Errors
/// Names the first two ranks and blocks that do not match, or the blocks of a circle.
pub(crate) fn check(plan: &Plan) -> Result<()> {
    let matched = match_all(plan)?;
    sort(plan, &matched)
}

/// A rank's instruction.
type At = (u32, u32);

/// One side of a transfer: where, bytes, element type, and the block that it is in.
type Sent<'a> = (At, u64, Dtype, &'a crate::Block);

/// What meets what.
#[derive(Default)]
struct Matched {
    /// Members of each collective execution.
    collectives: Vec<Vec<At>>,
    /// Both sides of each transfer.
    transfers: Vec<(At, At)>,
}

/// What one member issues on one communicator.
#[derive(Default)]
struct Issued<'a> {
    collectives: Vec<(At, &'a crate::Block)>,
    /// Per (direction, peer).
    transfers: HashMap<(Direction, u32), Vec<Sent<'a>>>,
}

fn match_all(plan: &Plan) -> Result<Matched> {
    let mut matched = Matched::default();
    let mut issued: HashMap<(u32, u32), Issued<'_>> = HashMap::new();
    for rank in 0..plan.world.size() {
        for (index, instruction) in plan.program(rank).instructions.iter().enumerate() {
            let Instruction::Issue { block, axis: Some(axis), lane, .. } = instruction else { continue };
            let Some(communicator) = plan.communicator(rank, *axis, *lane) else { continue };
            let block = &plan.blocks[*block as usize];
            let at = (rank, index as u32);
            let mine = issued.entry((communicator, rank)).or_default();
            match &block.work {
                Work::P2p { transfers, wrap } => {
                    for transfer in transfers {
                        if let Some(peer) = plan.world.peer(*axis as usize, rank, transfer.offset, *wrap) {
                            let list = mine.transfers.entry((transfer.direction, peer)).or_default();
                            list.push((at, transfer.size, transfer.dtype, block));
                        }
                    }
                }
                Work::Collective(_) | Work::Group(_) => mine.collectives.push((at, block)),
                Work::Compute(_) | Work::Cuda(_) => {}
            }
        }
    }
    let nothing = Issued::default();
    for (id, communicator) in plan.communicators.iter().enumerate() {
        let members: Vec<&Issued<'_>> =
            communicator.ranks.iter().map(|rank| issued.get(&(id as u32, *rank)).unwrap_or(&nothing)).collect();
        let name = format!(
            "axis `{}`, lane `{}`",
            plan.world.axes()[communicator.axis as usize].name,
            plan.lanes[communicator.lane as usize].name
        );
        match_collectives(&name, &communicator.ranks, &members, &mut matched)?;
        match_transfers(&name, &communicator.ranks, &members, &mut matched)?;
    }
    Ok(matched)
}

fn match_collectives(name: &str, ranks: &[u32], members: &[&Issued<'_>], matched: &mut Matched) -> Result<()> {
    let most = members.iter().map(|m| m.collectives.len()).max().unwrap_or(0);
    for n in 0..most {
        let issued = || ranks.iter().zip(members).map(|(rank, member)| (rank, member.collectives.get(n)));
        let Some((one, first)) = issued().find_map(|(rank, call)| call.map(|(_, block)| (rank, *block))) else {
            continue;
        };
        let mut meeting = Vec::with_capacity(members.len());
        for (rank, call) in issued() {
            let Some((at, block)) = call else {
                return Err(Error::at(
                    first.place,
                    format!(
                        "{name}: rank {one} issues `{}` as collective {} but rank {rank} issues only {n}",
                        first.name,
                        n + 1
                    ),
                )
                .help("all ranks of a team must issue the same collectives; look at `when`"));
            };
            if block.work != first.work {
                return Err(Error::at(
                    block.place,
                    format!(
                        "{name}: collective {} is `{}` on rank {one} but `{}` on rank {rank}",
                        n + 1,
                        first.name,
                        block.name
                    ),
                )
                .help("all ranks of a team must issue the same collectives in the same order"));
            }
            meeting.push(*at);
        }
        matched.collectives.push(meeting);
    }
    Ok(())
}

fn match_transfers(name: &str, ranks: &[u32], members: &[&Issued<'_>], matched: &mut Matched) -> Result<()> {
    let seat: HashMap<u32, usize> = ranks.iter().enumerate().map(|(i, r)| (*r, i)).collect();
    for (rank, member) in ranks.iter().zip(members) {
        // Sorted so that the same mistake gives the same sentence every time.
        let mut lists: Vec<_> = member.transfers.iter().collect();
        lists.sort_by_key(|((direction, peer), _)| (*peer, *direction == Direction::Recv));
        for ((direction, peer), mine) in lists {
            let (other_way, verb, noun) = match direction {
                Direction::Send => (Direction::Recv, "sends to", "receives"),
                Direction::Recv => (Direction::Send, "receives from", "sends"),
            };
            let theirs = seat
                .get(peer)
                .and_then(|i| members[*i].transfers.get(&(other_way, *rank)))
                .map(Vec::as_slice)
                .unwrap_or_default();
            if mine.len() != theirs.len() {
                let place = mine.first().or(theirs.first()).map(|sent| sent.3.place).unwrap_or_default();
                let times = |n: usize| if n == 1 { "once".to_owned() } else { format!("{n} times") };
                return Err(Error::at(
                    place,
                    format!(
                        "{name}: rank {rank} {verb} rank {peer} {}, which {noun} {}",
                        times(mine.len()),
                        times(theirs.len())
                    ),
                )
                .help("every send needs its receive; look at offsets and `when`"));
            }
            for (n, (one, two)) in mine.iter().zip(theirs).enumerate() {
                if (one.1, one.2) != (two.1, two.2) {
                    return Err(Error::at(
                        one.3.place,
                        format!(
                            "{name}: transfer {} between ranks {rank} and {peer} is {} B of {} here and {} B of {} there",
                            n + 1,
                            one.1,
                            one.2.name(),
                            two.1,
                            two.2.name()
                        ),
                    )
                    .help("a send and its receive must have the same size and dtype"));
                }
                if *direction == Direction::Send {
                    matched.transfers.push((one.0, two.0));
                }
            }
        }
    }
    Ok(())
}

/// Graph of starts and ends: node 2i starts and 2i+1 ends instruction i (ranks one after the other), then one hub for
/// each collective execution.
struct Graph {
    offsets: Vec<usize>,
    edges: Vec<(u32, u32)>,
    nodes: u32,
}

impl Graph {
    fn start(&self, at: At) -> u32 {
        2 * (self.offsets[at.0 as usize] + at.1 as usize) as u32
    }

    fn end(&self, at: At) -> u32 {
        self.start(at) + 1
    }

    fn edge(&mut self, from: u32, to: u32) {
        self.edges.push((from, to));
    }
}

fn sort(plan: &Plan, matched: &Matched) -> Result<()> {
    let mut graph = Graph { offsets: Vec::new(), edges: Vec::new(), nodes: 0 };
    let mut total = 0;
    for rank in 0..plan.world.size() {
        graph.offsets.push(total);
        total += plan.program(rank).instructions.len();
    }
    graph.nodes = 2 * total as u32;
    for rank in 0..plan.world.size() {
        rank_edges(plan, rank, &mut graph);
    }
    for meeting in &matched.collectives {
        let hub = graph.nodes;
        graph.nodes += 1;
        for at in meeting {
            graph.edge(graph.start(*at), hub);
            graph.edge(hub, graph.end(*at));
        }
    }
    for (one, two) in &matched.transfers {
        graph.edge(graph.start(*one), graph.end(*two));
        graph.edge(graph.start(*two), graph.end(*one));
    }
    match stuck(&graph) {
        None => Ok(()),
        Some(node) => Err(deadlock(plan, &graph, node)),
    }
}

/// Lane order, `after` and host waits of one rank.
fn rank_edges(plan: &Plan, rank: u32, graph: &mut Graph) {
    let mut last_on_lane: HashMap<u32, u32> = HashMap::new();
    // The latest host wait: everything issued later starts after it.
    let mut gate = None;
    for (index, instruction) in plan.program(rank).instructions.iter().enumerate() {
        let at = (rank, index as u32);
        let (start, end) = (graph.start(at), graph.end(at));
        graph.edge(start, end);
        if let Some(gate) = gate {
            graph.edge(gate, start);
        }
        match instruction {
            Instruction::Issue { lane, after, .. } => {
                if let Some(before) = last_on_lane.insert(*lane, end) {
                    graph.edge(before, start);
                }
                for other in after {
                    graph.edge(graph.end((rank, *other)), start);
                }
            }
            Instruction::Wait(other) => {
                graph.edge(graph.end((rank, *other)), start);
                gate = Some(end);
            }
            Instruction::Host(_) => {}
        }
    }
}

/// Kahn's topological sort: a node that can never run, if there is one.
fn stuck(graph: &Graph) -> Option<u32> {
    let n = graph.nodes as usize;
    let mut indegree = vec![0u32; n];
    let mut first = vec![0u32; n + 1];
    for (from, to) in &graph.edges {
        indegree[*to as usize] += 1;
        first[*from as usize + 1] += 1;
    }
    for i in 0..n {
        first[i + 1] += first[i];
    }
    let mut slots = first.clone();
    let mut targets = vec![0u32; graph.edges.len()];
    for (from, to) in &graph.edges {
        targets[slots[*from as usize] as usize] = *to;
        slots[*from as usize] += 1;
    }
    let mut ready: Vec<u32> = (0..graph.nodes).filter(|i| indegree[*i as usize] == 0).collect();
    let mut done = 0;
    while let Some(node) = ready.pop() {
        done += 1;
        for to in &targets[first[node as usize] as usize..first[node as usize + 1] as usize] {
            indegree[*to as usize] -= 1;
            if indegree[*to as usize] == 0 {
                ready.push(*to);
            }
        }
    }
    (done < n).then(|| (0..graph.nodes).find(|i| indegree[*i as usize] > 0)).flatten()
}

fn deadlock(plan: &Plan, graph: &Graph, node: u32) -> Error {
    let instruction = (node / 2) as usize;
    let rank = graph.offsets.partition_point(|offset| *offset <= instruction).saturating_sub(1);
    let index = instruction - graph.offsets[rank];
    let name = plan.program(rank as u32).instructions[index..]
        .iter()
        .find_map(|i| match i {
            Instruction::Issue { block, .. } => Some(&plan.blocks[*block as usize]),
            Instruction::Wait(_) | Instruction::Host(_) => None,
        })
        .or(plan.blocks.first());
    let (place, name) = name.map(|b| (b.place, b.name.as_str())).unwrap_or_default();
    Error::at(place, format!("the step would deadlock: on rank {rank}, `{name}` waits for something that waits for it"))
        .help("look at the order in which ranks issue their blocks on this lane, and at `wait`")
}
