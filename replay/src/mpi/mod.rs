//! The mpi back end: a process a rank, collectives by MPI between their memories, timed by the monotonic clock.
//!
//! A rank is what it is on the threads back end: a host thread, and a worker a lane. Only the fabric is another: a worker
//! starts nonblocking calls and then calls MPI again and again until they have ended, because MPI moves nothing while
//! nobody calls it. The lanes of a rank have a thread each, so MPI must allow calls from several threads at once.
//!
//! MPI moves the data and nothing else. That the ranks come together, start together, agree and hear of each other's end
//! is the store's affair, as with every back end of several processes: it still works where MPI has lost a process.

mod birth;
mod fabric;
mod ffi;
mod one;

use maestro_pattern::{Collective, CollectiveKind, Measurement, Plan, Work};

use crate::{Backend, Error, Result, Settings, Spread, host};

/// See the module.
pub struct Mpi;

const NAME: &str = "mpi";

impl Backend for Mpi {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "a process a rank by mpirun or srun and a worker a lane, collectives by MPI; needs no GPU"
    }

    fn spread(&self) -> Option<&dyn Spread> {
        Some(self)
    }

    fn probe(&self, plan: &Plan, settings: &Settings) -> Result<()> {
        runnable(plan, settings)?;
        let ranks = plan.world.size();
        Err(unusable(
            "its ranks are processes, and this is one".into(),
            format!("start {ranks}: mpirun -np {ranks} maestro replay ... --backend mpi"),
        ))
    }

    fn memory(&self, plan: &Plan, settings: &Settings) -> u64 {
        host::needed(plan, settings, &(0..plan.world.size()).collect::<Vec<_>>())
    }

    fn run(&self, plan: &Plan, settings: &Settings) -> Result<Vec<Measurement>> {
        self.probe(plan, settings).and(Ok(Vec::new()))
    }
}

/// Ends MPI if it has begun. All processes have to come to this.
pub(crate) fn finish() {
    ffi::finish();
}

fn unusable(what: String, help: impl Into<String>) -> Error {
    Error::Unusable { backend: NAME, what, help: help.into() }
}

/// Refuses blocks that MPI cannot run.
///
/// # Errors
/// The first such block and what would help.
fn runnable(plan: &Plan, settings: &Settings) -> Result<()> {
    host::probe(NAME, plan, settings)?;
    for (block, axis, _) in plan.uses() {
        let block = &plan.blocks[block as usize];
        let ranks = axis.map_or(1, |axis| plan.world.teams(axis as usize).iter().map(Vec::len).max().unwrap_or(1));
        let elements = most_elements(&block.work, ranks as u64);
        if elements > ffi::flight::MOST {
            return Err(unusable(
                format!(
                    "block `{}` moves {elements} elements at once, and MPI counts to {}",
                    block.name,
                    ffi::flight::MOST
                ),
                "give it a smaller size, or a wider type",
            ));
        }
    }
    Ok(())
}

/// The most elements that one call for this block counts.
fn most_elements(work: &Work, ranks: u64) -> u64 {
    let of = |collective: &Collective| {
        let rows = collective.splits.iter().map(|row| row.iter().sum::<u64>());
        let columns = (0..collective.splits.len()).map(|to| collective.splits.iter().map(|row| row[to]).sum::<u64>());
        let parts = if collective.kind.divided() { ranks.max(1) } else { 1 };
        let even = collective.size.unwrap_or(0) / collective.dtype.bytes() / parts;
        if collective.splits.is_empty() { even } else { rows.chain(columns).max().unwrap_or(0) }
    };
    match work {
        Work::Collective(one) => of(one),
        Work::Group(all) => all.iter().map(of).max().unwrap_or(0),
        Work::P2p { transfers, .. } => transfers.iter().map(|t| t.size / t.dtype.bytes()).max().unwrap_or(0),
        Work::Compute(_) | Work::Cuda(_) => 0,
    }
}

/// Ranks of the largest team that all-reduces, if any does.
fn largest_all_reduce(plan: &Plan) -> Option<usize> {
    let reduces = |work: &Work| match work {
        Work::Collective(one) => one.kind == CollectiveKind::AllReduce,
        Work::Group(all) => all.iter().any(|one| one.kind == CollectiveKind::AllReduce),
        Work::P2p { .. } | Work::Compute(_) | Work::Cuda(_) => false,
    };
    let uses = plan.uses().into_iter().filter(|(block, _, _)| reduces(&plan.blocks[*block as usize].work));
    let teams = uses.filter_map(|(_, axis, _)| axis).flat_map(|axis| plan.world.teams(axis as usize));
    teams.map(Vec::len).max()
}

#[cfg(test)]
mod tests;
