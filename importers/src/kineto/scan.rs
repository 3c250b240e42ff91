//! Cuts a JSON text into its values without reading it whole: one value and a bit in memory, whatever the file's size.
//!
//! It knows braces, brackets, quotes and commas, and exact byte positions; what a value says is read by serde_json from
//! the cut. That takes two passes over each byte, and is still faster than serde_json over a reader, which takes the
//! text byte by byte and can lend nothing. It also leaves a seam: cutting and reading may go to different threads.

use crate::input::Input;
use crate::{Error, Result};

/// How much is read at a time: small enough for the processor's cache.
const BLOCK_BYTES: usize = 256 * 1024;

/// What was being read when the text ended.
const IN_DOCUMENT: &str = "in the middle of the document";
const IN_VALUE: &str = "in the middle of a value";

/// A place in a JSON file.
pub(super) struct Scanner<'a> {
    input: Input<'a>,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that hold text.
    filled: usize,
    /// Next byte of `buffer` to look at.
    next: usize,
    /// Where in the text `buffer` begins.
    base: u64,
}

/// One whole value, and where in the text it begins.
pub(super) struct Cut<'b> {
    /// Position of the first byte.
    pub(super) byte: u64,
    /// The value, without space around it.
    pub(super) text: &'b [u8],
}

impl<'a> Scanner<'a> {
    /// Begins before the first value, behind a byte order mark.
    pub(super) fn new(input: Input<'a>) -> Result<Self> {
        let mut scanner = Self { input, buffer: Vec::new(), filled: 0, next: 0, base: 0 };
        while scanner.filled < 3 && scanner.more(0)? {}
        if scanner.buffer[..scanner.filled].starts_with(b"\xef\xbb\xbf") {
            scanner.next = 3;
        }
        Ok(scanner)
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
        let mut nesting = Nesting::default();
        let mut seen = 0;
        loop {
            if let Some(end) = nesting.feed(&self.buffer[self.next + seen..self.filled]) {
                return Ok(seen + end);
            }
            seen = self.filled - self.next;
            if !keep {
                self.next = self.filled;
                seen = 0;
            }
            if !self.more(self.next)? {
                // Only a bare number or word can end with the text; all else has a closing byte.
                return if nesting.scalar { Ok(seen) } else { Err(self.truncated(IN_VALUE)) };
            }
        }
    }

    /// Reads more text, dropping what lies before `keep`. `false` at the end.
    fn more(&mut self, keep: usize) -> Result<bool> {
        self.buffer.copy_within(keep..self.filled, 0);
        self.filled -= keep;
        self.next -= keep.min(self.next);
        self.base += keep as u64;
        if self.buffer.len() < self.filled + BLOCK_BYTES {
            self.buffer.resize(self.filled + BLOCK_BYTES, 0);
        }
        let count = self.input.read(&mut self.buffer[self.filled..])?;
        self.filled += count;
        Ok(count > 0)
    }

    fn truncated(&self, inside: &'static str) -> Error {
        let byte = self.base + self.filled as u64;
        Error::Truncated { file: self.input.file().to_owned(), byte, inside }
    }
}

fn expected(wanted: u8, found: u8) -> String {
    format!("`{}` was expected before `{}`", wanted.escape_ascii(), found.escape_ascii())
}

/// How deep in a value the text is; fed piece by piece.
#[derive(Default)]
struct Nesting {
    depth: u32,
    quoted: bool,
    escaped: bool,
    /// The value is a bare number or word.
    scalar: bool,
}

impl Nesting {
    /// Goes through `text`; the number of its bytes up to the end of the value, if that is in it.
    fn feed(&mut self, text: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if self.quoted {
                if self.escaped {
                    text.get(at)?;
                    at += 1;
                    self.escaped = false;
                }
                at += text[at..].iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
                if text[at] == b'\\' {
                    self.escaped = true;
                } else {
                    self.quoted = false;
                }
                at += 1;
                if !self.quoted && self.depth == 0 {
                    return Some(at);
                }
            } else if self.depth > 0 {
                at += text[at..].iter().position(|byte| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']'))?;
                match text[at] {
                    b'"' => self.quoted = true,
                    b'{' | b'[' => self.depth += 1,
                    _ => self.depth -= 1,
                }
                at += 1;
                if self.depth == 0 {
                    return Some(at);
                }
            } else if self.scalar {
                let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b':' | b']' | b'}');
                return text[at..].iter().position(ends).map(|end| at + end);
            } else {
                match text.get(at)? {
                    b'"' => self.quoted = true,
                    b'{' | b'[' => self.depth = 1,
                    _ => self.scalar = true,
                }
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Runs `test` on a scanner over `text`.
    fn scan<T>(text: &str, test: impl FnOnce(&mut Scanner<'_>) -> Result<T>) -> Result<T> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        test(&mut Scanner::new(Input::open(file.path()).unwrap()).unwrap())
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
