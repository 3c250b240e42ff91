//! Pattern x World -> programs and communicators.
//!
//! Three steps. Ranks are put into classes that do the same, host times aside. Then every schedule becomes a tree for
//! one class: conditions decided, motifs put in place, names turned into indices, references resolved against the
//! sequences around them. Then the tree is unrolled. What a reference means depends only on where it stands, so it is
//! decided once, however often its loop goes round.
//!
//! What a sequence unrolls to is counted before any tree is built: a few motifs that do each other twice stand for
//! more items than fit anywhere.

use std::collections::HashMap;
use std::rc::Rc;

use crate::classes::classes;
use crate::communicators::communicators;
use crate::{
    AxisId, BlockId, Body, Error, Instruction, Item, LaneId, Pattern, Place, Plan, Program, Reference, Result, Step,
    World,
};

/// Longest program that a pattern may unroll to, every reference counted as an instruction of its own.
const MOST_INSTRUCTIONS: u64 = 10_000_000;

/// Most instructions of all distinct programs together, counted likewise: some 4 GiB.
const MOST_IN_ALL: u64 = 1 << 26;

/// A lowered plan, not checked for order yet.
pub(crate) struct Lowered {
    pub plan: Plan,
    /// Per rank, its class: ranks of one class have programs that differ in host times only.
    pub class_of: Vec<u32>,
}

/// Lowers `pattern`, whose names have been checked.
pub(crate) fn lower(pattern: &Pattern, world: World) -> Result<Lowered> {
    let skews = pattern.blocks.iter().map(|b| (format!("skew of block `{}`", b.name), &b.skew, b.place));
    for (what, factors, place) in skews.chain([("host_skew".to_owned(), &pattern.host_skew, Place::default())]) {
        if !factors.is_empty() && factors.len() != world.size() as usize {
            return Err(Error::at(place, format!("{what} has {} factors for {} ranks", factors.len(), world.size()))
                .help("give one a rank, or take all ranks as alike (--even, or remove it)"));
        }
    }
    let (class_of, first_ranks) = classes(pattern, &world)?;
    let names = Names::new(pattern);
    let mut lowerings = Vec::new();
    let mut counts = Vec::new();
    for rank in first_ranks {
        let mut lowering = Lowering::new(pattern, &names, &world, rank)?;
        counts.push(lowering.unrolled()?);
        lowerings.push(lowering);
    }
    // Ranks of one class with hosts alike share a program.
    let mut numbers: HashMap<(u32, u64), u32> = HashMap::new();
    let mut wanted = Vec::new();
    let mut program_of = Vec::new();
    for (rank, class) in class_of.iter().enumerate() {
        let host_skew = pattern.host_skew.get(rank).copied().unwrap_or(1.0);
        let next = wanted.len() as u32;
        let number = *numbers.entry((*class, host_skew.to_bits())).or_insert(next);
        if number == next {
            wanted.push((*class as usize, host_skew));
        }
        program_of.push(number);
    }
    let in_all = wanted.iter().fold(0u64, |sum, (class, _)| sum.saturating_add(counts[*class]));
    if in_all > MOST_IN_ALL {
        return Err(Error::at(
            Place::default(),
            format!("the {} distinct programs unroll to {in_all} items; the most is {MOST_IN_ALL}", wanted.len()),
        )
        .help("repeat less, or take all hosts as alike (--even)"));
    }
    let mut unscaled = lowerings.into_iter().map(Lowering::instructions).collect::<Result<Vec<_>>>()?;
    let communicators = communicators(pattern, &world, &unscaled, &class_of)?;
    let programs = scaled(&mut unscaled, &wanted);
    let plan = Plan::assemble(pattern, world, pattern.lanes.clone(), programs, program_of, communicators);
    Ok(Lowered { plan, class_of })
}

/// The programs that are `wanted`, each as its class with all host times multiplied by a factor.
fn scaled(unscaled: &mut [Vec<Instruction>], wanted: &[(usize, f64)]) -> Vec<Program> {
    let mut left = vec![0; unscaled.len()];
    wanted.iter().for_each(|(class, _)| left[*class] += 1);
    let mut programs = Vec::with_capacity(wanted.len());
    for (class, factor) in wanted {
        left[*class] -= 1;
        // The last one takes the original, which for most patterns is the only one.
        let mut instructions =
            if left[*class] == 0 { std::mem::take(&mut unscaled[*class]) } else { unscaled[*class].clone() };
        for instruction in &mut instructions {
            if let Instruction::Host(ns) = instruction {
                *ns = (*ns as f64 * factor).round() as u64;
            }
        }
        programs.push(Program { instructions });
    }
    programs
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

/// A sequence as one class of ranks sees it.
struct Sequence<'a> {
    /// What the class runs of it, without what unrolls to nothing.
    items: Vec<&'a Item>,
    /// Every label inside, with the position of the first item that holds it.
    first: HashMap<&'a str, usize>,
}

/// The sequence around an item while the tree is built.
struct Frame<'a> {
    sequence: Rc<Sequence<'a>>,
    position: usize,
}

/// Where names lead.
struct Names<'a> {
    blocks: HashMap<&'a str, BlockId>,
    lanes: HashMap<&'a str, LaneId>,
    motifs: HashMap<&'a str, &'a [Item]>,
}

impl<'a> Names<'a> {
    fn new(pattern: &'a Pattern) -> Self {
        Self {
            blocks: pattern.blocks.iter().zip(0..).map(|(block, id)| (block.name.as_str(), id)).collect(),
            lanes: pattern.lanes.iter().zip(0..).map(|(lane, id)| (lane.name.as_str(), id)).collect(),
            motifs: pattern.motifs.iter().map(|motif| (motif.name.as_str(), motif.items.as_slice())).collect(),
        }
    }
}

/// Recursion here is as deep as sequences nest, which the check of names has bounded.
struct Lowering<'a> {
    names: &'a Names<'a>,
    world: &'a World,
    rank: u32,
    schedule: &'a [Item],
    label_ids: HashMap<&'a str, usize>,
    /// What sequences unroll to. A sequence is known by where its items lie.
    counts: HashMap<*const Item, u64>,
    sequences: HashMap<*const Item, Rc<Sequence<'a>>>,
    frames: Vec<Frame<'a>>,
}

impl<'a> Lowering<'a> {
    fn new(pattern: &'a Pattern, names: &'a Names<'a>, world: &'a World, rank: u32) -> Result<Self> {
        Ok(Self {
            names,
            world,
            rank,
            schedule: schedule(pattern, world, rank)?,
            label_ids: HashMap::new(),
            counts: HashMap::new(),
            sequences: HashMap::new(),
            frames: Vec::new(),
        })
    }

    /// What the schedule unrolls to.
    fn unrolled(&mut self) -> Result<u64> {
        let mut total = 0u64;
        for item in self.schedule {
            total = total.saturating_add(self.count_item(item)?);
            if total > MOST_INSTRUCTIONS {
                return Err(Error::at(
                    item.place,
                    format!("the schedule unrolls to more than {MOST_INSTRUCTIONS} items"),
                )
                .help("repeat less; `replay --iterations` repeats the whole step"));
            }
        }
        Ok(total)
    }

    fn count(&mut self, items: &'a [Item]) -> Result<u64> {
        if let Some(known) = self.counts.get(&items.as_ptr()) {
            return Ok(*known);
        }
        let mut total = 0u64;
        for item in items {
            total = total.saturating_add(self.count_item(item)?);
        }
        self.counts.insert(items.as_ptr(), total);
        Ok(total)
    }

    /// References count as items: each becomes a host wait, or an entry in a list of what to wait for.
    fn count_item(&mut self, item: &'a Item) -> Result<u64> {
        if !self.world.selects(&item.when, self.rank)? {
            return Ok(0);
        }
        Ok(match &item.step {
            Step::Run { after, .. } => 1 + after.len() as u64,
            Step::Wait(all) => all.len() as u64,
            Step::Host(_) => 1,
            Step::Repeat { times, body } => self.count(self.body(body))?.saturating_mul(*times),
        })
    }

    fn instructions(mut self) -> Result<Vec<Instruction>> {
        let tree = self.sequence(self.schedule)?;
        let mut unroll = Unroll {
            instructions: Vec::new(),
            history: vec![Vec::new(); self.label_ids.len()],
            instances: vec![0; self.names.blocks.len()],
        };
        unroll.sequence(&tree);
        Ok(unroll.instructions)
    }

    fn sequence(&mut self, items: &'a [Item]) -> Result<Vec<Node>> {
        let sequence = self.seen(items)?;
        self.frames.push(Frame { sequence: sequence.clone(), position: 0 });
        let mut nodes = Vec::with_capacity(sequence.items.len());
        for item in &sequence.items {
            nodes.push(self.item(item)?);
            if let Some(frame) = self.frames.last_mut() {
                frame.position += 1;
            }
        }
        self.frames.pop();
        Ok(nodes)
    }

    /// `items` as this class sees them.
    fn seen(&mut self, items: &'a [Item]) -> Result<Rc<Sequence<'a>>> {
        if let Some(known) = self.sequences.get(&items.as_ptr()) {
            return Ok(known.clone());
        }
        let mut sequence = Sequence { items: Vec::new(), first: HashMap::new() };
        for item in items {
            // Nothing inside: not run here, or a loop of nothing, which may go round very often.
            if self.count_item(item)? == 0 {
                continue;
            }
            let position = sequence.items.len();
            sequence.items.push(item);
            match &item.step {
                Step::Run { block, label, .. } => {
                    sequence.first.entry(label.as_deref().unwrap_or(block)).or_insert(position);
                }
                Step::Repeat { body, .. } => {
                    for label in self.seen(self.body(body))?.first.keys() {
                        sequence.first.entry(label).or_insert(position);
                    }
                }
                Step::Host(_) | Step::Wait(_) => {}
            }
        }
        let sequence = Rc::new(sequence);
        self.sequences.insert(items.as_ptr(), sequence.clone());
        Ok(sequence)
    }

    fn item(&mut self, item: &'a Item) -> Result<Node> {
        Ok(match &item.step {
            Step::Host(ns) => Node::Host(*ns),
            Step::Wait(all) => Node::Wait(self.targets(all, None, item.place)?),
            Step::Repeat { times, body } => Node::Repeat(*times, self.sequence(self.body(body))?),
            Step::Run { block, on, lane, label, after } => {
                let label = label.as_deref().unwrap_or(block);
                let id = self.names.blocks.get(block.as_str()).copied().unwrap_or_default();
                let axis = match on {
                    None => None,
                    Some(name) => Some(self.seat(name, block, item.place)?),
                };
                let lane = lane.as_deref().and_then(|name| self.names.lanes.get(name)).copied().unwrap_or_default();
                let after = self.targets(after, Some(label), item.place)?;
                Node::Issue { block: id, axis, lane, label: self.label_id(label), after }
            }
        })
    }

    fn body(&self, body: &'a Body) -> &'a [Item] {
        match body {
            Body::Inline(items) => items,
            Body::Motif(name) => self.names.motifs.get(name.as_str()).copied().unwrap_or_default(),
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
        let mut around = self.frames.iter().rev();
        around.find_map(|frame| frame.sequence.first.get(label).map(|first| *first >= frame.position))
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
        let sequence = &self.frames.last()?.sequence;
        let mut edges: HashMap<&str, Vec<&'a str>> = HashMap::new();
        for item in &sequence.items {
            if let Step::Run { block, label, after, .. } = &item.step {
                let label = label.as_deref().unwrap_or(block);
                let now = after.iter().filter(|r| r.back == 0).map(|r| r.label.as_str());
                edges.entry(label).or_default().extend(now);
            }
        }
        let (start, _) = sequence.first.get_key_value(from)?;
        let mut came_from: HashMap<&str, Option<&'a str>> = HashMap::from([(*start, None)]);
        let mut todo = vec![*start];
        while let Some(label) = todo.pop() {
            if label == to {
                let mut way: Vec<&str> =
                    std::iter::successors(Some(label), |l| came_from.get(l).copied().flatten()).collect();
                way.reverse();
                return Some(way);
            }
            for next in edges.get(label).into_iter().flatten() {
                if !came_from.contains_key(next) {
                    came_from.insert(next, Some(label));
                    todo.push(next);
                }
            }
        }
        None
    }
}

/// The schedule of `rank`: the common one, or that of its one role.
fn schedule<'a>(pattern: &'a Pattern, world: &World, rank: u32) -> Result<&'a [Item]> {
    if pattern.roles.is_empty() {
        return Ok(&pattern.schedule);
    }
    let mut found = None;
    for role in &pattern.roles {
        if !world.selects(&role.when, rank)? {
            continue;
        }
        if let Some((first, _)) = found.replace((&role.name, &role.schedule)) {
            return Err(Error::at(role.place, format!("rank {rank} has two roles: `{first}` and `{}`", role.name))
                .help("narrow a `when` so that every rank has exactly one"));
        }
    }
    found.map(|(_, schedule)| schedule.as_slice()).ok_or_else(|| {
        let place = pattern.roles.first().map(|r| r.place).unwrap_or_default();
        Error::at(place, format!("rank {rank} has no role")).help("widen a `when` or add a role")
    })
}

/// Unrolls a tree.
struct Unroll {
    instructions: Vec<Instruction>,
    /// Per label, the indices of the instructions that issued it.
    history: Vec<Vec<u32>>,
    /// Per block, how often it was issued.
    instances: Vec<u32>,
}

impl Unroll {
    fn sequence(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Host(ns) => self.instructions.push(Instruction::Host(*ns)),
                Node::Repeat(times, inner) => (0..*times).for_each(|_| self.sequence(inner)),
                Node::Wait(targets) => {
                    let waits: Vec<u32> = targets.iter().filter_map(|t| self.find(t)).collect();
                    self.instructions.extend(waits.into_iter().map(Instruction::Wait));
                }
                Node::Issue { block, axis, lane, label, after } => {
                    let instance = &mut self.instances[*block as usize];
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
