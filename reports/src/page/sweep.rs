//! The curves of a sweep: the step and each block over a size or a setting.
//!
//! What a run was given stands in its run.json (`environment.variant`). Three runs or more that were given values of the
//! same names are a sweep, whoever made them. The first name along which all values are numbers is the axis, sizes before
//! settings; if none is, the first of all. Each choice of the others is a panel of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::cells::Cells;
use super::sources::{Blocks, Source};
use crate::{Origin, View};

/// Fewest runs of a sweep: fewer are a comparison.
const FEWEST: usize = 3;

/// The name under which a sweep keeps the size that it gave to blocks, in bytes.
const SIZE: &str = "size";

/// A sweep, with a point a run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Sweep {
    /// The name along the axis.
    pub axis: String,
    /// Whether its values are numbers; their order is that of the runs otherwise.
    numeric: bool,
    /// Whether they are bytes.
    bytes: bool,
    points: Vec<Point>,
    blocks: Vec<Block>,
}

/// A run, and its step.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Point {
    /// Number of the run.
    pub run: usize,
    /// Its place on the axis: the value, or if that is no number its place among the values.
    x: f64,
    /// The value as it was given.
    value: String,
    /// What else the run was given; empty if nothing.
    panel: String,
    step_ns: Option<u64>,
    exposed_ns: Option<u64>,
}

/// A block of one run.
#[derive(Debug, PartialEq, Serialize)]
struct Block {
    run: usize,
    /// Number of the block on the page.
    block: usize,
    overlapped_ns: Option<u64>,
    alone_ns: Option<u64>,
    busbw_gbps: Option<f64>,
    alone_busbw_gbps: Option<f64>,
    slowdown: Option<f64>,
}

/// The name of the axis and those of the panels, if `sources` are a sweep.
pub(super) fn names<'a>(sources: &[Source<'a>]) -> Option<(&'a str, Vec<&'a str>)> {
    let variants: Vec<&BTreeMap<String, String>> =
        sources.iter().map(|source| &source.run.info.environment.variant).collect();
    let first = *variants.first()?;
    let alike = variants.iter().all(|variant| variant.keys().eq(first.keys()));
    let captured = sources.iter().any(|source| source.run.info.made_by == Origin::Import);
    if variants.len() < FEWEST || first.is_empty() || !alike || captured {
        return None;
    }
    let values = |name: &str| variants.iter().map(|variant| variant[name].as_str()).collect::<BTreeSet<&str>>();
    let varied: Vec<&str> = first.keys().map(String::as_str).filter(|name| values(name).len() > 1).collect();
    let numeric = |name: &&&str| values(name).iter().all(|value| number(value).is_some());
    let axis = varied.iter().find(|name| **name == SIZE).or_else(|| varied.iter().find(numeric)).or(varied.first())?;
    Some((axis, varied.iter().copied().filter(|name| name != axis).collect()))
}

/// What the run of `source` was given, for people.
pub(super) fn given(source: &Source<'_>) -> String {
    let variant = source.run.info.environment.variant.iter();
    variant.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
}

fn number(value: &str) -> Option<f64> {
    value.parse().ok().filter(|number: &f64| number.is_finite())
}

/// The curves, if `sources` are a sweep; from the tables `steps` and `blocks`.
pub(super) fn of(sources: &[Source<'_>], numbers: &Blocks, steps: &View, blocks: &View) -> Option<Sweep> {
    let (axis, others) = names(sources)?;
    let given = |source: &Source<'_>, name: &str| source.run.info.environment.variant.get(name).cloned();
    let values: Vec<String> = sources.iter().map(|source| given(source, axis)).collect::<Option<_>>()?;
    let numeric = values.iter().all(|value| number(value).is_some());
    let x = |value: &String| {
        let place = || values.iter().position(|other| other == value).unwrap_or(0) as f64;
        number(value).filter(|_| numeric).unwrap_or_else(place)
    };
    let mut points: Vec<Point> = Vec::new();
    for (run, (source, value)) in sources.iter().zip(&values).enumerate() {
        let row = Cells::all(steps).find(|row| row.run(sources) == Some(run));
        let panel: Vec<String> =
            others.iter().filter_map(|name| Some(format!("{name}={}", given(source, name)?))).collect();
        points.push(Point {
            run,
            x: x(value),
            value: value.clone(),
            panel: panel.join(" "),
            step_ns: row.and_then(|row| row.ns("step_median_ms")),
            exposed_ns: row.and_then(|row| row.ns("exposed_ms")),
        });
    }
    let blocks = Cells::all(blocks).filter_map(|row| {
        Some(Block {
            run: row.run(sources)?,
            block: row.block(numbers, "block", "axis")?,
            overlapped_ns: row.ns("overlap_median_ms"),
            alone_ns: row.ns("alone_median_ms"),
            busbw_gbps: row.real("busbw_gbps"),
            alone_busbw_gbps: row.real("alone_busbw_gbps"),
            slowdown: row.real("slowdown"),
        })
    });
    Some(Sweep { axis: axis.to_owned(), numeric, bytes: axis == SIZE && numeric, points, blocks: blocks.collect() })
}
