//! How the ranks of a world come together, whether they live in one process or in many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::host::{End, Monitor};
use crate::{Error, Result};

/// The ranks of a world, as one of them sees the others.
pub(super) trait Party: Send + Sync {
    /// Rank 0's bytes, given to all.
    ///
    /// # Errors
    /// The world ended, or a rank did not come.
    fn share(&self, mine: Option<Vec<u8>>) -> Result<Vec<u8>>;

    /// Waits for every rank of the world; gives the moment of release, the same on all ranks.
    ///
    /// # Errors
    /// The world ended, or a rank did not come.
    fn barrier(&self) -> Result<Instant>;

    /// Errs once the world has ended. Called often.
    ///
    /// # Errors
    /// The world ended.
    fn check(&self) -> Result<()>;

    /// By how much the clock of a rank may be off from the clock of rank 0.
    fn clock_error(&self) -> Duration;

    /// Tells the processes of other ranks, if there are any, that a rank of this one failed.
    fn fail(&self, error: &Error);
}

/// All ranks are threads of this process.
pub(super) struct Threads {
    end: Arc<End>,
    seats: usize,
    shared: Arc<Monitor<Option<Vec<u8>>>>,
    arrived: AtomicUsize,
    /// How often the barrier opened, and when it last did, in nanoseconds from `base`.
    opened: AtomicU64,
    at_ns: AtomicU64,
    base: Instant,
}

impl Threads {
    pub(super) fn new(end: &Arc<End>, seats: usize) -> Self {
        Self {
            end: end.clone(),
            seats,
            shared: end.monitor(None),
            arrived: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            at_ns: AtomicU64::new(0),
            base: Instant::now(),
        }
    }
}

impl Party for Threads {
    fn share(&self, mine: Option<Vec<u8>>) -> Result<Vec<u8>> {
        if let Some(mine) = mine {
            self.shared.update(|shared| *shared = Some(mine));
        }
        self.shared.wait(|shared| shared.clone())
    }

    /// Spins: a thread that sleeps here would begin tens of microseconds after the others.
    fn barrier(&self) -> Result<Instant> {
        let before = self.opened.load(Ordering::SeqCst);
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == self.seats {
            self.arrived.store(0, Ordering::SeqCst);
            self.at_ns.store(self.base.elapsed().as_nanos() as u64, Ordering::SeqCst);
            self.opened.store(before + 1, Ordering::SeqCst);
        } else {
            let mut turns = 0u32;
            while self.opened.load(Ordering::SeqCst) == before {
                turns = turns.wrapping_add(1);
                if turns.is_multiple_of(1024) {
                    self.end.check()?;
                    // More ranks than cores: let the others come.
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
            }
        }
        Ok(self.base + Duration::from_nanos(self.at_ns.load(Ordering::SeqCst)))
    }

    fn check(&self) -> Result<()> {
        self.end.check()
    }

    fn clock_error(&self) -> Duration {
        Duration::ZERO
    }

    /// Threads share their end.
    fn fail(&self, _: &Error) {}
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn everybody_leaves_a_barrier_at_one_moment() {
        let party = Threads::new(&Arc::default(), 3);
        for _ in 0..50 {
            let moments: Vec<Instant> = thread::scope(|scope| {
                let all: Vec<_> = (0..3).map(|_| scope.spawn(|| party.barrier())).collect();
                all.into_iter().map(|one| one.join().unwrap().unwrap()).collect()
            });
            assert!(moments.iter().all(|moment| *moment == moments[0]));
        }
    }

    #[test]
    fn the_end_frees_whoever_waits() {
        let end = Arc::new(End::default());
        let party = Threads::new(&end, 2);
        thread::scope(|scope| {
            let (at_barrier, at_share) = (scope.spawn(|| party.barrier()), scope.spawn(|| party.share(None)));
            end.fail(Error::Ended);
            assert!(at_barrier.join().unwrap().is_err() && at_share.join().unwrap().is_err());
        });
    }
}
