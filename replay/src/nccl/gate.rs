//! A gate before the lanes of a rank: nothing passes until the host has issued everything.
//!
//! A block alone is timed from its lane's beginning to its end. Were the lane open, it would begin while the host is
//! still inside the library's call, and that call, some microseconds, would count as the block's own time. In a step
//! hosts run ahead of their devices, so there the lanes stay open.

use std::sync::Arc;

use super::ffi::Native;
use super::ffi::cuda::{Cuda, Flag, Stream};

/// So many launches wait at the gate at the most: a stream holds about a thousand before issuing to it blocks.
const MOST: u32 = 256;

/// See the module.
pub(super) struct Gate {
    flag: Flag,
    /// How often it was closed.
    closed: u32,
    /// Launches behind it, if it is closed.
    behind: Option<u32>,
}

impl Gate {
    /// An open gate.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(cuda: &Arc<Cuda>) -> Native<Self> {
        Ok(Self { flag: Flag::new(cuda)?, closed: 0, behind: None })
    }

    /// Closes it before these lanes.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn close<'s>(&mut self, lanes: impl IntoIterator<Item = &'s Stream>) -> Native<()> {
        self.closed = self.closed.wrapping_add(1);
        self.behind = Some(0);
        lanes.into_iter().try_for_each(|lane| lane.wait_for(&self.flag, self.closed))
    }

    /// Whether it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.behind.is_some()
    }

    /// So many launches more wait at it; it opens when they become too many.
    pub(super) fn launched(&mut self, launches: u32) {
        if let Some(behind) = &mut self.behind {
            *behind = behind.saturating_add(launches);
            if *behind >= MOST {
                self.open();
            }
        }
    }

    /// Opens it.
    pub(super) fn open(&mut self) {
        self.behind = None;
        self.flag.raise(self.closed);
    }
}
