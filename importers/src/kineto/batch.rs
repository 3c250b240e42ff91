//! The events of a file, cut but not yet read, on their way to the threads that read them.
//!
//! Cutting is far faster than reading, so one thread cuts and others read. What they find is put together in the order
//! of the file, so that the outcome does not depend on who was faster.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use serde::de::IgnoredAny;

use super::event::{Event, is_of_no_use};
use super::names::Names;
use super::outline::Doubt;
use super::repair::{self, Repaired};
use super::rows::Rows;
use crate::{Error, Notes};

/// Some events that follow each other in a file.
#[derive(Default)]
pub(super) struct Batch {
    /// Where in the file `text` begins.
    pub(super) base: u64,
    /// The text that they are in.
    pub(super) text: Vec<u8>,
    /// Where each is.
    pub(super) cuts: Vec<Span>,
}

/// One event in the text of a batch.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) doubt: Doubt,
}

/// A place in the text and what is wrong there.
pub(super) type Problem = (u64, String);

/// What was read of some events.
#[derive(Default)]
pub(super) struct Harvest {
    pub(super) rows: Rows,
    pub(super) notes: Notes,
    /// What ended the reading, if it was to be strict.
    pub(super) error: Option<Error>,
}

/// Reads events.
struct Reader<'a> {
    file: &'a Path,
    strict: bool,
    names: Names,
}

impl Reader<'_> {
    fn read(&mut self, batch: &Batch) -> Harvest {
        let mut harvest = Harvest::default();
        harvest.rows.swap_names(&mut self.names);
        for cut in &batch.cuts {
            let (byte, text) = (batch.base + cut.start as u64, &batch.text[cut.start..cut.end]);
            if let Err((byte, problem)) = self.event(byte, text, cut.doubt, &mut harvest) {
                harvest.error = Some(Error::Malformed { file: self.file.to_owned(), byte, problem });
                break;
            }
        }
        harvest.rows.swap_names(&mut self.names);
        harvest
    }

    /// Reads one event. A problem is told only if the reading is strict.
    fn event(&self, byte: u64, text: &[u8], doubt: Doubt, harvest: &mut Harvest) -> std::result::Result<(), Problem> {
        let Harvest { rows, notes, .. } = harvest;
        let json = std::str::from_utf8(text)
            .map_err(|error| (byte + error.valid_up_to() as u64, "bytes that are no UTF-8".to_owned()));
        let doubtful = doubt.content || doubt.structure;
        if !self.strict && !doubtful && json.as_ref().is_ok_and(|json| is_of_no_use(json)) {
            return Ok(());
        }
        let sound = json.and_then(|json| {
            let judge = || serde_json::from_str::<IgnoredAny>(json).map_err(|error| problem(byte, text, &error));
            if self.strict || doubtful {
                judge()?;
            }
            Event::of(json).ok_or_else(|| judge().err().unwrap_or_else(|| (byte, "this is no event".to_owned())))
        });
        match sound {
            Ok((_, Some(key))) if self.strict => Err((byte, format!("the key `{key}` occurs twice"))),
            Ok((event, twice)) => {
                take(&event, twice, byte, rows, notes);
                Ok(())
            }
            Err(problem) if self.strict => Err(problem),
            Err((at, problem)) => {
                let repaired = repair::repair(text);
                let Some((event, twice)) = repaired.as_ref().and_then(|repaired| Event::of(&repaired.json)) else {
                    notes.add("events that cannot be read, left out", || {
                        format!("byte {byte}, {} bytes of {}: at byte {at}, {problem}", text.len(), self.file.display())
                    });
                    return Ok(());
                };
                if let Some(repaired) = &repaired {
                    note_faults(self.file, byte, repaired, notes);
                }
                take(&event, twice, byte, rows, notes);
                Ok(())
            }
        }
    }
}

/// Notes what was wrong with a value that begins at `byte`.
pub(super) fn note_faults(file: &Path, byte: u64, repaired: &Repaired, notes: &mut Notes) {
    for (fault, at, what) in &repaired.faults {
        notes.add(fault.kind(), || format!("`{what}`, at byte {} of {}", byte + *at as u64, file.display()));
    }
}

fn take(event: &Event<'_>, twice: Option<&str>, byte: u64, rows: &mut Rows, notes: &mut Notes) {
    if let Some(key) = twice {
        notes.add("rows with a key that occurs twice, the last taken", || format!("`{key}` at byte {byte}"));
    }
    rows.take(event, notes);
}

/// Where serde_json met a problem in `text`, which begins at `byte`. It counts lines from 1; the column is how many
/// bytes of the line it took, with most problems up to and including the wrong one. Where it stopped before that, this is
/// one byte early.
pub(super) fn problem(byte: u64, text: &[u8], error: &serde_json::Error) -> Problem {
    let lines: usize =
        text.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    (byte + (lines + error.column()).saturating_sub(1) as u64, message.to_owned())
}

/// Runs `cut`, which sends away batches, and reads them, by so many `helpers` or by this thread.
pub(super) fn gather<T>(
    file: &Path,
    strict: bool,
    helpers: usize,
    cut: impl FnOnce(&dyn Fn(Batch)) -> T,
) -> (T, Harvest) {
    let reader = || Reader { file, strict, names: Names::default() };
    if helpers == 0 {
        let state = RefCell::new((reader(), Harvest::default()));
        let done = cut(&|batch| {
            let (reader, all) = &mut *state.borrow_mut();
            if all.error.is_none() {
                all.append(reader.read(&batch));
            }
        });
        return (done, state.into_inner().1);
    }
    let (sender, receiver) = mpsc::sync_channel::<(usize, Batch)>(helpers);
    let receiver = Mutex::new(receiver);
    let (order, failed) = (Mutex::new(Order::default()), AtomicBool::new(false));
    let done = std::thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|| {
                let mut reader = reader();
                loop {
                    // The lock is held only until a batch comes: whoever waits for it would wait for the batch instead.
                    let next = lock(&receiver).recv();
                    let Ok((index, batch)) = next else { break };
                    let harvest = reader.read(&batch);
                    if harvest.error.is_some() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    lock(&order).add(index, harvest);
                }
            });
        }
        let count = RefCell::new(0);
        let done = cut(&|batch| {
            // Behind an error nothing matters; what came before it is on its way.
            if !failed.load(Ordering::Relaxed) {
                let index = *count.borrow();
                *count.borrow_mut() += 1;
                // Nobody receives only after a panic, which ends the scope.
                let _ = sender.send((index, batch));
            }
        });
        drop(sender);
        done
    });
    (done, order.into_inner().unwrap_or_else(PoisonError::into_inner).all)
}

/// A lock whose holder never leaves things half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts harvests into the order of the file.
#[derive(Default)]
struct Order {
    all: Harvest,
    next: usize,
    early: BTreeMap<usize, Harvest>,
}

impl Order {
    fn add(&mut self, index: usize, harvest: Harvest) {
        self.early.insert(index, harvest);
        while let Some(harvest) = self.early.remove(&self.next) {
            self.next += 1;
            if self.all.error.is_none() {
                self.all.append(harvest);
            }
        }
    }
}

impl Harvest {
    fn append(&mut self, later: Harvest) {
        self.rows.append(later.rows);
        self.notes.merge(later.notes);
        self.error = later.error;
    }
}
