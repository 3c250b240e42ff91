//! What recordings say that hold dependencies instead of times, as execution graphs do. It knows no file format.
//!
//! A profiler records when things ran, and why they ran then has to be inferred. A graph of nodes records the reverse:
//! what must have ended before what, and how long each took. Here stands what was recorded; [`crate::schedule`] works
//! out of it when everything would run, and fills the timeline with that, so that later passes see a capture like any
//! other. What was recorded stays beside it, because where it is stated nothing needs to be inferred.

use std::collections::HashMap;
use std::sync::Arc;

use crate::capture::{ActivityKind, CommFacts, OperatorWork};

/// The graph of one timeline, and what a schedule made of it.
#[derive(Clone, Debug, Default)]
pub struct Stated {
    /// The nodes, in the order of the recording.
    pub nodes: Vec<StatedNode>,
    /// Name of the one step that the recording is of, if it says.
    pub step: Option<Arc<str>>,
    /// Names of streams, where they have any.
    pub lanes: HashMap<i64, Arc<str>>,
    /// What activities are executions of, where the recording says; by activity.
    pub units: HashMap<u32, Unit>,
    /// (cause, effect), as activities.
    pub edges: Vec<(u32, u32)>,
    /// Waits of the host, by start.
    pub waits: Vec<StatedWait>,
}

/// A node: a piece of host time, or something that a device does.
#[derive(Clone, Debug, Default)]
pub struct StatedNode {
    /// Where it runs, one after the other.
    pub lane: StatedLane,
    /// Places of the nodes that must have ended first.
    pub after: Vec<u32>,
    /// How long it takes.
    pub duration_ns: i64,
    /// What a device does, in parts one after the other; empty of host time.
    pub parts: Vec<StatedPart>,
    /// What it is an execution of, if the recording says.
    pub unit: Option<Unit>,
}

/// A queue of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatedLane {
    /// A thread of the host.
    Host(i64),
    /// A stream of the device.
    Stream(i64),
}

impl Default for StatedLane {
    fn default() -> Self {
        Self::Host(0)
    }
}

/// A part of what a node of a device does: one activity.
#[derive(Clone, Debug)]
pub struct StatedPart {
    /// Name.
    pub name: Arc<str>,
    /// What it is.
    pub kind: ActivityKind,
    /// What it does, if that is known.
    pub work: Option<OperatorWork>,
    /// What it communicates; several for a group issued as one.
    pub comm: Vec<CommFacts>,
}

/// What an activity is an execution of, in the recording's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Name of the unit of work.
    pub name: Arc<str>,
    /// Which execution of it.
    pub instance: u32,
    /// The part of its time in which the device waited for the host to launch the rest.
    pub idle_ns: i64,
    /// What it communicates.
    pub comm: Vec<CommFacts>,
}

/// The host waits for something that the device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatedWait {
    /// For which activity.
    pub activity: u32,
    /// When the host began to wait.
    pub start_ns: i64,
    /// When it went on.
    pub end_ns: i64,
}
