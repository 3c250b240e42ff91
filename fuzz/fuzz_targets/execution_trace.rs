//! Any bytes of an execution trace beside a profile complete it, or are an error that says what would help.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use maestro_importers::{Notes, Reading, read};

const PROFILE: &str = include_str!("../../fixtures/cases/23-uneven-alltoall-subgroup-rank2.json");

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("room for a folder");
    let (profile, trace) = (folder.path().join("a_rank2.json"), folder.path().join("b_rank2.json"));
    // Without these keys it would not be taken for one.
    let head = br#"{"schema": "1.1.0-chakra.0.0.4", "nodes": ["#;
    fs::write(&profile, PROFILE).expect("room for a file");
    fs::write(&trace, [head, bytes].concat()).expect("room for a file");
    for strict in [true, false] {
        let files = [profile.clone(), trace.clone()];
        if let Err(error) = read(&files, &Reading { strict, helpers: 0 }, &mut Notes::default()) {
            assert!(error.to_string().contains("; "), "an error without a remedy: {error}");
        }
    }
});
