//! What nccl-tests measured, as an outside "alone" beside the block alone.
//!
//! Read are its text, of one test or several in one file, and the JSON of `-J`. A block that is done in place has its time
//! in place, every other the one out of place. Bandwidths are computed anew from size and time, as for blocks.

mod json;
mod matching;
mod text;

use std::path::Path;

use maestro_pattern::{CollectiveKind, Dtype};

pub use matching::Match;

use crate::{Error, Result};

/// The results of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// The file's name, without its folders.
    pub name: String,
    /// Version of nccl-tests, where the file tells.
    pub tests: Option<String>,
    /// Version of NCCL, where the file tells.
    pub nccl: Option<String>,
    /// The times, in the order of the file.
    pub points: Vec<Point>,
}

/// What a test of nccl-tests does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// A collective.
    Collective(CollectiveKind),
    /// Every rank sends to the next one and receives from the one before, in a ring.
    SendRecv,
}

impl Test {
    /// As nccl-tests names its programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Collective(kind) => kind.name(),
            Self::SendRecv => "sendrecv",
        }
    }
}

/// One size of one test.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The test.
    pub test: Test,
    /// Element type.
    pub dtype: Dtype,
    /// Ranks of the team.
    pub ranks: usize,
    /// S of nccl-tests, in bytes.
    pub size_bytes: u64,
    /// Whether it was done in place.
    pub in_place: bool,
    /// Time of one, in microseconds.
    pub time_us: f64,
}

impl Baseline {
    /// Reads the output of nccl-tests in `file`.
    ///
    /// # Errors
    /// The file cannot be read, is neither text nor JSON of nccl-tests, or holds no time that could be compared.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).map_err(Error::io(file, "read the baseline"))?;
        let name = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let refused = |why: String| Error::Baseline { path: file.to_owned(), why };
        let read = if text.trim_start().starts_with('{') { json::read(&text) } else { text::read(&text, &name) };
        let found = read.map_err(refused)?;
        if found.points.is_empty() {
            let skipped = found.skipped.map_or_else(String::new, |why| format!(": {why}"));
            return Err(refused(format!(
                "no time of a test that blocks can be compared with in it{skipped}; give the output of nccl-tests' all_reduce_perf and \
                 its like, or what -J wrote"
            )));
        }
        Ok(Self { name, tests: found.tests, nccl: found.nccl, points: found.points })
    }

    /// Where the times come from, in a few words.
    pub(crate) fn origin(&self) -> String {
        let versions = [("nccl-tests", &self.tests), ("NCCL", &self.nccl)];
        let known: Vec<String> =
            versions.iter().filter_map(|(what, version)| Some(format!("{what} {}", version.as_ref()?))).collect();
        if known.is_empty() { self.name.clone() } else { format!("{} ({})", self.name, known.join(", ")) }
    }
}

/// What a reader found.
#[derive(Debug, Default)]
struct Found {
    tests: Option<String>,
    nccl: Option<String>,
    points: Vec<Point>,
    /// Why the last result that was passed over was.
    skipped: Option<String>,
}

/// A time as nccl-tests prints it, in microseconds; `None` where it has none, as `N/A`.
fn time_us(word: &str) -> Option<f64> {
    word.parse().ok().filter(|us: &f64| us.is_finite() && *us > 0.0)
}

/// What a test of nccl-tests does, by the name of its program or of a file named after it.
fn test(program: &str) -> Option<Test> {
    // Longer names first where one is in another.
    const PROGRAMS: [(&str, CollectiveKind); 7] = [
        ("all_reduce", CollectiveKind::AllReduce),
        ("all_gather", CollectiveKind::AllGather),
        ("reduce_scatter", CollectiveKind::ReduceScatter),
        ("broadcast", CollectiveKind::Broadcast),
        ("gather", CollectiveKind::Gather),
        ("scatter", CollectiveKind::Scatter),
        ("reduce", CollectiveKind::Reduce),
    ];
    let name = program.rsplit('/').next().unwrap_or(program);
    // Uneven all-to-alls are a test of their own, whose splits are not in its output.
    if name.contains("alltoall") {
        return (!name.contains("alltoallv")).then_some(Test::Collective(CollectiveKind::AllToAll));
    }
    if name.contains("sendrecv") {
        return Some(Test::SendRecv);
    }
    PROGRAMS.into_iter().find(|(known, _)| name.contains(known)).map(|(_, kind)| Test::Collective(kind))
}

/// The element type that nccl-tests calls so.
fn dtype(name: &str) -> Option<Dtype> {
    let ours = match name {
        "half" => "f16",
        "float" => "f32",
        "double" => "f64",
        "bfloat16" => "bf16",
        "int8" => "i8",
        "uint8" => "u8",
        "int32" => "i32",
        "int64" => "i64",
        "f8e4m3" | "fp8_e4m3" => "f8e4m3",
        "f8e5m2" | "fp8_e5m2" => "f8e5m2",
        _ => return None,
    };
    Dtype::from_name(ours)
}

/// `22809` as `2.28.9`, as NCCL counts since 2.9.
fn version(code: u64) -> String {
    format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100)
}
