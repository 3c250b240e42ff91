//! Unions of time intervals: how long something ran, however much of it ran at once.

/// Half-open intervals, sorted and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Union(Vec<(i64, i64)>);

impl Union {
    /// The union of `intervals`, in any order, overlapping or not; empty ones vanish.
    pub fn new(intervals: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut all: Vec<(i64, i64)> = intervals.into_iter().filter(|(start, end)| end > start).collect();
        all.sort_unstable();
        let mut union: Vec<(i64, i64)> = Vec::with_capacity(all.len());
        for (start, end) in all {
            match union.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => union.push((start, end)),
            }
        }
        Self(union)
    }

    /// Total length.
    pub fn length(&self) -> i64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// Length of what both cover.
    pub fn overlap(&self, other: &Self) -> i64 {
        let (mut i, mut j, mut total) = (0, 0, 0);
        while let (Some(a), Some(b)) = (self.0.get(i), other.0.get(j)) {
            total += (a.1.min(b.1) - a.0.max(b.0)).max(0);
            if a.1 < b.1 {
                i += 1;
            } else {
                j += 1;
            }
        }
        total
    }
}

/// How long each of `intervals` ran while nothing of `cover` did, in the same units. Where several run at once, each
/// has an equal share of the time, so that the shares add up to the length of their union outside `cover`.
pub(crate) fn exposed_shares(intervals: &[(i64, i64)], cover: &Union) -> Vec<f64> {
    let mut points: Vec<i64> = intervals.iter().chain(&cover.0).flat_map(|(start, end)| [*start, *end]).collect();
    points.sort_unstable();
    points.dedup();
    let mut starts: Vec<usize> = (0..intervals.len()).filter(|i| intervals[*i].1 > intervals[*i].0).collect();
    starts.sort_by_key(|i| intervals[*i].0);
    let mut shares = vec![0.0; intervals.len()];
    let (mut running, mut next, mut covered): (Vec<usize>, usize, usize) = Default::default();
    for span in points.windows(2) {
        let (from, to) = (span[0], span[1]);
        running.retain(|i| intervals[*i].1 > from);
        while let Some(i) = starts.get(next).filter(|i| intervals[**i].0 <= from) {
            running.push(*i);
            next += 1;
        }
        while cover.0.get(covered).is_some_and(|(_, end)| *end <= from) {
            covered += 1;
        }
        if cover.0.get(covered).is_none_or(|(start, _)| *start >= to) {
            let share = (to - from) as f64 / running.len().max(1) as f64;
            running.iter().for_each(|i| shares[*i] += share);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_and_touching_intervals_merge() {
        let union = Union::new([(10, 20), (0, 5), (15, 30), (30, 40), (7, 7)]);
        assert_eq!(union, Union(vec![(0, 5), (10, 40)]));
        assert_eq!(union.length(), 35);
    }

    #[test]
    fn exposed_time_is_shared_by_what_runs_at_once() {
        let cover = Union::new([(1000, 1150)]);
        assert_eq!(exposed_shares(&[(1000, 1200), (1100, 1300)], &cover), [25.0, 125.0]);
        let nothing = Union::default();
        assert_eq!(exposed_shares(&[(0, 9), (0, 9), (3, 6), (5, 5)], &nothing), [4.0, 4.0, 1.0, 0.0]);
        assert_eq!(exposed_shares(&[(10, 20)], &Union::new([(0, 12), (15, 17), (19, 30)])), [5.0]);
    }

    #[test]
    fn overlap_is_what_both_cover() {
        let a = Union::new([(0, 10), (20, 30), (40, 50)]);
        let b = Union::new([(5, 25), (28, 45)]);
        assert_eq!(a.overlap(&b), 5 + 5 + 2 + 5);
        assert_eq!(b.overlap(&a), 17);
        assert_eq!(a.overlap(&Union::default()), 0);
    }
}
