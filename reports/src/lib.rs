//! Run folders, and the reports computed from them.
//!
//! A replay or an import writes what it measured as a folder ([`RunWriter`]); [`Run::open`] reads it back. Everything
//! that is said about runs is computed from that: which communication no compute hid ([`Exposure`]), how well a
//! simulation or replay keeps to its capture ([`Fidelity`]), and the tables ([`View`]), which print as terminal
//! table, Markdown, CSV and JSON ([`Format`]). [`diff`] tells whether two sets of runs differ. [`perfetto()`] draws executions as a timeline.
//!
//! Two builds share this crate. With the feature `tables` (the default) the full reports are here, computed by Polars:
//! `REPORTS`, each a `Report`. Without it there are only [`summary()`] and the timeline, for the lean replayer on the
//! machines of a cluster. Polars is named in `tables/` and nowhere else; the run folder is read and written without it.
//!
//! This crate runs nothing, knows no back end, reads no clock and prints nothing.

#[cfg(feature = "tables")]
mod baseline;
#[cfg(feature = "tables")]
mod beside;
mod columns;
pub mod diff;
#[cfg(feature = "tables")]
mod doubts;
mod error;
mod exposure;
mod fidelity;
#[cfg(feature = "tables")]
mod files;
mod info;
mod method;
#[cfg(feature = "tables")]
mod page;
mod perfetto;
mod render;
mod run;
mod statistics;
mod store;
mod summary;
#[cfg(feature = "tables")]
mod tables;
mod view;

#[cfg(feature = "tables")]
pub use baseline::{Baseline, Match, Point, Test};
pub use columns::{Columns, Nullable};
pub use error::{Error, Result};
pub use exposure::{Exposure, Figures, Interval, RankStep, Role, Waits, sweep};
pub use fidelity::Fidelity;
#[cfg(feature = "tables")]
pub use files::FileFormat;
pub use info::{AxisInfo, Environment, Origin, PatternInfo, RUN_SCHEMA, RunInfo, Settings};
pub use method::Headline;
#[cfg(feature = "tables")]
pub use page::{PageOptions, page, page_of_diff};
pub use perfetto::{Traced, perfetto};
pub use render::Format;
pub use run::Run;
pub use store::RunWriter;
pub use summary::summary;
#[cfg(feature = "tables")]
pub use tables::{Field, Kind, REPORTS, RUN, Report, SCHEMA, TABLE_SCHEMA};
pub use view::{Show, Shown, Value, View};
