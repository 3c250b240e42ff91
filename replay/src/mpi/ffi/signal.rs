//! SIGTERM while ranks are measured: it is noted instead of ending the process at once.
//!
//! mpirun and srun send it to all processes as soon as one is gone, about when the others notice that themselves. Whoever
//! holds it back for the second before SIGKILL follows can say which rank that was, and in which block.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C" {
    fn signal(number: c_int, handler: usize) -> usize;
    fn raise(number: c_int) -> c_int;
}

/// The same number on every Unix.
const SIGTERM: c_int = 15;
/// SIG_DFL and SIG_ERR.
const DEFAULT: usize = 0;
const REFUSED: usize = usize::MAX;

static ASKED: AtomicBool = AtomicBool::new(false);

/// While it lives, SIGTERM is noted. A second one ends the process.
pub(in crate::mpi) struct Held {
    /// What was done about it before.
    before: usize,
}

impl Held {
    pub(in crate::mpi) fn new() -> Self {
        ASKED.store(false, Ordering::SeqCst);
        let handler: extern "C" fn(c_int) = note;
        // SAFETY: the handler does nothing but what a handler may do, and lives as long as the program.
        Self { before: unsafe { signal(SIGTERM, handler as usize) } }
    }

    /// Whether somebody asked this process to end.
    pub(in crate::mpi) fn asked(&self) -> bool {
        ASKED.load(Ordering::SeqCst)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let before = if self.before == REFUSED { DEFAULT } else { self.before };
        // SAFETY: it is what the system said was there before.
        unsafe { signal(SIGTERM, before) };
    }
}

extern "C" fn note(number: c_int) {
    if ASKED.swap(true, Ordering::SeqCst) {
        // SAFETY: both may be called by a handler. The signal arrives when this returns, and ends the process.
        unsafe {
            signal(number, DEFAULT);
            raise(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_noted_and_what_was_before_comes_back() {
        let held = Held::new();
        assert!(!held.asked());
        // SAFETY: it is held.
        unsafe { raise(SIGTERM) };
        assert!(held.asked());
        drop(held);
        let handler: extern "C" fn(c_int) = note;
        // SAFETY: it puts back what it finds.
        let found = unsafe { signal(SIGTERM, DEFAULT) };
        assert_ne!(found, handler as usize);
    }
}
