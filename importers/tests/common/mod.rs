//! Cases read from fixtures/cases, changed, written to a folder and imported.

// Each file of tests uses a part of it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use maestro_importers::synthesis::{CollectiveSummary, Import, Options, synthesise};
use maestro_importers::{Notes, Reading, read};
use serde_json::{Value, json};

/// A file of a case, by its name without the ending.
pub fn case(name: &str) -> Value {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../fixtures/cases", &format!("{name}.json")].iter().collect();
    serde_json::from_slice(&std::fs::read(&path).expect("a case")).expect("JSON")
}

/// The files of a case, of the ranks below `ranks` that it has.
pub fn all(name: &str, ranks: u32) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases");
    let names = (0..ranks).map(|rank| format!("{name}-rank{rank}"));
    names.filter(|name| folder.join(format!("{name}.json")).is_file()).map(|name| case(&name)).collect()
}

/// The same with `factor` times the elements in every communication.
pub fn scaled(mut file: Value, factor: u64) -> Value {
    for event in file["traceEvents"].as_array_mut().expect("events") {
        for key in ["In msg nelems", "Out msg nelems"] {
            if let Some(count) = event["args"].get(key).and_then(Value::as_u64) {
                event["args"][key] = json!(count * factor);
            }
        }
    }
    file
}

/// Imports files, each named after its place.
pub fn import(files: &[Value]) -> (Import, Notes) {
    import_with(files, &Options::default())
}

pub fn import_with(files: &[Value], options: &Options) -> (Import, Notes) {
    let folder = tempfile::tempdir().expect("a folder");
    for (place, file) in files.iter().enumerate() {
        std::fs::write(folder.path().join(format!("file{place}.json")), file.to_string()).expect("a file");
    }
    let mut notes = Notes::default();
    let capture = read(&[folder.path().to_owned()], &Reading::default(), &mut notes).expect("a capture");
    let import = synthesise(&capture, options, &mut notes).expect("a pattern");
    (import, notes)
}

/// The text of a file of the cases.
pub fn raw(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../fixtures/cases", name].iter().collect();
    std::fs::read_to_string(path).expect("a case")
}

/// Imports files of these names and bytes, or says why not.
pub fn import_raw(files: &[(&str, &[u8])], strict: bool) -> Result<(Import, Notes), String> {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).expect("a file");
    }
    let mut notes = Notes::default();
    let reading = Reading { strict, ..Reading::default() };
    let capture = read(&[folder.path().to_owned()], &reading, &mut notes).map_err(|error| error.to_string())?;
    let import = synthesise(&capture, &Options::default(), &mut notes).map_err(|error| error.to_string())?;
    Ok((import, notes))
}

/// The only row of a rank and operation.
pub fn row<'a>(import: &'a Import, rank: u32, op: &str) -> &'a CollectiveSummary {
    let mut rows = import.collectives.iter().filter(|row| row.rank == rank && row.op == op);
    let (first, second) = (rows.next(), rows.next());
    assert!(second.is_none(), "two rows: {first:?} {second:?}");
    first.unwrap_or_else(|| panic!("no {op} of rank {rank}: {:?}", import.collectives))
}

/// Nanoseconds as microseconds.
pub fn us(ns: i64) -> f64 {
    ns as f64 / 1e3
}

/// Equal but for what binary fractions lose.
#[track_caller]
pub fn close(found: Option<f64>, expected: f64) {
    let found = found.expect("a bandwidth");
    assert!((found / expected - 1.0).abs() < 1e-12, "{found} is not {expected}");
}
