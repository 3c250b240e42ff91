//! What the columns of the tables are: the schema that every form of a table keeps to.
//!
//! A table's fields are stated once, here as a type and in each report as a list. The data frame is made from the list,
//! and files take their types from it, so that a column in which nothing was measured has the same type as always.

/// Version of the columns of all tables: the first column of every row that is written for programs.
///
/// Adding a column at the end of a table leaves it as it is. Renaming or removing one, or giving one another meaning,
/// unit or type, makes a new version.
pub const TABLE_SCHEMA: u32 = 1;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Names and words: UTF-8.
    Text,
    /// Counts and bytes: unsigned integers of 64 bits.
    Count,
    /// Measures: floats of 64 bits.
    Real,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in all forms that programs read.
    pub key: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its unit; empty for names, counts and ratios.
    pub unit: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
}

impl Field {
    /// A name or a word.
    pub const fn text(key: &'static str, about: &'static str) -> Self {
        Self { key, kind: Kind::Text, unit: "", about }
    }

    /// A count.
    pub const fn count(key: &'static str, about: &'static str) -> Self {
        Self { key, kind: Kind::Count, unit: "", about }
    }

    /// A number of bytes.
    pub const fn bytes(key: &'static str, about: &'static str) -> Self {
        Self { key, kind: Kind::Count, unit: "B", about }
    }

    /// A measure in `unit`.
    pub const fn real(key: &'static str, unit: &'static str, about: &'static str) -> Self {
        Self { key, kind: Kind::Real, unit, about }
    }
}
