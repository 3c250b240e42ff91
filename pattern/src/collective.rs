//! What a collective is: its name, what it takes and gives in bytes, what its bandwidth means.
//!
//! Back ends only make the call; every such fact is here. Sizes follow nccl-tests: S is the whole buffer of a rank.

use crate::{Dtype, Error, Place, Result};

/// The collectives. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CollectiveKind {
    /// Every rank gets the reduction of all inputs. S = the buffer of a rank.
    AllReduce,
    /// Every rank gets all inputs, in rank order. S = the output of a rank.
    AllGather,
    /// Every rank gets its part of the reduction of all inputs. S = the input of a rank.
    ReduceScatter,
    /// Every rank gets the root's buffer. S = that buffer.
    Broadcast,
    /// The root gets the reduction of all inputs. S = the buffer of a rank.
    Reduce,
    /// The root gets all inputs, in rank order. S = the root's output.
    Gather,
    /// Every rank gets its part of the root's buffer. S = the root's input.
    Scatter,
    /// Every rank sends a part to every rank. S = the buffer of a rank; with uneven splits the largest one.
    AllToAll,
    /// Every rank waits for all others. No data.
    Barrier,
}

impl CollectiveKind {
    /// Every collective, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::Gather,
        Self::Scatter,
        Self::AllToAll,
        Self::Barrier,
    ];

    /// The name in patterns, reports and `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all_to_all",
            Self::Barrier => "barrier",
        }
    }

    /// The collective of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it reduces, and so takes an `op`.
    pub fn reduces(self) -> bool {
        match self {
            Self::AllReduce | Self::ReduceScatter | Self::Reduce => true,
            Self::AllGather | Self::Broadcast | Self::Gather | Self::Scatter | Self::AllToAll | Self::Barrier => false,
        }
    }

    /// Whether one rank is special, and so it takes a `root`.
    pub fn rooted(self) -> bool {
        match self {
            Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter => true,
            Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Barrier => false,
        }
    }

    /// Whether it can be done in place again and again: it moves data and computes nothing, so its input is there after it.
    pub fn may_be_in_place(self) -> bool {
        match self {
            Self::AllGather | Self::Broadcast => true,
            Self::AllReduce
            | Self::ReduceScatter
            | Self::Reduce
            | Self::Gather
            | Self::Scatter
            | Self::AllToAll
            | Self::Barrier => false,
        }
    }

    /// Whether S is made of one equal part a rank, and so must divide by the team.
    pub fn divided(self) -> bool {
        match self {
            Self::AllGather | Self::ReduceScatter | Self::Gather | Self::Scatter | Self::AllToAll => true,
            Self::AllReduce | Self::Broadcast | Self::Reduce | Self::Barrier => false,
        }
    }

    /// busbw / algbw for a team of `ranks`, as nccl-tests defines it (doc/PERFORMANCE.md there). `None` where a
    /// bandwidth means nothing: a barrier.
    pub fn bus_factor(self, ranks: usize) -> Option<f64> {
        let n = ranks as f64;
        match self {
            Self::AllReduce => Some(2.0 * (n - 1.0) / n),
            Self::AllGather | Self::ReduceScatter | Self::Gather | Self::Scatter | Self::AllToAll => {
                Some((n - 1.0) / n)
            }
            Self::Broadcast | Self::Reduce => Some(1.0),
            Self::Barrier => None,
        }
    }
}

/// How a reduction combines elements, named as in NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Sum divided by the number of ranks; integers round towards zero.
    Avg,
}

impl ReduceOp {
    /// Every reduction.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::Avg];

    /// The name in patterns.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
        }
    }

    /// The reduction of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }
}

/// One collective with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collective {
    /// Which one.
    pub kind: CollectiveKind,
    /// S of nccl-tests in bytes: the whole buffer of a rank. `None`: the capture did not tell; such a pattern can be
    /// looked at and simulated, not replayed.
    pub size: Option<u64>,
    /// Element type.
    pub dtype: Dtype,
    /// Reduction of those that reduce.
    pub op: ReduceOp,
    /// Root of those that have one, as an index into the team.
    pub root: u32,
    /// Uneven all-to-all: `splits[from][to]` elements. Empty: even.
    pub splits: Vec<Vec<u64>>,
    /// Whether what a rank puts in lies where it comes out, as with nccl-tests' in-place figures. Of those that
    /// [may be](CollectiveKind::may_be_in_place).
    pub in_place: bool,
}

impl Collective {
    /// A collective of `size` bytes (S of nccl-tests), by sum where it reduces, from team rank 0 where it has a root.
    pub fn new(kind: CollectiveKind, size: u64, dtype: Dtype) -> Self {
        Self { kind, size: Some(size), dtype, op: ReduceOp::Sum, root: 0, splits: Vec::new(), in_place: false }
    }

    /// Bytes that rank `me` of a team of `ranks` puts in. 0 for an unknown size.
    pub fn input_bytes(&self, me: usize, ranks: usize) -> u64 {
        let size = self.size.unwrap_or(0);
        match self.kind {
            CollectiveKind::AllReduce | CollectiveKind::ReduceScatter | CollectiveKind::Reduce => size,
            CollectiveKind::AllGather | CollectiveKind::Gather => size / ranks as u64,
            CollectiveKind::Broadcast | CollectiveKind::Scatter => {
                if me == self.root as usize {
                    size
                } else {
                    0
                }
            }
            CollectiveKind::AllToAll => match self.splits.get(me) {
                Some(row) => self.bytes_of(row.iter()),
                None => size,
            },
            CollectiveKind::Barrier => 0,
        }
    }

    /// Bytes that rank `me` of a team of `ranks` gets out. 0 for an unknown size.
    pub fn output_bytes(&self, me: usize, ranks: usize) -> u64 {
        let size = self.size.unwrap_or(0);
        match self.kind {
            CollectiveKind::AllReduce | CollectiveKind::AllGather | CollectiveKind::Broadcast => size,
            CollectiveKind::ReduceScatter | CollectiveKind::Scatter => size / ranks as u64,
            CollectiveKind::Reduce | CollectiveKind::Gather => {
                if me == self.root as usize {
                    size
                } else {
                    0
                }
            }
            CollectiveKind::AllToAll => {
                if self.splits.is_empty() {
                    size
                } else {
                    self.bytes_of(self.splits.iter().filter_map(|row| row.get(me)))
                }
            }
            CollectiveKind::Barrier => 0,
        }
    }

    /// Bytes of these elements; as many as there can be if they are more.
    fn bytes_of<'a>(&self, elements: impl Iterator<Item = &'a u64>) -> u64 {
        elements.fold(0u64, |sum, n| sum.saturating_add(*n)).saturating_mul(self.dtype.bytes())
    }

    /// Checks size, root and splits against a team of `ranks`.
    ///
    /// # Errors
    /// A size that is not whole elements or does not divide by the team, a root outside it, splits of another shape or
    /// whose largest rank is not S.
    pub(crate) fn check_team(&self, place: Place, block: &str, ranks: usize) -> Result<()> {
        let n = ranks as u64;
        let name = self.kind.name();
        if self.kind.rooted() && self.root as usize >= ranks {
            return Err(Error::at(
                place,
                format!("block `{block}`: root {} is outside a team of {ranks} ranks", self.root),
            )
            .help(format!("roots go from 0 to {}", ranks - 1)));
        }
        let Some(size) = self.size else { return Ok(()) };
        if !self.splits.is_empty() {
            if self.splits.len() != ranks || self.splits.iter().any(|row| row.len() != ranks) {
                return Err(Error::at(
                    place,
                    format!("block `{block}`: splits must be a {ranks} x {ranks} matrix for a team of {ranks} ranks"),
                )
                .help("give one row a sender, one column a receiver, in elements"));
            }
            let most = (0..ranks).map(|r| self.input_bytes(r, ranks).max(self.output_bytes(r, ranks))).max();
            if most != Some(size) {
                return Err(Error::at(
                    place,
                    format!("block `{block}`: size {size} B is not the largest buffer that its splits give"),
                )
                .help(format!("write size: {}", most.unwrap_or(0))));
            }
            return Ok(());
        }
        let unit = if self.kind.divided() { self.dtype.bytes() * n } else { self.dtype.bytes() };
        if !size.is_multiple_of(unit) {
            let why = if self.kind.divided() {
                format!("{ranks} ranks x {} elements", self.dtype.name())
            } else {
                format!("{} elements", self.dtype.name())
            };
            return Err(Error::at(
                place,
                format!("block `{block}`: {name} of {size} B does not divide into {why} of {unit} B"),
            )
            .help(format!("the nearest size that does is {}", (size / unit).max(1) * unit)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for kind in CollectiveKind::ALL {
            assert_eq!(CollectiveKind::from_name(kind.name()), Some(kind));
        }
        for op in ReduceOp::ALL {
            assert_eq!(ReduceOp::from_name(op.name()), Some(op));
        }
    }

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        assert_eq!(CollectiveKind::AllReduce.bus_factor(8), Some(1.75));
        assert_eq!(CollectiveKind::AllGather.bus_factor(8), Some(0.875));
        assert_eq!(CollectiveKind::Broadcast.bus_factor(8), Some(1.0));
        assert_eq!(CollectiveKind::Barrier.bus_factor(8), None);
    }

    #[test]
    fn buffers_follow_the_size_of_nccl_tests() {
        let gather = Collective::new(CollectiveKind::AllGather, 800, Dtype::F32);
        assert_eq!((gather.input_bytes(1, 4), gather.output_bytes(1, 4)), (200, 800));
        let scatter = Collective::new(CollectiveKind::ReduceScatter, 800, Dtype::F32);
        assert_eq!((scatter.input_bytes(1, 4), scatter.output_bytes(1, 4)), (800, 200));
    }

    #[test]
    fn uneven_splits_give_rows_and_columns() {
        let mut uneven = Collective::new(CollectiveKind::AllToAll, 20, Dtype::F32);
        uneven.splits = vec![vec![1, 3], vec![1, 2]];
        assert_eq!((uneven.input_bytes(0, 2), uneven.output_bytes(0, 2)), (16, 8));
        assert_eq!((uneven.input_bytes(1, 2), uneven.output_bytes(1, 2)), (12, 20));
        uneven.check_team(Place::default(), "x", 2).unwrap();
        assert!(uneven.check_team(Place::default(), "x", 3).is_err());
    }

    #[test]
    fn a_size_that_does_not_divide_names_the_nearest() {
        let gather = Collective::new(CollectiveKind::AllGather, 1000, Dtype::F32);
        let error = gather.check_team(Place::new(3, 5), "g", 3).unwrap_err().to_string();
        assert!(error.contains("line 3, column 5") && error.contains("996"), "{error}");
    }
}
