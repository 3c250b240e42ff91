//! The back end mpi passes the conformance suite: every case that has as many ranks as mpirun started processes.
//!
//! `scripts/test-mpi` starts it, on several numbers of ranks. Started otherwise it says that it was skipped. It has no
//! test harness, because MPI is for the thread that began it to end, and each process has one rank of every case.

use std::process::ExitCode;
use std::time::Duration;

use maestro_replay::conformance::{Outcome, cases, outcome_of_one};
use maestro_replay::{Crew, Error, Launch, backend};

fn main() -> ExitCode {
    match Launch::from_environment(&|name| std::env::var(name).ok()) {
        Ok(Some(launch)) if launch.world > 1 => match conform(launch) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("failed: {error}");
                ExitCode::FAILURE
            }
        },
        Ok(_) => {
            println!("skipped: mpi: mpirun did not start this; scripts/test-mpi does");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn conform(launch: Launch) -> Result<(), Error> {
    let ranks = launch.world;
    let mpi = backend("mpi").and_then(|backend| backend.spread()).expect("mpi is built in and spreads");
    let crew = Crew::join(launch, Duration::from_secs(60))?;
    let mut passed = 0;
    for case in cases().into_iter().filter(|case| case.plan.world.size() == ranks) {
        let mine = match outcome_of_one(mpi, &case.plan, &crew) {
            Outcome::Passed => Ok(()),
            Outcome::Skipped(what) | Outcome::Failed(what) => Err(format!("{}: {what}", case.name)),
        };
        crew.agree(mine)??;
        passed += 1;
    }
    assert!(passed >= 6, "only {passed} cases have {ranks} ranks");
    if crew.leads() {
        println!("mpi: {passed} cases passed on {ranks} ranks");
    }
    Ok(())
}
