//! The threads back end: every rank a thread of this process, collectives through shared memory.
//!
//! It needs nothing but cores and memory, moves real bytes in real element types, and so is both the default where
//! there is no GPU and the reference for what each collective means. It says nothing about a network.

mod mail;
mod shared;

use std::sync::Arc;

use maestro_pattern::{Measurement, Plan};

use self::shared::Shared;
use crate::executor::{Record, Session};
use crate::host::{self, Body, End, World};
use crate::{Backend, Notice, Phase, Result, Settings};

/// See the module.
pub struct Threads;

impl Backend for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn about(&self) -> &'static str {
        "a thread a rank and a worker a lane, collectives through shared memory; needs no GPU"
    }

    fn probe(&self, plan: &Plan, settings: &Settings) -> Result<()> {
        host::probe(self.name(), plan, settings)?;
        host::check_memory(plan, settings, &ranks(plan), host::available_memory())
    }

    fn memory(&self, plan: &Plan, settings: &Settings) -> u64 {
        host::needed(plan, settings, &ranks(plan))
    }

    fn run(&self, plan: &Plan, settings: &Settings) -> Result<Vec<Measurement>> {
        self.probe(plan, settings)?;
        host::note_what_is_ignored(plan, settings, self.name(), self.name());
        let session = Session::new(plan, settings)?;
        let records = run_each(plan, settings, &|endpoint| {
            let lead = endpoint.rank() == 0;
            session.perform(endpoint, lead)
        })?;
        Ok(session.measurements(records))
    }
}

fn ranks(plan: &Plan) -> Vec<u32> {
    (0..plan.world.size()).collect()
}

/// Brings every rank of `plan` to life and runs `body` on each.
fn run_each(plan: &Plan, settings: &Settings, body: Body<'_>) -> Result<Vec<(u32, Record)>> {
    settings.notify.tell(Notice::Phase(Phase::Prepare));
    let ranks = ranks(plan);
    let end = Arc::new(End::default());
    let buffers = host::all_buffers(plan, &ranks);
    let fabric = Shared::new(plan, &end, &buffers);
    World::new(plan, settings, &fabric, end, ranks, buffers).run(body)
}

#[cfg(test)]
mod tests;
