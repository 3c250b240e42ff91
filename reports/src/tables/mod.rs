//! The full reports: tables computed from measurements by Polars.
//!
//! A report gives a typed [`DataFrame`] with unit-named columns, one row per thing it speaks of and run; its [`View`]
//! is the same table with the columns that people see and the method below. A new report is one file here and one
//! entry in [`REPORTS`].
//!
//! Polars groups and aggregates; what it has no expression for (sharing exposed time, intervals) is computed by this
//! crate's own functions and added as a column.

mod blocks;
mod frame;
mod steps;
mod view;

use polars::prelude::{DataFrame, PolarsResult};

use crate::view::Shown;
use crate::{Error, Result, Run, View, method};

/// A table computed from the measurements of one run or several.
pub trait Report: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it shows, in one sentence.
    fn about(&self) -> &'static str;

    /// The typed table, the rows of `runs` one after the other. The first column, `run`, names the run.
    ///
    /// # Errors
    /// An expression that Polars refuses: a defect of the report.
    fn table(&self, runs: &[Run]) -> Result<DataFrame>;

    /// The columns that people see, by key.
    fn shown(&self) -> &'static [Shown];

    /// What its columns mean, as lines for below the table; `view` has the rows already.
    fn method(&self, view: &View) -> Vec<&'static str>;

    /// The table with what is needed to print it. The column `run` is seen only if there are several.
    ///
    /// # Errors
    /// As [`Report::table`].
    fn view(&self, runs: &[Run]) -> Result<View> {
        let table = self.table(runs)?;
        let mut shown = self.shown().to_vec();
        shown.retain(|column| column.key != "run" || runs.len() > 1);
        let mut view = view::of(&table, shown).map_err(refused(self.name()))?;
        view.notes = method::runs(runs);
        view.notes.extend(self.method(&view).into_iter().map(str::to_owned));
        Ok(view)
    }
}

/// Every report, the default one first.
pub static REPORTS: &[&dyn Report] = &[&blocks::Blocks, &steps::Steps];

/// What exposed means, for below the tables.
const EXPOSED: &str = "Exposed = communication that no compute of its rank hides, shared equally among concurrent \
    blocks; a step, mean over all ranks.";

/// For `map_err`: Polars refused an expression of `report`.
fn refused(report: &'static str) -> impl Fn(polars::error::PolarsError) -> Error {
    move |source| Error::Table { report, source }
}

/// One table of the tables of each run, the run's id in front.
fn stack(runs: &[Run], table: impl Fn(&Run) -> PolarsResult<DataFrame>) -> PolarsResult<DataFrame> {
    use polars::prelude::{IntoLazy, UnionArgs, col, concat, lit};

    let mut tables = Vec::with_capacity(runs.len());
    for run in runs {
        tables.push(table(run)?.lazy().select([lit(run.info.id.as_str()).alias("run"), col("*")]));
    }
    if tables.is_empty() {
        return Ok(DataFrame::empty());
    }
    concat(tables, UnionArgs::default())?.collect()
}
