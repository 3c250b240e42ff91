//! What compute does: operators' work for the kernels that they launched, and how much of the time is understood so.
//!
//! An operator's work belongs to all kernels that one call of it launched, and is done once: the longest of them stands
//! for it and the others are covered. Whether a kernel can have done its work in its time is asked here and not where
//! shapes are read: work beyond what any device does was misread, and its kernels are held for their captured time as
//! those of unknown work are.

use std::collections::HashMap;

use maestro_pattern::{Kernel, MOST_BYTES, MOST_COUNT};

use super::blocks::readable;
use super::fuse::Event;
use crate::Notes;
use crate::capture::{ActivityKind, OperatorWork, Product, Timeline};

/// More bytes a nanosecond than any device's memory moves; caches may. 20 TB/s.
const MOST_BYTES_A_NS: f64 = 20_000.0;

/// What the fastest memory of a device moves, 8 TB/s: a guess beyond is no better than none.
const GUESSED_BYTES_A_NS: f64 = 8_000.0;

/// What guessed traffic moves at least, 100 GB/s; an operator that is slower does something else.
const LEAST_GUESSED_BYTES_A_NS: f64 = 100.0;

/// Time that says nothing of how fast memory was: launch and tail of a kernel, 10 us.
const LAUNCH_NS: f64 = 10_000.0;

/// More operations a nanosecond than any device does, 20 PFLOP/s.
const MOST_FLOPS_A_NS: f64 = 20_000_000.0;

/// What a kernel's time goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Products,
    Attention,
    Memory {
        guessed: bool,
    },
    /// Not understood.
    Held,
}

/// The understood operators of a timeline.
pub(crate) struct Works<'a> {
    timeline: &'a Timeline,
    /// Per operator's number: the longest of its kernels.
    longest: HashMap<u32, usize>,
}

impl<'a> Works<'a> {
    /// Asks of each operator whether its work can have been done in the time of its kernels.
    pub fn new(timeline: &'a Timeline, notes: &mut Notes) -> Self {
        let mut operators: HashMap<u32, (i64, usize)> = HashMap::new();
        for launched in &timeline.launched {
            let index = launched.activity as usize;
            let Some(activity) = timeline.activities.get(index) else { continue };
            let (total_ns, longest) = operators.entry(launched.operator).or_insert((0, index));
            *total_ns += activity.duration_ns;
            if timeline.activities[*longest].duration_ns < activity.duration_ns {
                *longest = index;
            }
        }
        let mut longest = HashMap::new();
        let mut operators: Vec<_> = operators.into_iter().collect();
        operators.sort_unstable();
        for (operator, (total_ns, index)) in operators {
            let Some((_, work)) = timeline.operator(index) else { continue };
            match doubt(work, total_ns) {
                None => {
                    longest.insert(operator, index);
                }
                Some(why) => notes.add(why, || {
                    format!("{work:?} in {} us by {}", total_ns as f64 / 1e3, timeline.activities[index].name)
                }),
            }
        }
        Self { timeline, longest }
    }

    /// The work of the operator that launched a kernel, if it is understood, and the kernel that stands for it.
    fn of(&self, index: usize) -> Option<(&'a OperatorWork, usize)> {
        let (operator, work) = self.timeline.operator(index)?;
        Some((work, *self.longest.get(&operator)?))
    }

    /// The understood work that a kernel stands for.
    pub fn done_by(&self, index: usize) -> Option<&'a OperatorWork> {
        self.of(index).filter(|(_, longest)| *longest == index).map(|(work, _)| work)
    }

    /// What a kernel's time goes to.
    pub fn part(&self, index: usize) -> Part {
        match self.of(index) {
            Some((OperatorWork::Products(_), _)) => Part::Products,
            Some((OperatorWork::Attention(_), _)) => Part::Attention,
            Some((OperatorWork::Traffic { guessed, .. }, _)) => Part::Memory { guessed: *guessed },
            None => Part::Held,
        }
    }

    /// What of its products tells a kernel from others of the same name: a single one. Decided by shapes alone, because
    /// two executions of a block that differ in time are one block.
    pub fn shape(&self, index: usize) -> Option<Product> {
        match self.timeline.operator(index)?.1 {
            OperatorWork::Products(products) => match products.as_slice() {
                [product] => Some(*product),
                _ => None,
            },
            OperatorWork::Attention(_) | OperatorWork::Traffic { .. } => None,
        }
    }

    /// What a compute event does: its products, its copies and sets, all of its traffic, and a remainder to hold.
    pub fn kernels(&self, event: &Event) -> Vec<Kernel> {
        let timeline = self.timeline;
        let mut found: Vec<Kernel> = Vec::new();
        let (mut traffic_bytes, mut hold_ns, mut hold_sms) = (0u64, 0, 0);
        for &index in &event.activities {
            let activity = &timeline.activities[index];
            match activity.kind {
                ActivityKind::Set { bytes } => add(&mut found, Kernel::Set { size: bytes.min(MOST_BYTES), times: 1 }),
                ActivityKind::Copy { direction: Some(direction), bytes } => {
                    add(&mut found, Kernel::Copy { direction, size: bytes.min(MOST_BYTES), times: 1 });
                }
                ActivityKind::Copy { direction: None, bytes } => {
                    traffic_bytes = traffic_bytes.saturating_add(bytes.saturating_mul(2));
                }
                ActivityKind::Kernel { blocks } => match self.of(index) {
                    Some((work, longest)) if longest == index => {
                        if let OperatorWork::Traffic { bytes, .. } = work {
                            traffic_bytes = traffic_bytes.saturating_add(*bytes);
                        }
                        for Product { m, n, k, batch, dtype } in work.products() {
                            add(&mut found, Kernel::Gemm { m, n, k, batch, dtype, times: 1 });
                        }
                    }
                    Some((_, longest)) if event.activities.contains(&longest) => {}
                    // Not understood, or the work of its operator is in another block.
                    _ => {
                        let most = timeline.device_sms.unwrap_or(u32::MAX);
                        hold_ns += activity.duration_ns;
                        hold_sms = hold_sms.max(u32::try_from(blocks).unwrap_or(most).min(most));
                    }
                },
            }
        }
        if traffic_bytes > 0 {
            found.push(Kernel::Memory { bytes: traffic_bytes.min(MOST_BYTES), times: 1 });
        }
        if hold_ns > 0 {
            let sms = (hold_sms > 0 && timeline.device_sms.is_some()).then_some(hold_sms);
            found.push(Kernel::Hold { duration_ns: readable(hold_ns as f64), sms, times: 1 });
        }
        found
    }
}

/// Why work is not believed; `None`: it is.
fn doubt(work: &OperatorWork, total_ns: i64) -> Option<&'static str> {
    let ns = total_ns.max(1) as f64;
    match work {
        OperatorWork::Traffic { bytes, guessed } => {
            let bytes = *bytes as f64;
            if bytes > ns * if *guessed { GUESSED_BYTES_A_NS } else { MOST_BYTES_A_NS } {
                return Some("operators whose traffic no memory moves in their time, held instead");
            }
            let slow = *guessed && ns > LAUNCH_NS + bytes / LEAST_GUESSED_BYTES_A_NS;
            slow.then_some("operators of no known rule that do more than move their inputs, held instead")
        }
        OperatorWork::Products(_) | OperatorWork::Attention(_) => {
            let products = work.products();
            let counted = |p: &Product| [p.m, p.n, p.k, p.batch].iter().all(|side| (1..=MOST_COUNT).contains(side));
            if products.is_empty() || !products.iter().all(counted) {
                return Some("matrix products of no size or beyond counting, held instead");
            }
            let flops: f64 = products.iter().map(Product::flops).sum();
            (flops > ns * MOST_FLOPS_A_NS).then_some("matrix products that no device does in their time, held instead")
        }
    }
}

/// Adds a kernel, to an equal one if there is any.
fn add(found: &mut Vec<Kernel>, mut kernel: Kernel) {
    let equal = found.iter_mut().find(|other| {
        let mut once = (*other).clone();
        *times(&mut once) = 1;
        once == kernel
    });
    match equal {
        Some(other) => *times(other) += 1,
        None => {
            *times(&mut kernel) = 1;
            found.push(kernel);
        }
    }
}

fn times(kernel: &mut Kernel) -> &mut u64 {
    match kernel {
        Kernel::Gemm { times, .. }
        | Kernel::Memory { times, .. }
        | Kernel::Hold { times, .. }
        | Kernel::Copy { times, .. }
        | Kernel::Set { times, .. } => times,
    }
}
