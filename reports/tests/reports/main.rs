//! The crate from outside: run folders on disk, and reports with known answers.

mod common;
mod diff;
mod folder;
mod gate;
mod golden;
#[cfg(feature = "tables")]
mod known_answers;
mod perfetto;
mod planted;
mod summary;
mod timeline;
