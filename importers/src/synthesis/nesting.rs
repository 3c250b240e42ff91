//! Which host ranges of a thread are around an instant. They nest: a range that begins inside another ends inside it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::capture::{Annotation, CommRecord, Timeline};

/// The annotations and communication records of a timeline, ready to be asked. Several passes ask.
pub(crate) struct HostRanges<'a> {
    timeline: &'a Timeline,
    annotations: Nesting,
    records: Nesting,
}

impl<'a> HostRanges<'a> {
    pub fn new(timeline: &'a Timeline) -> Self {
        Self {
            timeline,
            annotations: Nesting::new(timeline.annotations.iter().map(|a| (a.thread, a.start_ns, a.end_ns))),
            records: Nesting::new(timeline.records.iter().map(|r| (r.thread, r.start_ns, r.end_ns))),
        }
    }

    /// The annotations of `thread` around `at_ns`, the innermost first.
    pub fn annotations(&self, thread: i64, at_ns: i64) -> impl Iterator<Item = &'a Annotation> {
        let timeline = self.timeline;
        self.annotations.around(thread, at_ns).map(|index| &timeline.annotations[index])
    }

    /// Name of the innermost annotation of `thread` around `at_ns`, the communication library's (`nccl:`) apart.
    pub fn name(&self, thread: i64, at_ns: i64) -> Option<&'a Arc<str>> {
        self.annotations(thread, at_ns).map(|annotation| &annotation.name).find(|name| !name.starts_with("nccl:"))
    }

    /// The innermost communication record of `thread` around `at_ns`.
    pub fn record(&self, thread: i64, at_ns: i64) -> Option<&'a CommRecord> {
        self.records.around(thread, at_ns).next().map(|index| &self.timeline.records[index])
    }
}

/// Ranges of all threads.
struct Nesting {
    threads: HashMap<i64, Vec<Range>>,
}

/// One range, and the one around it.
#[derive(Clone, Copy, Debug)]
struct Range {
    start_ns: i64,
    end_ns: i64,
    /// Place of the range around it in its thread's list.
    parent: Option<usize>,
    /// Index into the list that the ranges were made of.
    index: usize,
}

impl Nesting {
    /// Ranges as (thread, start, end).
    fn new(ranges: impl Iterator<Item = (i64, i64, i64)>) -> Self {
        let mut threads: HashMap<i64, Vec<Range>> = HashMap::new();
        for (index, (thread, start_ns, end_ns)) in ranges.enumerate() {
            threads.entry(thread).or_default().push(Range { start_ns, end_ns, parent: None, index });
        }
        for ranges in threads.values_mut() {
            // Of ranges that begin together the longer is around the shorter.
            ranges.sort_by_key(|range| (range.start_ns, std::cmp::Reverse(range.end_ns), range.index));
            let mut around: Vec<usize> = Vec::new();
            for place in 0..ranges.len() {
                let start_ns = ranges[place].start_ns;
                while around.last().is_some_and(|outer| ranges[*outer].end_ns < start_ns) {
                    around.pop();
                }
                ranges[place].parent = around.last().copied();
                around.push(place);
            }
        }
        Self { threads }
    }

    /// Indices of the ranges of `thread` around `at_ns`, the innermost first.
    fn around(&self, thread: i64, at_ns: i64) -> impl Iterator<Item = usize> {
        let ranges = self.threads.get(&thread).map(Vec::as_slice).unwrap_or_default();
        let last = ranges.partition_point(|range| range.start_ns <= at_ns).checked_sub(1);
        std::iter::successors(last, |place| ranges[*place].parent)
            .map(|place| ranges[place])
            .filter(move |range| range.end_ns >= at_ns)
            .map(|range| range.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_comes_first_whatever_ended_before() {
        // A long range with many short ones inside, one of them with a child; another thread beside it.
        let mut ranges = vec![(1, 0, 1_000), (2, 0, 2_000)];
        ranges.extend((0..40).map(|n| (1, 10 * n, 10 * n + 5)));
        ranges.push((1, 502, 504));
        ranges.push((1, 500, 510));
        let nesting = Nesting::new(ranges.into_iter());
        let around = |thread, at| nesting.around(thread, at).collect::<Vec<_>>();
        assert_eq!(around(1, 503), [42, 43, 0]);
        assert_eq!(around(1, 800), [0]);
        assert_eq!(around(1, 393), [41, 0]);
        assert_eq!(around(2, 503), [1]);
        assert_eq!(around(1, 1_001), [0usize; 0]);
        assert_eq!(around(3, 5), [0usize; 0]);
    }
}
