//! The dry back end: works out when everything would happen, by exact integer arithmetic, and runs nothing.
//!
//! It takes every block to last as long as it did where it was captured and adds what follows from order: lanes,
//! dependencies, host time and ranks that wait for each other. So it shows what a pattern says without a machine to run
//! it on, checks an import against its capture, and gives tests a back end whose every number is known beforehand. It
//! does not know that blocks slow each other down; that difference is what the other back ends measure.
//!
//! It has no endpoint: a rank that waits would have to wait somewhere, and a simulation of 512 ranks wants no threads.

mod simulate;

use maestro_pattern::{Measurement, Plan};

use self::simulate::simulate;
use crate::executor::Session;
use crate::{Backend, Error, Notice, Phase, Result, Settings, nominal_ns};

/// See the module.
pub struct Dry;

impl Dry {
    /// Simulates one iteration of the step, with host time as the pattern has it.
    ///
    /// # Errors
    /// A block without a captured duration.
    pub fn step(plan: &Plan) -> Result<Vec<Measurement>> {
        let settings =
            Settings { warmup: 0, iterations: 1, rounds: 1, alone: false, verify: false, ..Settings::default() };
        Self.run(plan, &settings)
    }
}

impl Backend for Dry {
    fn name(&self) -> &'static str {
        "dry"
    }

    fn about(&self) -> &'static str {
        "exact simulation from captured durations; runs nothing and needs no hardware"
    }

    fn probe(&self, plan: &Plan, settings: &Settings) -> Result<()> {
        for (block, _, _) in plan.uses() {
            let block = &plan.blocks[block as usize];
            if nominal_ns(block, 0, settings.pacing).is_none() {
                return Err(Error::Unusable {
                    backend: self.name(),
                    what: format!("block `{}` has no captured duration", block.name),
                    help: "give it one (captured: 120us), or run the pattern on a real back end".into(),
                });
            }
        }
        Ok(())
    }

    fn memory(&self, _: &Plan, _: &Settings) -> u64 {
        0
    }

    /// One iteration is like the other here, so each turn is simulated once and its rows are repeated.
    fn run(&self, plan: &Plan, settings: &Settings) -> Result<Vec<Measurement>> {
        self.probe(plan, settings)?;
        settings.notify.tell(Notice::Phase(Phase::Measure));
        let settings = Settings { verify: false, back_to_back: 1, ..settings.clone() };
        let session = Session::new(plan, &settings)?;
        let mut once = Vec::new();
        for turn in session.turns() {
            once.push(simulate(plan, turn, settings.pacing)?);
        }
        let mut records: Vec<_> = (0..plan.world.size()).map(|rank| (rank, Vec::new())).collect();
        for _ in 0..settings.rounds {
            for spans in &once {
                for ((_, record), spans) in records.iter_mut().zip(spans) {
                    record.extend(std::iter::repeat_n(spans.clone(), settings.iterations as usize));
                }
            }
        }
        Ok(session.measurements(records))
    }
}

#[cfg(test)]
mod tests;
