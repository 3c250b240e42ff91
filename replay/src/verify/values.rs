//! Known contents of buffers, for which every order of summation is exact in every element type.
//!
//! A back end may reduce in any order and round after every step; comparing bytes is fair only if no partial result
//! ever needs rounding. So what the ranks add up in one element is an integer that the element type holds exactly,
//! dealt out among them: 8 for f8e5m2, whose floats have three bits. Products are of small powers of two, averages of
//! multiples of the number of ranks. Where data is only moved it is bytes that look random, NaNs and all.
//!
//! Every content repeats after a prime number of elements, so that filling and comparing gigabytes is copying one
//! short table, while no power of two maps the sequence onto itself.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use maestro_pattern::{Dtype, ReduceOp};

/// After how many elements a content repeats. Prime.
pub(super) const PERIOD: u64 = 8191;

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Bytes of the rank in `seat`, to be moved as they are.
    Moved { seat: usize },
    /// Bytes of the messages between two seats.
    Message { from: usize, to: usize },
    /// What the rank in `seat` gives to a reduction.
    Contribution { seat: usize, reduction: Reduction },
    /// What the reduction of all ranks gives.
    Reduced { reduction: Reduction },
}

/// A reduction over a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reduction {
    /// How elements are combined.
    pub(super) op: ReduceOp,
    /// Element type.
    pub(super) dtype: Dtype,
    /// Number of ranks.
    pub(super) ranks: usize,
}

impl Content {
    /// Bytes an element: 1 where data is only moved.
    pub(super) fn width(&self) -> usize {
        match self {
            Self::Moved { .. } | Self::Message { .. } => 1,
            Self::Contribution { reduction, .. } | Self::Reduced { reduction } => reduction.dtype.bytes() as usize,
        }
    }

    /// Its first elements as bytes: a whole period, or `elements` if that is less.
    pub(super) fn table(&self, elements: u64) -> Vec<u8> {
        let elements = elements.min(PERIOD);
        let mut table = Vec::with_capacity(elements as usize * self.width());
        for i in 0..elements {
            match *self {
                Self::Moved { seat } => table.push((mix(((seat as u64) << 32) + i) >> 56) as u8),
                Self::Message { from, to } => {
                    table.push((mix(((from as u64) << 44) + ((to as u64) << 24) + i) >> 56) as u8);
                }
                Self::Contribution { seat, reduction } => {
                    encode(reduction.dtype, reduction.contribution(seat, i), &mut table);
                }
                Self::Reduced { reduction } => encode(reduction.dtype, reduction.result(i), &mut table),
            }
        }
        table
    }
}

impl Reduction {
    /// Element `i` of what the rank in `seat` gives.
    fn contribution(&self, seat: usize, i: u64) -> i64 {
        let (limit, ranks) = (exact_integers(self.dtype), self.ranks as u64);
        let dealt = |total: u64| (total / ranks + u64::from((seat as u64 + i) % ranks < total % ranks)) as i64;
        match self.op {
            ReduceOp::Sum => dealt(mix(i) % (limit + 1)),
            ReduceOp::Avg => self.ranks as i64 * dealt(mix(i) % (self.largest_average() + 1)),
            // 2^6 is the largest power of two in an i8.
            ReduceOp::Prod => 1 << dealt(mix(i) % 7),
            ReduceOp::Min | ReduceOp::Max => {
                let below_zero = if self.dtype == Dtype::U8 { 0 } else { limit / 2 };
                (mix(((seat as u64) << 32) + i) % (limit + 1)) as i64 - below_zero as i64
            }
        }
    }

    /// Element `i` of the result.
    fn result(&self, i: u64) -> i64 {
        let all = (0..self.ranks).map(|seat| self.contribution(seat, i));
        match self.op {
            ReduceOp::Sum => all.sum(),
            ReduceOp::Avg => all.sum::<i64>() / self.ranks as i64,
            ReduceOp::Prod => all.product(),
            ReduceOp::Min => all.min().unwrap_or(0),
            ReduceOp::Max => all.max().unwrap_or(0),
        }
    }

    /// The largest average whose sum over the ranks, and every part of that sum, is exact. A power of two only shifts
    /// the exponent, so there only overflow is a bound.
    fn largest_average(&self) -> u64 {
        let (limit, ranks) = (exact_integers(self.dtype), self.ranks as u64);
        let largest = match self.dtype {
            Dtype::F8e4m3 => 448,
            Dtype::F8e5m2 => 57_344,
            Dtype::F16 => 65_504,
            Dtype::F64 | Dtype::F32 | Dtype::Bf16 => u64::MAX,
            Dtype::I64 | Dtype::I32 | Dtype::I8 | Dtype::U8 => limit,
        };
        if ranks.is_power_of_two() { limit.min(largest / ranks) } else { limit / ranks }
    }
}

/// The largest integer up to which the type holds all, or one that is large enough.
fn exact_integers(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::F64 | Dtype::F32 | Dtype::I64 | Dtype::I32 => 1 << 24,
        Dtype::F16 => 1 << 11,
        Dtype::Bf16 => 1 << 8,
        Dtype::F8e4m3 => 1 << 4,
        Dtype::F8e5m2 => 1 << 3,
        Dtype::I8 => 127,
        Dtype::U8 => 255,
    }
}

/// Appends a small integer as an element.
fn encode(dtype: Dtype, value: i64, to: &mut Vec<u8>) {
    match dtype {
        Dtype::F64 => to.extend((value as f64).to_ne_bytes()),
        Dtype::F32 => to.extend((value as f32).to_ne_bytes()),
        Dtype::F16 => to.extend(f16::from_f32(value as f32).to_ne_bytes()),
        Dtype::Bf16 => to.extend(bf16::from_f32(value as f32).to_ne_bytes()),
        Dtype::F8e4m3 => to.push(F8E4M3::from_f32(value as f32).to_bits()),
        Dtype::F8e5m2 => to.push(F8E5M2::from_f32(value as f32).to_bits()),
        Dtype::I64 => to.extend(value.to_ne_bytes()),
        Dtype::I32 => to.extend((value as i32).to_ne_bytes()),
        Dtype::I8 => to.extend((value as i8).to_ne_bytes()),
        Dtype::U8 => to.push(value as u8),
    }
}

/// An element's bytes, most significant first, as a person compares them: `0x3f80`.
pub(super) fn show(element: &[u8]) -> String {
    let digit = |byte: &u8| format!("{byte:02x}");
    let digits: String = if cfg!(target_endian = "little") {
        element.iter().rev().map(digit).collect()
    } else {
        element.iter().map(digit).collect()
    };
    format!("0x{digits}")
}

/// Fills a buffer so that it holds, as any element type, only normal numbers of moderate size: bytes 0x38 to 0x3f.
/// Never zeros, on which hardware is faster.
pub(crate) fn noise(buffer: &mut [u8]) {
    let table: Vec<u8> = (0..PERIOD).map(|i| 0x38 | (mix(i) >> 61) as u8).collect();
    for run in buffer.chunks_mut(table.len()) {
        run.copy_from_slice(&table[..run.len()]);
    }
}

/// Spreads a counter over 64 bits (the finaliser of splitmix64).
fn mix(counter: u64) -> u64 {
    let mut x = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every sum of a part of the contributions is an integer that the type holds.
    #[test]
    fn no_partial_result_needs_rounding() {
        for dtype in Dtype::ALL {
            for ranks in [1, 2, 3, 4, 8, 16, 64, 100] {
                for op in ReduceOp::ALL {
                    let reduction = Reduction { op, dtype, ranks };
                    let averages = if ranks.is_power_of_two() { ranks as i64 } else { 1 };
                    for i in 0..200 {
                        let all: Vec<i64> = (0..ranks).map(|seat| reduction.contribution(seat, i)).collect();
                        let (most, scale) = match op {
                            ReduceOp::Sum => (all.iter().sum::<i64>(), 1),
                            ReduceOp::Avg => (all.iter().sum::<i64>(), averages),
                            ReduceOp::Prod => (all.iter().product::<i64>(), 64),
                            ReduceOp::Min | ReduceOp::Max => (all.iter().map(|v| v.abs()).max().unwrap_or(0), 1),
                        };
                        assert!(most <= scale * exact_integers(dtype) as i64, "{reduction:?}: {all:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn results_vary_from_element_to_element() {
        for dtype in Dtype::ALL {
            for op in ReduceOp::ALL {
                let reduction = Reduction { op, dtype, ranks: 8 };
                let results: std::collections::BTreeSet<i64> = (0..200).map(|i| reduction.result(i)).collect();
                assert!(results.len() > 1, "{reduction:?}");
            }
        }
    }

    #[test]
    fn noise_is_normal_in_every_float_type() {
        let mut words = vec![0u64; 4096];
        noise(bytemuck::cast_slice_mut(&mut words));
        assert!(bytemuck::cast_slice::<u64, f64>(&words).iter().all(|x| x.is_normal()));
        assert!(bytemuck::cast_slice::<u64, f32>(&words).iter().all(|x| x.is_normal()));
        assert!(bytemuck::cast_slice::<u64, f16>(&words).iter().all(|x| x.is_normal()));
        assert!(bytemuck::cast_slice::<u64, bf16>(&words).iter().all(|x| x.is_normal()));
        assert!(bytemuck::cast_slice::<u64, F8E4M3>(&words).iter().all(F8E4M3::is_normal));
        assert!(bytemuck::cast_slice::<u64, F8E5M2>(&words).iter().all(F8E5M2::is_normal));
    }

    #[test]
    fn elements_are_shown_most_significant_byte_first() {
        assert_eq!(show(&1.0f32.to_ne_bytes()), "0x3f800000");
    }
}
