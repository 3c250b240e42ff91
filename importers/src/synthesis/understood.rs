//! How much of a step's compute time is understood: what an import says of its blocks' work, in sums.
//!
//! It counts kernels, each by its own duration, so that kernels which overlap count twice and gaps do not count; the
//! compute of a step's summary is a union and may be shorter.

use std::collections::HashMap;

use maestro_pattern::{Assumption, Confidence};

use super::blocks::Rank;
use super::steps::Step;
use super::work::Part;
use crate::capture::{ActivityKind, OperatorWork, Product};

/// Kernels that are listed by name, of those that are not understood.
const LISTED: usize = 5;

/// What the compute kernels of one step of one rank do; times are sums of kernels' durations, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComputeSummary {
    /// Global rank.
    pub rank: u32,
    /// All of it.
    pub kernels_ns: i64,
    /// Operators that are matrix products, convolutions among them.
    pub gemm_ns: i64,
    /// Fused attention.
    pub attention_ns: i64,
    /// Memory traffic.
    pub memory_ns: i64,
    /// The part of `memory_ns` whose bytes are a guess.
    pub guessed_ns: i64,
    /// Not understood.
    pub held_ns: i64,
    /// Floating-point operations of the products, attention's apart.
    pub product_flops: f64,
    /// Floating-point operations of attention.
    pub attention_flops: f64,
    /// Bytes read and written.
    pub memory_bytes: u64,
    /// The kernels that are not understood and take most of the time, by name, longest first; at most five.
    pub held: Vec<HeldKernel>,
}

/// Kernels of one name that are not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldKernel {
    /// Their name.
    pub name: String,
    /// How many.
    pub count: usize,
    /// Sum of their durations, in nanoseconds.
    pub ns: i64,
}

impl ComputeSummary {
    /// Time of kernels with products, attention or traffic, in percent of all; of no kernels none.
    pub fn understood_pct(&self) -> f64 {
        if self.kernels_ns == 0 { 0.0 } else { 100.0 - 100.0 * self.held_ns as f64 / self.kernels_ns as f64 }
    }
}

pub(crate) fn compute(rank: &Rank<'_>, step: &Step) -> ComputeSummary {
    let mut summary = ComputeSummary { rank: rank.rank, ..ComputeSummary::default() };
    let mut held: HashMap<&str, (i64, usize)> = HashMap::new();
    for &index in &step.activities {
        let activity = &rank.timeline.activities[index];
        if !matches!(activity.kind, ActivityKind::Kernel { .. }) || rank.resolved_of.contains_key(&index) {
            continue;
        }
        let ns = activity.duration_ns;
        summary.kernels_ns += ns;
        match rank.works.part(index) {
            Part::Products => summary.gemm_ns += ns,
            Part::Attention => summary.attention_ns += ns,
            Part::Memory { guessed } => {
                summary.memory_ns += ns;
                summary.guessed_ns += if guessed { ns } else { 0 };
            }
            Part::Held => {
                summary.held_ns += ns;
                let (sum, count) = held.entry(&activity.name).or_default();
                *sum += ns;
                *count += 1;
            }
        }
        let Some(work) = rank.works.done_by(index) else { continue };
        let flops = work.products().iter().map(Product::flops).sum::<f64>();
        match work {
            OperatorWork::Products(_) => summary.product_flops += flops,
            OperatorWork::Attention(_) => summary.attention_flops += flops,
            OperatorWork::Held { .. } => {}
            OperatorWork::Traffic { bytes, .. } => summary.memory_bytes = summary.memory_bytes.saturating_add(*bytes),
        }
    }
    let mut held: Vec<_> = held.into_iter().collect();
    held.sort_unstable_by(|(a_name, (a, _)), (b_name, (b, _))| b.cmp(a).then(a_name.cmp(b_name)));
    let listed = held.into_iter().take(LISTED);
    summary.held = listed.map(|(name, (ns, count))| HeldKernel { name: name.to_owned(), count, ns }).collect();
    summary
}

/// States where the traffic of compute comes from, if there is any.
pub(crate) fn assumption(compute: &[ComputeSummary]) -> Option<Assumption> {
    let sum = |ns: fn(&ComputeSummary) -> i64| compute.iter().map(ns).sum::<i64>();
    let (memory, guessed, all) = (sum(|rank| rank.memory_ns), sum(|rank| rank.guessed_ns), sum(|rank| rank.kernels_ns));
    let guessed = 100.0 * guessed as f64 / all.max(1) as f64;
    let what = format!("memory traffic from operators' shapes, a guess in {guessed:.1} % of compute time");
    (memory > 0).then_some(Assumption::new(what, Confidence::Medium))
}
