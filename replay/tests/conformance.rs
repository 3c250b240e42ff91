//! Every back end that can run here passes the conformance suite.

use maestro_replay::BACKENDS;
use maestro_replay::conformance::{self, Outcome};

#[test]
fn every_back_end_conforms() {
    for backend in BACKENDS {
        for (case, outcome) in conformance::run(*backend) {
            // Of those that need no hardware, only the simulation may skip: it moves no data.
            let may_skip = !["threads"].contains(&backend.name());
            let fits = outcome == Outcome::Passed || (may_skip && matches!(outcome, Outcome::Skipped(_)));
            assert!(fits, "{}: {}: {outcome:?}", backend.name(), case.name);
        }
    }
}
