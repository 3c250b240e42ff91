//! The run folder on disk: `run.json`, `pattern.yaml` and one `part-<process>.parquet` a process.
//!
//! The folder is self-contained: the pattern's text is in it, and any Parquet reader opens the parts. Each file is
//! written under a temporary name and renamed when it is whole, so a crash loses the unfinished part and leaves no half
//! one. One process writes `run.json` first and its part last; that the part is missing is therefore how an aborted run
//! shows. Several processes write their parts first, and `run.json` comes when all are there ([`shared`]).

mod decode;
mod encode;
mod reader;
mod shared;
mod writer;

use std::path::{Path, PathBuf};

pub use writer::RunWriter;

/// The description of the run.
const RUN_JSON: &str = "run.json";
/// The text of the pattern.
const PATTERN_YAML: &str = "pattern.yaml";
/// What is added to the name of a file that is not whole yet.
const UNFINISHED: &str = ".tmp";

/// What the name of a mark begins with, by which processes see that they share the folder.
const MARK: &str = "launch-";

/// The part of a process.
fn part_path(folder: &Path, process: u32) -> PathBuf {
    folder.join(format!("part-{process}.parquet"))
}

/// Whether a file of this name is a part or a mark that [`RunWriter`] makes, finished or not.
fn is_part(name: &str) -> bool {
    if name.starts_with(MARK) && name.ends_with(UNFINISHED) {
        return true;
    }
    let whole = name.strip_suffix(UNFINISHED).unwrap_or(name);
    let process = whole.strip_prefix("part-").and_then(|rest| rest.strip_suffix(".parquet"));
    process.is_some_and(|digits| digits.parse::<u32>().is_ok())
}
