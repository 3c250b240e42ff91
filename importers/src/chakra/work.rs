//! The text of `maestro.work`: what a compute block does, a kernel after the other, each `KIND ARGUMENTS... TIMES`; of
//! a product whose operands do not both lie as they are multiplied, their layout comes last, and of memory traffic the
//! nanoseconds that it lasts, if they are known.
//!
//! One line of text rather than an attribute a number, because a block has any number of kernels and the schema no
//! lists of lists. It is written by [`crate::export`].

use std::sync::Arc;

use maestro_pattern::{CopyDirection, Dtype, GemmLayout};

use crate::capture::{ActivityKind, OperatorWork, Product, StatedPart};

/// No block does one thing more often; a count beyond it is damage.
const MOST_TIMES: u64 = 1 << 16;

/// What the text says that the block `name` does, `None` if it is no such text.
pub(super) fn parts(name: &Arc<str>, text: &str) -> Option<Vec<StatedPart>> {
    let mut parts = Vec::new();
    for kernel in text.split(';').map(str::trim).filter(|kernel| !kernel.is_empty()) {
        let words: Vec<&str> = kernel.split_whitespace().collect();
        let number = |place: usize| words.get(place).and_then(|word| word.parse::<u64>().ok());
        let times = |place| number(place).filter(|times| (1..=MOST_TIMES).contains(times));
        let part = |kind, work| StatedPart { name: name.clone(), kind, work, comm: Vec::new() };
        let kernel = |blocks, work| part(ActivityKind::Kernel { blocks }, Some(work));
        match *words.first()? {
            "gemm" => {
                let (m, n, k, batch) = (number(1)?, number(2)?, number(3)?, number(4)?);
                let layout = match words.get(7) {
                    Some(word) => GemmLayout::from_name(word)?,
                    None => GemmLayout::default(),
                };
                let product = Product { m, n, k, batch, dtype: Dtype::from_name(words.get(5)?)?, layout };
                parts.push(kernel(0, OperatorWork::Products(vec![product; times(6)? as usize])));
            }
            "memory" => {
                let (bytes, times) = (number(1)?.saturating_mul(times(2)?), times(2)?);
                let lasts_ns = match words.get(3) {
                    Some(word) => Some(word.parse::<u64>().ok()?.saturating_mul(times)),
                    None => None,
                };
                parts.push(kernel(0, OperatorWork::Traffic { bytes, guessed: false, lasts_ns }));
            }
            "hold" => {
                let sms = number(2)?;
                let (duration_ns, times) = (number(1)?, times(3)?);
                let held = Some(u32::try_from(sms).ok()?).filter(|sms| *sms > 0);
                parts.push(kernel(sms, OperatorWork::Held { duration_ns, sms: held, times }));
            }
            "copy" => {
                let wanted = *words.get(1)?;
                let direction = CopyDirection::ALL.into_iter().find(|direction| direction.name() == wanted)?;
                let kind = ActivityKind::Copy { direction: Some(direction), bytes: number(2)? };
                parts.extend((0..times(3)?).map(|_| part(kind, None)));
            }
            "set" => {
                let kind = ActivityKind::Set { bytes: number(1)? };
                parts.extend((0..times(2)?).map(|_| part(kind, None)));
            }
            _ => return None,
        }
    }
    Some(parts).filter(|parts| !parts.is_empty())
}
