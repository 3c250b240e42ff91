//! The words of the command line. Nothing here travels further: each command turns its arguments into the plain
//! settings of the rooms that it calls.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
#[cfg(feature = "import")]
use maestro_importers::{export::EXPORTERS, synthesis::HostTime};
use maestro_pattern::{AxisSize, Setting};
use maestro_replay::{Compute, Pacing, Settings};
#[cfg(feature = "tables")]
use maestro_reports::FileFormat;
use maestro_reports::Format;
use maestro_reports::diff::Metric;

/// Replays the overlapping collectives and compute of real training steps, and reports each overlapped beside alone.
#[derive(Debug, Parser)]
#[command(name = "maestro", version, max_term_width = 120, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Turn a profiler capture into a pattern
    #[cfg(feature = "import")]
    Import(Import),
    /// Show a capture, a pattern or a run, with its timeline
    Show(Show),
    /// Check patterns without running them
    Check(Check),
    /// Run a pattern and print each block overlapped beside alone
    Replay(Replay),
    /// Import, replay and report in one go
    #[cfg(feature = "import")]
    Run(Run),
    /// Write a pattern, or that of a capture, in another tool's format
    #[cfg(feature = "import")]
    Export(Export),
    /// Run a pattern over sizes of its collectives or settings of its communicators, and print one table of all
    #[cfg(feature = "tables")]
    Sweep(Sweep),
    /// Print tables of saved runs, or draw them as a timeline
    Report(Report),
    /// Compare two sets of runs: what changed, by how much, and how sure that is
    Diff(Diff),
    /// Tell what works on this machine and what is missing
    Doctor,
}

#[cfg(feature = "import")]
#[derive(Debug, Args)]
pub struct Import {
    /// Capture files, folders that hold one file a rank, or quoted globs
    #[arg(required = true, value_name = "CAPTURE")]
    pub captures: Vec<PathBuf>,
    /// Where to write the pattern; `-` for standard output [default: NAME.yaml]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write the captured executions as a run folder
    #[arg(long, value_name = "FOLDER")]
    pub run: Option<PathBuf>,
    #[command(flatten)]
    pub choice: Choice,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

/// What to take of a capture.
#[cfg(feature = "import")]
#[derive(Debug, Default, PartialEq, Args)]
pub struct Choice {
    /// The step to take, by name or number [default: the last one of typical length]
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
    /// Host ranges that mark steps, where the usual names do not: a name in which * is any text, e.g. 'my_step *'
    #[arg(long, value_name = "PATTERN")]
    pub steps: Option<String>,
    /// Sizes of communications that the capture lacks: another capture of the job, or lines like `all_gather: [1024, 64]`
    #[arg(long = "sizes", value_name = "FILE")]
    pub lent: Option<PathBuf>,
    /// Name of the pattern [default: after the first file]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Host time between launches, which profiling makes longer: `captured`, `none`, `scale=0.4` for that share of it, or
    /// `step=36.1ms` for the share with which a dry run takes as long as the step did without the profiler
    #[arg(long, value_name = "HOW", default_value = "captured", value_parser = host)]
    pub host: Host,
    /// Keep blocks that differ in sizes only, as the experts of layers do, apart instead of averaging them
    #[arg(long)]
    pub exact: bool,
    /// Kernels that communicate though no known library names them so, and what they do; may be given several times.
    /// PATTERN is part of a name, or with * and ? a whole one; e.g. my_ring_gather=all_gather
    #[arg(long, value_name = "PATTERN[=OPERATION]")]
    pub comm_kernel: Vec<maestro_importers::CommKernel>,
    /// Refuse damaged captures, instead of reading what is there and noting what was lost
    #[arg(long)]
    pub strict: bool,
}

#[derive(Debug, Args)]
pub struct Show {
    /// A capture (file or folder), a pattern or a run folder
    pub what: PathBuf,
    /// Draw only this rank
    #[arg(long)]
    pub rank: Option<u32>,
    /// Width of the drawing in characters
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(20..=1000))]
    pub width: u16,
    /// The step of a capture to show
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
    /// Refuse a damaged capture, instead of showing what is there and noting what was lost
    #[arg(long)]
    pub strict: bool,
    /// How to show it; `perfetto` is a timeline for ui.perfetto.dev
    #[arg(long, default_value = "text", value_parser = ["text", "json", PERFETTO])]
    pub format: String,
    /// Where to write it, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The same as --format json: print one JSON document and nothing else
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

/// The format that is no text: a timeline.
const PERFETTO: &str = "perfetto";

impl Show {
    pub fn json(&self) -> bool {
        self.json || self.format == "json"
    }

    pub fn perfetto(&self) -> bool {
        self.format == PERFETTO
    }
}

#[derive(Debug, Args)]
pub struct Check {
    /// Pattern files
    #[arg(required = true, value_name = "PATTERN")]
    pub patterns: Vec<PathBuf>,
    #[command(flatten)]
    pub world: World,
}

/// Sizes that shall differ from the pattern's.
#[derive(Clone, Debug, Default, Args)]
pub struct World {
    /// Give an axis another size, as dp=4
    #[arg(long = "axis", value_name = "NAME=SIZE", value_parser = axis_size)]
    pub sizes: Vec<AxisSize>,
    /// Take all ranks as alike: leave out the pattern's `skew` and `host_skew`, which speak of the ranks it was captured on
    #[arg(long)]
    pub even: bool,
    /// Change a setting of an axis' or lane's communicators, as axis.dp.max_ctas=4 or lane.comm.priority=high; `sweep` takes
    /// several values, as axis.dp.max_ctas=4,8,16
    #[arg(long = "set", value_name = "SETTING")]
    pub set: Vec<Setting>,
}

#[derive(Debug, Args)]
pub struct Replay {
    /// The pattern file
    pub pattern: PathBuf,
    /// Record two variants in turns, each run a process of its own, and compare them. A variant is a list of environment
    /// variables and settings, as "NCCL_ALGO=Tree axis.dp.max_ctas=4"; "" is everything as it is. -o is a folder for all runs
    #[arg(long, num_args = 2, value_names = ["SETTINGS_A", "SETTINGS_B"], conflicts_with = "plan")]
    pub ab: Option<Vec<String>>,
    /// Runs of each variant [default: as many as the comparison needs, at least 6]
    #[arg(long, value_name = "N", requires = "ab", value_parser = clap::value_parser!(u32).range(1..=MOST))]
    pub runs: Option<u32>,
    /// What starts each run of a variant, as "torchrun --nproc-per-node 8 --no-python"
    #[arg(long, value_name = "COMMAND", requires = "ab")]
    pub launch: Option<String>,
    #[command(flatten)]
    pub how: How,
}

#[cfg(feature = "tables")]
#[derive(Debug, Args)]
pub struct Sweep {
    /// The pattern file
    pub pattern: PathBuf,
    /// Sweep sizes from the first to the last, as 1MiB..1GiB, each twice the one before; 1MiB..1GiB*4 goes by fours
    #[arg(long, value_name = "FIRST..LAST", value_parser = sizes)]
    pub size: Option<Sizes>,
    /// Resize only this block, by name; may be given several times [default: all collectives of one size]
    #[arg(long, value_name = "NAME", requires = "size")]
    pub block: Vec<String>,
    // Of a sweep, -o is the folder in which each run has its run folder.
    #[command(flatten)]
    pub how: How,
}

/// Sizes of a sweep.
#[cfg(feature = "tables")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    first: u64,
    last: u64,
    factor: u64,
}

#[cfg(feature = "tables")]
impl Sizes {
    /// All of them, ascending.
    pub fn sizes(self) -> Vec<u64> {
        std::iter::successors(Some(self.first), |size| size.checked_mul(self.factor))
            .take_while(|size| *size <= self.last)
            .collect()
    }
}

#[cfg(feature = "tables")]
fn sizes(text: &str) -> Result<Sizes, String> {
    let read = || {
        let (range, factor) = match text.split_once('*') {
            Some((range, factor)) => (range, factor.parse().ok().filter(|factor| *factor > 1)?),
            None => (text, 2),
        };
        let (first, last) = range.split_once("..")?;
        let (first, last) = (maestro_pattern::parse_bytes(first)?, maestro_pattern::parse_bytes(last)?);
        (first > 0 && first <= last).then_some(Sizes { first, last, factor })
    };
    read().ok_or_else(|| format!("`{text}` is no FIRST..LAST such as 1MiB..1GiB or 1MiB..1GiB*4"))
}

/// Most iterations, rounds, and seconds of patience.
const MOST: i64 = 1_000_000;

/// How to replay.
#[derive(Clone, Debug, Args)]
pub struct How {
    /// The back end; `maestro doctor` lists them [default: nccl where there are GPUs, else threads]
    #[arg(long)]
    pub backend: Option<String>,
    /// Where to write the run folder [default: run-NAME, or run-NAME-2 and so on]
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub world: World,
    /// Recorded iterations of each turn
    #[arg(long, default_value_t = Settings::default().iterations, value_parser = clap::value_parser!(u32).range(1..=MOST))]
    pub iterations: u32,
    /// Rounds; each has a turn of the step and a turn of every block alone (compute only if it works)
    #[arg(long, default_value_t = Settings::default().rounds, value_parser = clap::value_parser!(u32).range(1..=MOST))]
    pub rounds: u32,
    /// Iterations dropped before the recorded ones of each turn
    #[arg(long, default_value_t = Settings::default().warmup, value_parser = clap::value_parser!(u32).range(..=MOST))]
    pub warmup: u32,
    /// Host time between issues: `gaps` keeps it, `asap` leaves it out
    #[arg(long, default_value = Settings::default().pacing.name(), value_parser = Pacing::ALL.map(Pacing::name))]
    pub pacing: String,
    /// Compute: `hold` keeps its lane busy for the captured time, `work` does real products and memory traffic
    /// [default: work on GPUs, else hold]
    #[arg(long, value_parser = Compute::ALL.map(Compute::name))]
    pub compute: Option<String>,
    /// Run each turn as one CUDA graph, without host time and host waits (nccl only)
    #[arg(long)]
    pub graph: bool,
    /// Executions of a block alone that are timed as one, back to back, as nccl-tests does
    #[arg(long, value_name = "N", default_value_t = Settings::default().back_to_back, value_parser = clap::value_parser!(u32).range(1..=MOST))]
    pub back_to_back: u32,
    /// Do not run blocks alone
    #[arg(long)]
    pub no_alone: bool,
    /// Do not verify the data first
    #[arg(long)]
    pub no_verify: bool,
    /// Seconds without any progress, beyond the longest block, after which a run counts as hung
    #[arg(long, value_name = "SECONDS", default_value_t = Settings::default().watchdog.as_secs(), value_parser = clap::value_parser!(u64).range(1..=MOST as u64))]
    pub watchdog: u64,
    /// Seconds for which the processes that a launcher started (torchrun, srun, mpirun) wait for each other to come
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=MOST as u64))]
    pub patience: u64,
    /// Print what would run (memory, communicators) and run nothing
    #[arg(long)]
    pub plan: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
    /// What this run was given as one of two variants; `--ab` tells the processes that it starts
    #[arg(long, hide = true, value_name = "NAME=VALUE", value_parser = pair)]
    pub variant: Vec<(String, String)>,
}

impl How {
    /// The command line that says the same, but for what each run of `--ab` is told anew: where to write, what to print,
    /// and its variant.
    pub fn arguments(&self) -> Vec<String> {
        // Without `..`: a new option must be handed on, too.
        let Self {
            backend,
            output: _,
            world: World { sizes, even, set },
            iterations,
            rounds,
            warmup,
            pacing,
            compute,
            graph,
            back_to_back,
            no_alone,
            no_verify,
            watchdog,
            patience,
            plan: _,
            json: _,
            variant: _,
        } = self;
        let mut all: Vec<String> = Vec::new();
        let mut option = |name: &str, value: String| all.extend([format!("--{name}"), value]);
        backend.iter().for_each(|name| option("backend", name.clone()));
        sizes.iter().for_each(|axis| option("axis", format!("{}={}", axis.name, axis.size)));
        set.iter().for_each(|setting| option("set", setting.to_string()));
        for (name, number) in [
            ("iterations", u64::from(*iterations)),
            ("rounds", u64::from(*rounds)),
            ("warmup", u64::from(*warmup)),
            ("back-to-back", u64::from(*back_to_back)),
            ("watchdog", *watchdog),
            ("patience", *patience),
        ] {
            option(name, number.to_string());
        }
        option("pacing", pacing.clone());
        compute.iter().for_each(|compute| option("compute", compute.clone()));
        for (name, given) in [("even", even), ("graph", graph), ("no-alone", no_alone), ("no-verify", no_verify)] {
            all.extend(given.then(|| format!("--{name}")));
        }
        all
    }

    /// As settings of the replay room for a back end that takes `compute` where nobody says; whom to notify is the
    /// command's matter.
    pub fn settings(&self, compute: Compute) -> Settings {
        let pacing = Pacing::ALL.into_iter().find(|p| p.name() == self.pacing).unwrap_or(Settings::default().pacing);
        let named = Compute::ALL.into_iter().find(|c| Some(c.name()) == self.compute.as_deref());
        Settings {
            warmup: self.warmup,
            iterations: self.iterations,
            rounds: self.rounds,
            pacing,
            compute: named.unwrap_or(compute),
            graph: self.graph,
            alone: !self.no_alone,
            back_to_back: self.back_to_back,
            verify: !self.no_verify,
            watchdog: Duration::from_secs(self.watchdog),
            ..Settings::default()
        }
    }
}

#[cfg(feature = "import")]
#[derive(Debug, Args)]
pub struct Run {
    /// A capture (files, folder or quoted globs) or one pattern
    #[arg(required = true, value_name = "CAPTURE or PATTERN")]
    pub what: Vec<PathBuf>,
    #[command(flatten)]
    pub choice: Choice,
    #[command(flatten)]
    pub how: How,
}

#[cfg(feature = "import")]
#[derive(Debug, Args)]
pub struct Export {
    /// A pattern, or a capture (files, folder or quoted globs)
    #[arg(required = true, value_name = "PATTERN or CAPTURE")]
    pub what: Vec<PathBuf>,
    /// The format: `chakra`, one PREFIX.RANK.et a rank
    #[arg(long, default_value = EXPORTERS[0].name(), value_parser = export_format)]
    pub format: String,
    /// The beginning of the files' names, with their folder [default: the pattern's name]
    #[arg(short, long, value_name = "PREFIX")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub choice: Choice,
    #[command(flatten)]
    pub world: World,
}

#[derive(Debug, Args)]
pub struct Report {
    /// Run folders, or folders that hold them
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Which table
    #[cfg(feature = "tables")]
    #[arg(long, default_value = "blocks")]
    pub table: String,
    #[cfg_attr(
        feature = "tables",
        doc = "How to write it; `parquet` and `arrow` are files with types, `perfetto` is no table but a timeline of all \
               runs, for ui.perfetto.dev, and `html` a page with all tables, timelines and curves: of one run, of a \
               captured and a replayed one, of one before and one after, or of a sweep"
    )]
    #[cfg_attr(
        not(feature = "tables"),
        doc = "How to write it; `perfetto` is no table but a timeline of all runs, for ui.perfetto.dev"
    )]
    #[arg(long, default_value = Format::Table.name(), value_parser = report_formats())]
    pub format: String,
    /// What nccl-tests measured of the blocks alone: its text or what its -J wrote; a column of `blocks`
    #[cfg(feature = "tables")]
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Where to write it, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What the link of a rank can carry, as 450GB/s or 400Gb/s: columns of `blocks-wide`, and a line in the page
    #[cfg(feature = "tables")]
    #[arg(long, value_name = "RATE", value_parser = link_gbps)]
    pub link_rate: Option<f64>,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

impl Report {
    #[cfg(feature = "tables")]
    pub fn html(&self) -> bool {
        self.format == HTML
    }

    pub fn perfetto(&self) -> bool {
        self.format == PERFETTO
    }

    /// The format of a file with types, if it is one.
    #[cfg(feature = "tables")]
    pub fn file_format(&self) -> Option<FileFormat> {
        FileFormat::from_name(&self.format)
    }

    /// The format of a table.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::from_name(&self.format).unwrap_or(Format::Table) }
    }
}

#[derive(Debug, Args)]
pub struct Diff {
    /// Run folders before the change, or folders that hold them
    #[arg(required = true, value_name = "BEFORE")]
    pub before: Vec<PathBuf>,
    /// Run folders after it, or folders that hold them
    #[arg(long, required = true, num_args = 1.., value_name = "AFTER")]
    pub against: Vec<PathBuf>,
    /// What to compare: step, exposed, exposed_pct, overlapped, alone, slowdown, latency, wait, p99, busbw, alone_busbw
    /// [default: step,overlapped,alone, or what the rules are about]
    #[arg(long = "metric", value_name = "METRIC", value_delimiter = ',', value_parser = Metric::from_name)]
    pub metrics: Vec<Metric>,
    /// Compare these blocks only; * is any text
    #[arg(long = "block", value_name = "NAME", value_delimiter = ',')]
    pub blocks: Vec<String>,
    /// What was changed on purpose, by the name that the notes give it (NCCL_ALGO, libraries.NCCL, axis.dp.max_ctas,
    /// pattern...); * is any text. What --ab changed is known
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub changed: Vec<String>,
    /// Chance of any false verdict if nothing changed
    #[arg(long, value_name = "CHANCE", default_value = "0.05", value_parser = alpha)]
    pub alpha: f64,
    /// Least change to speak of
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = percent)]
    pub threshold: f64,
    /// Judge by rules (docs/DIFF.md): exit code 0 passed, 1 a regression proved, 3 inconclusive
    #[arg(long, value_name = "RULES.yaml")]
    pub gate: Option<PathBuf>,
    /// Also write what became of the rules as JUnit XML
    #[arg(long, value_name = "FILE", requires = "gate")]
    pub junit: Option<PathBuf>,
    /// Also write everything as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    #[cfg_attr(
        feature = "tables",
        doc = "How to write the comparison; `html` is a page of it, with a run of each side drawn"
    )]
    #[cfg_attr(not(feature = "tables"), doc = "How to write the comparison")]
    #[arg(long, default_value = Format::Table.name(), value_parser = diff_formats())]
    pub format: String,
    /// Where to write it, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

impl Diff {
    #[cfg(feature = "tables")]
    pub fn html(&self) -> bool {
        self.format == HTML && !self.json
    }

    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::from_name(&self.format).unwrap_or(Format::Table) }
    }
}

fn alpha(text: &str) -> Result<f64, String> {
    let chance = text.parse().ok().filter(|chance: &f64| *chance > 0.0 && *chance < 0.5);
    chance.ok_or_else(|| "a chance above 0 and below 0.5 was expected, as 0.05".to_owned())
}

/// A percentage, as a fraction.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
    let number = number.filter(|number: &f64| (0.0..=1000.0).contains(number));
    number.map(|number| number / 100.0).ok_or_else(|| "a percentage was expected, as 1%".to_owned())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is no NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The format that is a page.
#[cfg(feature = "tables")]
const HTML: &str = "html";
/// What only the build with tables writes.
#[cfg(feature = "tables")]
const PAGES: &[&str] = &[HTML];
#[cfg(not(feature = "tables"))]
const PAGES: &[&str] = &[];

fn report_formats() -> PossibleValuesParser {
    let mut formats = Format::ALL.map(Format::name).to_vec();
    #[cfg(feature = "tables")]
    formats.extend(FileFormat::ALL.map(FileFormat::name));
    formats.push(PERFETTO);
    formats.extend(PAGES);
    formats.into()
}

fn diff_formats() -> PossibleValuesParser {
    [&Format::ALL.map(Format::name), PAGES].concat().into()
}

/// A rate in bytes (`450GB/s`) or bits (`400Gb/s`) a second, as decimal gigabytes a second.
#[cfg(feature = "tables")]
fn link_gbps(text: &str) -> Result<f64, String> {
    let rate = || {
        let (unit, scale) = match text.strip_suffix("b/s") {
            Some(bits) => (format!("{bits}B"), 8e9),
            None => (text.strip_suffix("/s")?.to_owned(), 1e9),
        };
        // A rate in bare numbers would leave open whether bits or bytes were meant.
        let bytes = maestro_pattern::parse_bytes(unit.trim()).filter(|bytes| *bytes > 0 && unit.ends_with('B'))?;
        Some(bytes as f64 / scale)
    };
    rate().ok_or_else(|| format!("`{text}` is no rate such as 450GB/s (bytes) or 400Gb/s (bits)"))
}

#[cfg(feature = "import")]
fn export_format(text: &str) -> Result<String, String> {
    let known: Vec<&str> = EXPORTERS.iter().map(|exporter| exporter.name()).collect();
    let found = known.iter().find(|name| **name == text);
    found.map(|name| (*name).to_owned()).ok_or_else(|| format!("one of {} was expected", known.join(", ")))
}

/// How much of the captured host time a pattern keeps.
#[cfg(feature = "import")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Host {
    /// So much.
    Share(HostTime),
    /// As much as lets the step take so many nanoseconds.
    Step(u64),
}

#[cfg(feature = "import")]
impl Default for Host {
    fn default() -> Self {
        Self::Share(HostTime::default())
    }
}

#[cfg(feature = "import")]
fn host(text: &str) -> Result<Host, String> {
    let scale = text.strip_prefix("scale=").and_then(|factor| factor.parse::<f64>().ok());
    let step = text.strip_prefix("step=").and_then(maestro_pattern::parse_duration);
    match (text, scale, step) {
        ("captured", ..) => Ok(Host::Share(HostTime::Captured)),
        ("none", ..) => Ok(Host::Share(HostTime::Scaled(0.0))),
        (_, Some(factor), _) if (0.0..=100.0).contains(&factor) => Ok(Host::Share(HostTime::Scaled(factor))),
        (_, _, Some(step)) => Ok(Host::Step(step)),
        _ => Err("one of `captured`, `none`, scale=F, F from 0 to 100 (as scale=0.4), and step=DURATION (as \
                  step=36.1ms) was expected"
            .to_owned()),
    }
}

fn axis_size(text: &str) -> Result<AxisSize, String> {
    let wrong = || format!("`{text}` is no NAME=SIZE such as dp=4");
    let (name, size) = text.split_once('=').ok_or_else(wrong)?;
    Ok(AxisSize { name: name.to_owned(), size: size.parse().map_err(|_| wrong())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_variants_are_told_what_the_command_was_told() {
        let read = |args: &[String]| {
            let all = ["maestro", "replay", "p.yaml"].map(str::to_owned).into_iter().chain(args.iter().cloned());
            let Command::Replay(replay) = Cli::try_parse_from(all).unwrap().command else { panic!("a replay") };
            replay.how
        };
        let given = "--backend threads --axis dp=4 --axis tp=2 --even --set axis.dp.max_ctas=4 --iterations 7 --rounds 3 \
                     --warmup 0 --pacing asap --compute work --graph --back-to-back 5 --no-alone --no-verify --watchdog 9 \
                     --patience 8";
        let given: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
        let how = read(&given);
        assert_eq!(format!("{how:?}"), format!("{:?}", read(&how.arguments())));
        let usual = read(&[]);
        assert_eq!(format!("{usual:?}"), format!("{:?}", read(&usual.arguments())));
        assert_ne!(format!("{how:?}"), format!("{usual:?}"));
    }
}
