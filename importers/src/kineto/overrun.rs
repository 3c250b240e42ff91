//! Durations that cannot be: kernels that last far into the next one of their stream.
//!
//! A stream runs one thing at a time, but for launches that overlap on purpose (programmatic dependent launch), which
//! do so by a few microseconds. AMD's tracer has written kernels that run past their successors by seconds. So an
//! activity that ends more than [`LARGE_NS`] behind the next start on its stream is cut there; smaller overlaps stay.
//! What a graph launched is left alone: its branches run at once, whatever stream they are written under.

use std::collections::HashMap;

use crate::Notes;
use crate::capture::Activity;

/// The largest overlap on a stream that is taken as real.
const LARGE_NS: i64 = 100_000;

/// Cuts what overruns. `activities` are ascending by start.
pub(super) fn cut(activities: &mut [Activity], notes: &mut Notes) {
    let mut launched: HashMap<u64, usize> = HashMap::new();
    for correlation in activities.iter().filter_map(|activity| activity.correlation) {
        *launched.entry(correlation).or_default() += 1;
    }
    let mut next: HashMap<i64, i64> = HashMap::new();
    let (mut count, mut most) = (0, (0, String::new()));
    for activity in activities.iter_mut().rev() {
        let alone = activity.correlation.is_none_or(|correlation| launched.get(&correlation) == Some(&1));
        if let Some(start_ns) = next.insert(activity.stream, activity.start_ns).filter(|_| alone) {
            let overrun = activity.end_ns() - start_ns;
            if overrun > LARGE_NS && start_ns > activity.start_ns {
                activity.duration_ns = start_ns - activity.start_ns;
                count += 1;
                if overrun > most.0 {
                    most = (overrun, activity.name.to_string());
                }
            }
        }
    }
    notes.add_many("activities that ran past the next start on their stream by over 100 us, cut there", count, || {
        format!("the largest by {:.1} us, {}", most.0 as f64 / 1e3, most.1)
    });
}
