//! Conservation: what an import counts is what a plain reading of the file counts, for every capture and every case.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use maestro_importers::synthesis::{Options, synthesise};
use maestro_importers::{Notes, Reading, read};
use serde_json::Value;

/// How many device rows of each kind the events hold, and their nanoseconds.
type Totals = BTreeMap<&'static str, (usize, i64)>;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// All text of a file.
fn text(file: &Path) -> String {
    let bytes = fs::read(file).unwrap();
    let mut text = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        MultiGzDecoder::new(&bytes[..]).read_to_end(&mut text).unwrap();
    } else {
        text = bytes;
    }
    String::from_utf8(text).unwrap()
}

/// What a general JSON reader finds in a file. `inf` and `NaN` become null; of a file that is cut, what is before its last
/// whole event.
fn totals(file: &Path) -> Totals {
    let text = text(file).replace(": inf", ": null").replace(": NaN", ": null");
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|_| {
        let whole = text.rfind("},").map_or("", |end| &text[..=end]);
        serde_json::from_str(&format!("{whole}]}}")).expect("events before the cut")
    });
    let mut totals = Totals::new();
    for event in document["traceEvents"].as_array().unwrap() {
        let kind = match event["cat"].as_str() {
            Some("kernel") => "kernel",
            Some("gpu_memcpy") => "copy",
            Some("gpu_memset") => "set",
            _ => continue,
        };
        let (count, ns) = totals.entry(kind).or_default();
        *count += 1;
        *ns += (event["dur"].as_f64().unwrap() * 1e3).round() as i64;
    }
    totals
}

/// What an import of the files counts: activities of all steps, and what it dropped.
fn counted(files: &[PathBuf]) -> (usize, usize, Totals) {
    let mut notes = Notes::default();
    let capture = read(files, &Reading::default(), &mut notes).unwrap();
    let import = synthesise(&capture, &Options::default(), &mut notes).unwrap();
    let mut totals = Totals::new();
    for row in &import.conservation {
        assert_eq!(row.why.is_some(), row.dropped.0 > 0, "{row:?}");
        let (count, ns) = totals.entry(row.kind).or_default();
        *count += row.kept.0 + row.fused.0 + row.dropped.0;
        *ns += row.kept.1 + row.fused.1 + row.dropped.1;
    }
    let of_steps: usize = import.steps.iter().map(|step| step.activities).sum();
    let chosen = import.steps.iter().filter(|step| step.name == import.chosen_step).map(|step| step.activities);
    (of_steps, chosen.sum(), totals)
}

/// Checks the capture in `files`.
fn check(files: &[PathBuf]) {
    let mut wanted = Totals::new();
    for file in files {
        for (kind, (count, ns)) in totals(file) {
            let sum = wanted.entry(kind).or_default();
            *sum = (sum.0 + count, sum.1 + ns);
        }
    }
    let (of_steps, chosen, found) = counted(files);
    let all: usize = wanted.values().map(|(count, _)| count).sum();
    let in_table: usize = found.values().map(|(count, _)| count).sum();
    // Of the steps that were not taken only the number is told, with the steps.
    assert_eq!(in_table + of_steps - chosen, all, "{files:?}");
    if of_steps == chosen {
        for (kind, sums) in wanted {
            assert_eq!(found[kind], sums, "{kind} of {files:?}");
        }
    }
}

#[test]
fn every_device_row_of_every_capture_is_accounted_for() {
    for entry in fs::read_dir(fixtures().join("captures/kineto")).unwrap() {
        let folder = entry.unwrap().path();
        let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "gz"));
        assert!(!files.is_empty(), "{}", folder.display());
        check(&files);
    }
}

#[test]
fn every_device_row_of_every_case_is_accounted_for() {
    let mut cases: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir(fixtures().join("cases")).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".json") {
            cases.entry(name[..2].to_owned()).or_default().push(file);
        }
    }
    assert!(cases.len() >= 17, "{} cases", cases.len());
    cases.values().for_each(|files| check(files));
}
