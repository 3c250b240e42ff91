//! Run folders: where they go, and what their run.json says.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use maestro_pattern::{Pattern, World};
use maestro_reports::{AxisInfo, Environment, Origin, PatternInfo, RunInfo, Settings};

/// What made a run, when, and with which settings.
pub struct Maker<'a> {
    pub started: SystemTime,
    pub made_by: Origin,
    pub backend: &'a str,
    pub settings: Settings,
    pub notes: Vec<String>,
    /// How far apart the clocks of ranks may be, in nanoseconds, where it is known.
    pub clock_error_ns: Option<u64>,
    pub launched: Option<Launched>,
    /// What it was given as one of two variants.
    pub variant: Vec<(String, String)>,
}

/// The processes of a run that a launcher started several of.
pub struct Launched {
    pub processes: u32,
    pub hosts: u32,
    /// The launcher's name.
    pub by: &'static str,
}

/// The description of a run.
pub fn info(id: String, pattern: &Pattern, text: &str, world: &World, maker: Maker<'_>) -> RunInfo {
    RunInfo {
        id,
        made_by: maker.made_by,
        pattern: PatternInfo::new(&pattern.name, text),
        axes: AxisInfo::all(world),
        ranks: world.size(),
        processes: maker.launched.as_ref().map_or(1, |launched| launched.processes),
        backend: maker.backend.to_owned(),
        maestro: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_s: maker.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        settings: maker.settings,
        environment: Environment {
            hosts: maker.launched.as_ref().map(|launched| launched.hosts),
            launcher: maker.launched.map(|launched| launched.by.to_owned()),
            variant: maker.variant.into_iter().collect(),
            command: command(),
            ..environment(maker.backend)
        },
        clock_error_ns: maker.clock_error_ns,
        notes: maker.notes,
    }
}

/// The command line of this process, word by word, with the program by its name: where it was installed is nobody's
/// business.
pub fn command() -> Vec<String> {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    std::iter::once("maestro".to_owned()).chain(words).collect()
}

/// This host, with the libraries that `backend` uses here.
fn environment(backend: &str) -> Environment {
    // Variables that are not text name no allowed one.
    let variables = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let host = Environment::of_host(variables);
    #[cfg(feature = "nccl")]
    if backend == "nccl" {
        let found = maestro_replay::nccl::doctor();
        // Versions without files: a run folder is made to be passed on.
        let versions = found.libraries.into_iter();
        let libraries = versions.filter_map(|one| Some((one.name.to_owned(), one.found.ok()?.version))).collect();
        return Environment { libraries, gpus: found.devices, ..host };
    }
    #[cfg(not(feature = "nccl"))]
    let _ = backend;
    host
}

/// The folder that was asked for, or the first of run-NAME, run-NAME-2, ... that is not there yet.
pub fn folder(wanted: Option<&Path>, name: &str) -> PathBuf {
    if let Some(wanted) = wanted {
        return wanted.to_owned();
    }
    let stem: String = name.chars().map(|c| if c.is_alphanumeric() || "_-.".contains(c) { c } else { '_' }).collect();
    let mut folder = PathBuf::from(format!("run-{stem}"));
    let mut n = 2;
    while folder.exists() {
        folder = PathBuf::from(format!("run-{stem}-{n}"));
        n += 1;
    }
    folder
}

/// The last part of a folder's path, as the run's id.
pub fn id(folder: &Path) -> String {
    folder.file_name().map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned())
}
