//! The commands, a file each.

pub mod check;
pub mod doctor;
#[cfg(feature = "import")]
pub mod import;
pub mod replay;
pub mod report;
#[cfg(feature = "import")]
pub mod run;
pub mod show;
