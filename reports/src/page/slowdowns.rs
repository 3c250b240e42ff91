//! How much slower each rank has each block overlapped than alone.

use std::collections::BTreeMap;

use maestro_pattern::State;
use serde::Serialize;

use super::sources::{Blocks, Source};
use crate::statistics::median;

/// Most ranks that one heat map shows.
const MOST: u32 = 64;

/// Block x rank of one run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Slowdowns {
    /// Number of the run.
    run: usize,
    ranks: Vec<u32>,
    rows: Vec<Row>,
}

/// One block.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    /// Number of the block on the page.
    block: usize,
    /// Per rank: median overlapped / median alone; missing where a rank lacks one.
    factors: Vec<Option<f64>>,
}

/// The slowdowns of run number `run`; `None` if nothing ran alone, or on more ranks than can be drawn.
pub(super) fn of(sources: &[Source<'_>], blocks: &Blocks, run: usize) -> Option<Slowdowns> {
    let source = sources[run].run;
    let ranks = source.world.size();
    if ranks > MOST {
        return None;
    }
    let columns = source.measurements();
    let mut times: BTreeMap<(usize, u32), [Vec<u64>; 2]> = BTreeMap::new();
    for row in 0..columns.len() {
        let Some(ns) = source.compared_ns(row) else { continue };
        let side = match columns.state[row] {
            State::Overlapped => 0,
            State::Alone => 1,
        };
        times.entry((blocks.number(sources, run, row), columns.rank[row])).or_default()[side].push(ns);
    }
    let mut rows: BTreeMap<usize, Vec<Option<f64>>> = BTreeMap::new();
    for ((block, rank), [mut overlapped, mut alone]) in times {
        let factor = median(&mut overlapped)
            .zip(median(&mut alone).filter(|ns| *ns > 0.0))
            .map(|(overlapped, alone)| overlapped / alone);
        rows.entry(block).or_insert_with(|| vec![None; ranks as usize])[rank as usize] = factor;
    }
    rows.retain(|_, factors| factors.iter().any(Option::is_some));
    let rows: Vec<Row> = rows.into_iter().map(|(block, factors)| Row { block, factors }).collect();
    (!rows.is_empty()).then(|| Slowdowns { run, ranks: (0..ranks).collect(), rows })
}
