//! What folding cost: how far the averages of a pattern are from the executions that they stand for.

use maestro_pattern::{Instruction, Plan};

use super::blocks::{Blocks, Rank};

/// How far a pattern's averages are from the captured step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Folding {
    /// Mean |captured - pattern| over the durations of all executions (of communication the transfers), relative to
    /// their mean, in percent.
    pub duration_pct: f64,
    /// Mean |captured - pattern| over the host times between launches, in nanoseconds.
    pub host_ns: f64,
}

/// Sums of a mean.
#[derive(Default)]
struct Sums {
    count: usize,
    captured: f64,
    difference: f64,
}

impl Sums {
    fn add(&mut self, captured: f64, pattern: f64) {
        self.count += 1;
        self.captured += captured;
        self.difference += (captured - pattern).abs();
    }
}

/// Compares what `plan` makes of the pattern with the events of all ranks. `host` gives a rank's captured host times,
/// one before each thing it issues or waits for.
pub(crate) fn error(plan: &Plan, ranks: &[Rank<'_>], blocks: &Blocks, host: impl Fn(usize) -> Vec<f64>) -> Folding {
    let (mut durations, mut hosts) = (Sums::default(), Sums::default());
    for (r, rank) in ranks.iter().enumerate() {
        for (event, block) in rank.events.events.iter().zip(&blocks.block_of[r]) {
            let pattern = blocks.blocks[*block].captured_on(rank.rank as usize).unwrap_or(0);
            durations.add(rank.duration_ns(event) as f64, pattern as f64);
        }
        // The first host time is when the rank began, which folding does not touch.
        for (captured, pattern) in host(r).into_iter().zip(host_times(plan, rank.rank)).skip(1) {
            hosts.add(captured, pattern);
        }
    }
    Folding {
        duration_pct: if durations.captured > 0.0 { 100.0 * durations.difference / durations.captured } else { 0.0 },
        host_ns: hosts.difference / hosts.count.max(1) as f64,
    }
}

/// Host time before each issue and wait of a rank's program, in nanoseconds.
fn host_times(plan: &Plan, rank: u32) -> Vec<f64> {
    let mut times = Vec::new();
    let mut since = 0;
    for instruction in &plan.program(rank).instructions {
        match instruction {
            Instruction::Host(ns) => since += ns,
            Instruction::Issue { .. } | Instruction::Wait(_) => times.push(std::mem::take(&mut since) as f64),
        }
    }
    times
}
