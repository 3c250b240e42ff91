//! The native libraries, one file each: their functions as tables that are loaded at run time, and owners of what they
//! hand out.
//!
//! Types and constants are those of cudarc's bindings. Its loader is not used: it never tries `libnccl.so.2`, takes no
//! path, and panics where a library or a function is missing. Here a missing library or function is an error that names
//! it, so one binary runs with and without CUDA. Result codes are taken as integers, because a newer library may return
//! one that the bindings do not know.

pub(super) mod blas;
pub(super) mod cuda;
pub(super) mod nccl;
pub(super) mod nvrtc;

use std::fmt;

/// A call of a native library that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The function's name.
    pub(super) call: &'static str,
    /// What the library says of it.
    pub(super) what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.call, self.what)
    }
}

/// Result of a native call.
pub(super) type Native<T> = std::result::Result<T, Failure>;

/// A table of functions of one library. Those after a question mark may be missing.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($field:ident = $symbol:literal ($($arg:ty),* $(,)?) -> $ret:ty;)*
            $(? $may:ident = $maybe:literal ($($marg:ty),* $(,)?) -> $mret:ty;)*
        }
    ) => {
        $(#[$doc])*
        pub(in crate::nccl) struct $name {
            $($field: unsafe extern "C" fn($($arg),*) -> $ret,)*
            $($may: Option<unsafe extern "C" fn($($marg),*) -> $mret>,)*
            /// Keeps the functions where they are.
            _library: libloading::Library,
        }

        impl $name {
            /// Loads the library of this name or path.
            ///
            /// # Errors
            /// What the loader says, or the function that it lacks.
            pub(in crate::nccl) fn load(path: &std::path::Path) -> std::result::Result<Self, String> {
                // SAFETY: loading runs the library's initialisers. These are NVIDIA's libraries, which any program may
                // load at any time.
                let library = unsafe { libloading::Library::new(path) }.map_err(|error| error.to_string())?;
                Ok(Self {
                    $(
                        // SAFETY: the type is the function's in NVIDIA's header, and the library outlives the table.
                        $field: *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }
                            .map_err(|_| concat!("it has no function ", $symbol).to_owned())?,
                    )*
                    $(
                        // SAFETY: as above.
                        $may: unsafe { library.get(concat!($maybe, "\0").as_bytes()) }.ok().map(|found| *found),
                    )*
                    _library: library,
                })
            }
        }
    };
}
use table;
