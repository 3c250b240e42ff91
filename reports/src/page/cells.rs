//! Reading the rows of a table that has been computed.

use super::sources::{Blocks, Source};
use crate::{Value, View};

/// One row of a view.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    view: &'a View,
    row: usize,
}

impl<'a> Cells<'a> {
    /// Every row of `view`.
    pub fn all(view: &'a View) -> impl Iterator<Item = Self> {
        (0..view.rows.len()).map(move |row| Self { view, row })
    }

    /// A name.
    pub fn text(self, key: &str) -> Option<&'a str> {
        match self.view.value(self.row, key) {
            Value::Text(text) => Some(text),
            Value::Missing | Value::Integer(_) | Value::Real(_) => None,
        }
    }

    /// A count.
    pub fn count(self, key: &str) -> Option<u64> {
        match self.view.value(self.row, key) {
            Value::Integer(count) => Some(*count),
            Value::Missing | Value::Text(_) | Value::Real(_) => None,
        }
    }

    /// A measure.
    pub fn real(self, key: &str) -> Option<f64> {
        match self.view.value(self.row, key) {
            Value::Real(value) => Some(*value),
            Value::Missing | Value::Text(_) | Value::Integer(_) => None,
        }
    }

    /// A time in whole nanoseconds, from a column of milliseconds.
    pub fn ns(self, key: &str) -> Option<u64> {
        self.real(key).map(|ms| (ms * 1e6).round() as u64)
    }

    /// The number of the run that the row speaks of.
    pub fn run(self, sources: &[Source<'_>]) -> Option<usize> {
        let id = self.text("run")?;
        sources.iter().position(|source| source.run.info.id == id)
    }

    /// The number of the block that the columns `block` and `axis` name, or others.
    pub fn block(self, blocks: &Blocks, block: &str, axis: &str) -> Option<usize> {
        blocks.named(self.text(block)?, self.text(axis))
    }
}
