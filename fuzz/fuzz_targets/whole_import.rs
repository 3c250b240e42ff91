//! Whatever is read of any bytes becomes a pattern that reads back as it was written, or an error.
#![no_main]

use std::io::Write as _;

use libfuzzer_sys::fuzz_target;
use maestro_importers::synthesis::{Options, synthesise};
use maestro_importers::{Notes, Reading, read};
use maestro_pattern::Pattern;

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("room for a file");
    file.write_all(bytes).expect("room for a file");
    let mut notes = Notes::default();
    let reading = Reading { strict: false, helpers: 0 };
    let Ok(capture) = read(&[file.path().to_owned()], &reading, &mut notes) else { return };
    if let Ok(import) = synthesise(&capture, &Options::default(), &mut notes) {
        let text = import.pattern.to_yaml();
        assert_eq!(Pattern::from_yaml(&text).as_ref(), Ok(&import.pattern), "{text}");
    }
});
