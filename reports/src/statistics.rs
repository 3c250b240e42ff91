//! The statistics that reports share: the median, and the ratio of two medians with its interval.
//!
//! Executions inside an iteration are correlated: they share the state of the machine and wait for each other. So the
//! bootstrap does not draw executions but whole iterations, with everything that was measured in them (a cluster
//! bootstrap), for each side by itself. It is seeded: the same measurements give the same interval.

#[cfg(feature = "tables")]
use statrs::distribution::{Binomial, DiscreteCDF};

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2_000;
/// Fewest iterations a side for an interval.
const FEWEST_ITERATIONS: usize = 3;
/// Seed of every bootstrap, so that a report is reproducible.
const SEED: u64 = 0x006d_6165_7374_726f;
/// Cells of the index into a sample, at least and at most; in between as many as keep a cell at [`CELL`] values.
const CELLS: (usize, usize) = (64, 1024);
/// Values of a cell that are walked for nothing.
const CELL: usize = 256;
/// Most things that a bootstrap draws from. Of more iterations, neighbours are drawn together: what is near in time is
/// alike, so that loses nothing, and the cost no longer grows with the run.
const BATCHES: usize = 200;

/// The median: the middle value, or the mean of the two middle ones. `None` of nothing. Sorts `values`.
pub(crate) fn median(values: &mut [u64]) -> Option<f64> {
    values.sort_unstable();
    middle(values)
}

/// The median of values in ascending order.
pub(crate) fn middle(sorted: &[u64]) -> Option<f64> {
    let n = sorted.len();
    (n > 0).then(|| (sorted[(n - 1) / 2] as f64 + sorted[n / 2] as f64) / 2.0)
}

/// The two of `n` values in ascending order, by index, between which the median of what they were drawn from lies in at
/// least 95 % of cases, whatever its distribution: the closest such pair that is as far from both ends. `None` of fewer than
/// six, of which not even the ends enclose it so often.
///
/// A value lies below the median with chance 1/2, so how many do is binomial; David and Nagaraja, Order Statistics, 7.1.
#[cfg(feature = "tables")]
pub(crate) fn median_interval(n: usize) -> Option<(usize, usize)> {
    let below_the_median = Binomial::new(0.5, n as u64).ok()?;
    let low = (0..n / 2).take_while(|below| below_the_median.cdf(*below as u64) <= 0.025).last()?;
    Some((low, n - 1 - low))
}

/// Values with the iterations in which they were measured.
///
/// Sorted once; a resample is then one weight per iteration, and its median is found without sorting again: the weight
/// below each of some places of the sorted values is a sum over iterations, and only the cell between two is walked.
#[derive(Debug)]
pub(crate) struct Sample {
    /// Ascending.
    values: Vec<u64>,
    /// Per value: its iteration, counted from 0 without gaps; of more than [`BATCHES`] iterations, their batch.
    iteration_of: Vec<u32>,
    /// How many of these there are.
    iterations: usize,
    /// Values a cell.
    cell: usize,
    /// Per cell boundary, per iteration: how many of its values are below.
    below: Vec<u32>,
}

impl Sample {
    /// A sample of (value, iteration) in any order; iterations may be any numbers.
    pub(crate) fn new(mut observed: Vec<(u64, u32)>) -> Self {
        observed.sort_unstable();
        let places = Places::of(observed.iter().map(|(_, iteration)| *iteration));
        let iterations = places.count.min(BATCHES);
        let batch = |place: usize| (place * iterations / places.count) as u32;
        let iteration_of: Vec<u32> = observed.iter().map(|(_, number)| batch(places.of_number(*number))).collect();

        let cells = (observed.len() / CELL).clamp(CELLS.0, CELLS.1);
        let cell = observed.len().div_ceil(cells).max(1);
        let mut counts = vec![0; iterations];
        let mut below = counts.clone();
        for members in iteration_of.chunks(cell) {
            members.iter().for_each(|iteration| counts[*iteration as usize] += 1);
            below.extend_from_slice(&counts);
        }
        let values = observed.into_iter().map(|(value, _)| value).collect();
        Self { values, iteration_of, iterations, cell, below }
    }

    /// The values, ascending.
    #[cfg(feature = "tables")]
    pub(crate) fn values(&self) -> &[u64] {
        &self.values
    }

    /// The median of all values.
    pub(crate) fn median(&self) -> Option<f64> {
        middle(&self.values)
    }

    /// The median with every value counted as often as `weights` says for its iteration. `None` if all are 0.
    pub(crate) fn weighted_median(&self, weights: &[u32]) -> Option<f64> {
        let total = self.weight_below(self.boundaries() - 1, weights);
        let (lower_place, upper_place) = (total.checked_sub(1)? / 2, total / 2);
        let (first, mut seen) = self.cell_of(lower_place, weights);
        let rest = self.values[first..].iter().zip(&self.iteration_of[first..]);
        let mut rest = rest.map(|(value, iteration)| {
            seen += u64::from(weights[*iteration as usize]);
            (*value, seen)
        });
        let (lower, reached) = rest.find(|(_, seen)| *seen > lower_place)?;
        let upper = if reached > upper_place { lower } else { rest.find(|(_, seen)| *seen > upper_place)?.0 };
        Some((lower as f64 + upper as f64) / 2.0)
    }

    /// How many iterations its values are of.
    pub(crate) fn iterations(&self) -> usize {
        self.iterations
    }

    fn boundaries(&self) -> usize {
        self.below.len() / self.iterations
    }

    /// Weight of all values below a boundary.
    fn weight_below(&self, boundary: usize, weights: &[u32]) -> u64 {
        let counts = &self.below[boundary * self.iterations..][..self.iterations];
        counts.iter().zip(weights).map(|(count, weight)| u64::from(*count) * u64::from(*weight)).sum()
    }

    /// The first value of the cell that holds `place` of the weighted values in ascending order, and the weight below.
    fn cell_of(&self, place: u64, weights: &[u32]) -> (usize, u64) {
        let (mut low, mut high) = (0, self.boundaries() - 1);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.weight_below(middle, weights) <= place { low = middle } else { high = middle }
        }
        (low * self.cell, self.weight_below(low, weights))
    }
}

/// The places of numbers in the order of those that occur.
struct Places {
    /// Ascending, where numbers lie far apart.
    known: Vec<u32>,
    /// Per number its place, where they are dense: looked up instead of searched for.
    dense: Vec<u32>,
    count: usize,
}

impl Places {
    fn of(numbers: impl Iterator<Item = u32> + Clone) -> Self {
        let total = numbers.clone().count();
        let reach = numbers.clone().max().map_or(0, |most| most as usize + 1);
        if reach > 4 * total + 1024 {
            let mut known: Vec<u32> = numbers.collect();
            known.sort_unstable();
            known.dedup();
            return Self { count: known.len(), known, dense: Vec::new() };
        }
        let mut dense = vec![0u32; reach];
        numbers.for_each(|number| dense[number as usize] = 1);
        let mut count = 0;
        for occurs in &mut dense {
            count += std::mem::replace(occurs, count);
        }
        Self { known: Vec::new(), dense, count: count as usize }
    }

    /// The place of a number that occurs.
    fn of_number(&self, number: u32) -> usize {
        match self.dense.get(number as usize) {
            Some(place) => *place as usize,
            None => self.known.partition_point(|known| *known < number),
        }
    }
}

/// A ratio of medians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// Median of the one / median of the other.
    pub(crate) value: f64,
    /// 95 % percentile interval by bootstrap over iterations; `None` with fewer than 3 iterations a side.
    pub(crate) interval: Option<(f64, f64)>,
}

/// The median of `of` divided by the median of `to`. `None` where either is empty or the divisor is 0.
pub(crate) fn ratio_of_medians(of: &Sample, to: &Sample) -> Option<Ratio> {
    let divisor = to.median().filter(|median| *median > 0.0)?;
    let value = of.median()? / divisor;
    let enough = of.iterations.min(to.iterations) >= FEWEST_ITERATIONS;
    Some(Ratio { value, interval: if enough { bootstrap(of, to) } else { None } })
}

/// The percentile interval of the ratio; `None` where a resample of the divisor has median 0.
fn bootstrap(of: &Sample, to: &Sample) -> Option<(f64, f64)> {
    let mut random = SplitMix64(SEED);
    let mut of_weights = vec![0; of.iterations];
    let mut to_weights = vec![0; to.iterations];
    let mut ratios = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        random.draw(&mut of_weights);
        random.draw(&mut to_weights);
        let divisor = to.weighted_median(&to_weights).filter(|median| *median > 0.0)?;
        ratios.push(of.weighted_median(&of_weights)? / divisor);
    }
    ratios.sort_unstable_by(f64::total_cmp);
    Some((nearest_rank(&ratios, 0.025), nearest_rank(&ratios, 0.975)))
}

/// The smallest value that at least the fraction `q` of `sorted`, which is not empty, does not exceed.
pub(crate) fn nearest_rank(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): ample for resampling.
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        // The high word of a product maps 64 random bits onto the range (Lemire 2019); its bias is below 2^-32.
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Draws as many of the places of `weights` as there are, with replacement, and counts each.
    pub(crate) fn draw(&mut self, weights: &mut [u32]) {
        weights.fill(0);
        for _ in 0..weights.len() {
            weights[self.below(weights.len())] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "tables")]
    #[test]
    fn the_interval_of_a_median_is_a_pair_of_the_values() {
        // As in tables of the sign test at 5 %: from six values on, the ends; of 9 the second and the eighth; of 20 the
        // sixth and the fifteenth.
        let pairs = [5, 6, 8, 9, 12, 20].map(median_interval);
        assert_eq!(pairs, [None, Some((0, 5)), Some((0, 7)), Some((1, 7)), Some((2, 9)), Some((5, 14))]);
        assert_eq!(median_interval(0), None);
    }

    #[test]
    fn medians_worked_by_hand() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [7]), Some(7.0));
        assert_eq!(median(&mut [9, 1, 5]), Some(5.0));
        assert_eq!(median(&mut [9, 1, 5, 2]), Some(3.5));
        assert_eq!(Sample::new(vec![(9, 0), (1, 0), (5, 1), (2, 1)]).median(), Some(3.5));
        assert_eq!(Sample::new(Vec::new()).median(), None);
    }

    #[test]
    fn a_weighted_median_is_the_median_of_the_repeated_values() {
        // Many values in few iterations, so that cells hold several values and weights of 0 occur.
        let mut random = SplitMix64(1);
        for size in [1, 2, 3, 63, 64, 65, 500] {
            let observed: Vec<(u64, u32)> = (0..size).map(|i| (random.next() % 40, i % 7 * 10)).collect();
            let sample = Sample::new(observed.clone());
            let mut weights = vec![0; sample.iterations];
            for _ in 0..50 {
                random.draw(&mut weights);
                let mut repeated: Vec<u64> = observed
                    .iter()
                    .flat_map(|(value, iteration)| vec![*value; weights[*iteration as usize / 10] as usize])
                    .collect();
                assert_eq!(sample.weighted_median(&weights), median(&mut repeated));
            }
        }
    }

    #[test]
    fn a_constant_ratio_has_an_interval_without_width() {
        let of = Sample::new((0..12).map(|i| (300, i / 4)).collect());
        let to = Sample::new((0..3).map(|i| (200, i)).collect());
        assert_eq!(ratio_of_medians(&of, &to), Some(Ratio { value: 1.5, interval: Some((1.5, 1.5)) }));
    }

    #[test]
    fn iterations_are_drawn_whole() {
        // Three iterations, each of many equal values: a resample's median is the median of three draws of
        // {100, 200, 300}, which is 100 in 7 of 27 cases and 300 in 7 of 27, so the interval spans both.
        let of = Sample::new((0..300).map(|i| (100 + 100 * u64::from(i % 3), i % 3)).collect());
        let to = Sample::new((0..3).map(|i| (100, i)).collect());
        assert_eq!(ratio_of_medians(&of, &to), Some(Ratio { value: 2.0, interval: Some((1.0, 3.0)) }));
    }

    #[test]
    fn too_little_gives_no_interval_and_nothing_no_ratio() {
        let two = || Sample::new(vec![(10, 0), (10, 1)]);
        assert_eq!(ratio_of_medians(&two(), &two()), Some(Ratio { value: 1.0, interval: None }));
        assert_eq!(ratio_of_medians(&two(), &Sample::new(Vec::new())), None);
        assert_eq!(ratio_of_medians(&Sample::new(Vec::new()), &two()), None);
        assert_eq!(ratio_of_medians(&two(), &Sample::new(vec![(0, 0)])), None);
        let sometimes_zero = Sample::new(vec![(0, 0), (5, 1), (5, 2)]);
        let three = Sample::new(vec![(10, 0), (10, 1), (10, 2)]);
        assert_eq!(ratio_of_medians(&three, &sometimes_zero), Some(Ratio { value: 2.0, interval: None }));
    }

    #[test]
    fn many_iterations_are_drawn_in_batches_of_neighbours() {
        // 1,000 iterations in order are 200 batches of five, whatever their numbers are.
        for stride in [1, 3, 3_000_000] {
            let sample = Sample::new((0..1_000).map(|i| (u64::from(i), i * stride)).collect());
            assert_eq!(sample.iterations, BATCHES);
            let expected: Vec<u32> = (0..1_000).map(|i| i / 5).collect();
            assert_eq!(sample.iteration_of, expected);
        }
    }

    #[test]
    fn the_generator_is_splitmix64() {
        // First outputs of the reference implementation for seed 1234567.
        let mut random = SplitMix64(1_234_567);
        assert_eq!([random.next(), random.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn nearest_rank_takes_values_that_occur() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((nearest_rank(&sorted, 0.025), nearest_rank(&sorted, 0.975)), (3.0, 98.0));
        assert_eq!(nearest_rank(&[4.0], 0.025), 4.0);
    }
}
