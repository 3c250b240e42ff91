//! The commands, a file each.

mod ab;
pub mod check;
#[cfg(feature = "import")]
mod compute;
#[cfg(feature = "import")]
mod describe;
pub mod diff;
pub mod doctor;
#[cfg(feature = "import")]
mod document;
#[cfg(feature = "import")]
pub mod export;
mod folders;
#[cfg(feature = "import")]
pub mod import;
pub mod replay;
pub mod report;
#[cfg(feature = "import")]
pub mod run;
pub mod show;
#[cfg(feature = "tables")]
pub mod sweep;
mod together;
