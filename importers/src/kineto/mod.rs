//! Chrome-trace JSON as torch.profiler writes it (the library behind it is called Kineto), plain or gzip.
//!
//! Streaming: the text goes by one event at a time, and only rows that matter are kept. It is no general reader of
//! Chrome traces: without Kineto's categories and links there is nothing to import.

pub(crate) mod comm;
mod event;
mod groups;
mod header;
mod names;
mod overrun;
mod records;
mod rows;
mod scan;
mod tensors;
mod threads;
mod time;
mod timeline;
mod work;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_real;

use std::path::Path;

use self::event::Event;
use self::header::{Header, Key};
use self::rows::Rows;
use self::scan::{Cut, Scanner};
use crate::capture::Timeline;
use crate::input::Input;
use crate::{Error, Head, Importer, Notes, Result, Verdict};

/// What every complaint about the shape of a file says was expected.
const EXPECTED: &str = "an object with `traceEvents` or an array of events";

/// What every complaint about the shape of a file recommends.
const HELP: &str = "give the file that torch.profiler's export_chrome_trace wrote";

/// Reads the traces of torch.profiler.
pub struct Kineto;

impl Importer for Kineto {
    fn name(&self) -> &'static str {
        "kineto"
    }

    fn about(&self) -> &'static str {
        "Chrome-trace JSON by torch.profiler (.json or .json.gz)"
    }

    fn recognise(&self, head: &Head) -> Verdict {
        let bytes = head.bytes();
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut start = text.iter().filter(|byte| !byte.is_ascii_whitespace());
        match (start.next(), start.next()) {
            (Some(b'{'), Some(b'"')) if head.contains("\"traceEvents\"") => Verdict::Yes,
            (Some(b'['), Some(b'{')) if head.contains("\"ph\"") => Verdict::Yes,
            // Any other JSON: the metadata of large jobs can be longer than a head, and what is no trace gets told why.
            (Some(b'{'), Some(b'"' | b'}')) | (Some(b'['), Some(b'{' | b'[' | b']')) => Verdict::Maybe,
            _ => Verdict::No,
        }
    }

    fn read(&self, file: &Path, notes: &mut Notes) -> Result<Vec<Timeline>> {
        let mut reader = Reader {
            file,
            scanner: Scanner::new(Input::open(file)?)?,
            header: Header::default(),
            rows: Rows::default(),
            notes,
        };
        reader.document()?;
        reader.rows.finish(file, &reader.header, reader.notes)
    }
}

/// A file being read.
struct Reader<'a> {
    file: &'a Path,
    scanner: Scanner<'a>,
    header: Header,
    rows: Rows,
    notes: &'a mut Notes,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<()> {
        match self.scanner.peek()? {
            Some(b'{') => self.object()?,
            // The oldest files are nothing but the events.
            Some(b'[') => self.events()?,
            Some(_) => return Err(self.shape("something else than an object or an array")),
            None => return Err(Error::Empty { file: self.file.to_owned() }),
        }
        match self.scanner.peek()? {
            None => Ok(()),
            Some(_) => {
                let problem = "text goes on behind the end of the document".to_owned();
                Err(self.scanner.malformed(self.scanner.byte(), problem))
            }
        }
    }

    fn object(&mut self) -> Result<()> {
        self.scanner.take(b'{')?;
        let (mut first, mut events) = (true, false);
        while self.scanner.entry(b'}', &mut first)? {
            let key = self.scanner.value()?;
            if !key.text.starts_with(b"\"") {
                let byte = key.byte;
                return Err(self.scanner.malformed(byte, "a key in quotes was expected".to_owned()));
            }
            let (known, is_events) = (Key::from_quoted(key.text), key.text == br#""traceEvents""#);
            self.scanner.take(b':')?;
            if is_events && self.scanner.peek()? == Some(b'[') {
                self.events()?;
                events = true;
            } else if let Some(known) = known {
                let cut = self.scanner.value()?;
                let outcome = json(&cut).and_then(|text| {
                    self.header.take(known, text, self.notes).map_err(|error| problem(&cut, text, &error))
                });
                outcome.map_err(|(byte, problem)| self.scanner.malformed(byte, problem))?;
            } else {
                self.scanner.skip()?;
            }
        }
        if events { Ok(()) } else { Err(self.shape("an object without `traceEvents`")) }
    }

    fn events(&mut self) -> Result<()> {
        self.scanner.take(b'[')?;
        let mut first = true;
        while self.scanner.entry(b']', &mut first)? {
            // What ends too early is not of another shape: cutting the value will tell.
            if !matches!(self.scanner.peek()?, Some(b'{' | b',' | b']') | None) {
                return Err(self.shape("an array of something else than events"));
            }
            let cut = self.scanner.value()?;
            let outcome = json(&cut).and_then(|text| {
                let event: Event<'_> = serde_json::from_str(text).map_err(|error| problem(&cut, text, &error))?;
                self.rows.take(&event, self.notes);
                Ok(())
            });
            outcome.map_err(|(byte, problem)| self.scanner.malformed(byte, problem))?;
        }
        Ok(())
    }

    fn shape(&self, found: &'static str) -> Error {
        let (file, byte) = (self.file.to_owned(), self.scanner.byte());
        Error::Shape { file, byte, found, expected: EXPECTED, help: HELP }
    }
}

/// A place in the text and what is wrong there.
type Problem = (u64, String);

/// The text of a cut, if it is text.
fn json<'b>(cut: &Cut<'b>) -> std::result::Result<&'b str, Problem> {
    std::str::from_utf8(cut.text)
        .map_err(|error| (cut.byte + error.valid_up_to() as u64, "bytes that are no UTF-8".to_owned()))
}

/// Where serde_json met a problem. It counts lines from 1; the column is how many bytes of the line it took, with most
/// problems up to and including the wrong one. Where it stopped before that, this is one byte early.
fn problem(cut: &Cut<'_>, text: &str, error: &serde_json::Error) -> Problem {
    let lines: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let byte = cut.byte + (lines + error.column()).saturating_sub(1) as u64;
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    (byte, message.to_owned())
}
