//! What an import says beside the pattern: the steps, the collectives, and where every activity went.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::axes::Axes;
use super::blocks::Rank;
use super::host::{self, HostSummary};
use super::intervals::{Union, exposed_shares};
use super::rates::{self, Volume};
use super::resolve::{Communicators, Operation};
use super::steps::Step;
use crate::capture::ActivityKind;

/// One step of one rank, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSummary {
    /// Global rank.
    pub rank: u32,
    /// Name of the step.
    pub name: Arc<str>,
    /// Kernels, copies and sets that the host launched in it.
    pub activities: usize,
    /// First start to last end.
    pub span_ns: i64,
    /// Union of the kernels that do not communicate; copies and sets are neither.
    pub compute_ns: i64,
    /// Union of the kernels that communicate.
    pub comm_ns: i64,
    /// The part of `comm_ns` that no compute covers.
    pub exposed_ns: i64,
    /// Union of the copies.
    pub copy_ns: i64,
    /// Union of everything; the rest of the span the device was idle.
    pub busy_ns: i64,
    /// What waited for the host.
    pub host: HostSummary,
    /// `comm_ns` without the first communications of their kind in the recording, in which ranks wait for each other to
    /// begin recording.
    pub steady_comm_ns: i64,
}

impl StepSummary {
    /// Share of the communication that compute covers, in percent; `None` without communication.
    pub fn overlap_pct(&self) -> Option<f64> {
        (self.comm_ns > 0).then(|| 100.0 * (self.comm_ns - self.exposed_ns) as f64 / self.comm_ns as f64)
    }
}

/// All executions of one communication in one step of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectiveSummary {
    /// Global rank.
    pub rank: u32,
    /// Name of the step.
    pub step: Arc<str>,
    /// A collective's name, `group`, `send`, `recv`, `send_recv`, or `unknown` where nothing tells the operation.
    pub op: String,
    /// Element type.
    pub dtype: Option<&'static str>,
    /// S of nccl-tests in bytes; of sends and receives the bytes of the larger direction.
    pub size: Option<u64>,
    /// Global ranks of the communicator.
    pub ranks: Vec<u32>,
    /// Axis of the pattern.
    pub axis: String,
    /// Executions.
    pub count: usize,
    /// Sum of the kernels' durations, in nanoseconds.
    pub duration_ns: i64,
    /// Sum of the waits for the last rank, where the whole team was captured.
    pub wait_ns: Option<i64>,
    /// Sum of the transfers, where the whole team was captured.
    pub transfer_ns: Option<i64>,
    /// The part of it that no compute covers, in nanoseconds, shared equally among what communicates at once: over all
    /// rows of a step this adds up to the step's exposed time.
    pub exposed_ns: f64,
    /// Whether anything about it was inferred rather than read.
    pub inferred: bool,
    /// Of these executions, the first of its kind in the recording, if others of the kind follow it anywhere.
    pub first: Option<FirstInstance>,
    /// S / time of nccl-tests in decimal GB/s, without `first` where there are others; of sends and receives that of
    /// the larger direction. `None`: a barrier, or an unknown size.
    pub algbw_gbps: Option<f64>,
    /// The same times the factor of nccl-tests.
    pub busbw_gbps: Option<f64>,
    /// Elements that each rank of the team sends to each, if uneven, whole, and the same in all executions.
    pub splits: Option<Vec<Vec<u64>>>,
    /// Bytes out and in of one execution of sends and receives.
    pub directions: Option<(u64, u64)>,
}

impl CollectiveSummary {
    /// `duration_ns` without the first instance in the recording.
    pub fn steady_duration_ns(&self) -> i64 {
        self.duration_ns - self.first.map_or(0, |first| first.duration_ns)
    }
}

/// The first communication of its kind in a recording, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstInstance {
    /// Duration of its kernel.
    pub duration_ns: i64,
    /// Wait for the last rank, where the whole team was captured.
    pub wait_ns: Option<i64>,
    /// Transfer, where the whole team was captured.
    pub transfer_ns: Option<i64>,
}

pub(crate) fn step(rank: &Rank<'_>, launches: &[Option<usize>], step: &Step) -> StepSummary {
    let timeline = rank.timeline;
    let communicates = |index: &usize| rank.resolved_of.contains_key(index);
    let span = |index: &usize| (timeline.activities[*index].start_ns, timeline.activities[*index].end_ns());
    let kernels = || {
        step.activities.iter().filter(|index| matches!(timeline.activities[**index].kind, ActivityKind::Kernel { .. }))
    };
    let comm = Union::new(kernels().filter(|index| communicates(index)).map(span));
    let steady = |index: &&usize| rank.resolved_of.get(*index).is_some_and(|i| !rank.first.contains(i));
    let steady = Union::new(kernels().filter(steady).map(span));
    let compute = Union::new(kernels().filter(|index| !communicates(index)).map(span));
    let copies =
        step.activities.iter().filter(|index| matches!(timeline.activities[**index].kind, ActivityKind::Copy { .. }));
    let start = step.activities.iter().map(|index| span(index).0).min().unwrap_or(0);
    let end = step.activities.iter().map(|index| span(index).1).max().unwrap_or(0);
    StepSummary {
        rank: rank.rank,
        name: step.name.clone(),
        activities: step.activities.len(),
        span_ns: end - start,
        compute_ns: compute.length(),
        comm_ns: comm.length(),
        exposed_ns: comm.length() - comm.overlap(&compute),
        copy_ns: Union::new(copies.map(span)).length(),
        busy_ns: Union::new(step.activities.iter().map(span)).length(),
        host: host::summary(timeline, launches, step, |index| communicates(&index)),
        steady_comm_ns: steady.length(),
    }
}

pub(crate) fn collectives(
    rank: &Rank<'_>,
    step: &Step,
    communicators: &Communicators,
    axes: &Axes,
) -> Vec<CollectiveSummary> {
    let mut all: BTreeMap<_, (CollectiveSummary, Option<Volume>)> = BTreeMap::new();
    let span = |index: &usize| (rank.timeline.activities[*index].start_ns, rank.timeline.activities[*index].end_ns());
    let kernel = |index: &usize| matches!(rank.timeline.activities[*index].kind, ActivityKind::Kernel { .. });
    let (communicating, others): (Vec<usize>, Vec<usize>) =
        step.activities.iter().filter(|index| kernel(index)).partition(|index| rank.resolved_of.contains_key(index));
    let spans: Vec<(i64, i64)> = communicating.iter().map(span).collect();
    let exposed = exposed_shares(&spans, &Union::new(others.iter().map(span)));
    for (index, exposed_ns) in communicating.iter().zip(exposed) {
        let Some(&i) = rank.resolved_of.get(index) else { continue };
        let (kernel, timing) = (&rank.resolved[i], rank.timing[i]);
        let (mut op, dtype, size) = described(&kernel.operation);
        if kernel.unknown {
            op = "unknown".to_owned();
        }
        let ranks = &communicators.all[kernel.communicator].ranks;
        let splits = splits(&kernel.operation);
        let new = |op: &str| CollectiveSummary {
            rank: rank.rank,
            step: step.name.clone(),
            op: op.to_owned(),
            dtype,
            size,
            ranks: ranks.clone(),
            axis: axes.axes[axes.axis_of[kernel.communicator]].name.clone(),
            count: 0,
            duration_ns: 0,
            wait_ns: Some(0),
            transfer_ns: Some(0),
            exposed_ns: 0.0,
            inferred: false,
            first: None,
            algbw_gbps: None,
            busbw_gbps: None,
            splits: splits.cloned(),
            directions: rates::directions(&kernel.operation),
        };
        let volume = || rates::volume(&kernel.operation, ranks.len()).filter(|_| !kernel.unknown);
        let entry = all.entry((kernel.communicator, op.clone(), dtype, size));
        let (row, _) = entry.or_insert_with(|| (new(&op), volume()));
        let duration_ns = rank.timeline.activities[*index].duration_ns;
        row.count += 1;
        row.exposed_ns += exposed_ns;
        row.duration_ns += duration_ns;
        if rank.first.contains(&i) {
            let (wait_ns, transfer_ns) = (timing.map(|t| t.wait_ns), timing.map(|t| t.transfer_ns));
            row.first = Some(FirstInstance { duration_ns, wait_ns, transfer_ns });
        }
        if row.splits.as_ref() != splits {
            row.splits = None;
        }
        row.wait_ns = row.wait_ns.zip(timing).map(|(sum, timing)| sum + timing.wait_ns);
        row.transfer_ns = row.transfer_ns.zip(timing).map(|(sum, timing)| sum + timing.transfer_ns);
        row.inferred |= kernel.inferred();
    }
    all.into_values()
        .map(|(mut row, volume)| {
            let steady = row.first.filter(|_| row.count > 1);
            let sum = match (row.transfer_ns, steady) {
                (Some(all), first) => all - first.and_then(|first| first.transfer_ns).unwrap_or(0),
                (None, first) => row.duration_ns - first.map_or(0, |first| first.duration_ns),
            };
            let mean = sum as f64 / (row.count - usize::from(steady.is_some())).max(1) as f64;
            row.algbw_gbps = volume.and_then(|volume| rates::gbps(volume.algorithm, mean));
            row.busbw_gbps = volume.and_then(|volume| rates::gbps(volume.bus?, mean));
            row
        })
        .collect()
}

/// The matrix of an uneven all-to-all.
fn splits(operation: &Operation) -> Option<&Vec<Vec<u64>>> {
    match operation {
        Operation::Collective { collective, .. } => Some(&collective.splits).filter(|splits| !splits.is_empty()),
        Operation::Group(_) | Operation::P2p(_) => None,
    }
}

pub(crate) fn described(operation: &Operation) -> (String, Option<&'static str>, Option<u64>) {
    match operation {
        Operation::Collective { collective, .. } => {
            let dtype = collective.size.is_some().then(|| collective.dtype.name());
            (collective.kind.name().to_owned(), dtype, collective.size)
        }
        Operation::Group(all) => {
            ("group".to_owned(), all.first().map(|c| c.dtype.name()), all.iter().map(|c| c.size).sum())
        }
        Operation::P2p(transfers) => {
            let (sent, received) = rates::directions(operation).unwrap_or_default();
            let op = match (sent > 0, received > 0) {
                (true, false) => "send",
                (false, true) => "recv",
                _ => "send_recv",
            };
            (op.to_owned(), transfers.first().map(|t| t.dtype.name()), Some(sent.max(received)))
        }
    }
}
