//! The measurements of a run, column by column.
//!
//! A million-step run has tens of millions of executions; as rows with their names they would not fit, as columns of
//! plain integers they do. Blocks and axes are indices into the pattern's and the world's lists, so a table that is
//! sorted by block is in the pattern's order. What may be missing is not an `Option` (16 bytes) but a number with one
//! value set aside ([`Nullable`], 8 bytes).

use std::collections::HashMap;
use std::sync::Arc;

use maestro_pattern::{Measurement, Pattern, State, World};

/// A column of numbers some of which are missing.
///
/// `u64::MAX` stands for a missing one: as nanoseconds it is 584 years, as bytes more than any memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nullable(Vec<u64>);

impl Nullable {
    const MISSING: u64 = u64::MAX;

    /// A column of `rows` missing numbers.
    pub(crate) fn missing(rows: usize) -> Self {
        Self(vec![Self::MISSING; rows])
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of a row; `None` if it is missing. Panics beyond the end.
    pub fn get(&self, row: usize) -> Option<u64> {
        Some(self.0[row]).filter(|value| *value != Self::MISSING)
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = Option<u64>> {
        self.0.iter().map(|value| Some(*value).filter(|value| *value != Self::MISSING))
    }

    pub(crate) fn push(&mut self, value: Option<u64>) {
        self.0.push(value.unwrap_or(Self::MISSING));
    }

    pub(crate) fn set(&mut self, row: usize, value: u64) {
        self.0[row] = value;
    }
}

/// Names that occur in a column, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    all: Vec<Arc<str>>,
    index: HashMap<Arc<str>, u32>,
}

impl Names {
    fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut this = Self::default();
        for name in names {
            this.intern(name);
        }
        this
    }

    /// The index of a name that must be known; `what` it names is for the message.
    pub(crate) fn known(&self, what: &str, name: &str) -> Result<u32, String> {
        self.index.get(name).copied().ok_or_else(|| format!("the pattern has no {what} `{name}`"))
    }

    /// The index of a name, new or known.
    pub(crate) fn intern(&mut self, name: &str) -> u32 {
        if let Some(index) = self.index.get(name) {
            return *index;
        }
        let (name, index): (Arc<str>, u32) = (name.into(), self.all.len() as u32);
        self.all.push(name.clone());
        self.index.insert(name, index);
        index
    }

    /// The name of an index that came from here.
    pub(crate) fn name(&self, index: u32) -> &Arc<str> {
        &self.all[index as usize]
    }
}

/// The measurements of a run, column by column. All columns have the same length.
#[derive(Clone, Debug)]
pub struct Columns {
    pub(crate) blocks: Names,
    pub(crate) axes: Names,
    pub(crate) lanes: Names,
    pub(crate) ranks: u32,
    pub(crate) round: Vec<u32>,
    pub(crate) iteration: Vec<u32>,
    pub(crate) rank: Vec<u32>,
    /// Index into the pattern's blocks.
    pub(crate) block: Vec<u32>,
    /// Index into the world's axes.
    pub(crate) axis: Vec<Option<u32>>,
    /// Index into `lanes`.
    pub(crate) lane: Vec<u32>,
    pub(crate) instance: Vec<u32>,
    pub(crate) state: Vec<State>,
    pub(crate) start_ns: Vec<u64>,
    pub(crate) end_ns: Vec<u64>,
    pub(crate) wait_ns: Nullable,
    pub(crate) transfer_ns: Nullable,
    pub(crate) size_bytes: Nullable,
}

impl Columns {
    /// No measurements yet, of `pattern` on `world`.
    pub(crate) fn new(pattern: &Pattern, world: &World) -> Self {
        Self {
            blocks: Names::of(pattern.blocks.iter().map(|block| block.name.as_str())),
            axes: Names::of(world.axes().iter().map(|axis| axis.name.as_str())),
            lanes: Names::of(pattern.lanes.iter().map(|lane| lane.name.as_str())),
            ranks: world.size(),
            round: Vec::new(),
            iteration: Vec::new(),
            rank: Vec::new(),
            block: Vec::new(),
            axis: Vec::new(),
            lane: Vec::new(),
            instance: Vec::new(),
            state: Vec::new(),
            start_ns: Vec::new(),
            end_ns: Vec::new(),
            wait_ns: Nullable::default(),
            transfer_ns: Nullable::default(),
            size_bytes: Nullable::default(),
        }
    }

    /// Number of measurements.
    pub fn len(&self) -> usize {
        self.round.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.round.is_empty()
    }

    /// Time on its lane of the measurement in `row`, in nanoseconds. Panics beyond the end.
    pub fn latency_ns(&self, row: usize) -> u64 {
        self.end_ns[row] - self.start_ns[row]
    }

    /// The measurement in `row`. Panics beyond the end.
    pub fn measurement(&self, row: usize) -> Measurement {
        Measurement {
            round: self.round[row],
            iteration: self.iteration[row],
            rank: self.rank[row],
            block: self.blocks.name(self.block[row]).clone(),
            axis: self.axis[row].map(|axis| self.axes.name(axis).clone()),
            lane: self.lanes.name(self.lane[row]).clone(),
            instance: self.instance[row],
            state: self.state[row],
            start_ns: self.start_ns[row],
            end_ns: self.end_ns[row],
            wait_ns: self.wait_ns.get(row),
            transfer_ns: self.transfer_ns.get(row),
            size_bytes: self.size_bytes.get(row),
        }
    }

    /// All measurements.
    pub fn iter(&self) -> impl Iterator<Item = Measurement> {
        (0..self.len()).map(|row| self.measurement(row))
    }

    /// Adds a measurement; says what is wrong with one that does not fit pattern and world.
    pub(crate) fn push(&mut self, m: &Measurement) -> Result<(), String> {
        let block = self.blocks.known("block", &m.block)?;
        let axis = m.axis.as_deref().map(|name| self.axes.known("axis", name)).transpose()?;
        check_rank(m.rank, self.ranks)?;
        check_order(m.start_ns, m.end_ns)?;
        self.round.push(m.round);
        self.iteration.push(m.iteration);
        self.rank.push(m.rank);
        self.block.push(block);
        self.axis.push(axis);
        self.lane.push(self.lanes.intern(&m.lane));
        self.instance.push(m.instance);
        self.state.push(m.state);
        self.start_ns.push(m.start_ns);
        self.end_ns.push(m.end_ns);
        self.wait_ns.push(m.wait_ns);
        self.transfer_ns.push(m.transfer_ns);
        self.size_bytes.push(m.size_bytes);
        Ok(())
    }
}

/// Refuses a rank that is not there.
pub(crate) fn check_rank(rank: u32, ranks: u32) -> Result<(), String> {
    if rank < ranks { Ok(()) } else { Err(format!("rank {rank} is outside a world of {ranks} ranks")) }
}

/// Refuses an execution that ended before it began.
pub(crate) fn check_order(start_ns: u64, end_ns: u64) -> Result<(), String> {
    if start_ns <= end_ns {
        Ok(())
    } else {
        Err(format!("an execution ends at {end_ns} ns, before its start {start_ns}"))
    }
}
