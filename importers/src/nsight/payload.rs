//! What NCCL puts beside its NVTX ranges: a communicator, a number of bytes, a peer; as bytes of a C structure.
//!
//! Layouts are told by the call and the length. Up to NCCL 2.24 there is no communicator in front. Exports to SQLite put
//! a header of 32 bytes before it (domain, schema, length, and one more number).

/// The first schema that NCCL registers has this number.
const FIRST_SCHEMA: u64 = 1 << 24;

/// NCCL has fewer schemas and enumerations than this.
const SCHEMAS: u64 = 256;

/// Length of the header in SQLite exports.
const HEADER: usize = 32;

/// What the payload of a call says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// The communicator's number, the same on all its ranks.
    pub communicator: Option<u64>,
    /// Size of one message: what is sent to or received from each where sides differ.
    pub bytes: u64,
    /// What follows: a peer, a root, a reduction.
    pub argument: Option<i32>,
}

/// What the payload of a communicator's making says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub communicator: u64,
    pub ranks: u32,
    pub rank: u32,
}

/// Of a call with or without an `argument` behind the bytes.
pub(super) fn message(data: &[u8], argument: bool) -> Option<Message> {
    let data = bare(data);
    let number = |at: usize| data.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let small = |at: usize| data.get(at..at + 4)?.try_into().ok().map(i32::from_le_bytes);
    Some(match (argument, data.len()) {
        (false, 16..) => Message { communicator: number(0), bytes: number(8)?, argument: None },
        (true, 20..) => Message { communicator: number(0), bytes: number(8)?, argument: small(16) },
        (false, 8..) => Message { communicator: None, bytes: number(0)?, argument: None },
        (true, 12..) => Message { communicator: None, bytes: number(0)?, argument: small(8) },
        _ => return None,
    })
}

/// Of `ncclCommInitRank` and its kin, since NCCL 2.25.
pub(super) fn membership(data: &[u8]) -> Option<Membership> {
    let data = bare(data);
    let small = |at: usize| data.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let communicator = u64::from_le_bytes(data.get(..8)?.try_into().ok()?);
    let (ranks, rank) = (small(8)?, small(12)?);
    (rank < ranks).then_some(Membership { communicator, ranks, rank })
}

/// Without the header of SQLite exports, if it has one.
fn bare(data: &[u8]) -> &[u8] {
    let number = |at: usize| data.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let (Some(schema), Some(length)) = (number(8), number(16)) else { return data };
    let room = data.len().saturating_sub(HEADER) as u64;
    if data.len() > HEADER && (FIRST_SCHEMA..FIRST_SCHEMA + SCHEMAS).contains(&schema) && (1..=room).contains(&length) {
        return &data[HEADER..HEADER + length as usize];
    }
    data
}

/// Base64 with the common alphabet, as JSON exports write bytes. `None` if it is none.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    if text.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for byte in group {
            let value = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_with_and_without_padding() {
        for (text, bytes) in
            [("", &b""[..]), ("Zg==", b"f"), ("Zg", b"f"), ("Zm8=", b"fo"), ("Zm9v", b"foo"), ("+/8=", &[0xfb, 0xff])]
        {
            assert_eq!(base64(text).as_deref(), Some(bytes), "{text}");
        }
        for text in ["Z", "Zm9v!", "Zm 9v"] {
            assert_eq!(base64(text), None, "{text}");
        }
    }

    #[test]
    fn messages_are_told_by_their_length_with_and_without_a_communicator() {
        let of = |parts: &[&[u8]]| parts.concat();
        let (comm, bytes, peer) = (7u64.to_le_bytes(), 4096u64.to_le_bytes(), 1i32.to_le_bytes());
        let padding = [0xe6, 5, 0, 0];
        let told = |communicator, argument| Some(Message { communicator, bytes: 4096, argument });
        assert_eq!(message(&of(&[&comm, &bytes]), false), told(Some(7), None));
        assert_eq!(message(&of(&[&comm, &bytes, &peer, &padding]), true), told(Some(7), Some(1)));
        assert_eq!(message(&bytes, false), told(None, None));
        assert_eq!(message(&of(&[&bytes, &peer, &padding]), true), told(None, Some(1)));
        assert_eq!(message(&[1, 2, 3], false), None);
        assert_eq!(message(&bytes, true), None);
        // The header of an SQLite export: domain, schema, length, one more.
        let (domain, schema, length) = (1u64.to_le_bytes(), (FIRST_SCHEMA + 4).to_le_bytes(), 16u64.to_le_bytes());
        let framed = of(&[&domain, &schema, &length, &48u64.to_le_bytes(), &comm, &bytes]);
        assert_eq!(message(&framed, false), told(Some(7), None));
    }

    #[test]
    fn memberships_that_cannot_be_are_none() {
        let of = |ranks: u32, rank: u32| {
            [&9u64.to_le_bytes()[..], &ranks.to_le_bytes(), &rank.to_le_bytes(), &0u32.to_le_bytes()].concat()
        };
        assert_eq!(membership(&of(4, 3)), Some(Membership { communicator: 9, ranks: 4, rank: 3 }));
        assert_eq!(membership(&of(4, 4)), None);
        assert_eq!(membership(&[0; 8]), None);
    }
}
