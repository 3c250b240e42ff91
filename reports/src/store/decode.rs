//! Reads a part back, column by column.
//!
//! Columns are found by name, whatever their order and whatever else is in the file, so a part that another program
//! filtered and wrote again still opens. Everything that an index later relies on is checked here: blocks, axes and
//! ranks exist, nothing ends before it starts, all columns are equally long.

use std::fs::File;

use maestro_pattern::State;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::schema::parser::parse_message_type;

use super::encode::SCHEMA;
use crate::columns::{Columns, Nullable, check_order, check_rank};

/// Values that are decoded at once.
const BATCH: usize = 1 << 13;

/// Why a part cannot be read.
pub(super) enum Fault {
    /// These columns are not there, or of another type.
    Columns(String),
    /// Anything else.
    Corrupt(String),
}

impl From<ParquetError> for Fault {
    fn from(error: ParquetError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

impl From<String> for Fault {
    fn from(why: String) -> Self {
        Self::Corrupt(why)
    }
}

/// Appends the measurements of a part to `columns`.
pub(super) fn read(file: File, columns: &mut Columns) -> Result<(), Fault> {
    let reader = SerializedFileReader::new(file)?;
    let places = places(&reader)?;
    for index in 0..reader.num_row_groups() {
        let first = columns.len();
        let group = reader.get_row_group(index)?;
        let rows = group.metadata().num_rows();
        Group { group: group.as_ref(), places: &places, rows }.read(columns)?;
        for row in first..columns.len() {
            check_order(columns.start_ns[row], columns.end_ns[row])?;
        }
    }
    Ok(())
}

/// Where a file has a column, and whether it may be null there.
struct Place {
    name: String,
    index: usize,
    nullable: bool,
}

/// Finds every column that a part must have.
fn places(reader: &SerializedFileReader<File>) -> Result<Vec<Place>, Fault> {
    let found = reader.metadata().file_metadata().schema_descr();
    let mut places = Vec::new();
    let mut missing = Vec::new();
    for wanted in parse_message_type(SCHEMA)?.get_fields() {
        let (name, physical) = (wanted.name(), wanted.get_physical_type());
        match found.columns().iter().position(|c| c.path().string() == name && c.physical_type() == physical) {
            Some(index) => {
                let nullable = found.column(index).max_def_level() > 0;
                places.push(Place { name: name.to_owned(), index, nullable });
            }
            None => missing.push(format!("`{name}` of type {physical}")),
        }
    }
    if missing.is_empty() { Ok(places) } else { Err(Fault::Columns(missing.join(", "))) }
}

/// A row group that is being read.
struct Group<'a> {
    group: &'a dyn RowGroupReader,
    places: &'a [Place],
    rows: i64,
}

impl Group<'_> {
    fn read(&self, columns: &mut Columns) -> Result<(), Fault> {
        self.numbers("round", &mut columns.round)?;
        self.numbers("iteration", &mut columns.iteration)?;
        let first = columns.rank.len();
        self.numbers("rank", &mut columns.rank)?;
        columns.rank[first..].iter().try_for_each(|rank| check_rank(*rank, columns.ranks))?;
        self.numbers("instance", &mut columns.instance)?;

        let blocks = &columns.blocks;
        self.names(
            "block",
            |name| blocks.known("block", name),
            |block| push_present("block", &mut columns.block, block),
        )?;
        let axes = &columns.axes;
        self.names(
            "axis",
            |name| axes.known("axis", name),
            |axis| {
                columns.axis.push(axis);
                Ok(())
            },
        )?;
        let lanes = &mut columns.lanes;
        self.names("lane", |name| Ok(lanes.intern(name)), |lane| push_present("lane", &mut columns.lane, lane))?;
        self.names("state", state, |state| push_present("state", &mut columns.state, state))?;

        self.times("start_ns", &mut columns.start_ns)?;
        self.times("end_ns", &mut columns.end_ns)?;
        self.nullable("wait_ns", &mut columns.wait_ns)?;
        self.nullable("transfer_ns", &mut columns.transfer_ns)?;
        self.nullable("size_bytes", &mut columns.size_bytes)
    }

    fn numbers(&self, name: &str, into: &mut Vec<u32>) -> Result<(), Fault> {
        self.each::<Int32Type>(name, |value| push_present(name, into, value.map(|value| *value as u32)))
    }

    fn times(&self, name: &str, into: &mut Vec<u64>) -> Result<(), Fault> {
        self.each::<Int64Type>(name, |value| push_present(name, into, value.map(|value| *value as u64)))
    }

    fn nullable(&self, name: &str, into: &mut Nullable) -> Result<(), Fault> {
        self.each::<Int64Type>(name, |value| {
            into.push(value.map(|value| *value as u64));
            Ok(())
        })
    }

    /// Gives the meaning of each name of a column to `take`; equal names often follow each other, so the last is kept.
    fn names<T: Copy>(
        &self,
        name: &str,
        mut meaning: impl FnMut(&str) -> Result<T, String>,
        mut take: impl FnMut(Option<T>) -> Result<(), String>,
    ) -> Result<(), Fault> {
        let mut last: Option<(ByteArray, T)> = None;
        self.each::<ByteArrayType>(name, |value| {
            let Some(bytes) = value else { return take(None) };
            if let Some((known, meaning)) = &last
                && known == bytes
            {
                return take(Some(*meaning));
            }
            let text = std::str::from_utf8(bytes.data()).map_err(|_| format!("column {name} is no UTF-8"))?;
            let meant = meaning(text)?;
            last = Some((bytes.clone(), meant));
            take(Some(meant))
        })
    }

    /// Gives every value of a column to `take`, null ones as `None`.
    fn each<T: DataType>(
        &self,
        name: &str,
        mut take: impl FnMut(Option<&T::T>) -> Result<(), String>,
    ) -> Result<(), Fault> {
        let place = self.places.iter().find(|place| place.name == name);
        let place = place.ok_or_else(|| Fault::Columns(format!("`{name}`")))?;
        // The physical type was compared with the schema's, so this is the right reader and cannot panic.
        let mut column = get_typed_column_reader::<T>(self.group.get_column_reader(place.index)?);
        let (mut values, mut levels) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        let mut rows = 0;
        loop {
            values.clear();
            levels.clear();
            let defined = place.nullable.then_some(&mut levels);
            let (read, ..) = column.read_records(BATCH, defined, None, &mut values)?;
            if read == 0 {
                break;
            }
            rows += read as i64;
            if place.nullable {
                let mut present = values.iter();
                levels.iter().try_for_each(|level| take(if *level > 0 { present.next() } else { None }))?;
            } else {
                values.iter().try_for_each(|value| take(Some(value)))?;
            }
        }
        if rows == self.rows { Ok(()) } else { Err(format!("column {name} has {rows} of {} rows", self.rows).into()) }
    }
}

/// Appends a value that must be there.
fn push_present<T>(name: &str, into: &mut Vec<T>, value: Option<T>) -> Result<(), String> {
    into.push(value.ok_or_else(|| format!("column {name} has a null"))?);
    Ok(())
}

/// The state of this name.
fn state(name: &str) -> Result<State, String> {
    [State::Overlapped, State::Alone]
        .into_iter()
        .find(|state| state.name() == name)
        .ok_or_else(|| format!("state `{name}` is neither overlapped nor alone"))
}
