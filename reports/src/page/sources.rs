//! The runs of a page with the names that people read, and the blocks of all of them together.

use std::collections::HashMap;

use serde::Serialize;

use crate::{Origin, Role, Run};

/// A run with its names.
pub(super) struct Source<'a> {
    pub run: &'a Run,
    /// What it is to the others: `captured`, `replayed`, `before`, `after`; with many, its id.
    pub role: String,
    /// What is drawn beside its lines: the role, and its id where that says more.
    pub label: String,
}

impl<'a> Source<'a> {
    /// Names for `runs`, which are in the order of the page.
    pub fn all(runs: &'a [Run]) -> Vec<Self> {
        let captured = |run: &Run| run.info.made_by == Origin::Import;
        let captures = runs.iter().filter(|run| captured(run)).count();
        let others = runs.len() - captures;
        let mut pair = ["before", "after"].into_iter();
        runs.iter()
            .map(|run| {
                let id = &run.info.id;
                let role = match (captured(run), captures, others) {
                    (true, 1, _) | (false, _, 1) => Some(run.info.made_by.participle()),
                    (true, 2, 0) | (false, _, 2) => pair.next(),
                    _ => None,
                };
                let role = role.unwrap_or(id).to_owned();
                let label = if *id == role { role.clone() } else { format!("{role} ({id})") };
                Self { run, role, label }
            })
            .collect()
    }

    /// Which of `all` the headline speaks of, and which one it is compared with: the last run, and the one before it
    /// that it has a role to (captured, before). Of more than two other runs nobody said which is which.
    pub fn subject(all: &[Self]) -> (usize, Option<usize>) {
        let last = all.len() - 1;
        let others = all.iter().filter(|source| source.run.info.made_by != Origin::Import).count();
        let pair = all.len() == 2 || (others == 2 && all.len() <= 3);
        (last, (pair && last > 0).then(|| last - 1))
    }
}

/// A block on an axis, as a row of the table `blocks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Block {
    pub name: String,
    pub axis: Option<String>,
    pub kind: &'static str,
    pub role: &'static str,
}

/// The blocks of all runs, each once, in the order of the patterns.
#[derive(Default)]
pub(super) struct Blocks {
    pub all: Vec<Block>,
    index: HashMap<(String, Option<String>), usize>,
    /// Per run, by its own numbers of block and axis.
    of_run: Vec<HashMap<(u32, Option<u32>), usize>>,
}

impl Blocks {
    pub fn of(sources: &[Source<'_>]) -> Self {
        let mut this = Self::default();
        for source in sources {
            let columns = source.run.measurements();
            let mut used: Vec<(u32, Option<u32>)> =
                columns.block.iter().copied().zip(columns.axis.iter().copied()).collect();
            used.sort_unstable();
            used.dedup();
            let mut of_run = HashMap::new();
            for (block, axis) in used {
                let work = &source.run.pattern.blocks[block as usize].work;
                let name = columns.blocks.name(block).to_string();
                let axis_name = axis.map(|axis| columns.axes.name(axis).to_string());
                let next = this.all.len();
                let index = *this.index.entry((name.clone(), axis_name.clone())).or_insert(next);
                if index == next {
                    this.all.push(Block { name, axis: axis_name, kind: work.kind(), role: role(Role::of(work)) });
                }
                of_run.insert((block, axis), index);
            }
            this.of_run.push(of_run);
        }
        this
    }

    /// The page's number of what the measurement in `row` of run number `run` executed.
    pub fn number(&self, sources: &[Source<'_>], run: usize, row: usize) -> usize {
        let columns = sources[run].run.measurements();
        // Every pair was listed when `self` was made of these sources.
        self.of_run[run][&(columns.block[row], columns.axis[row])]
    }

    /// The number of the block of these names, if any run has it.
    pub fn named(&self, name: &str, axis: Option<&str>) -> Option<usize> {
        self.index.get(&(name.to_owned(), axis.map(str::to_owned))).copied()
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Communication => "comm",
        Role::Compute => "compute",
        Role::Neither => "copy",
    }
}
