//! The 99th percentile, for bootstraps: values of which only the largest matter.

/// Fewest values of which a 99th percentile is not just the largest.
const FEWEST: usize = 100;

/// Values with the iterations in which they were measured, largest first.
#[derive(Debug)]
pub(crate) struct Tail {
    values: Vec<(u64, u32)>,
    iterations: usize,
}

impl Tail {
    /// Of (value, iteration); `None` of fewer than 100, as in the table of blocks.
    pub(crate) fn new(mut values: Vec<(u64, u32)>) -> Option<Self> {
        if values.len() < FEWEST {
            return None;
        }
        let mut known: Vec<u32> = values.iter().map(|(_, iteration)| *iteration).collect();
        known.sort_unstable();
        known.dedup();
        for (_, iteration) in &mut values {
            *iteration = known.partition_point(|one| *one < *iteration) as u32;
        }
        values.sort_unstable_by(|a, b| b.cmp(a));
        Some(Self { values, iterations: known.len() })
    }

    pub(crate) fn iterations(&self) -> usize {
        self.iterations
    }

    /// The nearest rank: the smallest value that at least 99 % of all do not exceed.
    pub(crate) fn value(&self) -> f64 {
        self.weighted(&vec![1; self.iterations]).unwrap_or(f64::NAN)
    }

    /// The same with every value counted as often as `weights` says for its iteration; `None` if all are 0.
    pub(crate) fn weighted(&self, weights: &[u32]) -> Option<f64> {
        let weight = |iteration: u32| u64::from(weights[iteration as usize]);
        let total: u64 = self.values.iter().map(|(_, iteration)| weight(*iteration)).sum();
        // As many may be larger. Whole numbers, since 0.99 is none that a float can hold.
        let larger = total - (total * 99).div_ceil(100);
        let mut seen = 0;
        self.values.iter().find_map(|(value, iteration)| {
            seen += weight(*iteration);
            (seen > larger).then_some(*value as f64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_rank_of_a_hundred_and_of_many() {
        let up_to = |n: u64| Tail::new((1..=n).map(|value| (value, (value % 10) as u32)).collect());
        assert_eq!(up_to(100).unwrap().value(), 99.0);
        assert_eq!(up_to(101).unwrap().value(), 100.0);
        assert_eq!(up_to(1000).unwrap().value(), 990.0);
        assert!(up_to(99).is_none());
    }

    #[test]
    fn weights_repeat_iterations() {
        // Iterations 0 and 7 of a hundred values each; the second alone counts, twice.
        let tail = Tail::new((0..200).map(|i| (i, if i < 100 { 0 } else { 7 })).collect()).unwrap();
        assert_eq!((tail.iterations(), tail.weighted(&[0, 2])), (2, Some(198.0)));
        assert_eq!(tail.weighted(&[2, 0]), Some(98.0));
        assert_eq!(tail.weighted(&[0, 0]), None);
    }
}
