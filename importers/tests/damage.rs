//! Damaged captures give a pattern or an error, never a panic.
//!
//! A slice of a real capture (the beginning of one step, with its header) is changed at random places, again and again.
//! What still reads goes through every pass, so times, counts and names that no profiler wrote reach all of them.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use maestro_importers::synthesis::{Options, synthesise};
use maestro_importers::{Notes, Reading, read};
use serde_json::Value;

/// The first `us` microseconds of the last step of a rank of the pipeline capture.
fn slice(rank: u32, us: f64) -> Vec<u8> {
    let file = format!("../fixtures/captures/kineto/pp_large/pp_large_rank{rank}.json.gz");
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), &file].iter().collect();
    let mut document: Value =
        serde_json::from_reader(GzDecoder::new(File::open(path).expect("a capture"))).expect("JSON");
    let events = document["traceEvents"].as_array_mut().expect("events");
    let named = |event: &Value, name: &str| event["cat"] == "user_annotation" && event["name"] == name;
    let step = events.iter().find(|e| named(e, "ProfilerStep#2")).expect("a step")["ts"].as_f64().expect("a time");
    events.retain(|event| {
        let time = event["ts"].as_f64().unwrap_or(0.0);
        let kept = ["cuda_runtime", "cuda_driver", "kernel", "gpu_memset", "user_annotation"];
        let kind =
            event["cat"].as_str().is_some_and(|cat| kept.contains(&cat)) || event["name"] == "record_param_comms";
        kind && (step..step + us).contains(&time)
    });
    serde_json::to_vec(&document).expect("JSON")
}

/// A small generator of pseudo-random numbers (Marsaglia's xorshift64).
fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

#[test]
fn damage_gives_a_pattern_or_an_error() {
    let whole = [slice(0, 19_000.0), slice(1, 3_000.0)];
    let folder = tempfile::tempdir().expect("a folder");
    let files: Vec<PathBuf> = (0..2).map(|rank| folder.path().join(format!("rank{rank}.json"))).collect();
    let mut state = 0x2545_f491_4f6c_dd1d;
    let (mut patterns, mut errors) = (0, 0);
    for round in 0..120 {
        for (file, whole) in files.iter().zip(&whole) {
            let mut text = whole.clone();
            // The first round is undamaged; later ones have ever more wrong digits and a few wrong bytes.
            for _ in 0..round {
                let at = random(&mut state) % text.len();
                if text[at].is_ascii_digit() {
                    text[at] = b'0' + (random(&mut state) % 10) as u8;
                } else if random(&mut state).is_multiple_of(64) {
                    text[at] = random(&mut state) as u8;
                }
            }
            File::create(file).and_then(|mut out| out.write_all(&text)).expect("room");
        }
        let mut notes = Notes::default();
        let imported = read(&files, &Reading::default(), &mut notes)
            .and_then(|capture| synthesise(&capture, &Options::default(), &mut notes).map(|import| import.pattern));
        match imported {
            Ok(pattern) => {
                patterns += 1;
                let text = pattern.to_yaml();
                assert_eq!(maestro_pattern::Pattern::from_yaml(&text).as_ref(), Ok(&pattern), "{text}");
            }
            Err(error) => {
                errors += 1;
                assert!(!error.to_string().is_empty());
            }
        }
        assert!(round > 0 || patterns == 1, "the undamaged slice imports");
    }
    assert!(patterns > 20 && errors > 5, "{patterns} patterns and {errors} errors");
}
