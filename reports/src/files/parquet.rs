//! A table as Parquet.

use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::{Table, Values};
use crate::{Field, Kind};

/// The file's bytes: one row group, every column optional.
pub(super) fn write(table: &Table) -> Result<Vec<u8>> {
    let fields = table.columns.iter().map(|(field, _)| column(field).map(Arc::new)).collect::<Result<_>>()?;
    let schema = Type::group_type_builder(table.name).with_fields(fields).build()?;
    let metadata = super::metadata(table).map(|(key, value)| KeyValue::new(key, value)).to_vec();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("maestro ", env!("CARGO_PKG_VERSION")).into())
        .set_key_value_metadata(Some(metadata))
        .build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (_, values) in &table.columns {
        match values {
            Values::Text(all) => next::<ByteArrayType, _>(&mut group, all, |text| ByteArray::from(text.as_str()))?,
            Values::Count(all) => next::<Int64Type, _>(&mut group, all, |count| *count as i64)?,
            Values::Real(all) => next::<DoubleType, _>(&mut group, all, |real| *real)?,
        }
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

fn column(field: &Field) -> Result<Type> {
    let (physical, logical) = match field.kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Count => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Real => (Physical::DOUBLE, None),
    };
    Type::primitive_type_builder(field.key, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

/// Writes the next column.
fn next<T: DataType, V>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    all: &[Option<V>],
    value: impl Fn(&V) -> T::T,
) -> Result<()> {
    let levels: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = all.iter().flatten().map(value).collect();
    let mut column =
        group.next_column()?.ok_or_else(|| ParquetError::General("more columns than the schema".into()))?;
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}
