//! cuBLASLt: matrix products with an algorithm that is chosen once.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, cudaDataType_t,
};
use cudarc::driver::sys::CUstream;
use maestro_pattern::{Dtype, GemmLayout};

use super::cuda::{Slice, Stream};
use super::{Failure, Native, table};

type Desc = cublasLtMatmulDesc_t;
type Layout = cublasLtMatrixLayout_t;
type Preference = cublasLtMatmulPreference_t;
type Found = cublasLtMatmulHeuristicResult_t;

table! {
    /// cuBLASLt's functions.
    Blas {
        version = "cublasLtGetVersion" () -> usize;
        create = "cublasLtCreate" (*mut cublasLtHandle_t) -> c_int;
        destroy = "cublasLtDestroy" (cublasLtHandle_t) -> c_int;
        desc_create = "cublasLtMatmulDescCreate" (*mut Desc, cublasComputeType_t, cudaDataType_t) -> c_int;
        desc_set = "cublasLtMatmulDescSetAttribute" (
            Desc, cublasLtMatmulDescAttributes_t, *const c_void, usize,
        ) -> c_int;
        desc_destroy = "cublasLtMatmulDescDestroy" (Desc) -> c_int;
        layout_create = "cublasLtMatrixLayoutCreate" (*mut Layout, cudaDataType_t, u64, u64, i64) -> c_int;
        layout_set = "cublasLtMatrixLayoutSetAttribute" (
            Layout, cublasLtMatrixLayoutAttribute_t, *const c_void, usize,
        ) -> c_int;
        layout_destroy = "cublasLtMatrixLayoutDestroy" (Layout) -> c_int;
        preference_create = "cublasLtMatmulPreferenceCreate" (*mut Preference) -> c_int;
        preference_set = "cublasLtMatmulPreferenceSetAttribute" (
            Preference, cublasLtMatmulPreferenceAttributes_t, *const c_void, usize,
        ) -> c_int;
        preference_destroy = "cublasLtMatmulPreferenceDestroy" (Preference) -> c_int;
        heuristic = "cublasLtMatmulAlgoGetHeuristic" (
            cublasLtHandle_t, Desc, Layout, Layout, Layout, Layout, Preference, c_int, *mut Found, *mut c_int,
        ) -> c_int;
        matmul = "cublasLtMatmul" (
            cublasLtHandle_t, Desc, *const c_void, *const c_void, Layout, *const c_void, Layout, *const c_void,
            *const c_void, Layout, *mut c_void, Layout, *const cublasLtMatmulAlgo_t, *mut c_void, usize, CUstream,
        ) -> c_int;
    }
}

impl Blas {
    /// 10000 * major + 100 * minor + patch, or with three digits for minor before 12.
    pub(in crate::nccl) fn version(&self) -> usize {
        // SAFETY: no argument.
        unsafe { (self.version)() }
    }

    fn check(&self, call: &'static str, result: c_int) -> Native<()> {
        /// cublasStatus_t, from the documentation.
        const STATUS: [(c_int, &str); 8] = [
            (1, "not initialised"),
            (3, "out of memory"),
            (7, "an invalid value"),
            (8, "the device lacks what it takes"),
            (11, "a mapping error"),
            (13, "the execution failed"),
            (14, "an internal error"),
            (15, "not supported"),
        ];
        if result == 0 {
            return Ok(());
        }
        let known = STATUS.iter().find(|(code, _)| *code == result);
        Err(Failure { call, what: known.map_or_else(|| format!("status {result}"), |(_, what)| (*what).to_owned()) })
    }
}

/// cuBLASLt's state for one context.
pub(in crate::nccl) struct Handle {
    blas: Arc<Blas>,
    raw: cublasLtHandle_t,
}

impl Handle {
    /// A handle for the current context.
    ///
    /// # Errors
    /// cuBLASLt's.
    pub(in crate::nccl) fn new(blas: &Arc<Blas>) -> Native<Rc<Self>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        blas.check("cublasLtCreate", unsafe { (blas.create)(&mut raw) })?;
        Ok(Rc::new(Self { blas: blas.clone(), raw }))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is alive; products hold it, so none is left.
        unsafe { (self.blas.destroy)(self.raw) };
    }
}

/// Element types of the operands of a product, of its sum, and of its result.
struct Types {
    operand: cudaDataType_t,
    scale: cudaDataType_t,
    compute: cublasComputeType_t,
    result: cudaDataType_t,
}

impl Types {
    /// What cuBLASLt multiplies, with the types that training uses: narrow floats are summed in f32, 8-bit floats give
    /// bf16, 8-bit integers give i32. None for types that no matrix unit multiplies.
    fn of(dtype: Dtype) -> Option<Self> {
        use cublasComputeType_t::{CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32I, CUBLAS_COMPUTE_64F};
        use cudaDataType_t::{CUDA_R_8F_E4M3, CUDA_R_8I, CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUDA_R_32I, CUDA_R_64F};
        let types = |operand, scale, compute, result| Some(Self { operand, scale, compute, result });
        match dtype {
            Dtype::F64 => types(CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F),
            Dtype::F32 => types(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            Dtype::F16 => types(CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_16F),
            Dtype::Bf16 => types(CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_16BF),
            // No library multiplies e5m2 by e5m2; e4m3 runs at the same rate.
            Dtype::F8e4m3 | Dtype::F8e5m2 => types(CUDA_R_8F_E4M3, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_16BF),
            Dtype::I8 => types(CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I),
            Dtype::I64 | Dtype::I32 | Dtype::U8 => None,
        }
    }
}

/// Bytes an element of the result of a product of this type; `None` where there are no such products.
pub(in crate::nccl) fn result_bytes(dtype: Dtype) -> Option<u64> {
    Types::of(dtype).map(|types| match types.result {
        cudaDataType_t::CUDA_R_64F => 8,
        cudaDataType_t::CUDA_R_32F | cudaDataType_t::CUDA_R_32I => 4,
        _ => 2,
    })
}

/// The shape of a product: `batch` products of an m x k and a k x n matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::nccl) struct Gemm {
    pub(in crate::nccl) m: u64,
    pub(in crate::nccl) n: u64,
    pub(in crate::nccl) k: u64,
    pub(in crate::nccl) batch: u64,
    pub(in crate::nccl) dtype: Dtype,
    pub(in crate::nccl) layout: GemmLayout,
}

/// An operand as cuBLASLt sees it: column by column, without gaps, so that its leading dimension is its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operand {
    transposed: bool,
    rows: u64,
    columns: u64,
}

impl Gemm {
    /// cuBLASLt's operands A and B.
    ///
    /// We multiply row by row, and what lies row by row is, column by column, its transpose. The result's is right^T
    /// times left^T: A is our right operand and B the left one. One that is stored transposed lies there as we
    /// multiply it, and cuBLASLt has to transpose it.
    fn operands(&self) -> [Operand; 2] {
        let Self { m, n, k, .. } = *self;
        let operand = |transposed, rows, columns| Operand { transposed, rows, columns };
        let layout = self.possible();
        [
            if layout.right_transposed() { operand(true, k, n) } else { operand(false, n, k) },
            if layout.left_transposed() { operand(true, m, k) } else { operand(false, k, m) },
        ]
    }

    /// The layout in which it runs. Of 8-bit types cuBLASLt multiplies its TN alone, our `nt`, whatever a pattern asks
    /// for.
    fn possible(&self) -> GemmLayout {
        match self.dtype {
            Dtype::F8e4m3 | Dtype::F8e5m2 | Dtype::I8 | Dtype::U8 => GemmLayout::Nt,
            Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16 | Dtype::I64 | Dtype::I32 => self.layout,
        }
    }
}

/// One shape of product, ready to run.
pub(in crate::nccl) struct Product {
    handle: Rc<Handle>,
    desc: Desc,
    layouts: [Layout; 3],
    algorithm: cublasLtMatmulAlgo_t,
    one: [u8; 8],
    workspace: usize,
}

impl Product {
    /// Chooses cuBLASLt's first algorithm for this shape, with at most `workspace` bytes.
    ///
    /// # Errors
    /// cuBLASLt's: it has no kernel for this shape and type.
    pub(in crate::nccl) fn new(handle: &Rc<Handle>, gemm: Gemm, workspace: usize) -> Native<Self> {
        use cublasLtMatmulDescAttributes_t as Of;
        let blas = &handle.blas;
        let Some(types) = Types::of(gemm.dtype) else {
            return Err(Failure {
                call: "cublasLtMatmul",
                what: format!("no matrix unit multiplies {}", gemm.dtype.name()),
            });
        };
        let one = match types.scale {
            cudaDataType_t::CUDA_R_64F => 1f64.to_ne_bytes(),
            cudaDataType_t::CUDA_R_32I => widened(1i32.to_ne_bytes()),
            _ => widened(1f32.to_ne_bytes()),
        };
        let mut this = Self {
            handle: handle.clone(),
            desc: ptr::null_mut(),
            layouts: [ptr::null_mut(); 3],
            algorithm: cublasLtMatmulAlgo_t { data: [0; 8] },
            one,
            workspace,
        };
        let [a, b] = gemm.operands();
        // SAFETY: pointers are to fields and locals that outlive each call; attributes have the types and sizes of the
        // documentation.
        unsafe {
            let result = (blas.desc_create)(&mut this.desc, types.compute, types.scale);
            blas.check("cublasLtMatmulDescCreate", result)?;
            for (attribute, operand) in
                [Of::CUBLASLT_MATMUL_DESC_TRANSA, Of::CUBLASLT_MATMUL_DESC_TRANSB].into_iter().zip([a, b])
            {
                // CUBLAS_OP_N is 0, CUBLAS_OP_T is 1.
                let transposed = c_int::from(operand.transposed);
                let result =
                    (blas.desc_set)(this.desc, attribute, ptr::from_ref(&transposed).cast(), size_of::<c_int>());
                blas.check("cublasLtMatmulDescSetAttribute", result)?;
            }
        }
        let Gemm { m, n, batch, .. } = gemm;
        this.layouts[0] = layout(blas, types.operand, a.rows, a.columns, batch)?;
        this.layouts[1] = layout(blas, types.operand, b.rows, b.columns, batch)?;
        this.layouts[2] = layout(blas, types.result, n, m, batch)?;
        this.algorithm = this.choose()?;
        Ok(this)
    }

    fn choose(&self) -> Native<cublasLtMatmulAlgo_t> {
        let (blas, [a, b, c]) = (&self.handle.blas, self.layouts);
        let (mut preference, mut count) = (ptr::null_mut(), 0);
        let mut found: Vec<Found> = Vec::with_capacity(1);
        // SAFETY: pointers are to locals that outlive each call; cuBLASLt writes at most the one result asked for, and
        // as many as it says.
        unsafe {
            blas.check("cublasLtMatmulPreferenceCreate", (blas.preference_create)(&mut preference))?;
            let attribute = cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            let bytes = ptr::from_ref(&self.workspace).cast();
            let mut result = (blas.preference_set)(preference, attribute, bytes, size_of::<usize>());
            if result == 0 {
                let to = found.as_mut_ptr();
                result = (blas.heuristic)(self.handle.raw, self.desc, a, b, c, c, preference, 1, to, &mut count);
            }
            (blas.preference_destroy)(preference);
            blas.check("cublasLtMatmulAlgoGetHeuristic", result)?;
            found.set_len(count.clamp(0, 1) as usize);
        }
        found.first().map(|found| found.algo).ok_or_else(|| Failure {
            call: "cublasLtMatmulAlgoGetHeuristic",
            what: "no kernel fits this shape and element type".into(),
        })
    }

    /// Puts the product on a stream: `result` = `left` x `right`.
    ///
    /// # Errors
    /// cuBLASLt's.
    pub(in crate::nccl) fn run(&self, [left, right, result]: [Slice; 3], workspace: Slice, on: &Stream) -> Native<()> {
        let (blas, [a, b, c], zero) = (&self.handle.blas, self.layouts, [0u8; 8]);
        let (one, zero): (*const c_void, *const c_void) = (self.one.as_ptr().cast(), zero.as_ptr().cast());
        // SAFETY: the slices were sized for this shape and lie in memory that is alive as long as the rank; scalars are
        // read while the call lasts.
        let status = unsafe {
            (blas.matmul)(
                self.handle.raw,
                self.desc,
                one,
                right.at as *const c_void,
                a,
                left.at as *const c_void,
                b,
                zero,
                result.at as *const c_void,
                c,
                result.at as *mut c_void,
                c,
                &self.algorithm,
                workspace.at as *mut c_void,
                workspace.bytes.min(self.workspace),
                on.raw(),
            )
        };
        blas.check("cublasLtMatmul", status)
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        let blas = &self.handle.blas;
        for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: it was created and is used no more.
            unsafe { (blas.layout_destroy)(layout) };
        }
        if !self.desc.is_null() {
            // SAFETY: as above.
            unsafe { (blas.desc_destroy)(self.desc) };
        }
    }
}

/// `batch` matrices of `rows` x `columns`, column by column, one after the other.
fn layout(blas: &Blas, dtype: cudaDataType_t, rows: u64, columns: u64, batch: u64) -> Native<Layout> {
    use cublasLtMatrixLayoutAttribute_t as Of;
    let (count, stride) = (c_int::try_from(batch).unwrap_or(c_int::MAX), (rows * columns) as i64);
    let mut raw = ptr::null_mut();
    // SAFETY: pointers are to locals that outlive each call; attributes have the types and sizes of the documentation.
    unsafe {
        let result = (blas.layout_create)(&mut raw, dtype, rows, columns, rows as i64);
        blas.check("cublasLtMatrixLayoutCreate", result)?;
        let (attribute, value) = (Of::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, ptr::from_ref(&count).cast());
        let mut result = (blas.layout_set)(raw, attribute, value, size_of::<c_int>());
        if result == 0 {
            let (attribute, value) = (Of::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, ptr::from_ref(&stride).cast());
            result = (blas.layout_set)(raw, attribute, value, size_of::<i64>());
        }
        if result != 0 {
            (blas.layout_destroy)(raw);
        }
        blas.check("cublasLtMatrixLayoutSetAttribute", result)?;
    }
    Ok(raw)
}

fn widened(four: [u8; 4]) -> [u8; 8] {
    let [a, b, c, d] = four;
    [a, b, c, d, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEMM: Gemm = Gemm { m: 2, n: 3, k: 5, batch: 1, dtype: Dtype::Bf16, layout: GemmLayout::Nn };

    /// BLAS's letters, then rows and columns of A and B.
    fn seen(gemm: Gemm) -> (String, [(u64, u64); 2]) {
        let operands = gemm.operands();
        let letters = operands.map(|operand| if operand.transposed { 'T' } else { 'N' });
        (letters.iter().collect(), operands.map(|operand| (operand.rows, operand.columns)))
    }

    #[test]
    fn rows_become_columns_and_the_operands_swap() {
        for (layout, letters, sides) in [
            (GemmLayout::Nn, "NN", [(3, 5), (5, 2)]),
            (GemmLayout::Nt, "TN", [(5, 3), (5, 2)]),
            (GemmLayout::Tn, "NT", [(3, 5), (2, 5)]),
            (GemmLayout::Tt, "TT", [(5, 3), (2, 5)]),
        ] {
            assert_eq!(seen(Gemm { layout, ..GEMM }), (letters.to_owned(), sides), "{}", layout.name());
        }
    }

    #[test]
    fn eight_bits_know_one_layout() {
        for layout in GemmLayout::ALL {
            for dtype in [Dtype::F8e4m3, Dtype::F8e5m2, Dtype::I8] {
                assert_eq!(seen(Gemm { layout, dtype, ..GEMM }).0, "TN", "{} {}", dtype.name(), layout.name());
            }
            for dtype in [Dtype::F16, Dtype::F32, Dtype::F64] {
                assert_eq!(seen(Gemm { layout, dtype, ..GEMM }), seen(Gemm { layout, ..GEMM }), "{}", dtype.name());
            }
        }
    }
}
