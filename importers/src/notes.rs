//! Odd things that an import met and survived: counted, with the first example of each kind.

use std::collections::BTreeMap;

/// Collects notes while a capture is read.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    notes: BTreeMap<&'static str, Note>,
}

/// One kind of odd thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// How often it was met.
    pub count: u64,
    /// The first one, in words.
    pub example: String,
}

impl Notes {
    /// Counts one of `kind` (a short phrase that reads well after a number); `example` is asked for the first only.
    pub fn add(&mut self, kind: &'static str, example: impl FnOnce() -> String) {
        self.add_many(kind, 1, example);
    }

    /// Counts `count` of `kind`; nothing if that is none.
    pub fn add_many(&mut self, kind: &'static str, count: u64, example: impl FnOnce() -> String) {
        if count > 0 {
            self.notes.entry(kind).or_insert_with(|| Note { count: 0, example: example() }).count += count;
        }
    }

    /// Adds all of `other`, as if met after these.
    pub fn merge(&mut self, other: Notes) {
        for (kind, note) in other.notes {
            self.notes.entry(kind).and_modify(|mine| mine.count += note.count).or_insert(note);
        }
    }

    /// Kinds with their notes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Note)> {
        self.notes.iter().map(|(kind, note)| (*kind, note))
    }

    /// Whether nothing odd was met.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }
}
