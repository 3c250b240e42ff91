//! The report `exposure`: which axis the communication belongs to that no compute hides.

use std::collections::BTreeMap;

use polars::prelude::DataFrame;

use super::frame::{Row, axis_name, ms};
use super::{EXPOSED, Field, Report, refused, stack};
use crate::exposure::{Role, in_steps, steps};
use crate::view::{Show, Shown};
use crate::{Headline, Result, Run, Value, View};

/// One row an axis, in the order of the pattern. Exposed time adds up: its sum over the axes is that of the step.
pub(super) struct ByAxis;

const FIELDS: [Field; 7] = [
    Field::text("axis", "axis that the communication runs on"),
    Field::real("calls_per_step", "", "executions of communication / (steps x ranks); all times below are such means"),
    Field::real("comm_ms", "ms", "time in which communication of the axis ran"),
    Field::real("wait_ms", "ms", "waiting for late ranks, summed over executions"),
    Field::real("exposed_ms", "ms", "communication that no compute hides, shared equally among concurrent executions"),
    Field::real("exposed_pct", "%", "exposed_ms / mean step"),
    Field::real("share_pct", "%", "exposed_ms / exposed_ms of all axes"),
];

const SHOWN: [Shown; 8] = [
    Shown::new("Run", "run", Show::Text),
    Shown::new("Axis", "axis", Show::Text),
    Shown::new("Calls a step", "calls_per_step", Show::Percent),
    Shown::new("Comm (ms)", "comm_ms", Show::Millis),
    Shown::new("Wait (ms)", "wait_ms", Show::Millis),
    Shown::new("Exposed (ms)", "exposed_ms", Show::Millis).after_bar(),
    Shown::new("of the step (%)", "exposed_pct", Show::Percent),
    Shown::new("of all exposed (%)", "share_pct", Show::Percent),
];

impl Report for ByAxis {
    fn name(&self) -> &'static str {
        "exposure"
    }

    fn about(&self) -> &'static str {
        "Which axis the communication belongs to that no compute hides; adds up to that of the step."
    }

    fn fields(&self) -> &'static [Field] {
        &FIELDS
    }

    fn shown(&self) -> &'static [Shown] {
        &SHOWN
    }

    fn method(&self, _: &View) -> Vec<&'static str> {
        vec![EXPOSED]
    }

    fn table(&self, runs: &[Run]) -> Result<DataFrame> {
        stack(&FIELDS, runs, |run| Ok(rows(run))).map_err(refused(self.name()))
    }
}

/// What the communication of an axis sums up to, over all steps of all ranks.
#[derive(Default)]
struct Sums {
    calls: u64,
    comm_ns: u64,
    wait_ns: u64,
    exposed_ns: u64,
}

fn rows(run: &Run) -> Vec<Row> {
    let sums = sums(run);
    let steps = run.exposure().steps.len() as f64;
    let step_ms = Headline::of(run).map(|headline| headline.step_mean_ms);
    let all_ns: u64 = sums.values().map(|sums| sums.exposed_ns).sum();
    let row = |(axis, sums): (Option<u32>, Sums)| {
        let mean_ns = |ns: u64| Some(ns as f64 / steps);
        let exposed_pct = step_ms.map(|step| 100.0 * (sums.exposed_ns as f64 / steps / 1e6) / step);
        vec![
            ("axis", axis_name(run, axis)),
            ("calls_per_step", Value::real(Some(sums.calls as f64 / steps))),
            ("comm_ms", ms(mean_ns(sums.comm_ns))),
            ("wait_ms", ms(mean_ns(sums.wait_ns))),
            ("exposed_ms", ms(mean_ns(sums.exposed_ns))),
            ("exposed_pct", Value::real(exposed_pct)),
            ("share_pct", Value::real(Some(100.0 * sums.exposed_ns as f64 / all_ns as f64))),
        ]
    };
    sums.into_iter().map(row).collect()
}

/// The sums of each axis that communicates inside the step.
fn sums(run: &Run) -> BTreeMap<Option<u32>, Sums> {
    let (columns, exposed) = (run.measurements(), &run.exposure().exposed_ns);
    let communicates: Vec<bool> =
        run.pattern.blocks.iter().map(|block| Role::of(&block.work) == Role::Communication).collect();
    let mut all: BTreeMap<Option<u32>, Sums> = BTreeMap::new();
    let sorted = in_steps(columns);
    let mut rows = Vec::new();
    for step in steps(columns, &sorted) {
        rows.clear();
        rows.extend(step.iter().map(|row| *row as usize).filter(|row| communicates[columns.block[*row] as usize]));
        rows.sort_by_key(|row| (columns.axis[*row], columns.start_ns[*row]));
        for axis in rows.chunk_by(|a, b| columns.axis[*a] == columns.axis[*b]) {
            let sums = all.entry(columns.axis[axis[0]]).or_default();
            let mut reached = 0;
            for row in axis {
                let (start, end) = (columns.start_ns[*row].max(reached), columns.end_ns[*row]);
                sums.calls += 1;
                sums.comm_ns += end.saturating_sub(start);
                sums.wait_ns += columns.wait_ns.get(*row).unwrap_or(0);
                sums.exposed_ns += exposed.get(*row).unwrap_or(0);
                reached = reached.max(end);
            }
        }
    }
    all
}
