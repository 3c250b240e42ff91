//! The pattern itself: axes, blocks, lanes, motifs and a schedule.
//!
//! This is the meaning of a pattern file, not its text: [`Pattern::from_yaml`] and [`Pattern::to_yaml`] are the two
//! ways across. Everything is public data; [`crate::Plan::new`] is what checks that it fits together.

use crate::{Block, Place, Result, check, yaml};

/// A training step, or any other arrangement of communication and compute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pattern {
    /// Its name, for reports.
    pub name: String,
    /// The capture it was imported from.
    pub source: Option<Source>,
    /// The ways of splitting the ranks; the first is the slowest to vary.
    pub axes: Vec<Axis>,
    /// The units of work.
    pub blocks: Vec<Block>,
    /// The ordered queues.
    pub lanes: Vec<Lane>,
    /// Named sequences.
    pub motifs: Vec<Motif>,
    /// What every rank does, unless `roles` say otherwise.
    pub schedule: Vec<Item>,
    /// What ranks of different roles do, instead of `schedule`.
    pub roles: Vec<Role>,
    /// Factors on all host time, one a rank of the world, where ranks' hosts differ. Empty: all alike.
    pub host_skew: Vec<f64>,
    /// Everything an importer inferred and could not read.
    pub assumed: Vec<Assumption>,
}

impl Pattern {
    /// Reads a pattern and checks what can be checked without a world: keys, names, kinds, cycles.
    ///
    /// # Errors
    /// The first thing that is wrong, with line, column and the nearest right name.
    pub fn from_yaml(text: &str) -> Result<Self> {
        let pattern = yaml::read(text)?;
        check::names(&pattern)?;
        Ok(pattern)
    }

    /// Writes the one canonical text of this pattern; [`Pattern::from_yaml`] reads an equal pattern from it.
    pub fn to_yaml(&self) -> String {
        yaml::write(self)
    }
}

/// Where an imported pattern came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Name of the importer.
    pub format: String,
    /// Number of capture files.
    pub files: u32,
    /// Name of the step that was taken.
    pub step: Option<String>,
    /// Its length in nanoseconds: the longest rank's span from first to last activity.
    pub step_ns: Option<u64>,
    /// Name of the device.
    pub device: Option<String>,
}

/// A way of splitting the ranks into teams.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its name: dp, tp, pp, ep...
    pub name: String,
    /// Regular or listed.
    pub shape: AxisShape,
    /// Settings of its communicators.
    pub settings: CommSettings,
    /// Where its name stands.
    pub place: Place,
}

/// How an axis splits the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxisShape {
    /// A dimension of this size: teams are the ranks that share all other coordinates.
    Size(u32),
    /// Listed teams of global ranks, for splits that are no dimension.
    Teams(Vec<Vec<u32>>),
}

/// Per-communicator settings, named after ncclConfig_t. Back ends without them ignore them and say so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommSettings {
    /// Fewest thread blocks a collective may use (ncclConfig minCTAs).
    pub min_ctas: Option<u32>,
    /// Most thread blocks a collective may use (ncclConfig maxCTAs).
    pub max_ctas: Option<u32>,
    /// Thread blocks in a cluster (ncclConfig cgaClusterSize).
    pub cga_cluster_size: Option<u32>,
    /// Whether it shares resources with the communicator that it is split off (ncclConfig splitShare).
    pub split_share: Option<bool>,
    /// Traffic class of its packets (ncclConfig trafficClass).
    pub traffic_class: Option<u32>,
    /// NCCL_ALGO: Ring, Tree, NVLS...
    pub algorithm: Option<String>,
    /// NCCL_PROTO: LL, LL128, Simple.
    pub protocol: Option<String>,
    /// In-switch reduction over NVLink.
    pub nvls: Option<bool>,
    /// In-network reduction by SHARP.
    pub sharp: Option<bool>,
}

/// Urgency of a lane: a CUDA stream priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Before others.
    High,
    /// As others.
    #[default]
    Normal,
    /// After others.
    Low,
}

impl Priority {
    /// Every priority, most urgent first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// The name in patterns.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

/// An ordered queue of work: a CUDA stream, a host worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// Its urgency.
    pub priority: Priority,
    /// Settings of communicators used on it; they win over the axis'.
    pub settings: CommSettings,
    /// Where its name stands.
    pub place: Place,
}

/// A named, reusable sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Motif {
    /// Its name.
    pub name: String,
    /// What it does.
    pub items: Vec<Item>,
    /// Where its name stands.
    pub place: Place,
}

/// What the ranks that `when` selects do.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Which ranks; every rank has exactly one role.
    pub when: When,
    /// What they do.
    pub schedule: Vec<Item>,
    /// Where its name stands.
    pub place: Place,
}

/// One line of a schedule or motif.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What to do.
    pub step: Step,
    /// On which ranks; empty: on all.
    pub when: When,
    /// Where it stands.
    pub place: Place,
}

impl Item {
    /// An item for all ranks.
    pub fn new(step: Step) -> Self {
        Self { step, when: When::default(), place: Place::default() }
    }
}

/// What an item does.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Issues a block.
    Run {
        /// Name of the block.
        block: String,
        /// Axis of a block that communicates.
        on: Option<String>,
        /// Lane; `None`: the only one there is.
        lane: Option<String>,
        /// Label that others wait for; `None`: the block's name.
        label: Option<String>,
        /// What must have ended first, beside the lane's earlier work.
        after: Vec<Reference>,
    },
    /// Time that the host spends before the next item, in nanoseconds.
    Host(u64),
    /// The host waits until these have ended, as `.item()` or a synchronize does.
    Wait(Vec<Reference>),
    /// A motif or an inline sequence, `times` in a row.
    Repeat {
        /// How often.
        times: u64,
        /// What.
        body: Body,
    },
}

/// What a repeat repeats.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A motif, by name.
    Motif(String),
    /// Items written in place.
    Inline(Vec<Item>),
}

/// A reference to an execution of a labelled item: `gather` or `gather[-1]`.
///
/// `gather` is the one of this iteration of the innermost sequence that holds any; it must come earlier there. With
/// `back` = k (written `[-k]`) it is the k-th execution before that one, in issue order. Where there is none (at the
/// start of a step) nothing is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// The label.
    pub label: String,
    /// How many executions back.
    pub back: u32,
}

/// Which ranks: all the named coordinates must match. Empty: every rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct When(pub Vec<(String, Selector)>);

/// Which coordinates of an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// 0.
    First,
    /// The highest.
    Last,
    /// All but 0.
    NotFirst,
    /// All but the highest.
    NotLast,
    /// These.
    These(Vec<u32>),
}

impl Selector {
    /// Whether it selects `coordinate` on an axis of `size`.
    pub fn matches(&self, coordinate: u32, size: u32) -> bool {
        match self {
            Self::First => coordinate == 0,
            Self::Last => coordinate + 1 == size,
            Self::NotFirst => coordinate != 0,
            Self::NotLast => coordinate + 1 != size,
            Self::These(all) => all.contains(&coordinate),
        }
    }
}

/// How sure an importer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Could well be wrong.
    Low,
    /// The usual case.
    Medium,
    /// Everything seen agrees.
    High,
}

impl Confidence {
    /// Every confidence, lowest first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Medium, Self::High];

    /// The name in patterns.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Something an importer inferred and could not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// What.
    pub what: String,
    /// How sure.
    pub confidence: Confidence,
    /// The blocks that it is about, by name; empty if it is about no one block.
    pub blocks: Vec<String>,
}

impl Assumption {
    /// An assumption about no one block.
    pub fn new(what: impl Into<String>, confidence: Confidence) -> Self {
        Self { what: what.into(), confidence, blocks: Vec::new() }
    }
}
