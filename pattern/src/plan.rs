//! Pattern x World, lowered and checked: what a back end runs.

use std::collections::{HashMap, HashSet};

use crate::{AxisSize, Block, CommSettings, Lane, Pattern, Result, Source, World, check, lower, order};

/// Index into [`Plan::blocks`].
pub type BlockId = u32;
/// Index into the world's axes.
pub type AxisId = u32;
/// Index into [`Plan::lanes`].
pub type LaneId = u32;

/// What a back end runs: for every rank a program, for every (team, lane) a communicator.
///
/// A plan exists only if it passed the order check: every collective meets its team mates in the same order with the
/// same arguments, every send its receive, and no wait, lane order or rendezvous closes a circle. So it cannot deadlock
/// where every lane makes progress by itself, as on the host back ends. Not proved: that lanes which share a device's
/// resources all find room. Collectives of several communicators run at once there, and if ranks that share them start
/// them in different orders, each may hold what the other needs; NCCL asks for one order on all ranks.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the pattern.
    pub name: String,
    /// Where the pattern was captured, if it was.
    pub source: Option<Source>,
    /// The axes with sizes.
    pub world: World,
    /// The blocks of the pattern.
    pub blocks: Vec<Block>,
    /// The lanes of the pattern.
    pub lanes: Vec<Lane>,
    /// The distinct programs.
    pub programs: Vec<Program>,
    /// Per rank, the index of its program.
    pub program_of: Vec<u32>,
    /// Every communicator, in the one global order in which all ranks create them.
    pub communicators: Vec<Communicator>,
    communicator_of: HashMap<(AxisId, u32, LaneId), u32>,
}

/// One rank's instructions in issue order, unrolled. Ranks that do the same share one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The instructions.
    pub instructions: Vec<Instruction>,
}

/// One thing a rank's host does. A closed set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// Puts a block on a lane.
    Issue {
        /// Which block.
        block: BlockId,
        /// Axis of a block that communicates.
        axis: Option<AxisId>,
        /// Which lane.
        lane: LaneId,
        /// Indices of earlier `Issue` instructions of this program that must have ended first, beside the lane's own
        /// earlier work; ascending, none on the same lane.
        after: Vec<u32>,
        /// Which execution of this block in the program, from 0.
        instance: u32,
    },
    /// The host waits until the `Issue` instruction of this index has ended.
    Wait(u32),
    /// The host spends this many nanoseconds.
    Host(u64),
}

/// A live object for one (team, lane).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// Which axis.
    pub axis: AxisId,
    /// Which team of the axis.
    pub team: u32,
    /// Which lane.
    pub lane: LaneId,
    /// Its global ranks, in team order.
    pub ranks: Vec<u32>,
    /// The axis' settings, overridden by the lane's.
    pub settings: CommSettings,
}

impl Plan {
    /// Lowers `pattern` onto its axes, with `sizes` for regular ones that shall differ, and checks it for every rank.
    ///
    /// # Errors
    /// What is wrong with the pattern or the sizes: an unknown name, a size that the team cannot hold, splits or peers
    /// that do not match, ranks whose collectives differ in order or arguments, a wait that closes a circle.
    pub fn new(pattern: &Pattern, sizes: &[AxisSize]) -> Result<Self> {
        check::names(pattern)?;
        let world = World::new(&pattern.axes, sizes)?;
        let lowered = lower::lower(pattern, world)?;
        order::check(&lowered.plan, &lowered.class_of)?;
        Ok(lowered.plan)
    }

    pub(crate) fn assemble(
        pattern: &Pattern,
        world: World,
        lanes: Vec<Lane>,
        programs: Vec<Program>,
        program_of: Vec<u32>,
        communicators: Vec<Communicator>,
    ) -> Self {
        let communicator_of =
            communicators.iter().enumerate().map(|(i, c)| ((c.axis, c.team, c.lane), i as u32)).collect();
        Self {
            name: pattern.name.clone(),
            source: pattern.source.clone(),
            world,
            blocks: pattern.blocks.clone(),
            lanes,
            programs,
            program_of,
            communicators,
            communicator_of,
        }
    }

    /// The program of a rank.
    pub fn program(&self, rank: u32) -> &Program {
        &self.programs[self.program_of[rank as usize] as usize]
    }

    /// Index of the communicator that `rank` uses for blocks on `axis` in `lane`.
    pub fn communicator(&self, rank: u32, axis: AxisId, lane: LaneId) -> Option<u32> {
        let (team, _) = self.world.seat(axis as usize, rank)?;
        self.communicator_of.get(&(axis, team, lane)).copied()
    }

    /// Every distinct (block, axis, lane) that some rank issues, in the order of first issue: what "alone" runs.
    pub fn uses(&self) -> Vec<(BlockId, Option<AxisId>, LaneId)> {
        let mut uses = Vec::new();
        let mut seen = HashSet::new();
        for program in &self.programs {
            for instruction in &program.instructions {
                if let Instruction::Issue { block, axis, lane, .. } = instruction {
                    let this = (*block, *axis, *lane);
                    if seen.insert(this) {
                        uses.push(this);
                    }
                }
            }
        }
        uses
    }
}
