//! A table as an Arrow IPC file.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};

use super::{Table, Values};
use crate::Kind;

/// The file's bytes: one record batch, every column nullable; each field tells its unit and what it is.
pub(super) fn write(table: &Table) -> Result<Vec<u8>, ArrowError> {
    let field = |field: &crate::Field| {
        let kind = match field.kind {
            Kind::Text => DataType::Utf8,
            Kind::Count => DataType::UInt64,
            Kind::Real => DataType::Float64,
        };
        let about = [("unit", field.unit), ("about", field.about)].map(|(key, text)| (key.to_owned(), text.to_owned()));
        Field::new(field.key, kind, true).with_metadata(HashMap::from(about))
    };
    let fields: Vec<Field> = table.columns.iter().map(|(one, _)| field(one)).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, HashMap::from(super::metadata(table))));
    let columns = table.columns.iter().map(|(_, values)| -> ArrayRef {
        match values {
            Values::Text(all) => Arc::new(StringArray::from_iter(all)),
            Values::Count(all) => Arc::new(UInt64Array::from_iter(all.iter().copied())),
            Values::Real(all) => Arc::new(Float64Array::from_iter(all.iter().copied())),
        }
    });
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect())?;
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, &schema)?;
    writer.write(&batch)?;
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}
