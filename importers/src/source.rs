//! From paths to a [`Capture`]: which files are meant, who reads them, which rank each is.
//!
//! Formats are the importers' matter; this only asks them.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::capture::{Capture, Timeline};
use crate::execution::{self, ExecutionTrace};
use crate::input::{Head, Verdict};
use crate::schedule::schedule;
use crate::{Error, IMPORTERS, Importer, Notes, Reading, Result, nsight};

/// Longest number in a file name that is taken for a rank; longer ones are times.
const RANK_DIGITS: usize = 6;

/// Reads a capture from files, folders and patterns.
///
/// Of a folder all captures directly inside are read; other files, captures without any device work among them, are
/// noted. `*` and `?` in the last part of a path match as in a shell, for those who quote them. Files are read in
/// parallel; the result does not depend on it.
///
/// # Errors
/// The first file, in the order given, that is missing, broken or no capture; a folder without captures; two files of
/// one rank.
pub fn read(paths: &[PathBuf], reading: &Reading, notes: &mut Notes) -> Result<Capture> {
    if paths.is_empty() {
        return Err(Error::NoPath);
    }
    let mut files = Vec::new();
    for path in paths {
        find(path, &mut files)?;
    }
    // Many files keep all threads busy with one each; a few share them.
    let threads = rayon::current_num_threads();
    let shared = threads > 1 && files.len() < 2 * threads;
    let helpers = if shared { threads.div_ceil(files.len().max(1)) } else { 0 };
    let reading = Reading { helpers, ..*reading };
    let outcomes: Vec<(Result<Outcome>, Notes)> = files
        .par_iter()
        .map(|found| {
            let mut notes = Notes::default();
            (found.read(&reading, &mut notes), notes)
        })
        .collect();
    let mut capture = Capture::default();
    let mut executions = Vec::new();
    let mut folders: BTreeMap<&Path, Seen> = BTreeMap::new();
    for (found, (outcome, its_notes)) in files.iter().zip(outcomes) {
        notes.merge(its_notes);
        let outcome = outcome?;
        let seen = found.folder.as_deref().map(|folder| folders.entry(folder).or_default());
        if let Some(part) = captured(outcome, seen) {
            if let Some(execution) = part.execution {
                executions.push(execution);
                continue;
            }
            if capture.files.is_empty() {
                capture.format = part.format;
            }
            capture.files.push(found.file.clone());
            capture.timelines.extend(part.timelines);
        }
    }
    if let Some((folder, Seen { files, almost, .. })) = folders.into_iter().find(|(_, seen)| seen.captures == 0) {
        return Err(almost.unwrap_or_else(|| Error::NoTraces { folder: folder.to_owned(), files, formats: formats() }));
    }
    if let Some(execution) = executions.first().filter(|_| capture.files.is_empty()) {
        return Err(Error::ExecutionTraceAlone { file: execution.file.clone() });
    }
    distinct(&capture.timelines)?;
    nsight::ranks(&mut capture.timelines, notes);
    number(&mut capture.timelines, notes)?;
    nsight::join(&mut capture.timelines, notes);
    schedule(&mut capture.timelines, notes);
    execution::join(&executions, &mut capture.timelines, notes);
    Ok(capture)
}

/// A file to read.
struct Found {
    file: PathBuf,
    /// The folder that it was found in, unless it was named itself.
    folder: Option<PathBuf>,
}

/// What one file gave.
struct Part {
    format: &'static str,
    timelines: Vec<Timeline>,
    /// Execution traces are no captures, but complete those they are given beside.
    execution: Option<ExecutionTrace>,
}

/// What became of a file.
enum Outcome {
    Capture(Part),
    /// It lies in a folder and is nothing of ours.
    Other,
    /// It lies in a folder and is of a format that is read, but holds nothing that could be; why.
    Almost(Error),
}

/// What was seen of a folder.
#[derive(Default)]
struct Seen {
    files: usize,
    captures: usize,
    /// The first that would have been a capture.
    almost: Option<Error>,
}

/// What a file gave, if anything; counts it for its folder.
fn captured(outcome: Outcome, folder: Option<&mut Seen>) -> Option<Part> {
    let (part, why) = match outcome {
        Outcome::Capture(part) => (Some(part), None),
        Outcome::Other => (None, None),
        Outcome::Almost(why) => (None, Some(why)),
    };
    if let Some(folder) = folder {
        folder.files += 1;
        folder.captures += usize::from(part.is_some());
        folder.almost = folder.almost.take().or(why);
    }
    part
}

impl Found {
    /// Reads the file.
    fn read(&self, reading: &Reading, notes: &mut Notes) -> Result<Outcome> {
        let outcome = match self.part(reading, notes) {
            Ok(part) => return Ok(Outcome::Capture(part)),
            Err(error) if self.folder.is_none() => return Err(error),
            // Beside captures of devices there may lie whatever, the profile of a process without a device included.
            Err(Error::Unrecognised { .. } | Error::Shape { .. } | Error::Empty { .. }) => Outcome::Other,
            Err(
                why @ (Error::NoActivities { .. }
                | Error::NoDeviceNodes { .. }
                | Error::NoNsight { .. }
                | Error::NeedsNsys { .. }),
            ) => Outcome::Almost(why),
            Err(error) => return Err(error),
        };
        notes.add("files in folders that are no captures", || self.file.display().to_string());
        Ok(outcome)
    }

    fn part(&self, reading: &Reading, notes: &mut Notes) -> Result<Part> {
        let head = Head::open(&self.file)?;
        if execution::recognises(&head) {
            let execution = Some(execution::read(&self.file, reading.strict, notes)?);
            return Ok(Part { format: "", timelines: Vec::new(), execution });
        }
        let importer = recognise(&self.file, &head)?;
        Ok(Part { format: importer.name(), timelines: importer.read(&self.file, reading, notes)?, execution: None })
    }
}

/// Who reads `file`: the first importer that is sure, else the first that is not averse.
fn recognise(file: &Path, head: &Head) -> Result<&'static dyn Importer> {
    let who = |wanted| IMPORTERS.iter().copied().find(|importer| importer.recognise(head) == wanted);
    who(Verdict::Yes)
        .or_else(|| who(Verdict::Maybe))
        .ok_or_else(|| Error::Unrecognised { file: file.to_owned(), formats: formats() })
}

/// The formats that can be read, for an error.
pub(crate) fn formats() -> String {
    let formats: Vec<String> =
        IMPORTERS.iter().map(|importer| format!("{}: {}", importer.name(), importer.about())).collect();
    formats.join("; ")
}

/// Adds the files that `path` means.
fn find(path: &Path, files: &mut Vec<Found>) -> Result<()> {
    let refused = |source: io::Error| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Error::Missing { file: path.to_owned() },
        _ => Error::Unreadable { file: path.to_owned(), source },
    };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            let inside = entries(path).map_err(refused)?;
            let before = files.len();
            files.extend(
                inside
                    .into_iter()
                    .filter(|file| file.is_file())
                    .map(|file| Found { file, folder: Some(path.to_owned()) }),
            );
            if files.len() == before {
                return Err(Error::NoTraces { folder: path.to_owned(), files: 0, formats: formats() });
            }
            Ok(())
        }
        Ok(_) => {
            files.push(Found { file: path.to_owned(), folder: None });
            Ok(())
        }
        Err(error) => match path.file_name().and_then(|name| name.to_str()) {
            Some(pattern) if error.kind() == ErrorKind::NotFound && pattern.contains(['*', '?']) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let mut matching = entries(folder).map_err(refused)?;
                matching
                    .retain(|entry| entry.file_name().is_some_and(|name| matches(pattern, &name.to_string_lossy())));
                if matching.is_empty() {
                    return Err(Error::NoMatch { pattern: path.to_owned() });
                }
                matching.iter().try_for_each(|entry| find(entry, files))
            }
            _ => Err(refused(error)),
        },
    }
}

/// What is directly inside `folder` and neither hidden nor a page about its neighbours (Markdown), sorted by name.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with('.') && !name.ends_with(".md") {
            entries.push(entry.path());
        }
    }
    entries.sort();
    Ok(entries)
}

/// Whether `name` matches `pattern`, in which `*` is any text and `?` any one character.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where to go on if what follows the last star does not match: one character further into the name.
    let mut retry = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                p += 1;
                retry = Some((p, n));
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match &mut retry {
                Some((after_star, from)) => {
                    *from += 1;
                    (p, n) = (*after_star, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Refuses files that hold the same recording in different forms: their ranks would count twice. Where files tell their
/// ranks, by what was recorded or by their names, those decide.
fn distinct(timelines: &[Timeline]) -> Result<()> {
    /// Fewer activities may be alike by chance.
    const FEWEST: usize = 16;
    let mut seen = HashMap::new();
    let named = |file: &Path| file.file_name().and_then(|name| rank_in_name(&name.to_string_lossy())).is_some();
    let nameless = |timeline: &&Timeline| timeline.rank.is_none() && !named(&timeline.file);
    for timeline in timelines.iter().filter(nameless).filter(|timeline| timeline.activities.len() >= FEWEST) {
        let (Some(process), Some(first)) = (timeline.process, timeline.activities.first()) else { continue };
        let last = timeline.activities.last().map(|last| last.start_ns);
        let key = (process, timeline.device, timeline.activities.len(), first.start_ns, last);
        let file: &PathBuf = seen.entry(key).or_insert(&timeline.file);
        if *file != timeline.file {
            return Err(Error::SameRecording { process, first: file.clone(), second: timeline.file.clone() });
        }
    }
    Ok(())
}

/// Gives every timeline a rank of its own and sorts by it: the recorded rank, else the one in the file's name, else the
/// next free one.
fn number(timelines: &mut [Timeline], notes: &mut Notes) -> Result<()> {
    let of_file = |timelines: &[Timeline], file: &Path| timelines.iter().filter(|other| other.file == file).count();
    for index in 0..timelines.len() {
        let timeline = &timelines[index];
        // A name cannot tell the devices of one file apart.
        if timeline.rank.is_some() || of_file(timelines, &timeline.file) > 1 {
            continue;
        }
        if let Some(rank) = timeline.file.file_name().and_then(|name| rank_in_name(&name.to_string_lossy())) {
            notes.add("ranks taken from the file's name", || format!("rank {rank}: {}", timeline.file.display()));
            timelines[index].rank = Some(rank);
        }
    }
    let mut taken: BTreeMap<u32, PathBuf> = BTreeMap::new();
    for timeline in timelines.iter() {
        let Some(rank) = timeline.rank else { continue };
        if let Some(first) = taken.insert(rank, timeline.file.clone()) {
            return Err(Error::SameRank { rank, first, second: timeline.file.clone() });
        }
    }
    let mut free = (0..=u32::MAX).filter(|rank| !taken.contains_key(rank));
    for index in 0..timelines.len() {
        if timelines[index].rank.is_some() {
            continue;
        }
        let rank = free.next();
        let kind = match of_file(timelines, &timelines[index].file) {
            1 => "ranks given by the order of the files",
            _ => "ranks given by the order of the devices in a file",
        };
        let timeline = &mut timelines[index];
        timeline.rank = rank;
        notes.add(kind, || {
            format!("rank {}: {}, device {}", rank.unwrap_or_default(), timeline.file.display(), timeline.device)
        });
    }
    timelines.sort_by_key(|timeline| timeline.rank);
    Ok(())
}

/// The rank that a file's name tells: `rank3`, `rank_3`, `rank-3`, or a number alone between dots.
pub(crate) fn rank_in_name(name: &str) -> Option<u32> {
    let lower = name.to_ascii_lowercase();
    let after_word = lower.match_indices("rank").find_map(|(at, word)| {
        let rest = &lower[at + word.len()..];
        let rest = rest.strip_prefix(['_', '-']).unwrap_or(rest);
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        number_of(&rest[..digits])
    });
    let mut parts: Vec<&str> = lower.split('.').skip(1).collect();
    parts.pop();
    after_word.or_else(|| parts.into_iter().find_map(number_of))
}

fn number_of(digits: &str) -> Option<u32> {
    let short = !digits.is_empty() && digits.len() <= RANK_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| short)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace of one kernel, of `rank` if it says so.
    fn trace(rank: Option<u32>) -> String {
        let header = rank.map_or(String::new(), |rank| format!(r#""distributedInfo": {{"rank": {rank}}}, "#));
        format!(r#"{{{header}"traceEvents": [{{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}}]}}"#)
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        folder
    }

    fn ranks(capture: &Capture) -> Vec<(u32, String)> {
        let name = |timeline: &Timeline| timeline.file.file_name().unwrap().to_string_lossy().into_owned();
        capture.timelines.iter().map(|timeline| (timeline.rank.unwrap(), name(timeline))).collect()
    }

    fn kinds(notes: &Notes) -> Vec<(&'static str, u64)> {
        notes.iter().map(|(kind, note)| (kind, note.count)).collect()
    }

    #[test]
    fn a_folder_gives_its_captures_by_rank() {
        let folder = folder(&[
            ("a.json", &trace(Some(1))),
            ("b.weird", &trace(Some(0))),
            ("README", "not a trace"),
            ("run.json", "{}"),
            ("empty.json", ""),
            ("host_only.json", r#"{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}]}"#),
            ("list.json", r#"[{"a": 1}]"#),
            (".hidden", &trace(Some(1))),
            ("README.md", "about these"),
        ]);
        fs::create_dir(folder.path().join("inner")).unwrap();
        let mut notes = Notes::default();
        let capture = read(&[folder.path().to_owned()], &Reading::default(), &mut notes).unwrap();
        assert_eq!(ranks(&capture), [(0, "b.weird".to_owned()), (1, "a.json".to_owned())]);
        assert_eq!((capture.format, capture.files.len()), ("kineto", 2));
        assert_eq!(kinds(&notes), [("files in folders that are no captures", 5)]);
    }

    #[test]
    fn a_broken_capture_in_a_folder_is_an_error() {
        let folder = folder(&[("a.json", &trace(Some(0))), ("b.json", &trace(Some(1))[..60])]);
        for strict in [true, false] {
            let reading = Reading { strict, helpers: 0 };
            let error = read(&[folder.path().to_owned()], &reading, &mut Notes::default()).unwrap_err();
            assert!(matches!(error, Error::Truncated { byte: 60, .. }), "{error}");
        }
    }

    #[test]
    fn a_folder_without_captures_is_an_error() {
        for files in [&[][..], &[("run.json", "{}"), ("notes.txt", "x")]] {
            let folder = folder(files);
            match read(&[folder.path().to_owned()], &Reading::default(), &mut Notes::default()) {
                Err(Error::NoTraces { files: seen, .. }) => assert_eq!(seen, files.len()),
                other => panic!("{other:?}"),
            }
        }
        // Where nothing but captures of hosts lies, that is what is wrong.
        let host = r#"{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}]}"#;
        let folder = folder(&[("run.json", "{}"), ("rank0.json", host), ("rank1.json", host)]);
        let error = read(&[folder.path().to_owned()], &Reading::default(), &mut Notes::default()).unwrap_err();
        assert!(matches!(error, Error::NoActivities { .. }) && error.to_string().contains("rank0.json"), "{error}");
    }

    #[test]
    fn a_named_file_must_be_a_capture() {
        let folder = folder(&[("run.json", "{}"), ("notes.txt", "x"), ("empty", "")]);
        let error =
            |name: &str| read(&[folder.path().join(name)], &Reading::default(), &mut Notes::default()).unwrap_err();
        assert!(matches!(error("run.json"), Error::Shape { .. }));
        assert!(matches!(error("notes.txt"), Error::Unrecognised { .. }));
        assert!(matches!(error("empty"), Error::Empty { .. }));
        assert!(matches!(error("missing"), Error::Missing { .. }));
        assert!(matches!(error("empty/missing"), Error::Missing { .. }));
        assert!(matches!(read(&[], &Reading::default(), &mut Notes::default()), Err(Error::NoPath)));
    }

    #[test]
    fn patterns_match_in_the_last_part() {
        let folder = folder(&[("a0.json", &trace(Some(0))), ("a1.json", &trace(Some(1))), ("b.json", "{}")]);
        let capture = read(&[folder.path().join("a?.js*")], &Reading::default(), &mut Notes::default()).unwrap();
        assert_eq!(capture.timelines.len(), 2);
        let error = read(&[folder.path().join("c*")], &Reading::default(), &mut Notes::default()).unwrap_err();
        assert!(matches!(error, Error::NoMatch { .. }));
    }

    #[test]
    fn stars_and_marks_match_as_in_a_shell() {
        for (pattern, name) in
            [("*", ""), ("*", "abc"), ("a*c", "abbc"), ("a*b*c", "axbxbxc"), ("?", "µ"), ("**", "x"), ("*aab", "aaaab")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("?", ""), ("a*c", "abcd"), ("", "a"), ("a?", "a"), ("*b", "abc")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn two_files_of_one_rank_are_refused_by_name() {
        let folder = folder(&[("a.json", &trace(Some(3))), ("b.json", &trace(Some(3)))]);
        let error =
            read(&[folder.path().to_owned()], &Reading::default(), &mut Notes::default()).unwrap_err().to_string();
        assert!(error.contains("a.json") && error.contains("b.json") && error.contains("rank 3"), "{error}");
    }

    #[test]
    fn ranks_come_from_names_and_then_from_order() {
        let folder = folder(&[
            ("a.json", &trace(None)),
            ("b.json", &trace(None)),
            ("c_rank_1.json", &trace(None)),
            ("d.json", &trace(Some(0))),
        ]);
        let mut notes = Notes::default();
        let capture = read(&[folder.path().to_owned()], &Reading::default(), &mut notes).unwrap();
        let expected = [(0, "d.json"), (1, "c_rank_1.json"), (2, "a.json"), (3, "b.json")];
        assert_eq!(ranks(&capture), expected.map(|(rank, name)| (rank, name.to_owned())));
        assert_eq!(
            kinds(&notes),
            [("ranks given by the order of the files", 2), ("ranks taken from the file's name", 1)]
        );
    }

    #[test]
    fn ranks_in_names_are_told_from_times() {
        for (name, rank) in [
            ("fsdp_rank12.json.gz", Some(12)),
            ("trace_rank_3.json", Some(3)),
            ("RANK-7", Some(7)),
            ("host.5.json", Some(5)),
            ("worker0.1694128201545.pt.trace.json", None),
            ("ranking.json", None),
            ("frank.2.json", Some(2)),
            ("rank9999999.json", None),
            ("trace.json.gz", None),
            ("7.json", None),
        ] {
            assert_eq!(rank_in_name(name), rank, "{name}");
        }
    }
}
