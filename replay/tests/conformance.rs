//! Every back end that can run here passes the conformance suite.
//!
//! `MAESTRO_CONFORMANCE` takes part of it: parts of names `BACK END: CASE`, with `|` between them, such as
//! `nccl: messages, 2|nccl: groups`. Memory checkers, which make a case take minutes, need that.

use maestro_replay::conformance::{self, Outcome};
use maestro_replay::{BACKENDS, Backend};

/// The environment variable that takes part of the suite.
const CHOICE: &str = "MAESTRO_CONFORMANCE";

/// Whether `name` is wanted: all are, unless some are chosen.
fn wanted(choice: Option<&str>, name: &str) -> bool {
    choice.is_none_or(|choice| choice.split('|').any(|part| name.contains(part)))
}

/// Puts a back end through the cases that are wanted. Gives how many ran, and what failed.
fn conform(backend: &dyn Backend, choice: Option<&str>) -> (usize, Vec<String>) {
    // Of those that need no hardware, only the simulation may skip: it moves no data.
    let may_skip = !["threads"].contains(&backend.name());
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for case in conformance::cases() {
        let name = format!("{}: {}", backend.name(), case.name);
        if !wanted(choice, &name) {
            continue;
        }
        match conformance::outcome(backend, &case.plan) {
            Outcome::Passed => passed += 1,
            Outcome::Skipped(_) if may_skip => skipped += 1,
            outcome => {
                eprintln!("{name}: {outcome:?}");
                failed.push(name);
            }
        }
    }
    let ran = passed + skipped + failed.len();
    if ran > 0 {
        eprintln!("{}: {passed} cases passed, {skipped} skipped: they need more of this machine", backend.name());
    }
    (ran, failed)
}

#[test]
fn every_back_end_conforms() {
    let choice = std::env::var(CHOICE).ok();
    let (mut ran, mut failed) = (0, Vec::new());
    for backend in BACKENDS {
        let (some, wrong) = conform(*backend, choice.as_deref());
        ran += some;
        failed.extend(wrong);
    }
    assert!(ran > 0, "{CHOICE}={} names no case", choice.unwrap_or_default());
    assert!(failed.is_empty(), "failed: {failed:?}");
}

#[test]
fn part_of_the_suite_can_be_chosen() {
    let choice = Some("nccl: messages, 2|groups");
    assert!(wanted(None, "dry: groups, 1 ranks"));
    assert!(wanted(choice, "nccl: messages, 2 ranks"));
    assert!(wanted(choice, "threads: groups, 8 ranks"));
    assert!(!wanted(choice, "threads: messages, 2 ranks"));
    assert!(!wanted(choice, "nccl: messages, 4 ranks"));
}
