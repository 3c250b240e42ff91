//! The one error of this crate: what is wrong with a pattern, where, and what would help.

use std::fmt;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// A position in a YAML text, lines and columns counted from 1. Patterns made in memory have none.
///
/// Two places always compare equal, so that a pattern equals its own re-reading: where a thing stood in a file is
/// not part of what it means.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place(Option<(u32, u32)>);

impl Place {
    /// The position at `line` and `column`, both from 1.
    pub fn new(line: u32, column: u32) -> Self {
        Self(Some((line, column)))
    }

    /// Line and column, if the pattern came from a text.
    pub fn position(self) -> Option<(u32, u32)> {
        self.0
    }
}

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Place {}

/// What is wrong with a pattern: one sentence with its place and, where there is one, the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// Where in the YAML text.
    pub place: Place,
    /// What is wrong, without a full stop.
    pub message: String,
    /// What would help, without a full stop.
    pub help: Option<String>,
}

impl Error {
    pub(crate) fn at(place: Place, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds "did you mean ..." with the nearest of `known`, or lists them when none is near.
    pub(crate) fn nearest<'a>(self, wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        /// A longer list is a wall of text in one sentence.
        const MOST_LISTED: usize = 24;
        let known: Vec<&str> = known.into_iter().collect();
        let best = known
            .iter()
            .map(|name| (strsim::damerau_levenshtein(wrong, name), *name))
            .min()
            .filter(|(distance, name)| *distance <= 1 + name.len() / 3);
        match best {
            Some((_, name)) => self.help(format!("did you mean `{name}`?")),
            None if known.is_empty() => self,
            None => match known.len().saturating_sub(MOST_LISTED) {
                0 => self.help(format!("known here: {}", known.join(", "))),
                more => self.help(format!("known here: {} and {more} more", known[..MOST_LISTED].join(", "))),
            },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.place.position() {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}
