//! Walks through a trace: what stands where in the document, and how to go on behind damage.
//!
//! Read strictly, the first thing wrong is an error with its place. Else damage costs what it hit and no more: the walk
//! goes on at the next event, or at the next key that matters, and what was lost is noted with its place. A file in
//! which nothing is left to read stays an error, the one that a strict reading gives.

use std::path::Path;

use super::batch::{Problem, note_faults, problem};
use super::header::{Header, Key};
use super::repair::repair;
use super::resume::Boundary;
use super::scan::{Cut, Scanner};
use crate::{Error, Notes, Result};

/// What every complaint about the shape of a file says was expected.
const EXPECTED: &str = "an object with `traceEvents` or an array of events";

/// What every complaint about the shape of a file recommends.
const HELP: &str = "give the file that torch.profiler's export_chrome_trace wrote";

/// A document being walked through.
pub(super) struct Document<'a> {
    pub(super) file: &'a Path,
    pub(super) scanner: Scanner<'a>,
    pub(super) strict: bool,
    pub(super) header: Header,
    pub(super) notes: Notes,
    /// The first damage that was survived.
    pub(super) survived: Option<Error>,
}

/// Whether a document goes on.
enum Flow {
    On,
    /// It is over, its closing bracket taken or lost.
    Over,
}

impl Document<'_> {
    /// Walks to the end, sending the events away as they are cut.
    pub(super) fn walk(&mut self) -> Result<()> {
        let outcome = self.value();
        self.scanner.flush();
        outcome?;
        let Some(_) = self.scanner.peek()? else {
            if let Some(damage) = self.scanner.damage().filter(|_| self.survived.is_none()) {
                let damage = damage.to_string();
                self.notes.add("files that are damaged behind their last event", || damage);
            }
            return Ok(());
        };
        let byte = self.scanner.byte();
        if self.strict {
            return Err(self.scanner.malformed(byte, "text goes on behind the end of the document".to_owned()));
        }
        let rest = self.scanner.drain()?;
        self.notes.add("files that go on behind the end of their first document, the rest left out", || {
            format!(
                "{}: {rest} bytes from byte {byte} on; if another process wrote them, give them as a file of their own",
                self.file.display()
            )
        });
        Ok(())
    }

    fn value(&mut self) -> Result<()> {
        match self.scanner.peek()? {
            Some(b'{') => self.object(),
            // The oldest files are nothing but the events.
            Some(b'[') => {
                self.scanner.take(b'[')?;
                self.events().map(drop)
            }
            Some(_) => Err(self.shape("something else than an object or an array")),
            None => Err(Error::Empty { file: self.file.to_owned() }),
        }
    }

    fn object(&mut self) -> Result<()> {
        self.scanner.take(b'{')?;
        let (mut first, mut events) = (true, false);
        loop {
            match self.pair(&mut first, &mut events) {
                Ok(Flow::On) => {}
                Ok(Flow::Over) => break,
                Err(error @ Error::Truncated { .. }) if !self.strict => {
                    self.cut_short(error, None)?;
                    break;
                }
                Err(error @ Error::Malformed { .. }) if !self.strict => {
                    let from = self.scanner.byte();
                    let why = reason(&error);
                    self.survived.get_or_insert(error);
                    let wanted = |key: &[u8]| key == b"traceEvents" || Key::from_name(key).is_some();
                    let found = self.scanner.resume_at_key(wanted)?;
                    let to = self.scanner.byte();
                    self.notes.add("stretches of damaged metadata, left out", || {
                        format!("bytes {from} to {to} of {}, {why}", self.file.display())
                    });
                    if !found {
                        break;
                    }
                    first = true;
                }
                Err(error) => return Err(error),
            }
        }
        match self.survived.take() {
            // Damage may have taken the key itself.
            Some(error) if !events => Err(error),
            survived => {
                self.survived = survived;
                if events { Ok(()) } else { Err(self.shape("an object without `traceEvents`")) }
            }
        }
    }

    /// A key and its value, or the end of the document.
    fn pair(&mut self, first: &mut bool, events: &mut bool) -> Result<Flow> {
        if !self.scanner.entry(b'}', first)? {
            return Ok(Flow::Over);
        }
        if !self.strict && *events && self.scanner.peek()? == Some(b'}') {
            self.notes
                .add("commas that are missing or too many", || format!("`,` before byte {}", self.scanner.byte()));
            self.scanner.take(b'}')?;
            return Ok(Flow::Over);
        }
        let key = self.scanner.value()?;
        let byte = key.byte;
        let Some(name) = key.text.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")) else {
            return Err(self.scanner.malformed(byte, "a key in quotes was expected".to_owned()));
        };
        let (known, is_events) = (Key::from_name(name), name == b"traceEvents");
        self.scanner.take(b':')?;
        if is_events && self.scanner.peek()? == Some(b'[') {
            self.scanner.take(b'[')?;
            *events = true;
            return self.events();
        }
        let Some(known) = known else {
            self.scanner.skip()?;
            return Ok(Flow::On);
        };
        let cut = self.scanner.value()?;
        let Err((byte, problem)) = take(&mut self.header, known, &cut, cut.text, &mut self.notes) else {
            return Ok(Flow::On);
        };
        if let Some(repaired) = (!self.strict).then(|| repair(cut.text)).flatten() {
            note_faults(self.file, cut.byte, &repaired, &mut self.notes);
            if take(&mut self.header, known, &cut, repaired.json.as_bytes(), &mut self.notes).is_ok() {
                return Ok(Flow::On);
            }
        }
        Err(self.scanner.malformed(byte, problem))
    }

    /// The events, behind their opening bracket.
    fn events(&mut self) -> Result<Flow> {
        let (mut first, mut any) = (true, false);
        loop {
            let inside = self.scanner.byte();
            let (error, event) = match self.entry(&mut first, any) {
                Ok(false) => return Ok(Flow::On),
                Ok(true) => match self.scanner.event() {
                    Ok(()) => {
                        any = true;
                        continue;
                    }
                    Err(error) => (error, true),
                },
                Err(error) => (error, false),
            };
            let begins = self.scanner.byte();
            match error {
                _ if self.strict => return Err(error),
                Error::Truncated { .. } => {
                    self.cut_short(error, event.then_some(begins))?;
                    return Ok(Flow::Over);
                }
                Error::Malformed { .. } => {}
                _ => return Err(error),
            }
            let boundary = self.scanner.resume(event)?;
            let behind = self.scanner.byte();
            let why = reason(&error);
            self.survived.get_or_insert(error);
            if !event {
                self.notes.add("stretches between events that are no events, left out", || {
                    format!("bytes {inside} to {behind} of {}, {why}", self.file.display())
                });
            }
            first = true;
            match boundary {
                Boundary::Event | Boundary::End => {}
                Boundary::Document => {
                    let problem = "another document begins inside the events, of another process that wrote to the \
                                   same file"
                        .to_owned();
                    // Better than what the broken row looked like.
                    self.survived = Some(self.scanner.malformed(behind, problem));
                    return Ok(Flow::Over);
                }
                Boundary::Nothing => {
                    let file = self.file.to_owned();
                    let error = Error::Truncated { file, byte: behind, inside: "in the middle of damage" };
                    self.cut_short(error, Some(begins))?;
                    return Ok(Flow::Over);
                }
            }
        }
    }

    /// Goes to the next event, not the first if there were `any`; `false` if there is none, with the closing bracket
    /// taken.
    fn entry(&mut self, first: &mut bool, any: bool) -> Result<bool> {
        if self.strict {
            if !self.scanner.entry(b']', first)? {
                return Ok(false);
            }
        } else {
            let mut commas = usize::from(*first);
            while self.scanner.peek()? == Some(b',') {
                self.scanner.take(b',')?;
                commas += 1;
            }
            let byte = self.scanner.byte();
            let end = self.scanner.peek()? == Some(b']');
            // Behind the last event of a file that was cut there stands a comma.
            if self.scanner.peek()?.is_some() && (if end { commas > usize::from(*first) } else { commas != 1 }) {
                self.notes.add("commas that are missing or too many", || format!("before byte {byte}"));
            }
            *first = false;
            if end {
                if self.scanner.events_go_on()? {
                    return Err(self.scanner.malformed(byte, "`]` between events".to_owned()));
                }
                self.scanner.take(b']')?;
                return Ok(false);
            }
        }
        match self.scanner.peek()? {
            Some(b'{') => Ok(true),
            // Cutting the value will tell what is missing.
            Some(b',' | b']') | None => self.scanner.skip().map(|()| true),
            Some(_) if self.strict || !any => Err(self.shape("an array of something else than events")),
            Some(byte) => {
                let problem = format!("`{}` where an event was expected", byte.escape_ascii());
                Err(self.scanner.malformed(self.scanner.byte(), problem))
            }
        }
    }

    /// Notes that the text ended early, within the event that begins at `event` if in one.
    fn cut_short(&mut self, error: Error, event: Option<u64>) -> Result<()> {
        if let Error::Truncated { byte, .. } = error {
            let damage = self.scanner.damage().map_or_else(String::new, |damage| format!(" ({damage})"));
            self.notes.add("files that end too early, read up to there", || {
                let lost = event.map_or_else(
                    || "what came behind the last whole value is lost".to_owned(),
                    |event| format!("the event that begins at byte {event} and all that came behind it are lost"),
                );
                format!("{}: incomplete: cut at byte {byte}; {lost}{damage}", self.file.display())
            });
        }
        self.survived.get_or_insert(error);
        // Nothing in what is left of it can be read.
        self.scanner.drain().map(drop)
    }

    fn shape(&self, found: &'static str) -> Error {
        let (file, byte) = (self.file.to_owned(), self.scanner.byte());
        Error::Shape { file, byte, found, expected: EXPECTED, help: HELP }
    }
}

/// What was wrong, without file and remedy, for a note.
fn reason(error: &Error) -> String {
    match error {
        Error::Malformed { byte, problem, .. } => format!("because of byte {byte}: {problem}"),
        other => other.to_string(),
    }
}

/// Takes the value of a key, `json`, as it was cut or as it was mended.
fn take(
    header: &mut Header,
    key: Key,
    cut: &Cut<'_>,
    json: &[u8],
    notes: &mut Notes,
) -> std::result::Result<(), Problem> {
    let text = std::str::from_utf8(json)
        .map_err(|error| (cut.byte + error.valid_up_to() as u64, "bytes that are no UTF-8".to_owned()))?;
    header.take(key, text, notes).map_err(|error| problem(cut.byte, json, &error))
}
