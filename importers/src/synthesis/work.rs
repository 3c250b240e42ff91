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

/// What traffic moves at least, 100 GB/s; an operator that is slower does something else.
const LEAST_BYTES_A_NS: f64 = 100.0;

/// Time that says nothing of how fast memory was: launch and tail of a kernel, 10 us.
const LAUNCH_NS: f64 = 10_000.0;

/// What operators of a known rule may take beside: kernels of few threads that read little, 100 us.
const SMALL_NS: f64 = 100_000.0;

/// Less than this share of a block's time is within what averaging blurs, and not worth a line.
const HELD: f64 = 0.001;

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
            // What is stated outright was asked this where it was read from shapes.
            let told = timeline.unit(index).is_some();
            match doubt(work, total_ns, &timeline.activities[index].name).filter(|_| !told) {
                None => {
                    longest.insert(operator, index);
                }
                Some(why) => notes.add(why, || {
                    let what = match work {
                        OperatorWork::Traffic { bytes, .. } => format!("{bytes} B"),
                        OperatorWork::Products(_) | OperatorWork::Attention(_) | OperatorWork::Held { .. } => {
                            let flops: f64 = work.products().iter().map(Product::flops).sum();
                            format!("{flops:.3e} operations")
                        }
                    };
                    format!("{what} in {} us by {}", total_ns as f64 / 1e3, timeline.activities[index].name)
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
            Some((OperatorWork::Held { .. }, _)) | None => Part::Held,
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
            OperatorWork::Attention(_) | OperatorWork::Traffic { .. } | OperatorWork::Held { .. } => None,
        }
    }

    /// How long the memory traffic of a compute event takes, in nanoseconds: the time of its kernels, or what the
    /// recording states instead. `None`: it states the traffic and no time.
    pub fn traffic_ns(&self, event: &Event) -> Option<i64> {
        let timeline = self.timeline;
        let mut all = 0;
        for &index in &event.activities {
            let activity = &timeline.activities[index];
            match (activity.kind, self.of(index)) {
                (ActivityKind::Copy { direction: None, .. }, _) => all += activity.duration_ns,
                (ActivityKind::Kernel { .. }, Some((OperatorWork::Traffic { lasts_ns, .. }, longest))) => {
                    match timeline.unit(index) {
                        None => all += activity.duration_ns,
                        Some(_) if longest == index => all += i64::try_from((*lasts_ns)?).ok()?,
                        Some(_) => {}
                    }
                }
                _ => {}
            }
        }
        Some(all)
    }

    /// What a compute event does: its products, its copies and sets, all of its traffic, and a remainder to hold.
    pub fn kernels(&self, event: &Event) -> Vec<Kernel> {
        let timeline = self.timeline;
        let (mut found, mut told): (Vec<Kernel>, Vec<Kernel>) = Default::default();
        let (mut traffic_bytes, mut kernels_ns, mut hold_ns, mut hold_sms) = (0u64, 0, 0, 0);
        for &index in &event.activities {
            let activity = &timeline.activities[index];
            kernels_ns += activity.duration_ns;
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
                        if let OperatorWork::Held { duration_ns, sms, times } = *work {
                            told.push(Kernel::Hold { duration_ns, sms, times });
                        }
                        let products = work.products();
                        if let (Some(_), Some(product)) = (timeline.unit(index), products.first()) {
                            // Stated apart: it stays so.
                            found.push(gemm(product, products.len() as u64));
                            continue;
                        }
                        for product in &products {
                            add(&mut found, gemm(product, 1));
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
            found.push(Kernel::Memory { bytes: traffic_bytes.min(MOST_BYTES), lasts_ns: None, times: 1 });
        }
        found.extend(told);
        if hold_ns > 0 && hold_ns as f64 >= HELD * kernels_ns as f64 {
            let sms = (hold_sms > 0 && timeline.device_sms.is_some()).then_some(hold_sms);
            found.push(Kernel::Hold { duration_ns: readable(hold_ns as f64), sms, times: 1 });
        }
        found
    }
}

/// A product as patterns have it.
fn gemm(product: &Product, times: u64) -> Kernel {
    let Product { m, n, k, batch, dtype, layout } = *product;
    Kernel::Gemm { m, n, k, batch, dtype, layout, times }
}

/// Why work is not believed; `None`: it is.
fn doubt(work: &OperatorWork, total_ns: i64, name: &str) -> Option<&'static str> {
    let ns = total_ns.max(1) as f64;
    match work {
        OperatorWork::Traffic { bytes, guessed, .. } => {
            let bytes = *bytes as f64;
            if bytes > ns * if *guessed { GUESSED_BYTES_A_NS } else { MOST_BYTES_A_NS } {
                return Some("operators whose traffic no memory moves in their time, held instead");
            }
            let slow = ns > if *guessed { LAUNCH_NS } else { SMALL_NS } + bytes / LEAST_BYTES_A_NS;
            (slow || *guessed && multiplies(name))
                .then_some("operators that do something else than move their tensors, held instead")
        }
        OperatorWork::Held { .. } => None,
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

/// Whether a kernel's name is that of a library's matrix product or attention. Names are hints, and no work is taken from
/// them: only a guess that such a kernel moves memory is not believed.
fn multiplies(name: &str) -> bool {
    const HINTS: [&str; 10] =
        ["gemm", "nvjet", "cutlass", "xmma", "wgmma", "Cijk_", "conv_", "flash", "attention", "fmha"];
    HINTS.iter().any(|hint| name.contains(hint))
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

#[cfg(test)]
mod tests {
    use maestro_pattern::{Dtype, GemmLayout};

    use super::*;
    use crate::capture::{Activity, Launched};

    const PRODUCT: Product =
        Product { m: 1_000, n: 1_000, k: 1_000, batch: 1, dtype: Dtype::Bf16, layout: GemmLayout::Nn };

    fn traffic(bytes: u64) -> OperatorWork {
        OperatorWork::Traffic { bytes, guessed: false, lasts_ns: None }
    }

    /// Kernels as (duration, operator's number and work).
    fn timeline(works: &[OperatorWork], kernels: &[(i64, Option<(u32, u32)>)]) -> Timeline {
        let mut timeline = Timeline { works: works.to_vec(), device_sms: Some(132), ..Timeline::default() };
        for (index, (duration_ns, launched)) in kernels.iter().enumerate() {
            timeline.activities.push(Activity {
                kind: ActivityKind::Kernel { blocks: 500 },
                name: "k".into(),
                start_ns: 0,
                duration_ns: *duration_ns,
                stream: 7,
                correlation: None,
                external_id: None,
                comm: None,
            });
            let launched = launched.map(|(operator, work)| Launched { activity: index as u32, operator, work });
            timeline.launched.extend(launched);
        }
        timeline
    }

    fn event(activities: &[usize]) -> Event {
        Event {
            stream: 7,
            activities: activities.to_vec(),
            phase: "forward".into(),
            main: true,
            graph: None,
            issued_ns: 0,
            start_ns: 0,
            end_ns: 0,
            idle_ns: 0,
            after: Vec::new(),
        }
    }

    #[test]
    fn an_operators_work_is_done_once_by_its_longest_kernel() {
        let works = [OperatorWork::Products(vec![PRODUCT]), traffic(1_000_000)];
        // A product in two kernels, the same by another call, traffic twice, and a kernel of nobody.
        let kernels = [
            (100, Some((0, 0))),
            (9_000, Some((0, 0))),
            (9_000, Some((1, 0))),
            (500, Some((2, 1))),
            (700, Some((3, 1))),
            (5_000, None),
        ];
        let timeline = timeline(&works, &kernels);
        let found = Works::new(&timeline, &mut Notes::default());
        let hold = Kernel::Hold { duration_ns: 5_000, sms: Some(132), times: 1 };
        let memory = |bytes| Kernel::Memory { bytes, lasts_ns: None, times: 1 };
        assert_eq!(found.kernels(&event(&[0, 1, 2, 3, 4, 5])), [gemm(&PRODUCT, 2), memory(2_000_000), hold]);
        assert_eq!((found.part(0), found.part(1), found.part(5)), (Part::Products, Part::Products, Part::Held));
        assert_eq!(found.done_by(0), None);
        assert_eq!(
            (found.traffic_ns(&event(&[0, 1, 2, 3, 4, 5])), found.traffic_ns(&event(&[4]))),
            (Some(1_200), Some(700))
        );
        // In a block without the kernel that stands for the work, the others are held.
        let hold = Kernel::Hold { duration_ns: 100, sms: Some(132), times: 1 };
        assert_eq!(found.kernels(&event(&[0, 3])), [memory(1_000_000), hold]);
    }

    #[test]
    fn what_is_not_worth_a_line_is_left_out_and_counted_all_the_same() {
        let timeline = timeline(&[OperatorWork::Products(vec![PRODUCT])], &[(90_000, Some((0, 0))), (80, None)]);
        let found = Works::new(&timeline, &mut Notes::default());
        assert_eq!(found.kernels(&event(&[0, 1])), [gemm(&PRODUCT, 1)]);
        assert_eq!(found.part(1), Part::Held);
        assert_eq!(found.kernels(&event(&[1])).len(), 1, "alone it is all there is");
    }

    #[test]
    fn work_that_no_device_does_is_held_and_noted() {
        let guess = |bytes| OperatorWork::Traffic { bytes, guessed: true, lasts_ns: None };
        let none = Product { m: 0, ..PRODUCT };
        for (work, ns, believed) in [
            // 2 x 10^9 operations: 20 PFLOP/s are 100 ns.
            (OperatorWork::Products(vec![PRODUCT]), 101, true),
            (OperatorWork::Products(vec![PRODUCT]), 99, false),
            (OperatorWork::Products(vec![PRODUCT, none]), 1_000_000, false),
            (OperatorWork::Products(Vec::new()), 1_000_000, false),
            // 20 TB/s are 20,000 bytes a ns, and 8 for a guess.
            (traffic(20_000_000), 1_001, true),
            (traffic(20_000_000), 999, false),
            (guess(20_000_000), 2_501, true),
            (guess(20_000_000), 2_499, false),
            // A megabyte is 10 us at 100 GB/s, beside 100 us that any kernel may take, or 10.
            (traffic(1_000_000), 109_000, true),
            (traffic(1_000_000), 111_000, false),
            (guess(1_000_000), 19_000, true),
            (guess(1_000_000), 21_000, false),
            (traffic(1), 0, true),
        ] {
            let timeline = timeline(std::slice::from_ref(&work), &[(ns, Some((0, 0)))]);
            let mut notes = Notes::default();
            let found = Works::new(&timeline, &mut notes);
            assert_eq!((found.part(0) != Part::Held, notes.is_empty()), (believed, believed), "{work:?} in {ns} ns");
            assert!(
                doubt(&work, ns, "nvjet_tst").is_some()
                    || !matches!(&work, OperatorWork::Traffic { guessed: true, .. })
            );
            // What makes blocks equal does not depend on time.
            let single = matches!(&work, OperatorWork::Products(products) if products.len() == 1);
            assert_eq!(found.shape(0).is_some(), single);
        }
    }
}
