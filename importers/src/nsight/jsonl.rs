//! Reads JSON-lines exports: a line an event, the first one a table of the strings that the others give the numbers of.
//!
//! Numbers may be written as text. Lines go by one at a time; what is no event that matters is not kept.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::line::{Cuda, Line, Range, Whole};
use super::payload;
use super::rows::{EventRecord, Nvtx, Place, Rows, Sync, copy, set, some};
use super::steps;
use crate::capture::ActivityKind;
use crate::input::Input;
use crate::{Error, Head, Notes, Result, Verdict};

/// How much is read at a time.
const BLOCK: usize = 1 << 20;

/// Lines of events begin so.
const EVENT: &[u8] = b"{\"Type\":";

/// No list of strings but such a table is so long.
const LONG: usize = 32 * 1024;

/// Whether a file begins as such an export does: with a table of strings, or with an event.
pub(super) fn recognise(head: &Head) -> Verdict {
    let squeezed: Vec<u8> = head.bytes().iter().copied().filter(|byte| !byte.is_ascii_whitespace()).take(64).collect();
    if squeezed.starts_with(EVENT) {
        return Verdict::Yes;
    }
    if !squeezed.starts_with(b"{\"data\":[\"") {
        return Verdict::No;
    }
    let second = head.bytes().iter().position(|byte| *byte == b'\n').map(|end| &head.bytes()[end + 1..]);
    match second {
        // The table is longer than a head.
        None if head.bytes().len() > LONG => Verdict::Yes,
        None => Verdict::No,
        Some(line) if line.is_empty() || line.starts_with(&EVENT[..EVENT.len().min(line.len())]) => Verdict::Yes,
        Some(_) => Verdict::No,
    }
}

/// Reads an export.
pub(super) fn read(file: &Path, strict: bool, notes: &mut Notes) -> Result<Rows> {
    let mut reader = Reader { file, strict, rows: Rows::default(), strings: Vec::new(), names: HashMap::new() };
    let mut input = Input::open(file, strict)?;
    let (mut buffer, mut length, mut at) = (vec![0; BLOCK], 0, 0u64);
    loop {
        if length == buffer.len() {
            // A line is longer than this.
            buffer.resize(2 * buffer.len(), 0);
        }
        let count = input.fill(&mut buffer[length..])?;
        length += count;
        let mut start = 0;
        while let Some(end) = buffer[start..length].iter().position(|byte| *byte == b'\n') {
            reader.line(&buffer[start..start + end], at + start as u64, notes)?;
            start += end + 1;
        }
        if count == 0 {
            if let Some(damage) = input.damage() {
                notes.add("captures that break off, read up to there", || damage.to_string());
            } else {
                reader.line(&buffer[start..length], at + start as u64, notes)?;
            }
            return Ok(reader.rows);
        }
        buffer.copy_within(start..length, 0);
        length -= start;
        at += start as u64;
    }
}

struct Reader<'a> {
    file: &'a Path,
    strict: bool,
    rows: Rows,
    strings: Vec<Arc<str>>,
    /// Texts that are written out.
    names: HashMap<String, Arc<str>>,
}

impl Reader<'_> {
    fn line(&mut self, bytes: &[u8], at: u64, notes: &mut Notes) -> Result<()> {
        if bytes.trim_ascii().is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(bytes);
        match serde_json::from_str::<Line<'_>>(&text) {
            Ok(line) => self.take(line, notes),
            Err(error) if self.strict => {
                let byte = at + error.column().saturating_sub(1) as u64;
                return Err(Error::Malformed { file: self.file.to_owned(), byte, problem: error.to_string() });
            }
            Err(error) => notes.add("lines that are not understood, left out", || format!("at byte {at}: {error}")),
        }
        Ok(())
    }

    fn take(&mut self, line: Line<'_>, notes: &mut Notes) {
        if let Some(data) = line.data {
            self.strings = data.into_iter().map(|text| text.unwrap_or_default().as_ref().into()).collect();
        }
        if let Some(cuda) = line.cuda {
            self.cuda(&cuda, notes);
        }
        if let Some(call) = line.call {
            let Some(name) = self.string(call.name) else { return };
            let times = (call.start_ns.0, call.end_ns.0);
            self.rows.call(&name, call.global_tid.0, times, u64::try_from(call.correlation_id.0).ok());
        }
        if let Some(range) = line.nvtx {
            self.range(range, notes);
        }
    }

    fn cuda(&mut self, event: &Cuda, notes: &mut Notes) {
        let stream = event.stream_id.map(|stream| stream.0);
        let correlation = u64::try_from(event.correlation_id.0).ok().filter(|id| *id != 0);
        let mut place = Place {
            process: event.global_pid.0,
            device: u32::try_from(event.device_id.0).unwrap_or(0),
            context: event.context_id.0,
            stream: stream.unwrap_or(0),
            correlation,
            start_ns: event.start_ns.0,
            end_ns: event.end_ns.0,
            graph: None,
        };
        let size = |bytes: Whole| u64::try_from(bytes.0).unwrap_or(0);
        let number = |number: Option<Whole>| number.map(|number| number.0);
        if let Some(kernel) = &event.kernel {
            let names = [kernel.demangled_name, kernel.short_name, kernel.mangled_name];
            let name = names.into_iter().find_map(|name| self.string(name)).unwrap_or_else(|| "".into());
            let sides = [kernel.grid_x, kernel.grid_y, kernel.grid_z];
            let blocks = sides.iter().try_fold(1u64, |blocks, side| blocks.checked_mul(size(*side))).unwrap_or(0);
            place.graph = kernel.graph_id.map(size).filter(|graph| *graph != 0);
            self.rows.activity(ActivityKind::Kernel { blocks }, &name, &place, notes);
        }
        if let Some(memcpy) = &event.memcpy {
            let ends = (number(memcpy.src_kind), number(memcpy.dst_kind));
            let (kind, name) = copy(memcpy.copy_kind.0, ends.0, ends.1, size(memcpy.sizebytes));
            let name = self.share(name);
            self.rows.activity(kind, &name, &place, notes);
        }
        if let Some(memset) = &event.memset {
            let (kind, name) = set(number(memset.mem_kind), size(memset.sizebytes));
            let name = self.share(name);
            self.rows.activity(kind, &name, &place, notes);
        }
        let known = |id: Option<Whole>| some(number(id)).map(|id| id as u64);
        if let (Some(sync), Some(correlation)) = (&event.sync, correlation) {
            let sync = Sync {
                context: place.context,
                stream: some(stream),
                correlation,
                start_ns: place.start_ns,
                kind: sync.sync_type.0,
                event: known(sync.event_id),
                recording: known(sync.event_sync_id),
            };
            self.rows.sync(place.process, sync);
        }
        if let (Some(record), Some(correlation)) = (&event.cuda_event_record, correlation)
            && let Some(number) = known(record.event_id)
        {
            let recording = known(record.event_sync_id);
            let record = EventRecord { stream: some(stream), correlation, event: number, recording };
            self.rows.event(place.process, record);
        }
        self.rows.whole_graphs += usize::from(event.graph.is_some());
    }

    fn range(&mut self, range: Range<'_>, notes: &mut Notes) {
        let name = match (range.text, range.text_id) {
            // There may be millions, each with a number in its name.
            (Some(text), _) if steps::is_operator(&text) => return,
            (Some(text), _) => self.share(text.into_owned()),
            (None, id) => match self.string(id) {
                Some(name) => name,
                None => return,
            },
        };
        let data = range.payload.and_then(|payload| payload.binary_data.into_iter().find_map(|binary| binary.data));
        let payload = data.and_then(|text| {
            let bytes = payload::base64(&text);
            if bytes.is_none() {
                notes.add("payloads of communication calls that are not understood", || name.to_string());
            }
            bytes.map(Into::into)
        });
        self.rows.nvtx(Nvtx {
            kind: range.r#type.0,
            thread: range.global_tid.0,
            domain: range.domain_id.0,
            name,
            start_ns: range.timestamp.0,
            end_ns: range.end_timestamp.map(|end| end.0),
            payload,
        });
    }

    fn string(&self, id: Option<Whole>) -> Option<Arc<str>> {
        self.strings.get(usize::try_from(id?.0).ok()?).cloned()
    }

    fn share(&mut self, name: String) -> Arc<str> {
        self.names.entry(name).or_insert_with_key(|name| name.as_str().into()).clone()
    }
}
