//! A timeline that <https://ui.perfetto.dev> opens: every execution as a slice, every dependency as an arrow.
//!
//! A process is a rank of a source (a capture, a simulation, a run), so that the same rank of several sources stands
//! side by side; a thread is a lane; executions alone have threads of their own. What this is not: a trace of the
//! program. It draws measurements, and neither knows nor guesses what ran between them.
//!
//! What may puzzle: there is no clock snapshot. Timestamps are nanoseconds since the first iteration's barrier, in the
//! clock that Perfetto takes where none is named (`TracePacket.timestamp_clock_id`: BOOTTIME). Snapshots are for traces
//! that mix clocks, to translate one into another ("Synchronization of multiple clock domains" in Perfetto's
//! documentation); here all packets use the same one, and which instant its zero was matters to nobody.
//!
//! Names are written out in every packet and not interned: that costs some hundred bytes a slice (of 180 in all),
//! and every packet can be read by itself.

mod causes;
mod events;
mod process;
mod proto;
mod turns;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use maestro_pattern::{Measurement, Pattern, Plan};

use self::causes::Causes;
use self::events::Writer;
use self::process::Process;
use self::turns::Turns;
use crate::Run;

/// One source of executions on a timeline.
#[derive(Clone, Debug)]
pub struct Traced<'a> {
    name: String,
    pattern: &'a Pattern,
    measurements: Cow<'a, [Measurement]>,
    /// Index of each block in the pattern.
    blocks: HashMap<&'a str, usize>,
    /// The causes of each program, and which program a rank runs. Empty without a plan.
    programs: Vec<Causes>,
    program_of: Vec<u32>,
}

impl<'a> Traced<'a> {
    /// `measurements` of `pattern`, called `name` on the timeline. Without the plan there are no arrows.
    pub fn new(
        name: impl Into<String>,
        pattern: &'a Pattern,
        plan: Option<&Plan>,
        measurements: impl Into<Cow<'a, [Measurement]>>,
    ) -> Self {
        Self {
            name: name.into(),
            pattern,
            measurements: measurements.into(),
            blocks: pattern.blocks.iter().enumerate().map(|(n, block)| (block.name.as_str(), n)).collect(),
            programs: plan.map(Causes::all).unwrap_or_default(),
            program_of: plan.map(|plan| plan.program_of.clone()).unwrap_or_default(),
        }
    }

    /// Runs to be shown side by side, in this order: named by what made them, and by their id where that alone does not
    /// tell them apart.
    pub fn runs(runs: &'a [Run]) -> Vec<Self> {
        let mut taken = HashSet::new();
        runs.iter()
            .map(|run| {
                let origin = run.info.made_by.participle();
                let alike = runs.iter().filter(|other| other.info.made_by == run.info.made_by).count();
                let mut name = if alike > 1 { format!("{origin} {}", run.info.id) } else { origin.to_owned() };
                // Folders of the same name, in different places.
                let (first, mut n) = (name.clone(), 2);
                while !taken.insert(name.clone()) {
                    name = format!("{first} ({n})");
                    n += 1;
                }
                // Whoever ran it had a plan. Should this version refuse the pattern, its executions are still worth
                // drawing.
                let plan = run.plan().ok();
                Self::new(name, &run.pattern, plan.as_ref(), run.measurements().iter().collect::<Vec<_>>())
            })
            .collect()
    }

    /// Index of a block in the pattern; behind all others if it is not there.
    fn block(&self, name: &str) -> usize {
        self.blocks.get(name).copied().unwrap_or(self.pattern.blocks.len())
    }

    /// The order that the rank's program asks for.
    fn causes(&self, rank: u32) -> Option<&Causes> {
        self.programs.get(*self.program_of.get(rank as usize)? as usize)
    }
}

/// The timeline as a file of Perfetto's protobuf format. The same sources give the same bytes.
///
/// One slice an execution, from its start to its end on its lane: named by its block, its category the block's kind,
/// with size, type, axis, round, iteration, instance, state, wait and transfer beside it. Waiting for the last rank is a
/// slice inside. A process' own row says which iteration of what is running. Arrows go from what had to end first to
/// what it held up: the `after` of the pattern and the waits of the host. One that the times contradict (a captured
/// execution that began before the end of what others of its kind wait for) is left out.
pub fn perfetto(all: &[Traced<'_>]) -> Vec<u8> {
    let turns = Turns::of(all);
    // The same rank of all sources side by side.
    let mut groups: BTreeMap<(u32, usize), Vec<&Measurement>> = BTreeMap::new();
    for (source, traced) in all.iter().enumerate() {
        for measurement in traced.measurements.iter() {
            groups.entry((measurement.rank, source)).or_default().push(measurement);
        }
    }
    let mut writer = Writer::new();
    for ((rank, source), measurements) in groups {
        writer.add(&Process::new(&all[source], rank, &measurements, &turns));
    }
    writer.finish()
}
