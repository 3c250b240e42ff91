//! `maestro replay --ab`: two variants of a replay, recorded in turns and compared.
//!
//! Each run is a process of its own: the libraries read their variables once, and communicators, memory and placement
//! must be new in each run, or the runs would be one. Turns go A B B A A B B A, so that a machine that drifts steadily
//! drifts as much under one as under the other.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use maestro_pattern::Setting;
use maestro_replay::Launch;
use maestro_reports::Format;
use maestro_reports::diff::{Diff, Options, runs_needed};
use serde_json::json;

use super::{check, diff};
use crate::failure::{Failure, INPUT};
use crate::{cli, output};

/// Fewest runs of a variant where nobody says how many: a median of fewer has no 95 % interval.
const FEWEST_RUNS: u32 = 6;
/// Most runs that are made unasked.
const MOST_RUNS: u32 = 12;

/// One of the two.
#[derive(Debug, Default, PartialEq)]
struct Variant {
    variables: Vec<(String, String)>,
    settings: Vec<Setting>,
}

/// What all runs have in common.
struct Recording<'a> {
    args: &'a cli::Replay,
    variants: [Variant; 2],
    folder: PathBuf,
}

/// The names of the variants: folders and beginnings of runs' names.
const NAMES: [&str; 2] = ["a", "b"];

pub fn run(args: &cli::Replay, given: [&str; 2]) -> Result<(), Failure> {
    if Launch::from_environment(&|name| std::env::var(name).ok())?.is_some_and(|launch| launch.world > 1) {
        return Err(anyhow!(
            "--ab starts a process for each run, so it cannot be started by a launcher itself; give it the launcher as \
             --launch \"torchrun ...\""
        )
        .into());
    }
    let variants = [Variant::read(given[0])?, Variant::read(given[1])?];
    if variants[0] == variants[1] {
        return Err(
            anyhow!("--ab: both variants are the same; give what shall differ, as --ab \"\" NCCL_ALGO=Tree").into()
        );
    }
    for variant in &variants {
        let (mut pattern, _) = check::plan(&args.pattern, &args.how.world)?.0;
        for setting in &variant.settings {
            pattern.set(setting).with_context(|| format!("--ab {setting}"))?;
        }
    }
    let recording = Recording { args, variants, folder: folder(args)? };
    let runs = recording.record()?;
    let sides = NAMES.map(|name| recording.runs_of(name, runs));
    let options = Options::default();
    let compared = Diff::of(&diff::side(&sides[0], &options)?, &diff::side(&sides[1], &options)?, &options)?;
    recording.print(&compared)?;
    Ok(())
}

impl Variant {
    /// Words of `NAME=VALUE` and of settings.
    fn read(text: &str) -> anyhow::Result<Self> {
        let mut this = Self::default();
        for word in text.split_whitespace() {
            if Setting::is_meant(word) {
                this.settings.push(word.parse()?);
                continue;
            }
            let named = |name: &str| {
                let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                plain && name.starts_with(|c: char| !c.is_ascii_digit())
            };
            match word.split_once('=') {
                Some((name, value)) if named(name) => this.variables.push((name.to_owned(), value.to_owned())),
                _ => bail!(
                    "--ab: `{word}` is neither a variable such as NCCL_ALGO=Tree nor a setting such as \
                     axis.dp.max_ctas=4"
                ),
            }
        }
        Ok(this)
    }

    /// What run.json shall say that this variant was given.
    fn given(&self) -> Vec<String> {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value}"));
        variables.chain(self.settings.iter().map(Setting::to_string)).collect()
    }
}

/// A new folder for all runs.
fn folder(args: &cli::Replay) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &args.how.output {
        let used = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
        if used || folder.is_file() {
            bail!(
                "{}: this is there already, and runs of another time would count as runs of this; choose a new folder",
                folder.display()
            );
        }
        return Ok(folder.clone());
    }
    let stem = args.pattern.file_stem().map_or_else(|| "pattern".into(), |stem| stem.to_string_lossy().into_owned());
    let numbered = (2..).map(|n| PathBuf::from(format!("ab-{stem}-{n}")));
    let mut names = [PathBuf::from(format!("ab-{stem}"))].into_iter().chain(numbered);
    names.find(|folder| !folder.exists()).context("no name is free for a folder here; choose one by -o")
}

impl Recording<'_> {
    /// Makes the runs of both variants, and gives how many of each.
    fn record(&self) -> Result<u32, Failure> {
        let mut runs = self.args.runs.unwrap_or(FEWEST_RUNS);
        let bar = bar(2 * runs);
        let mut made = 0;
        while made < runs {
            let order = if made % 2 == 0 { [0, 1] } else { [1, 0] };
            for side in order {
                bar.set_message(format!("{}-{}", NAMES[side], made + 1));
                self.one(side, made + 1)?;
                bar.inc(1);
            }
            made += 1;
            if made == 1 && self.args.runs.is_none() {
                runs = self.needed()?;
                bar.set_length(2 * u64::from(runs));
            }
        }
        bar.finish_and_clear();
        Ok(runs)
    }

    /// How many runs of each it takes, which the first two tell: the more is compared, the more.
    fn needed(&self) -> anyhow::Result<u32> {
        let options = Options { resamples: 1, ..Options::default() };
        let [a, b] = NAMES.map(|name| self.runs_of(name, 1));
        let comparisons = Diff::of(&diff::side(&a, &options)?, &diff::side(&b, &options)?, &options)?.rows.len();
        Ok((runs_needed(comparisons, options.alpha) as u32).clamp(FEWEST_RUNS, MOST_RUNS))
    }

    fn runs_of(&self, name: &str, runs: u32) -> Vec<PathBuf> {
        (1..=runs).map(|n| self.path(name, n)).collect()
    }

    fn path(&self, name: &str, n: u32) -> PathBuf {
        self.folder.join(name).join(format!("{name}-{n}"))
    }

    /// Makes one run.
    fn one(&self, side: usize, n: u32) -> Result<(), Failure> {
        let variant = &self.variants[side];
        let path = self.path(NAMES[side], n);
        let mut command = self.command()?;
        command.arg("replay").arg(&self.args.pattern).arg("-o").arg(&path).args(self.args.how.arguments());
        variant.settings.iter().for_each(|setting| {
            command.arg("--set").arg(setting.to_string());
        });
        variant.given().iter().for_each(|given| {
            command.arg("--variant").arg(given);
        });
        command.envs(variant.variables.iter().map(|(name, value)| (name, value)));
        let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let ended = ended.with_context(|| format!("run {}: `{}` cannot be started", path.display(), name(&command)))?;
        if ended.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.lines().rfind(|line| line.starts_with("maestro: ")).or(said.lines().next_back());
        let why = last.map_or_else(|| ended.status.to_string(), |line| line.trim_start_matches("maestro: ").to_owned());
        let error = anyhow!("run {} ({}) failed: {why}", path.display(), described(variant));
        // Bad input is what the run itself calls so; whatever else ended it, the run failed.
        let code = ended.status.code().filter(|code| *code == i32::from(INPUT));
        Err(code
            .map_or_else(|| Failure::run(anyhow!("{error}")), |_| Failure { code: INPUT, error: anyhow!("{error}") }))
    }

    /// This program, by the launcher if there is one.
    fn command(&self) -> anyhow::Result<Command> {
        let this =
            std::env::current_exe().context("this program's own file cannot be found, to start it for each run")?;
        let mut words = self.args.launch.iter().flat_map(|launch| launch.split_whitespace());
        let Some(first) = words.next() else { return Ok(Command::new(this)) };
        let mut command = Command::new(first);
        command.args(words).arg(this);
        Ok(command)
    }

    fn print(&self, diff: &Diff) -> anyhow::Result<()> {
        let folders = NAMES.map(|name| self.folder.join(name).display().to_string());
        if self.args.how.json {
            let mut document = diff::document(diff, None)?;
            document["folders"] = json!(folders);
            return output::json(&document);
        }
        let mut text = diff.view().render(Format::Table);
        for (name, (variant, folder)) in ["Before", "After"].iter().zip(self.variants.iter().zip(&folders)) {
            text += &format!("{name}: {}, in {folder}\n", described(variant));
        }
        text += &format!("Compare otherwise: maestro diff {} --against {}\n", folders[0], folders[1]);
        output::print(&text)
    }
}

/// What a variant was given, for people.
fn described(variant: &Variant) -> String {
    let given = variant.given();
    if given.is_empty() { "everything as it is".to_owned() } else { given.join(" ") }
}

fn name(command: &Command) -> String {
    Path::new(command.get_program()).display().to_string()
}

/// A bar on standard error, and only if that is a terminal.
fn bar(runs: u32) -> ProgressBar {
    use std::io::IsTerminal;
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(runs.into());
    if let Ok(style) = ProgressStyle::with_template("run {msg} {bar:40} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_variables_and_settings() {
        let variant = Variant::read("NCCL_ALGO=Tree  axis.dp.max_ctas=4 X=").unwrap();
        let pairs: Vec<(&str, &str)> = variant.variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("NCCL_ALGO", "Tree"), ("X", "")]);
        assert_eq!(variant.given(), ["NCCL_ALGO=Tree", "X=", "axis.dp.max_ctas=4"]);
        assert_eq!(Variant::read(" ").unwrap(), Variant::default());
        for wrong in ["NCCL_ALGO", "1X=2", "axis.dp=4", "=3", "a-b=c"] {
            assert!(Variant::read(wrong).is_err(), "{wrong}");
        }
    }
}
