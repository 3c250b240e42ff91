//! Profiler captures of training steps in, patterns out.
//!
//! An [`Importer`] reads one file format into [`capture::Timeline`]s and knows nothing else; [`read`] finds the files,
//! asks [`IMPORTERS`] who recognises them, and gathers a [`capture::Capture`]. [`synthesis`] makes of it a Pattern and
//! the captured executions of its blocks.
//!
//! This crate knows no back end and prints nothing: what is odd goes into [`Notes`], what is wrong into [`Error`].

pub mod capture;
mod chakra;
mod error;
mod execution;
pub mod export;
mod input;
mod kineto;
mod libraries;
mod marks;
mod notes;
mod nsight;
mod operator;
mod schedule;
mod source;
mod stated;
pub mod synthesis;

use std::path::Path;

pub use error::{Error, Result};
pub use input::{Head, Verdict};
pub use libraries::CommKernel;
pub use marks::mark_steps;
pub use notes::{Note, Notes};
pub use source::read;

/// Reads one capture format.
pub trait Importer: Sync {
    /// Its name on the command line and in patterns.
    fn name(&self) -> &'static str;

    /// What it reads, and what writes that, for a person.
    fn about(&self) -> &'static str;

    /// Whether it reads files that begin so. Decided by content, never by the file's name.
    fn recognise(&self, head: &Head) -> Verdict;

    /// Reads one file.
    ///
    /// # Errors
    /// What cannot be survived, or with [`Reading::strict`] what is wrong at all, with the file and the byte position;
    /// the rest goes into `notes`.
    fn read(&self, file: &Path, reading: &Reading, notes: &mut Notes) -> Result<Vec<capture::Timeline>>;
}

/// How captures are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Refuse damaged files, instead of reading what is there and noting what was lost.
    pub strict: bool,
    /// Threads, beside its own, that the reading of one file may use. [`read`] sets this by the number of files.
    pub helpers: usize,
}

/// Every format that can be read.
pub static IMPORTERS: &[&dyn Importer] =
    &[&kineto::Kineto, &nsight::Sqlite, &nsight::JsonLines, &nsight::Report, &chakra::Chakra];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_importer_has_a_name_of_its_own_and_claims_no_foreign_file() {
        let names: HashSet<_> = IMPORTERS.iter().map(|importer| importer.name()).collect();
        assert_eq!(names.len(), IMPORTERS.len());
        for content in ["", "hello\n", "{\"name\": \"x\"}", "maestro: 1\nname: x\n", "PAR1", "SQLite format 3\0"] {
            let head = Head::new(content.into(), false);
            for importer in IMPORTERS {
                assert!(!importer.about().is_empty());
                assert_ne!(importer.recognise(&head), Verdict::Yes, "{} claims {content:?}", importer.name());
            }
        }
    }
}
