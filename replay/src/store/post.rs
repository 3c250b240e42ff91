//! The connections of one rank, and what came through them.
//!
//! Each connection has a thread that does nothing but read. So a rank hears that another failed while it waits for
//! something else or for nothing at all, rank 0 says what time it is without being disturbed, and the moment at which a
//! message came is taken before anyone has to wake up for it. What belongs to an operation is queued for whoever
//! performs it.

use std::collections::VecDeque;
use std::io::{self, BufReader, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::later;
use super::wire::{self, Kind, Message};
use crate::host::lock;
use crate::{Error, Result};

/// See the module. Rank 0 has a link to every other rank, in order; the others have one, to rank 0.
pub(super) struct Post {
    pub(super) rank: u32,
    /// Time 0 of this rank's clock.
    pub(super) began: Instant,
    pub(super) links: Vec<Link>,
    inbox: Mutex<Inbox>,
    changed: Condvar,
    /// Held while the others are told of a failure: whoever hears of it here may leave at once, and a goodbye that
    /// overtakes the failure would hide it.
    telling: Mutex<()>,
}

/// A connection.
pub(super) struct Link {
    /// The rank at its other end.
    pub(super) rank: u32,
    pub(super) stream: TcpStream,
    /// Held while a message is written, so that no other gets into it.
    writing: Mutex<()>,
}

/// What came.
pub(super) struct Inbox {
    /// By link.
    pub(super) boxes: Vec<Mailbox>,
    /// The first rank that failed, and why.
    failure: Option<(u32, String)>,
    /// Whether rank 0 knows of it, as far as this rank can tell.
    known: bool,
    /// Operations that this rank has come to.
    pub(super) calls: u64,
    /// The answer to [`Kind::Ask`].
    pub(super) absent: Option<Vec<u32>>,
}

/// What came through one link.
#[derive(Default)]
pub(super) struct Mailbox {
    /// When each came, and what.
    pub(super) queue: VecDeque<(Instant, Message)>,
    /// Operations that the other rank has come to.
    calls: u64,
    /// It said goodbye.
    left: bool,
    /// Nothing will come any more, for whatever reason.
    closed: bool,
}

/// How a rank comes to know of a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// It found out by itself.
    Here,
    /// The other end of a link said so.
    Told(usize),
    /// A link broke.
    Broke(usize),
}

impl Post {
    /// Begins to read what comes through these streams, each with the rank at its other end.
    pub(super) fn open(rank: u32, streams: Vec<(u32, TcpStream)>, patience: Duration) -> Result<Arc<Self>> {
        let broken = |rank, error: io::Error| Error::Rank { rank, what: format!("its connection failed: {error}") };
        for (other, stream) in &streams {
            stream.set_read_timeout(None).map_err(|error| broken(*other, error))?;
        }
        let boxes = streams.iter().map(|_| Mailbox::default()).collect();
        let link = |(rank, stream)| Link { rank, stream, writing: Mutex::default() };
        let own = Arc::new(Self {
            rank,
            began: Instant::now(),
            links: streams.into_iter().map(link).collect(),
            inbox: Mutex::new(Inbox { boxes, failure: None, known: false, calls: 0, absent: None }),
            changed: Condvar::new(),
            telling: Mutex::default(),
        });
        own.set_patience(patience);
        for index in 0..own.links.len() {
            let post = own.clone();
            let read = move || post.read(index);
            if let Err(source) = thread::Builder::new().spawn(read) {
                own.fail(rank, "the system gives it no more threads", Source::Here);
                return Err(Error::Thread { rank, source });
            }
        }
        Ok(own)
    }

    /// How long a message may take to be written.
    pub(super) fn set_patience(&self, patience: Duration) {
        // No time at all is refused by sockets.
        let patience = patience.max(Duration::from_millis(1));
        for link in &self.links {
            // A stream that takes no timeout is closed; who uses it will hear.
            let _ = link.stream.set_write_timeout(Some(patience));
        }
    }

    /// Now, on this rank's clock.
    pub(super) fn now_ns(&self) -> u64 {
        self.at_ns(Instant::now())
    }

    /// A moment on this rank's clock.
    pub(super) fn at_ns(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Sends a message through a link.
    pub(super) fn send(&self, link: usize, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let link = &self.links[link];
        let _writing = lock(&link.writing);
        let sent = wire::send(&link.stream, kind, payload);
        if sent.as_ref().is_err_and(|error| error.kind() != ErrorKind::InvalidInput) {
            // Part of the message may be out, and nothing can follow it.
            let _ = link.stream.shutdown(Shutdown::Write);
        }
        sent
    }

    /// Changes what is here, or looks at it.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut Inbox) -> R) -> R {
        change(&mut lock(&self.inbox))
    }

    /// Waits until `ready` gives something, but not beyond `deadline`; then `None`. What is ready counts, even if a rank
    /// failed since: so an operation that one rank got through, others that look later get through, too.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn wait<R>(
        &self,
        deadline: Instant,
        mut ready: impl FnMut(&mut Inbox) -> Option<R>,
    ) -> Result<Option<R>> {
        let mut inbox = lock(&self.inbox);
        loop {
            if let Some(result) = ready(&mut inbox) {
                return Ok(Some(result));
            }
            inbox.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            inbox = self.changed.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Errs once a rank has failed.
    pub(super) fn check(&self) -> Result<()> {
        lock(&self.inbox).check()
    }

    /// A rank failed: wakes whoever waits here and tells the others, except where it was heard from. Only the first
    /// failure counts.
    pub(super) fn fail(&self, rank: u32, text: &str, source: Source) {
        let _telling = lock(&self.telling);
        let first = self.update(|inbox| {
            let first = inbox.failure.is_none();
            inbox.failure.get_or_insert_with(|| (rank, text.to_string()));
            first
        });
        if !first {
            return;
        }
        let failure = wire::failure(rank, text);
        let heard_from = match source {
            Source::Here => None,
            Source::Told(link) | Source::Broke(link) => Some(link),
        };
        let mut known = self.rank == 0 || matches!(source, Source::Told(_));
        for (index, link) in self.links.iter().enumerate().filter(|(index, _)| Some(*index) != heard_from) {
            let listens = self.with(|inbox| !inbox.boxes[index].left && !inbox.boxes[index].closed);
            // Whoever cannot be told has trouble of its own.
            let told = self.send(index, Kind::Fail, &failure).is_ok();
            known |= listens && told && link.rank == 0;
        }
        self.with(|inbox| inbox.known = known);
    }

    /// Whether rank 0 knows of the failure, if there was one, and so can say what it was.
    pub(super) fn is_known(&self) -> bool {
        let _telling = lock(&self.telling);
        self.with(|inbox| inbox.known)
    }

    /// Waits until nothing more can come through a link, but not beyond `deadline`, whatever failed.
    pub(super) fn wait_for_end(&self, link: usize, deadline: Instant) {
        let mut inbox = lock(&self.inbox);
        while inbox.boxes.get(link).is_some_and(|mailbox| !mailbox.closed) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            inbox = self.changed.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Says goodbye to all.
    pub(super) fn leave(&self) {
        let _telling = lock(&self.telling);
        for (index, link) in self.links.iter().enumerate() {
            let _ = self.send(index, Kind::Bye, &[]);
            // Only the writing end: closing with something unread would take back what the other has not read yet.
            let _ = link.stream.shutdown(Shutdown::Write);
        }
    }

    /// Has whoever waits here look again.
    #[cfg(feature = "mpi")]
    pub(super) fn wake(&self) {
        self.update(|_| ());
    }

    fn update<R>(&self, change: impl FnOnce(&mut Inbox) -> R) -> R {
        let result = self.with(change);
        self.changed.notify_all();
        result
    }

    /// Reads a link until its other end leaves or breaks.
    fn read(&self, index: usize) {
        let link = &self.links[index];
        let mut stream = BufReader::new(&link.stream);
        loop {
            let taken = wire::receive(&mut stream).and_then(|message| self.take(index, message));
            match taken {
                Ok(true) => {}
                Ok(false) => {
                    self.update(|inbox| inbox.boxes[index].closed = true);
                    return;
                }
                Err(error) => {
                    self.update(|inbox| inbox.boxes[index].closed = true);
                    let what = match error.kind() {
                        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                            "its connection closed without a goodbye; see what its process said last, and whether the \
                             system ended it"
                                .to_string()
                        }
                        _ => format!("its connection failed: {error}"),
                    };
                    return self.fail(link.rank, &what, Source::Broke(index));
                }
            }
        }
    }

    /// Deals with a message; says whether more will come.
    fn take(&self, index: usize, message: Message) -> io::Result<bool> {
        let at = Instant::now();
        match message.kind {
            Kind::Ping => {
                // Whoever cannot be answered is about to be found broken by this very thread.
                let _ = self.send(index, Kind::Pong, &self.now_ns().to_le_bytes());
            }
            Kind::Ask => {
                let call = message.number()?;
                let _ = self.send(index, Kind::Absent, &wire::ranks(&self.absent(call)));
            }
            Kind::Absent => {
                let absent = message.ranks()?;
                self.update(|inbox| inbox.absent = Some(absent));
            }
            Kind::Fail => {
                let (rank, text) = message.failure()?;
                self.fail(rank, &text, Source::Told(index));
            }
            Kind::Bye => {
                self.update(|inbox| inbox.boxes[index].left = true);
                return Ok(false);
            }
            Kind::Begin | Kind::Pong | Kind::Clock | Kind::Share | Kind::Gather | Kind::Barrier => {
                self.update(|inbox| {
                    inbox.boxes[index].calls += u64::from(message.kind.is_call());
                    inbox.boxes[index].queue.push_back((at, message));
                });
            }
        }
        Ok(true)
    }

    /// The ranks, as far as this one knows, that have not come to the n-th operation.
    fn absent(&self, call: u64) -> Vec<u32> {
        self.with(|inbox| {
            let own = (inbox.calls < call).then_some(self.rank);
            let others = self.links.iter().zip(&inbox.boxes).filter(|(_, mailbox)| mailbox.calls < call);
            own.into_iter().chain(others.map(|(link, _)| link.rank)).collect()
        })
    }

    /// Asks rank 0 who has not come to this rank's operation.
    ///
    /// # Errors
    /// A rank failed.
    pub(super) fn ask(&self, patience: Duration) -> Result<Option<Vec<u32>>> {
        let call = self.with(|inbox| {
            inbox.absent = None;
            inbox.calls
        });
        // Without an answer, nobody is known.
        let _ = self.send(0, Kind::Ask, &call.to_le_bytes());
        self.wait(later(patience), |inbox| inbox.absent.take())
    }
}

impl Inbox {
    /// Whether nothing more will come through a link for no worse reason than a goodbye.
    pub(super) fn is_over(&self, link: usize) -> bool {
        let Mailbox { queue, left, .. } = &self.boxes[link];
        queue.is_empty() && *left && self.failure.is_none()
    }

    fn check(&self) -> Result<()> {
        match &self.failure {
            Some((rank, what)) => Err(Error::Rank { rank: *rank, what: what.clone() }),
            None => Ok(()),
        }
    }
}
