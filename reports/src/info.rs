//! What `run.json` says: how a run came to be.
//!
//! Plain data; the caller fills it, since only the command line reads clocks and knows settings. A reader ignores keys
//! that it does not know, so adding one is not a new [`RUN_SCHEMA`]; changing or removing one is.

use std::collections::BTreeMap;

use maestro_pattern::{Axis, AxisShape, AxisSize, World};
use serde::{Deserialize, Serialize};

/// Version of the run folder's format, key `schema` of run.json, checked before anything else.
pub const RUN_SCHEMA: u32 = 1;

/// How a run came to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Name of the run, unique among the runs that are compared.
    pub id: String,
    /// What made it.
    pub made_by: Origin,
    /// The pattern that ran.
    pub pattern: PatternInfo,
    /// The axes with the sizes in force.
    pub axes: Vec<AxisInfo>,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of processes, and so of parts.
    pub processes: u32,
    /// Name of the back end; of an import, the name of the importer.
    pub backend: String,
    /// Version of Maestro.
    pub maestro: String,
    /// When it began, in seconds since 1970-01-01T00:00:00Z.
    pub started_unix_s: u64,
    /// How it was measured.
    pub settings: Settings,
    /// Where it ran.
    pub environment: Environment,
    /// How far off the clock of one rank may be from that of another, in nanoseconds, where it is known: the error of
    /// waits and transfers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
    /// What a reader of its numbers should know, as sentences without their full stop.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What made a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A replay on a real back end.
    Replay,
    /// An import: the captured executions themselves.
    Import,
    /// A simulation by the back end `dry`.
    Dry,
}

impl Origin {
    /// What became of the step, as people call it: replayed, captured or simulated.
    pub fn participle(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::Import => "captured",
            Self::Dry => "simulated",
        }
    }
}

/// Which pattern ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternInfo {
    /// Its name.
    pub name: String,
    /// FNV-1a 64 of its text, as 16 hexadecimal digits. It tells texts apart; it protects against no adversary.
    pub hash: String,
}

impl PatternInfo {
    /// The identity of the pattern `name` with the YAML `text`.
    pub fn new(name: impl Into<String>, text: &str) -> Self {
        Self { name: name.into(), hash: format!("{:016x}", fnv1a(text.as_bytes())) }
    }
}

/// FNV-1a with 64 bits (Fowler, Noll, Vo; offset basis and prime of draft-eastlake-fnv).
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// An axis of the run: its size, or its teams where it lists them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AxisInfo {
    /// Its name.
    pub name: String,
    /// Its size, where it is a dimension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// Its teams of global ranks, where they are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teams: Option<Vec<Vec<u32>>>,
}

impl AxisInfo {
    /// All axes of a world.
    pub fn all(world: &World) -> Vec<Self> {
        world.axes().iter().map(Self::new).collect()
    }

    fn new(axis: &Axis) -> Self {
        let (size, teams) = match &axis.shape {
            AxisShape::Size(size) => (Some(*size), None),
            AxisShape::Teams(teams) => (None, Some(teams.clone())),
        };
        Self { name: axis.name.clone(), size, teams }
    }

    /// As an override for [`World::new`]; listed teams need none.
    pub(crate) fn sized(&self) -> Option<AxisSize> {
        self.size.map(|size| AxisSize { name: self.name.clone(), size })
    }
}

/// How a run was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Iterations at the start of each turn that were run and not recorded.
    pub warm_up: u32,
    /// Recorded iterations a turn.
    pub iterations: u32,
    /// Rounds: each is a turn of the step and a turn of every block alone.
    pub rounds: u32,
    /// What decided when the host issued: `gaps`, `asap`, `timed`. `None` where nothing was issued.
    pub pacing: Option<String>,
    /// How compute was done: `hold`, `work`. `None` where the back end has no choice.
    pub compute: Option<String>,
    /// Whether each turn ran as one CUDA graph.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graph: bool,
    /// Executions of a block alone that were timed as one, back to back; their mean was recorded.
    #[serde(default = "one", skip_serializing_if = "at_most_one")]
    pub back_to_back: u32,
}

fn one() -> u32 {
    1
}

fn at_most_one(n: &u32) -> bool {
    *n <= 1
}

/// Where a run ran: facts of the host that ran process 0, and variables, by allow-list only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Operating system: linux, macos...
    pub os: String,
    /// Architecture: x86_64, aarch64...
    pub arch: String,
    /// Model of the CPU, where the system tells.
    pub cpu: Option<String>,
    /// Cores that the process may use.
    pub cores: u32,
    /// Variables that steer communication.
    pub variables: BTreeMap<String, String>,
    /// Versions of the libraries that the back end used, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub libraries: BTreeMap<String, String>,
    /// The GPUs that process 0 could use, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// How many machines its processes ran on, where a launcher started several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<u32>,
    /// What started them: torchrun, srun, mpirun...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<String>,
    /// Of a run that was recorded to be compared with another variant: what this variant was given, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variant: BTreeMap<String, String>,
    /// The command that made it, word by word; of several processes, that of the first. Empty in older folders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

impl Environment {
    /// Variables that are kept: these beginnings, and these names. A run folder is made to be passed on, so nothing
    /// else of the environment, which may hold secrets, goes into it.
    const PREFIXES: [&str; 3] = ["NCCL_", "UCX_", "OMPI_MCA_"];
    const NAMES: [&str; 1] = ["CUDA_VISIBLE_DEVICES"];

    /// This host, with those of `variables` that the allow-list lets through.
    pub fn of_host(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            cpu: cpu_model(&cpuinfo),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            variables: variables.into_iter().filter(|(name, _)| Self::keeps(name)).collect(),
            libraries: BTreeMap::new(),
            gpus: Vec::new(),
            hosts: None,
            launcher: None,
            variant: BTreeMap::new(),
            command: Vec::new(),
        }
    }

    /// Whether the variable `name` is on the allow-list.
    fn keeps(name: &str) -> bool {
        Self::PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || Self::NAMES.contains(&name)
    }
}

/// The first `model name` of Linux' /proc/cpuinfo.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a_64() {
        // The published vectors of "" and "foobar".
        assert_eq!(PatternInfo::new("x", "").hash, "cbf29ce484222325");
        assert_eq!(PatternInfo::new("x", "foobar").hash, "85944171f73967e8");
    }

    #[test]
    fn only_listed_variables_are_kept() {
        let given =
            ["NCCL_ALGO", "UCX_TLS", "OMPI_MCA_btl", "CUDA_VISIBLE_DEVICES", "AWS_SECRET", "MY_NCCL_KEY", "PATH"];
        let environment = Environment::of_host(given.map(|name| (name.to_owned(), "1".to_owned())));
        let kept: Vec<&str> = environment.variables.keys().map(String::as_str).collect();
        assert_eq!(kept, ["CUDA_VISIBLE_DEVICES", "NCCL_ALGO", "OMPI_MCA_btl", "UCX_TLS"]);
        assert!(environment.cores > 0);
    }

    #[test]
    fn the_cpu_model_is_the_first() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\nmodel name\t: Other\n";
        assert_eq!(cpu_model(text).as_deref(), Some("Some CPU @ 2.0GHz"));
        assert_eq!(cpu_model("processor: 0\n"), None);
    }
}
