//! Messages through the memory that all ranks of a process share.
//!
//! A message is a letter in the receiver's box that says where in the sender's input the data lies; the sender waits
//! until its letters are taken. A receiver takes letters in the order in which they come, not in that of its program:
//! the transfers of a block run at once, and a late one must not hold up another whose sender others wait for.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use maestro_pattern::{Direction, Transfer, peer};

use crate::Result;
use crate::host::{End, Exchange, LaneBuffers, Monitor, read, write};

/// The letters of one communicator, by seat.
pub(super) struct Mail(Vec<Arc<Monitor<Letters>>>);

#[derive(Default)]
struct Letters {
    /// Come and not taken: by sender, in order, where the data lies in the sender's input.
    come: HashMap<usize, VecDeque<Range<usize>>>,
    /// Sent and not taken yet: the receivers, one entry a letter.
    sent: Vec<usize>,
    /// The senders whose letters are waited for, one entry a letter.
    awaited: Vec<usize>,
}

impl Mail {
    pub(super) fn new(end: &Arc<End>, seats: usize) -> Self {
        Self((0..seats).map(|_| end.monitor(Letters::default())).collect())
    }

    /// The seats that `seat` waits for.
    pub(super) fn missing(&self, seat: usize) -> Vec<usize> {
        self.0[seat].with(|letters| letters.sent.iter().chain(&letters.awaited).copied().collect())
    }

    /// Executes the transfers of one block on one rank. Gives what does not match, if anything.
    ///
    /// # Errors
    /// The world ended.
    pub(super) fn exchange(
        &self,
        transfers: &[Transfer],
        wrap: bool,
        exchange: &Exchange,
        buffers: &[Arc<LaneBuffers>],
    ) -> Result<Option<String>> {
        let (seat, own) = (exchange.seat, &self.0[exchange.seat]);
        let mut awaited: Vec<(usize, Range<usize>)> = Vec::new();
        for (transfer, part) in transfers.iter().zip(&exchange.layouts[seat].parts) {
            let Some(there) = peer(seat, transfer.offset, buffers.len(), wrap) else { continue };
            match transfer.direction {
                Direction::Send => {
                    own.with(|letters| letters.sent.push(there));
                    self.0[there].update(|letters| letters.come.entry(seat).or_default().push_back(part.input.clone()));
                }
                Direction::Recv => awaited.push((there, part.output.clone())),
            }
        }
        own.with(|letters| letters.awaited = awaited.iter().map(|(from, _)| *from).collect());
        let mut output = write(&exchange.buffers.output);
        while !awaited.is_empty() {
            let (next, letter) = own.wait(|letters| {
                awaited.iter().enumerate().find_map(|(next, (from, _))| {
                    let letter = letters.come.get_mut(from)?.pop_front()?;
                    remove_one(&mut letters.awaited, *from);
                    Some((next, letter))
                })
            })?;
            let (from, part) = awaited.remove(next);
            if letter.len() != part.len() {
                return Ok(Some(format!("it receives {} B where {} B are sent", part.len(), letter.len())));
            }
            output.bytes_mut()[part].copy_from_slice(&read(&buffers[from].input).bytes()[letter]);
            self.0[from].update(|letters| remove_one(&mut letters.sent, seat));
        }
        own.wait(|letters| letters.sent.is_empty().then_some(()))?;
        Ok(None)
    }
}

fn remove_one(seats: &mut Vec<usize>, seat: usize) {
    if let Some(at) = seats.iter().position(|other| *other == seat) {
        seats.swap_remove(at);
    }
}
