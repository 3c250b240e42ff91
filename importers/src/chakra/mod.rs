//! Chakra execution traces (`PREFIX.<rank>.et`): MLCommons' graphs of what a rank does, plain or gzip, a file a rank.
//!
//! Such a file holds nodes with durations and dependencies and no times, so what is read here is a graph
//! ([`crate::capture::Stated`]); [`crate::schedule`] works out when it would run. Files that Maestro wrote itself
//! (`maestro export`) name blocks, lanes and exact sizes in attributes that others pass over, and are read back exactly.
//!
//! What the schema leaves open is not guessed in silence: it has no element types, `comm_size` is whatever its writer
//! took it for (the converter of PyTorch traces adds up inputs), and a collective without `comm_type` would read as an
//! all-reduce, whose number is 0.

pub(crate) mod comm;
mod graph;
mod groups;
pub(crate) mod proto;
mod stream;
mod work;

use std::path::Path;

use prost::Message;

use crate::capture::Timeline;
use crate::{Error, Head, Importer, Notes, Reading, Result, Verdict};
use graph::Graph;
use proto::{GlobalMetadata, Node};
use stream::Messages;

/// See the module.
pub(crate) struct Chakra;

impl Importer for Chakra {
    fn name(&self) -> &'static str {
        "chakra"
    }

    fn about(&self) -> &'static str {
        "Chakra execution traces (.et, .et.gz), as Chakra's converter, ASTRA-sim's generators and `maestro export` \
         write them, a file a rank"
    }

    fn recognise(&self, head: &Head) -> Verdict {
        stream::recognise(head)
    }

    fn read(&self, file: &Path, reading: &Reading, notes: &mut Notes) -> Result<Vec<Timeline>> {
        let mut messages = Messages::open(file, reading.strict)?;
        let mut seen = 0usize;
        let mut graph = None;
        loop {
            let byte = messages.at();
            let outcome = messages.next().and_then(|message| {
                let Some(message) = message else { return Ok(false) };
                let wrong =
                    |error: prost::DecodeError| messages.damage(byte, format!("a message that is none ({error})"));
                match &mut graph {
                    None => graph = Some(Graph::new(&GlobalMetadata::decode(&*message).map_err(wrong)?)),
                    Some(graph) => {
                        graph.add(Node::decode(&*message).map_err(wrong)?, notes);
                        seen += 1;
                    }
                }
                Ok(true)
            });
            match outcome {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if reading.strict || seen == 0 => return Err(error),
                Err(error) => {
                    notes.add("execution traces that break off: used up to there", || format!("{seen} nodes: {error}"));
                    break;
                }
            }
        }
        let host = graph.as_ref().map_or(0, Graph::host_nodes);
        let timeline = graph.and_then(|graph| graph.finish(file, notes));
        let timeline = timeline.ok_or_else(|| Error::NoDeviceNodes { file: file.to_owned(), host })?;
        let mut timelines = vec![timeline];
        crate::schedule::schedule(&mut timelines, &mut Notes::default());
        Ok(timelines)
    }
}

#[cfg(test)]
mod tests;
