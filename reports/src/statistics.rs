//! The statistics that reports share: the median, and the ratio of two medians with its interval; and what makes a sample
//! suspicious: outliers, two modes, a drift.
//!
//! Executions inside an iteration are correlated: they share the state of the machine and wait for each other. So the
//! bootstrap does not draw executions but whole iterations, with everything that was measured in them (a cluster
//! bootstrap), for each side by itself. It is seeded: the same measurements give the same interval.

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
fn middle(sorted: &[u64]) -> Option<f64> {
    let n = sorted.len();
    (n > 0).then(|| (sorted[(n - 1) / 2] as f64 + sorted[n / 2] as f64) / 2.0)
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

/// How many of `sorted` are beyond Tukey's outer fences: 3 interquartile ranges below the first or above the third
/// quartile.
pub(crate) fn severe_outliers(sorted: &[u64]) -> usize {
    let quartile = |q: f64| sorted.get(((q * sorted.len() as f64).ceil() as usize).max(1) - 1).copied();
    let (Some(first), Some(third)) = (quartile(0.25), quartile(0.75)) else { return 0 };
    let reach = 3 * (third - first);
    let (low, high) = (first.saturating_sub(reach), third.saturating_add(reach));
    sorted.partition_point(|value| *value < low) + sorted.len() - sorted.partition_point(|value| *value <= high)
}

/// Fewest values among which two modes are looked for, and the smallest share of them that is a mode.
const MODES: (usize, f64) = (20, 0.1);

/// Whether `sorted` falls into two groups: cut where the squares within both sides are smallest, the means of the sides
/// are more than 4 of their spreads apart (Ashman's D; a normal sample cut in two has 2.7, a uniform one 3.5) and by
/// more than 5 % of the median, and no side has less than a tenth of the values.
pub(crate) fn has_two_modes(sorted: &[u64]) -> bool {
    let (fewest, share) = MODES;
    let Some(median) = middle(sorted).filter(|_| sorted.len() >= fewest) else { return false };
    // Around the median, so that squares of large times do not swallow their differences.
    let about = |value: &u64| *value as f64 - median;
    let whole = sorted.iter().fold((0.0, 0.0), |(sum, squares), v| (sum + about(v), squares + about(v) * about(v)));
    let n = sorted.len() as f64;
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best: Option<(f64, f64, f64)> = None;
    for (place, pair) in sorted.windows(2).enumerate() {
        sum += about(&pair[0]);
        squares += about(&pair[0]) * about(&pair[0]);
        let (left, right) = (place as f64 + 1.0, n - place as f64 - 1.0);
        if pair[0] == pair[1] || left < share * n || right < share * n {
            continue;
        }
        let within = |count: f64, sum: f64, squares: f64| (squares - sum * sum / count).max(0.0);
        let lower = within(left, sum, squares);
        let upper = within(right, whole.0 - sum, whole.1 - squares);
        let apart = (whole.0 - sum) / right - sum / left;
        if best.is_none_or(|(least, ..)| lower + upper < least) {
            best = Some((lower + upper, lower / left + upper / right, apart));
        }
    }
    best.is_some_and(|(_, variances, apart)| {
        // D > 4, where D = sqrt(2) apart / sqrt(sum of the variances).
        apart > 0.05 * median && 2.0 * apart * apart > 16.0 * variances
    })
}

/// Fewest values for a drift.
const FEWEST_FOR_DRIFT: usize = 10;

/// Spearman's rank correlation of `values` with their order; equal values share their mean rank. `None` of fewer than 10
/// values, or of values that are all alike.
pub(crate) fn drift(values: &[f64]) -> Option<f64> {
    let n = values.len();
    if n < FEWEST_FOR_DRIFT {
        return None;
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mean = (n as f64 - 1.0) / 2.0;
    let (mut products, mut squares, mut rank) = (0.0, 0.0, 0);
    for ties in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let shared = rank as f64 + (ties.len() as f64 - 1.0) / 2.0 - mean;
        products += ties.iter().map(|place| shared * (*place as f64 - mean)).sum::<f64>();
        squares += shared * shared * ties.len() as f64;
        rank += ties.len();
    }
    let of_order = n as f64 * (n as f64 * n as f64 - 1.0) / 12.0;
    (squares > 0.0).then(|| products / (squares * of_order).sqrt())
}

/// Whether a drift of `n` values is more than chance, at 1 %: the correlation is about normal with variance 1 / (n - 1).
pub(crate) fn is_drift(correlation: f64, n: usize) -> bool {
    correlation.abs() * (n as f64 - 1.0).sqrt() > 2.576
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): ample for resampling.
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
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
    fn outliers_are_counted_beyond_the_outer_fences() {
        // Quartiles of 1 to 8 are 2 and 6: fences at 0 (as no time is below) and 18.
        assert_eq!(severe_outliers(&[1, 2, 3, 4, 5, 6, 7, 18]), 0);
        assert_eq!(severe_outliers(&[1, 2, 3, 4, 5, 6, 7, 19]), 1);
        assert_eq!(severe_outliers(&[1, 100, 100, 100, 100, 100, 100, 101]), 2);
        assert_eq!(severe_outliers(&[]), 0);
    }

    #[test]
    fn two_modes_are_found_and_one_is_not_split() {
        let around = |center: u64, n: u64| (0..n).map(move |i| center + i % 7).collect::<Vec<u64>>();
        let sorted = |mut values: Vec<u64>| {
            values.sort_unstable();
            values
        };
        let both = |n| sorted([around(1_000, 100), around(1_200, n)].concat());
        assert!(has_two_modes(&both(50)));
        // A few outliers are no mode, nor are two groups that differ by little, nor a uniform spread.
        assert!(!has_two_modes(&both(5)));
        assert!(!has_two_modes(&sorted([around(1_000, 50), around(1_030, 50)].concat())));
        assert!(!has_two_modes(&(1_000..2_000).collect::<Vec<u64>>()));
        assert!(!has_two_modes(&[10, 10, 20, 20]));
        let mut random = SplitMix64(7);
        // Sums of twelve uniform numbers are about normal.
        let normal = (0..500).map(|_| (0..12).map(|_| random.next() % 1_000).sum()).collect();
        assert!(!has_two_modes(&sorted(normal)));
    }

    #[test]
    fn a_drift_is_spearmans_correlation_with_the_order() {
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        assert_eq!(drift(&rising), Some(1.0));
        assert_eq!(drift(&rising.iter().map(|v| -v).collect::<Vec<_>>()), Some(-1.0));
        assert_eq!(drift(&rising[..9]), None);
        assert_eq!(drift(&[5.0; 12]), None);
        // Ranks 0, 3, 1.5, 1.5, 7, 5, 5, 5, 9, 8; the definition, Pearson's correlation of ranks, in another language.
        let tied = drift(&[1.0, 3.0, 2.0, 2.0, 5.0, 4.0, 4.0, 4.0, 9.0, 7.0]).unwrap();
        assert!((tied - 0.861_640_436_855_3).abs() < 1e-12, "{tied}");
        assert!(is_drift(0.9, 10) && !is_drift(0.8, 10) && is_drift(-0.3, 100));
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
