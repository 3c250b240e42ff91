//! Tables as files with types, read back by others than their writers.

use std::collections::HashMap;

use maestro_reports::{FileFormat, Kind, REPORTS, TABLE_SCHEMA, Value};
use readers::{Cell, arrow, parquet};

use crate::common::run;

/// Readers of the two crates, as plain cells.
mod readers {
    use std::io::Cursor;

    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, UInt64Type};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    /// A value as a reader gives it.
    #[derive(Debug, PartialEq)]
    pub enum Cell {
        Null,
        Text(String),
        Count(u64),
        Real(f64),
    }

    type Read = (Vec<(String, String)>, Vec<(String, Vec<Cell>)>);

    /// Metadata, and columns by name.
    pub fn arrow(bytes: Vec<u8>) -> Read {
        let reader = arrow_ipc::reader::FileReader::try_new(Cursor::new(bytes), None).unwrap();
        let schema = reader.schema();
        let metadata = schema.metadata().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let batch = reader.map(Result::unwrap).next().unwrap();
        let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
            let cell = |row: usize| {
                if column.is_null(row) {
                    Cell::Null
                } else if let Some(texts) = column.as_string_opt::<i32>() {
                    Cell::Text(texts.value(row).to_owned())
                } else if let Some(counts) = column.as_primitive_opt::<UInt64Type>() {
                    Cell::Count(counts.value(row))
                } else {
                    Cell::Real(column.as_primitive::<Float64Type>().value(row))
                }
            };
            (field.name().clone(), (0..column.len()).map(cell).collect())
        });
        (metadata, columns.collect())
    }

    /// The same of a Parquet file.
    pub fn parquet(bytes: Vec<u8>) -> Read {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.parquet");
        std::fs::write(&path, bytes).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap();
        let metadata = metadata.iter().map(|pair| (pair.key.clone(), pair.value.clone().unwrap())).collect();
        let names = reader.metadata().file_metadata().schema_descr().columns().to_vec();
        let mut columns: Vec<(String, Vec<Cell>)> =
            names.iter().map(|column| (column.name().to_owned(), Vec::new())).collect();
        for row in reader.get_row_iter(None).unwrap() {
            for ((_, cells), (_, field)) in columns.iter_mut().zip(row.unwrap().get_column_iter()) {
                cells.push(match field {
                    Field::Null => Cell::Null,
                    Field::Str(text) => Cell::Text(text.clone()),
                    Field::ULong(count) => Cell::Count(*count),
                    Field::Double(real) => Cell::Real(*real),
                    other => panic!("{other}"),
                });
            }
        }
        (metadata, columns)
    }
}

#[test]
fn every_table_comes_back_from_both_formats() {
    for report in REPORTS {
        let runs = [run("a", 3, 1), run("b", 2, 1)];
        let view = report.view(&runs).unwrap();
        for format in FileFormat::ALL {
            let bytes = report.file(&runs, format).unwrap();
            assert_eq!(bytes, report.file(&runs, format).unwrap(), "the same table gives the same bytes");
            let (metadata, columns) = if format == FileFormat::Arrow { arrow(bytes) } else { parquet(bytes) };
            let metadata: HashMap<String, String> = metadata.into_iter().collect();
            assert_eq!(metadata["maestro.table"], report.name());
            assert_eq!(metadata["maestro.schema"], TABLE_SCHEMA.to_string());
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, view.keys, "{}", report.name());
            for (name, cells) in &columns {
                assert_eq!(cells.len(), view.rows.len());
                for (row, cell) in cells.iter().enumerate() {
                    let expected = match view.value(row, name) {
                        Value::Missing => Cell::Null,
                        Value::Text(text) => Cell::Text(text.clone()),
                        Value::Integer(count) => Cell::Count(*count),
                        Value::Real(real) => Cell::Real(*real),
                    };
                    assert_eq!(*cell, expected, "{} {name} {row}", report.name());
                }
            }
        }
    }
}

#[test]
fn a_table_without_rows_keeps_its_columns() {
    for report in REPORTS {
        let (_, columns) = parquet(report.file(&[], FileFormat::Parquet).unwrap());
        let names: Vec<String> = columns.into_iter().map(|(name, _)| name).collect();
        let expected: Vec<&str> = report.columns().iter().map(|field| field.key).collect();
        assert_eq!(names, expected, "{}", report.name());
        let kinds = report.columns().iter().filter(|field| field.kind == Kind::Text).count();
        assert!(kinds >= 1, "{} has names", report.name());
    }
}
