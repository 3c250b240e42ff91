//! A baseline beside the blocks: what others measured of them alone.

use maestro_pattern::Work;

use crate::tables::frame::Row;
use crate::{Baseline, Match, Run, Value, View};

/// What the baseline has for a block of this size and team, which alone took `alone_ns`.
pub(super) fn values(
    baseline: &Baseline,
    work: &Work,
    (size_bytes, ranks): (Option<u64>, Option<u64>),
    alone_ns: Option<f64>,
) -> Row {
    let (how, time_us) = match baseline.find(work, size_bytes, ranks) {
        Match::Exact { time_us } => ("exact".to_owned(), Some(time_us)),
        Match::Between { time_us, sizes: (below, above) } => (format!("between {below} and {above}"), Some(time_us)),
        Match::None { why } => (why, None),
    };
    let factor = ranks.and_then(|ranks| work.bus_factor(ranks as usize));
    let moved = size_bytes.zip(factor).map(|(bytes, factor)| bytes as f64 * factor);
    vec![
        ("outside", Value::Text(how)),
        ("outside_ms", Value::real(time_us.map(|us| us / 1e3))),
        ("outside_busbw_gbps", Value::real(moved.zip(time_us).map(|(bytes, us)| bytes / (us * 1e3)))),
        ("outside_ratio", Value::real(alone_ns.zip(time_us).map(|(ns, us)| ns / (us * 1e3)))),
    ]
}

/// Where the baseline comes from, and which blocks are not in it and why.
pub(super) fn remarks(runs: &[Run], view: &View) -> Vec<String> {
    let Some(baseline) = runs.iter().find_map(|run| run.baseline.as_ref()) else { return Vec::new() };
    let has = |row: &usize, key: &str| *view.value(*row, key) != Value::Missing;
    let looked: Vec<usize> = (0..view.rows.len()).filter(|row| has(row, "outside")).collect();
    let (found, lacking): (Vec<usize>, Vec<usize>) = looked.iter().partition(|row| has(row, "outside_ms"));
    let mut lines = vec![format!(
        "Outside = the block alone in {}: {} of {} communication blocks are in it by operation, type, ranks and size. \
         Between two sizes at most 4 times apart the time is taken from the line through both.",
        baseline.origin(),
        found.len(),
        looked.len()
    )];
    let text =
        |row: usize, key: &str| if let Value::Text(text) = view.value(row, key) { text.clone() } else { "-".into() };
    let several = runs.len() > 1;
    lines.extend(lacking.into_iter().map(|row| {
        let run = if several { format!("{}: ", text(row, "run")) } else { String::new() };
        format!("{run}{} has no outside time: {}.", text(row, "block"), text(row, "outside"))
    }));
    lines
}
