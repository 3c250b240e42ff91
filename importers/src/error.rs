//! What can be wrong with a capture, each with its file, the place in it, what was expected and what would help.

use std::io;
use std::path::PathBuf;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a capture cannot be read. One sentence each, without a full stop, the remedy behind a semicolon.
///
/// Bytes are counted from 0. In a gzip file, `byte` of the JSON errors is a place in the decompressed text, `byte` of
/// the gzip errors one in the file itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing to read was named.
    #[error("no capture was given; name capture files, or the folder that holds one file a rank")]
    NoPath,

    /// A path that leads nowhere.
    #[error("{}: no such file or folder; name capture files, or the folder that holds one file a rank", file.display())]
    Missing {
        /// The path.
        file: PathBuf,
    },

    /// A pattern with `*` or `?` that nothing matches.
    #[error("{}: nothing matches; the last part of a path may be a pattern of `*` and `?`", pattern.display())]
    NoMatch {
        /// The pattern.
        pattern: PathBuf,
    },

    /// The operating system refuses.
    #[error("{}: cannot be read ({source}); check that it is a plain file and its permissions", file.display())]
    Unreadable {
        /// The path.
        file: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },

    /// A file, or the content of a gzip file, without a byte in it.
    #[error("{}: the file is empty where a capture was expected; check that the profiler was stopped and its export \
             finished", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },

    /// A folder in which no file is a capture.
    #[error(
        "{}: no capture is directly inside this folder ({files} files looked at); expected is {formats}",
        folder.display()
    )]
    NoTraces {
        /// The folder.
        folder: PathBuf,
        /// How many files were looked at.
        files: usize,
        /// The formats that can be read.
        formats: String,
    },

    /// A file that no importer recognises.
    #[error("{}: the content is of no format known here; tried was {formats}", file.display())]
    Unrecognised {
        /// The file.
        file: PathBuf,
        /// The formats that were tried and what they are.
        formats: String,
    },

    /// Readable, but not what the format holds: JSON without events, say.
    #[error("{}: byte {byte}: {found} where {expected} was expected; {help}", file.display())]
    Shape {
        /// The file.
        file: PathBuf,
        /// Where that shows.
        byte: u64,
        /// What is there.
        found: &'static str,
        /// What should be there.
        expected: &'static str,
        /// What would help.
        help: &'static str,
    },

    /// The text ends before what it began is complete.
    #[error("{}: the JSON ends at byte {byte}, {inside}; the file is cut: copy it again, or record again and let the \
             export finish", file.display())]
    Truncated {
        /// The file.
        file: PathBuf,
        /// Length of what is there.
        byte: u64,
        /// What was being read.
        inside: &'static str,
    },

    /// The text breaks the grammar of its format.
    #[error("{}: byte {byte}: malformed JSON, {problem}; copy the file again, or record again", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Where.
        byte: u64,
        /// What is wrong there.
        problem: String,
    },

    /// A gzip file that ends too early.
    #[error("{}: the gzip data end at byte {byte} before they are complete; the file is cut: copy it again, or record \
             again and let the export finish", file.display())]
    GzipTruncated {
        /// The file.
        file: PathBuf,
        /// Length of the file.
        byte: u64,
    },

    /// A gzip file that does not decompress.
    #[error("{}: the gzip data are corrupt before byte {byte} ({problem}); copy the file again", file.display())]
    GzipCorrupt {
        /// The file.
        file: PathBuf,
        /// How far the file was read.
        byte: u64,
        /// What the decompressor says.
        problem: String,
    },

    /// Two recordings of one rank.
    #[error("{} and {} are both of rank {rank}; give one file a rank, all of the same recording", first.display(),
            second.display())]
    SameRank {
        /// The rank.
        rank: u32,
        /// The file that was read first.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },

    /// One recording twice.
    #[error("{} and {} hold the same activities of process {process}; they are two exports of one recording: give one of \
             them", first.display(), second.display())]
    SameRecording {
        /// The process that both recorded.
        process: i64,
        /// The file that was read first.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },

    /// Host rows, but nothing that a device did.
    #[error("{}: nothing that a GPU did is in it, though the host made {launches} launches; the profiler lost the \
             device rows or was not asked for them: record again with ProfilerActivity.CUDA among its activities",
            file.display())]
    NoActivities {
        /// The file.
        file: PathBuf,
        /// Launches that the host rows show.
        launches: usize,
    },

    /// A message that is cut or is none.
    #[error("{}: byte {byte}: {problem}; copy the file again, or write it again and let that finish", file.display())]
    BadMessage {
        /// The file.
        file: PathBuf,
        /// Where the message begins in the content.
        byte: u64,
        /// What is wrong with it.
        problem: String,
    },

    /// A graph of the host alone.
    #[error("{}: no node of a device is in it, though {host} of the host are; merge the execution trace with a profile \
             that has device rows (chakra_trace_link), or import the profile itself", file.display())]
    NoDeviceNodes {
        /// The file.
        file: PathBuf,
        /// Nodes of the host.
        host: usize,
    },

    /// Host rows, and device rows that are missing.
    #[error("{}: GPU rows are missing: {seen}, and there are {activities} kernels, copies and sets; the profiler \
             loses them when recording ends before it has fetched them from the device, or when its buffers run over: \
             synchronise the device at the end of the range, let the process end by itself and record fewer steps, with \
             `nsys profile -t cuda,nvtx`", file.display())]
    DeviceRowsLost {
        /// The file.
        file: PathBuf,
        /// What the host rows show, of which process, in words.
        seen: String,
        /// Device rows that are there.
        activities: usize,
    },

    /// CUDA graphs recorded as one row a launch.
    #[error("{}: {launches} launches of CUDA graphs are recorded as a whole, without the kernels in them; record again \
             with `nsys profile --cuda-graph-trace=node`", file.display())]
    GraphsAsWhole {
        /// The file.
        file: PathBuf,
        /// Launches of graphs without kernels.
        launches: usize,
    },

    /// A database that does not read as one.
    #[error("{}: SQLite says: {problem}; export the report again: `nsys export --type sqlite REPORT.nsys-rep`",
            file.display())]
    Database {
        /// The file.
        file: PathBuf,
        /// What SQLite says.
        problem: String,
    },

    /// A database of something else.
    #[error("{}: an SQLite database, but none that `nsys export --type sqlite` wrote: it has no table {table}",
            file.display())]
    NoNsight {
        /// The file.
        file: PathBuf,
        /// A table that every such export has.
        table: &'static str,
    },

    /// A report of Nsight Systems where that is not at hand.
    #[error("{}: only Nsight Systems reads its own reports ({problem}); where it is installed, run `nsys export --type \
             json --output {}.jsonl {}` and import what that writes", file.display(),
            file.with_extension("").display(), file.display())]
    NeedsNsys {
        /// The report.
        file: PathBuf,
        /// Why it was not converted here.
        problem: String,
    },

    /// An execution trace and no profile.
    #[error("{}: an execution trace alone is no capture, for it holds no times; give it beside the profile of the same \
             rank (the file that torch.profiler's export_chrome_trace wrote)", file.display())]
    ExecutionTraceAlone {
        /// The first execution trace.
        file: PathBuf,
    },

    /// A capture without a single rank.
    #[error("the capture holds no rank; record at least one")]
    NoRanks,

    /// More ranks than a job has.
    #[error("the capture speaks of {ranks} ranks, more than the {most} that a pattern can have; its header is damaged")]
    TooManyRanks {
        /// How many it speaks of.
        ranks: u64,
        /// How many there can be.
        most: u64,
    },

    /// A step that was asked for and is not there, or not on every rank.
    #[error("no step `{wanted}` is on every rank; there are: {}", known.join(", "))]
    NoSuchStep {
        /// What was asked for.
        wanted: String,
        /// The steps that every rank has.
        known: Vec<String>,
    },

    /// A list of sizes that is none.
    #[error("{}: line {line}: {problem}; a list of sizes has lines such as `all_gather: [524352000, 402759680]`",
            file.display())]
    SizeList {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },

    /// No host range is called as steps were said to be.
    #[error("no host range of rank {rank} is called `{pattern}`; there are: {}", known.join(", "))]
    NoSuchMark {
        /// What steps were said to be called.
        pattern: String,
        /// The first rank without one.
        rank: u32,
        /// Names of host ranges of this rank, the first few.
        known: Vec<String>,
    },

    /// No step has device work on every rank.
    #[error("no step has device work on every rank (the first rank has: {}); record the same steps on all ranks",
            known.join(", "))]
    NoCommonStep {
        /// The steps of the first rank.
        known: Vec<String>,
    },
}
