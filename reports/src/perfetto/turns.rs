//! Where on the timeline each turn of the runs stands.
//!
//! Measurements count from the start of their iteration, so all iterations begin at 0 and somebody must lay them in a
//! row. They are laid in the order in which a run makes them: round by round, the step first, then each block alone, and
//! within a turn iteration by iteration. Every run gets the same places, so that the n-th step of all of them begins at
//! the same instant, whichever was longer. How much time truly passed between two iterations is not recorded; here it is
//! a twentieth of the one before.

use std::collections::{BTreeMap, HashMap};

use maestro_pattern::{Measurement, State};

use super::Traced;

/// Share of an iteration's length that is left free behind it: 1 / GAP.
const GAP: u64 = 20;

/// Round, turn of the round (0 is the step) and iteration.
pub type Key = (u32, u32, u32);
/// Block, axis and lane of a turn alone.
type Use<'a> = (&'a str, Option<&'a str>, &'a str);

/// The places of all turns.
pub struct Turns<'a> {
    /// The turns alone, from 1.
    alone: HashMap<Use<'a>, u32>,
    offset_ns: BTreeMap<Key, u64>,
}

impl<'a> Turns<'a> {
    /// Lays out the turns of all runs.
    pub fn of(all: &'a [Traced<'_>]) -> Self {
        let mut this = Self { alone: HashMap::new(), offset_ns: BTreeMap::new() };
        for traced in all {
            let alone = traced.measurements.iter().filter(|m| m.state == State::Alone);
            let mut uses: Vec<(usize, Use<'a>)> = alone.map(|m| (traced.block(&m.block), used(m))).collect();
            uses.sort_unstable();
            uses.dedup();
            for (_, used) in uses {
                let next = this.alone.len() as u32 + 1;
                this.alone.entry(used).or_insert(next);
            }
        }
        let mut length_ns: BTreeMap<Key, u64> = BTreeMap::new();
        for m in all.iter().flat_map(|traced| traced.measurements.iter()) {
            let length = length_ns.entry(this.key(m)).or_default();
            *length = m.end_ns.max(*length);
        }
        let mut next_ns = 0u64;
        for (key, length) in length_ns {
            this.offset_ns.insert(key, next_ns);
            // Times come from files: whatever they say, nothing overflows.
            next_ns = next_ns.saturating_add(length).saturating_add(length / GAP + 1);
        }
        this
    }

    /// The turn and iteration that `m` belongs to.
    pub fn key(&self, m: &Measurement) -> Key {
        let turn = match m.state {
            State::Overlapped => 0,
            State::Alone => self.alone.get(&used(m)).copied().unwrap_or_default(),
        };
        (m.round, turn, m.iteration)
    }

    /// When that begins on the timeline.
    pub fn offset_ns(&self, key: Key) -> u64 {
        self.offset_ns.get(&key).copied().unwrap_or_default()
    }
}

fn used(m: &Measurement) -> Use<'_> {
    (&m.block, m.axis.as_deref(), &m.lane)
}
