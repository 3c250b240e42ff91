//! Whether two sides differ: the Mann-Whitney test, and Holm's correction for asking many times.
//!
//! Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than the other", Annals
//! of Mathematical Statistics 18 (1947). It compares ranks, so a single run that went astray does no more than take the
//! last rank. With the few runs that people make, the normal approximation is poor; so the distribution is counted out,
//! ties included. The crate statrs does the approximation for many runs. Its exact test lists every way to choose the
//! one side's ranks, which takes minutes from 15 runs a side, and it refuses ties.

use statrs::stats_tests::Alternative;
use statrs::stats_tests::mannwhitneyu::{MannWhitneyUMethod, mannwhitneyu};

/// Up to so many runs of both sides together the distribution is counted out.
const MOST_EXACT: usize = 60;

/// The two-sided p-value of `a` and `b` coming from one distribution: how often chance alone sets ranks apart this much.
/// `None` where a side is empty or holds what is not a number.
pub(crate) fn mann_whitney(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() || a.iter().chain(b).any(|value| value.is_nan()) {
        return None;
    }
    if a.len() + b.len() <= MOST_EXACT {
        return Some(exact(a, b));
    }
    let method = MannWhitneyUMethod::AsymptoticInclContinuityCorrection;
    mannwhitneyu(a, b, method, Alternative::TwoSided).ok().map(|(_, p)| p)
}

/// Counts, over all ways to choose which of the values are `a`'s, those whose rank sum is at least as extreme. Twice
/// the smaller tail, as scipy has it.
fn exact(a: &[f64], b: &[f64]) -> f64 {
    let doubled = doubled_ranks(a, b);
    let observed: usize = doubled[..a.len()].iter().sum();
    let ways = ways(&doubled, a.len());
    let all: f64 = ways.iter().sum();
    let below: f64 = ways[..=observed].iter().sum();
    let above: f64 = ways[observed..].iter().sum();
    (2.0 * below.min(above) / all).min(1.0)
}

/// Twice the rank of each value of `a`, then of `b`, in both together; equal values share the mean of their ranks, so
/// only twice a rank is always whole.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let rank = |value: &f64| {
        let below = all.iter().filter(|other| *other < value).count();
        let equal = all.iter().filter(|other| *other == value).count();
        2 * below + equal + 1
    };
    all.iter().map(rank).collect()
}

/// For each sum: in how many ways `chosen` of `ranks` add up to it.
fn ways(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let sums = ranks.iter().sum::<usize>() + 1;
    // counts[k][s]: ways to reach s with k of the ranks seen so far. Going down in k takes each rank once.
    let mut counts = vec![vec![0.0; sums]; chosen + 1];
    counts[0][0] = 1.0;
    for (seen, rank) in ranks.iter().enumerate() {
        for k in (1..=chosen.min(seen + 1)).rev() {
            let (fewer, this) = counts.split_at_mut(k);
            for (reached, from) in this[0][*rank..].iter_mut().zip(&fewer[k - 1]) {
                *reached += from;
            }
        }
    }
    counts.swap_remove(chosen)
}

/// The smallest p-value that so many runs a side can give: all of one side below all of the other.
pub(crate) fn smallest_p(a: usize, b: usize) -> f64 {
    // Binomial (a + b choose a), multiplied so that every step is a whole number.
    let ways = (1..=a).fold(1.0, |ways, k| ways * (b + k) as f64 / k as f64);
    (2.0 / ways).min(1.0)
}

/// The fewest runs a side with which one of `comparisons` can be found different at `alpha`.
pub fn runs_needed(comparisons: usize, alpha: f64) -> usize {
    /// Beyond that it is no longer the number of runs that is missing.
    const MOST: usize = 1_000;
    (2..MOST).find(|runs| smallest_p(*runs, *runs) * comparisons as f64 <= alpha).unwrap_or(MOST)
}

/// Adjusts p-values of one family so that the chance of any false finding stays below alpha (Holm, "A simple
/// sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979).
pub(crate) fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut so_far: f64 = 0.0;
    for (place, index) in order.into_iter().enumerate() {
        so_far = so_far.max(p[index] * (p.len() - place) as f64).min(1.0);
        adjusted[index] = so_far;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_p_of_a_few_runs() {
        // 2 / C(6,3), 2 / C(8,4), 2 / C(12,6).
        assert_eq!([(3, 3), (4, 4), (6, 6)].map(|(a, b)| smallest_p(a, b)), [0.1, 2.0 / 70.0, 2.0 / 924.0]);
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0, 9.0]);
        assert_eq!(mann_whitney(&a, &b), Some(smallest_p(4, 5)));
    }

    #[test]
    fn more_comparisons_need_more_runs() {
        assert_eq!([1, 2, 23, 24, 85, 86].map(|comparisons| runs_needed(comparisons, 0.05)), [4, 5, 6, 7, 7, 8]);
    }

    #[test]
    fn equal_values_are_no_difference() {
        assert_eq!(mann_whitney(&[5.0; 6], &[5.0; 6]), Some(1.0));
        assert_eq!(mann_whitney(&[5.0; 40], &[5.0; 40]), Some(1.0));
    }

    #[test]
    fn nothing_gives_nothing() {
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(mann_whitney(&[f64::NAN], &[1.0]), None);
    }

    #[test]
    fn the_approximation_takes_over_smoothly() {
        let a: Vec<f64> = (0..30).map(f64::from).collect();
        let b: Vec<f64> = (0..30).map(|i| f64::from(i) + 6.3).collect();
        let counted = mann_whitney(&a, &b).unwrap();
        let b: Vec<f64> = b.into_iter().chain([21.3]).collect();
        let approximated = mann_whitney(&a, &b).unwrap();
        assert!((counted - approximated).abs() < 0.01, "{counted} {approximated}");
    }
}
