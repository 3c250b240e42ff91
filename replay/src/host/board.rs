//! The tickets of one rank: which of its executions have ended, and when they ran.

use std::sync::Arc;
use std::time::Instant;

use super::{End, Monitor};
use crate::{Result, Span};

/// A ticket an instruction. Lanes and the host wait here for what they depend on.
#[derive(Clone)]
pub(super) struct Board(Arc<Monitor<Tickets>>);

struct Tickets {
    /// Per instruction of the program: start and end, once it has ended.
    ended: Vec<Option<(Instant, Instant)>>,
    /// Issued and not ended.
    open: usize,
}

impl Board {
    pub(super) fn new(end: &Arc<End>) -> Self {
        Self(end.monitor(Tickets { ended: Vec::new(), open: 0 }))
    }

    /// A fresh board for a program of so many instructions. Nothing may be open.
    pub(super) fn clear(&self, instructions: usize) {
        self.0.with(|tickets| {
            tickets.ended.clear();
            tickets.ended.resize(instructions, None);
        });
    }

    /// Opens a ticket.
    pub(super) fn issue(&self) {
        self.0.with(|tickets| tickets.open += 1);
    }

    /// Closes the ticket of an instruction. In a row of executions that is timed as one the first start counts.
    pub(super) fn end(&self, index: u32, start: Instant, end: Instant) {
        self.0.update(|tickets| {
            let ticket = &mut tickets.ended[index as usize];
            *ticket = Some((ticket.map_or(start, |(first, _)| first), end));
            tickets.open -= 1;
        });
    }

    /// Waits until all of these instructions have ended.
    ///
    /// # Errors
    /// The world ended.
    pub(super) fn wait(&self, indices: &[u32]) -> Result<()> {
        if indices.is_empty() {
            return Ok(());
        }
        self.0.wait(|tickets| indices.iter().all(|i| tickets.ended[*i as usize].is_some()).then_some(()))
    }

    /// Waits until nothing is open; gives the spans since `zero` in order of instruction, and a fresh board.
    ///
    /// # Errors
    /// The world ended.
    pub(super) fn drain(&self, zero: Instant) -> Result<Vec<Span>> {
        let since = |at: Instant| at.saturating_duration_since(zero).as_nanos() as u64;
        self.0.wait(|tickets| {
            (tickets.open == 0).then(|| {
                let taken = tickets.ended.iter_mut().enumerate().filter_map(|(i, ticket)| Some((i, ticket.take()?)));
                taken
                    .map(|(i, (start, end))| Span { instruction: i as u32, start_ns: since(start), end_ns: since(end) })
                    .collect()
            })
        })
    }
}
