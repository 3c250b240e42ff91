//! The report `fidelity`: the captured step beside its replay, as a whole and block by block.

mod errors;

use maestro_pattern::State;
use polars::prelude::DataFrame;

use super::frame::{self, Group, Row, axis_name};
use super::{Field, Report, refused, stack};
use crate::view::{Show, Shown};
use crate::{Headline, Origin, Result, Run, Value, View};
use errors::Errors;

/// One row a run for the step, then one for each of its blocks. What was captured is taken from a captured run of the
/// same pattern among the runs; without one, from the times that the pattern keeps.
pub(super) struct ByBlock;

const FIELDS: [Field; 16] = [
    Field::text("level", "step or block"),
    Field::text("block", "name of the block"),
    Field::text("axis", "axis, of blocks that communicate"),
    Field::text("kind", "kind of the block"),
    Field::text("against", "where the captured times come from: the id of the captured run, or `pattern`"),
    Field::count("executions", "overlapped executions in the run"),
    Field::real("calls_per_step", "", "overlapped executions / (steps x ranks)"),
    Field::real("captured_ms", "ms", "captured: length of the step; of a block its mean time"),
    Field::real("replayed_ms", "ms", "the same of the run: median step; mean time overlapped"),
    Field::real("difference_ms", "ms", "replayed_ms - captured_ms"),
    Field::real("difference_pct", "%", "difference_ms / captured_ms"),
    Field::real("a_step_ms", "ms", "difference_ms x calls_per_step"),
    Field::real("start_error_ms", "ms", "mean of |start - captured start| over matched executions"),
    Field::real("end_error_ms", "ms", "the same of the ends"),
    Field::count("matched", "executions of the typical iteration that both sides have"),
    Field::count("unmatched", "those that one side has"),
];

const SHOWN: [Shown; 12] = [
    Shown::new("Run", "run", Show::Text),
    Shown::new("Of", "level", Show::Text),
    Shown::new("Block", "block", Show::Text),
    Shown::new("Axis", "axis", Show::Text),
    Shown::new("Captured (ms)", "captured_ms", Show::Millis),
    Shown::new("Replayed (ms)", "replayed_ms", Show::Millis),
    Shown::new("Difference (ms)", "difference_ms", Show::Millis).after_bar(),
    Shown::new("(%)", "difference_pct", Show::Percent),
    Shown::new("A step (ms)", "a_step_ms", Show::Millis),
    Shown::new("Starts off by (ms)", "start_error_ms", Show::Millis).after_bar(),
    Shown::new("Ends", "end_error_ms", Show::Millis),
    Shown::new("Unmatched", "unmatched", Show::Count),
];

const METHOD: &str = "Of the step: the captured length and the median replayed one. Of a block: mean times, the transfer \
    of communication and the latency of the rest; a step = the difference times its calls a step.";
const MATCHED: &str = "Starts and ends: mean distance from the captured ones, by rank, block and instance, in the \
    iteration of median length; of the step that of its communication. Nothing is shifted before comparing.";
const FROM_PATTERN: &str = "Captured times are those that the pattern keeps, means over its capture; with the captured \
    run beside it (`maestro import --run`) starts and ends are compared, too.";
const NOTHING: &str = "Nothing here was captured: give a captured run (`maestro import --run`) and a replay of it, or a \
    run whose pattern keeps captured times.";

impl Report for ByBlock {
    fn name(&self) -> &'static str {
        "fidelity"
    }

    fn about(&self) -> &'static str {
        "The captured step beside its replay, as a whole and block by block, with the difference."
    }

    fn fields(&self) -> &'static [Field] {
        &FIELDS
    }

    fn shown(&self) -> &'static [Shown] {
        &SHOWN
    }

    fn method(&self, view: &View) -> Vec<&'static str> {
        if view.rows.is_empty() {
            return vec![NOTHING];
        }
        let (matched, _) = super::presence(view, "matched");
        let kept = Value::text(Some(PATTERN));
        let from_pattern = (0..view.rows.len()).any(|row| view.value(row, "against") == &kept);
        let mut lines = vec![METHOD];
        lines.extend(matched.then_some(MATCHED));
        lines.extend(from_pattern.then_some(FROM_PATTERN));
        lines
    }

    fn table(&self, runs: &[Run]) -> Result<DataFrame> {
        let reference = |run: &Run| {
            let same =
                |other: &&Run| other.info.made_by == Origin::Import && other.info.pattern.name == run.info.pattern.name;
            runs.iter().find(same)
        };
        stack(&FIELDS, runs, |run| Ok(rows(run, reference(run)))).map_err(refused(self.name()))
    }
}

/// What stands for a run where the pattern itself keeps the captured times.
const PATTERN: &str = "pattern";

/// The rows of a run that was not captured itself; none where nothing was captured.
fn rows(run: &Run, captured: Option<&Run>) -> Vec<Row> {
    if run.info.made_by == Origin::Import {
        return Vec::new();
    }
    let against = captured.map_or(PATTERN, |captured| &captured.info.id);
    let errors = captured.map(|captured| Errors::of(run, captured));
    let mut rows = vec![of_step(run, captured, errors.as_ref())];
    for group in frame::groups(run).into_iter().filter(|group| !group.overlapped.is_empty()) {
        rows.push(of_block(run, captured, &group, errors.as_ref()));
    }
    if rows.iter().all(|row| row.iter().all(|(key, value)| *key != "captured_ms" || *value == Value::Missing)) {
        return Vec::new();
    }
    rows.iter_mut().for_each(|row| row.push(("against", Value::Text(against.to_owned()))));
    rows
}

fn of_step(run: &Run, captured: Option<&Run>, errors: Option<&Errors>) -> Row {
    let median_ms = |run: &Run| Headline::of(run).map(|headline| headline.step_median_ms);
    let kept = run.pattern.source.as_ref().and_then(|source| source.step_ns).map(|ns| ns as f64 / 1e6);
    let captured_ms = captured.map_or(kept, median_ms);
    let mut row = vec![("level", Value::Text("step".into()))];
    row.extend(differences(captured_ms, median_ms(run), Some(1.0)));
    if let Some(errors) = errors {
        row.extend(errors.communication.values());
    }
    row
}

fn of_block(run: &Run, captured: Option<&Run>, group: &Group, errors: Option<&Errors>) -> Row {
    let columns = run.measurements();
    let calls = group.overlapped.len() as f64 / run.exposure().steps.len() as f64;
    let block = &run.pattern.blocks[group.block as usize];
    let kept = || mean(group.overlapped.iter().map(|row| block.captured_on(columns.rank[*row as usize] as usize)));
    let captured_ns = captured.map_or_else(kept, |captured| mean(same(run, captured, group)));
    let replayed_ns = mean(group.overlapped.iter().map(|row| run.compared_ns(*row as usize)));
    let mut row = Row::from(group.names(run));
    row.extend([
        ("level", Value::Text("block".into())),
        ("axis", axis_name(run, group.axis)),
        ("executions", Value::Integer(group.overlapped.len() as u64)),
        ("calls_per_step", Value::real(Some(calls))),
    ]);
    let in_ms = |ns: Option<f64>| ns.map(|ns| ns / 1e6);
    row.extend(differences(in_ms(captured_ns), in_ms(replayed_ns), Some(calls)));
    let of_group = errors.and_then(|errors| errors.blocks.get(&(block.name.as_str(), axis_text(run, group.axis))));
    row.extend(of_group.into_iter().flat_map(|pairs| pairs.values()));
    row
}

/// What is compared of the captured executions of the block and axis of `group`, by name.
fn same<'a>(run: &'a Run, captured: &'a Run, group: &'a Group) -> impl Iterator<Item = Option<u64>> + 'a {
    let columns = captured.measurements();
    let block = captured.pattern.blocks.iter().position(|b| b.name == run.pattern.blocks[group.block as usize].name);
    let axis = axis_text(run, group.axis);
    (0..columns.len())
        .filter(move |row| {
            Some(columns.block[*row] as usize) == block && axis_text(captured, columns.axis[*row]) == axis
        })
        .filter(|row| columns.state[*row] == State::Overlapped)
        .map(|row| captured.compared_ns(row))
}

fn axis_text(run: &Run, axis: Option<u32>) -> Option<&str> {
    axis.and_then(|axis| run.world.axes().get(axis as usize)).map(|axis| axis.name.as_str())
}

/// The mean of those that are known.
fn mean(ns: impl Iterator<Item = Option<u64>>) -> Option<f64> {
    let (sum, count) = ns.flatten().fold((0u64, 0u64), |(sum, count), ns| (sum + ns, count + 1));
    (count > 0).then(|| sum as f64 / count as f64)
}

fn differences(captured_ms: Option<f64>, replayed_ms: Option<f64>, calls: Option<f64>) -> [(&'static str, Value); 5] {
    let difference = captured_ms.zip(replayed_ms).map(|(captured, replayed)| replayed - captured);
    [
        ("captured_ms", Value::real(captured_ms)),
        ("replayed_ms", Value::real(replayed_ms)),
        ("difference_ms", Value::real(difference)),
        ("difference_pct", Value::real(difference.zip(captured_ms).map(|(by, captured)| 100.0 * by / captured))),
        ("a_step_ms", Value::real(difference.zip(calls).map(|(by, calls)| by * calls))),
    ]
}
