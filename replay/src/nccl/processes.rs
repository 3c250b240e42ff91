//! Ranks in processes of their own, one a GPU, that a launcher started.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::party::Party;
use crate::host::End;
use crate::store::Store;
use crate::{Error, Result};

/// Every rank is a process; they meet at a [`Store`].
pub(super) struct Processes {
    store: Arc<Store>,
    end: Arc<End>,
    /// The largest error of the clocks since the beginning.
    error_ns: AtomicU64,
}

impl Processes {
    /// The party of a rank whose own failures end `end`.
    pub(super) fn new(store: &Arc<Store>, end: &Arc<End>) -> Self {
        let this = Self { store: store.clone(), end: end.clone(), error_ns: AtomicU64::new(0) };
        this.note_error();
        this
    }

    fn note_error(&self) {
        let error_ns = u64::try_from(self.store.clock_error().as_nanos()).unwrap_or(u64::MAX);
        self.error_ns.fetch_max(error_ns, Ordering::Relaxed);
    }
}

impl Party for Processes {
    fn share(&self, mine: Option<Vec<u8>>) -> Result<Vec<u8>> {
        self.end.check()?;
        self.store.share(mine.as_deref())
    }

    /// The store's, which gives all ranks a common moment to spin for.
    fn barrier(&self) -> Result<Instant> {
        self.end.check()?;
        let moment = self.store.barrier()?;
        self.note_error();
        Ok(moment)
    }

    fn check(&self) -> Result<()> {
        self.end.check()?;
        self.store.check()
    }

    fn clock_error(&self) -> Duration {
        Duration::from_nanos(self.error_ns.load(Ordering::Relaxed))
    }

    fn fail(&self, error: &Error) {
        // What ended because of another rank is no failure of its own.
        if !matches!(error, Error::Ended) {
            self.store.fail(&error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::store::together;

    fn party(store: Store) -> (Arc<End>, Processes) {
        let end = Arc::new(End::default());
        let party = Processes::new(&Arc::new(store), &end);
        (end, party)
    }

    #[test]
    fn processes_share_and_start_together() {
        together(3, |store| {
            let rank = store.rank();
            let (_, party) = party(store);
            assert_eq!(party.share((rank == 0).then(|| b"identity".to_vec())).unwrap(), b"identity");
            for _ in 0..20 {
                let moment = party.barrier().unwrap();
                assert!(Instant::now() >= moment);
            }
            party.check().unwrap();
            assert!(party.clock_error() > Duration::ZERO);
            // Nobody leaves before the others have looked.
            party.barrier().unwrap();
        });
    }

    #[test]
    fn a_failure_reaches_everyone_with_the_same_sentence() {
        let sentence = "rank 1, block `g`: ncclAllGather failed";
        together(3, |store| {
            let rank = store.rank();
            let (end, party) = party(store);
            if rank == 1 {
                let error = Error::Native { rank, block: Some("g".into()), what: "ncclAllGather failed".into() };
                assert_eq!(error.to_string(), sentence);
                party.fail(&error);
                end.fail(error);
                assert!(matches!(party.check(), Err(Error::Ended)));
            } else if rank == 2 {
                assert_eq!(party.barrier().unwrap_err().to_string(), sentence);
            }
            let heard = loop {
                match party.store.check() {
                    Ok(()) => thread::yield_now(),
                    Err(error) => break error,
                }
            };
            assert_eq!(heard.to_string(), sentence);
        });
    }

    #[test]
    fn whoever_ended_for_another_is_not_to_blame() {
        together(2, |store| {
            let rank = store.rank();
            let (_, party) = party(store);
            party.fail(&Error::Ended);
            party.barrier().unwrap();
            assert!(party.check().is_ok(), "rank {rank}");
            party.barrier().unwrap();
        });
    }
}
