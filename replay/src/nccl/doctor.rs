//! What the nccl back end finds on this machine, for a person.

use std::path::PathBuf;

use super::ffi::Failure;
use super::libraries::{Found, Libraries};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doctor {
    /// The libraries that the back end uses.
    pub libraries: Vec<Library>,
    /// A line a GPU, or why there is none.
    pub devices: Vec<String>,
}

/// One library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its name.
    pub name: &'static str,
    /// What is there, or why nothing is.
    pub found: Result<Installed, String>,
}

/// A library that loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// As people write it: 2.28.9.
    pub version: String,
    /// The file, or the name that the loader knows it by.
    pub file: PathBuf,
}

/// Looks.
pub fn doctor() -> Doctor {
    let found = Libraries::find();
    let text = |failure: Failure| failure.to_string();
    let mut libraries = vec![
        Library { name: "CUDA driver", found: said(&found.cuda, |l| l.version().map(cuda_version).map_err(text)) },
        Library { name: "NCCL", found: said(&found.nccl, |l| l.version().map(nccl_version).map_err(text)) },
        Library { name: "cuBLASLt", found: said(&found.blas, |l| Ok(blas_version(l.version()))) },
        Library {
            name: "NVRTC",
            found: said(&found.nvrtc, |l| l.version().map(|(a, b)| format!("{a}.{b}")).map_err(text)),
        },
    ];
    let devices = match found.devices() {
        Ok(devices) if devices.is_empty() => vec!["none".to_owned()],
        Ok(devices) => devices
            .iter()
            .map(|device| {
                format!(
                    "{}: {}, {} GiB, {} SMs, compute capability {}.{}",
                    device.ordinal,
                    device.name,
                    device.memory >> 30,
                    device.sms,
                    device.capability.0,
                    device.capability.1
                )
            })
            .collect(),
        Err(why) => {
            // Where the library itself is missing its own line has said so.
            if libraries[0].found.is_ok() {
                libraries[0].found = Err(why);
            }
            vec!["none".to_owned()]
        }
    };
    Doctor { libraries, devices }
}

fn said<T>(
    found: &Result<Found<T>, String>,
    version: impl Fn(&T) -> Result<String, String>,
) -> Result<Installed, String> {
    let found = found.as_ref().map_err(Clone::clone)?;
    Ok(Installed { version: version(&found.library)?, file: found.path.clone() })
}

fn cuda_version(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// NCCL's version as its numbers are written: 2.28.9.
pub(super) fn nccl_version(version: u32) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

fn blas_version(version: usize) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(nccl_version(22_809), "2.28.9");
        assert_eq!(cuda_version(13_000), "13.0");
        let doctor = doctor();
        let names: Vec<_> = doctor.libraries.iter().map(|library| library.name).collect();
        assert_eq!(names, ["CUDA driver", "NCCL", "cuBLASLt", "NVRTC"]);
        assert!(!doctor.devices.is_empty());
    }
}
