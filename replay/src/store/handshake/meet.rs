//! Rank 0's side: a door, and everyone who knocks.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::{
    AGAIN, ANSWER, HANDSHAKE, MAGIC, Nonce, OTHER_SECRET, OTHER_VERSION, OTHER_WORLD, TAKEN, WELCOME, join_error,
    prove, read,
};
use crate::host::lock;
use crate::store::wire::{self, Kind};
use crate::{Error, Launch, Result};

/// Whom rank 0 met at its door.
enum Knock {
    Joined(u32, TcpStream),
    /// Why somebody was turned away.
    Refused(String),
}

/// What every handshake of rank 0 needs.
struct Door {
    secret: String,
    world: u32,
    taken: Mutex<HashSet<u32>>,
    knocks: Sender<Knock>,
    closed: AtomicBool,
}

/// Rank 0 waits for all the others: their streams in order of rank.
///
/// # Errors
/// It cannot listen, or ranks are missing when `patience` is over; those who came are told.
pub(in crate::store) fn meet(launch: &Launch, patience: Duration) -> Result<Vec<TcpStream>> {
    let deadline = Instant::now() + patience;
    let cannot = |error: io::Error| {
        let help = "if another program has the port, set MAESTRO_PORT to a free one, on all ranks";
        join_error(launch, format!("cannot listen there: {error}"), help)
    };
    let listener = TcpListener::bind(doors(launch).map_err(cannot)?.as_slice()).map_err(cannot)?;
    let here = listener.local_addr().map_err(cannot)?;
    let (knocks, knocking) = channel();
    let door = Arc::new(Door {
        secret: launch.secret.clone(),
        world: launch.world,
        taken: Mutex::default(),
        knocks,
        closed: AtomicBool::new(false),
    });
    let keeper = {
        let door = door.clone();
        let keep = move || keep(&listener, &door);
        thread::Builder::new().spawn(keep).map_err(|source| Error::Thread { rank: 0, source })?
    };
    let joined = gather(launch, &knocking, deadline, patience);
    door.closed.store(true, Ordering::SeqCst);
    // The keeper sleeps until somebody comes. Once it is gone, so is the listener.
    if TcpStream::connect_timeout(&reachable(here), HANDSHAKE).is_ok() {
        let _ = keeper.join();
    }
    joined
}

/// Where rank 0 listens: only here if nobody else could come, else on all interfaces.
///
/// A name is not looked up for that: many machines call themselves 127.0.1.1, and others come all the same.
fn doors(launch: &Launch) -> io::Result<Vec<SocketAddr>> {
    let port = launch.port;
    match launch.address.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => Ok(vec![(ip, port).into()]),
        Err(_) if launch.address == "localhost" => Ok(("localhost", port).to_socket_addrs()?.collect()),
        // The first takes IPv4, too, where the machine has IPv6.
        _ => Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]),
    }
}

/// An address of this machine at which a listener on `bound` can be reached.
fn reachable(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    (ip, bound.port()).into()
}

/// Hands everyone who connects to a thread of their own.
fn keep(listener: &TcpListener, door: &Arc<Door>) {
    loop {
        let stream = listener.accept();
        if door.closed.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, from)) = stream else {
            // Out of files, say. Whoever waits will still be there.
            thread::sleep(AGAIN.0);
            continue;
        };
        let door = door.clone();
        // Without a thread the stream closes, and a rank tries again.
        let _ = thread::Builder::new().spawn(move || {
            if let Some(knock) = greet(&door, stream, from) {
                let _ = door.knocks.send(knock);
            }
        });
    }
}

/// One handshake, as rank 0. `None` for a stranger.
fn greet(door: &Door, stream: TcpStream, from: SocketAddr) -> Option<Knock> {
    let deadline = Instant::now() + HANDSHAKE;
    let nonce = nonce();
    stream.set_nodelay(true).ok()?;
    stream.set_write_timeout(Some(HANDSHAKE)).ok()?;
    (&stream).write_all(&[MAGIC.as_slice(), &nonce].concat()).ok()?;
    let magic: [u8; 8] = read(&stream, deadline).ok()?;
    if magic[..7] != MAGIC[..7] {
        return None;
    }
    let refuse = |answer: u8, what: String| {
        let _ = reply(&stream, answer, door.world);
        Some(Knock::Refused(format!("{} {what}", from.ip())))
    };
    if magic != MAGIC {
        return refuse(OTHER_VERSION, "runs another version of Maestro".into());
    }
    let rank = u32::from_le_bytes(read(&stream, deadline).ok()?);
    let world = u32::from_le_bytes(read(&stream, deadline).ok()?);
    let proof: [u8; 16] = read(&stream, deadline).ok()?;
    if proof != prove(&door.secret, nonce, rank, world) {
        return refuse(OTHER_SECRET, format!("came as rank {rank} of another launch, with another secret"));
    }
    if world != door.world {
        return refuse(OTHER_WORLD, format!("came as rank {rank} of {world}, where {} are expected", door.world));
    }
    if rank == 0 || rank >= world || !lock(&door.taken).insert(rank) {
        return refuse(TAKEN, format!("came as rank {rank}, which is there already"));
    }
    if reply(&stream, WELCOME, world).is_err() {
        lock(&door.taken).remove(&rank);
        return None;
    }
    Some(Knock::Joined(rank, stream))
}

fn reply(mut stream: &TcpStream, answer: u8, world: u32) -> io::Result<()> {
    let [a, b, c, d] = world.to_le_bytes();
    let answer: [u8; ANSWER] = [answer, a, b, c, d];
    stream.write_all(&answer)
}

/// Takes in ranks until all are there.
fn gather(
    launch: &Launch,
    knocking: &Receiver<Knock>,
    deadline: Instant,
    patience: Duration,
) -> Result<Vec<TcpStream>> {
    let mut streams: Vec<Option<TcpStream>> = (1..launch.world).map(|_| None).collect();
    let mut refused: Vec<String> = Vec::new();
    while streams.iter().any(Option::is_none) {
        match knocking.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Knock::Joined(rank, stream)) => streams[rank as usize - 1] = Some(stream),
            Ok(Knock::Refused(why)) if !refused.contains(&why) => refused.push(why),
            Ok(Knock::Refused(_)) => {}
            // The door holds a sender, so nothing but time ends this.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let error = missing(launch, &streams, &refused, patience);
                let failure = wire::failure(0, &error.to_string());
                for stream in streams.iter().flatten() {
                    let _ = wire::send(stream, Kind::Fail, &failure);
                }
                return Err(error);
            }
        }
    }
    Ok(streams.into_iter().flatten().collect())
}

fn missing(launch: &Launch, streams: &[Option<TcpStream>], refused: &[String], patience: Duration) -> Error {
    const SHOWN: usize = 4;
    let ranks = (1..launch.world).filter(|rank| streams[*rank as usize - 1].is_none()).collect();
    let turned_away = match refused.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => none,
        some => format!(" (turned away: {some})"),
    };
    Error::Missing {
        ranks,
        what: format!("join rank 0 at {}:{}", launch.address, launch.port),
        seconds: patience.as_secs_f64(),
        help: format!("look at what those ranks say, and whether a firewall keeps them out{turned_away}"),
    }
}

/// Seeded by the system, the time and this process.
fn nonce() -> Nonce {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let half = |lane: u8| RandomState::new().hash_one((now, std::process::id(), lane)).to_le_bytes();
    let mut nonce = Nonce::default();
    nonce[..8].copy_from_slice(&half(0));
    nonce[8..].copy_from_slice(&half(1));
    nonce
}
