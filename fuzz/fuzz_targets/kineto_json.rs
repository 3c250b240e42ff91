//! Any bytes give a capture or an error that says what would help; what is read strictly is read the same otherwise.
#![no_main]

use std::io::Write as _;

use libfuzzer_sys::fuzz_target;
use maestro_importers::capture::Capture;
use maestro_importers::{Notes, Reading, read};

fn rows(capture: &Capture) -> Vec<(usize, usize, usize)> {
    capture.timelines.iter().map(|t| (t.activities.len(), t.calls.len(), t.records.len())).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("room for a file");
    file.write_all(bytes).expect("room for a file");
    let files = [file.path().to_owned()];
    let outcomes = [true, false].map(|strict| read(&files, &Reading { strict, helpers: 0 }, &mut Notes::default()));
    for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(error.to_string().contains("; "), "an error without a remedy: {error}");
    }
    if let [Ok(strict), tolerant] = outcomes {
        let tolerant = tolerant.expect("what is read strictly is read");
        assert_eq!(rows(&strict), rows(&tolerant));
    }
});
