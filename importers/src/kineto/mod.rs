//! Chrome-trace JSON as torch.profiler writes it (the library behind it is called Kineto), plain or gzip.
//!
//! Streaming: the text goes by block by block, and only rows that matter are kept. One thread cuts (`document`, by
//! `scan` and `outline`), others read (`batch`, by `lex` and `event`), and what is damaged is mended where it can be
//! (`repair`) and otherwise passed over (`resume`). It is no general reader of Chrome traces: without Kineto's
//! categories and links there is nothing to import.

mod batch;
pub(crate) mod comm;
mod document;
mod event;
mod groups;
mod header;
mod lex;
mod names;
mod nesting;
mod outline;
mod overrun;
mod records;
mod repair;
mod resume;
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
mod tests_damage;
#[cfg(test)]
mod tests_real;

use std::path::Path;

use self::document::Document;
use self::header::Header;
pub(crate) use self::rows::call_kind;
use self::scan::Scanner;
pub(crate) use self::timeline::{UNTIMED, leave_out, merge};
use crate::capture::Timeline;
use crate::input::Input;
use crate::{Error, Head, Importer, Notes, Reading, Result, Verdict};

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

    fn read(&self, file: &Path, reading: &Reading, notes: &mut Notes) -> Result<Vec<Timeline>> {
        let strict = reading.strict;
        let input = Input::open(file, strict)?;
        let (walked, harvest) = batch::gather(file, strict, reading.helpers, |send| {
            let scanner = Scanner::new(input, !strict, send)?;
            let (header, notes) = (Header::default(), Notes::default());
            let mut document = Document { file, scanner, strict, header, notes, survived: None };
            let outcome = document.walk();
            // Damaged compression explains whatever the text looked like.
            let survived = document.scanner.take_damage().or(document.survived);
            Ok::<_, Error>((outcome, document.header, document.notes, survived))
        });
        // The rows come before whatever ended the walk.
        if let Some(error) = harvest.error {
            return Err(error);
        }
        let (outcome, header, its_notes, survived) = walked?;
        outcome?;
        notes.merge(its_notes);
        notes.merge(harvest.notes);
        match (harvest.rows.finish(file, &header, notes), survived) {
            // What no device row is left of is no capture without device rows, but damaged.
            (Err(Error::NoActivities { .. }), Some(damage)) => Err(damage),
            (outcome, _) => outcome,
        }
    }
}
