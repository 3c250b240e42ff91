//! The threads back end: every rank a thread of this process, collectives through shared memory.
//!
//! It needs nothing but cores and memory, moves real bytes in real element types, and so is both the default where
//! there is no GPU and the reference for what each collective means. It says nothing about a network.

mod mail;
mod shared;

use std::sync::Arc;

use maestro_pattern::{CommSettings, Measurement, Plan, Priority, Work};

use self::shared::Shared;
use crate::executor::{Record, Session};
use crate::host::{self, Body, End, World};
use crate::{Backend, Compute, Notice, Phase, Result, Settings};

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
        note_what_is_ignored(plan, settings);
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

/// Tells what of the plan has no meaning in shared memory.
fn note_what_is_ignored(plan: &Plan, settings: &Settings) {
    let note = |text: String| settings.notify.tell(Notice::Note(text));
    if plan.communicators.iter().any(|c| c.settings != CommSettings::default()) {
        note("threads has no communicator settings: those of the pattern are ignored".into());
    }
    if plan.lanes.iter().any(|lane| lane.priority != Priority::Normal) {
        note("threads has no lane priorities: those of the pattern are ignored".into());
    }
    let compute = |(block, _, _): &(u32, _, _)| !plan.blocks[*block as usize].work.communicates();
    if settings.compute == Compute::Hold && plan.uses().iter().any(compute) {
        note("compute only holds its lane for the captured time and takes no core, so it has no slowdown".into());
    }
    for (block, _, _) in plan.uses() {
        let block = &plan.blocks[block as usize];
        if let Work::Cuda(kernel) = &block.work {
            note(format!("threads cannot run {}: block `{}` holds its lane instead", kernel.source, block.name));
        }
    }
}

#[cfg(test)]
mod tests;
