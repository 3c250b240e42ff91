//! Which ranges of a thread are around an instant. Host ranges nest: a range that begins inside another ends inside it.

use std::collections::HashMap;

use crate::capture::{Annotation, CommRecord};

/// The ranges of all threads, ready to be asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nesting {
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
    /// The annotations of a timeline.
    pub fn of_annotations(annotations: &[Annotation]) -> Self {
        Self::new(annotations.iter().map(|a| (a.thread, a.start_ns, a.end_ns)))
    }

    /// The communication records of a timeline.
    pub fn of_records(records: &[CommRecord]) -> Self {
        Self::new(records.iter().map(|r| (r.thread, r.start_ns, r.end_ns)))
    }

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
    pub fn around(&self, thread: i64, at_ns: i64) -> impl Iterator<Item = usize> {
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
