//! The step that stands for a run where only one can be drawn.

use crate::Run;

/// Round, iteration and length of the overlapped step of median length (the lower of two), as fidelity compares it.
/// `None` if no step of the run took any time.
pub(super) fn step(run: &Run) -> Option<((u32, u32), u64)> {
    let mut lengths: Vec<(u64, (u32, u32))> = run
        .exposure()
        .steps
        .chunk_by(|a, b| (a.round, a.iteration) == (b.round, b.iteration))
        .map(|ranks| {
            let longest_ns = ranks.iter().map(|step| step.figures.span_ns).max().unwrap_or_default();
            (longest_ns, (ranks[0].round, ranks[0].iteration))
        })
        .filter(|(ns, _)| *ns > 0)
        .collect();
    lengths.sort_unstable();
    let (ns, key) = *lengths.get(lengths.len().checked_sub(1)? / 2)?;
    Some((key, ns))
}
