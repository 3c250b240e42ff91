//! The ranks of process groups whose lists were cut: more than thirty ranks are written as `[0, 1, ...]`.
//!
//! The header's configuration lists them whole. Without it, a record tells the first rank, the step to the next and how
//! many there are; that is only believed if the ranks that were written fit, for the step is taken from the first two.

use std::collections::HashMap;
use std::sync::Arc;

use maestro_pattern::MOST_RANKS;

use super::event::{Args, bare, integer};
use super::header::Header;
use crate::Notes;
use crate::capture::{Activity, CommFacts, CommRecord, ProcessGroup};

/// What is known of the ranks of groups, by the groups' names.
#[derive(Default)]
pub(super) struct Groups {
    /// Groups with a cut list, and their ranks if they are evenly spaced.
    cut: HashMap<Arc<str>, Option<Vec<u32>>>,
}

impl Groups {
    /// Looks at a record for what may be needed later.
    pub(super) fn take(&mut self, facts: &CommFacts, args: &Args<'_>) {
        let (None, Some(name)) = (&facts.ranks, &facts.group_name) else { return };
        let written = bare(args.ranks);
        if !written.contains("...") {
            return;
        }
        let ranks = spaced(written, integer(args.rank_start), integer(args.rank_stride), facts.group_size);
        let known = self.cut.entry(name.clone()).or_default();
        if known.is_none() {
            *known = ranks;
        }
    }

    /// Adds what was found behind this in the file.
    pub(super) fn append(&mut self, later: Self) {
        for (name, ranks) in later.cut {
            let known = self.cut.entry(name).or_default();
            if known.is_none() {
                *known = ranks;
            }
        }
    }

    /// Gives the facts of activities and records the ranks that their own lists lack.
    pub(super) fn settle<'a>(
        &self,
        header: &Header,
        activities: impl Iterator<Item = &'a mut Activity>,
        records: &mut [CommRecord],
        notes: &mut Notes,
    ) {
        if self.cut.is_empty() {
            return;
        }
        let configured =
            |name: &str| -> Option<&ProcessGroup> { header.groups.iter().find(|group| group.name == name) };
        let on_device = activities.filter_map(|activity| activity.comm.as_deref_mut());
        for facts in on_device.chain(records.iter_mut().map(|record| &mut record.facts)) {
            let (None, Some(name)) = (&facts.ranks, &facts.group_name) else { continue };
            let Some(spaced) = self.cut.get(name) else { continue };
            // A group without ranks in the header is of all ranks, which whoever asks knows.
            if let Some(group) = configured(name) {
                facts.ranks = Some(group.ranks.clone()).filter(|ranks| !ranks.is_empty());
                notes.add("cut lists of ranks, read from the header's process groups instead", || name.to_string());
            } else if let Some(ranks) = spaced {
                facts.ranks = Some(ranks.clone());
                notes.add("cut lists of ranks, taken from their first rank and the step between them", || {
                    format!("group {name}: {} ranks from {}", ranks.len(), ranks[0])
                });
            } else {
                notes.add("communications whose list of ranks is cut", || name.to_string());
            }
        }
    }
}

/// The ranks from `start` on in steps of `stride`, if the written ones, but for an ellipsis, are among them in place.
fn spaced(written: &str, start: Option<u32>, stride: Option<u32>, size: Option<u32>) -> Option<Vec<u32>> {
    let (start, stride, size) = (start?, stride.filter(|stride| *stride > 0)?, size?);
    if u64::from(size) > MOST_RANKS {
        return None;
    }
    let ranks: Vec<u32> = (0..size)
        .map(|i| start.checked_add(i.checked_mul(stride)?))
        .collect::<Option<_>>()
        .filter(|r: &Vec<u32>| !r.is_empty())?;
    let inside = written.trim_start_matches('[').trim_end_matches(']');
    let (head, tail) = inside.split_once("...")?;
    let numbers = |text: &str| -> Option<Vec<u32>> {
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(|item| item.parse().ok()).collect()
    };
    (ranks.starts_with(&numbers(head)?) && ranks.ends_with(&numbers(tail)?)).then_some(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_steps_are_believed_if_the_written_ranks_fit() {
        let every_fourth: Vec<u32> = (0..40).map(|i| 2 + 4 * i).collect();
        for written in ["[2, 6, 10, ...]", "[2, 6, ..., 158]", "[2, 6, 10...]"] {
            assert_eq!(spaced(written, Some(2), Some(4), Some(40)).as_ref(), Some(&every_fourth), "{written}");
        }
        // The third rank, or the last, is elsewhere: the step of the first two is none.
        for written in ["[2, 6, 11, ...]", "[2, 6, ..., 159]", "[2, x, ...]", "[2, 6]"] {
            assert_eq!(spaced(written, Some(2), Some(4), Some(40)), None, "{written}");
        }
        assert_eq!(spaced("[0, ...]", Some(0), Some(0), Some(40)), None);
        assert_eq!(spaced("[0, ...]", Some(0), Some(1), Some(u32::MAX)), None);
        assert_eq!(spaced("[0, ...]", Some(0), Some(1), None), None);
    }
}
