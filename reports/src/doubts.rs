//! What makes a sample of times doubtful: outliers, two modes, a drift.

use crate::statistics::middle;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::SplitMix64;

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
}
