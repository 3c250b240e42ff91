//! NVRTC: CUDA sources compiled at run time.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr;

use cudarc::nvrtc::sys::nvrtcProgram;

use super::{Failure, Native, table};

table! {
    /// NVRTC's functions.
    Nvrtc {
        version = "nvrtcVersion" (*mut c_int, *mut c_int) -> c_int;
        error_string = "nvrtcGetErrorString" (c_int) -> *const c_char;
        create = "nvrtcCreateProgram" (
            *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        ) -> c_int;
        compile = "nvrtcCompileProgram" (nvrtcProgram, c_int, *const *const c_char) -> c_int;
        destroy = "nvrtcDestroyProgram" (*mut nvrtcProgram) -> c_int;
        log_size = "nvrtcGetProgramLogSize" (nvrtcProgram, *mut usize) -> c_int;
        log = "nvrtcGetProgramLog" (nvrtcProgram, *mut c_char) -> c_int;
        ptx_size = "nvrtcGetPTXSize" (nvrtcProgram, *mut usize) -> c_int;
        ptx = "nvrtcGetPTX" (nvrtcProgram, *mut c_char) -> c_int;
        cubin_size = "nvrtcGetCUBINSize" (nvrtcProgram, *mut usize) -> c_int;
        cubin = "nvrtcGetCUBIN" (nvrtcProgram, *mut c_char) -> c_int;
    }
}

/// What a source is compiled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nccl) enum Target {
    /// PTX for this virtual architecture, with its closing 0; every later device runs it.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the test of the checked-in PTX makes it"))]
    Ptx(u32),
    /// Machine code of this architecture, so that an NVRTC which is newer than the driver serves, too.
    Cubin(u32),
}

impl Nvrtc {
    /// Opens the library of built-in functions for good, so that NVRTC finds it open when it asks the loader for it.
    pub(in crate::nccl) fn preload(path: &Path) {
        // SAFETY: as for every library of NVIDIA's: its initialisers may run at any time.
        if let Ok(library) = unsafe { libloading::Library::new(path) } {
            std::mem::forget(library);
        }
    }

    /// Major and minor.
    pub(in crate::nccl) fn version(&self) -> Native<(u32, u32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: pointers are to locals.
        self.check("nvrtcVersion", unsafe { (self.version)(&mut major, &mut minor) })?;
        Ok((major as u32, minor as u32))
    }

    /// Compiles `source`, called `name` in messages.
    ///
    /// # Errors
    /// The compiler's messages.
    pub(in crate::nccl) fn compile(&self, source: &str, name: &str, target: Target) -> Native<Vec<u8>> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| Failure { call: "nvrtcCreateProgram", what: "the text holds a 0".into() })
        };
        let (source, name) = (text(source)?, text(name)?);
        let architecture = text(&match target {
            Target::Ptx(number) => format!("--gpu-architecture=compute_{number}"),
            Target::Cubin(number) => format!("--gpu-architecture=sm_{number}"),
        })?;
        let mut program = ptr::null_mut();
        // SAFETY: pointers are to locals that outlive the call; there are no headers.
        let result =
            unsafe { (self.create)(&mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()) };
        self.check("nvrtcCreateProgram", result)?;
        let options = [architecture.as_ptr()];
        // SAFETY: the program is alive, the options outlive the call.
        let result = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        let compiled = match self.check("nvrtcCompileProgram", result) {
            Ok(()) => match target {
                Target::Ptx(_) => self.output("nvrtcGetPTX", program, self.ptx_size, self.ptx),
                Target::Cubin(_) => self.output("nvrtcGetCUBIN", program, self.cubin_size, self.cubin),
            },
            Err(failure) => {
                let log = self.output("nvrtcGetProgramLog", program, self.log_size, self.log).unwrap_or_default();
                let log = CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().trim().to_owned());
                let what = log.ok().filter(|log| !log.is_empty()).unwrap_or(failure.what);
                Err(Failure { call: failure.call, what })
            }
        };
        // SAFETY: the program is alive and used no more.
        unsafe { (self.destroy)(&mut program) };
        compiled
    }

    fn output(
        &self,
        call: &'static str,
        program: nvrtcProgram,
        size: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> c_int,
        get: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> c_int,
    ) -> Native<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program is alive, the pointer is to a local.
        self.check(call, unsafe { size(program, &mut bytes) })?;
        let mut output = vec![0u8; bytes];
        // SAFETY: the buffer has the size that was asked for.
        self.check(call, unsafe { get(program, output.as_mut_ptr().cast()) })?;
        Ok(output)
    }

    fn check(&self, call: &'static str, result: c_int) -> Native<()> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: any code is allowed; the text is static and ends with 0.
        let what = unsafe { CStr::from_ptr((self.error_string)(result)) };
        Err(Failure { call, what: what.to_string_lossy().into_owned() })
    }
}
