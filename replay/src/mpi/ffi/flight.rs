//! Data on its way: the nonblocking calls of one block, from their start until MPI is done with the buffers.
//!
//! Nothing moves by itself between the start and the end: MPI works while somebody calls it, so whoever has a flight
//! has to [`Flight::test`] it again and again.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use ::mpi::ffi;
use maestro_pattern::{Dtype, ReduceOp};

use super::{Comm, Failure, Library, Native, check};

/// The calls of one block on one rank, which read from one buffer and write to another.
///
/// Dropped before its end, as happens where the world ends, it gives its buffers' owner away for good: MPI may still
/// write to them.
pub(in crate::mpi) struct Flight<'b> {
    library: &'static Library,
    comm: Comm,
    input: &'b [u8],
    /// The output: a pointer, because MPI holds others to its parts while this one is used.
    output: *mut u8,
    output_bytes: usize,
    /// What has not ended, each with the seats that it waits for.
    requests: Vec<(ffi::MPI_Request, Waits)>,
    /// Counts and displacements, which MPI reads until the end.
    counts: Vec<Vec<c_int>>,
    /// The buffers' owner.
    owner: Option<Arc<dyn Any + Send + Sync>>,
    buffers: PhantomData<&'b mut [u8]>,
}

/// Whom a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mpi) enum Waits {
    /// All seats of the communicator.
    All,
    /// One seat.
    Seat(usize),
}

/// A collective that reduces.
#[derive(Clone, Copy, Debug)]
pub(in crate::mpi) enum Reduce {
    /// To all.
    All,
    /// A part to each.
    Scatter,
    /// To the seat.
    To(usize),
}

/// A collective that moves parts of equal size.
#[derive(Clone, Copy, Debug)]
pub(in crate::mpi) enum Move {
    AllGather,
    Gather(usize),
    Scatter(usize),
    AllToAll,
}

impl<'b> Flight<'b> {
    /// No call yet, on `comm`. `owner` keeps both buffers where they are.
    pub(in crate::mpi) fn new(
        library: &'static Library,
        comm: Comm,
        input: &'b [u8],
        output: &'b mut [u8],
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            library,
            comm,
            input,
            output_bytes: output.len(),
            output: output.as_mut_ptr(),
            requests: Vec::new(),
            counts: Vec::new(),
            owner: Some(owner),
            buffers: PhantomData,
        }
    }

    /// A range of the input, as MPI takes it.
    fn from(&self, range: &Range<usize>) -> *const c_void {
        self.input[range.clone()].as_ptr().cast()
    }

    /// A range of the output, as MPI takes it.
    fn to(&self, range: &Range<usize>) -> *mut c_void {
        assert!(range.start <= range.end && range.end <= self.output_bytes, "{range:?} is outside of the output");
        // SAFETY: it lies within the output, or at its end.
        unsafe { self.output.add(range.start) }.cast()
    }

    /// Starts a call that gives a request.
    fn start(
        &mut self,
        name: &'static str,
        waits: Waits,
        call: impl FnOnce(*mut ffi::MPI_Request) -> c_int,
    ) -> Native<()> {
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        check(name, call(&raw mut request))?;
        self.requests.push((request, waits));
        Ok(())
    }

    /// Starts a barrier.
    pub(in crate::mpi) fn barrier(&mut self) -> Native<()> {
        let comm = self.comm.0;
        // SAFETY: the communicator is valid.
        self.start("MPI_Ibarrier", Waits::All, |request| unsafe { ffi::MPI_Ibarrier(comm, request) })
    }

    /// Starts a reduction of `input`, whose result goes to `output` where there is one.
    pub(in crate::mpi) fn reduce(
        &mut self,
        how: Reduce,
        (dtype, op): (Dtype, ReduceOp),
        input: &Range<usize>,
        output: &Range<usize>,
    ) -> Native<()> {
        let (kind, reduction) = (self.library.types.of(dtype), self.library.types.op(dtype, op));
        let (from, to, comm) = (self.from(input), self.to(output), self.comm.0);
        let all = count("MPI_Ireduce", input.len(), dtype)?;
        let part = count("MPI_Ireduce_scatter_block", output.len(), dtype)?;
        // SAFETY (of all three): the communicator and types are valid; the buffers hold as many elements as said, on
        // every rank by the plan's checks, and stay until the flight has ended, or for good.
        match how {
            Reduce::All => self.start("MPI_Iallreduce", Waits::All, |request| unsafe {
                ffi::MPI_Iallreduce(from, to, all, kind, reduction, comm, request)
            }),
            Reduce::Scatter => self.start("MPI_Ireduce_scatter_block", Waits::All, |request| unsafe {
                ffi::MPI_Ireduce_scatter_block(from, to, part, kind, reduction, comm, request)
            }),
            Reduce::To(root) => self.start("MPI_Ireduce", Waits::All, |request| unsafe {
                ffi::MPI_Ireduce(from, to, all, kind, reduction, root as c_int, comm, request)
            }),
        }
    }

    /// Starts a collective whose every part has `part` bytes.
    pub(in crate::mpi) fn shift(
        &mut self,
        how: Move,
        dtype: Dtype,
        part: usize,
        input: &Range<usize>,
        output: &Range<usize>,
    ) -> Native<()> {
        let kind = self.library.types.of(dtype);
        let (from, to, comm) = (self.from(input), self.to(output), self.comm.0);
        let n = count("MPI_Iallgather", part, dtype)?;
        // SAFETY (of all four): the communicator and the type are valid; the buffers hold a part, or one for every seat,
        // as the collective asks, and stay until the flight has ended, or for good.
        match how {
            Move::AllGather => self.start("MPI_Iallgather", Waits::All, |request| unsafe {
                ffi::MPI_Iallgather(from, n, kind, to, n, kind, comm, request)
            }),
            Move::Gather(root) => self.start("MPI_Igather", Waits::All, |request| unsafe {
                ffi::MPI_Igather(from, n, kind, to, n, kind, root as c_int, comm, request)
            }),
            Move::Scatter(root) => self.start("MPI_Iscatter", Waits::All, |request| unsafe {
                ffi::MPI_Iscatter(from, n, kind, to, n, kind, root as c_int, comm, request)
            }),
            Move::AllToAll => self.start("MPI_Ialltoall", Waits::All, |request| unsafe {
                ffi::MPI_Ialltoall(from, n, kind, to, n, kind, comm, request)
            }),
        }
    }

    /// Starts an all-to-all of uneven parts: per seat, the elements that go there and that come from there.
    pub(in crate::mpi) fn all_to_all(
        &mut self,
        dtype: Dtype,
        (sent, received): (&[u64], &[u64]),
        input: &Range<usize>,
        output: &Range<usize>,
    ) -> Native<()> {
        const CALL: &str = "MPI_Ialltoallv";
        let fits =
            |sizes: &[u64], range: &Range<usize>| sizes.iter().sum::<u64>() * dtype.bytes() <= range.len() as u64;
        assert!(fits(sent, input) && fits(received, output), "the splits are larger than the buffers");
        let kind = self.library.types.of(dtype);
        let (from, to, comm) = (self.from(input), self.to(output), self.comm.0);
        let lists =
            [counts(CALL, sent)?, displacements(CALL, sent)?, counts(CALL, received)?, displacements(CALL, received)?];
        let [sends, sends_at, receives, receives_at] = lists.each_ref().map(Vec::as_ptr);
        self.counts.extend(lists);
        // SAFETY: the communicator and the type are valid; the lists have an entry a seat and do not move when their
        // owner does; they and the buffers, which hold what the lists say, stay until the flight has ended, or for good.
        self.start(CALL, Waits::All, |request| unsafe {
            ffi::MPI_Ialltoallv(from, sends, sends_at, kind, to, receives, receives_at, kind, comm, request)
        })
    }

    /// Starts a broadcast from `root`, which gives its input; every other seat gets its output.
    pub(in crate::mpi) fn broadcast(
        &mut self,
        root: usize,
        seat: usize,
        dtype: Dtype,
        input: &Range<usize>,
        output: &Range<usize>,
    ) -> Native<()> {
        let (kind, comm) = (self.library.types.of(dtype), self.comm.0);
        let n = count("MPI_Ibcast", if seat == root { input.len() } else { output.len() }, dtype)?;
        // MPI takes one pointer for both. At the root it only reads from it.
        let buffer = if seat == root { self.from(input).cast_mut() } else { self.to(output) };
        // SAFETY: the communicator and the type are valid; the buffer holds as many elements as said and stays until the
        // flight has ended, or for good.
        self.start("MPI_Ibcast", Waits::All, |request| unsafe {
            ffi::MPI_Ibcast(buffer, n, kind, root as c_int, comm, request)
        })?;
        if seat == root {
            let (from, to) = (&self.input[input.clone()], self.to(output).cast::<u8>());
            assert_eq!(from.len(), output.len(), "a broadcast's root keeps what it gives");
            // SAFETY: the range of the output was checked and is as long; input and output are different buffers, and MPI
            // was given no pointer to this part of the output.
            unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        }
        Ok(())
    }

    /// Starts a message to a seat.
    pub(in crate::mpi) fn send(&mut self, seat: usize, dtype: Dtype, input: &Range<usize>) -> Native<()> {
        let (kind, from, comm) = (self.library.types.of(dtype), self.from(input), self.comm.0);
        let n = count("MPI_Isend", input.len(), dtype)?;
        // SAFETY: the communicator and the type are valid; the buffer holds as many elements as said and stays until the
        // flight has ended, or for good.
        self.start("MPI_Isend", Waits::Seat(seat), |request| unsafe {
            ffi::MPI_Isend(from, n, kind, seat as c_int, TAG, comm, request)
        })
    }

    /// Starts to receive a message from a seat.
    pub(in crate::mpi) fn receive(&mut self, seat: usize, dtype: Dtype, output: &Range<usize>) -> Native<()> {
        let (kind, to, comm) = (self.library.types.of(dtype), self.to(output), self.comm.0);
        let n = count("MPI_Irecv", output.len(), dtype)?;
        // SAFETY: as for a message sent.
        self.start("MPI_Irecv", Waits::Seat(seat), |request| unsafe {
            ffi::MPI_Irecv(to, n, kind, seat as c_int, TAG, comm, request)
        })
    }

    /// Lets MPI work, and says whether any call ended meanwhile.
    ///
    /// # Errors
    /// A call failed.
    pub(in crate::mpi) fn test(&mut self) -> Native<bool> {
        let before = self.requests.len();
        let mut failure = Ok(());
        self.requests.retain_mut(|(request, _)| {
            if failure.is_err() {
                return true;
            }
            let mut ended = 0;
            // SAFETY: the request was started and has not ended, and no status is asked for.
            let code = unsafe { ffi::MPI_Test(request, &raw mut ended, ffi::RSMPI_STATUS_IGNORE) };
            failure = check("MPI_Test", code);
            ended == 0
        });
        failure.map(|()| self.requests.len() < before)
    }

    /// Whether all calls have ended.
    pub(in crate::mpi) fn is_over(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whom the calls that have not ended wait for.
    pub(in crate::mpi) fn waits(&self) -> impl Iterator<Item = Waits> {
        self.requests.iter().map(|(_, waits)| *waits)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.is_over() {
            mem::forget((self.owner.take(), mem::take(&mut self.counts)));
        }
    }
}

/// Messages between two seats of a communicator do not overtake, so one tag serves for all.
const TAG: c_int = 0;

/// The most elements that MPI counts.
pub(in crate::mpi) const MOST: u64 = c_int::MAX as u64;

/// As many elements as so many bytes are.
fn count(call: &'static str, bytes: usize, dtype: Dtype) -> Native<c_int> {
    number(call, bytes as u64 / dtype.bytes())
}

fn number(call: &'static str, elements: u64) -> Native<c_int> {
    c_int::try_from(elements).map_err(|_| Failure { call, what: format!("MPI counts no {elements} elements") })
}

fn counts(call: &'static str, sizes: &[u64]) -> Native<Vec<c_int>> {
    sizes.iter().map(|size| number(call, *size)).collect()
}

/// Where each part begins: behind all before it.
fn displacements(call: &'static str, sizes: &[u64]) -> Native<Vec<c_int>> {
    let begins = sizes.iter().scan(0, |next, size| Some(mem::replace(next, *next + size)));
    begins.map(|begin| number(call, begin)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_behind_each_other_and_what_mpi_cannot_count_is_refused() {
        assert_eq!(displacements("f", &[3, 0, 5]).unwrap(), [0, 3, 3]);
        assert_eq!(counts("f", &[MOST]).unwrap(), [c_int::MAX]);
        assert!(counts("f", &[MOST + 1]).unwrap_err().to_string().contains("2147483648"));
        assert!(displacements("f", &[MOST, 1, 0]).is_err());
    }
}
