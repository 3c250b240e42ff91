//! How sure a ratio is: a bootstrap on two levels, and the noise of one side against itself.
//!
//! Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 8 and 13; on two levels as Davison and
//! Hinkley, "Bootstrap Methods and their Application" (1997), section 3.8, have it: runs are drawn with replacement, then
//! iterations inside each drawn run, because both differ. Bounds are percentiles.

use super::figures::Figure;
use crate::statistics::{SplitMix64, nearest_rank};

/// Fewest runs a side for an interval. With four it covers the truth in 91 to 92 of 100 cases where runs differ more
/// than their iterations, instead of 95.
pub(crate) const FEWEST_RUNS: usize = 5;

/// Draws of iterations inside each run, made once and then drawn from: ten thousand of them would tell no more.
const INNER: usize = 1_000;

/// The median: the middle value, or the mean of the two middle ones. `None` of nothing. Sorts `values`.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    (n > 0).then(|| (values[(n - 1) / 2] + values[n / 2]) / 2.0)
}

/// The 95 % interval of median(`after`) / median(`before`), each over runs. `None` with fewer than five runs a side, or
/// where a resample has nothing to divide by.
pub(crate) fn ratio(before: &[&Figure], after: &[&Figure], resamples: usize, seed: u64) -> Option<(f64, f64)> {
    if before.len().min(after.len()) < FEWEST_RUNS {
        return None;
    }
    let mut random = SplitMix64(seed);
    let [before, after] = [before, after].map(|runs| {
        let inner = INNER.min(resamples);
        runs.iter().map(|run| run.redraw(&mut random, inner)).filter(|draws| !draws.is_empty()).collect::<Vec<_>>()
    });
    let mut medians = [Vec::new(), Vec::new()];
    let mut ratios = Vec::with_capacity(resamples);
    for _ in 0..resamples {
        for (side, medians) in [&before, &after].into_iter().zip(&mut medians) {
            medians.clear();
            medians.extend((0..side.len()).map(|_| {
                let run = &side[random.below(side.len())];
                run[random.below(run.len())]
            }));
        }
        let [before, after] = &mut medians;
        ratios.push(median(after)? / median(before).filter(|median| *median > 0.0)?);
    }
    ratios.sort_unstable_by(f64::total_cmp);
    Some((nearest_rank(&ratios, 0.025), nearest_rank(&ratios, 0.975)))
}

/// Fewest runs that can be split into halves with medians of their own.
const FEWEST_TO_SPLIT: usize = 4;
/// Up to so many runs every split is looked at; beyond, as many as there are of this many, at random.
const MOST_TO_SPLIT_ALL_WAYS: usize = 12;

/// How far two halves of the same side lie apart: the 95th percentile of abs(ratio of their medians - 1) over all ways to
/// split it, each half by the other both ways. A change below that is one that the side shows against itself. `None` with
/// fewer than four runs or values that are not above 0.
pub(crate) fn noise_floor(runs: &[f64], seed: u64) -> Option<f64> {
    let n = runs.len();
    if n < FEWEST_TO_SPLIT || runs.iter().any(|value| *value <= 0.0) {
        return None;
    }
    let mut apart = Vec::new();
    let mut add = |chosen: &dyn Fn(usize) -> bool| {
        let half =
            |which: bool| -> Vec<f64> { (0..n).filter(|run| chosen(*run) == which).map(|run| runs[run]).collect() };
        if let (Some(one), Some(other)) = (median(&mut half(true)), median(&mut half(false))) {
            apart.extend([(one / other - 1.0).abs(), (other / one - 1.0).abs()]);
        }
    };
    if n <= MOST_TO_SPLIT_ALL_WAYS {
        for split in (0..1u32 << n).filter(|split| split.count_ones() as usize == n / 2) {
            add(&|run| split >> run & 1 == 1);
        }
    } else {
        let mut random = SplitMix64(seed);
        let mut order: Vec<usize> = (0..n).collect();
        for _ in 0..1_000 {
            for last in (1..n).rev() {
                order.swap(last, random.below(last + 1));
            }
            add(&|run| order[run] < n / 2);
        }
    }
    apart.sort_unstable_by(f64::total_cmp);
    Some(nearest_rank(&apart, 0.95))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_of_four_runs_worked_by_hand() {
        // Halves of 100, 100, 100, 110: medians 100 and 105 in every split.
        let floor = noise_floor(&[100.0, 100.0, 100.0, 110.0], 1).unwrap();
        assert!((floor - 0.05).abs() < 1e-12, "{floor}");
    }

    #[test]
    fn equal_runs_have_no_noise_and_few_runs_no_floor() {
        assert_eq!(noise_floor(&[3.0; 6], 1), Some(0.0));
        assert_eq!(noise_floor(&[3.0; 20], 1), Some(0.0));
        assert_eq!(noise_floor(&[3.0; 3], 1), None);
        assert_eq!(noise_floor(&[3.0, 3.0, 0.0, 3.0], 1), None);
    }

    #[test]
    fn splits_at_random_come_near_to_all_splits() {
        let runs: Vec<f64> = (0..12).map(|i| 100.0 + f64::from(i * 7 % 12)).collect();
        let all = noise_floor(&runs, 1).unwrap();
        let more: Vec<f64> = runs.iter().chain(&[105.5]).copied().collect();
        let drawn = noise_floor(&more, 1).unwrap();
        assert!(drawn > 0.0 && (all / drawn - 1.0).abs() < 0.3, "{all} {drawn}");
    }
}
