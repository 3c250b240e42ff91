//! The meeting point of a launch: how its processes share, gather, keep time together, and hear of each other's end.
//!
//! Rank 0 has a TCP connection to every other rank. Operations are collective: all ranks call the same ones in the same
//! order, and each but `gather` lets nobody go before everyone has come. It is made for a few bytes between
//! measurements and carries no data of a replay.
//!
//! No wait is longer than the store's patience and a little more. The first failure of a rank, whether it said so, fell
//! silent or is gone, ends the store on all ranks, and every operation from then on gives that failure.

mod clock;
pub(crate) mod digest;
mod handshake;
mod post;
mod wire;

use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use self::clock::{Clock, EXCHANGES, Exchange};
use self::post::{Inbox, Post, Source};
use self::wire::{Kind, Message};
use crate::host::lock;
use crate::{Error, Launch, Result};

/// How much longer than rank 0 the others wait: it knows who is missing, and what it says is the better error.
const GRACE: Duration = Duration::from_secs(1);

/// The least lead of a barrier's moment over its announcement, beside the round trips; more for every rank, since they
/// are told one after the other; and the most.
const LEAD_NS: u64 = 50_000;
const LEAD_EACH_NS: u64 = 10_000;
const LONGEST_LEAD_NS: u64 = 100_000_000;

/// A barrier first aligns clocks again that were aligned longer ago: they drift apart by microseconds a second.
const STALE: Duration = Duration::from_secs(1);

/// One rank's place at the meeting point. Dropping it says goodbye.
///
/// It may be used from several threads; operations then wait for each other, while [`Store::fail`] and [`Store::check`]
/// wait for none.
pub struct Store {
    post: Arc<Post>,
    /// Held by the operation that is going on.
    operation: Mutex<()>,
    clock: Mutex<Clock>,
    /// When the clocks were last aligned.
    aligned: Mutex<Option<Instant>>,
    patience: Mutex<Duration>,
}

impl Store {
    /// Comes together with all ranks of `launch`, and aligns the clocks.
    ///
    /// # Errors
    /// Not all came within `patience`, or this rank was turned away: another secret, number of ranks or build, or its
    /// place is taken.
    pub fn join(launch: &Launch, patience: Duration) -> Result<Self> {
        let patience = patience.min(LONGEST);
        let streams: Vec<_> = match launch.rank {
            _ if launch.world <= 1 => Vec::new(),
            0 => (1..).zip(handshake::meet(launch, patience)?).collect(),
            _ => vec![(0, handshake::call(launch, patience)?)],
        };
        let store = Self {
            post: Post::open(launch.rank, streams, patience)?,
            operation: Mutex::default(),
            clock: Mutex::default(),
            aligned: Mutex::default(),
            patience: Mutex::new(patience),
        };
        if launch.rank == 0 {
            store.announce(Kind::Begin, &[])?;
        } else {
            // Rank 0 began to wait before it let this rank in, so what became of it is known by then.
            store.answer(Kind::Begin, "join")?;
        }
        store.resync()?;
        Ok(store)
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.post.rank
    }

    /// How long operations wait from now on for ranks that do not come.
    pub fn set_patience(&self, patience: Duration) {
        let patience = patience.min(LONGEST);
        *lock(&self.patience) = patience;
        self.post.set_patience(patience);
    }

    /// Errs once a rank has failed, without waiting for anything.
    ///
    /// # Errors
    /// The rank and what became of it.
    pub fn check(&self) -> Result<()> {
        self.post.check()
    }

    /// Waits until a rank fails or `over` says that nobody cares any more, but no longer than `patience`. Whoever changes
    /// what `over` says calls [`Store::wake`].
    ///
    /// # Errors
    /// The rank and what became of it.
    #[cfg(feature = "mpi")]
    pub(crate) fn watch(&self, patience: Duration, over: impl Fn() -> bool) -> Result<()> {
        self.post.wait(later(patience), |_| over().then_some(())).map(|_| ())
    }

    /// Has [`Store::watch`] look again.
    #[cfg(feature = "mpi")]
    pub(crate) fn wake(&self) {
        self.post.wake();
    }

    /// Gives rank 0's bytes to everyone. Those of others are not looked at.
    ///
    /// # Errors
    /// A rank failed or did not come, or rank 0 gives none.
    pub fn share(&self, mine: Option<&[u8]>) -> Result<Vec<u8>> {
        let _operation = lock(&self.operation);
        if self.post.rank != 0 {
            self.call(Kind::Share, &[])?;
            return Ok(self.answer(Kind::Share, Kind::Share.deed())?.1.payload);
        }
        let Some(mine) = mine else {
            return Err(self.give_up(Error::Rank { rank: 0, what: "it has nothing to share; this is a bug".into() }));
        };
        self.collect(Kind::Share)?;
        self.announce(Kind::Share, mine)?;
        Ok(mine.to_vec())
    }

    /// Gives everyone's bytes to rank 0, in order of rank; `None` on the others, which do not wait.
    ///
    /// # Errors
    /// A rank failed or did not come.
    pub fn gather(&self, mine: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let _operation = lock(&self.operation);
        if self.post.rank != 0 {
            self.call(Kind::Gather, mine)?;
            return Ok(None);
        }
        let others = self.collect(Kind::Gather)?;
        let own = std::iter::once(mine.to_vec());
        Ok(Some(own.chain(others.into_iter().map(|message| message.payload)).collect()))
    }

    /// Waits for all ranks, and then for a moment that is the same for all, as far as their clocks agree
    /// ([`Store::clock_error`]). Gives that moment, even if this thread was late for it.
    ///
    /// The ranks hear of the barrier's opening one after the other and tens of microseconds late. So rank 0 announces a
    /// moment a little in the future, by which all will have heard, and everyone spins until then on a clock of its own.
    ///
    /// # Errors
    /// A rank failed or did not come.
    pub fn barrier(&self) -> Result<Instant> {
        let _operation = lock(&self.operation);
        let here_ns = if self.post.rank == 0 {
            self.collect(Kind::Barrier)?;
            let ranks = self.post.links.len() as u64;
            if ranks > 0 && lock(&self.aligned).is_none_or(|aligned| aligned.elapsed() > STALE) {
                self.announce(Kind::Clock, &[])?;
                self.take_clocks()?;
            }
            let lead = lock(&self.clock).round_trip_ns.saturating_mul(3).saturating_add(LEAD_NS + LEAD_EACH_NS * ranks);
            // Nobody has to be told in a world of one.
            let moment = self.post.now_ns() + if ranks == 0 { 0 } else { lead.min(LONGEST_LEAD_NS) };
            self.announce(Kind::Barrier, &moment.to_le_bytes())?;
            moment
        } else {
            self.call(Kind::Barrier, &[])?;
            let deed = Kind::Barrier.deed();
            let (_, mut message) = self.answer_of(&[Kind::Barrier, Kind::Clock], deed)?;
            if message.kind == Kind::Clock {
                self.align()?;
                (_, message) = self.answer(Kind::Barrier, deed)?;
            }
            let moment = message.number().map_err(|error| self.broken(0, &error))?;
            lock(&self.clock).here_ns(moment)
        };
        let moment = self.post.began + Duration::from_nanos(here_ns).min(LONGEST);
        wait_for(moment);
        Ok(moment)
    }

    /// Aligns the clocks again. A barrier does so by itself when it is due.
    ///
    /// # Errors
    /// A rank failed or did not come.
    pub fn resync(&self) -> Result<()> {
        let _operation = lock(&self.operation);
        if self.post.rank == 0 { self.take_clocks() } else { self.align() }
    }

    /// As rank 0: waits until all others have aligned their clocks with this one.
    fn take_clocks(&self) -> Result<()> {
        let mut largest = 0;
        for (message, link) in self.collect(Kind::Clock)?.iter().zip(&self.post.links) {
            largest = largest.max(message.number().map_err(|error| self.broken(link.rank, &error))?);
        }
        *lock(&self.clock) = Clock::of_rank_0(largest);
        *lock(&self.aligned) = Some(Instant::now());
        Ok(())
    }

    /// As any other: aligns the clock with rank 0's.
    fn align(&self) -> Result<()> {
        let clock = self.measure()?;
        *lock(&self.clock) = clock;
        *lock(&self.aligned) = Some(Instant::now());
        self.call(Kind::Clock, &clock.round_trip_ns.to_le_bytes())
    }

    /// How far this rank's clock may be from rank 0's; on rank 0, the largest of all ranks.
    pub fn clock_error(&self) -> Duration {
        Duration::from_nanos(lock(&self.clock).error_ns())
    }

    /// Tells all ranks that this one failed and why. What they wait for, or call next, gives an error that says so.
    pub fn fail(&self, text: &str) {
        self.post.fail(self.post.rank, text, Source::Here);
    }

    /// Whether rank 0 knows of the failure that ended the store, and so can say what it was. It may be rank 0 that is
    /// gone.
    pub fn is_known_to_rank_0(&self) -> bool {
        self.post.is_known()
    }

    /// Says goodbye. Nothing can follow; dropping the store does the same.
    pub fn leave(&self) {
        self.post.leave();
    }

    /// As any other rank: waits until rank 0 has left or is gone, but no longer than `patience`. Launchers end all
    /// processes as soon as one has failed, so whoever lets rank 0 go first lets it say what happened.
    pub fn let_rank_0_go_first(&self, patience: Duration) {
        if self.post.rank != 0 {
            self.post.wait_for_end(0, later(patience));
        }
    }

    fn measure(&self) -> Result<Clock> {
        let mut exchanges = Vec::with_capacity(EXCHANGES);
        for _ in 0..EXCHANGES {
            self.post.check()?;
            let sent_ns = self.post.now_ns();
            self.post.send(0, Kind::Ping, &[]).map_err(|error| self.broken(0, &error))?;
            let (at, message) = self.answer(Kind::Pong, "say what time it is")?;
            let answer_ns = message.number().map_err(|error| self.broken(0, &error))?;
            exchanges.push(Exchange { sent_ns, answer_ns, back_ns: self.post.at_ns(at) });
        }
        Ok(Clock::of(&exchanges))
    }

    /// As rank 0: everyone's message of an operation.
    fn collect(&self, kind: Kind) -> Result<Vec<Message>> {
        let patience = *lock(&self.patience);
        let complete = |inbox: &mut Inbox| {
            if let Some(link) = (0..inbox.boxes.len()).find(|link| inbox.is_over(*link)) {
                return Some(Err(link));
            }
            if inbox.boxes.iter().any(|mailbox| mailbox.queue.is_empty()) {
                return None;
            }
            Some(Ok(inbox.boxes.iter_mut().filter_map(|mailbox| mailbox.queue.pop_front()).collect::<Vec<_>>()))
        };
        self.post.check()?;
        self.post.with(|inbox| inbox.calls += 1);
        let messages = match self.post.wait(later(patience), complete)? {
            Some(Ok(messages)) => messages,
            Some(Err(link)) => return Err(self.give_up(self.gone(self.post.links[link].rank, kind.deed()))),
            None => {
                let waiting = self.post.with(|inbox| {
                    let waiting =
                        self.post.links.iter().zip(&inbox.boxes).filter(|(_, mailbox)| mailbox.queue.is_empty());
                    waiting.map(|(link, _)| link.rank).collect()
                });
                return Err(self.give_up(missing(waiting, kind.deed(), patience)));
            }
        };
        match messages.iter().zip(&self.post.links).find(|((_, message), _)| message.kind != kind) {
            Some(((_, message), link)) => {
                let what = format!(
                    "it is to {} while rank 0 is to {}; this is a bug of Maestro",
                    message.kind.deed(),
                    kind.deed()
                );
                Err(self.give_up(Error::Rank { rank: link.rank, what }))
            }
            None => Ok(messages.into_iter().map(|(_, message)| message).collect()),
        }
    }

    /// As rank 0: tells everyone.
    fn announce(&self, kind: Kind, payload: &[u8]) -> Result<()> {
        for (index, link) in self.post.links.iter().enumerate() {
            self.post.send(index, kind, payload).map_err(|error| self.broken(link.rank, &error))?;
        }
        Ok(())
    }

    /// As any other: comes to an operation.
    fn call(&self, kind: Kind, payload: &[u8]) -> Result<()> {
        self.post.check()?;
        self.post.with(|inbox| inbox.calls += 1);
        self.post.send(0, kind, payload).map_err(|error| self.broken(0, &error))
    }

    /// As any other: what rank 0 says next, and when that came. `deed` is what whoever is missing did not do.
    fn answer(&self, kind: Kind, deed: &'static str) -> Result<(Instant, Message)> {
        self.answer_of(&[kind], deed)
    }

    /// [`Store::answer`], where several kinds may follow.
    fn answer_of(&self, kinds: &[Kind], deed: &'static str) -> Result<(Instant, Message)> {
        let patience = *lock(&self.patience);
        let next = |inbox: &mut Inbox| match inbox.boxes[0].queue.pop_front() {
            None => inbox.is_over(0).then_some(None),
            some => Some(some),
        };
        match self.post.wait(later(patience + GRACE), next)? {
            Some(Some((at, message))) if kinds.contains(&message.kind) => Ok((at, message)),
            Some(Some((_, message))) => {
                let what = format!("it answered {:?} for {kinds:?}; this is a bug of Maestro", message.kind);
                Err(self.give_up(Error::Rank { rank: 0, what }))
            }
            Some(None) => Err(self.give_up(self.gone(0, deed))),
            None => {
                let absent = self.post.ask(GRACE)?.filter(|ranks| !ranks.is_empty()).unwrap_or_else(|| vec![0]);
                Err(self.give_up(missing(absent, deed, patience + GRACE)))
            }
        }
    }

    fn gone(&self, rank: u32, deed: &str) -> Error {
        let what = format!("it ended while rank {} waited for it to {deed}; see what its process said", self.post.rank);
        Error::Rank { rank, what }
    }

    /// The error of a connection that does not do what it should. Why it does not may be on its way.
    fn broken(&self, rank: u32, error: &io::Error) -> Error {
        if error.kind() == io::ErrorKind::InvalidInput {
            return self.give_up(Error::Rank { rank: self.post.rank, what: error.to_string() });
        }
        let link = self.post.links.iter().position(|link| link.rank == rank);
        let left = |inbox: &mut Inbox| link.filter(|link| inbox.is_over(*link));
        match self.post.wait(later(GRACE), left) {
            Err(failure) => failure,
            Ok(Some(_)) => self.give_up(self.gone(rank, "go on")),
            Ok(None) => self.give_up(Error::Rank { rank, what: format!("its connection failed: {error}") }),
        }
    }

    /// Ends the store for all: with ranks that are not in step, nothing can follow.
    fn give_up(&self, error: Error) -> Error {
        match &error {
            Error::Rank { rank, what } => self.post.fail(*rank, what, Source::Here),
            other => self.post.fail(self.post.rank, &other.to_string(), Source::Here),
        }
        error
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if thread::panicking() {
            self.fail("it panicked; this is a bug of Maestro");
        }
        self.post.leave();
    }
}

/// Beyond this, patience is endless, and instants might not be.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// When so much time will be over.
fn later(patience: Duration) -> Instant {
    Instant::now() + patience.min(LONGEST)
}

fn missing(ranks: Vec<u32>, deed: &str, patience: Duration) -> Error {
    let help = "look at what those ranks do before it, or allow more time".to_string();
    Error::Missing { ranks, what: deed.to_string(), seconds: patience.as_secs_f64(), help }
}

/// Comes back at `moment`, as exactly as a thread can: asleep while that is far, and awake for the end of it.
fn wait_for(moment: Instant) {
    const AWAKE: Duration = Duration::from_micros(500);
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(2 * AWAKE) {
            Some(_) => thread::sleep(left - AWAKE),
            None => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::{LONG, launches, run as together};
