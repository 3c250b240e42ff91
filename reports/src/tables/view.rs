//! From a data frame to the view that all formats render.

use polars::prelude::*;

use crate::view::Shown;
use crate::{Value, View};

/// All columns of `table` as raw values, with the columns that people see.
pub(super) fn of(table: &DataFrame, shown: Vec<Shown>) -> PolarsResult<View> {
    let columns: Vec<Vec<Value>> = table.columns().iter().map(values).collect::<PolarsResult<_>>()?;
    let rows = (0..table.height()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect();
    let keys = table.get_column_names().into_iter().map(ToString::to_string).collect();
    Ok(View { keys, rows, shown, notes: Vec::new() })
}

/// Reports have names, counts and measures: strings, unsigned integers and floats.
fn values(column: &Column) -> PolarsResult<Vec<Value>> {
    Ok(match column.dtype() {
        DataType::String => column.str()?.iter().map(Value::text).collect(),
        DataType::UInt32 | DataType::UInt64 => {
            column.cast(&DataType::UInt64)?.u64()?.iter().map(Value::integer).collect()
        }
        _ => column.cast(&DataType::Float64)?.f64()?.iter().map(Value::real).collect(),
    })
}
