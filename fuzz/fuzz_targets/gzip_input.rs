//! Any bytes behind the first two of a gzip file give a capture or an error that says what would help.
#![no_main]

use std::io::Write as _;

use libfuzzer_sys::fuzz_target;
use maestro_importers::{Notes, Reading, read};

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("room for a file");
    let rest = bytes.get(2..).unwrap_or_default();
    file.write_all(&[0x1f, 0x8b]).and_then(|()| file.write_all(rest)).expect("room for a file");
    let files = [file.path().to_owned()];
    for strict in [true, false] {
        if let Err(error) = read(&files, &Reading { strict, helpers: 0 }, &mut Notes::default()) {
            assert!(error.to_string().contains("; "), "an error without a remedy: {error}");
        }
    }
});
