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
    fn overlap_is_what_both_cover() {
        let a = Union::new([(0, 10), (20, 30), (40, 50)]);
        let b = Union::new([(5, 25), (28, 45)]);
        assert_eq!(a.overlap(&b), 5 + 5 + 2 + 5);
        assert_eq!(b.overlap(&a), 17);
        assert_eq!(a.overlap(&Union::default()), 0);
    }
}
