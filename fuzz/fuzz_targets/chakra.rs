//! Any bytes give a graph with times or an error that says what would help; what is read strictly is read the same
//! otherwise. The first byte of the content is a length, so bytes behind a right beginning are tried as well.
#![no_main]

use std::io::Write as _;

use libfuzzer_sys::fuzz_target;
use maestro_importers::capture::Capture;
use maestro_importers::synthesis::{Options, synthesise};
use maestro_importers::{Notes, Reading, read};

/// Metadata with a version, and a kernel on a stream.
const BEGINNING: &[u8] = b"\x07\x0a\x050.0.4\x07\x08\x01\x12\x01k\x18\x04";

fn rows(capture: &Capture) -> Vec<(usize, usize, i64)> {
    let end = |t: &maestro_importers::capture::Timeline| t.activities.iter().map(|a| a.end_ns()).max().unwrap_or(0);
    capture.timelines.iter().map(|t| (t.activities.len(), t.calls.len(), end(t))).collect()
}

fuzz_target!(|bytes: &[u8]| {
    for beginning in [&b""[..], BEGINNING] {
        let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("room for a file");
        file.write_all(beginning).and_then(|()| file.write_all(bytes)).expect("room for a file");
        let files = [file.path().to_owned()];
        let outcomes = [true, false].map(|strict| read(&files, &Reading { strict, helpers: 0 }, &mut Notes::default()));
        for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            assert!(error.to_string().contains("; "), "an error without a remedy: {error}");
        }
        if let [Ok(strict), Ok(tolerant)] = &outcomes {
            assert_eq!(rows(strict), rows(tolerant));
        }
        if let Ok(capture) = &outcomes[1] {
            // Without a pattern, or with one; no panic either way.
            let _ = synthesise(capture, &Options::default(), &mut Notes::default());
        }
    }
});
