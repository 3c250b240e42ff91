//! Which of a baseline's times stands for a block.

use maestro_pattern::{CollectiveKind, Dtype, Work};

use super::{Baseline, Point, Test};

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
    /// What stands for `work` of `size_bytes` on a team of `ranks`: the same operation, element type and ranks, in place
    /// if it is.
    pub fn find(&self, work: &Work, size_bytes: Option<u64>, ranks: Option<u64>) -> Match {
        let none = |why: String| Match::None { why };
        let (test, dtype, in_place) = match test(work) {
            Ok(found) => found,
            Err(why) => return none(why.into()),
        };
        let name = test.name();
        let (Some(size), Some(ranks)) = (size_bytes, ranks) else { return none("its size is not known".into()) };
        let of_test: Vec<&Point> = self.points.iter().filter(|point| point.test == test).collect();
        if of_test.is_empty() {
            return none(format!("no {name} in it"));
        }
        let of_ranks: Vec<&Point> = of_test.iter().copied().filter(|point| point.ranks as u64 == ranks).collect();
        if of_ranks.is_empty() {
            let there = listed(of_test.iter().map(|point| point.ranks.to_string()));
            return none(format!("{name} is there on {there} ranks, not {ranks}"));
        }
        let of_type: Vec<&Point> = of_ranks.iter().copied().filter(|point| point.dtype == dtype).collect();
        if of_type.is_empty() {
            let there = listed(of_ranks.iter().map(|point| Dtype::name(point.dtype).to_owned()));
            return none(format!("{name} is there of {there}, not {}", dtype.name()));
        }
        let alike: Vec<&Point> = of_type.iter().copied().filter(|point| point.in_place == in_place).collect();
        if alike.is_empty() {
            return none(format!("{name} is there {} only", if in_place { "out of place" } else { "in place" }));
        }
        at(&alike, size).unwrap_or_else(|| {
            none(format!("{name} is there of other sizes, none within a factor of {APART} around {size} B"))
        })
    }
}

/// The test that does what `work` does, the element type, and whether it is in place; or why there is none.
fn test(work: &Work) -> Result<(Test, Dtype, bool), &'static str> {
    match work {
        Work::Collective(one) if one.kind == CollectiveKind::Barrier || !one.splits.is_empty() => {
            Err("nccl-tests has no test of barriers or of these splits")
        }
        Work::Collective(one) => Ok((Test::Collective(one.kind), one.dtype, one.in_place)),
        Work::P2p { transfers, wrap } => match transfers.as_slice() {
            [one, other]
                if *wrap
                    && one.direction != other.direction
                    && one.offset == -other.offset
                    && (one.size, one.dtype) == (other.size, other.dtype) =>
            {
                Ok((Test::SendRecv, one.dtype, false))
            }
            _ => Err(
                "nccl-tests sends and receives in a ring only, which this block does not (`wrap`, one send, one receive)",
            ),
        },
        Work::Group(_) | Work::Compute(_) | Work::Cuda(_) => Err("nccl-tests has no test of this kind"),
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
