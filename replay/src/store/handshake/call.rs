//! The side of every other rank: it finds rank 0 and introduces itself.

use std::io::{self, ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::{
    AGAIN, ANSWER, HANDSHAKE, MAGIC, Nonce, OTHER_SECRET, OTHER_VERSION, OTHER_WORLD, TAKEN, WELCOME, join_error, left,
    prove, read,
};
use crate::{Error, Launch, Result};

/// Any other rank connects to rank 0, again and again until `patience` is over.
///
/// # Errors
/// Rank 0 was not there, said nothing, or turned this rank away.
pub(in crate::store) fn call(launch: &Launch, patience: Duration) -> Result<TcpStream> {
    let deadline = Instant::now() + patience;
    let mut pause = AGAIN.0;
    loop {
        let error = match connect(launch, deadline) {
            Ok(stream) => match introduce(launch, &stream, deadline) {
                Ok(()) => return Ok(stream),
                Err(Turned::Away(error)) => return Err(error),
                Err(Turned::Broken(error)) => format!("answered, but did not complete the handshake: {error}"),
            },
            Err(error) => format!("was not reached: {error}"),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let help = "see whether rank 0 runs, whether its machine's firewall lets this port through, and whether \
                        MASTER_ADDR names that machine; MAESTRO_PORT chooses another port";
            return Err(join_error(launch, format!("{error} (tried for {:.1} s)", patience.as_secs_f64()), help));
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(AGAIN.1);
    }
}

fn connect(launch: &Launch, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "its name has no address");
    for address in (launch.address.as_str(), launch.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline).min(HANDSHAKE)) {
            // With nobody listening, a connection to a port of this machine can become one with itself.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => last = ErrorKind::ConnectionRefused.into(),
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Why a handshake did not succeed.
enum Turned {
    /// Trying again would not help.
    Away(Error),
    /// It might.
    Broken(io::Error),
}

impl From<io::Error> for Turned {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// One handshake, as any other rank.
fn introduce(launch: &Launch, stream: &TcpStream, deadline: Instant) -> std::result::Result<(), Turned> {
    let away = |what: String, help: &str| Err(Turned::Away(join_error(launch, what, help)));
    let another = "start the same build of Maestro on all ranks";
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(HANDSHAKE))?;
    let magic: [u8; 8] = read(stream, deadline.min(Instant::now() + HANDSHAKE))?;
    if magic[..7] != MAGIC[..7] {
        return away("is another program".into(), "set MAESTRO_PORT to a free port, on all ranks");
    }
    if magic != MAGIC {
        // Rank 0 is told, so that it can say whom it waits for.
        let mut stream = stream;
        let _ = stream.write_all(&MAGIC);
        return away("runs another version of Maestro".into(), another);
    }
    let nonce: Nonce = read(stream, deadline.min(Instant::now() + HANDSHAKE))?;
    let (rank, world) = (launch.rank, launch.world);
    let proof = prove(&launch.secret, nonce, rank, world);
    let hello = [MAGIC.as_slice(), &rank.to_le_bytes(), &world.to_le_bytes(), &proof].concat();
    (&mut &*stream).write_all(&hello)?;
    // From here on rank 0 may count this rank as there: to give up early and come again would be to come twice.
    let [answer, their_world @ ..]: [u8; ANSWER] = read(stream, deadline)?;
    match answer {
        WELCOME => Ok(()),
        OTHER_VERSION => away("runs another version of Maestro".into(), another),
        OTHER_SECRET => away(
            "belongs to another launch: its secret is not this one's".into(),
            "set MAESTRO_PORT to a free port, or MAESTRO_SECRET to the same text, on all ranks",
        ),
        OTHER_WORLD => away(
            format!("expects {} ranks, and this is rank {rank} of {world}", u32::from_le_bytes(their_world)),
            "start all ranks with the same number of ranks",
        ),
        TAKEN => away(format!("has a rank {rank} already"), "give every process a rank of its own"),
        _ => away("gave an answer that means nothing".into(), another),
    }
}
