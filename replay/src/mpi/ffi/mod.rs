//! MPI: its beginning and end, its communicators, and what its errors say. Data is moved in [`flight`].
//!
//! The crate `mpi` starts the library and has its functions. Its safe layer is not used beyond that: it drops the codes
//! that calls return, borrows buffers for as long as a closure runs, and lacks half of the nonblocking collectives.
#![allow(unsafe_code)]

pub(super) mod flight;
pub(super) mod signal;
pub(super) mod tune;
pub(super) mod types;

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr;
use std::sync::{Mutex, OnceLock};

use ::mpi::environment::{Universe, initialize_with_threading, library_version};
use ::mpi::{Threading, ffi};

use self::types::Types;
use crate::host::lock;

/// A call of MPI that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The function's name.
    call: &'static str,
    /// What the library says of it.
    what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.call, self.what)
    }
}

/// Result of a native call.
pub(super) type Native<T> = std::result::Result<T, Failure>;

/// MPI, once it has begun. It begins once in the life of a process.
pub(super) struct Library {
    /// Its name and version, in one line.
    pub(super) version: String,
    /// This process among those that MPI started.
    pub(super) rank: u32,
    /// How many it started.
    pub(super) size: u32,
    pub(super) types: Types,
    /// All processes.
    pub(super) world: Comm,
    /// What ends MPI when it is dropped.
    universe: Mutex<Option<Universe>>,
}

static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();

impl Library {
    /// MPI, begun if it was not.
    ///
    /// # Errors
    /// What it lacks.
    pub(super) fn get() -> Result<&'static Self, String> {
        LIBRARY.get_or_init(Self::begin).as_ref().map_err(Clone::clone)
    }

    fn begin() -> Result<Self, String> {
        let version = version();
        let Some((universe, threading)) = initialize_with_threading(Threading::Multiple) else {
            return Err("MPI was begun by somebody else; this is a bug of Maestro".into());
        };
        if let Err(what) = serves(threading, &version) {
            // Dropping the universe ends MPI, so that the launcher sees a process that left in order.
            drop(universe);
            return Err(what);
        }
        // SAFETY: MPI has begun, so its predefined handles are valid.
        let world = Comm(unsafe { ffi::RSMPI_COMM_WORLD });
        let begin = || -> Native<Self> {
            world.returns_errors()?;
            let (mut rank, mut size) = (0, 0);
            // SAFETY: the communicator is valid and both are written before the calls return.
            check("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(world.0, &raw mut rank) })?;
            // SAFETY: as above.
            check("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(world.0, &raw mut size) })?;
            let (rank, size) = (rank.unsigned_abs(), size.unsigned_abs());
            Ok(Self { version, rank, size, types: Types::new()?, world, universe: Mutex::new(Some(universe)) })
        };
        begin().map_err(|failure| failure.to_string())
    }
}

/// Ends MPI if it has begun, so that the launcher takes the end of this process for one in order. All processes have to
/// come to this: where one is gone MPI must not be ended, for that would wait for it.
pub(in crate::mpi) fn finish() {
    if let Some(Ok(library)) = LIBRARY.get() {
        drop(lock(&library.universe).take());
    }
}

/// Whether threads may call MPI as they do here: each lane's, at any time.
///
/// # Errors
/// That they may not.
fn serves(threading: Threading, version: &str) -> Result<(), String> {
    match threading {
        Threading::Multiple => Ok(()),
        less => Err(format!("{version} gives the threading level {less:?}, and a lane a thread needs Multiple")),
    }
}

/// The library's name and version: the first line of what it says, without what follows a comma.
fn version() -> String {
    let told = library_version().unwrap_or_else(|_| "this MPI".into());
    let line = told.lines().next().unwrap_or_default();
    let name = line.split(',').next().unwrap_or_default();
    name.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('\0').to_owned()
}

/// A communicator. A plain handle: who makes it frees it.
#[derive(Clone, Copy)]
pub(super) struct Comm(ffi::MPI_Comm);

// SAFETY: a handle may be used by any thread, since MPI was begun with MPI_THREAD_MULTIPLE.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

impl Comm {
    /// Has calls return their errors instead of ending the process.
    fn returns_errors(self) -> Native<()> {
        // SAFETY: both handles are valid.
        check("MPI_Comm_set_errhandler", unsafe { ffi::MPI_Comm_set_errhandler(self.0, ffi::RSMPI_ERRORS_RETURN) })
    }

    /// The part of this communicator whose ranks give the same `color`, in the order of their `key`s. Ranks that give
    /// none get none. Waits for all ranks of this one.
    pub(super) fn split(self, color: Option<u32>, key: u32) -> Native<Option<Self>> {
        // SAFETY: a constant of the library.
        let color = color.map_or(unsafe { ffi::RSMPI_UNDEFINED }, u32::cast_signed);
        // SAFETY: a constant of the library.
        let null = unsafe { ffi::RSMPI_COMM_NULL };
        let mut part = null;
        // SAFETY: the communicator is valid, and the result is written before the call returns.
        let code = unsafe { ffi::MPI_Comm_split(self.0, color, key.cast_signed(), &raw mut part) };
        check("MPI_Comm_split", code)?;
        if part == null {
            return Ok(None);
        }
        Self(part).returns_errors()?;
        Ok(Some(Self(part)))
    }

    /// Another communicator of the same ranks, whose messages and collectives do not mix with this one's. Waits for all
    /// of them.
    pub(super) fn duplicate(self) -> Native<Self> {
        let mut other = self.0;
        // SAFETY: the communicator is valid, and the result is written before the call returns.
        check("MPI_Comm_dup", unsafe { ffi::MPI_Comm_dup(self.0, &raw mut other) })?;
        Self(other).returns_errors()?;
        Ok(Self(other))
    }

    /// Frees it. All its ranks have to.
    pub(super) fn free(self) -> Native<()> {
        let mut own = self.0;
        // SAFETY: the communicator is valid, and by this module's rule nobody uses the handle any more.
        check("MPI_Comm_free", unsafe { ffi::MPI_Comm_free(&raw mut own) })
    }
}

/// Whether a call succeeded, and what MPI says of it if it did not.
fn check(call: &'static str, code: c_int) -> Native<()> {
    /// More than any MPI's MPI_MAX_ERROR_STRING.
    const LONGEST: usize = 4096;
    // MPI_SUCCESS, 0 by the standard.
    if code == 0 {
        return Ok(());
    }
    let mut text: [c_char; LONGEST] = [0; LONGEST];
    let mut length = 0;
    // SAFETY: the buffer holds what MPI writes at most.
    let told = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &raw mut length) };
    text[LONGEST - 1] = 0;
    // SAFETY: the buffer lives, and its last element is 0.
    let text = unsafe { CStr::from_ptr(ptr::from_ref(&text).cast()) }.to_string_lossy().into_owned();
    let what = if told == 0 && !text.is_empty() { text } else { format!("error {code}") };
    Err(Failure { call, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mpi_without_threads_is_refused_by_name() {
        assert!(serves(Threading::Multiple, "Open MPI v4").is_ok());
        let told = serves(Threading::Serialized, "Open MPI v4").unwrap_err();
        assert!(told.contains("Open MPI v4 gives the threading level Serialized"), "{told}");
    }
}
