//! The crate from outside: run folders on disk, and reports with known answers.

#[cfg(feature = "tables")]
mod baseline;
mod common;
mod diff;
#[cfg(feature = "tables")]
mod files;
mod folder;
mod gate;
mod golden;
#[cfg(feature = "tables")]
mod known_answers;
#[cfg(feature = "tables")]
mod page;
mod perfetto;
mod planted;
#[cfg(feature = "tables")]
mod schema;
mod summary;
mod timeline;
