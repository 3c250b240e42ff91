//! Execution traces of PyTorch (ExecutionTraceObserver JSON), read beside a profile of the same rank.
//!
//! Such a trace lists what the host called, without any times, so it is no capture and no importer. But it holds whole
//! what profiles cut or lack: splits of more than thirty ranks, lists of ranks, the tensors of coalesced calls. Given
//! beside a profile it fills those in, and changes nothing that the profile says. Only communication is kept of it, so
//! that traces of any length take little memory.

mod join;
mod node;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

pub(crate) use join::join;
use node::{Node, RawNode};

use crate::input::Input;
use crate::{Error, Head, Notes, Result};

/// What an execution trace says of communication.
#[derive(Debug)]
pub(crate) struct ExecutionTrace {
    pub file: PathBuf,
    /// Number of the process.
    process: Option<i64>,
    /// Communication calls, in the order in which they were made.
    nodes: Vec<Node>,
    /// Global ranks by name of process group.
    groups: BTreeMap<String, Vec<u32>>,
}

/// Whether a file that begins so is an execution trace.
pub(crate) fn recognises(head: &Head) -> bool {
    let first = head.bytes().iter().find(|byte| !byte.is_ascii_whitespace());
    let has = |key| head.contains(key);
    let is = has("\"nodes\"") && ["\"schema\"", "\"ctrl_deps\"", "\"rf_id\""].into_iter().any(has);
    first == Some(&b'{') && is && !has("\"traceEvents\"")
}

/// Reads an execution trace. One that breaks off is used as far as it goes, which is noted, unless `strict`.
///
/// # Errors
/// The file cannot be read, or breaks before its first node.
pub(crate) fn read(file: &Path, strict: bool, notes: &mut Notes) -> Result<ExecutionTrace> {
    let mut trace = ExecutionTrace { file: file.to_owned(), process: None, nodes: Vec::new(), groups: BTreeMap::new() };
    let mut seen = 0;
    let mut reader = Reader { input: Input::open(file, strict)?, byte: 0, failed: None };
    let outcome = {
        let mut json = serde_json::Deserializer::from_reader(io::BufReader::with_capacity(64 * 1024, &mut reader));
        Document { trace: &mut trace, seen: &mut seen, notes }.deserialize(&mut json)
    };
    if let Err(error) = outcome {
        if seen == 0 || strict {
            let byte = reader.byte;
            let malformed = || Error::Malformed { file: file.to_owned(), byte, problem: error.to_string() };
            return Err(reader.failed.unwrap_or_else(malformed));
        }
        notes.add("execution traces that break off: used up to there", || {
            let why = reader.failed.map_or_else(|| error.to_string(), |failed| failed.to_string());
            format!("{} after {seen} nodes: {why}", file.display())
        });
    }
    trace.nodes.sort_by_key(|node| node.id);
    Ok(trace)
}

/// An input as the standard library knows readers, keeping the error that it cannot.
struct Reader<'a> {
    input: Input<'a>,
    byte: u64,
    failed: Option<Error>,
}

impl io::Read for &mut Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.input.fill(buffer) {
            Ok(count) => {
                self.byte += count as u64;
                Ok(count)
            }
            Err(error) => {
                let told = io::Error::other(error.to_string());
                self.failed = Some(error);
                Err(told)
            }
        }
    }
}

/// The document, of which only `nodes` is looked into.
struct Document<'a> {
    trace: &'a mut ExecutionTrace,
    seen: &'a mut u64,
    notes: &'a mut Notes,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an execution trace")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        let Self { trace, seen, notes } = self;
        while let Some(key) = map.next_key::<String>()? {
            if key == "nodes" {
                map.next_value_seed(Nodes { trace: &mut *trace, seen: &mut *seen, notes: &mut *notes })?;
            } else if key == "pid" {
                trace.process = map.next_value::<serde_json::Value>()?.as_i64();
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The list of nodes, taken one by one.
struct Nodes<'a> {
    trace: &'a mut ExecutionTrace,
    seen: &'a mut u64,
    notes: &'a mut Notes,
}

impl<'de> DeserializeSeed<'de> for Nodes<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Nodes<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut nodes: A) -> std::result::Result<(), A::Error> {
        while let Some(raw) = nodes.next_element::<RawNode>()? {
            *self.seen += 1;
            if raw.is_group_list() {
                self.trace.groups.extend(raw.groups());
            } else if let Some(node) = raw.read(self.notes) {
                self.trace.nodes.push(node);
            }
        }
        Ok(())
    }
}

/// A group as the node that lists all groups has it.
#[derive(Deserialize)]
struct Group {
    pg_name: String,
    #[serde(default)]
    ranks: Vec<u32>,
}

#[cfg(test)]
mod tests;
