//! The measurements of a run as a data frame, one row an execution, with what the reports group and average.

use std::collections::HashMap;

use maestro_pattern::{State, World};
use polars::prelude::*;

use crate::{Columns, Nullable, Run};

/// One row an execution:
///
/// | column | type | what |
/// |---|---|---|
/// | step | u32 | number of its iteration in the run |
/// | rank, block | u32 | global rank, index into the pattern's blocks |
/// | axis | u32? | index into the world's axes |
/// | overlapped | bool | inside the step; otherwise alone |
/// | latency_ns | u64 | time on its lane |
/// | wait_ns, transfer_ns, size_bytes | u64? | as measured |
/// | compared_ns | u64? | what slowdown compares: transfer of communication, latency of everything else |
/// | bus_bytes | f64? | size x the bus factor of the team: divided by transfer it is the bus bandwidth |
/// | exposed_ns | u64? | its share of the exposed time of its step |
pub(super) fn executions(run: &Run) -> PolarsResult<DataFrame> {
    let columns = run.measurements();
    let overlapped = columns.state.iter().map(|state| *state == State::Overlapped);
    let latency_ns = (0..columns.len()).map(|row| columns.latency_ns(row));
    let compared_ns = (0..columns.len()).map(|row| run.compared_ns(row));
    DataFrame::new(
        columns.len(),
        vec![
            UInt32Chunked::from_vec("step".into(), steps(columns)).into_column(),
            UInt32Chunked::from_slice("rank".into(), &columns.rank).into_column(),
            UInt32Chunked::from_slice("block".into(), &columns.block).into_column(),
            UInt32Chunked::from_iter_options("axis".into(), columns.axis.iter().copied()).into_column(),
            BooleanChunked::from_iter_values("overlapped".into(), overlapped).into_column(),
            UInt64Chunked::from_iter_values("latency_ns".into(), latency_ns).into_column(),
            nullable("wait_ns", &columns.wait_ns),
            nullable("transfer_ns", &columns.transfer_ns),
            nullable("size_bytes", &columns.size_bytes),
            UInt64Chunked::from_iter_options("compared_ns".into(), compared_ns).into_column(),
            Float64Chunked::from_iter_options("bus_bytes".into(), bus_bytes(run)).into_column(),
            nullable("exposed_ns", &run.exposure().exposed_ns),
        ],
    )
}

/// The column `<name>_ns` of a table as `<name>_ms`.
///
/// Not an expression, since Polars multiplies by the reciprocal: 200,000 ns would become 0.19999999999999998 ms.
pub(super) fn milliseconds(table: &DataFrame, name: &str) -> PolarsResult<Column> {
    let ns = table.column(&format!("{name}_ns"))?.cast(&DataType::Float64)?;
    Ok(ns.f64()?.apply_values(|ns| ns / 1e6).with_name(format!("{name}_ms").into()).into_column())
}

fn nullable(name: &str, values: &Nullable) -> Column {
    UInt64Chunked::from_iter_options(name.into(), values.iter()).into_column()
}

/// Numbers the (round, iteration) pairs of a run in the order in which they appear.
fn steps(columns: &Columns) -> Vec<u32> {
    let mut known = HashMap::new();
    let pairs = columns.round.iter().zip(&columns.iteration);
    pairs
        .map(|pair| {
            let next = known.len() as u32;
            *known.entry(pair).or_insert(next)
        })
        .collect()
}

/// Teams of one axis may differ in size, so the factor is the execution's, not the block's.
fn bus_bytes(run: &Run) -> impl Iterator<Item = Option<f64>> {
    let columns = run.measurements();
    (0..columns.len()).map(move |row| {
        let size_bytes = columns.size_bytes.get(row)?;
        let ranks = team_size(&run.world, columns.axis[row]?, columns.rank[row])?;
        let factor = run.pattern.blocks[columns.block[row] as usize].work.bus_factor(ranks)?;
        Some(size_bytes as f64 * factor)
    })
}

/// How many ranks the team has that `rank` belongs to on an axis.
fn team_size(world: &World, axis: u32, rank: u32) -> Option<usize> {
    let (team, _) = world.seat(axis as usize, rank)?;
    world.teams(axis as usize).get(team as usize).map(Vec::len)
}
