//! How the processes of a launch find rank 0 and prove to it that they belong together.
//!
//! Rank 0 listens and sends whoever connects a number that it never sent before; the other answers with its rank and a
//! digest of that number and the launch's secret, which so is never sent. What that is worth, [`super::digest`] says.
//! Every handshake has a thread and a few seconds of its own, so that a stranger who says nothing holds up nobody.

mod call;
mod meet;

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

pub(super) use self::call::call;
pub(super) use self::meet::meet;
use super::digest::digest;
use crate::{Error, Launch};

/// What both sides begin with. Its last byte is the version of everything that follows.
pub(super) const MAGIC: [u8; 8] = *b"maestro\x01";

/// How long a handshake may take before a stranger is taken to be one.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The pause before a rank tries again, at first and at last.
const AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));

/// Rank 0's answer to a rank: a byte, and a number that explains it.
const ANSWER: usize = 5;
const WELCOME: u8 = 0;
const OTHER_VERSION: u8 = 1;
const OTHER_SECRET: u8 = 2;
const OTHER_WORLD: u8 = 3;
const TAKEN: u8 = 4;

/// A number that nobody heard before.
type Nonce = [u8; 16];

/// Reads so many bytes, and not a moment longer than until `deadline`, however slowly they trickle in.
fn read<const N: usize>(mut stream: &TcpStream, deadline: Instant) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        if Instant::now() >= deadline {
            return Err(io::Error::new(ErrorKind::TimedOut, "nothing came in time"));
        }
        stream.set_read_timeout(Some(left(deadline)))?;
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            // A timeout has either name; the deadline above ends it.
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// What is left of the time. Never nothing, which sockets take for forever.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// What a rank answers to a nonce.
fn prove(secret: &str, nonce: Nonce, rank: u32, world: u32) -> [u8; 16] {
    digest(&[secret.as_bytes(), &nonce, &rank.to_le_bytes(), &world.to_le_bytes()]).to_le_bytes()
}

fn join_error(launch: &Launch, what: String, help: &str) -> Error {
    Error::Join { address: format!("{}:{}", launch.address, launch.port), what, help: help.to_string() }
}
