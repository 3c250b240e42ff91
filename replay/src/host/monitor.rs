//! What threads of a world wait on, so that no wait outlives the world.
//!
//! Every wait of a host rank (for a barrier, a ticket, a message, a deadline) is a wait on a [`Monitor`], and every
//! monitor belongs to an [`End`]. When a rank fails, the end wakes all of them and each wait returns an error: nothing
//! sleeps in intervals to look whether the world still stands, and nobody waits for a rank that is gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use crate::{Error, Result};

/// The end of a world: the error that ended it, and everyone who must be woken then.
#[derive(Default)]
pub(crate) struct End {
    ended: AtomicBool,
    cause: Mutex<Option<Error>>,
    sleepers: Mutex<Vec<Weak<dyn Wake>>>,
}

trait Wake: Send + Sync {
    fn wake(&self);
}

impl End {
    /// A monitor whose waits end with this world.
    pub(crate) fn monitor<T: Send + 'static>(self: &Arc<Self>, value: T) -> Arc<Monitor<T>> {
        let monitor = Arc::new(Monitor { value: Mutex::new(value), changed: Condvar::new(), end: self.clone() });
        let sleeper: Weak<dyn Wake> = Arc::<Monitor<T>>::downgrade(&monitor);
        lock(&self.sleepers).push(sleeper);
        monitor
    }

    /// Ends the world. The first cause stays; that others ended because of it is none.
    pub(crate) fn fail(&self, error: Error) {
        if !matches!(error, Error::Ended) {
            lock(&self.cause).get_or_insert(error);
        }
        self.ended.store(true, Ordering::SeqCst);
        for sleeper in lock(&self.sleepers).iter().filter_map(Weak::upgrade) {
            sleeper.wake();
        }
    }

    /// Errs once the world has ended.
    pub(crate) fn check(&self) -> Result<()> {
        if self.ended.load(Ordering::SeqCst) { Err(Error::Ended) } else { Ok(()) }
    }

    /// Why the world ended, if it did. Gives it away.
    pub(crate) fn take(&self) -> Option<Error> {
        lock(&self.cause).take()
    }
}

/// A value that threads change and wait on.
pub(crate) struct Monitor<T> {
    value: Mutex<T>,
    changed: Condvar,
    end: Arc<End>,
}

impl<T> Monitor<T> {
    /// Looks at the value or changes it, waking nobody.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut lock(&self.value))
    }

    /// Changes the value and wakes everyone who waits on it.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = self.with(change);
        self.changed.notify_all();
        result
    }

    /// Waits until `ready` gives something.
    ///
    /// # Errors
    /// The world ended.
    pub(crate) fn wait<R>(&self, mut ready: impl FnMut(&mut T) -> Option<R>) -> Result<R> {
        let mut value = lock(&self.value);
        loop {
            self.end.check()?;
            if let Some(result) = ready(&mut value) {
                return Ok(result);
            }
            value = self.changed.wait(value).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `ready` gives something, but not beyond `deadline`; then `None`.
    ///
    /// # Errors
    /// The world ended.
    pub(crate) fn wait_until<R>(
        &self,
        deadline: Instant,
        mut ready: impl FnMut(&mut T) -> Option<R>,
    ) -> Result<Option<R>> {
        let mut value = lock(&self.value);
        loop {
            self.end.check()?;
            if let Some(result) = ready(&mut value) {
                return Ok(Some(result));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            value = self.changed.wait_timeout(value, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the deadline.
    ///
    /// # Errors
    /// The world ended.
    pub(crate) fn sleep_until(&self, deadline: Instant) -> Result<()> {
        self.wait_until(deadline, |_| None::<()>).map(|_| ())
    }
}

impl<T: Send> Wake for Monitor<T> {
    fn wake(&self) {
        // Whoever holds the lock has looked at the end already and is about to sleep; waiting for the lock means that
        // it sleeps, and so hears the call.
        drop(lock(&self.value));
        self.changed.notify_all();
    }
}

/// A lock whose holder panicked is taken all the same: the panic ends the world, and what the value holds no longer
/// matters.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A barrier that can be used again and again.
pub(crate) struct Gate(Arc<Monitor<Arrivals>>);

struct Arrivals {
    arrived: Vec<bool>,
    missing: usize,
    /// How often it opened.
    opened: u64,
    /// When it last did.
    at: Instant,
}

impl Gate {
    /// A barrier for `seats` threads.
    pub(crate) fn new(end: &Arc<End>, seats: usize) -> Self {
        let arrived = vec![false; seats];
        Self(end.monitor(Arrivals { arrived, missing: seats, opened: 0, at: Instant::now() }))
    }

    /// Waits for all seats; gives the moment at which the last arrived, the same to all.
    ///
    /// # Errors
    /// The world ended.
    pub(crate) fn pass(&self, seat: usize) -> Result<Instant> {
        let arrive = |gate: &mut Arrivals| {
            gate.arrived[seat] = true;
            gate.missing -= 1;
            if gate.missing == 0 {
                gate.arrived.fill(false);
                gate.missing = gate.arrived.len();
                gate.opened += 1;
                gate.at = Instant::now();
                Ok(gate.at)
            } else {
                Err(gate.opened)
            }
        };
        match self.0.with(arrive) {
            Ok(at) => {
                self.0.update(|_| {});
                Ok(at)
            }
            Err(before) => self.0.wait(|gate| (gate.opened > before).then_some(gate.at)),
        }
    }

    /// The seats that have not arrived, if `seat` has and waits for them.
    pub(crate) fn missing(&self, seat: usize) -> Vec<usize> {
        self.0.with(|gate| {
            if !gate.arrived[seat] {
                return Vec::new();
            }
            (0..gate.arrived.len()).filter(|other| !gate.arrived[*other]).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_gate_opens_for_the_last_and_at_one_moment() {
        let gate = Gate::new(&Arc::default(), 3);
        for _ in 0..100 {
            let moments: Vec<Instant> = thread::scope(|scope| {
                let gate = &gate;
                let passing: Vec<_> = (0..3).map(|seat| scope.spawn(move || gate.pass(seat))).collect();
                passing.into_iter().map(|handle| handle.join().unwrap().unwrap()).collect()
            });
            assert!(moments.iter().all(|at| *at == moments[0]));
        }
    }

    #[test]
    fn the_end_wakes_whoever_waits() {
        let end = Arc::new(End::default());
        let gate = Gate::new(&end, 2);
        let nap = end.monitor(());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.pass(1));
            let sleeping = scope.spawn(|| nap.sleep_until(Instant::now() + Duration::from_secs(3600)));
            end.fail(Error::Panicked { rank: 0, message: "first".into() });
            end.fail(Error::Panicked { rank: 1, message: "second".into() });
            assert!(matches!(waiting.join().unwrap(), Err(Error::Ended)));
            assert!(matches!(sleeping.join().unwrap(), Err(Error::Ended)));
        });
        assert!(matches!(end.take(), Some(Error::Panicked { rank: 0, .. })));
    }

    #[test]
    fn a_gate_tells_who_is_missing() {
        let end = Arc::new(End::default());
        let gate = Gate::new(&end, 3);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.pass(1));
            while gate.missing(1).is_empty() {
                thread::yield_now();
            }
            assert_eq!(gate.missing(1), [0, 2]);
            assert!(gate.missing(0).is_empty());
            end.fail(Error::Ended);
            assert!(waiting.join().unwrap().is_err());
        });
    }
}
