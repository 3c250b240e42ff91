//! What the ranks of this process share, and the watch over them.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use maestro_pattern::{BlockId, Instruction, LaneId, Plan, Work};

use super::ffi::Failure;
use super::ffi::blas::Blas;
use super::ffi::cuda::{Cuda, DeviceInfo};
use super::ffi::nccl::Nccl;
use super::ffi::nvrtc::Nvrtc;
use super::party::Party;
use crate::host::{End, lock, longest_silence};
use crate::meeting::exchanges;
use crate::{Error, Settings};

/// What the ranks of this process share. It owns its plan: a rank that hangs inside a library is left behind, and must
/// not hold anything that its caller lent.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) settings: Settings,
    pub(super) cuda: Arc<Cuda>,
    pub(super) nccl: Arc<Nccl>,
    pub(super) blas: Option<Arc<Blas>>,
    pub(super) nvrtc: Result<Arc<Nvrtc>, String>,
    pub(super) devices: Vec<DeviceInfo>,
    pub(super) party: Arc<dyn Party>,
    pub(super) end: Arc<End>,
    /// How long nothing may end before the world counts as hung.
    pub(super) silence: Duration,
    /// Per local rank, what its host is doing inside a library.
    posts: HashMap<u32, Post>,
    base: Instant,
}

/// What the host of a rank is doing inside a library, if anything.
#[derive(Default)]
struct Post {
    /// Since when, in nanoseconds from the world's base, at least 1; 0: nothing.
    since_ns: AtomicU64,
    /// The instruction that it issues, or [`NO_ISSUE`].
    index: AtomicU64,
    /// What it does that is no issue.
    what: Mutex<String>,
}

const NO_ISSUE: u64 = u64::MAX;

/// What a world is made of.
pub(super) struct Parts {
    pub(super) cuda: Arc<Cuda>,
    pub(super) nccl: Arc<Nccl>,
    pub(super) blas: Option<Arc<Blas>>,
    pub(super) nvrtc: Result<Arc<Nvrtc>, String>,
    pub(super) devices: Vec<DeviceInfo>,
}

impl World {
    /// The world of `ranks`, which live in this process.
    pub(super) fn new(
        plan: &Plan,
        settings: &Settings,
        parts: Parts,
        party: Arc<dyn Party>,
        end: Arc<End>,
        ranks: &[u32],
    ) -> Self {
        let Parts { cuda, nccl, blas, nvrtc, devices } = parts;
        Self {
            plan: plan.clone(),
            settings: settings.clone(),
            cuda,
            nccl,
            blas,
            nvrtc,
            devices,
            party,
            end,
            silence: settings.watchdog + longest_silence(plan),
            posts: ranks.iter().map(|rank| (*rank, Post::default())).collect(),
            base: Instant::now(),
        }
    }

    /// Ends the world, here and in other processes.
    pub(super) fn fail(&self, error: Error) {
        self.party.fail(&error);
        self.end.fail(error);
    }

    /// A failed call of a native library, of this rank and block.
    pub(super) fn failed(&self, rank: u32, block: Option<BlockId>, failure: Failure) -> Error {
        let block = block.map(|block| self.plan.blocks[block as usize].name.clone());
        Error::Native { rank, block, what: failure.to_string() }
    }

    /// The error of an execution that does not end, or a call that does not return.
    pub(super) fn hang(
        &self,
        rank: u32,
        block: BlockId,
        lane: LaneId,
        communicator: Option<u32>,
        silent: Duration,
    ) -> Error {
        let members = communicator.map(|id| self.plan.communicators[id as usize].ranks.as_slice()).unwrap_or_default();
        let seat = members.iter().position(|member| *member == rank).unwrap_or_default();
        let peers: BTreeSet<u32> = match &self.plan.blocks[block as usize].work {
            Work::P2p { transfers, wrap } => {
                exchanges(transfers, *wrap, seat, members.len()).map(|(_, seat)| members[seat]).collect()
            }
            _ => members.iter().copied().collect(),
        };
        Error::Hang {
            rank,
            block: self.plan.blocks[block as usize].name.clone(),
            lane: self.plan.lanes[lane as usize].name.clone(),
            seconds: silent.as_secs_f64(),
            peers: peers.into_iter().filter(|peer| *peer != rank).collect(),
        }
    }

    /// The host of `rank` issues an instruction.
    pub(super) fn issuing(&self, rank: u32, index: u32, began: Instant) {
        self.begin(rank, u64::from(index), began);
    }

    /// The host of `rank` is inside a library for another reason.
    pub(super) fn doing(&self, rank: u32, what: &str) {
        if let Some(post) = self.posts.get(&rank) {
            what.clone_into(&mut lock(&post.what));
        }
        self.begin(rank, NO_ISSUE, Instant::now());
    }

    fn begin(&self, rank: u32, index: u64, began: Instant) {
        if let Some(post) = self.posts.get(&rank) {
            post.index.store(index, Ordering::Relaxed);
            post.since_ns.store((began - self.base).as_nanos().max(1) as u64, Ordering::Release);
        }
    }

    /// The host of `rank` is back.
    pub(super) fn idle(&self, rank: u32) {
        if let Some(post) = self.posts.get(&rank) {
            post.since_ns.store(0, Ordering::Release);
        }
    }

    /// The rank whose host has been inside a library for too long, as an error.
    pub(super) fn overdue(&self) -> Option<Error> {
        let now = self.base.elapsed();
        let (rank, post, since) = self
            .posts
            .iter()
            .filter_map(|(rank, post)| {
                let since = post.since_ns.load(Ordering::Acquire);
                (since > 0).then_some((*rank, post, since))
            })
            .min_by_key(|(rank, _, since)| (*since, *rank))?;
        let silent = now.saturating_sub(Duration::from_nanos(since));
        if silent <= self.silence {
            return None;
        }
        let index = post.index.load(Ordering::Relaxed);
        match self.plan.program(rank).instructions.get(usize::try_from(index).unwrap_or(usize::MAX)) {
            Some(Instruction::Issue { block, axis, lane, .. }) => {
                let communicator = axis.and_then(|axis| self.plan.communicator(rank, axis, *lane));
                Some(self.hang(rank, *block, *lane, communicator, silent))
            }
            _ => Some(Error::Native {
                rank,
                block: None,
                what: format!("it {} and has not returned for {:.1} s", lock(&post.what), silent.as_secs_f64()),
            }),
        }
    }
}
