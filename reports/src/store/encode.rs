//! Writes a part: the measurements of a process as a Parquet file with the columns of [`SCHEMA`].
//!
//! Names are dictionaries; times are plain numbers, since hardly two are alike and plain ones open everywhere.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use maestro_pattern::Measurement;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

/// The columns, in the order in which they are written.
pub(super) const SCHEMA: &str = "
message measurements {
  REQUIRED INT32 round (INTEGER(32,false));
  REQUIRED INT32 iteration (INTEGER(32,false));
  REQUIRED INT32 rank (INTEGER(32,false));
  REQUIRED BYTE_ARRAY block (STRING);
  OPTIONAL BYTE_ARRAY axis (STRING);
  REQUIRED BYTE_ARRAY lane (STRING);
  REQUIRED INT32 instance (INTEGER(32,false));
  REQUIRED BYTE_ARRAY state (STRING);
  REQUIRED INT64 start_ns (INTEGER(64,false));
  REQUIRED INT64 end_ns (INTEGER(64,false));
  OPTIONAL INT64 wait_ns (INTEGER(64,false));
  OPTIONAL INT64 transfer_ns (INTEGER(64,false));
  OPTIONAL INT64 size_bytes (INTEGER(64,false));
}";

/// Columns whose values hardly repeat.
const PLAIN: [&str; 4] = ["start_ns", "end_ns", "wait_ns", "transfer_ns"];

/// Rows a row group: what is held in memory beside the columns themselves.
const GROUP_ROWS: usize = 1 << 20;

/// Writes all `measurements` to `file`.
pub(super) fn write<W: Write + Send>(file: W, measurements: &[Measurement]) -> Result<(), ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("maestro ", env!("CARGO_PKG_VERSION")).into());
    for name in PLAIN {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(name), false);
    }
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build()))?;
    for rows in measurements.chunks(GROUP_ROWS) {
        let mut group = writer.next_row_group()?;
        write_group(&mut group, rows)?;
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

/// The columns in the order of [`SCHEMA`]; unsigned numbers keep their bits.
fn write_group<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Measurement],
) -> Result<(), ParquetError> {
    let number = |value: Option<u64>| value.map(|value| value as i64);
    let mut names = NameBytes::default();
    required::<Int32Type>(group, rows, |m| m.round as i32)?;
    required::<Int32Type>(group, rows, |m| m.iteration as i32)?;
    required::<Int32Type>(group, rows, |m| m.rank as i32)?;
    required::<ByteArrayType>(group, rows, |m| names.of(&m.block))?;
    optional::<ByteArrayType>(group, rows, |m| m.axis.as_ref().map(|axis| names.of(axis)))?;
    required::<ByteArrayType>(group, rows, |m| names.of(&m.lane))?;
    required::<Int32Type>(group, rows, |m| m.instance as i32)?;
    required::<ByteArrayType>(group, rows, |m| names.of(m.state.name()))?;
    required::<Int64Type>(group, rows, |m| m.start_ns as i64)?;
    required::<Int64Type>(group, rows, |m| m.end_ns as i64)?;
    optional::<Int64Type>(group, rows, |m| number(m.wait_ns))?;
    optional::<Int64Type>(group, rows, |m| number(m.transfer_ns))?;
    optional::<Int64Type>(group, rows, |m| number(m.size_bytes))
}

/// Names as Parquet wants them, each allocated once.
#[derive(Default)]
struct NameBytes(HashMap<String, ByteArray>);

impl NameBytes {
    fn of(&mut self, name: &str) -> ByteArray {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let bytes = ByteArray::from(name);
        self.0.insert(name.to_owned(), bytes.clone());
        bytes
    }
}

fn required<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    rows: &[Measurement],
    value: impl FnMut(&Measurement) -> T::T,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = rows.iter().map(value).collect();
    next_column::<T>(group, &values, None)
}

fn optional<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    rows: &[Measurement],
    value: impl FnMut(&Measurement) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let all: Vec<Option<T::T>> = rows.iter().map(value).collect();
    let levels: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = all.into_iter().flatten().collect();
    next_column::<T>(group, &values, Some(&levels))
}

fn next_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column =
        group.next_column()?.ok_or_else(|| ParquetError::General("more columns than the schema".into()))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}
