//! How far off the executions of a replay are from the captured ones, pair by pair.

use std::collections::{BTreeMap, HashMap};

use maestro_pattern::State;

use super::axis_text;
use crate::tables::frame::ms;
use crate::{Role, Run, Value};

/// Executions of both sides, pair by pair.
#[derive(Clone, Copy, Default)]
pub(super) struct Pairs {
    matched: u64,
    unmatched: u64,
    starts_ns: u64,
    ends_ns: u64,
}

impl Pairs {
    fn add(&mut self, other: &Self) {
        self.matched += other.matched;
        self.unmatched += other.unmatched;
        self.starts_ns += other.starts_ns;
        self.ends_ns += other.ends_ns;
    }

    pub(super) fn values(&self) -> [(&'static str, Value); 4] {
        let mean = |ns: u64| ms((self.matched > 0).then(|| ns as f64 / self.matched as f64));
        [
            ("start_error_ms", mean(self.starts_ns)),
            ("end_error_ms", mean(self.ends_ns)),
            ("matched", Value::Integer(self.matched)),
            ("unmatched", Value::Integer(self.unmatched)),
        ]
    }
}

/// An execution of an iteration: rank, block, axis, instance.
type Key<'a> = (u32, &'a str, Option<&'a str>, u32);

/// How far off the executions of a run are from the captured ones.
pub(super) struct Errors<'a> {
    pub blocks: BTreeMap<(&'a str, Option<&'a str>), Pairs>,
    pub communication: Pairs,
}

impl<'a> Errors<'a> {
    pub(super) fn of(run: &'a Run, captured: &'a Run) -> Self {
        let (ours, theirs) = (typical(run), typical(captured));
        let mut blocks: BTreeMap<(&str, Option<&str>), Pairs> = BTreeMap::new();
        for (key, (start, end)) in &ours {
            let pairs = blocks.entry((key.1, key.2)).or_default();
            match theirs.get(key) {
                Some((other_start, other_end)) => {
                    pairs.matched += 1;
                    pairs.starts_ns += start.abs_diff(*other_start);
                    pairs.ends_ns += end.abs_diff(*other_end);
                }
                None => pairs.unmatched += 1,
            }
        }
        for key in theirs.keys().filter(|key| !ours.contains_key(*key)) {
            blocks.entry((key.1, key.2)).or_default().unmatched += 1;
        }
        let communicates =
            |name: &str| run.pattern.blocks.iter().any(|b| b.name == name && Role::of(&b.work) == Role::Communication);
        let mut communication = Pairs::default();
        blocks.iter().filter(|((name, _), _)| communicates(name)).for_each(|(_, pairs)| communication.add(pairs));
        Self { blocks, communication }
    }
}

/// Starts and ends of the iteration of median length, the lower of two.
fn typical(run: &Run) -> HashMap<Key<'_>, (u64, u64)> {
    let columns = run.measurements();
    let mut lengths: Vec<(u64, u32, u32)> = run
        .exposure()
        .iterations()
        .filter_map(|ranks| Some((ranks.iter().map(|r| r.figures.span_ns).max()?, ranks[0].round, ranks[0].iteration)))
        .collect();
    lengths.sort_unstable();
    let Some(&(_, round, iteration)) = lengths.get(lengths.len().saturating_sub(1) / 2) else { return HashMap::new() };
    (0..columns.len())
        .filter(|row| columns.state[*row] == State::Overlapped)
        .filter(|row| (columns.round[*row], columns.iteration[*row]) == (round, iteration))
        .map(|row| {
            let block = run.pattern.blocks[columns.block[row] as usize].name.as_str();
            let key = (columns.rank[row], block, axis_text(run, columns.axis[row]), columns.instance[row]);
            (key, (columns.start_ns[row], columns.end_ns[row]))
        })
        .collect()
}
