//! Any text gives a pattern or an error; a pattern that was read is read the same from the text that it writes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use maestro_pattern::Pattern;

fuzz_target!(|text: &str| {
    if let Ok(pattern) = Pattern::from_yaml(text) {
        let written = pattern.to_yaml();
        assert_eq!(Pattern::from_yaml(&written).as_ref(), Ok(&pattern), "{written}");
    }
});
