//! The text formats of a [`View`].
//!
//! Table and Markdown are for people: the shown columns, and the notes below. CSV and JSON are for programs: all raw
//! columns in full precision under unit-named keys, and nothing else.

mod csv;
mod markdown;
mod table;

use crate::View;
use crate::view::{Show, Shown};

/// A text format. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Aligned columns for a terminal.
    Table,
    /// A pipe table as GitHub draws it.
    Markdown,
    /// RFC 4180: comma-separated, CRLF, a header line; missing values are empty.
    Csv,
    /// An array of one object a row; missing values are null.
    Json,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::Table, Self::Markdown, Self::Csv, Self::Json];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Markdown => "md",
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }

    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

impl View {
    /// The whole text in `format`, with a line end after the last line.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Table => table::render(self),
            Format::Markdown => markdown::render(self),
            Format::Csv => csv::render(self),
            Format::Json => json(self),
        }
    }
}

/// The array of rows. Writing to memory cannot fail, and every key is a string.
fn json(view: &View) -> String {
    let mut text = serde_json::to_string_pretty(view).expect("a view serializes");
    text.push('\n');
    text
}

/// Whether a column stands at the right of its width, as numbers do.
pub(crate) fn at_right(shown: &Shown) -> bool {
    match shown.show {
        Show::Text => false,
        Show::Count
        | Show::Bytes
        | Show::Millis
        | Show::Rate
        | Show::Percent
        | Show::Significant
        | Show::Change
        | Show::Factor => true,
    }
}
