//! From measurements to data frames: executions in groups, and rows of values as the columns of a table.

use std::collections::HashMap;

use maestro_pattern::{State, World};
use polars::prelude::*;

use super::schema::{Field, Kind};
use crate::{Columns, Run, Value};

/// The executions of one block on one axis, as rows of the run's columns.
///
/// A run is looked at group by group, each a frame of its own: one frame of everything would double what ten million
/// measurements take.
pub(super) struct Group {
    /// Index into the pattern's blocks.
    pub block: u32,
    /// Index into the world's axes.
    pub axis: Option<u32>,
    /// Rows inside the step.
    pub overlapped: Vec<u32>,
    /// Rows by itself.
    pub alone: Vec<u32>,
}

/// All groups that have executions, in the order of the pattern's blocks.
pub(super) fn groups(run: &Run) -> Vec<Group> {
    let columns = run.measurements();
    let (blocks, axes) = (run.pattern.blocks.len(), run.world.axes().len() + 1);
    let place = |row: usize| columns.block[row] as usize * axes + columns.axis[row].map_or(0, |axis| axis as usize + 1);
    let mut sizes = vec![[0; 2]; blocks * axes];
    let side = |row: usize| match columns.state[row] {
        State::Overlapped => 0,
        State::Alone => 1,
    };
    for row in 0..columns.len() {
        sizes[place(row)][side(row)] += 1;
    }
    let mut rows: Vec<[Vec<u32>; 2]> = sizes.iter().map(|sizes| sizes.map(Vec::with_capacity)).collect();
    for row in 0..columns.len() {
        rows[place(row)][side(row)].push(row as u32);
    }
    let group = |(place, [overlapped, alone]): (usize, [Vec<u32>; 2])| {
        let axis = (place % axes).checked_sub(1).map(|axis| axis as u32);
        (!overlapped.is_empty() || !alone.is_empty()).then(|| Group {
            block: (place / axes) as u32,
            axis,
            overlapped,
            alone,
        })
    };
    rows.into_iter().enumerate().filter_map(group).collect()
}

impl Group {
    /// Names: block, axis, and the kind of the block.
    pub(super) fn names(&self, run: &Run) -> [(&'static str, Value); 3] {
        [
            ("block", Value::Text(run.pattern.blocks[self.block as usize].name.clone())),
            ("axis", axis_name(run, self.axis)),
            ("kind", Value::Text(run.pattern.blocks[self.block as usize].work.kind().to_owned())),
        ]
    }
}

/// The name of an axis.
pub(super) fn axis_name(run: &Run, axis: Option<u32>) -> Value {
    Value::text(axis.and_then(|axis| run.world.axes().get(axis as usize)).map(|axis| axis.name.as_str()))
}

/// Rows of a run as a frame, one row an execution:
///
/// | column | type | what |
/// |---|---|---|
/// | latency_ns | u64 | time on its lane |
/// | wait_ns, transfer_ns, size_bytes | u64? | as measured |
/// | bus_bytes | f64? | size x the bus factor of the team: divided by transfer it is the bus bandwidth |
/// | ranks | u64? | ranks of its team |
/// | exposed_ns | u64? | its share of the exposed time of its step |
pub(super) fn executions(run: &Run, rows: &[u32]) -> PolarsResult<DataFrame> {
    let columns = run.measurements();
    let u64s = |name: &str, of: &dyn Fn(usize) -> u64| {
        UInt64Chunked::from_iter_values(name.into(), rows.iter().map(|row| of(*row as usize))).into_column()
    };
    let nullable = |name: &str, of: &dyn Fn(usize) -> Option<u64>| {
        UInt64Chunked::from_iter_options(name.into(), rows.iter().map(|row| of(*row as usize))).into_column()
    };
    let team = |row: usize| team_size(&run.world, columns.axis[row]?, columns.rank[row]);
    let bus_bytes = rows.iter().map(|row| {
        let row = *row as usize;
        let factor = run.pattern.blocks[columns.block[row] as usize].work.bus_factor(team(row)?)?;
        Some(columns.size_bytes.get(row)? as f64 * factor)
    });
    DataFrame::new(
        rows.len(),
        vec![
            u64s("latency_ns", &|row| columns.latency_ns(row)),
            nullable("wait_ns", &|row| columns.wait_ns.get(row)),
            nullable("transfer_ns", &|row| columns.transfer_ns.get(row)),
            nullable("size_bytes", &|row| columns.size_bytes.get(row)),
            Float64Chunked::from_iter_options("bus_bytes".into(), bus_bytes).into_column(),
            nullable("ranks", &|row| team(row).map(|ranks| ranks as u64)),
            nullable("exposed_ns", &|row| run.exposure().exposed_ns.get(row)),
        ],
    )
}

/// Numbers the iterations of a run, (round, iteration), in the order in which they appear: one number a row.
pub(super) fn steps(columns: &Columns) -> Vec<u32> {
    let mut known = HashMap::new();
    let mut last = None;
    let pairs = columns.round.iter().zip(&columns.iteration);
    pairs
        .map(|pair| match last {
            // Executions of an iteration follow each other, so it is mostly the last one's.
            Some((same, step)) if same == pair => step,
            _ => {
                let next = known.len() as u32;
                let step = *known.entry(pair).or_insert(next);
                last = Some((pair, step));
                step
            }
        })
        .collect()
}

/// How many ranks the team has that `rank` belongs to on an axis.
fn team_size(world: &World, axis: u32, rank: u32) -> Option<usize> {
    let (team, _) = world.seat(axis as usize, rank)?;
    world.teams(axis as usize).get(team as usize).map(Vec::len)
}

/// A row of a table: keys with their values, in any order; what is not named is missing.
pub(crate) type Row = Vec<(&'static str, Value)>;

/// The table of `rows` with the columns of `fields`.
pub(super) fn table(fields: &[Field], rows: &[Row]) -> PolarsResult<DataFrame> {
    if let Some((key, _)) = rows.iter().flatten().find(|(key, _)| fields.iter().all(|field| field.key != *key)) {
        polars_bail!(ColumnNotFound: "{} is no field of the table", key);
    }
    let values = |key: &'static str| {
        rows.iter().map(move |row| row.iter().find(|(known, _)| *known == key).map_or(&Value::Missing, |(_, v)| v))
    };
    let columns = fields.iter().map(|field| {
        let name = field.key.into();
        match field.kind {
            Kind::Text => StringChunked::from_iter_options(name, values(field.key).map(text)).into_column(),
            Kind::Count => UInt64Chunked::from_iter_options(name, values(field.key).map(count)).into_column(),
            Kind::Real => Float64Chunked::from_iter_options(name, values(field.key).map(real)).into_column(),
        }
    });
    DataFrame::new(rows.len(), columns.collect())
}

fn text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn count(value: &Value) -> Option<u64> {
    if let Value::Integer(count) = value { Some(*count) } else { None }
}

fn real(value: &Value) -> Option<f64> {
    if let Value::Real(real) = value { Some(*real) } else { None }
}

/// Nanoseconds as milliseconds. A division, since 200,000 x 1e-6 is 0.19999999999999998.
pub(super) fn ms(ns: Option<f64>) -> Value {
    Value::real(ns.map(|ns| ns / 1e6))
}

/// How times are spread, in nanoseconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Spread {
    pub avg: Option<f64>,
    pub median: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Nearest rank; of 20 values and more.
    pub p95: Option<f64>,
    /// Nearest rank; of 100 values and more.
    pub p99: Option<f64>,
    /// Standard deviation of a sample.
    pub sd: Option<f64>,
}

/// Fewest values for a P95 and for a P99: below, they would be the maximum.
const FEWEST_FOR: (usize, usize) = (20, 100);

impl Spread {
    /// Of values in ascending order.
    pub(super) fn of(sorted: &[u64]) -> PolarsResult<Self> {
        let mut values = UInt64Chunked::from_slice("ns".into(), sorted);
        // Quantiles of what is known to be sorted are looked up.
        values.set_sorted_flag(polars::series::IsSorted::Ascending);
        let quantile = |q: f64, fewest: usize| {
            if sorted.len() < fewest { Ok(None) } else { values.quantile(q, QuantileMethod::Equiprobable) }
        };
        let end = |value: Option<&u64>| value.map(|ns| *ns as f64);
        Ok(Self {
            avg: values.mean(),
            median: values.median(),
            min: end(sorted.first()),
            max: end(sorted.last()),
            p95: quantile(0.95, FEWEST_FOR.0)?,
            p99: quantile(0.99, FEWEST_FOR.1)?,
            sd: values.std(1),
        })
    }

    /// Standard deviation / mean, in percent.
    pub(super) fn cv_pct(&self) -> Value {
        Value::real(self.sd.zip(self.avg).map(|(sd, avg)| 100.0 * sd / avg))
    }
}
