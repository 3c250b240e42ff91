//! The one error of this crate: what is wrong with a run, where, and what would help.

use std::path::{Path, PathBuf};

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong with a run folder or with what is in it. Each message is one sentence: where, what, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was given to report on.
    #[error("there is no run to report on; give a folder that `maestro replay -o` or `maestro import --run` wrote")]
    NoRuns,
    /// There is nothing at the path.
    #[error("{path}: no such folder; give a folder that `maestro replay -o` or `maestro import --run` wrote")]
    FolderMissing {
        /// The folder asked for.
        path: PathBuf,
    },
    /// A folder, or a file, that is no run.
    #[error(
        "{path}: not a run, it has no run.json; give a folder that `maestro replay -o` or `maestro import --run` wrote"
    )]
    NotARun {
        /// The folder asked for.
        path: PathBuf,
    },
    /// A run was to be written where other things are.
    #[error("{path}: the folder is not empty and holds no run; choose a new folder, or empty this one first")]
    FolderInUse {
        /// The folder asked for.
        path: PathBuf,
    },
    /// A process does not have the folder that another made.
    #[error(
        "{path}: rank 0 made this folder and this process does not see it; choose one with -o on a file system that all \
         machines share"
    )]
    FolderUnseen {
        /// The folder.
        path: PathBuf,
    },
    /// The system refused to read or write.
    #[error("{path}: cannot {doing}: {source}; check permissions and free space")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as "cannot ..." goes on.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// run.json is no description of a run; the message of `source` ends with line and column.
    #[error(
        "{path}: {source}; the file was changed or cut: copy it again from where the run was made, or replay again"
    )]
    Json {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// The folder is of another version of the format.
    #[error("{path}: run format {found}, this maestro reads {known}; use the maestro that wrote it, or replay again")]
    Schema {
        /// The file that says so.
        path: PathBuf,
        /// The version found.
        found: u64,
        /// The version of this program.
        known: u32,
    },
    /// The text of the pattern is not the one that the run was made with.
    #[error("{path}: the text has hash {found}, the run was made with {expected}; put back the text of the run")]
    PatternChanged {
        /// The pattern's file.
        path: PathBuf,
        /// The hash in run.json.
        expected: String,
        /// The hash of the text.
        found: String,
    },
    /// The pattern cannot be read, or its axes cannot have the sizes of run.json.
    #[error("{path}: {source}")]
    Pattern {
        /// The pattern's file.
        path: PathBuf,
        /// What is wrong, with line and column, and what would help.
        source: maestro_pattern::Error,
    },
    /// A process left no part.
    #[error(
        "{path}: missing, though the run had {processes} process(es); process {process} ended early or its part was \
         not copied: copy it here, or replay again"
    )]
    PartMissing {
        /// The part's file.
        path: PathBuf,
        /// The process.
        process: u32,
        /// How many processes the run had.
        processes: u32,
    },
    /// A part lacks columns, or has them in another type.
    #[error("{path}: no column {columns}; the file is not of this format: copy it again, or replay again")]
    PartColumns {
        /// The part's file.
        path: PathBuf,
        /// The columns with their types.
        columns: String,
    },
    /// A part cannot be read, or its content contradicts the pattern.
    #[error("{path}: {why}; the part is damaged or of another run: copy it again, or replay again")]
    PartCorrupt {
        /// The part's file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A measurement given in memory contradicts its pattern.
    #[error("measurement {index}: {why}; measure the pattern that is given along")]
    Measurement {
        /// Which one, from 0.
        index: usize,
        /// What is wrong.
        why: String,
    },
    /// No metric has the name.
    #[error("no metric is named `{name}`; there are {known}")]
    NoMetric {
        /// The name asked for.
        name: String,
        /// All metrics.
        known: String,
    },
    /// Two sides cannot be compared.
    #[error("{why}")]
    Incomparable {
        /// Why, and what would help.
        why: String,
    },
    /// A file of rules is wrong.
    #[error("{path}: {why}")]
    Rules {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and what would help.
        why: String,
    },
    /// A file that is given as a baseline is none.
    #[cfg(feature = "tables")]
    #[error("{path}: {why}")]
    Baseline {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would help.
        why: String,
    },
    /// A table cannot be written in a file format: a defect.
    #[cfg(feature = "tables")]
    #[error("report `{report}` as {format}: {why}; please report this with the run folder")]
    File {
        /// The report's name.
        report: &'static str,
        /// The format's name.
        format: &'static str,
        /// What its crate said.
        why: String,
    },
    /// Polars refused an expression: a defect of the report.
    #[cfg(feature = "tables")]
    #[error("report `{report}`: {source}; please report this with the run folder")]
    Table {
        /// The report's name.
        report: &'static str,
        /// What Polars said.
        source: polars::error::PolarsError,
    },
}

impl Error {
    /// For `map_err`: the system refused `doing` at `path`.
    pub(crate) fn io(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), doing, source }
    }
}
