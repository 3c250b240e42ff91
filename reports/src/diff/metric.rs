//! What of two sides is compared.

use crate::Error;

/// A figure of a run that is compared. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Length of the step: from first start to last end of the rank for which that is longest.
    Step,
    /// Communication that no compute hides, of the step and of each block: a step, mean over ranks.
    Exposed,
    /// Share of the step that is exposed communication.
    ExposedPct,
    /// A block inside the step: transfer of communication, latency of everything else.
    Overlapped,
    /// The same of the block alone.
    Alone,
    /// Overlapped / alone.
    Slowdown,
    /// Time on the lane inside the step, waiting for late ranks included.
    Latency,
    /// Waiting for late ranks inside the step.
    Wait,
    /// 99th percentile of the latency inside the step.
    P99,
    /// Bus bandwidth inside the step.
    Busbw,
    /// Bus bandwidth alone.
    AloneBusbw,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 11] = [
        Self::Step,
        Self::Exposed,
        Self::ExposedPct,
        Self::Overlapped,
        Self::Alone,
        Self::Slowdown,
        Self::Latency,
        Self::Wait,
        Self::P99,
        Self::Busbw,
        Self::AloneBusbw,
    ];

    /// What is compared where nobody asks for more: few, because each further comparison needs more runs.
    pub const USUAL: [Self; 3] = [Self::Step, Self::Overlapped, Self::Alone];

    /// The name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Exposed => "exposed",
            Self::ExposedPct => "exposed_pct",
            Self::Overlapped => "overlapped",
            Self::Alone => "alone",
            Self::Slowdown => "slowdown",
            Self::Latency => "latency",
            Self::Wait => "wait",
            Self::P99 => "p99",
            Self::Busbw => "busbw",
            Self::AloneBusbw => "alone_busbw",
        }
    }

    /// The metric of this name.
    ///
    /// # Errors
    /// No metric has it; the message lists those that there are.
    pub fn from_name(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|metric| metric.name() == name);
        found.ok_or_else(|| Error::NoMetric { name: name.to_owned(), known: Self::ALL.map(Self::name).join(", ") })
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Step | Self::Exposed | Self::Overlapped | Self::Alone | Self::Latency | Self::Wait | Self::P99 => {
                "ms"
            }
            Self::ExposedPct => "%",
            Self::Slowdown => "x",
            Self::Busbw | Self::AloneBusbw => "GB/s",
        }
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        match self {
            Self::Busbw | Self::AloneBusbw => true,
            Self::Step
            | Self::Exposed
            | Self::ExposedPct
            | Self::Overlapped
            | Self::Alone
            | Self::Slowdown
            | Self::Latency
            | Self::Wait
            | Self::P99 => false,
        }
    }

    /// Whether the step has it.
    pub fn of_step(self) -> bool {
        matches!(self, Self::Step | Self::Exposed | Self::ExposedPct)
    }

    /// Whether blocks have it.
    pub fn of_blocks(self) -> bool {
        !matches!(self, Self::Step | Self::ExposedPct)
    }
}
