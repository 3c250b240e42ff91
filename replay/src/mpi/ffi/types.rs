//! Element types and reductions: MPI's own where it has them, ours elsewhere.
//!
//! MPI knows no 16-bit and no 8-bit floats. They are types of so many bytes, and their reductions are functions that MPI
//! calls with two runs of elements. So are those of unsigned bytes, whose minima MPICH 4.0.2 takes as if they had a sign.
//! As every step of an MPI reduction does, each call rounds its result to the type. MPI has no average either: it is a
//! sum that whoever gets it divides.

use std::ffi::{c_int, c_void};
use std::slice;

use ::mpi::ffi;
use maestro_pattern::{Dtype, ReduceOp};

use super::{Native, check};
use crate::reduce::combine;

/// The handles of all types and reductions. Plain handles, which live as long as MPI.
pub(in crate::mpi) struct Types {
    f16: ffi::MPI_Datatype,
    bf16: ffi::MPI_Datatype,
    f8e4m3: ffi::MPI_Datatype,
    f8e5m2: ffi::MPI_Datatype,
    /// Per narrow float in the order above, and of u8: sum, product, minimum, maximum.
    ops: [[ffi::MPI_Op; 4]; 5],
}

// SAFETY: handles may be used by any thread, since MPI was begun with MPI_THREAD_MULTIPLE, and nothing changes them.
unsafe impl Send for Types {}
// SAFETY: as above.
unsafe impl Sync for Types {}

impl Types {
    /// Makes them. MPI has begun.
    pub(super) fn new() -> Native<Self> {
        Ok(Self {
            f16: bytes(2)?,
            bf16: bytes(2)?,
            f8e4m3: bytes(1)?,
            f8e5m2: bytes(1)?,
            ops: [
                reductions([call::<F16, SUM>, call::<F16, PROD>, call::<F16, MIN>, call::<F16, MAX>])?,
                reductions([call::<BF16, SUM>, call::<BF16, PROD>, call::<BF16, MIN>, call::<BF16, MAX>])?,
                reductions([call::<F8E4M3, SUM>, call::<F8E4M3, PROD>, call::<F8E4M3, MIN>, call::<F8E4M3, MAX>])?,
                reductions([call::<F8E5M2, SUM>, call::<F8E5M2, PROD>, call::<F8E5M2, MIN>, call::<F8E5M2, MAX>])?,
                reductions([call::<U8, SUM>, call::<U8, PROD>, call::<U8, MIN>, call::<U8, MAX>])?,
            ],
        })
    }

    /// MPI's type of elements of `dtype`.
    pub(super) fn of(&self, dtype: Dtype) -> ffi::MPI_Datatype {
        // SAFETY: constants of the library.
        unsafe {
            match dtype {
                Dtype::F64 => ffi::RSMPI_DOUBLE,
                Dtype::F32 => ffi::RSMPI_FLOAT,
                Dtype::F16 => self.f16,
                Dtype::Bf16 => self.bf16,
                Dtype::F8e4m3 => self.f8e4m3,
                Dtype::F8e5m2 => self.f8e5m2,
                Dtype::I64 => ffi::RSMPI_INT64_T,
                Dtype::I32 => ffi::RSMPI_INT32_T,
                Dtype::I8 => ffi::RSMPI_INT8_T,
                Dtype::U8 => ffi::RSMPI_UINT8_T,
            }
        }
    }

    /// MPI's reduction of elements of `dtype` by `op`; of an average, the sum.
    pub(super) fn op(&self, dtype: Dtype, op: ReduceOp) -> ffi::MPI_Op {
        let own = match dtype {
            Dtype::F16 => &self.ops[0],
            Dtype::Bf16 => &self.ops[1],
            Dtype::F8e4m3 => &self.ops[2],
            Dtype::F8e5m2 => &self.ops[3],
            Dtype::U8 => &self.ops[4],
            Dtype::F64 | Dtype::F32 | Dtype::I64 | Dtype::I32 | Dtype::I8 => return predefined(op),
        };
        match op {
            ReduceOp::Sum | ReduceOp::Avg => own[0],
            ReduceOp::Prod => own[1],
            ReduceOp::Min => own[2],
            ReduceOp::Max => own[3],
        }
    }
}

fn predefined(op: ReduceOp) -> ffi::MPI_Op {
    // SAFETY: constants of the library.
    unsafe {
        match op {
            ReduceOp::Sum | ReduceOp::Avg => ffi::RSMPI_SUM,
            ReduceOp::Prod => ffi::RSMPI_PROD,
            ReduceOp::Min => ffi::RSMPI_MIN,
            ReduceOp::Max => ffi::RSMPI_MAX,
        }
    }
}

/// A type of so many bytes.
fn bytes(count: c_int) -> Native<ffi::MPI_Datatype> {
    // SAFETY: a constant of the library.
    let byte = unsafe { ffi::RSMPI_UINT8_T };
    let mut made = byte;
    // SAFETY: the old type is valid, and the new one is written before the call returns.
    check("MPI_Type_contiguous", unsafe { ffi::MPI_Type_contiguous(count, byte, &raw mut made) })?;
    // SAFETY: the type was just made.
    check("MPI_Type_commit", unsafe { ffi::MPI_Type_commit(&raw mut made) })?;
    Ok(made)
}

/// What MPI calls to reduce: elements to combine, elements to combine them into, how many, of which type.
type Reduction = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut ffi::MPI_Datatype);

/// Makes commutative reductions of four functions.
fn reductions(calls: [Reduction; 4]) -> Native<[ffi::MPI_Op; 4]> {
    // SAFETY: a constant of the library.
    let mut made = [unsafe { ffi::RSMPI_SUM }; 4];
    for (call, made) in calls.into_iter().zip(&mut made) {
        // SAFETY: the function lives as long as the program, and the result is written before the call returns.
        check("MPI_Op_create", unsafe { ffi::MPI_Op_create(Some(call), 1, &raw mut *made) })?;
    }
    Ok(made)
}

const F16: u8 = 0;
const BF16: u8 = 1;
const F8E4M3: u8 = 2;
const F8E5M2: u8 = 3;
const U8: u8 = 4;
const SUM: u8 = 0;
const PROD: u8 = 1;
const MIN: u8 = 2;
const MAX: u8 = 3;

/// The reduction of one type and operation, as MPI calls it.
///
/// # Safety
/// `from` and `into` hold `length` elements of the type, apart from each other.
unsafe extern "C" fn call<const DTYPE: u8, const OP: u8>(
    from: *mut c_void,
    into: *mut c_void,
    length: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    let dtype = match DTYPE {
        F16 => Dtype::F16,
        BF16 => Dtype::Bf16,
        F8E4M3 => Dtype::F8e4m3,
        F8E5M2 => Dtype::F8e5m2,
        _ => Dtype::U8,
    };
    let op = match OP {
        SUM => ReduceOp::Sum,
        PROD => ReduceOp::Prod,
        MIN => ReduceOp::Min,
        _ => ReduceOp::Max,
    };
    // SAFETY: MPI gives a count that it does not change meanwhile.
    let elements = usize::try_from(unsafe { *length }).unwrap_or(0);
    if elements == 0 {
        return;
    }
    let bytes = elements * dtype.bytes() as usize;
    // SAFETY: by this function's contract, which is that of MPI_User_function.
    let (from, into) = unsafe {
        (slice::from_raw_parts(from.cast::<u8>(), bytes), slice::from_raw_parts_mut(into.cast::<u8>(), bytes))
    };
    combine(dtype, op, from, into);
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn a_reduction_combines_what_mpi_hands_it() {
        let mut from = [1.5f32, 2.0, -4.0].map(bf16::from_f32);
        let mut into = [0.5f32, 3.0, 1.0].map(bf16::from_f32);
        let mut length = 3;
        // SAFETY: both hold three elements.
        unsafe {
            call::<BF16, SUM>(
                from.as_mut_ptr().cast(),
                into.as_mut_ptr().cast(),
                &raw mut length,
                std::ptr::null_mut(),
            );
        }
        assert_eq!(into.map(bf16::to_f32), [2.0, 5.0, -3.0]);
        // SAFETY: as above.
        unsafe {
            call::<BF16, MAX>(
                from.as_mut_ptr().cast(),
                into.as_mut_ptr().cast(),
                &raw mut length,
                std::ptr::null_mut(),
            );
        }
        assert_eq!(into.map(bf16::to_f32), [2.0, 5.0, -3.0]);
    }
}
