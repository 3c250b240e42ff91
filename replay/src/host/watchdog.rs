//! Notices a world in which nothing ends any more, and says who waits for whom.
//!
//! It sleeps for as long as the longest silence that is in order and then looks whether any execution has ended
//! meanwhile, so it notices a hang after one to two such silences and costs the lanes one counter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use maestro_pattern::{BlockId, Instruction, LaneId, Plan};

use super::{Monitor, World, lock};
use crate::{Error, Pacing, Result, nominal_ns};

/// What the lanes of this process do.
#[derive(Default)]
pub(super) struct Watch {
    /// How many executions have ended.
    ended: AtomicU64,
    posts: Mutex<Vec<Post>>,
}

/// Where one lane says what it is doing.
#[derive(Clone, Default)]
pub(super) struct Post(Arc<Mutex<Option<Doing>>>);

/// An execution under way.
#[derive(Clone, Copy)]
pub(super) struct Doing {
    pub(super) rank: u32,
    pub(super) lane: LaneId,
    pub(super) block: BlockId,
    /// Of blocks that communicate.
    pub(super) communicator: Option<u32>,
    pub(super) since: Instant,
}

impl Watch {
    /// A post for another lane.
    pub(super) fn post(&self) -> Post {
        let post = Post::default();
        lock(&self.posts).push(post.clone());
        post
    }
}

impl Post {
    pub(super) fn begin(&self, doing: Doing) {
        *lock(&self.0) = Some(doing);
    }

    pub(super) fn end(&self, watch: &Watch) {
        *lock(&self.0) = None;
        watch.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Watches until `finished`.
///
/// # Errors
/// The execution that has waited longest in a world where none ends.
pub(super) fn supervise(world: &World<'_>, finished: &Monitor<bool>) -> Result<()> {
    let silence = world.settings.watchdog + longest_silence(world.plan);
    loop {
        let before = world.watch.ended.load(Ordering::Relaxed);
        let wake = Instant::now() + silence;
        if finished.wait_until(wake, |finished| finished.then_some(()))?.is_some() {
            return Ok(());
        }
        if world.watch.ended.load(Ordering::Relaxed) == before {
            hang(world).map_or(Ok(()), Err)?;
        }
    }
}

/// The longest silence that the plan itself asks for: its longest block, or the longest that a host spends without
/// issuing anything.
pub(crate) fn longest_silence(plan: &Plan) -> Duration {
    let ranks = 0..plan.world.size();
    let blocks = plan.blocks.iter().flat_map(|b| ranks.clone().filter_map(|r| nominal_ns(b, r, Pacing::Gaps)));
    let hosts = plan.programs.iter().flat_map(|program| {
        program.instructions.iter().scan(0u64, |spent, instruction| {
            *spent = match instruction {
                Instruction::Host(ns) => spent.saturating_add(*ns),
                Instruction::Issue { .. } | Instruction::Wait(_) => 0,
            };
            Some(*spent)
        })
    });
    Duration::from_nanos(blocks.chain(hosts).max().unwrap_or(0))
}

/// The exchange that has waited longest. None while any lane computes or moves bytes: a long product is no hang, and
/// neither is a long exchange whose members have all arrived.
fn hang(world: &World<'_>) -> Option<Error> {
    let doing: Vec<Doing> = lock(&world.watch.posts).iter().filter_map(|post| *lock(&post.0)).collect();
    let missing = |doing: &Doing| doing.communicator.map(|id| world.fabric.missing(id, doing.rank)).unwrap_or_default();
    if doing.iter().any(|doing| missing(doing).is_empty()) {
        return None;
    }
    let stuck = doing.iter().min_by_key(|doing| doing.since)?;
    let peers = missing(stuck);
    Some(Error::Hang {
        rank: stuck.rank,
        block: world.plan.blocks[stuck.block as usize].name.clone(),
        lane: world.plan.lanes[stuck.lane as usize].name.clone(),
        seconds: stuck.since.elapsed().as_secs_f64(),
        peers,
    })
}
