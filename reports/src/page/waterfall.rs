//! What the step is made of, in parts that sum to it to the nanosecond.

use serde::Serialize;

use super::sources::{Blocks, Source};

/// The parts of the mean step of one run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Waterfall {
    /// Number of the run.
    pub run: usize,
    /// Steps of ranks over which the parts are sums; divided by it they are means.
    pub rank_steps: u64,
    /// The step of each rank step's iteration (its longest rank), summed.
    pub step_ns: u64,
    /// Time in which compute ran, summed.
    pub compute_ns: u64,
    /// Per block of the page: communication that no compute hid, summed.
    pub exposed_ns: Vec<u64>,
    /// Inside a rank's span: only copies and sets.
    pub copies_ns: u64,
    /// Inside a rank's span: nothing.
    pub idle_ns: u64,
    /// From a rank's own end to that of the iteration's longest one.
    pub shorter_ns: u64,
}

/// The parts of run number `run`; `None` if it has no step.
pub(super) fn of(sources: &[Source<'_>], blocks: &Blocks, run: usize) -> Option<Waterfall> {
    let exposure = sources[run].run.exposure();
    let mut this = Waterfall {
        run,
        rank_steps: exposure.steps.len() as u64,
        step_ns: 0,
        compute_ns: 0,
        exposed_ns: vec![0; blocks.all.len()],
        copies_ns: 0,
        idle_ns: 0,
        shorter_ns: 0,
    };
    for ranks in exposure.steps.chunk_by(|a, b| (a.round, a.iteration) == (b.round, b.iteration)) {
        let longest_ns = ranks.iter().map(|step| step.figures.span_ns).max().unwrap_or_default();
        for step in ranks {
            let figures = step.figures;
            this.step_ns += longest_ns;
            this.compute_ns += figures.compute_ns;
            this.copies_ns += figures.copies_ns;
            this.idle_ns += figures.idle_ns();
            this.shorter_ns += longest_ns - figures.span_ns;
        }
    }
    for (row, exposed_ns) in exposure.exposed_ns.iter().enumerate() {
        if let Some(ns) = exposed_ns.filter(|ns| *ns > 0) {
            this.exposed_ns[blocks.number(sources, run, row)] += ns;
        }
    }
    (this.step_ns > 0).then_some(this)
}
