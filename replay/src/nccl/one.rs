//! One rank in this process, the others in theirs.

use std::sync::Arc;
use std::time::Duration;

use maestro_pattern::{Measurement, Plan};

use super::processes::Processes;
use super::world::World;
use super::{Nccl, buffers, note_what_is_ignored, parts, run_each, runnable, unusable};
use crate::crew::{Crew, Spread};
use crate::executor::Session;
use crate::{Launch, Notice, Phase, Result, Settings};

/// How long the processes wait for each other beyond what one of them may be silent for. A process that is gone is
/// noticed at once and one that hangs notices it itself, so this is only for a machine that fell off the network;
/// meanwhile ranks may differ by as much as a step lasts, or the making of a large communicator.
const PATIENCE: Duration = Duration::from_secs(600);

impl Spread for Nccl {
    fn probe_one(&self, plan: &Plan, settings: &Settings, launch: &Launch) -> Result<()> {
        runnable(plan, settings)?;
        let devices = parts()?.devices;
        let device = device(launch, devices.len())?;
        buffers::check(plan, settings, launch.rank, devices[device as usize].memory)
    }

    fn run_one(&self, plan: &Plan, settings: &Settings, crew: &Crew) -> Result<Vec<Measurement>> {
        let (store, rank) = (crew.store(), crew.launch().rank);
        let run = || -> Result<Vec<Measurement>> {
            note_what_is_ignored(plan, settings);
            settings.notify.tell(Notice::Phase(Phase::Prepare));
            let parts = parts()?;
            let device = device(crew.launch(), parts.devices.len())?;
            let end = Arc::default();
            let party = Arc::new(Processes::new(store, &end));
            let world = Arc::new(World::new(plan, settings, parts, party, end, &[rank]));
            store.set_patience(world.silence + PATIENCE);
            let mut records = run_each(&world, &[(rank, device)])?;
            let apart = 2 * world.party.clock_error();
            settings.notify.tell(Notice::ClockError(apart));
            settings.notify.tell(Notice::Note(format!(
                "each rank was a process; their clocks, and so starts on different ranks, agree within {:.1} us",
                apart.as_secs_f64() * 1e6
            )));
            let own = records.pop().map(|(_, record)| record).unwrap_or_default();
            let records = crew.exchange(own)?;
            Ok(Session::new(plan, settings)?.measurements_of(rank, records))
        };
        run().map_err(|error| {
            store.fail(&error.to_string());
            // Several ranks may fail at the same time. What all say is what they heard of first.
            store.check().err().unwrap_or(error)
        })
    }
}

/// The device of this process, of so many that it sees.
fn device(launch: &Launch, devices: usize) -> Result<u32> {
    let local = launch.local_rank;
    match devices {
        // Launchers may show each process its own device alone.
        1 => Ok(0),
        _ if (local as usize) < devices => Ok(local),
        _ => Err(unusable(
            format!("this process is number {local} on its machine, from 0, and sees {devices} GPUs"),
            "start as many processes on a machine as it has GPUs, one a GPU",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Launcher;

    #[test]
    fn a_process_takes_the_device_of_its_number_or_the_only_one_it_sees() {
        let launch = Launch {
            rank: 5,
            world: 8,
            local_rank: 1,
            by: Launcher::Srun,
            address: "node01".into(),
            port: 20_000,
            secret: String::new(),
        };
        assert_eq!(device(&launch, 4).unwrap(), 1);
        assert_eq!(device(&launch, 1).unwrap(), 0);
        let error = device(&Launch { local_rank: 4, ..launch }, 4).unwrap_err().to_string();
        assert!(error.contains("number 4 on its machine") && error.contains("sees 4 GPUs"), "{error}");
    }
}
