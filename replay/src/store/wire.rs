//! Messages between the ranks of a store, as bytes: a kind, a length, a payload.

use std::io::{self, Error, ErrorKind, Read, Write};

/// The longest payload. What claims more is no message.
pub(super) const LONGEST: u64 = 1 << 32;

/// Payloads up to here are sent in one piece with their head, so that TCP makes one packet of them.
const TOGETHER: usize = 1 << 16;

/// What a message is. Those of [`Kind::is_call`] go to rank 0, one for each operation of each rank, and come back as
/// its answer where the operation has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All ranks are there.
    Begin = 1,
    /// What time is it?
    Ping,
    /// Nanoseconds on rank 0's clock.
    Pong,
    /// An operation: the clock is aligned, with this least round trip in nanoseconds.
    Clock,
    /// An operation: rank 0's bytes for everyone.
    Share,
    /// An operation: everyone's bytes for rank 0.
    Gather,
    /// An operation: a common moment on rank 0's clock.
    Barrier,
    /// Who has not come to operation n?
    Ask,
    /// These ranks have not.
    Absent,
    /// A rank failed, and why.
    Fail,
    /// Nothing will come after this.
    Bye,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Begin,
        Self::Ping,
        Self::Pong,
        Self::Clock,
        Self::Share,
        Self::Gather,
        Self::Barrier,
        Self::Ask,
        Self::Absent,
        Self::Fail,
        Self::Bye,
    ];

    /// Whether it is an operation of all ranks.
    pub(super) fn is_call(self) -> bool {
        matches!(self, Self::Clock | Self::Share | Self::Gather | Self::Barrier)
    }

    /// What a rank does that takes part, for errors.
    pub(super) fn deed(self) -> &'static str {
        match self {
            Self::Clock => "align its clock",
            Self::Share => "ask for what rank 0 shares",
            Self::Gather => "give its part of what rank 0 gathers",
            Self::Barrier => "reach the barrier",
            Self::Begin | Self::Ping | Self::Pong | Self::Ask | Self::Absent | Self::Fail | Self::Bye => "answer",
        }
    }
}

/// A message as it came.
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) payload: Vec<u8>,
}

impl Message {
    /// The number that is the whole payload.
    pub(super) fn number(&self) -> io::Result<u64> {
        self.payload.as_slice().try_into().map(u64::from_le_bytes).map_err(|_| garbled())
    }

    /// The ranks that are the payload.
    pub(super) fn ranks(&self) -> io::Result<Vec<u32>> {
        let (ranks, rest) = self.payload.as_chunks();
        if rest.is_empty() { Ok(ranks.iter().map(|rank| u32::from_le_bytes(*rank)).collect()) } else { Err(garbled()) }
    }

    /// The rank that failed, and why.
    pub(super) fn failure(&self) -> io::Result<(u32, String)> {
        let (rank, text) = self.payload.split_first_chunk().ok_or_else(garbled)?;
        Ok((u32::from_le_bytes(*rank), String::from_utf8_lossy(text).into_owned()))
    }
}

/// The payload of [`Kind::Absent`].
pub(super) fn ranks(ranks: &[u32]) -> Vec<u8> {
    ranks.iter().flat_map(|rank| rank.to_le_bytes()).collect()
}

/// The payload of [`Kind::Fail`].
pub(super) fn failure(rank: u32, text: &str) -> Vec<u8> {
    [&rank.to_le_bytes(), text.as_bytes()].concat()
}

/// Writes a message.
pub(super) fn send(mut to: impl Write, kind: Kind, payload: &[u8]) -> io::Result<()> {
    let length = payload.len() as u64;
    if length > LONGEST {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{length} bytes are too many for one message")));
    }
    let mut head = vec![kind as u8];
    head.extend(length.to_le_bytes());
    if payload.len() <= TOGETHER {
        head.extend(payload);
        return to.write_all(&head);
    }
    to.write_all(&head)?;
    to.write_all(payload)
}

/// Reads a message. Memory follows what arrives, not what its length claims.
pub(super) fn receive(mut from: impl Read) -> io::Result<Message> {
    let mut head = [0; 9];
    from.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind).ok_or_else(garbled)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST {
        return Err(garbled());
    }
    let mut payload = Vec::new();
    from.take(length).read_to_end(&mut payload)?;
    if (payload.len() as u64) < length { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(Message { kind, payload }) }
}

fn garbled() -> Error {
    Error::new(ErrorKind::InvalidData, "what came is no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_as_they_went() {
        for kind in Kind::ALL {
            for payload in [vec![], vec![7; 3], vec![9; TOGETHER + 1]] {
                let mut bytes = Vec::new();
                send(&mut bytes, kind, &payload).unwrap();
                let message = receive(bytes.as_slice()).unwrap();
                assert_eq!((message.kind, message.payload), (kind, payload));
                bytes.pop();
                assert!(receive(bytes.as_slice()).is_err());
            }
        }
    }

    #[test]
    fn payloads_are_read_or_refused() {
        let message = |payload| Message { kind: Kind::Absent, payload };
        assert_eq!(message(5u64.to_le_bytes().to_vec()).number().unwrap(), 5);
        assert_eq!(message(ranks(&[2, 5])).ranks().unwrap(), [2, 5]);
        assert_eq!(message(failure(3, "why")).failure().unwrap(), (3, "why".to_string()));
        for length in [1, 2, 3] {
            assert!(message(vec![0; length]).number().is_err());
            assert!(message(vec![0; length]).ranks().is_err());
            assert!(message(vec![0; length]).failure().is_err());
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert!(receive([0; 9].as_slice()).is_err());
        assert!(receive([99; 9].as_slice()).is_err());
        let mut endless = vec![Kind::Gather as u8];
        endless.extend(u64::MAX.to_le_bytes());
        assert!(receive(endless.as_slice()).is_err());
    }
}
