//! The one thing of an MPI that is set differently from how it comes.
//!
//! Open MPI reduces on all ranks without blocking by sending everything to one rank and back, in teams of two and three.
//! Its ring, which it takes for larger teams, has no more steps there and moves half: 16 MiB between two ranks take
//! 2.4 ms instead of 4.8 ms, where its blocking call, which chooses better, takes 3.4 ms. Whoever has chosen an algorithm
//! keeps it.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use ::mpi::ffi;

/// Open MPI's choice of an algorithm, and two of its values: by size of message and team, and a ring.
const CHOICE: &CStr = c"coll_libnbc_iallreduce_algorithm";
const BY_SIZE: c_int = 0;
const RING: c_int = 1;

/// Whether the ring is this program's choice.
static OURS: AtomicBool = AtomicBool::new(false);

/// Has all-reduces run as a ring, or as MPI chooses where it knows better. Says whether they now run as a ring because
/// of this. An MPI that has no such choice is left as it is.
pub(in crate::mpi) fn ring(wanted: bool) -> bool {
    let ours = OURS.load(Ordering::SeqCst);
    let changed = match (wanted, ours) {
        (true, false) => change(BY_SIZE, RING),
        (false, true) => change(RING, BY_SIZE),
        _ => false,
    };
    if changed {
        OURS.store(wanted, Ordering::SeqCst);
    }
    OURS.load(Ordering::SeqCst)
}

/// Sets the choice to `to` if it is `from`; says whether it did.
fn change(from: c_int, to: c_int) -> bool {
    let mut threading = 0;
    // SAFETY: the level that is given is written before the call returns.
    if unsafe { ffi::MPI_T_init_thread(ffi::RSMPI_THREAD_MULTIPLE, &raw mut threading) } != 0 {
        return false;
    }
    let changed = with_tools(from, to).is_some();
    // SAFETY: it was begun above. What was set stays set, for MPI itself goes on.
    unsafe { ffi::MPI_T_finalize() };
    changed
}

fn with_tools(from: c_int, to: c_int) -> Option<()> {
    let succeeded = |code: c_int| (code == 0).then_some(());
    let mut index = 0;
    // SAFETY: the name ends with 0, and the index is written before the call returns.
    succeeded(unsafe { ffi::MPI_T_cvar_get_index(CHOICE.as_ptr(), &raw mut index) })?;
    let (mut handle, mut count) = (ptr::null_mut(), 0);
    // SAFETY: the index is one of the library's; the variable belongs to no object.
    succeeded(unsafe { ffi::MPI_T_cvar_handle_alloc(index, ptr::null_mut(), &raw mut handle, &raw mut count) })?;
    let read_and_write = || {
        let mut value: c_int = -1;
        if count != 1 {
            return None;
        }
        // SAFETY: the variable is one integer, which is what Open MPI keeps enumerations in.
        succeeded(unsafe { ffi::MPI_T_cvar_read(handle, (&raw mut value).cast()) })?;
        if value != from {
            return None;
        }
        // SAFETY: as above.
        succeeded(unsafe { ffi::MPI_T_cvar_write(handle, (&raw const to).cast()) })
    };
    let done = read_and_write();
    // SAFETY: it was made above and is not used again.
    unsafe { ffi::MPI_T_cvar_handle_free(&raw mut handle) };
    done
}
