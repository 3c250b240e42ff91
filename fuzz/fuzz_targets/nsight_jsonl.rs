//! Any lines behind a string table give a capture or an error that says what would help.
#![no_main]

use std::io::Write as _;

use libfuzzer_sys::fuzz_target;
use maestro_importers::{Notes, Reading, read};

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("room for a file");
    // Without these lines it would not be taken for an export.
    let head = concat!(
        r#"{"data": ["[Unknown]", "ncclAllReduce", "ncclDevKernel_AllReduce_Sum_f32"]}"#,
        "\n",
        r#"{"Type":75,"NvtxEvent":{"Type":75,"Timestamp":"1","Text":"NCCL","GlobalTid":"281494824158367","DomainId":"1"}}"#,
        "\n"
    );
    file.write_all(head.as_bytes()).and_then(|()| file.write_all(bytes)).expect("room for a file");
    let files = [file.path().to_owned()];
    for strict in [true, false] {
        if let Err(error) = read(&files, &Reading { strict, helpers: 0 }, &mut Notes::default()) {
            assert!(error.to_string().contains("; "), "an error without a remedy: {error}");
        }
    }
});
