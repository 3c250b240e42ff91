//! Which of a baseline's times stands for a block.

use maestro_pattern::{CollectiveKind, Dtype, Work};

use super::{Baseline, Point};

/// How far apart two sizes may lie for the time of one in between: a factor.
const APART: u64 = 4;

/// What a baseline has for a block.
#[derive(Clone, Debug, PartialEq)]
pub enum Match {
    /// A time at this size; the mean, if it was measured several times.
    Exact {
        /// In microseconds.
        time_us: f64,
    },
    /// A time between those of two sizes, on the straight line from one to the other.
    Between {
        /// In microseconds.
        time_us: f64,
        /// The two sizes in bytes.
        sizes: (u64, u64),
    },
    /// Nothing, and why.
    None {
        /// As "no ... in it".
        why: String,
    },
}

impl Baseline {
    /// What stands for `work` of `size_bytes` on a team of `ranks`: the same collective, element type and ranks.
    pub fn find(&self, work: &Work, size_bytes: Option<u64>, ranks: Option<u64>) -> Match {
        let none = |why: String| Match::None { why };
        let Work::Collective(collective) = work else {
            return none("nccl-tests has no test of this kind".into());
        };
        let (kind, dtype) = (collective.kind, collective.dtype);
        if kind == CollectiveKind::Barrier || !collective.splits.is_empty() {
            return none("nccl-tests has no test of barriers or of these splits".into());
        }
        let (Some(size), Some(ranks)) = (size_bytes, ranks) else { return none("its size is not known".into()) };
        let of_kind: Vec<&Point> = self.points.iter().filter(|point| point.kind == kind).collect();
        if of_kind.is_empty() {
            return none(format!("no {} in it", kind.name()));
        }
        let of_ranks: Vec<&Point> = of_kind.iter().copied().filter(|point| point.ranks as u64 == ranks).collect();
        if of_ranks.is_empty() {
            let there = listed(of_kind.iter().map(|point| point.ranks.to_string()));
            return none(format!("{} is there on {there} ranks, not {ranks}", kind.name()));
        }
        let alike: Vec<&Point> = of_ranks.iter().copied().filter(|point| point.dtype == dtype).collect();
        if alike.is_empty() {
            let there = listed(of_ranks.iter().map(|point| Dtype::name(point.dtype).to_owned()));
            return none(format!("{} is there of {there}, not {}", kind.name(), dtype.name()));
        }
        at(&alike, size).unwrap_or_else(|| {
            none(format!("{} is there of other sizes, none within a factor of {APART} around {size} B", kind.name()))
        })
    }
}

/// The time at `size`, or between the next sizes below and above.
fn at(points: &[&Point], size: u64) -> Option<Match> {
    let time_at = |size: u64| {
        let times: Vec<f64> =
            points.iter().filter(|point| point.size_bytes == size).map(|point| point.time_us).collect();
        times.iter().sum::<f64>() / times.len() as f64
    };
    let sizes = || points.iter().map(|point| point.size_bytes);
    let (below, above) = (sizes().filter(|s| *s <= size).max()?, sizes().filter(|s| *s >= size).min()?);
    if below == above {
        return Some(Match::Exact { time_us: time_at(size) });
    }
    if above > below.saturating_mul(APART) {
        return None;
    }
    let part = (size - below) as f64 / (above - below) as f64;
    let time_us = time_at(below) + part * (time_at(above) - time_at(below));
    Some(Match::Between { time_us, sizes: (below, above) })
}

/// Each of `all` once, in order.
fn listed(all: impl Iterator<Item = String>) -> String {
    let all: std::collections::BTreeSet<String> = all.collect();
    all.into_iter().collect::<Vec<_>>().join(", ")
}
