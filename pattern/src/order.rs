//! The proof that no rank of a plan waits for ever, made before anything runs.
//!
//! First everything that communicates is matched: the n-th collective of a communicator on every member, the n-th
//! send from a to b with the n-th receive of b from a. Then a graph of starts and ends is built (lane order, `after`,
//! host waits, "ends only when all partners have started") and sorted; what cannot be sorted would wait for ever.
//!
//! The graph is drawn twice at most. First every class of ranks that do the same is one actor, which is as small as
//! the programs are: each edge between ranks is an edge between their classes, so a circle of ranks is a circle of
//! classes, and where classes have none nothing can wait for ever. The other way round it is not so: along a pipeline
//! one class seems to wait for itself. Only then every rank becomes an actor of its own, and the answer is exact.
//!
//! Lanes are taken to make progress by themselves. Whether a device has room for all that may run at once is not
//! looked at; see [`Plan`].

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{
    AxisId, Block, BlockId, Communicator, Direction, Dtype, Error, Instruction, LaneId, Place, Plan, Result, Work,
};

/// Most instructions, references and transfers of all actors together: at some 100 B each the graph is 7 GB.
const MOST_TO_SORT: u64 = 1 << 26;

/// Checks `plan`. Ranks of one class have programs that differ in host times only.
///
/// # Errors
/// Names the first two ranks and blocks that do not match, or a block of a circle; refuses a plan that is too large
/// to look through.
pub(crate) fn check(plan: &Plan, class_of: &[u32]) -> Result<()> {
    let classes = Actors::new(class_of);
    let issued: Vec<HashMap<_, _>> = classes.leads.iter().map(|rank| issued(plan, *rank)).collect();
    let team = |communicator: &Communicator| -> Vec<Member<'_>> {
        let of = |rank: &u32| issued[class_of[*rank as usize] as usize].get(&(communicator.axis, communicator.lane));
        communicator.ranks.iter().map(|rank| Member { rank: *rank, issued: of(rank) }).collect()
    };
    let coarse = graph(plan, &classes, &team)?;
    let Some(node) = stuck(&coarse) else { return Ok(()) };
    if classes.leads.len() == plan.world.size() as usize {
        return Err(deadlock(plan, &coarse, node));
    }
    drop(coarse);
    let ranks = Actors::new(&(0..plan.world.size()).collect::<Vec<_>>());
    let fine = graph(plan, &ranks, &team)?;
    match stuck(&fine) {
        None => Ok(()),
        Some(node) => Err(deadlock(plan, &fine, node)),
    }
}

/// Who waits and is waited for: classes of ranks, or ranks.
struct Actors {
    /// Per rank, its actor.
    of: Vec<u32>,
    /// Per actor, its first rank.
    leads: Vec<u32>,
}

impl Actors {
    /// Actors are numbered in the order of their first ranks.
    fn new(of: &[u32]) -> Self {
        let mut leads = Vec::new();
        for (actor, rank) in of.iter().zip(0..) {
            if *actor as usize == leads.len() {
                leads.push(rank);
            }
        }
        Self { of: of.to_vec(), leads }
    }
}

/// What one member issues on one communicator: indices of instructions, with their blocks.
#[derive(Default)]
struct Issued {
    collectives: Vec<(u32, BlockId)>,
    p2p: Vec<(u32, BlockId)>,
}

/// What `rank` issues, per axis and lane.
fn issued(plan: &Plan, rank: u32) -> HashMap<(AxisId, LaneId), Issued> {
    let mut issued: HashMap<(AxisId, LaneId), Issued> = HashMap::new();
    for (instruction, index) in plan.program(rank).instructions.iter().zip(0..) {
        let Instruction::Issue { block, axis: Some(axis), lane, .. } = instruction else { continue };
        let mine = issued.entry((*axis, *lane)).or_default();
        match &plan.blocks[*block as usize].work {
            Work::P2p { .. } => mine.p2p.push((index, *block)),
            Work::Collective(_) | Work::Group(_) => mine.collectives.push((index, *block)),
            Work::Compute(_) | Work::Cuda(_) => {}
        }
    }
    issued
}

/// A member of a communicator, in team order. `None`: it issues nothing there.
struct Member<'a> {
    rank: u32,
    issued: Option<&'a Issued>,
}

impl<'a> Member<'a> {
    fn collectives(&self) -> &'a [(u32, BlockId)] {
        self.issued.map(|issued| issued.collectives.as_slice()).unwrap_or_default()
    }

    fn p2p(&self) -> &'a [(u32, BlockId)] {
        self.issued.map(|issued| issued.p2p.as_slice()).unwrap_or_default()
    }
}

/// An actor's instruction.
type At = (u32, u32);

/// Graph of starts and ends: node 2i starts and 2i+1 ends instruction i (actors one after the other), then one hub
/// for each collective execution.
struct Graph {
    /// Per actor, its first rank and the number of its first instruction.
    actors: Vec<(u32, usize)>,
    edges: Vec<(u32, u32)>,
    nodes: u32,
}

impl Graph {
    fn start(&self, at: At) -> u32 {
        2 * (self.actors[at.0 as usize].1 + at.1 as usize) as u32
    }

    fn end(&self, at: At) -> u32 {
        self.start(at) + 1
    }

    fn edge(&mut self, from: u32, to: u32) {
        self.edges.push((from, to));
    }
}

/// Matches everything that communicates and draws the graph.
fn graph<'a>(plan: &'a Plan, actors: &Actors, team: &dyn Fn(&Communicator) -> Vec<Member<'a>>) -> Result<Graph> {
    let mut graph = Graph { actors: Vec::new(), edges: Vec::new(), nodes: 0 };
    let (mut total, mut to_sort) = (0, 0u64);
    let mut sizes: HashMap<u32, u64> = HashMap::new();
    for rank in &actors.leads {
        graph.actors.push((*rank, total));
        total += plan.program(*rank).instructions.len();
        let program = plan.program_of[*rank as usize];
        let size = *sizes.entry(program).or_insert_with(|| size(plan, *rank));
        to_sort = to_sort.saturating_add(size);
    }
    if to_sort > MOST_TO_SORT {
        return Err(Error::at(
            Place::default(),
            format!(
                "{to_sort} instructions, references and transfers are to be put in order; the most is {MOST_TO_SORT}"
            ),
        )
        .help("repeat less, or make an axis smaller"));
    }
    graph.nodes = 2 * total as u32;
    for actor in 0..actors.leads.len() {
        program_edges(plan, actor as u32, &mut graph);
    }
    let mut matching = Matching { plan, actors, graph, teams: HashSet::new(), transfers: HashSet::new() };
    for communicator in &plan.communicators {
        let members = team(communicator);
        matching.collectives(communicator, &members)?;
        matching.transfers(communicator, &members)?;
    }
    Ok(matching.graph)
}

/// Instructions, references and transfers of a rank.
fn size(plan: &Plan, rank: u32) -> u64 {
    let all = plan.program(rank).instructions.iter().map(|instruction| match instruction {
        Instruction::Issue { block, after, .. } => match &plan.blocks[*block as usize].work {
            Work::P2p { transfers, .. } => 1 + after.len() + transfers.len(),
            Work::Collective(_) | Work::Group(_) | Work::Compute(_) | Work::Cuda(_) => 1 + after.len(),
        },
        Instruction::Wait(_) | Instruction::Host(_) => 1,
    });
    all.map(|n| n as u64).sum()
}

/// Lane order, `after` and host waits of one actor.
fn program_edges(plan: &Plan, actor: u32, graph: &mut Graph) {
    let mut last_on_lane: HashMap<LaneId, u32> = HashMap::new();
    // The latest host wait: everything issued later starts after it.
    let mut gate = None;
    let (rank, _) = graph.actors[actor as usize];
    for (instruction, index) in plan.program(rank).instructions.iter().zip(0..) {
        let at = (actor, index);
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
                    graph.edge(graph.end((actor, *other)), start);
                }
            }
            Instruction::Wait(other) => {
                graph.edge(graph.end((actor, *other)), start);
                gate = Some(end);
            }
            Instruction::Host(_) => {}
        }
    }
}

/// Everything that one member sends to another or receives from it, in order: actor's instruction, bytes, element
/// type, and the block that it is in.
type Sent<'a> = Vec<(At, u64, Dtype, &'a Block)>;

struct Matching<'a> {
    plan: &'a Plan,
    actors: &'a Actors,
    graph: Graph,
    /// Actors that met in collectives on (axis, lane): another team of the same actors adds nothing.
    teams: HashSet<(AxisId, LaneId, Vec<u32>)>,
    /// Starts that met: where actors stand for many ranks, most transfers are the same.
    transfers: HashSet<(u32, u32)>,
}

impl<'a> Matching<'a> {
    fn name(&self, communicator: &Communicator) -> String {
        format!(
            "axis `{}`, lane `{}`",
            self.plan.world.axes()[communicator.axis as usize].name,
            self.plan.lanes[communicator.lane as usize].name
        )
    }

    /// Matches the collectives of a communicator. Members of one actor issue the same; the first speaks for them.
    fn collectives(&mut self, communicator: &Communicator, members: &[Member<'_>]) -> Result<()> {
        let mut seen = BTreeSet::new();
        let speakers: Vec<(u32, &Member<'_>)> = members
            .iter()
            .map(|member| (self.actors.of[member.rank as usize], member))
            .filter(|(actor, _)| seen.insert(*actor))
            .collect();
        if !self.teams.insert((communicator.axis, communicator.lane, seen.into_iter().collect())) {
            return Ok(());
        }
        let most = speakers.iter().map(|(_, member)| member.collectives().len()).max().unwrap_or(0);
        for n in 0..most {
            let hub = self.graph.nodes;
            self.graph.nodes += 1;
            let calls = || speakers.iter().map(|(actor, member)| (*actor, member.rank, member.collectives().get(n)));
            let Some((one, first)) = calls().find_map(|(_, rank, call)| call.map(|(_, block)| (rank, *block))) else {
                continue;
            };
            for (actor, rank, call) in calls() {
                let Some((index, block)) = call else {
                    let first = &self.plan.blocks[first as usize];
                    return Err(Error::at(
                        first.place,
                        format!(
                            "{}: rank {one} issues `{}` as collective {} but rank {rank} issues only {n}",
                            self.name(communicator),
                            first.name,
                            n + 1
                        ),
                    )
                    .help("all ranks of a team must issue the same collectives; look at `when`"));
                };
                // The same block is the same work; matrices of splits are large.
                let (mine, theirs) = (&self.plan.blocks[*block as usize], &self.plan.blocks[first as usize]);
                if *block != first && mine.work != theirs.work {
                    return Err(Error::at(
                        mine.place,
                        format!(
                            "{}: collective {} is `{}` on rank {one} but `{}` on rank {rank}",
                            self.name(communicator),
                            n + 1,
                            theirs.name,
                            mine.name
                        ),
                    )
                    .help("all ranks of a team must issue the same collectives in the same order"));
                }
                let at = (actor, *index);
                self.graph.edge(self.graph.start(at), hub);
                self.graph.edge(hub, self.graph.end(at));
            }
        }
        Ok(())
    }

    /// Matches the sends and receives of a communicator, rank by rank: peers differ even where programs do not.
    fn transfers(&mut self, communicator: &Communicator, members: &[Member<'_>]) -> Result<()> {
        if members.iter().all(|member| member.p2p().is_empty()) {
            return Ok(());
        }
        let seat: HashMap<u32, usize> = members.iter().enumerate().map(|(i, member)| (member.rank, i)).collect();
        let sent: Vec<_> = members.iter().map(|member| self.sent(communicator.axis, member)).collect();
        let nothing = Vec::new();
        for (member, mine) in members.iter().zip(&sent) {
            let rank = member.rank;
            // Sorted so that the same mistake gives the same sentence every time.
            let mut lists: Vec<_> = mine.iter().collect();
            lists.sort_by_key(|((direction, peer), _)| (*peer, *direction == Direction::Recv));
            for ((direction, peer), mine) in lists {
                let (other_way, verb, noun) = match direction {
                    Direction::Send => (Direction::Recv, "sends to", "receives"),
                    Direction::Recv => (Direction::Send, "receives from", "sends"),
                };
                let theirs = seat.get(peer).and_then(|i| sent[*i].get(&(other_way, rank))).unwrap_or(&nothing);
                if mine.len() != theirs.len() {
                    let place = mine.first().or(theirs.first()).map(|sent| sent.3.place).unwrap_or_default();
                    let times = |n: usize| if n == 1 { "once".to_owned() } else { format!("{n} times") };
                    return Err(Error::at(
                        place,
                        format!(
                            "{}: rank {rank} {verb} rank {peer} {}, which {noun} {}",
                            self.name(communicator),
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
                                "{}: transfer {} between ranks {rank} and {peer} \
                                 is {} B of {} here and {} B of {} there",
                                self.name(communicator),
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
                        self.rendezvous(one.0, two.0);
                    }
                }
            }
        }
        Ok(())
    }

    /// What `member` sends and receives, per direction and peer.
    fn sent(&self, axis: AxisId, member: &Member<'_>) -> HashMap<(Direction, u32), Sent<'a>> {
        let mut sent: HashMap<_, Sent<'a>> = HashMap::new();
        for (index, block) in member.p2p() {
            let block = &self.plan.blocks[*block as usize];
            let Work::P2p { transfers, wrap } = &block.work else { continue };
            let at = (self.actors.of[member.rank as usize], *index);
            for transfer in transfers {
                if let Some(peer) = self.plan.world.peer(axis as usize, member.rank, transfer.offset, *wrap) {
                    let list = sent.entry((transfer.direction, peer)).or_default();
                    list.push((at, transfer.size, transfer.dtype, block));
                }
            }
        }
        sent
    }

    fn rendezvous(&mut self, one: At, two: At) {
        let starts = (self.graph.start(one), self.graph.start(two));
        let every_rank_acts = self.actors.leads.len() == self.actors.of.len();
        if every_rank_acts || self.transfers.insert(starts) {
            self.graph.edge(starts.0, self.graph.end(two));
            self.graph.edge(starts.1, self.graph.end(one));
        }
    }
}

/// Kahn's topological sort: a node that can never run, if there is one.
fn stuck(graph: &Graph) -> Option<u32> {
    let n = graph.nodes as usize;
    let mut indegree = vec![0u32; n];
    let mut first = vec![0usize; n + 1];
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
        targets[slots[*from as usize]] = *to;
        slots[*from as usize] += 1;
    }
    let mut ready: Vec<u32> = (0..graph.nodes).filter(|i| indegree[*i as usize] == 0).collect();
    let mut done = 0;
    while let Some(node) = ready.pop() {
        done += 1;
        for to in &targets[first[node as usize]..first[node as usize + 1]] {
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
    let actor = graph.actors.partition_point(|(_, first)| *first <= instruction).saturating_sub(1);
    let (rank, first) = graph.actors[actor];
    let name = plan.program(rank).instructions[instruction - first..]
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
