//! Tables as files with types: Parquet and Arrow, for whoever goes on computing.
//!
//! Columns and types are those of the report's fields, whatever was measured, so files of several runs fit each other.
//! Both carry the table's name and the version of the schema as metadata, under `maestro.table` and `maestro.schema`.

mod arrow;
mod parquet;

use crate::{Error, Field, Kind, Result, TABLE_SCHEMA, Value, View};

/// A file format with types. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileFormat {
    /// Apache Parquet, compressed with Snappy.
    Parquet,
    /// The IPC file format of Apache Arrow, which is Feather version 2; not compressed.
    Arrow,
}

impl FileFormat {
    /// Every format.
    pub const ALL: [Self; 2] = [Self::Parquet, Self::Arrow];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }

    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// A table, column by column.
struct Table {
    name: &'static str,
    columns: Vec<(Field, Values)>,
}

/// The values of a column.
enum Values {
    Text(Vec<Option<String>>),
    Count(Vec<Option<u64>>),
    Real(Vec<Option<f64>>),
}

/// The bytes of a file with the rows of `view` under the columns of `fields`.
///
/// # Errors
/// What the format's crate refuses: a defect.
pub(crate) fn bytes(format: FileFormat, name: &'static str, fields: &[Field], view: &View) -> Result<Vec<u8>> {
    let table = Table { name, columns: fields.iter().map(|field| (*field, values(view, field))).collect() };
    let written = match format {
        FileFormat::Parquet => parquet::write(&table).map_err(|source| source.to_string()),
        FileFormat::Arrow => arrow::write(&table).map_err(|source| source.to_string()),
    };
    written.map_err(|why| Error::File { report: name, format: format.name(), why })
}

fn values(view: &View, field: &Field) -> Values {
    let all = (0..view.rows.len()).map(|row| view.value(row, field.key));
    match field.kind {
        Kind::Text => {
            Values::Text(all.map(|v| if let Value::Text(text) = v { Some(text.clone()) } else { None }).collect())
        }
        Kind::Count => Values::Count(all.map(|v| if let Value::Integer(n) = v { Some(*n) } else { None }).collect()),
        Kind::Real => Values::Real(all.map(|v| if let Value::Real(real) = v { Some(*real) } else { None }).collect()),
    }
}

/// What both formats say of a table as a whole.
fn metadata(table: &Table) -> [(String, String); 3] {
    [
        ("maestro.schema".into(), TABLE_SCHEMA.to_string()),
        ("maestro.table".into(), table.name.into()),
        ("maestro.version".into(), env!("CARGO_PKG_VERSION").into()),
    ]
}
