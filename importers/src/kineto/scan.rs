//! Cuts a JSON text into its values without reading it whole: a block and a bit in memory, whatever the file's size.
//!
//! It knows braces, brackets, quotes and commas, and exact byte positions; what a value says is read from the cut.
//! Events are not handed out one by one but stay in the buffer until it is full and go away with it, as a [`Batch`], to
//! whoever reads them: so no byte of an event is copied, and cutting and reading may go to different threads.

use serde::de::IgnoredAny;

use super::batch::{Batch, Span, problem};
use super::nesting::Nesting;
use super::outline::{Doubt, Outline, outline};
use crate::input::Input;
use crate::{Error, Result};

/// How much is read at a time: small enough for the processor's cache.
const BLOCK_BYTES: usize = 512 * 1024;

/// No event, and no value that is kept, is longer; what seems to be is damaged, and must not fill the memory.
pub(super) const LONGEST: usize = 16 << 20;

/// What was being read when the text ended.
const IN_DOCUMENT: &str = "in the middle of the document";
const IN_VALUE: &str = "in the middle of a value";

/// A place in a JSON file.
pub(super) struct Scanner<'a> {
    input: Input<'a>,
    pub(super) buffer: Vec<u8>,
    /// Bytes of `buffer` that hold text.
    pub(super) filled: usize,
    /// Next byte of `buffer` to look at.
    pub(super) next: usize,
    /// Whether values beside the events are watched for damage: an open quote must not swallow all that follows.
    wary: bool,
    /// Where in the text `buffer` begins.
    base: u64,
    /// Events in `buffer` that were cut and not sent yet.
    pub(super) cuts: Vec<Span>,
    send: &'a dyn Fn(Batch),
}

/// One whole value, and where in the text it begins.
pub(super) struct Cut<'b> {
    /// Position of the first byte.
    pub(super) byte: u64,
    /// The value, without space around it.
    pub(super) text: &'b [u8],
}

impl<'a> Scanner<'a> {
    /// Begins before the first value, behind a byte order mark. Batches of events go to `send`.
    pub(super) fn new(input: Input<'a>, wary: bool, send: &'a dyn Fn(Batch)) -> Result<Self> {
        let (buffer, cuts) = (Vec::new(), Vec::new());
        let mut scanner = Self { input, buffer, filled: 0, next: 0, wary, base: 0, cuts, send };
        while scanner.filled < 3 && scanner.more(0)? {}
        if scanner.buffer[..scanner.filled].starts_with(b"\xef\xbb\xbf") {
            scanner.next = 3;
        }
        Ok(scanner)
    }

    /// What ended the text before its time, if its file is damaged and that was survived.
    pub(super) fn damage(&self) -> Option<&Error> {
        self.input.damage()
    }

    /// The same, for an error.
    pub(super) fn take_damage(&mut self) -> Option<Error> {
        self.input.take_damage()
    }

    /// Cuts the event that comes next, a `{`, for the batch.
    pub(super) fn event(&mut self) -> Result<()> {
        loop {
            let length = match outline(&self.buffer[self.next..self.filled]) {
                Outline::Whole(length, doubt) => match self.behind(length) {
                    Some(b',' | b']') | None => {
                        self.cut(length, doubt);
                        return Ok(());
                    }
                    Some(_) => 0,
                },
                Outline::Damaged => 0,
                Outline::Unfinished => self.filled - self.next,
            };
            // What is unfinished may be finished by what comes; all else is for the slow judge.
            if length == 0 || length > LONGEST || !self.more(self.next)? {
                return self.judged_event();
            }
        }
    }

    /// The same, as serde_json sees it.
    fn judged_event(&mut self) -> Result<()> {
        loop {
            let (byte, text) = (self.byte(), &self.buffer[self.next..self.filled]);
            let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
            match values.next() {
                Some(Ok(_)) => {
                    let length = values.byte_offset();
                    self.cut(length, Doubt { content: true, structure: false });
                    return Ok(());
                }
                Some(Err(error)) if !error.is_eof() => {
                    let (at, problem) = problem(byte, text, &error);
                    // What is wrong with the last byte (half a number, say) may be that it is the last.
                    let last = at + 1 >= byte + text.len() as u64;
                    if !last || text.len() > LONGEST {
                        return Err(self.malformed(at, problem));
                    }
                    if !self.more(self.next)? {
                        return Err(self.truncated(IN_VALUE));
                    }
                }
                _ if text.len() > LONGEST => {
                    return Err(self.malformed(byte, format!("an event of more than {LONGEST} bytes")));
                }
                _ if !self.more(self.next)? => return Err(self.truncated(IN_VALUE)),
                _ => {}
            }
        }
    }

    /// The next byte that is not space `length` from here, as far as it is there.
    fn behind(&self, length: usize) -> Option<u8> {
        self.buffer[self.next + length..self.filled].iter().copied().find(|byte| !byte.is_ascii_whitespace())
    }

    fn cut(&mut self, length: usize, doubt: Doubt) {
        self.cuts.push(Span { start: self.next, end: self.next + length, doubt });
        self.next += length;
    }

    /// Sends away what was cut.
    pub(super) fn flush(&mut self) {
        let keep = self.next;
        self.detach(keep);
    }

    /// Bytes from here to the end of the text.
    pub(super) fn drain(&mut self) -> Result<u64> {
        let start = self.byte();
        loop {
            self.next = self.filled;
            if !self.more(self.filled)? {
                return Ok(self.byte() - start);
            }
        }
    }

    /// The next byte that is not space, not taken yet; `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let rest = &self.buffer[self.next..self.filled];
            if let Some(space) = rest.iter().position(|byte| !byte.is_ascii_whitespace()) {
                self.next += space;
                return Ok(Some(self.buffer[self.next]));
            }
            self.next = self.filled;
            if !self.more(self.filled)? {
                return Ok(None);
            }
        }
    }

    /// Where the next byte is.
    pub(super) fn byte(&self) -> u64 {
        self.base + self.next as u64
    }

    /// Takes `wanted`, which must come next.
    pub(super) fn take(&mut self, wanted: u8) -> Result<()> {
        match self.peek()? {
            Some(byte) if byte == wanted => {
                self.next += 1;
                Ok(())
            }
            Some(byte) => Err(self.malformed(self.byte(), expected(wanted, byte))),
            None => Err(self.truncated(IN_DOCUMENT)),
        }
    }

    /// Goes to the next entry of an array or object that ends with `close`, over the comma unless it is the `first`.
    /// `false` when there is none, with `close` taken.
    pub(super) fn entry(&mut self, close: u8, first: &mut bool) -> Result<bool> {
        match self.peek()? {
            Some(byte) if byte == close => {
                self.next += 1;
                return Ok(false);
            }
            Some(_) if *first => *first = false,
            Some(b',') => self.next += 1,
            Some(byte) => return Err(self.malformed(self.byte(), expected(b',', byte))),
            None => return Err(self.truncated(IN_DOCUMENT)),
        }
        Ok(true)
    }

    /// Cuts out the next value.
    pub(super) fn value(&mut self) -> Result<Cut<'_>> {
        let length = self.measure(true)?;
        let start = self.next;
        self.next += length;
        Ok(Cut { byte: self.base + start as u64, text: &self.buffer[start..start + length] })
    }

    /// Passes over the next value, keeping none of it.
    pub(super) fn skip(&mut self) -> Result<()> {
        let length = self.measure(false)?;
        self.next += length;
        Ok(())
    }

    /// An error at `byte` of the text.
    pub(super) fn malformed(&self, byte: u64, problem: String) -> Error {
        Error::Malformed { file: self.input.file().to_owned(), byte, problem }
    }

    /// Bytes from `next` to the end of the value there. With `keep` the whole value is in the buffer afterwards;
    /// otherwise what was passed may be gone, and `next` stands at what is left.
    fn measure(&mut self, keep: bool) -> Result<usize> {
        match self.peek()? {
            Some(b',' | b':' | b']' | b'}') => {
                return Err(self.malformed(self.byte(), "a value is missing".to_owned()));
            }
            Some(_) => {}
            None => return Err(self.truncated(IN_DOCUMENT)),
        }
        let mut nesting = Nesting::watched(self.wary);
        let mut seen = 0;
        loop {
            let end = nesting.feed(&self.buffer[self.next + seen..self.filled]);
            if let Some((at, problem)) = nesting.damage {
                let byte = self.byte() + (seen + at) as u64;
                return Err(self.malformed(byte, problem.to_owned()));
            }
            if let Some(end) = end {
                return Ok(seen + end);
            }
            seen = self.filled - self.next;
            if !keep {
                self.next = self.filled;
                seen = 0;
            } else if seen > LONGEST {
                return Err(self.malformed(self.byte(), format!("a value of more than {LONGEST} bytes")));
            }
            if !self.more(self.next)? {
                // Only a bare number or word can end with the text; all else has a closing byte.
                return if nesting.scalar { Ok(seen) } else { Err(self.truncated(IN_VALUE)) };
            }
        }
    }

    /// Reads more text, dropping what lies before `keep`. `false` at the end.
    pub(super) fn more(&mut self, keep: usize) -> Result<bool> {
        self.detach(keep);
        // What is not finished is looked at from its beginning again: twice as much each time.
        let wanted = self.filled + BLOCK_BYTES.max(self.filled);
        if self.buffer.len() < wanted {
            self.replace_buffer(0, wanted);
        }
        let count = self.input.fill(&mut self.buffer[self.filled..])?;
        self.filled += count;
        Ok(count > 0)
    }

    /// Drops what lies before `keep`, sending it away if events were cut in it.
    fn detach(&mut self, keep: usize) {
        if self.cuts.is_empty() {
            self.buffer.copy_within(keep..self.filled, 0);
        } else {
            let text = self.replace_buffer(keep, self.filled - keep + BLOCK_BYTES);
            (self.send)(Batch { base: self.base, text, cuts: std::mem::take(&mut self.cuts) });
        }
        self.filled -= keep;
        self.next -= keep.min(self.next);
        self.base += keep as u64;
    }

    /// Goes on in another buffer of `length`, with what follows `keep`; gives the old one.
    fn replace_buffer(&mut self, keep: usize, length: usize) -> Vec<u8> {
        // From the system comes zeroed memory; to fill it is what costs time.
        let mut buffer = vec![0; length];
        buffer[..self.filled - keep].copy_from_slice(&self.buffer[keep..self.filled]);
        std::mem::replace(&mut self.buffer, buffer)
    }

    fn truncated(&self, inside: &'static str) -> Error {
        let byte = self.base + self.filled as u64;
        Error::Truncated { file: self.input.file().to_owned(), byte, inside }
    }
}

fn expected(wanted: u8, found: u8) -> String {
    format!("`{}` was expected before `{}`", wanted.escape_ascii(), found.escape_ascii())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Runs `test` on a scanner over `text`.
    fn scan<T>(text: &str, test: impl FnOnce(&mut Scanner<'_>) -> Result<T>) -> Result<T> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        test(&mut Scanner::new(Input::open(file.path(), true).unwrap(), false, &|_| {}).unwrap())
    }

    /// The entries of an array, each with its position.
    fn entries(text: &str) -> Result<Vec<(u64, String)>> {
        scan(text, |scanner| {
            let (mut entries, mut first) = (Vec::new(), true);
            scanner.take(b'[')?;
            while scanner.entry(b']', &mut first)? {
                let cut = scanner.value()?;
                entries.push((cut.byte, String::from_utf8_lossy(cut.text).into_owned()));
            }
            Ok(entries)
        })
    }

    #[test]
    fn values_are_cut_where_they_end() {
        let text = r#" [ 1,"a,]}\"", {"b": ["}", "\\"]} ,[], -2.5e3 , null]"#;
        let values = ["1", r#""a,]}\"""#, r#"{"b": ["}", "\\"]}"#, "[]", "-2.5e3", "null"];
        for (found, value) in entries(text).unwrap().into_iter().zip(values) {
            assert_eq!(found, (text.find(value).unwrap() as u64, value.to_owned()));
        }
        assert_eq!(entries(text).unwrap().len(), values.len());
        assert_eq!(entries("\u{feff}[]").unwrap(), []);
    }

    #[test]
    fn values_may_lie_across_blocks() {
        // Escapes, quotes and braces meet every position relative to the end of a block.
        let long = format!(r#"{{"{}": "{}"}}"#, r#"\\\""#.repeat(70_000), "}".repeat(100_001));
        for shift in 0..9 {
            let text = format!("[{}{long},{long}, 12{}]", " ".repeat(shift), "3".repeat(BLOCK_BYTES));
            let found = entries(&text).unwrap();
            assert_eq!(found.len(), 3);
            assert!(found[0].1 == long && found[1].1 == long, "shift {shift}");
            assert_eq!(found[1].0, (1 + shift + long.len() + 1) as u64);
            assert_eq!(found[2].1.len(), 2 + BLOCK_BYTES);
        }
    }

    #[test]
    fn skipping_keeps_the_count_of_bytes() {
        let long = format!("[\"{}\"]", "x".repeat(3 * BLOCK_BYTES));
        let text = format!("{long} 7");
        let (byte, value) = scan(&text, |scanner| {
            scanner.skip()?;
            assert!(scanner.buffer.len() <= 2 * BLOCK_BYTES);
            let cut = scanner.value()?;
            Ok((cut.byte, cut.text.to_owned()))
        })
        .unwrap();
        assert_eq!((byte, value.as_slice()), (long.len() as u64 + 1, &b"7"[..]));
    }

    #[test]
    fn what_is_missing_is_told_with_its_place() {
        for (text, place, what) in [
            ("[1 2]", 3, "`,` was expected before `2`"),
            ("{}", 0, "`[` was expected before `{`"),
            ("[1,]", 3, "a value is missing"),
            ("[,1]", 1, "a value is missing"),
        ] {
            match entries(text) {
                Err(Error::Malformed { byte, problem, .. }) => assert_eq!((byte, problem.as_str()), (place, what)),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_cut_text_is_told_with_its_length() {
        let text = r#"[{"a": "b\"", "c": [1, 2]}, 3]"#;
        for length in 1..text.len() {
            match entries(&text[..length]) {
                Err(Error::Truncated { byte, .. }) => assert_eq!(byte, length as u64),
                other => panic!("{}: {other:?}", &text[..length]),
            }
        }
    }
}
