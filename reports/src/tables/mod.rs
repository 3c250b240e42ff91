//! The full reports: tables computed from measurements by Polars.
//!
//! A report gives a typed [`DataFrame`] with unit-named columns, one row per thing it speaks of and run; its [`View`]
//! is the same table with the columns that people see and the method below. A new report is one file here and one
//! entry in [`REPORTS`].
//!
//! Polars aggregates and holds the tables; what it has no expression for (sharing exposed time, what ran beside what,
//! intervals) is computed by this crate's own functions and added as a column.

mod across;
mod blocks;
mod exposure;
mod fidelity;
mod frame;
mod interference;
mod quantiles;
mod schema;
mod steps;
mod view;
mod waits;

pub use schema::{Field, Kind, TABLE_SCHEMA};

use polars::prelude::{DataFrame, PolarsResult};

use crate::view::Shown;
use crate::{Error, FileFormat, Result, Run, Value, View, files, method};
pub(crate) use frame::Row;

/// A table computed from the measurements of one run or several.
pub trait Report: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it shows, in one sentence.
    fn about(&self) -> &'static str;

    /// The columns of its table, after `run`: part of the schema that [`TABLE_SCHEMA`] numbers.
    fn fields(&self) -> &'static [Field];

    /// The typed table, the rows of `runs` one after the other. The first column, `run`, names the run.
    ///
    /// # Errors
    /// What Polars refuses: a defect of the report.
    fn table(&self, runs: &[Run]) -> Result<DataFrame>;

    /// The columns that people see, by key.
    fn shown(&self) -> &'static [Shown];

    /// What its columns mean, as lines for below the table; `view` has the rows already.
    fn method(&self, view: &View) -> Vec<&'static str>;

    /// What is to be said of these runs beyond the method.
    fn remarks(&self, _runs: &[Run], _view: &View) -> Vec<String> {
        Vec::new()
    }

    /// The table with what is needed to print it. The column `run` is seen only if there are several.
    ///
    /// # Errors
    /// As [`Report::table`].
    fn view(&self, runs: &[Run]) -> Result<View> {
        let table = self.table(runs)?;
        let mut shown = self.shown().to_vec();
        shown.retain(|column| column.key != "run" || runs.len() > 1);
        let mut view = view::of(&table, shown).map_err(refused(self.name()))?;
        let empty = |column: &Shown| !presence(&view, column.key).0;
        let kept = view.shown.iter().copied().filter(|column| !(column.optional && empty(column))).collect();
        view.shown = kept;
        view.keys.insert(0, SCHEMA.key.to_owned());
        view.rows.iter_mut().for_each(|row| row.insert(0, Value::Integer(TABLE_SCHEMA.into())));
        view.notes = method::runs(runs);
        view.notes.extend(self.method(&view).into_iter().map(str::to_owned));
        view.notes.extend(self.remarks(runs, &view));
        Ok(view)
    }
}

impl dyn Report {
    /// All columns of what is written for programs: those in front, then the table's own.
    pub fn columns(&self) -> Vec<Field> {
        [SCHEMA, RUN].into_iter().chain(self.fields().iter().copied()).collect()
    }

    /// The table of `runs` as the bytes of a file.
    ///
    /// # Errors
    /// As [`Report::table`], and what the format's crate refuses: a defect.
    pub fn file(&self, runs: &[Run], format: FileFormat) -> Result<Vec<u8>> {
        files::bytes(format, self.name(), &self.columns(), &self.view(runs)?)
    }
}

/// Every report, the default one first.
pub static REPORTS: &[&dyn Report] = &[
    &blocks::Blocks,
    &blocks::Wide,
    &steps::Steps,
    &exposure::ByAxis,
    &interference::Interference,
    &fidelity::ByBlock,
    &waits::Waits,
    &quantiles::Quantiles,
    &across::Across,
];

/// The first column of what is written for programs.
pub const SCHEMA: Field = Field::count("schema", "version of the columns of all tables");
/// The column after it, in front of a table's own: which run a row speaks of.
pub const RUN: Field = Field::text("run", "id of the run");

/// What exposed means, for below the tables.
const EXPOSED: &str = "Exposed = communication that no compute of its rank hides, shared equally among concurrent \
    blocks; a step, mean over all ranks.";

/// For `map_err`: Polars refused something of `report`.
fn refused(report: &'static str) -> impl Fn(polars::error::PolarsError) -> Error {
    move |source| Error::Table { report, source }
}

/// One table of the rows that `of` gives of each run, the run's id in front.
fn stack(fields: &[Field], runs: &[Run], of: impl Fn(&Run) -> PolarsResult<Vec<Row>>) -> PolarsResult<DataFrame> {
    let mut rows = Vec::new();
    for run in runs {
        rows.extend(of(run)?.into_iter().map(|mut row| {
            row.push((RUN.key, Value::Text(run.info.id.clone())));
            row
        }));
    }
    let mut all = vec![RUN];
    all.extend_from_slice(fields);
    frame::table(&all, &rows)
}

/// Whether any row has a value under `key`, and whether any lacks one.
fn presence(view: &View, key: &str) -> (bool, bool) {
    let missing = |row: usize| *view.value(row, key) == Value::Missing;
    ((0..view.rows.len()).any(|row| !missing(row)), (0..view.rows.len()).any(missing))
}
