//! The text that nccl-tests prints, of one test or of several one after the other.

use super::{Found, Point, dtype, time_us, version};

/// What the lines so far say of the test that is running.
#[derive(Default)]
struct State {
    test: Option<super::Test>,
    /// Threads x GPUs of a process.
    of_process: usize,
    /// Rows "# Rank", each with its group: the ranks of all processes.
    groups: Vec<String>,
    /// Headings of the columns from the first time on.
    headings: Vec<String>,
}

/// Reads the text; `file` is the name of the file, which tells the test where the text does not, as before version 2.17.
pub(super) fn read(text: &str, file: &str) -> Result<Found, String> {
    let mut found = Found::default();
    let mut state = State { test: super::test(file), ..State::default() };
    let mut known = false;
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["#", "nccl-tests", "version", rest @ ..] => {
                found.tests = rest.first().map(|version| (*version).to_owned());
                let library = rest.iter().find_map(|word| word.strip_prefix("nccl-library=")?.parse().ok());
                found.nccl = library.map(version);
            }
            ["#", "Collective", "test", "starting:", program, ..] => {
                state = State { test: super::test(program), ..State::default() };
                if state.test.is_none() {
                    found.skipped = Some(format!("{program} tests nothing that blocks do"));
                }
            }
            ["#", "nThread", threads, "nGpus", gpus, ..] => {
                known = true;
                let count = |word: &str| word.parse().unwrap_or(0);
                state = State { test: state.test, of_process: count(threads) * count(gpus), ..State::default() };
            }
            ["#", "Rank", _, "Group", group, ..] => state.groups.push((*group).to_owned()),
            ["#", "Rank", ..] => state.groups.push(String::new()),
            ["#", "size", "count", "type", rest @ ..] => {
                let from = rest.iter().position(|word| matches!(*word, "time" | "cputime")).unwrap_or(rest.len());
                state.headings = rest[from..].iter().map(|word| (*word).to_owned()).collect();
            }
            [first, ..] if first.starts_with(|c: char| c.is_ascii_digit()) && !state.headings.is_empty() => {
                match points(&state, &words) {
                    Ok(points) => found.points.extend(points),
                    Err(why) => found.skipped = Some(format!("line {}: {why}", number + 1)),
                }
            }
            _ => {}
        }
    }
    if known || !found.points.is_empty() {
        Ok(found)
    } else {
        Err("not the text of nccl-tests, it has no line `# nThread`; give the output of its all_reduce_perf and its like, \
             or what -J wrote"
            .into())
    }
}

/// A row: size, count, type, then names, then as many numbers as there are headings, counted from the end: of the test out
/// of place, then in place.
fn points(state: &State, words: &[&str]) -> Result<Vec<Point>, String> {
    let test = state.test.ok_or("which test printed it is not said; name the file after it, as all_reduce_perf.txt")?;
    let mut headings = state.headings.as_slice();
    let mut words = words;
    if headings.last().is_some_and(|last| last == "timestamp") {
        // Its values are a date and a time.
        headings = &headings[..headings.len() - 1];
        words = &words[..words.len().saturating_sub(2)];
    }
    if headings.first().is_none_or(|first| first != "time") {
        return Err("its times are those of the host (-C)".into());
    }
    let first = words.len().checked_sub(headings.len()).filter(|first| *first >= 3).ok_or("too few columns")?;
    let dtype = dtype(words[2]).ok_or_else(|| format!("blocks have no element type `{}`", words[2]))?;
    let size_bytes = words[0].parse().map_err(|_| format!("`{}` is no size", words[0]))?;
    let groups = state.groups.iter().collect::<std::collections::BTreeSet<_>>().len().max(1);
    let ranks = if state.groups.is_empty() { state.of_process } else { state.groups.len() / groups };
    let times = headings.iter().zip(&words[first..]).filter(|(heading, _)| *heading == "time");
    let points: Vec<Point> = times
        .zip([false, true])
        .filter_map(|((_, word), in_place)| {
            Some(Point { test, dtype, ranks, size_bytes, in_place, time_us: time_us(word)? })
        })
        .collect();
    if points.is_empty() { Err(format!("`{}` is no time", words[first])) } else { Ok(points) }
}
