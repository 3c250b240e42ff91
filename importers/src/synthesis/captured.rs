//! The captured executions of blocks as Measurements, so that a capture compares with a replay as two replays do.

use std::collections::HashMap;
use std::sync::Arc;

use maestro_pattern::{Lane, Measurement, State};

use super::axes::Axes;
use super::blocks::{Blocks, Rank};
use super::emit;
use super::resolve::Operation;

/// The captured executions of all blocks.
pub(crate) fn measurements(
    ranks: &[Rank<'_>],
    blocks: &Blocks,
    axes: &Axes,
    lanes: &[Lane],
    lane_of: &[HashMap<i64, usize>],
    offset_ns: &[i64],
) -> Vec<Measurement> {
    let starts = ranks.iter().zip(offset_ns).filter_map(|(rank, offset_ns)| {
        rank.events.events.iter().map(|event| event.start_ns).min().map(|start_ns| start_ns - offset_ns)
    });
    let zero = starts.min().unwrap_or(0);
    let block_names: Vec<Arc<str>> = blocks.blocks.iter().map(|block| block.name.as_str().into()).collect();
    let axis_names: Vec<Arc<str>> = axes.axes.iter().map(|axis| axis.name.as_str().into()).collect();
    let lane_names: Vec<Arc<str>> = lanes.iter().map(|lane| lane.name.as_str().into()).collect();
    let mut all = Vec::new();
    for (r, rank) in ranks.iter().enumerate() {
        let instances = emit::instances(&blocks.block_of[r]);
        for (e, event) in rank.events.events.iter().enumerate() {
            let block = blocks.block_of[r][e];
            let communication = rank.communication(event);
            let timing = communication.and_then(|(_, timing)| timing);
            let time = |ns: i64| (ns - offset_ns[r] - zero).max(0) as u64;
            all.push(Measurement {
                round: 0,
                iteration: 0,
                rank: rank.rank,
                block: block_names[block].clone(),
                axis: communication.map(|(resolved, _)| axis_names[axes.axis_of[resolved.communicator]].clone()),
                lane: lane_names[lane_of[r].get(&event.stream).copied().unwrap_or_default()].clone(),
                instance: instances[e],
                state: State::Overlapped,
                start_ns: time(event.start_ns),
                end_ns: time(event.end_ns),
                wait_ns: timing.map(|timing| timing.wait_ns as u64),
                transfer_ns: timing.map(|timing| timing.transfer_ns as u64),
                // Its own size, where the block's is a mean.
                size_bytes: communication
                    .and_then(|(resolved, _)| match &resolved.operation {
                        Operation::Collective { collective, .. } => collective.size,
                        Operation::Group(_) | Operation::P2p(_) => None,
                    })
                    .or(blocks.blocks[block].work.size()),
            });
        }
    }
    all
}
