//! How well one iteration of a pattern, simulated or replayed, keeps to the captured one.
//!
//! Both sides give times on a clock that starts with their step, so nothing is shifted before comparing: a step that
//! starts late is an error that shows.

use std::collections::{BTreeMap, HashMap};

use maestro_pattern::{Measurement, Pattern, State};
use serde::Serialize;

use crate::statistics;

/// The captured step beside another run of the same pattern.
///
/// A step lasts from a rank's own first start to its own last end, on the rank for which that is longest; of several
/// overlapped iterations it is the median, as in the table `steps`. Executions match by rank, block and instance, in
/// the iteration of median length (the lower of two). Errors of collectives are mean absolute differences over all
/// matched executions of blocks that communicate, relative to the captured step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fidelity {
    /// The captured step in microseconds.
    pub captured_step_us: f64,
    /// The other step in microseconds.
    pub other_step_us: f64,
    /// |other - captured| / captured, in percent.
    pub step_error_pct: f64,
    /// Mean |start - captured start| / captured step, in percent; `None` where no communication matches.
    pub collective_start_error_pct: Option<f64>,
    /// Mean |end - captured end| / captured step, in percent; `None` where no communication matches.
    pub collective_end_error_pct: Option<f64>,
    /// Executions, of any block, that only one side has.
    pub unmatched: usize,
}

/// An execution of an iteration: rank, block, instance.
type Key<'a> = (u32, &'a str, u32);

impl Fidelity {
    /// Compares what each side has overlapped. `None` where a side has nothing, or the captured step takes no time.
    pub fn of(pattern: &Pattern, captured: &[Measurement], other: &[Measurement]) -> Option<Self> {
        let ((captured_ns, captured), (other_ns, other)) = (typical(captured)?, typical(other)?);
        if captured_ns == 0.0 {
            return None;
        }

        let communicating: Vec<&str> =
            pattern.blocks.iter().filter(|b| b.work.communicates()).map(|b| b.name.as_str()).collect();
        let mut matched = 0;
        let mut pairs = 0u64;
        let (mut starts_ns, mut ends_ns) = (0u64, 0u64);
        for (key, theirs) in &captured {
            let Some(ours) = other.get(key) else { continue };
            matched += 1;
            if communicating.contains(&key.1) {
                pairs += 1;
                starts_ns += theirs.start_ns.abs_diff(ours.start_ns);
                ends_ns += theirs.end_ns.abs_diff(ours.end_ns);
            }
        }
        let mean_pct = |sum_ns: u64| (pairs > 0).then(|| percent(sum_ns as f64 / pairs as f64, captured_ns));
        Some(Self {
            captured_step_us: captured_ns / 1e3,
            other_step_us: other_ns / 1e3,
            step_error_pct: percent((other_ns - captured_ns).abs(), captured_ns),
            collective_start_error_pct: mean_pct(starts_ns),
            collective_end_error_pct: mean_pct(ends_ns),
            unmatched: captured.len() + other.len() - 2 * matched,
        })
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    100.0 * part / whole
}

/// The executions of an iteration.
type Iteration<'a> = HashMap<Key<'a>, &'a Measurement>;

/// The median step over the overlapped iterations, in nanoseconds, and the executions of the iteration in the middle.
fn typical(measurements: &[Measurement]) -> Option<(f64, Iteration<'_>)> {
    let mut iterations: BTreeMap<(u32, u32), Iteration<'_>> = BTreeMap::new();
    for m in measurements.iter().filter(|m| m.state == State::Overlapped) {
        iterations.entry((m.round, m.iteration)).or_default().insert((m.rank, &*m.block, m.instance), m);
    }
    let mut lengths: Vec<(u64, (u32, u32))> =
        iterations.iter().map(|(key, iteration)| (step_ns(iteration), *key)).collect();
    lengths.sort_unstable();
    let (_, middle) = *lengths.get(lengths.len().checked_sub(1)? / 2)?;
    let median_ns = statistics::median(&mut lengths.iter().map(|(ns, _)| *ns).collect::<Vec<_>>())?;
    Some((median_ns, iterations.remove(&middle)?))
}

/// The longest rank's span.
fn step_ns(iteration: &Iteration<'_>) -> u64 {
    let mut spans: HashMap<u32, (u64, u64)> = HashMap::new();
    for m in iteration.values() {
        let span = spans.entry(m.rank).or_insert((m.start_ns, m.end_ns));
        *span = (span.0.min(m.start_ns), span.1.max(m.end_ns));
    }
    spans.values().map(|(first, last)| last - first).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use maestro_pattern::{Block, Collective, CollectiveKind, Dtype, Kernel, Work};

    use super::*;

    fn pattern() -> Pattern {
        let hold = Kernel::Hold { duration_ns: 1, sms: None, times: 1 };
        let gather = Collective::new(CollectiveKind::AllGather, 1024, Dtype::F32);
        let blocks =
            vec![Block::new("gather", Work::Collective(gather)), Block::new("forward", Work::Compute(vec![hold]))];
        Pattern { blocks, ..Pattern::default() }
    }

    fn ran(rank: u32, block: &str, instance: u32, start_ns: u64, end_ns: u64) -> Measurement {
        Measurement {
            round: 0,
            iteration: 0,
            rank,
            block: block.into(),
            axis: None,
            lane: "main".into(),
            instance,
            state: State::Overlapped,
            start_ns,
            end_ns,
            wait_ns: None,
            transfer_ns: None,
            size_bytes: None,
        }
    }

    #[test]
    fn errors_worked_by_hand() {
        let captured =
            [ran(0, "gather", 0, 0, 4_000), ran(0, "forward", 0, 4_000, 10_000), ran(1, "gather", 0, 1_000, 4_000)];
        let other =
            [ran(0, "gather", 0, 200, 4_100), ran(0, "forward", 0, 4_100, 11_200), ran(1, "gather", 0, 1_000, 4_200)];
        let fidelity = Fidelity::of(&pattern(), &captured, &other).unwrap();
        // Step 10 us against 11 us; starts off by 200 and 0, ends by 100 and 200 ns, of 10,000 ns.
        assert_eq!((fidelity.captured_step_us, fidelity.other_step_us), (10.0, 11.0));
        assert_eq!(fidelity.step_error_pct, 10.0);
        assert_eq!(fidelity.collective_start_error_pct, Some(1.0));
        assert_eq!(fidelity.collective_end_error_pct, Some(1.5));
        assert_eq!(fidelity.unmatched, 0);
    }

    #[test]
    fn what_only_one_side_has_is_counted() {
        let captured = [ran(0, "forward", 0, 0, 10), ran(0, "forward", 1, 10, 20)];
        let other = [ran(0, "forward", 0, 0, 10), ran(0, "gather", 0, 0, 10), ran(0, "gather", 1, 10, 20)];
        let fidelity = Fidelity::of(&pattern(), &captured, &other).unwrap();
        assert_eq!((fidelity.unmatched, fidelity.collective_start_error_pct), (3, None));
    }

    #[test]
    fn the_step_is_the_median_of_the_overlapped_iterations() {
        let mut later = ran(0, "gather", 0, 0, 500);
        later.iteration = 3;
        let mut alone = ran(0, "gather", 0, 0, 900);
        alone.state = State::Alone;
        let side = [later, alone, ran(0, "gather", 0, 0, 100)];
        let fidelity = Fidelity::of(&pattern(), &side[2..], &side).unwrap();
        // (100 + 500) / 2; what is compared start by start is the lower of the two.
        assert_eq!((fidelity.captured_step_us, fidelity.other_step_us), (0.1, 0.3));
        assert_eq!((fidelity.collective_end_error_pct, fidelity.unmatched), (Some(0.0), 0));
        assert_eq!(Fidelity::of(&pattern(), &side[1..2], &side), None);
        assert_eq!(Fidelity::of(&pattern(), &[ran(0, "gather", 0, 5, 5)], &side), None);
    }
}
