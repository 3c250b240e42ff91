//! Host ranges that mark steps: taken out of the other annotations, by a rule for their names.
//!
//! Importers know what usual training loops call them; [`mark_steps`] is for loops that call them otherwise.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::capture::{Annotation, Capture, StepMark};
use crate::{Error, Result, source};

/// How many names an error lists.
const LISTED: usize = 12;

/// Marks the steps of every rank anew: by the host ranges whose name is `pattern`, in which `*` is any text and `?` any
/// one character.
///
/// # Errors
/// A rank without such a range.
pub fn mark_steps(capture: &mut Capture, pattern: &str) -> Result<()> {
    for t in 0..capture.timelines.len() {
        let rank = capture.rank(t);
        let timeline = &mut capture.timelines[t];
        let former = std::mem::take(&mut timeline.steps).into_iter().map(|mark| Annotation {
            name: mark.name,
            thread: mark.thread,
            start_ns: mark.start_ns,
            end_ns: mark.end_ns,
        });
        timeline.annotations.extend(former);
        timeline.annotations.sort_by_key(|range| range.start_ns);
        timeline.steps = take(&mut timeline.annotations, |name| source::matches(pattern, name));
        if timeline.steps.is_empty() {
            let names: BTreeSet<&str> = timeline.annotations.iter().map(|range| &*range.name).collect();
            let known = names.into_iter().take(LISTED).map(str::to_owned).collect();
            return Err(Error::NoSuchMark { pattern: pattern.to_owned(), rank, known });
        }
    }
    Ok(())
}

/// Takes the marks of steps out of `ranges`, those of a `marked` name: of one thread, the one with most of them, and of
/// nested ones the outermost.
pub(crate) fn take(ranges: &mut Vec<Annotation>, marked: impl Fn(&str) -> bool) -> Vec<StepMark> {
    let mut threads: Vec<i64> = ranges.iter().filter(|range| marked(&range.name)).map(|range| range.thread).collect();
    threads.sort_unstable();
    // Of equal ones the first.
    let mut most = None;
    for group in threads.chunk_by(|a, b| a == b) {
        if most.is_none_or(|(count, _)| group.len() > count) {
            most = Some((group.len(), group[0]));
        }
    }
    let Some((_, thread)) = most else { return Vec::new() };
    let mine = ranges.extract_if(.., |range| range.thread == thread && marked(&range.name));
    let mut marks: Vec<StepMark> = mine
        .map(|range| StepMark {
            name: range.name,
            thread: range.thread,
            start_ns: range.start_ns,
            end_ns: range.end_ns,
        })
        .collect();
    marks.sort_by_key(|mark| (mark.start_ns, Reverse(mark.end_ns)));
    let mut end_ns = i64::MIN;
    marks.retain(|mark| {
        let outer = mark.start_ns >= end_ns;
        if outer {
            end_ns = mark.end_ns;
        }
        outer
    });
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Timeline;

    fn range(name: &str, thread: i64, start_ns: i64, end_ns: i64) -> Annotation {
        Annotation { name: name.into(), thread, start_ns, end_ns }
    }

    fn names(marks: &[StepMark]) -> Vec<&str> {
        marks.iter().map(|mark| &*mark.name).collect()
    }

    #[test]
    fn marks_are_the_outermost_of_the_thread_with_most() {
        let mut ranges = vec![
            range("iteration 1", 1, 0, 100),
            range("step 1", 1, 10, 50),
            range("forward", 1, 20, 30),
            range("iteration 2", 1, 100, 200),
            range("step 7", 2, 0, 500),
        ];
        let marks = take(&mut ranges, |name| name != "forward");
        assert_eq!(names(&marks), ["iteration 1", "iteration 2"]);
        let left: Vec<&str> = ranges.iter().map(|range| &*range.name).collect();
        assert_eq!(left, ["forward", "step 7"]);
    }

    #[test]
    fn a_users_pattern_replaces_the_marks_that_were_found() {
        let timeline = Timeline {
            annotations: vec![range("epoch_a", 1, 100, 200), range("epoch_b", 1, 200, 300)],
            steps: take(&mut vec![range("step 1", 1, 120, 180)], |_| true),
            ..Timeline::default()
        };
        let mut capture = Capture { timelines: vec![timeline], ..Capture::default() };
        mark_steps(&mut capture, "epoch_?").unwrap();
        assert_eq!(names(&capture.timelines[0].steps), ["epoch_a", "epoch_b"]);
        assert_eq!(&*capture.timelines[0].annotations[0].name, "step 1");
        let told = mark_steps(&mut capture, "batch *").unwrap_err().to_string();
        assert!(told.contains("batch *") && told.contains("epoch_b"), "{told}");
    }
}
