//! What every importer gives: all ranks of one recording, normalised. It knows no file format and no pattern.
//!
//! A [`Capture`] holds facts as recorded, with names, links and times; nothing here is inferred. What the facts mean
//! (which step, which communicator, what waited for what) is decided in [`crate::synthesis`].
//!
//! Times are integer nanoseconds. Their zero is the recording's own (often the Unix epoch); only differences, and
//! comparisons between ranks of one capture, mean something.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use maestro_pattern::{CollectiveKind, CopyDirection, Dtype, ReduceOp};

pub use crate::operator::{Attention, Launched, OperatorWork, Product};
pub use crate::stated::{Stated, StatedLane, StatedNode, StatedPart, StatedWait, Unit};

/// All ranks of one recording.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// Name of the importer that read it.
    pub format: &'static str,
    /// The files, in reading order.
    pub files: Vec<PathBuf>,
    /// One a rank, ascending by rank.
    pub timelines: Vec<Timeline>,
}

impl Capture {
    /// Global rank of a timeline, by its index: as recorded, else its place. Panics beyond the end.
    pub fn rank(&self, timeline: usize) -> u32 {
        self.timelines[timeline].rank.unwrap_or(timeline as u32)
    }
}

/// One rank of a capture: one device as one process drove it.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Global rank, if the recording tells.
    pub rank: Option<u32>,
    /// Number of ranks of the job, if the recording tells.
    pub world_size: Option<u32>,
    /// The file it was read from.
    pub file: PathBuf,
    /// Number of the host process, if recorded. Unique on a host only.
    pub process: Option<i64>,
    /// Ordinal of the device inside the process.
    pub device: u32,
    /// Name of the device.
    pub device_name: Option<String>,
    /// Number of multiprocessors of the device.
    pub device_sms: Option<u32>,
    /// What the device did, ascending by start.
    pub activities: Vec<Activity>,
    /// What the host asked the device to do, ascending by start.
    pub calls: Vec<HostCall>,
    /// What the host recorded about its communication, ascending by start.
    pub records: Vec<CommRecord>,
    /// Named host ranges (`nccl:...`, `FSDP::...`), ascending by start. Step marks are in `steps`.
    pub annotations: Vec<Annotation>,
    /// Host ranges that mark steps, ascending by start.
    pub steps: Vec<StepMark>,
    /// What operators do, each kind of work once.
    pub works: Vec<OperatorWork>,
    /// Which activities were launched by operators of known work, ascending by activity.
    pub launched: Vec<Launched>,
    /// Graphs, by the correlation of their launch, which all they do carries: the number that the profiler gives them.
    pub graphs: HashMap<u64, u64>,
    /// Process groups as the header lists them.
    pub groups: Vec<ProcessGroup>,
    /// Recorded waits of a stream for an event of another; empty unless the profiler was told to record them.
    pub stream_waits: Vec<StreamWait>,
    /// What a device did and `activities` do not hold.
    pub left_out: LeftOut,
    /// The graph that this was recorded as, if it was no profile: its times are then worked out, and on one clock.
    pub stated: Option<Box<Stated>>,
    /// Communicators whose making was recorded, in its order.
    pub joined: Vec<Joined>,
}

/// A communicator that a rank was seen to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The name by which its calls speak of it.
    pub name: Arc<str>,
    /// How many ranks it has.
    pub size: u32,
    /// Which of them this one is.
    pub place: u32,
}

/// Activities that were recorded and left out: by kind ([`ActivityKind::name`]) and reason, how many and their
/// nanoseconds.
pub type LeftOut = BTreeMap<(&'static str, &'static str), (usize, i64)>;

impl Timeline {
    /// The number and the work of the operator that launched an activity, if they are known.
    pub fn operator(&self, activity: usize) -> Option<(u32, &OperatorWork)> {
        let place = self.launched.binary_search_by_key(&activity, |launched| launched.activity as usize).ok()?;
        let launched = self.launched[place];
        Some((launched.operator, self.works.get(launched.work as usize)?))
    }

    /// What the recording says that an activity is an execution of.
    pub fn unit(&self, activity: usize) -> Option<&Unit> {
        self.stated.as_ref()?.units.get(&u32::try_from(activity).ok()?)
    }
}

/// One thing a device did.
#[derive(Clone, Debug)]
pub struct Activity {
    /// Kernel, copy or set.
    pub kind: ActivityKind,
    /// Name, shared among equal ones.
    pub name: Arc<str>,
    /// Start.
    pub start_ns: i64,
    /// Duration.
    pub duration_ns: i64,
    /// Stream.
    pub stream: i64,
    /// Links it to the host call that launched it; unique per process.
    pub correlation: Option<u64>,
    /// Links it to the operator or record that was current at its launch.
    pub external_id: Option<u64>,
    /// What its own metadata say about its communication.
    pub comm: Option<Box<CommFacts>>,
}

impl Activity {
    /// Start + duration.
    pub fn end_ns(&self) -> i64 {
        self.start_ns + self.duration_ns
    }
}

/// What kind of thing a device did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityKind {
    /// A kernel of this many thread blocks (0: not recorded).
    Kernel {
        /// Thread blocks, x times y times z.
        blocks: u64,
    },
    /// A copy.
    Copy {
        /// From where to where; `None`: something else (peer to peer, say).
        direction: Option<CopyDirection>,
        /// Bytes.
        bytes: u64,
    },
    /// A fill.
    Set {
        /// Bytes.
        bytes: u64,
    },
}

impl ActivityKind {
    /// Its name in the conservation table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel { .. } => "kernel",
            Self::Copy { .. } => "copy",
            Self::Set { .. } => "set",
        }
    }
}

/// One call of the host into the driver or runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCall {
    /// What it asked for.
    pub kind: CallKind,
    /// Thread.
    pub thread: i64,
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Links it to what it launched.
    pub correlation: Option<u64>,
}

/// What a host call asked for. Calls that change nothing on the device (queries, attributes) are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A kernel, a copy, a set or a graph: something with activities.
    Launch,
    /// An event on a stream.
    EventRecord {
        /// By the call that takes flags (cudaEventRecordWithFlags): PyTorch's events are recorded so, NCCL's own are not.
        flags: bool,
    },
    /// A stream shall wait for an event (cudaStreamWaitEvent).
    StreamWait,
    /// The host waits for an event, a stream or the device.
    Synchronize,
}

/// A host record of one communication call (`record_param_comms`).
#[derive(Clone, Debug)]
pub struct CommRecord {
    /// What it says.
    pub facts: CommFacts,
    /// Thread.
    pub thread: i64,
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Links it to its kernel, if that carries the same.
    pub external_id: Option<u64>,
    /// Which kind of row told it.
    pub source: RecordSource,
    /// Links it to its node of an execution trace, if recorded.
    pub function_id: Option<u64>,
}

/// Which kind of host row told of a communication, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordSource {
    /// `record_param_comms` with its arguments.
    Params,
    /// The communication library's own range around the call (NVTX). Calls that one kernel runs share its external id.
    Range,
    /// The communication library's annotation (`nccl:all_reduce`), where the record names nothing (until 2023).
    Annotation,
    /// The operator that was called (`c10d::allreduce_`).
    Operator,
}

/// What a kernel's metadata or a host record say about a communication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommFacts {
    /// Which operation.
    pub op: CommOp,
    /// The name as recorded.
    pub recorded_name: Arc<str>,
    /// Element type, if recorded and known.
    pub dtype: Option<Dtype>,
    /// Elements that this rank put in.
    pub in_elements: u64,
    /// Elements that this rank got out.
    pub out_elements: u64,
    /// Elements to each rank of the group; empty: even or not recorded.
    pub in_splits: Vec<u64>,
    /// Elements from each rank of the group; empty: even or not recorded.
    pub out_splits: Vec<u64>,
    /// Number of ranks of the group.
    pub group_size: Option<u32>,
    /// Global ranks of the group, whole; `None` if not recorded or cut.
    pub ranks: Option<Vec<u32>>,
    /// Name of the process group. A hint, not an identity: ranks may name groups differently.
    pub group_name: Option<Arc<str>>,
    /// Description of the process group: a mesh dimension, say.
    pub group_desc: Option<Arc<str>>,
    /// Sequence number in the group.
    pub seq: Option<u64>,
    /// Rank in the group of the peer of a send or receive, for where the global one is not recorded.
    pub group_peer: Option<u32>,
    /// Whether the splits were recorded and cut.
    pub splits_cut: bool,
    /// The element type as recorded, where `dtype` is only one of its size that stands for it.
    pub stands_for: Option<Arc<str>>,
    /// How it reduces, where that is recorded; profiles do not tell.
    pub reduction: Option<ReduceOp>,
    /// Its root as a place in the group, where that is recorded.
    pub root: Option<u32>,
    /// Whether it is done in place, where that is recorded.
    pub in_place: bool,
    /// How `dtype` is known.
    pub element: ElementSource,
}

/// How the element type of a communication is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ElementSource {
    /// It was recorded.
    #[default]
    Recorded,
    /// From the name of its kernel, which names what it reduces.
    KernelName,
    /// Bytes were recorded and no type: elements are bytes.
    Bytes,
}

impl CommFacts {
    /// Nothing but the operation and its recorded name.
    pub fn new(op: CommOp, recorded_name: Arc<str>) -> Self {
        Self {
            op,
            recorded_name,
            dtype: None,
            in_elements: 0,
            out_elements: 0,
            in_splits: Vec::new(),
            out_splits: Vec::new(),
            group_size: None,
            ranks: None,
            group_name: None,
            group_desc: None,
            seq: None,
            group_peer: None,
            splits_cut: false,
            stands_for: None,
            reduction: None,
            in_place: false,
            root: None,
            element: ElementSource::Recorded,
        }
    }

    /// Takes over from `other`, which speaks of the same call, what is missing here.
    pub fn complete(&mut self, other: &Self) {
        if self.op == CommOp::Other {
            self.op = other.op;
        }
        match (&mut self.op, other.op) {
            (CommOp::Send { to: mine }, CommOp::Send { to: peer })
            | (CommOp::Recv { from: mine }, CommOp::Recv { from: peer }) => *mine = mine.or(peer),
            _ => {}
        }
        if self.dtype.is_none() {
            self.dtype = other.dtype;
            self.stands_for.clone_from(&other.stands_for);
            self.element = other.element;
        }
        if self.in_elements == 0 && self.out_elements == 0 {
            (self.in_elements, self.out_elements) = (other.in_elements, other.out_elements);
        }
        if self.in_splits.is_empty() && self.out_splits.is_empty() && !other.in_splits.is_empty() {
            self.in_splits.clone_from(&other.in_splits);
            self.out_splits.clone_from(&other.out_splits);
            self.splits_cut = other.splits_cut;
        }
        self.group_size = self.group_size.or(other.group_size);
        self.group_peer = self.group_peer.or(other.group_peer);
        self.seq = self.seq.or(other.seq);
        for (mine, theirs) in [(&mut self.group_name, &other.group_name), (&mut self.group_desc, &other.group_desc)] {
            if mine.is_none() {
                mine.clone_from(theirs);
            }
        }
        if self.ranks.is_none() {
            self.ranks.clone_from(&other.ranks);
        }
    }
}

/// Which communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommOp {
    /// A collective.
    Collective(CollectiveKind),
    /// A send to this global rank.
    Send {
        /// Global rank of the receiver.
        to: Option<u32>,
    },
    /// A receive from this global rank.
    Recv {
        /// Global rank of the sender.
        from: Option<u32>,
    },
    /// The host asked to wait for an earlier one; nothing runs.
    Wait,
    /// Something that is not known here.
    Other,
}

/// A named host range.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// Name.
    pub name: Arc<str>,
    /// Thread.
    pub thread: i64,
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
}

/// A host range that marks a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepMark {
    /// Name (`ProfilerStep#2`).
    pub name: Arc<str>,
    /// Thread.
    pub thread: i64,
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
}

/// A process group as a header lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessGroup {
    /// Name.
    pub name: String,
    /// Description.
    pub desc: String,
    /// Global ranks; empty means all.
    pub ranks: Vec<u32>,
}

/// A recorded wait of one stream for an event of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamWait {
    /// The stream that waits.
    pub stream: i64,
    /// When the row says that it began; the call that asked for it is exact, where it is in the capture.
    pub at_ns: i64,
    /// The stream that the event was recorded on, if the profiler saw the record.
    pub on_stream: Option<i64>,
    /// Correlation of the host call that waits.
    pub correlation: u64,
    /// Correlation of the host call that recorded the event, if the profiler saw it.
    pub record_correlation: Option<u64>,
    /// Number of the event, if recorded. One event may be recorded, and waited for, many times.
    pub event: Option<u64>,
}
