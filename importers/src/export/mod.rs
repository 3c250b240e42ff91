//! Plans out, in the formats of other tools. It writes no file: bytes go to whoever opens one.
//!
//! This is importing backwards, and stands beside the importers because it shares their formats' messages: a field
//! number must not stand in two crates. What it takes is a Plan, checked and unrolled, and not a Pattern: a format
//! without loops has nothing else to say, and neither has a reader of it. It is the one place beside
//! [`crate::synthesis`] that knows one.

mod chakra;
mod routes;

use maestro_pattern::Plan;

/// Writes plans in one format.
pub trait Exporter: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it writes, and what reads that, for a person.
    fn about(&self) -> &'static str;

    /// How the file of a rank is called.
    fn file(&self, prefix: &str, rank: u32) -> String;

    /// What `rank` does, as the content of its file.
    fn write(&self, plan: &Plan, rank: u32) -> Vec<u8>;

    /// What of the plan the format has no place for, a sentence each.
    fn left_out(&self, plan: &Plan) -> Vec<String>;
}

/// Every format that can be written.
pub static EXPORTERS: &[&dyn Exporter] = &[&chakra::Chakra];
