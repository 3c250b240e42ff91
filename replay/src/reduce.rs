//! Reduction of elements: the arithmetic of every element type.
//!
//! Floats narrower than 32 bits are widened to f32, combined there over all ranks, and rounded once at the end, to
//! nearest, ties to even. Integers wrap. Inputs are worked through in blocks that stay in the first-level cache while
//! one rank's elements after the other are combined into them; the inner loops have no branch, so they vectorise.

use std::sync::LazyLock;

use bytemuck::Pod;
use float8::{F8E4M3, F8E5M2};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use maestro_pattern::{Dtype, ReduceOp};

/// Elements a block.
const BLOCK: usize = 1024;

/// Calls a function of an element type with the type that is meant.
macro_rules! of_type {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            Dtype::F64 => $function::<f64>($($argument),*),
            Dtype::F32 => $function::<f32>($($argument),*),
            Dtype::F16 => $function::<f16>($($argument),*),
            Dtype::Bf16 => $function::<bf16>($($argument),*),
            Dtype::F8e4m3 => $function::<F8E4M3>($($argument),*),
            Dtype::F8e5m2 => $function::<F8E5M2>($($argument),*),
            Dtype::I64 => $function::<i64>($($argument),*),
            Dtype::I32 => $function::<i32>($($argument),*),
            Dtype::I8 => $function::<i8>($($argument),*),
            Dtype::U8 => $function::<u8>($($argument),*),
        }
    };
}

/// Combines `inputs`, one a rank and of equal length, into `output`.
pub(crate) fn reduce(dtype: Dtype, op: ReduceOp, inputs: &[&[u8]], output: &mut [u8]) {
    of_type!(dtype, typed(op, inputs, output));
}

/// Combines `from` into `into`, which holds as many elements, and rounds the result: one step of a reduction whose
/// ranks each see only what another has combined before them. Of an average that is the sum.
#[cfg(feature = "mpi")]
pub(crate) fn combine(dtype: Dtype, op: ReduceOp, from: &[u8], into: &mut [u8]) {
    of_type!(dtype, step(op, from, into));
}

/// Makes averages of sums over so many ranks.
#[cfg(feature = "mpi")]
pub(crate) fn divide(dtype: Dtype, ranks: usize, sums: &mut [u8]) {
    of_type!(dtype, divided(ranks, sums));
}

/// What elements are combined as.
trait Number: Copy + Default {
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    /// Divided by a number of ranks.
    fn over(self, ranks: usize) -> Self;
}

/// An element type.
trait Element: Pod {
    /// What it is combined as.
    type Wide: Number;

    /// The elements as numbers: themselves, or converted into `room`.
    fn widen<'a>(elements: &'a [Self], room: &'a mut [Self::Wide]) -> &'a [Self::Wide];

    /// The numbers as elements.
    fn narrow(numbers: &[Self::Wide], elements: &mut [Self]);
}

fn typed<T: Element>(op: ReduceOp, inputs: &[&[u8]], output: &mut [u8]) {
    let inputs: Vec<&[T]> = inputs.iter().map(|input| bytemuck::cast_slice(input)).collect();
    let output: &mut [T] = bytemuck::cast_slice_mut(output);
    match op {
        ReduceOp::Sum => blocks(&inputs, output, T::Wide::add, |sum, _| sum),
        ReduceOp::Prod => blocks(&inputs, output, T::Wide::mul, |product, _| product),
        ReduceOp::Min => blocks(&inputs, output, T::Wide::min, |least, _| least),
        ReduceOp::Max => blocks(&inputs, output, T::Wide::max, |most, _| most),
        ReduceOp::Avg => blocks(&inputs, output, T::Wide::add, T::Wide::over),
    }
}

#[cfg(feature = "mpi")]
fn step<T: Element>(op: ReduceOp, from: &[u8], into: &mut [u8]) {
    let (from, into): (&[T], &mut [T]) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(into));
    match op {
        ReduceOp::Sum | ReduceOp::Avg => pairs(from, into, T::Wide::add),
        ReduceOp::Prod => pairs(from, into, T::Wide::mul),
        ReduceOp::Min => pairs(from, into, T::Wide::min),
        ReduceOp::Max => pairs(from, into, T::Wide::max),
    }
}

#[cfg(feature = "mpi")]
fn divided<T: Element>(ranks: usize, sums: &mut [u8]) {
    let sums: &mut [T] = bytemuck::cast_slice_mut(sums);
    for run in sums.chunks_mut(BLOCK) {
        let (mut numbers, mut room) = ([T::Wide::default(); BLOCK], [T::Wide::default(); BLOCK]);
        let (numbers, room) = (&mut numbers[..run.len()], &mut room[..run.len()]);
        numbers.copy_from_slice(T::widen(run, room));
        numbers.iter_mut().for_each(|number| *number = number.over(ranks));
        T::narrow(numbers, run);
    }
}

/// Combines elements of `from` into those of `into`.
#[cfg(feature = "mpi")]
fn pairs<T: Element>(from: &[T], into: &mut [T], combine: impl Fn(T::Wide, T::Wide) -> T::Wide) {
    let mut total = [T::Wide::default(); BLOCK];
    let mut room = [T::Wide::default(); BLOCK];
    for (from, into) in from.chunks(BLOCK).zip(into.chunks_mut(BLOCK)) {
        let (total, room) = (&mut total[..into.len()], &mut room[..into.len()]);
        total.copy_from_slice(T::widen(into, room));
        let from = T::widen(from, room);
        total.iter_mut().zip(from).for_each(|(total, from)| *total = combine(*from, *total));
        T::narrow(total, into);
    }
}

/// Combines by `combine`, then has `finish` make the result of it and the number of ranks.
fn blocks<T: Element>(
    inputs: &[&[T]],
    output: &mut [T],
    combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
    finish: impl Fn(T::Wide, usize) -> T::Wide,
) {
    let Some((first, others)) = inputs.split_first() else { return };
    let mut total = [T::Wide::default(); BLOCK];
    let mut room = [T::Wide::default(); BLOCK];
    for (index, output) in output.chunks_mut(BLOCK).enumerate() {
        let at = index * BLOCK..index * BLOCK + output.len();
        let (total, room) = (&mut total[..output.len()], &mut room[..output.len()]);
        total.copy_from_slice(T::widen(&first[at.clone()], room));
        for other in others {
            let other = T::widen(&other[at.clone()], room);
            total.iter_mut().zip(other).for_each(|(total, other)| *total = combine(*total, *other));
        }
        total.iter_mut().for_each(|total| *total = finish(*total, inputs.len()));
        T::narrow(total, output);
    }
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn add(self, other: Self) -> Self {
                self + other
            }
            fn mul(self, other: Self) -> Self {
                self * other
            }
            fn min(self, other: Self) -> Self {
                if other < self { other } else { self }
            }
            fn max(self, other: Self) -> Self {
                if other > self { other } else { self }
            }
            fn over(self, ranks: usize) -> Self {
                self / ranks as Self
            }
        }
    )*};
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            fn over(self, ranks: usize) -> Self {
                // Through i64, because a number of ranks need not fit the type.
                (i64::from(self) / ranks as i64) as Self
            }
        }
    )*};
}

/// Types that are combined as they are.
macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Element for $type {
            type Wide = Self;

            fn widen<'a>(elements: &'a [Self], _: &'a mut [Self]) -> &'a [Self] {
                elements
            }

            fn narrow(numbers: &[Self], elements: &mut [Self]) {
                elements.copy_from_slice(numbers);
            }
        }
    )*};
}

floats!(f64, f32);
integers!(i64, i32, i8, u8);
plain!(f64, f32, i64, i32, i8, u8);

impl Element for f16 {
    type Wide = f32;

    fn widen<'a>(elements: &'a [Self], room: &'a mut [f32]) -> &'a [f32] {
        elements.convert_to_f32_slice(room);
        room
    }

    fn narrow(numbers: &[f32], elements: &mut [Self]) {
        elements.convert_from_f32_slice(numbers);
    }
}

impl Element for bf16 {
    type Wide = f32;

    fn widen<'a>(elements: &'a [Self], room: &'a mut [f32]) -> &'a [f32] {
        room.iter_mut().zip(elements).for_each(|(number, element)| {
            *number = f32::from_bits(u32::from(element.to_bits()) << 16);
        });
        room
    }

    fn narrow(numbers: &[f32], elements: &mut [Self]) {
        elements.iter_mut().zip(numbers).for_each(|(element, number)| *element = bf16::from_f32(*number));
    }
}

/// Conversions of an 8-bit float by table, which take a fifteenth of the time of computing them.
struct EightBits {
    wide: [f32; 1 << 8],
    /// By the upper half of an f32 whose lowest bit says whether anything lies below it. So shortened, a number still
    /// rounds to 8 bits as it would have at full length, because the half has at least two bits more than the result.
    narrow: Box<[u8]>,
}

impl EightBits {
    fn new(wide: impl Fn(u8) -> f32, narrow: impl Fn(f32) -> u8) -> Self {
        Self {
            wide: std::array::from_fn(|bits| wide(bits as u8)),
            narrow: (0..1 << 16).map(|half: u32| narrow(f32::from_bits(half << 16))).collect(),
        }
    }

    fn narrow(&self, number: f32) -> u8 {
        let bits = number.to_bits();
        self.narrow[((bits >> 16) | u32::from(bits & 0xffff != 0)) as usize]
    }
}

static E4M3: LazyLock<EightBits> = LazyLock::new(|| {
    EightBits::new(|bits| F8E4M3::from_bits(bits).to_f32(), |number| F8E4M3::from_f32(number).to_bits())
});

static E5M2: LazyLock<EightBits> = LazyLock::new(|| {
    EightBits::new(|bits| F8E5M2::from_bits(bits).to_f32(), |number| F8E5M2::from_f32(number).to_bits())
});

macro_rules! eight_bits {
    ($type:ty, $tables:ident) => {
        impl Element for $type {
            type Wide = f32;

            fn widen<'a>(elements: &'a [Self], room: &'a mut [f32]) -> &'a [f32] {
                let wide = &$tables.wide;
                room.iter_mut().zip(elements).for_each(|(number, element)| {
                    *number = wide[usize::from(element.to_bits())];
                });
                room
            }

            fn narrow(numbers: &[f32], elements: &mut [Self]) {
                let tables = &*$tables;
                elements.iter_mut().zip(numbers).for_each(|(element, number)| {
                    *element = Self::from_bits(tables.narrow(*number));
                });
            }
        }
    };
}

eight_bits!(F8E4M3, E4M3);
eight_bits!(F8E5M2, E5M2);

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced<T: Pod>(dtype: Dtype, op: ReduceOp, inputs: &[&[T]]) -> Vec<T> {
        let mut output = vec![T::zeroed(); inputs[0].len()];
        let inputs: Vec<&[u8]> = inputs.iter().map(|input| bytemuck::cast_slice(input)).collect();
        reduce(dtype, op, &inputs, bytemuck::cast_slice_mut(&mut output));
        output
    }

    #[test]
    fn bf16_rounds_once_over_all_ranks() {
        // 256 + 1 is no bf16; adding four ones one by one with rounding would stay at 256.
        let (big, one) = ([bf16::from_f32(256.0)], [bf16::ONE]);
        let sum = reduced(Dtype::Bf16, ReduceOp::Sum, &[&big, &one, &one, &one, &one]);
        assert_eq!(sum[0].to_f32(), 260.0);
        // Ties go to even: 257 is half way between 256 and 258.
        assert_eq!(reduced(Dtype::Bf16, ReduceOp::Sum, &[&big, &one])[0].to_f32(), 256.0);
        assert_eq!(reduced(Dtype::Bf16, ReduceOp::Sum, &[&big, &one, &one, &one])[0].to_f32(), 260.0);
    }

    #[test]
    fn eight_bit_floats_round_to_nearest_even() {
        let e5m2 = |x: f32| [F8E5M2::from_f32(x)];
        assert_eq!(reduced(Dtype::F8e5m2, ReduceOp::Sum, &[&e5m2(8.0), &e5m2(1.0)])[0].to_f32(), 8.0);
        assert_eq!(reduced(Dtype::F8e5m2, ReduceOp::Sum, &[&e5m2(10.0), &e5m2(1.0)])[0].to_f32(), 12.0);
        let e4m3 = |x: f32| [F8E4M3::from_f32(x)];
        assert_eq!(reduced(Dtype::F8e4m3, ReduceOp::Avg, &[&e4m3(3.0), &e4m3(4.0)])[0].to_f32(), 3.5);
    }

    /// All upper halves of f32, each with the lower halves that can make a difference to rounding.
    fn numbers() -> impl Iterator<Item = f32> {
        let lower = [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
        (0..1u32 << 16).flat_map(move |upper| lower.map(|lower| f32::from_bits((upper << 16) | lower)))
    }

    #[test]
    fn tables_agree_with_the_crate() {
        for number in numbers() {
            assert_eq!(E4M3.narrow(number), F8E4M3::from_f32(number).to_bits(), "{number:e}");
            assert_eq!(E5M2.narrow(number), F8E5M2::from_f32(number).to_bits(), "{number:e}");
        }
    }

    #[test]
    fn integers_wrap_and_averages_round_toward_zero() {
        assert_eq!(reduced(Dtype::I8, ReduceOp::Sum, &[&[100i8], &[100]]), [-56]);
        assert_eq!(reduced(Dtype::U8, ReduceOp::Prod, &[&[16u8], &[17]]), [16]);
        assert_eq!(reduced(Dtype::I32, ReduceOp::Avg, &[&[-3i32], &[0]]), [-1]);
        assert_eq!(reduced(Dtype::I64, ReduceOp::Min, &[&[i64::MIN], &[0]]), [i64::MIN]);
    }

    #[cfg(feature = "mpi")]
    #[test]
    fn steps_round_each_and_divide_what_they_sum() {
        let long = 2 * BLOCK + 5;
        let mut sums = vec![bf16::from_f32(256.0); long];
        let ones = vec![bf16::ONE; long];
        // Each step rounds 257 to 256, where all at once give 260.
        for _ in 0..4 {
            combine(Dtype::Bf16, ReduceOp::Avg, bytemuck::cast_slice(&ones), bytemuck::cast_slice_mut(&mut sums));
        }
        assert!(sums.iter().all(|sum| sum.to_f32() == 256.0));
        divide(Dtype::Bf16, 4, bytemuck::cast_slice_mut(&mut sums));
        assert!(sums.iter().all(|sum| sum.to_f32() == 64.0));
        let mut least = [5i32, -5];
        combine(Dtype::I32, ReduceOp::Min, bytemuck::cast_slice(&[3i32, 3]), bytemuck::cast_slice_mut(&mut least));
        assert_eq!(least, [3, -5]);
    }

    #[test]
    fn blocks_do_not_show() {
        let long: Vec<f32> = (0..3 * BLOCK + 7).map(|i| i as f32).collect();
        let sum = reduced(Dtype::F32, ReduceOp::Sum, &[&long, &long, &long]);
        assert!(sum.iter().zip(&long).all(|(sum, one)| *sum == 3.0 * one));
    }
}
