//! Sizes of communications that a capture does not hold, from another capture of the same job or from a list.
//!
//! They are matched by operation, in the order of calls within a step: a capture without sizes mostly has no
//! communicators either. If a step makes another number of calls than are listed, nothing of that operation is taken, for
//! then the order says nothing; a single size is of all calls.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use maestro_pattern::{CollectiveKind, Dtype, Work};

use super::resolve::{Operation, Resolved};
use super::steps::Steps;
use super::{Import, Options, synthesise};
use crate::capture::Capture;
use crate::{Error, Notes, Reading, Result};

/// Sizes of calls, by operation, in their order in a step.
type Calls = BTreeMap<&'static str, Vec<(u64, Dtype)>>;

/// Sizes of the communications of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    of_rank: BTreeMap<u32, Calls>,
    /// Of ranks that are not listed.
    others: Calls,
}

impl Sizes {
    /// Reads a capture of the same job, or a list: lines such as `all_gather: [524352000, 402759680]`, in bytes as
    /// nccl-tests counts them.
    ///
    /// # Errors
    /// What is wrong with the capture or the list.
    pub fn read(path: &Path, notes: &mut Notes) -> Result<Self> {
        /// No list is longer.
        const LONGEST: u64 = 1 << 16;
        let short = fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= LONGEST);
        if let Some(text) = short.then(|| fs::read_to_string(path).ok()).flatten()
            && !text.trim_start().starts_with(['{', '['])
        {
            let bad = |(line, problem)| Error::SizeList { file: path.to_owned(), line, problem };
            return Self::of_text(&text).map_err(bad);
        }
        let capture = crate::read(&[path.to_owned()], &Reading::default(), notes)?;
        Ok(Self::of_import(&synthesise(&capture, &Options::default(), notes)?))
    }

    /// Those of the step that was imported.
    fn of_import(import: &Import) -> Self {
        let works: HashMap<&str, &Work> =
            import.pattern.blocks.iter().map(|block| (block.name.as_str(), &block.work)).collect();
        let mut sizes = Self::default();
        let mut measured: Vec<_> = import.measurements.iter().collect();
        measured.sort_by_key(|measurement| (measurement.rank, measurement.start_ns));
        for measurement in measured {
            let Some(Work::Collective(collective)) = works.get(&*measurement.block) else { continue };
            let Some(size) = measurement.size_bytes else { continue };
            let calls = sizes.of_rank.entry(measurement.rank).or_default();
            calls.entry(collective.kind.name()).or_default().push((size, collective.dtype));
        }
        sizes
    }

    /// Those of a list; else the line that is wrong, and how.
    fn of_text(text: &str) -> std::result::Result<Self, (usize, String)> {
        let mut sizes = Self::default();
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let bad = |problem: &str| (n + 1, format!("`{line}`: {problem}"));
            let (name, list) = line.split_once(':').ok_or_else(|| bad("expected is `operation: [size, ...]`"))?;
            let kind = CollectiveKind::from_name(name.trim()).ok_or_else(|| bad("no such operation"))?;
            let list = list.trim();
            let list = list.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(list);
            let sizes_of: Option<Vec<(u64, Dtype)>> =
                list.split(',').map(|size| Some((size.trim().parse().ok()?, Dtype::U8))).collect();
            sizes.others.insert(kind.name(), sizes_of.ok_or_else(|| bad("a size is a number of bytes"))?);
        }
        Ok(sizes)
    }

    fn of(&self, rank: u32, kind: CollectiveKind) -> Option<&[(u64, Dtype)]> {
        self.of_rank.get(&rank).unwrap_or(&self.others).get(kind.name()).map(Vec::as_slice)
    }
}

/// Gives communications without a size the one that `sizes` has; returns how many of the step `chosen` got one.
pub(crate) fn complete(
    capture: &Capture,
    steps: &[Steps],
    chosen: &str,
    resolved: &mut [Vec<Resolved>],
    sizes: &Sizes,
    notes: &mut Notes,
) -> usize {
    let mut given = 0;
    for (t, (steps, all)) in steps.iter().zip(resolved).enumerate() {
        let rank = capture.rank(t);
        let places: HashMap<usize, usize> = all.iter().enumerate().map(|(i, kernel)| (kernel.activity, i)).collect();
        for step in &steps.steps {
            let mut calls: BTreeMap<&'static str, (CollectiveKind, Vec<usize>)> = BTreeMap::new();
            for place in step.activities.iter().filter_map(|activity| places.get(activity)) {
                if let (Operation::Collective { collective, .. }, false) = (&all[*place].operation, all[*place].unknown)
                {
                    calls.entry(collective.kind.name()).or_insert((collective.kind, Vec::new())).1.push(*place);
                }
            }
            for (kind, mine) in calls.into_values() {
                let Some(known) = sizes.of(rank, kind) else { continue };
                if known.len() > 1 && known.len() != mine.len() {
                    notes.add("operations of which another number of sizes is known: left without", || {
                        let (name, calls, sizes) = (kind.name(), mine.len(), known.len());
                        format!("{name}: {calls} calls in step {} of rank {rank}, {sizes} sizes", step.name)
                    });
                    continue;
                }
                for (n, place) in mine.into_iter().enumerate() {
                    let Some((size, dtype)) = known.get(n).or(known.first()) else { continue };
                    if let Operation::Collective { collective, .. } = &mut all[place].operation
                        && collective.size.is_none()
                    {
                        (collective.size, collective.dtype) = (Some(*size), *dtype);
                        given += usize::from(&*step.name == chosen);
                    }
                }
            }
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_line_by_line() {
        let sizes = Sizes::of_text("# of one step\nall_gather: [10, 20]  # two\n\nreduce_scatter: 30\n").unwrap();
        assert_eq!(sizes.of(5, CollectiveKind::AllGather), Some(&[(10, Dtype::U8), (20, Dtype::U8)][..]));
        assert_eq!(sizes.of(5, CollectiveKind::ReduceScatter), Some(&[(30, Dtype::U8)][..]));
        assert_eq!(sizes.of(5, CollectiveKind::AllReduce), None);
        for (text, line) in [("all_gather [1]", 1), ("x: [1]", 1), ("\nall_gather: [1, big]", 2)] {
            assert_eq!(Sizes::of_text(text).unwrap_err().0, line, "{text}");
        }
    }
}
