//! The report `interference`: how much longer a block takes while a certain other one runs beside it.

mod pairs;

use std::collections::BTreeMap;

use polars::prelude::DataFrame;
use rayon::prelude::*;

use super::frame::{Row, axis_name, ms};
use super::{Field, Report, frame, refused, stack};
use crate::statistics::{Ratio, Sample, ratio_of_medians};
use crate::view::{Show, Shown};
use crate::{Result, Run, Value, View};
use pairs::{Beside, Pair, Who, pairs};

/// One row a pair of blocks that ran at once on a rank, and direction; at least one of them communicates.
pub(super) struct Interference;

const FIELDS: [Field; 21] = [
    Field::text("block", "the block whose time is looked at"),
    Field::text("axis", "its axis"),
    Field::text("kind", "its kind"),
    Field::text("beside", "the block that ran beside it"),
    Field::text("beside_axis", "its axis"),
    Field::text("beside_kind", "its kind"),
    Field::count("executions", "overlapped executions of `block` that have a time"),
    Field::count("with", "those beside which the other ran for at least half of their time"),
    Field::count("partly", "those beside which it ran for less; they are in neither median"),
    Field::count("without", "those beside which it did not run at all"),
    Field::count("alone", "executions of `block` alone"),
    Field::real("beside_pct", "%", "the part of the time of all its executions in which the other ran"),
    Field::real("with_ms", "ms", "median time of those with"),
    Field::real("without_ms", "ms", "median time of those without"),
    Field::real("alone_ms", "ms", "median time alone"),
    Field::real("against_alone", "", "with_ms / alone_ms"),
    Field::real("against_alone_lo", "", "lower end of its 95 % interval; from 3 iterations a side on"),
    Field::real("against_alone_hi", "", "upper end"),
    Field::real("against_without", "", "with_ms / without_ms"),
    Field::real("against_without_lo", "", "lower end of its 95 % interval; from 3 iterations a side on"),
    Field::real("against_without_hi", "", "upper end"),
];

const SHOWN: [Shown; 11] = [
    Shown::new("Run", "run", Show::Text),
    Shown::new("Block", "block", Show::Text),
    Shown::new("Beside", "beside", Show::Text),
    Shown::new("of its time (%)", "beside_pct", Show::Percent),
    Shown::new("With", "with", Show::Count).after_bar(),
    Shown::new("Without", "without", Show::Count),
    Shown::new("With (ms)", "with_ms", Show::Millis),
    Shown::new("Without (ms)", "without_ms", Show::Millis),
    Shown::new("Alone (ms)", "alone_ms", Show::Millis),
    Shown::new("With / alone", "against_alone", Show::Factor).after_bar(),
    Shown::new("With / without", "against_without", Show::Factor),
];

const METHOD: &str = "Time = transfer of communication, latency of the rest; medians. With = the other block was at work \
    for at least half of that time on the same rank, without = not at all; what lies between is in neither.";
const CAUSE: &str = "Executions with and without differ in their place in the step, too; what is always beside several \
    blocks shows the same factor for each.";

impl Report for Interference {
    fn name(&self) -> &'static str {
        "interference"
    }

    fn about(&self) -> &'static str {
        "How much longer each block takes while a certain other one runs beside it, both ways."
    }

    fn fields(&self) -> &'static [Field] {
        &FIELDS
    }

    fn shown(&self) -> &'static [Shown] {
        &SHOWN
    }

    fn method(&self, _: &View) -> Vec<&'static str> {
        vec![METHOD, CAUSE]
    }

    fn table(&self, runs: &[Run]) -> Result<DataFrame> {
        stack(&FIELDS, runs, |run| Ok(rows(run))).map_err(refused(self.name()))
    }
}

fn rows(run: &Run) -> Vec<Row> {
    let numbers = frame::steps(run.measurements());
    let sides = sides(run, &numbers);
    pairs(run, &numbers).into_par_iter().map(|pair| row(run, pair, &sides, &numbers)).collect()
}

/// All executions of a block on an axis.
struct Side {
    /// Rows of the overlapped ones that have a time, ascending.
    overlapped: Vec<u32>,
    /// Sum of their times.
    total_ns: u64,
    alone: Sample,
}

fn sides(run: &Run, numbers: &[u32]) -> BTreeMap<Who, Side> {
    let timed = |row: &u32| run.compared_ns(*row as usize);
    let side = |group: frame::Group| {
        let overlapped: Vec<u32> = group.overlapped.into_iter().filter(|row| timed(row).is_some()).collect();
        let total_ns = overlapped.iter().filter_map(timed).sum();
        let alone = group.alone.iter().filter_map(|row| Some((timed(row)?, numbers[*row as usize]))).collect();
        ((group.block, group.axis), Side { overlapped, total_ns, alone: Sample::new(alone) })
    };
    frame::groups(run).into_par_iter().map(side).collect()
}

fn row(run: &Run, pair: Pair, sides: &BTreeMap<Who, Side>, numbers: &[u32]) -> Row {
    let (one, other, side) = (pair.one, pair.other, &sides[&pair.one]);
    let timed = |row: u32| Some((run.compared_ns(row as usize)?, numbers[row as usize]));
    let Beside { mut touched, with, ns: beside_ns } = pair.found;
    touched.sort_unstable();
    let partly = touched.len() - with.len();
    // Both are ascending, so a walk tells them apart.
    let mut touched = touched.into_iter().peekable();
    let mut untouched = |row: &u32| {
        while touched.next_if(|next| next < row).is_some() {}
        touched.next_if_eq(row).is_none()
    };
    let without = side.overlapped.iter().copied().filter(|row| untouched(row)).filter_map(timed).collect();
    let (with, without) = (Sample::new(with), Sample::new(without));
    let (alone, elsewhere) = (ratio_of_medians(&with, &side.alone), ratio_of_medians(&with, &without));
    let bound =
        |ratio: Option<Ratio>, which: fn((f64, f64)) -> f64| Value::real(ratio.and_then(|r| r.interval).map(which));
    let name = |who: Who| Value::Text(run.pattern.blocks[who.0 as usize].name.clone());
    let kind = |who: Who| Value::text(Some(run.pattern.blocks[who.0 as usize].work.kind()));
    let count = |n: usize| Value::Integer(n as u64);
    vec![
        ("block", name(one)),
        ("axis", axis_name(run, one.1)),
        ("kind", kind(one)),
        ("beside", name(other)),
        ("beside_axis", axis_name(run, other.1)),
        ("beside_kind", kind(other)),
        ("executions", count(side.overlapped.len())),
        ("with", count(with.values().len())),
        ("partly", count(partly)),
        ("without", count(without.values().len())),
        ("alone", count(side.alone.values().len())),
        ("beside_pct", Value::real(Some(100.0 * beside_ns as f64 / side.total_ns as f64))),
        ("with_ms", ms(with.median())),
        ("without_ms", ms(without.median())),
        ("alone_ms", ms(side.alone.median())),
        ("against_alone", Value::real(alone.map(|ratio| ratio.value))),
        ("against_alone_lo", bound(alone, |(low, _)| low)),
        ("against_alone_hi", bound(alone, |(_, high)| high)),
        ("against_without", Value::real(elsewhere.map(|ratio| ratio.value))),
        ("against_without_lo", bound(elsewhere, |(low, _)| low)),
        ("against_without_hi", bound(elsewhere, |(_, high)| high)),
    ]
}
