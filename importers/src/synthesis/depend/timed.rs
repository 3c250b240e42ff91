//! Waits that only the times tell: inside a graph, and where the profiler recorded no calls about events.

use std::collections::HashMap;

use super::inferred::{Found, Inference};

impl Inference<'_> {
    /// Finds by the times alone what the calls cannot tell: what waits for what inside a graph, whose one launch is all
    /// that the host shows of it, and in a step of which no wait was recorded at all (`silent`). There a communication
    /// waits for the stream that its caller was working on, as PyTorch makes it. Anything else waited if it was launched
    /// and its lane was free, and began when something on another lane ended. Gives the number of edges.
    pub(super) fn held_back(&mut self, silent: bool) -> usize {
        /// What begins this soon after another ended began because of that.
        const SOON_NS: i64 = 10_000;
        let activity = |index: usize| &self.timeline.activities[self.issues[index].activity];
        let launch = |index: usize| activity(index).correlation;
        let mut ends: Vec<(i64, usize)> =
            (0..self.issues.len()).map(|index| (activity(index).end_ns(), index)).collect();
        ends.sort_unstable();
        // The latest of each thread and of each lane.
        let mut working: HashMap<i64, usize> = HashMap::new();
        let mut lane: HashMap<i64, i64> = HashMap::new();
        let mut found = Vec::new();
        for (index, issue) in self.issues.iter().enumerate() {
            let start_ns = activity(index).start_ns;
            let free_ns = lane.insert(issue.stream, activity(index).end_ns()).unwrap_or(i64::MIN).max(issue.issued_ns);
            let graph = |other: usize| launch(other).is_some() && launch(other) == launch(index);
            let caller = working.get(&issue.thread).copied().filter(|_| silent && issue.communicates.is_some());
            if let Some(cause) = caller.filter(|cause| self.issues[*cause].stream != issue.stream) {
                found.extend(self.agrees(cause, index).then_some((cause, index)));
            } else if start_ns - free_ns > SOON_NS {
                let from = ends.partition_point(|(end_ns, _)| *end_ns < start_ns - SOON_NS);
                let until = ends.partition_point(|(end_ns, _)| *end_ns <= start_ns);
                let mut held = ends[from..until].iter().rev().map(|(_, other)| *other);
                let cause = held.find(|other| {
                    *other < index && self.issues[*other].stream != issue.stream && (silent || graph(*other))
                });
                found.extend(cause.map(|cause| (cause, index)));
            }
            if issue.communicates.is_none() {
                working.insert(issue.thread, index);
            }
        }
        for (cause, effect) in &found {
            self.count(&Found::Edge(*cause, *effect), None);
            self.insert(*cause, *effect);
        }
        found.len()
    }
}
