//! Pattern x World -> programs and communicators.
//!
//! Two steps. First every schedule becomes a tree for one class of ranks: conditions decided, motifs put in place,
//! names turned into indices, references resolved against the sequences around them. Then the tree is unrolled. What
//! a reference means depends only on where it stands, so it is decided once, however often its loop goes round.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{
    AxisId, BlockId, Body, Collective, CommSettings, Communicator, Error, Instruction, Item, LaneId, Pattern, Place,
    Plan, Program, Reference, Result, Selector, Step, When, Work, World,
};

/// Longest program that a pattern may unroll to.
const MOST_INSTRUCTIONS: u64 = 10_000_000;

/// Lowers `pattern`, whose names have been checked.
pub(crate) fn lower(pattern: &Pattern, world: World) -> Result<Plan> {
    let skews = pattern.blocks.iter().map(|b| (format!("skew of block `{}`", b.name), &b.skew, b.place));
    for (what, factors, place) in skews.chain([("host_skew".to_owned(), &pattern.host_skew, Place::default())]) {
        if !factors.is_empty() && factors.len() != world.size() as usize {
            return Err(Error::at(place, format!("{what} has {} factors for {} ranks", factors.len(), world.size()))
                .help("give one a rank, or take all ranks as alike (--even, or remove it)"));
        }
    }
    // Ranks that agree on all conditions, have teams on the same axes and hosts alike share a program.
    let mut classes: HashMap<(Vec<bool>, Vec<bool>, u64), u32> = HashMap::new();
    let mut programs = Vec::new();
    let mut program_of = Vec::new();
    let conditions = conditions(pattern);
    for (when, place) in &conditions {
        check_coordinates(when, &world, *place)?;
    }
    for rank in 0..world.size() {
        let selected = conditions.iter().map(|(when, _)| world.selects(when, rank)).collect::<Result<Vec<bool>>>()?;
        let host_skew = pattern.host_skew.get(rank as usize).copied().unwrap_or(1.0);
        let seated = (0..world.axes().len()).map(|axis| world.seat(axis, rank).is_some()).collect();
        let class = (selected, seated, host_skew.to_bits());
        let next = programs.len() as u32;
        let program = match classes.get(&class) {
            Some(program) => *program,
            None => {
                programs.push(Lowering::new(pattern, &world, rank).program()?);
                classes.insert(class, next);
                next
            }
        };
        program_of.push(program);
    }
    let communicators = communicators(pattern, &world, &programs, &program_of)?;
    Ok(Plan::assemble(pattern, world, pattern.lanes.clone(), programs, program_of, communicators))
}

/// Refuses coordinates that no rank has: a condition that selects nobody is a slip.
fn check_coordinates(when: &When, world: &World, place: Place) -> Result<()> {
    for (name, selector) in &when.0 {
        let (Some(axis), Selector::These(all)) = (world.axis(name), selector) else { continue };
        let size = world.teams(axis).iter().map(Vec::len).max().unwrap_or(0);
        if let Some(coordinate) = all.iter().find(|coordinate| **coordinate as usize >= size) {
            return Err(Error::at(
                place,
                format!("`when` asks for coordinate {coordinate} of axis `{name}` of size {size}"),
            )
            .help(format!("coordinates go from 0 to {}", size.saturating_sub(1))));
        }
    }
    Ok(())
}

/// Every condition of the pattern, with its place.
fn conditions(pattern: &Pattern) -> Vec<(&When, Place)> {
    let mut all = Vec::new();
    let mut todo: Vec<&Item> = pattern.schedule.iter().collect();
    todo.extend(pattern.motifs.iter().flat_map(|m| &m.items));
    for role in &pattern.roles {
        all.push((&role.when, role.place));
        todo.extend(&role.schedule);
    }
    while let Some(item) = todo.pop() {
        if !item.when.0.is_empty() {
            all.push((&item.when, item.place));
        }
        if let Step::Repeat { body: Body::Inline(inner), .. } = &item.step {
            todo.extend(inner);
        }
    }
    all
}

/// A schedule for one class of ranks, ready to unroll.
enum Node {
    Issue { block: BlockId, axis: Option<AxisId>, lane: LaneId, label: usize, after: Vec<Target> },
    Wait(Vec<Target>),
    Host(u64),
    Repeat(u64, Vec<Node>),
}

/// A resolved reference: the `back`-th last execution of `label`, counted from 1 for the last one issued.
struct Target {
    label: usize,
    back: usize,
}

/// The sequence around an item while the tree is built.
struct Frame<'a> {
    items: Vec<&'a Item>,
    /// Labels inside each item.
    labels: Vec<HashSet<&'a str>>,
    position: usize,
}

struct Lowering<'a> {
    pattern: &'a Pattern,
    world: &'a World,
    rank: u32,
    label_ids: HashMap<&'a str, usize>,
    frames: Vec<Frame<'a>>,
}

impl<'a> Lowering<'a> {
    fn new(pattern: &'a Pattern, world: &'a World, rank: u32) -> Self {
        Self { pattern, world, rank, label_ids: HashMap::new(), frames: Vec::new() }
    }

    fn program(mut self) -> Result<Program> {
        let schedule = self.schedule()?;
        let mut unrolled = 0;
        let tree = self.sequence(schedule, 1, &mut unrolled)?;
        let host_skew = self.pattern.host_skew.get(self.rank as usize).copied().unwrap_or(1.0);
        let mut unroll = Unroll {
            instructions: Vec::new(),
            history: vec![Vec::new(); self.label_ids.len()],
            instances: HashMap::new(),
            host_skew,
        };
        unroll.sequence(&tree);
        Ok(Program { instructions: unroll.instructions })
    }

    /// The schedule of this rank: the common one, or that of its one role.
    fn schedule(&self) -> Result<&'a [Item]> {
        if self.pattern.roles.is_empty() {
            return Ok(&self.pattern.schedule);
        }
        let mut found = None;
        for role in &self.pattern.roles {
            if !self.world.selects(&role.when, self.rank)? {
                continue;
            }
            if let Some((first, _)) = found.replace((&role.name, &role.schedule)) {
                return Err(Error::at(
                    role.place,
                    format!("rank {} has two roles: `{first}` and `{}`", self.rank, role.name),
                )
                .help("narrow a `when` so that every rank has exactly one"));
            }
        }
        found.map(|(_, schedule)| schedule.as_slice()).ok_or_else(|| {
            let place = self.pattern.roles.first().map(|r| r.place).unwrap_or_default();
            Error::at(place, format!("rank {} has no role", self.rank)).help("widen a `when` or add a role")
        })
    }

    fn sequence(&mut self, items: &'a [Item], times: u64, unrolled: &mut u64) -> Result<Vec<Node>> {
        let mut selected = Vec::new();
        for item in items {
            if self.world.selects(&item.when, self.rank)? {
                selected.push(item);
            }
        }
        let labels = selected.iter().map(|item| self.labels(item)).collect::<Result<_>>()?;
        self.frames.push(Frame { items: selected, labels, position: 0 });
        let mut nodes = Vec::new();
        let mut inside = 0;
        while let Some(item) = self.here() {
            nodes.push(self.item(item, &mut inside)?);
            if let Some(frame) = self.frames.last_mut() {
                frame.position += 1;
            }
        }
        self.frames.pop();
        *unrolled = inside.saturating_mul(times).saturating_add(*unrolled);
        Ok(nodes)
    }

    fn here(&self) -> Option<&'a Item> {
        let frame = self.frames.last()?;
        frame.items.get(frame.position).copied()
    }

    fn item(&mut self, item: &'a Item, unrolled: &mut u64) -> Result<Node> {
        *unrolled += 1;
        let node = match &item.step {
            Step::Host(ns) => Node::Host(*ns),
            Step::Wait(all) => Node::Wait(self.targets(all, None, item.place)?),
            Step::Repeat { times, body } => {
                let items = self.body(body);
                Node::Repeat(*times, self.sequence(items, *times, unrolled)?)
            }
            Step::Run { block, on, lane, label, after } => {
                let label = label.as_deref().unwrap_or(block);
                let id = self.pattern.blocks.iter().position(|b| b.name == *block).unwrap_or_default();
                let axis = match on {
                    None => None,
                    Some(name) => Some(self.seat(name, block, item.place)?),
                };
                let lane = match lane {
                    None => 0,
                    Some(name) => self.pattern.lanes.iter().position(|l| l.name == *name).unwrap_or_default(),
                };
                let after = self.targets(after, Some(label), item.place)?;
                Node::Issue { block: id as BlockId, axis, lane: lane as LaneId, label: self.label_id(label), after }
            }
        };
        if *unrolled > MOST_INSTRUCTIONS {
            return Err(Error::at(item.place, format!("the schedule unrolls to more than {MOST_INSTRUCTIONS} items"))
                .help("repeat less; `replay --iterations` repeats the whole step"));
        }
        Ok(node)
    }

    fn body(&self, body: &'a Body) -> &'a [Item] {
        match body {
            Body::Inline(items) => items,
            Body::Motif(name) => {
                self.pattern.motifs.iter().find(|m| m.name == *name).map(|m| m.items.as_slice()).unwrap_or_default()
            }
        }
    }

    /// The axis of this name, on which this rank must have a team.
    fn seat(&self, name: &str, block: &str, place: Place) -> Result<AxisId> {
        let axis = self.world.axis(name).unwrap_or_default();
        if self.world.seat(axis, self.rank).is_some() {
            return Ok(axis as AxisId);
        }
        Err(Error::at(place, format!("rank {} runs `{block}` on axis `{name}` but is in none of its teams", self.rank))
            .help("add `when` so that only members run it, or list the rank in a team"))
    }

    fn label_id(&mut self, label: &'a str) -> usize {
        let next = self.label_ids.len();
        *self.label_ids.entry(label).or_insert(next)
    }

    /// Labels that `item` and what it contains carry, for this rank.
    fn labels(&self, item: &'a Item) -> Result<HashSet<&'a str>> {
        let mut labels = HashSet::new();
        let mut todo = vec![item];
        while let Some(item) = todo.pop() {
            if !self.world.selects(&item.when, self.rank)? {
                continue;
            }
            match &item.step {
                Step::Run { block, label, .. } => {
                    labels.insert(label.as_deref().unwrap_or(block));
                }
                Step::Repeat { body, .. } => todo.extend(self.body(body)),
                Step::Host(_) | Step::Wait(_) => {}
            }
        }
        Ok(labels)
    }

    /// Resolves the references of an item labelled `own`.
    fn targets(&mut self, all: &'a [Reference], own: Option<&'a str>, place: Place) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        for reference in all {
            let label = reference.label.as_str();
            let ahead = match self.position_of(label) {
                // This rank never runs it: nothing to wait for.
                None => continue,
                Some(ahead) => ahead,
            };
            if ahead && reference.back == 0 {
                return Err(self.circle(label, own, place));
            }
            let back = reference.back as usize + usize::from(!ahead);
            targets.push(Target { label: self.label_id(label), back });
        }
        Ok(targets)
    }

    /// Whether the `label` of this iteration is still ahead (or is the item itself): looks in the innermost sequence
    /// that holds any. `None` if no sequence around does.
    fn position_of(&self, label: &str) -> Option<bool> {
        for frame in self.frames.iter().rev() {
            let holds = |range: &[HashSet<&str>]| range.iter().any(|labels| labels.contains(label));
            if holds(&frame.labels[..frame.position]) {
                return Some(false);
            }
            if holds(&frame.labels[frame.position..]) {
                return Some(true);
            }
        }
        None
    }

    /// The error for a reference to something that only comes later, naming the circle if there is one.
    fn circle(&self, label: &str, own: Option<&str>, place: Place) -> Error {
        let help = format!("{label}[-1] is the one of the iteration before");
        let Some(own) = own else {
            return Error::at(place, format!("the host waits for `{label}`, which only comes later")).help(help);
        };
        match self.way(label, own) {
            Some(way) => {
                let way: Vec<&str> = [own].into_iter().chain(way).collect();
                Error::at(place, format!("`after` goes in a cycle: {}", way.join(" -> "))).help(help)
            }
            None => Error::at(place, format!("`{own}` waits for `{label}`, which only comes later")).help(help),
        }
    }

    /// A chain of `after` from label `from` to label `to` among the items of the innermost sequence.
    fn way(&self, from: &str, to: &str) -> Option<Vec<&'a str>> {
        let frame = self.frames.last()?;
        let mut edges: HashMap<&str, Vec<&'a str>> = HashMap::new();
        for item in &frame.items {
            if let Step::Run { block, label, after, .. } = &item.step {
                let label = label.as_deref().unwrap_or(block);
                let now = after.iter().filter(|r| r.back == 0).map(|r| r.label.as_str());
                edges.entry(label).or_default().extend(now);
            }
        }
        let start = frame.labels.iter().flatten().find(|l| **l == from).copied()?;
        let mut todo = vec![vec![start]];
        let mut seen = HashSet::from([start]);
        while let Some(way) = todo.pop() {
            let last = *way.last()?;
            if last == to {
                return Some(way);
            }
            for next in edges.get(last).into_iter().flatten() {
                if seen.insert(next) {
                    todo.push(way.iter().copied().chain([*next]).collect());
                }
            }
        }
        None
    }
}

/// Unrolls a tree.
struct Unroll {
    instructions: Vec<Instruction>,
    /// Per label, the indices of the instructions that issued it.
    history: Vec<Vec<u32>>,
    instances: HashMap<BlockId, u32>,
    /// Factor on host time.
    host_skew: f64,
}

impl Unroll {
    fn sequence(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Host(ns) => {
                    let ns = (*ns as f64 * self.host_skew).round() as u64;
                    self.instructions.push(Instruction::Host(ns));
                }
                Node::Repeat(times, inner) => (0..*times).for_each(|_| self.sequence(inner)),
                Node::Wait(targets) => {
                    let waits: Vec<u32> = targets.iter().filter_map(|t| self.find(t)).collect();
                    self.instructions.extend(waits.into_iter().map(Instruction::Wait));
                }
                Node::Issue { block, axis, lane, label, after } => {
                    let instance = self.instances.entry(*block).or_default();
                    let this = *instance;
                    *instance += 1;
                    let after = self.after(after, *lane);
                    self.history[*label].push(self.instructions.len() as u32);
                    self.instructions.push(Instruction::Issue {
                        block: *block,
                        axis: *axis,
                        lane: *lane,
                        after,
                        instance: this,
                    });
                }
            }
        }
    }

    fn find(&self, target: &Target) -> Option<u32> {
        let history = &self.history[target.label];
        history.len().checked_sub(target.back).and_then(|i| history.get(i)).copied()
    }

    /// Ascending, and without those that the lane's own order already gives.
    fn after(&self, targets: &[Target], lane: LaneId) -> Vec<u32> {
        let mut after: Vec<u32> = targets
            .iter()
            .filter_map(|t| self.find(t))
            .filter(|i| !matches!(self.instructions[*i as usize], Instruction::Issue { lane: l, .. } if l == lane))
            .collect();
        after.sort_unstable();
        after.dedup();
        after
    }
}

/// Every communicator that the programs need, and a check of each block against every team that runs it.
fn communicators(
    pattern: &Pattern,
    world: &World,
    programs: &[Program],
    program_of: &[u32],
) -> Result<Vec<Communicator>> {
    // (axis, team, lane) in that order is the one global order in which communicators are created.
    let mut wanted: BTreeSet<(AxisId, u32, LaneId)> = BTreeSet::new();
    let mut checked: HashSet<(BlockId, usize)> = HashSet::new();
    let uses: Vec<HashSet<(BlockId, AxisId, LaneId)>> = programs.iter().map(uses).collect();
    for (rank, program) in program_of.iter().enumerate() {
        for &(block, axis, lane) in &uses[*program as usize] {
            let Some((team, _)) = world.seat(axis as usize, rank as u32) else { continue };
            wanted.insert((axis, team, lane));
            let ranks = world.teams(axis as usize)[team as usize].len();
            if checked.insert((block, ranks)) {
                check_block(&pattern.blocks[block as usize], ranks)?;
            }
        }
    }
    Ok(wanted
        .into_iter()
        .map(|(axis, team, lane)| Communicator {
            axis,
            team,
            lane,
            ranks: world.teams(axis as usize)[team as usize].clone(),
            settings: merged(&world.axes()[axis as usize].settings, &pattern.lanes[lane as usize].settings),
        })
        .collect())
}

fn uses(program: &Program) -> HashSet<(BlockId, AxisId, LaneId)> {
    program
        .instructions
        .iter()
        .filter_map(|instruction| match instruction {
            Instruction::Issue { block, axis: Some(axis), lane, .. } => Some((*block, *axis, *lane)),
            Instruction::Issue { .. } | Instruction::Wait(_) | Instruction::Host(_) => None,
        })
        .collect()
}

fn check_block(block: &crate::Block, ranks: usize) -> Result<()> {
    let check = |c: &Collective| c.check_team(block.place, &block.name, ranks);
    match &block.work {
        Work::Collective(collective) => check(collective),
        Work::Group(all) => all.iter().try_for_each(check),
        Work::P2p { transfers, .. } => {
            for transfer in transfers {
                let unit = transfer.dtype.bytes();
                if !transfer.size.is_multiple_of(unit) {
                    return Err(Error::at(
                        block.place,
                        format!(
                            "block `{}`: a transfer of {} B is not whole {} elements of {unit} B",
                            block.name,
                            transfer.size,
                            transfer.dtype.name()
                        ),
                    )
                    .help(format!("the nearest size that is, is {}", (transfer.size / unit).max(1) * unit)));
                }
            }
            Ok(())
        }
        Work::Compute(_) | Work::Cuda(_) => Ok(()),
    }
}

/// The axis' settings, overridden by the lane's.
fn merged(axis: &CommSettings, lane: &CommSettings) -> CommSettings {
    CommSettings {
        min_ctas: lane.min_ctas.or(axis.min_ctas),
        max_ctas: lane.max_ctas.or(axis.max_ctas),
        traffic_class: lane.traffic_class.or(axis.traffic_class),
        algorithm: lane.algorithm.clone().or_else(|| axis.algorithm.clone()),
        protocol: lane.protocol.clone().or_else(|| axis.protocol.clone()),
        nvls: lane.nvls.or(axis.nvls),
        sharp: lane.sharp.or(axis.sharp),
    }
}
