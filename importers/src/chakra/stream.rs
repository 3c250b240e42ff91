//! A Chakra file as a stream of messages, each behind its length. What the messages mean is not known here, but for
//! what tells such a file from any other.
//!
//! The file itself begins with no magic number. What it begins with must be right, though: lengths that fit, fields
//! that the schema has, of the kinds that it says.

use std::path::Path;

use crate::input::{Head, Input, Verdict};
use crate::{Error, Result};

/// No node is longer; a length beyond it is damage.
const MOST_BYTES: u64 = 1 << 28;

/// How much is read at a time.
const CHUNK: usize = 64 * 1024;

/// Kinds of fields on the wire.
const VARINT: u8 = 0;
const LENGTH: u8 = 2;

/// Messages of a file, one by one.
pub(super) struct Messages<'a> {
    input: Input<'a>,
    buffer: Vec<u8>,
    place: usize,
    /// Where the buffer begins in the content.
    byte: u64,
    first: bool,
}

impl<'a> Messages<'a> {
    pub fn open(file: &'a Path, strict: bool) -> Result<Self> {
        Ok(Self { input: Input::open(file, strict)?, buffer: Vec::new(), place: 0, byte: 0, first: true })
    }

    /// Where the next message begins.
    pub fn at(&self) -> u64 {
        self.byte + self.place as u64
    }

    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// The file ends inside of it, or its length is none.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let from = self.at();
        let first = std::mem::replace(&mut self.first, false);
        let mut length = 0u64;
        for shift in (0..64).step_by(7) {
            let Some(byte) = self.byte()? else {
                return match shift {
                    0 => self.input.take_damage().map_or(Ok(None), Err),
                    _ => Err(self.cut(from)),
                };
            };
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        // Only the metadata may be empty; behind them, no length is the end.
        if length == 0 && !first {
            return Ok(None);
        }
        if length > MOST_BYTES {
            return Err(self.damage(from, format!("a message of {length} bytes")));
        }
        // The length may be damage, so room is made for what there is.
        let mut message = Vec::new();
        while (message.len() as u64) < length {
            if self.place == self.buffer.len() && !self.refill()? {
                return Err(self.cut(from));
            }
            let wanted = (length as usize - message.len()).min(self.buffer.len() - self.place);
            message.extend_from_slice(&self.buffer[self.place..self.place + wanted]);
            self.place += wanted;
        }
        Ok(Some(message))
    }

    pub fn damage(&self, byte: u64, problem: String) -> Error {
        Error::BadMessage { file: self.input.file().to_owned(), byte, problem }
    }

    fn cut(&mut self, from: u64) -> Error {
        self.input.take_damage().unwrap_or_else(|| self.damage(from, "the file ends inside this message".to_owned()))
    }

    fn byte(&mut self) -> Result<Option<u8>> {
        if self.place == self.buffer.len() && !self.refill()? {
            return Ok(None);
        }
        self.place += 1;
        Ok(Some(self.buffer[self.place - 1]))
    }

    fn refill(&mut self) -> Result<bool> {
        self.byte += self.buffer.len() as u64;
        self.buffer.resize(CHUNK, 0);
        self.place = 0;
        let length = self.input.fill(&mut self.buffer);
        self.buffer.truncate(length.as_ref().copied().unwrap_or(0));
        Ok(length? > 0)
    }
}

/// Whether a file that begins so is a Chakra execution trace.
pub(super) fn recognise(head: &Head) -> Verdict {
    let Some((metadata, rest)) = message(head.bytes()) else { return Verdict::No };
    let Some(metadata) = metadata.and_then(fields) else { return Verdict::No };
    if !metadata.iter().all(|(field, kind, _)| matches!((field, kind), (1 | 2, &LENGTH))) {
        return Verdict::No;
    }
    let Some((node, _)) = message(rest) else {
        let told = metadata.iter().any(|(_, _, content)| !content.is_empty());
        return if told && rest.is_empty() { Verdict::Maybe } else { Verdict::No };
    };
    // A node longer than the head is not looked into.
    let Some(node) = node else { return if metadata.is_empty() { Verdict::No } else { Verdict::Maybe } };
    let Some(node) = fields(node) else { return Verdict::No };
    let right = |(field, kind, content): &(u64, u8, &[u8])| match (field, *kind) {
        (1 | 3 | 4 | 5 | 6 | 7, VARINT) | (4 | 5 | 8 | 9 | 10, LENGTH) => true,
        (2, LENGTH) => std::str::from_utf8(content).is_ok(),
        (1..=10, _) => false,
        // Later versions have more.
        (field, _) => *field < 64,
    };
    let named = node.iter().any(|(field, kind, _)| matches!((field, *kind), (2, LENGTH) | (3, VARINT)));
    if named && node.iter().all(right) { Verdict::Yes } else { Verdict::No }
}

/// The content of the first message, `None` if it goes on behind the end, and what follows it. `None`: there is none.
fn message(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = varint(bytes)?;
    let length = usize::try_from(length).ok().filter(|length| *length as u64 <= MOST_BYTES)?;
    match rest.split_at_checked(length) {
        Some((content, rest)) => Some((Some(content), rest)),
        None => Some((None, &[])),
    }
}

/// The fields of a message: number, kind, content. `None` if it is none.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, u8, &[u8])>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (key, rest) = varint(bytes)?;
        let (field, kind) = (key >> 3, (key & 7) as u8);
        let length = match kind {
            VARINT => rest.iter().position(|byte| byte & 0x80 == 0)? + 1,
            1 => 8,
            LENGTH => {
                let (length, content) = varint(rest)?;
                let (content, rest) = content.split_at_checked(usize::try_from(length).ok()?)?;
                fields.push((field, kind, content));
                bytes = rest;
                continue;
            }
            5 => 4,
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        fields.push((field, kind, content));
        bytes = rest;
    }
    fields.iter().all(|(field, ..)| *field > 0).then_some(fields)
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[place + 1..]));
        }
    }
    None
}
