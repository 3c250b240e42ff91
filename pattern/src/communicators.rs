//! The communicators that programs need, in the one global order in which all ranks create them.

use std::collections::{BTreeSet, HashSet};

use crate::{
    AxisId, BlockId, Collective, CommSettings, Communicator, Error, Instruction, LaneId, Pattern, Result, Work, World,
};

/// Every communicator that the programs need, and a check of each block against every team that runs it.
pub(crate) fn communicators(
    pattern: &Pattern,
    world: &World,
    classes: &[Vec<Instruction>],
    class_of: &[u32],
) -> Result<Vec<Communicator>> {
    // (axis, team, lane) in that order is the one global order in which communicators are created.
    let mut wanted: BTreeSet<(AxisId, u32, LaneId)> = BTreeSet::new();
    let mut checked: HashSet<(BlockId, usize)> = HashSet::new();
    let uses: Vec<_> = classes.iter().map(|instructions| uses(instructions)).collect();
    for (rank, class) in class_of.iter().enumerate() {
        for &(block, axis, lane) in &uses[*class as usize] {
            let Some((team, _)) = world.seat(axis as usize, rank as u32) else { continue };
            wanted.insert((axis, team, lane));
            let ranks = world.teams(axis as usize)[team as usize].len();
            if checked.insert((block, ranks)) {
                check_block(&pattern.blocks[block as usize], ranks)?;
            }
        }
    }
    Ok(wanted
        .into_iter()
        .map(|(axis, team, lane)| Communicator {
            axis,
            team,
            lane,
            ranks: world.teams(axis as usize)[team as usize].clone(),
            settings: merged(&world.axes()[axis as usize].settings, &pattern.lanes[lane as usize].settings),
        })
        .collect())
}

/// What communicates, ordered so that the same mistake gives the same sentence every time.
fn uses(instructions: &[Instruction]) -> BTreeSet<(BlockId, AxisId, LaneId)> {
    instructions
        .iter()
        .filter_map(|instruction| match instruction {
            Instruction::Issue { block, axis: Some(axis), lane, .. } => Some((*block, *axis, *lane)),
            Instruction::Issue { .. } | Instruction::Wait(_) | Instruction::Host(_) => None,
        })
        .collect()
}

fn check_block(block: &crate::Block, ranks: usize) -> Result<()> {
    let check = |c: &Collective| c.check_team(block.place, &block.name, ranks);
    match &block.work {
        Work::Collective(collective) => check(collective),
        Work::Group(all) => all.iter().try_for_each(check),
        Work::P2p { transfers, .. } => {
            for transfer in transfers {
                let unit = transfer.dtype.bytes();
                if !transfer.size.is_multiple_of(unit) {
                    return Err(Error::at(
                        block.place,
                        format!(
                            "block `{}`: a transfer of {} B is not whole {} elements of {unit} B",
                            block.name,
                            transfer.size,
                            transfer.dtype.name()
                        ),
                    )
                    .help(format!("the nearest size that is, is {}", (transfer.size / unit).max(1) * unit)));
                }
            }
            Ok(())
        }
        Work::Compute(_) | Work::Cuda(_) => Ok(()),
    }
}

/// The axis' settings, overridden by the lane's.
pub(crate) fn merged(axis: &CommSettings, lane: &CommSettings) -> CommSettings {
    CommSettings {
        min_ctas: lane.min_ctas.or(axis.min_ctas),
        max_ctas: lane.max_ctas.or(axis.max_ctas),
        cga_cluster_size: lane.cga_cluster_size.or(axis.cga_cluster_size),
        split_share: lane.split_share.or(axis.split_share),
        traffic_class: lane.traffic_class.or(axis.traffic_class),
        algorithm: lane.algorithm.clone().or_else(|| axis.algorithm.clone()),
        protocol: lane.protocol.clone().or_else(|| axis.protocol.clone()),
        nvls: lane.nvls.or(axis.nvls),
        sharp: lane.sharp.or(axis.sharp),
    }
}
