//! What part of a step waited for the host, and what to do about it.
//!
//! Profiling slows the host, by microseconds a call, and not the device. So a captured step in which the device waited
//! for launches is longer than the real one, and a pattern of it as well: that part is measured here, and a pattern may
//! be made with less of it, or none ([`HostTime`]).

use super::intervals::Union;
use super::steps::Step;
use crate::capture::{CallKind, Timeline};

/// How much of the captured host time between launches a pattern keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum HostTime {
    /// All of it.
    #[default]
    Captured,
    /// This share: what the host would take without the profiler, say.
    Scaled(f64),
}

impl HostTime {
    /// What captured host time is multiplied with.
    pub fn factor(self) -> f64 {
        match self {
            Self::Captured => 1.0,
            Self::Scaled(factor) => factor,
        }
    }
}

/// What the host did in a step, times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSummary {
    /// Threads that launched something.
    pub threads: usize,
    /// Time in which nothing but communication ran, because the next launch had not been made: the host was the limit.
    pub bound_ns: i64,
    /// The same, while the host itself waited for the device (`.item()`, a synchronize): neither side could go on.
    pub wait_ns: i64,
}

/// Looks at one step. `launches` are the timeline's, `communicates` tells communication kernels.
pub(crate) fn summary(
    timeline: &Timeline,
    launches: &[Option<usize>],
    step: &Step,
    communicates: impl Fn(usize) -> bool,
) -> HostSummary {
    let mut threads: Vec<i64> =
        step.activities.iter().filter_map(|index| launches[*index].map(|call| timeline.calls[call].thread)).collect();
    threads.sort_unstable();
    threads.dedup();
    // Activities are by start, so the one that ends a gap is the first that begins behind it.
    let mut starved = Vec::new();
    let mut ended = i64::MAX;
    for &index in step.activities.iter().filter(|index| !communicates(**index)) {
        let activity = &timeline.activities[index];
        if let Some(call) = launches[index] {
            starved.push((ended, timeline.calls[call].end_ns.min(activity.start_ns)));
        }
        ended = if ended == i64::MAX { activity.end_ns() } else { ended.max(activity.end_ns()) };
    }
    let starved = Union::new(starved);
    let waits = timeline.calls.iter().filter(|call| call.kind == CallKind::Synchronize);
    let wait_ns = starved.overlap(&Union::new(waits.map(|call| (call.start_ns, call.end_ns))));
    HostSummary { threads: threads.len(), bound_ns: starved.length() - wait_ns, wait_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{Activity, ActivityKind, HostCall};

    /// A kernel launched by a call of 1 us that ends at `issued`, and its call.
    fn kernel(correlation: u64, thread: i64, issued: i64, start_ns: i64, duration_ns: i64) -> (Activity, HostCall) {
        let kind = ActivityKind::Kernel { blocks: 1 };
        let name = "k".into();
        let correlation = Some(correlation);
        let activity =
            Activity { kind, name, start_ns, duration_ns, stream: 7, correlation, external_id: None, comm: None };
        let kind = CallKind::Launch;
        (activity, HostCall { kind, thread, start_ns: issued - 1_000, end_ns: issued, correlation })
    }

    #[test]
    fn time_without_a_launch_is_the_hosts() {
        let rows = [
            kernel(0, 1, 5_000, 6_000, 10_000),
            // Launched 4 us after the first ended, 1 us of which the host waited for it.
            kernel(1, 1, 20_000, 21_000, 10_000),
            // Launched in time, late for another reason.
            kernel(2, 2, 25_000, 50_000, 10_000),
            // Communication is not waited for to be launched, but what comes behind it is.
            kernel(3, 2, 70_000, 71_000, 10_000),
            kernel(4, 2, 90_000, 91_000, 10_000),
        ];
        let (activities, mut calls): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let launches: Vec<Option<usize>> = (0..5).map(Some).collect();
        let kind = CallKind::Synchronize;
        calls.push(HostCall { kind, thread: 1, start_ns: 6_000, end_ns: 17_000, correlation: None });
        let timeline = Timeline { activities, calls, ..Timeline::default() };
        let step = Step { name: "s".into(), activities: (0..5).collect() };
        let summary = summary(&timeline, &launches, &step, |index| index == 3);
        assert_eq!(summary, HostSummary { threads: 2, bound_ns: 3_000 + 30_000, wait_ns: 1_000 });
    }
}
