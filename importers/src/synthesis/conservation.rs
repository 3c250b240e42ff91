//! Where every activity of the chosen step went, and what else of the recording is in no step.
//!
//! A table that has to add up: what is kept or fused is in a block, and what is dropped has a reason. Steps that were not
//! taken are no matter of it; their activities are counted with the steps.

use super::steps::Steps;
use crate::capture::Timeline;

/// Where the activities of one kind went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conservation {
    /// `kernel`, `copy` or `set`.
    pub kind: &'static str,
    /// Activities that are a block of their own, and their nanoseconds.
    pub kept: (usize, i64),
    /// Activities that share a block with others.
    pub fused: (usize, i64),
    /// Activities left out.
    pub dropped: (usize, i64),
    /// Why those were left out. A kind has a row more for each further reason.
    pub why: Option<&'static str>,
}

/// What no step launched.
const OUTSIDE: &str = "launched outside every step";

/// What should not be.
const LOST: &str = "in no block: a defect of this import";

/// The table. `alone` tells of an activity of a timeline whether it is a block of its own; `None`: it is in no block.
pub(crate) fn conservation(
    timelines: &[Timeline],
    steps: &[Steps],
    chosen: &str,
    alone: impl Fn(usize, usize) -> Option<bool>,
) -> Vec<Conservation> {
    let kinds = ["kernel", "copy", "set"];
    let mut rows: Vec<Conservation> = kinds.map(|kind| Conservation { kind, ..Conservation::default() }).into();
    let mut dropped = Vec::new();
    for (t, (timeline, steps)) in timelines.iter().zip(steps).enumerate() {
        let what = |index: &usize| (timeline.activities[*index].kind.name(), timeline.activities[*index].duration_ns);
        for step in steps.steps.iter().filter(|step| &*step.name == chosen) {
            for index in &step.activities {
                let (kind, ns) = what(index);
                match (alone(t, *index), rows.iter_mut().find(|row| row.kind == kind)) {
                    (Some(alone), Some(row)) => add(if alone { &mut row.kept } else { &mut row.fused }, (1, ns)),
                    _ => dropped.push((kind, LOST, (1, ns))),
                }
            }
        }
        for (kind, ns) in steps.outside.iter().map(what) {
            dropped.push((kind, OUTSIDE, (1, ns)));
        }
        dropped.extend(timeline.left_out.iter().map(|((kind, why), counts)| (*kind, *why, *counts)));
    }
    for (kind, why, counts) in dropped {
        let row = rows.iter().position(|row| row.kind == kind && row.why.is_none_or(|known| known == why));
        let row = row.unwrap_or_else(|| {
            let place = rows.iter().rposition(|row| row.kind == kind).map_or(rows.len(), |last| last + 1);
            rows.insert(place, Conservation { kind, ..Conservation::default() });
            place
        });
        rows[row].why = Some(why);
        add(&mut rows[row].dropped, counts);
    }
    rows
}

fn add(slot: &mut (usize, i64), (count, ns): (usize, i64)) {
    *slot = (slot.0 + count, slot.1 + ns);
}
