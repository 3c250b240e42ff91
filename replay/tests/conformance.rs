//! Every back end that can run here passes the conformance suite.

use maestro_replay::conformance::{self, Outcome};
use maestro_replay::{BACKENDS, backend};

#[test]
fn every_back_end_conforms() {
    for backend in BACKENDS {
        for (case, outcome) in conformance::run(*backend) {
            assert!(!matches!(outcome, Outcome::Failed(_)), "{}: {}: {outcome:?}", backend.name(), case.name);
        }
    }
}

#[test]
fn threads_skips_nothing() {
    let threads = backend("threads").expect("threads is registered");
    for case in conformance::cases() {
        assert!(threads.probe(&case.plan, &Default::default()).is_ok(), "{}", case.name);
    }
}
