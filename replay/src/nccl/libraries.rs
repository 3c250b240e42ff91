//! Where NVIDIA's libraries are: the explicit folders first, then the loader's own search, CUDA's usual folders, and the
//! Python environment's `nvidia/*/lib`, where PyTorch's wheels put them.
//!
//! Opening is the judge: a file that does not load, or lacks a function, is passed over and named.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use super::ffi::blas::Blas;
use super::ffi::cuda::{Cuda, DeviceInfo};
use super::ffi::nccl::Nccl;
use super::ffi::nvrtc::Nvrtc;

/// The environment variable with folders to look in first, separated as in `PATH`.
pub const LIBRARIES: &str = "MAESTRO_LIBRARIES";

/// One of the libraries, by the names of its files, the preferred one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Soname {
    what: &'static str,
    files: &'static [&'static str],
    /// What brings it.
    help: &'static str,
}

const CUDA: Soname =
    Soname { what: "CUDA's driver", files: &["libcuda.so.1"], help: "it comes with NVIDIA's driver (525 or newer)" };
const NCCL: Soname = Soname {
    what: "NCCL",
    files: &["libnccl.so.2"],
    help: "install it, for instance by `pip install nvidia-nccl-cu13`, or name its folder in MAESTRO_LIBRARIES",
};
const BLAS: Soname = Soname {
    what: "cuBLASLt",
    files: &["libcublasLt.so.13", "libcublasLt.so.12"],
    help: "install it, for instance by `pip install nvidia-cublas`, or name its folder in MAESTRO_LIBRARIES",
};
const NVRTC: Soname = Soname {
    what: "NVRTC",
    files: &["libnvrtc.so.13", "libnvrtc.so.12"],
    help: "install it, for instance by `pip install nvidia-cuda-nvrtc`, or name its folder in MAESTRO_LIBRARIES",
};

/// A library that is there, or why not.
pub(super) struct Found<T> {
    /// The library.
    pub(super) library: Arc<T>,
    /// The file, or the name that the loader knows it by.
    pub(super) path: PathBuf,
}

/// What was found on this machine. Each is an error sentence where it was not.
pub(super) struct Libraries {
    pub(super) cuda: Result<Found<Cuda>, String>,
    pub(super) nccl: Result<Found<Nccl>, String>,
    pub(super) blas: Result<Found<Blas>, String>,
    pub(super) nvrtc: Result<Found<Nvrtc>, String>,
}

impl Libraries {
    /// Looks for all of them.
    pub(super) fn find() -> Self {
        let places = Places::of_this_process();
        Self {
            cuda: places.open(CUDA, Cuda::load),
            nccl: places.open(NCCL, Nccl::load),
            blas: places.open(BLAS, Blas::load),
            nvrtc: places.open_nvrtc(),
        }
    }

    /// The devices, or why there are none.
    ///
    /// # Errors
    /// One sentence without its full stop.
    pub(super) fn devices(&self) -> Result<Vec<DeviceInfo>, String> {
        let cuda = &self.cuda.as_ref().map_err(Clone::clone)?.library;
        cuda.init().and_then(|()| cuda.devices()).map_err(|failure| failure.to_string())
    }
}

/// Folders in the order in which they are searched; the loader's own search stands between the two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Places {
    /// The explicit ones.
    first: Vec<PathBuf>,
    /// CUDA's usual ones, and the Python environment's.
    last: Vec<PathBuf>,
}

impl Places {
    fn of_this_process() -> Self {
        Self::new(&|name| env::var_os(name).map(PathBuf::from))
    }

    /// The folders that the environment names.
    fn new(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Self {
        let list = |name: &str| variable(name).map(|list| env::split_paths(&list).collect::<Vec<_>>());
        let mut last: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|name| variable(name)).collect();
        last.push("/usr/local/cuda".into());
        let mut last: Vec<PathBuf> =
            last.iter().flat_map(|root| [root.join("lib64"), root.join("targets/x86_64-linux/lib")]).collect();
        // The environment that is active, then the one whose python3 is the first on the path.
        let mut roots: Vec<PathBuf> =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| variable(name)).collect();
        let python = list("PATH").unwrap_or_default().into_iter().find(|folder| folder.join("python3").exists());
        roots.extend(python.as_deref().and_then(Path::parent).map(Path::to_owned));
        for root in roots {
            last.extend(wheels(&root));
        }
        Self { first: list(LIBRARIES).unwrap_or_default(), last }
    }

    /// Opens the first file that serves.
    ///
    /// # Errors
    /// That there is none, what stood in the way, and what would help.
    fn open<T>(&self, name: Soname, load: impl Fn(&Path) -> Result<T, String>) -> Result<Found<T>, String> {
        let mut refused = Vec::new();
        for path in self.candidates(name) {
            match load(&path) {
                Ok(library) => return Ok(Found { library: Arc::new(library), path }),
                // The loader's own search fails for every library that is not installed: no news.
                Err(_) if path.parent() == Some(Path::new("")) => {}
                Err(why) => refused.push(format!("{}: {why}", path.display())),
            }
        }
        let mut text = format!("{} ({}) was not found", name.what, name.files.join(" or "));
        if !refused.is_empty() {
            text += &format!("; what was found did not load: {}", refused.join("; "));
        }
        Err(format!("{text}; {}", name.help))
    }

    /// NVRTC opens a second library by its bare name, which is found only if it is open already.
    fn open_nvrtc(&self) -> Result<Found<Nvrtc>, String> {
        self.open(NVRTC, |path| {
            for beside in path.parent().into_iter().flat_map(files) {
                let name = beside.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                if name.starts_with("libnvrtc-builtins.so") {
                    Nvrtc::preload(&beside);
                }
            }
            Nvrtc::load(path)
        })
    }

    /// Everything that may be the library: existing files, and the bare name for the loader.
    fn candidates(&self, name: Soname) -> Vec<PathBuf> {
        let inside = |folders: &[PathBuf]| -> Vec<PathBuf> {
            let files = folders.iter().flat_map(|folder| name.files.iter().map(move |file| folder.join(file)));
            files.filter(|file| file.exists()).collect()
        };
        let mut all = inside(&self.first);
        all.extend(name.files.iter().map(PathBuf::from));
        all.extend(inside(&self.last));
        all
    }
}

/// `lib/python3.*/site-packages/nvidia/*/lib` under the root of a Python environment.
fn wheels(root: &Path) -> Vec<PathBuf> {
    let pythons = files(&root.join("lib")).into_iter().filter(|folder| named(folder, "python3"));
    let packages = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
    packages.flat_map(|packages| files(&packages.join("nvidia"))).map(|package| package.join("lib")).collect()
}

fn named(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
}

/// What is in a folder, sorted; nothing if it cannot be read.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explicit_folders_come_before_the_loader_and_all_others_after_it() {
        let places = Places::new(&|name| match name {
            LIBRARIES => Some("/explicit:/too".into()),
            "CUDA_HOME" => Some("/opt/cuda".into()),
            _ => None,
        });
        assert_eq!(places.first, [PathBuf::from("/explicit"), PathBuf::from("/too")]);
        assert_eq!(places.last[0], PathBuf::from("/opt/cuda/lib64"));
        // No folder holds it, so only the loader is asked.
        assert_eq!(places.candidates(NCCL), [PathBuf::from("libnccl.so.2")]);
    }

    #[test]
    fn what_is_missing_is_named_with_what_brings_it() {
        let refused = |_: &Path| Err::<(), _>("no such file".to_owned());
        let error = Places::default().open(NCCL, refused).err().unwrap();
        assert!(error.starts_with("NCCL (libnccl.so.2) was not found;"), "{error}");
        assert!(error.contains("pip install") && !error.contains("no such file"), "{error}");
    }
}
