//! Bandwidths of what was captured: of communication as nccl-tests defines them, and of copies.
//!
//! Decimal GB/s. The time is the transfer where waiting can be told from it, else the whole duration, which for one rank
//! alone holds the waiting, too. The first instance of a kind in the recording is left out where others are there.

use std::collections::BTreeMap;
use std::sync::Arc;

use maestro_pattern::{CopyDirection, Direction};

use super::blocks::Rank;
use super::resolve::Operation;
use super::steps::Step;
use crate::capture::ActivityKind;

/// All copies of one direction in one step of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct CopySummary {
    /// Global rank.
    pub rank: u32,
    /// Name of the step.
    pub step: Arc<str>,
    /// `h2d`, `d2h`, `d2d`, or `other` (peer to peer, say).
    pub direction: &'static str,
    /// Copies.
    pub count: usize,
    /// Bytes of all.
    pub bytes: u64,
    /// Sum of their durations, in nanoseconds.
    pub duration_ns: i64,
    /// Decimal GB/s of those that took time; `None` if none did, or none moved anything.
    pub gbps: Option<f64>,
}

/// Bytes that make the two bandwidths of an operation, as nccl-tests defines them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Volume {
    /// S of nccl-tests.
    pub algorithm: f64,
    /// S times the factor of nccl-tests; `None` on a team of one, on which nothing crosses a bus.
    pub bus: Option<f64>,
}

/// What counts for the bandwidth of an operation on a team of `ranks`; `None` where that means nothing or is unknown.
pub(crate) fn volume(operation: &Operation, ranks: usize) -> Option<Volume> {
    let several = |bus: f64| (ranks > 1).then_some(bus);
    match operation {
        Operation::Collective { collective, .. } => {
            let size = collective.size? as f64;
            Some(Volume { algorithm: size, bus: several(size * collective.kind.bus_factor(ranks)?) })
        }
        Operation::Group(all) => {
            let sizes = all.iter().map(|c| Some((c.size? as f64, c.kind.bus_factor(ranks)?)));
            let sizes: Vec<(f64, f64)> = sizes.collect::<Option<_>>()?;
            let bus = sizes.iter().map(|(size, factor)| size * factor).sum();
            Some(Volume { algorithm: sizes.iter().map(|(size, _)| size).sum(), bus: several(bus) })
        }
        Operation::P2p(_) => {
            let (sent, received) = directions(operation)?;
            let most = sent.max(received) as f64;
            Some(Volume { algorithm: most, bus: Some(most) })
        }
    }
}

/// Bytes that sends and receives move out and in; `None` of anything else.
pub(crate) fn directions(operation: &Operation) -> Option<(u64, u64)> {
    let Operation::P2p(transfers) = operation else { return None };
    let total = |way: Direction| {
        transfers.iter().filter(|t| t.direction == way).fold(0u64, |sum, t| sum.saturating_add(t.bytes))
    };
    Some((total(Direction::Send), total(Direction::Recv)))
}

/// Decimal GB/s of `bytes` in `ns`: a byte a nanosecond is one.
pub(crate) fn gbps(bytes: f64, ns: f64) -> Option<f64> {
    (ns > 0.0 && bytes > 0.0).then(|| bytes / ns)
}

/// The copies of a step, by direction.
pub(crate) fn copies(rank: &Rank<'_>, step: &Step) -> Vec<CopySummary> {
    let mut all: BTreeMap<&'static str, (CopySummary, u64)> = BTreeMap::new();
    for index in &step.activities {
        let activity = &rank.timeline.activities[*index];
        let ActivityKind::Copy { direction, bytes } = activity.kind else { continue };
        let direction = match direction {
            Some(CopyDirection::H2d) => "h2d",
            Some(CopyDirection::D2h) => "d2h",
            Some(CopyDirection::D2d) => "d2d",
            None => "other",
        };
        let (row, timed) = all.entry(direction).or_insert_with(|| {
            let (rank, step) = (rank.rank, step.name.clone());
            (CopySummary { rank, step, direction, count: 0, bytes: 0, duration_ns: 0, gbps: None }, 0)
        });
        row.count += 1;
        row.bytes = row.bytes.saturating_add(bytes);
        row.duration_ns += activity.duration_ns;
        if activity.duration_ns > 0 {
            *timed = timed.saturating_add(bytes);
        }
    }
    let rows = all.into_values().map(|(row, timed)| {
        let gbps = gbps(timed as f64, row.duration_ns as f64);
        CopySummary { gbps, ..row }
    });
    rows.collect()
}
