//! How to go on behind damage: where the next event, the end of the events or a key that matters is.
//!
//! These are guesses by what rows and documents begin and end with, good enough because they are asked only where the
//! grammar has failed.

use super::batch::Span;
use super::outline::{Doubt, TOP_KEYS, begins_document, begins_event, key_after};
use super::scan::{LONGEST, Scanner};
use crate::Result;

/// How far from a bracket one has to see to tell what it is.
const LOOK_AHEAD: usize = 256;

/// Where reading can go on behind damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boundary {
    /// At an event.
    Event,
    /// At the end of the events.
    End,
    /// At the beginning of another document: what follows belongs to someone else.
    Document,
    /// At the end of the text.
    Nothing,
}

impl Scanner<'_> {
    /// Passes over damage, from the next byte on, which is part of it, to where reading can go on. With `event` the
    /// damage is an event, and goes into the batch for repair if it is in one piece.
    pub(super) fn resume(&mut self, event: bool) -> Result<Boundary> {
        let (mut seen, mut whole) = (1, true);
        // The first brace is the damaged event's own, unless it is no event's.
        if event && begins_document(&self.buffer[..self.filled], self.next) {
            return Ok(Boundary::Document);
        }
        loop {
            let ended = self.filled - self.next <= seen + LOOK_AHEAD && !self.more(self.next)?;
            let text = &self.buffer[self.next..self.filled];
            let limit = if ended { text.len() } else { text.len().saturating_sub(LOOK_AHEAD) };
            let found = (seen..limit).find_map(|at| {
                let boundary = match text[at] {
                    b'{' if begins_document(text, at) => Boundary::Document,
                    b'{' if begins_event(text, at) => Boundary::Event,
                    b']' if ends_events(text, at) => Boundary::End,
                    _ => return None,
                };
                Some((at, boundary))
            });
            let (at, boundary) = found.unwrap_or((limit, Boundary::Nothing));
            if boundary != Boundary::Nothing || ended {
                if event && whole && boundary != Boundary::Nothing {
                    let text = text[..at].trim_ascii_end();
                    let length = text.strip_suffix(b",").unwrap_or(text).trim_ascii_end().len();
                    self.cuts.push(Span {
                        start: self.next,
                        end: self.next + length,
                        doubt: Doubt { content: true, structure: true },
                    });
                }
                self.next += at;
                return Ok(boundary);
            }
            seen = limit.max(seen);
            if seen > LONGEST {
                // Nothing of it can be kept any more.
                whole = false;
                self.next += seen - 1;
                seen = 1;
            }
        }
    }

    /// Whether the next byte, a `]`, does not end the events, because more of them follow soon.
    pub(super) fn events_go_on(&mut self) -> Result<bool> {
        while self.filled - self.next < 16 * LOOK_AHEAD && self.more(self.next)? {}
        let text = &self.buffer[self.next + 1..self.filled];
        if key_after(text.trim_ascii_start(), 1).is_some_and(|key| TOP_KEYS.contains(&key)) {
            return Ok(false);
        }
        // An `id` begins the description of a device, too; rows of another document are none of these.
        let row = |at: usize| begins_event(text, at) && key_after(text, at + 1) != Some(b"id");
        let mut braces = (0..text.len().min(15 * LOOK_AHEAD)).filter(|at| text[*at] == b'{');
        Ok(braces.find(|at| row(*at) || begins_document(text, *at)).is_some_and(|at| !begins_document(text, at)))
    }

    /// Goes to the next key of the document that is one of `wanted`, in spite of damage in between. `false`: there is
    /// none.
    pub(super) fn resume_at_key(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Result<bool> {
        loop {
            let ended = self.filled - self.next < 2 * LOOK_AHEAD && !self.more(self.next)?;
            let text = &self.buffer[self.next..self.filled];
            let limit = if ended { text.len() } else { text.len().saturating_sub(LOOK_AHEAD) };
            let quotes = (0..limit).filter(|at| text[*at] == b'"');
            if let Some(at) = quotes.into_iter().find(|at| key_after(text, *at).is_some_and(&wanted)) {
                self.next += at;
                return Ok(true);
            }
            self.next += limit;
            if ended {
                return Ok(false);
            }
        }
    }
}

/// Whether the `]` at `at` looks like the end of the events: behind one, and before the end of the document or one of
/// its keys.
fn ends_events(text: &[u8], at: usize) -> bool {
    let before = text[..at].iter().rev().find(|byte| !byte.is_ascii_whitespace());
    let behind = text[at + 1..].trim_ascii_start();
    let ends = match behind.first() {
        Some(b'}') => !matches!(behind[1..].trim_ascii_start().first(), Some(b',' | b'}' | b']')),
        Some(b',') => key_after(behind, 1).is_some_and(|key| TOP_KEYS.contains(&key)),
        Some(_) => false,
        None => true,
    };
    ends && matches!(before, Some(b'}' | b','))
}
