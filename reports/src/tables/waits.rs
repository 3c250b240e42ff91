//! The report `waits`: how each rank waited for the others, step by step; who comes last shows as a stripe.

use polars::prelude::DataFrame;

use super::frame::{Row, ms};
use super::{Field, Report, refused, stack};
use crate::view::{Show, Shown};
use crate::{Result, Run, Value, View};

/// One row a rank and overlapped iteration, by round, iteration and rank.
pub(super) struct Waits;

const FIELDS: [Field; 12] = [
    Field::count("round", "round of the interleaving, from 0"),
    Field::count("iteration", "iteration inside the round, from 0"),
    Field::count("rank", "global rank"),
    Field::real("span_ms", "ms", "from its first start to its last end"),
    Field::real("wait_ms", "ms", "waiting for late ranks, summed over its executions"),
    Field::count("calls", "executions of communication whose wait is known"),
    Field::count("last", "those in which this rank came last and waited for nobody"),
    Field::real("comm_ms", "ms", "time in which communication ran"),
    Field::real("compute_ms", "ms", "time in which compute ran"),
    Field::real("exposed_ms", "ms", "time in which communication ran and compute did not"),
    Field::real("copies_ms", "ms", "time in which only copies and sets ran"),
    Field::real("idle_ms", "ms", "time in which nothing ran"),
];

const SHOWN: [Shown; 9] = [
    Shown::new("Run", "run", Show::Text),
    Shown::new("Round", "round", Show::Count),
    Shown::new("Iteration", "iteration", Show::Count),
    Shown::new("Rank", "rank", Show::Count),
    Shown::new("Span (ms)", "span_ms", Show::Millis),
    Shown::new("Wait (ms)", "wait_ms", Show::Millis).after_bar(),
    Shown::new("Calls", "calls", Show::Count),
    Shown::new("Last", "last", Show::Count),
    Shown::new("Exposed (ms)", "exposed_ms", Show::Millis),
];

const METHOD: &str = "Wait = from the arrival of a rank to that of the last of its team, summed over the communication \
    of a step; Last counts the calls in which nobody came later. A rank that is last again and again makes the others \
    wait.";

impl Report for Waits {
    fn name(&self) -> &'static str {
        "waits"
    }

    fn about(&self) -> &'static str {
        "How long each rank waited for the others in each step, and how often it came last."
    }

    fn fields(&self) -> &'static [Field] {
        &FIELDS
    }

    fn shown(&self) -> &'static [Shown] {
        &SHOWN
    }

    fn method(&self, _: &View) -> Vec<&'static str> {
        vec![METHOD]
    }

    fn table(&self, runs: &[Run]) -> Result<DataFrame> {
        stack(&FIELDS, runs, |run| Ok(rows(run))).map_err(refused(self.name()))
    }
}

fn rows(run: &Run) -> Vec<Row> {
    let ns = |ns: u64| ms(Some(ns as f64));
    let row = |step: &crate::RankStep| {
        let (figures, waits) = (&step.figures, &step.waits);
        vec![
            ("round", Value::Integer(step.round.into())),
            ("iteration", Value::Integer(step.iteration.into())),
            ("rank", Value::Integer(step.rank.into())),
            ("span_ms", ns(figures.span_ns)),
            ("wait_ms", ns(waits.wait_ns)),
            ("calls", Value::Integer(waits.calls.into())),
            ("last", Value::Integer(waits.last.into())),
            ("comm_ms", ns(figures.communication_ns)),
            ("compute_ms", ns(figures.compute_ns)),
            ("exposed_ms", ns(figures.exposed_ns)),
            ("copies_ms", ns(figures.copies_ns)),
            ("idle_ms", ns(figures.idle_ns())),
        ]
    };
    run.exposure().steps.iter().map(row).collect()
}
