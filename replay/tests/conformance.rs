//! Every back end that can run here passes the conformance suite.

use maestro_replay::BACKENDS;
use maestro_replay::conformance::{self, Outcome};

#[test]
fn every_back_end_conforms() {
    for backend in BACKENDS {
        let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
        for (case, outcome) in conformance::run(*backend) {
            // Of those that need no hardware, only the simulation may skip: it moves no data.
            let may_skip = !["threads"].contains(&backend.name());
            let fits = outcome == Outcome::Passed || (may_skip && matches!(outcome, Outcome::Skipped(_)));
            match outcome {
                Outcome::Passed => passed += 1,
                Outcome::Skipped(_) if fits => skipped += 1,
                _ => failed.push(format!("{}: {outcome:?}", case.name)),
            }
        }
        eprintln!("{}: {passed} cases passed, {skipped} skipped: they need more of this machine", backend.name());
        assert!(failed.is_empty(), "{}: {} cases failed:\n{}", backend.name(), failed.len(), failed.join("\n"));
    }
}
