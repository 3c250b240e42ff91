//! Damaged captures give a pattern or an error, never a panic, and damage costs the rows that it hit.
//!
//! A slice of a real capture (the beginning of one step, with its header) is changed at random places, again and again.
//! What still reads goes through every pass, so times, counts and names that no profiler wrote reach all of them.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use maestro_importers::capture::Timeline;
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
        // Every other time strictly, so that errors are met, too.
        let reading = Reading { strict: round % 2 == 1, ..Reading::default() };
        let imported = read(&files, &reading, &mut notes)
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

/// Puts one kind of damage at `at` of `text`.
fn harm(text: &mut Vec<u8>, kind: usize, at: usize, state: &mut u64) {
    let end = (at + 1 + random(state) % 60).min(text.len());
    let inserted: &[u8] = match kind {
        0 => b"\"",
        1 => b"\\",
        2 => b"\n",
        3 => b"{",
        4 => b"}",
        5 => b"]",
        6 => b",",
        7 => b" inf ",
        8 => b"\xff\xfe\x00",
        9 => b"\"}, {\"",
        // The bytes of another writer.
        10 => br#"{"ph": "X", "cat": "cpu_op", "name": "aten::"#,
        // Lost bytes.
        _ => {
            text.drain(at..end);
            return;
        }
    };
    text.splice(at..at, inserted.iter().copied());
}

#[test]
fn damage_costs_the_rows_that_it_hit() {
    let whole = slice(0, 19_000.0);
    let lines = String::from_utf8(whole.clone()).expect("text").replace("},{\"", "},\n{\"").into_bytes();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let rows = |text: &[u8], helpers: usize| -> Result<usize, String> {
        std::fs::write(file.path(), text).expect("room");
        let reading = Reading { strict: false, helpers };
        let capture = read(&[file.path().to_owned()], &reading, &mut Notes::default()).map_err(|e| e.to_string())?;
        let of =
            |t: &Timeline| t.activities.len() + t.calls.len() + t.records.len() + t.annotations.len() + t.steps.len();
        Ok(capture.timelines.iter().map(of).sum())
    };
    let all = rows(&whole, 0).expect("the slice reads");
    // Damage of what stands around the events may cost more: the rank, or all.
    let first = whole.windows(13).position(|window| window == b"\"traceEvents\"").expect("events") + 16;
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for round in 0..300 {
        let mut text = if round % 2 == 0 { &whole } else { &lines }.clone();
        let harms = 1 + round % 3;
        let mut places: Vec<usize> =
            (0..harms).map(|_| first + random(&mut state) % (text.len() - first - 100)).collect();
        places.sort_unstable();
        let kinds: Vec<usize> = places.iter().map(|_| random(&mut state) % 12).collect();
        for (at, kind) in places.iter().zip(&kinds).rev() {
            harm(&mut text, *kind, *at, &mut state);
        }
        let left =
            rows(&text, round % 3).unwrap_or_else(|error| panic!("round {round}, {kinds:?} at {places:?}: {error}"));
        // A change may hit two rows, and a call whose kernel is gone goes with it.
        assert!(
            left + 4 * harms >= all && left <= all + harms,
            "round {round}: of {all} rows {left} are left after {kinds:?} at {places:?}"
        );
    }
}
