//! NCCL's NVTX ranges as records of communication, each with the kernel that its call launched.
//!
//! A call outside of a group launches inside its own range; the calls of a group are launched together inside the range
//! of the `ncclGroupEnd` that ends the outermost one. There the calls share a kernel, a kernel a communicator. What a
//! range lacks (its payload) stays unknown; a kernel's name tells no more than the element type of what it reduces.

use std::collections::HashMap;
use std::sync::Arc;

use maestro_pattern::{CollectiveKind, Dtype};

use super::payload::{self, Message};
use crate::capture::{CommFacts, CommOp, CommRecord, ElementSource, Joined, RecordSource};
use crate::{Notes, libraries};

/// Name of NCCL's domain.
pub(super) const DOMAIN: &str = "NCCL";

/// A range of NCCL's domain.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub thread: i64,
    pub start_ns: i64,
    pub end_ns: i64,
    pub name: Arc<str>,
    pub payload: Option<Box<[u8]>>,
}

/// A launch of a communication kernel.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub at_ns: i64,
    pub correlation: u64,
    /// Name of the kernel.
    pub kernel: Arc<str>,
}

/// What the ranges of a process tell.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub records: Vec<CommRecord>,
    pub joined: Vec<Joined>,
    /// Calls and groups that should have launched something.
    pub expected: usize,
    /// Calls without a payload.
    pub sizeless: usize,
}

/// What a range is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Call(CommOp),
    GroupStart,
    GroupEnd,
    Join,
    Other,
}

fn role(name: &str) -> Role {
    let collective = |kind| Role::Call(CommOp::Collective(kind));
    match name.strip_prefix("nccl").unwrap_or(name) {
        "AllReduce" => collective(CollectiveKind::AllReduce),
        "AllGather" => collective(CollectiveKind::AllGather),
        "ReduceScatter" => collective(CollectiveKind::ReduceScatter),
        "Broadcast" | "Bcast" => collective(CollectiveKind::Broadcast),
        "Reduce" => collective(CollectiveKind::Reduce),
        "AlltoAll" | "AllToAll" => collective(CollectiveKind::AllToAll),
        "Gather" => collective(CollectiveKind::Gather),
        "Scatter" => collective(CollectiveKind::Scatter),
        "Send" => Role::Call(CommOp::Send { to: None }),
        "Recv" => Role::Call(CommOp::Recv { from: None }),
        "GroupStart" => Role::GroupStart,
        "GroupEnd" => Role::GroupEnd,
        "CommInitRank" | "CommInitRankConfig" | "CommInitRankScalable" => Role::Join,
        _ => Role::Other,
    }
}

/// Reads the ranges of a process. `launches` are those of communication kernels, by thread and in order.
pub(super) fn read(mut ranges: Vec<Range>, launches: &HashMap<i64, Vec<Launch>>, notes: &mut Notes) -> Told {
    ranges.sort_by_key(|range| (range.thread, range.start_ns, std::cmp::Reverse(range.end_ns)));
    let mut told = Told::default();
    for mine in ranges.chunk_by(|a, b| a.thread == b.thread) {
        let launches = launches.get(&mine[0].thread).map(Vec::as_slice).unwrap_or_default();
        let (mut depth, mut group) = (0u32, Vec::new());
        // A call that is made of others has their ranges inside its own.
        let mut inside_until = i64::MIN;
        for range in mine {
            match role(&range.name) {
                Role::Call(_) if range.start_ns < inside_until => {}
                Role::Call(op) => {
                    inside_until = range.end_ns;
                    if depth > 0 {
                        group.push((range, op));
                    } else {
                        told.launch(range, &[(range, op)], launches, notes);
                    }
                }
                Role::GroupStart => depth += 1,
                Role::GroupEnd => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 && !group.is_empty() {
                        told.launch(range, &std::mem::take(&mut group), launches, notes);
                    }
                }
                Role::Join => told.join(range),
                Role::Other => {}
            }
        }
        // A group that the recording ends in.
        for call in group {
            told.records.push(record(call, None, notes));
        }
    }
    told
}

impl Told {
    /// Takes calls that are launched inside `window`.
    fn launch(&mut self, window: &Range, calls: &[(&Range, CommOp)], launches: &[Launch], notes: &mut Notes) {
        self.expected += 1;
        self.sizeless += calls.iter().filter(|(range, _)| range.payload.is_none()).count();
        let from = launches.partition_point(|launch| launch.at_ns < window.start_ns);
        let to = launches.partition_point(|launch| launch.at_ns <= window.end_ns);
        let mut kernels = launches.get(from..to).unwrap_or_default().to_vec();
        kernels.dedup_by_key(|launch| launch.correlation);
        if kernels.is_empty() {
            notes.add("communication calls whose kernel is not in the recording", || window.name.to_string());
        }
        let mut communicators: Vec<Option<u64>> = Vec::new();
        let places: Vec<usize> = calls
            .iter()
            .map(|call| {
                let communicator = message(call).and_then(|message| message.communicator);
                communicators.iter().position(|known| *known == communicator).unwrap_or_else(|| {
                    communicators.push(communicator);
                    communicators.len() - 1
                })
            })
            .collect();
        let one_each = kernels.len() == calls.len();
        if kernels.len() > 1 && !one_each && kernels.len() != communicators.len() {
            notes.add("groups of calls in another number of kernels: all taken for the first kernel's", || {
                format!("{} calls on {} communicators, {} kernels", calls.len(), communicators.len(), kernels.len())
            });
            kernels.truncate(1);
        }
        for (n, call) in calls.iter().enumerate() {
            let kernel = match kernels.len() {
                0 => None,
                1 => Some(0),
                _ if one_each => Some(n),
                _ => Some(places[n]),
            };
            self.records.push(record(*call, kernel.and_then(|kernel| kernels.get(kernel)), notes));
        }
    }

    fn join(&mut self, range: &Range) {
        if let Some(membership) = range.payload.as_deref().and_then(payload::membership) {
            self.joined.push(Joined {
                name: name(membership.communicator),
                size: membership.ranks,
                place: membership.rank,
            });
        }
    }
}

/// The name by which records speak of a communicator.
fn name(communicator: u64) -> Arc<str> {
    format!("{communicator:016x}").into()
}

fn message((range, op): &(&Range, CommOp)) -> Option<Message> {
    let argument = match op {
        CommOp::Collective(kind) => kind.reduces() || kind.rooted(),
        _ => true,
    };
    payload::message(range.payload.as_deref()?, argument)
}

fn record(call: (&Range, CommOp), launch: Option<&Launch>, notes: &mut Notes) -> CommRecord {
    let (range, op) = call;
    let mut facts = CommFacts::new(op, range.name.clone());
    if let Some(message) = message(&call) {
        let kernel = launch.map(|launch| &*launch.kernel);
        let dtype = kernel.and_then(|kernel| reduced(kernel, op)).filter(|d| message.bytes.is_multiple_of(d.bytes()));
        facts.element = if dtype.is_some() { ElementSource::KernelName } else { ElementSource::Bytes };
        let dtype = dtype.unwrap_or(Dtype::U8);
        facts.dtype = Some(dtype);
        let elements = message.bytes / dtype.bytes();
        // Of one message each: the sides that this leaves open follow from the number of ranks.
        (facts.in_elements, facts.out_elements) = match op {
            CommOp::Collective(CollectiveKind::AllGather | CollectiveKind::Gather) => (elements, 0),
            CommOp::Collective(CollectiveKind::ReduceScatter | CollectiveKind::Scatter) => (0, elements),
            CommOp::Send { .. } => (elements, 0),
            CommOp::Recv { .. } => (0, elements),
            _ => (elements, elements),
        };
        facts.group_name = message.communicator.map(name);
        if matches!(op, CommOp::Send { .. } | CommOp::Recv { .. }) {
            facts.group_peer = message.argument.and_then(|peer| u32::try_from(peer).ok());
        }
    } else if range.payload.is_some() {
        notes.add("payloads of communication calls that are not understood", || range.name.to_string());
    }
    CommRecord {
        facts,
        thread: range.thread,
        start_ns: range.start_ns,
        end_ns: range.end_ns,
        external_id: launch.map(|launch| launch.correlation),
        source: RecordSource::Range,
        function_id: None,
    }
}

/// The element type that the name of a reduction's kernel tells, if it is that operation's kernel.
fn reduced(kernel: &str, op: CommOp) -> Option<Dtype> {
    let CommOp::Collective(kind) = op else { return None };
    let head = kernel.split('(').next().unwrap_or_default();
    if !kind.reduces() || libraries::operation(head) != Some(kind) {
        return None;
    }
    head.split('_').find_map(|part| match part {
        "f64" | "double" => Some(Dtype::F64),
        "f32" | "float" => Some(Dtype::F32),
        "f16" | "half" => Some(Dtype::F16),
        "bf16" | "bfloat16" => Some(Dtype::Bf16),
        "f8e4m3" => Some(Dtype::F8e4m3),
        "f8e5m2" => Some(Dtype::F8e5m2),
        "i64" => Some(Dtype::I64),
        "i32" => Some(Dtype::I32),
        "i8" => Some(Dtype::I8),
        "u8" => Some(Dtype::U8),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(name: &str, start_ns: i64, end_ns: i64, payload: Option<Vec<u8>>) -> Range {
        Range { thread: 1, start_ns, end_ns, name: name.into(), payload: payload.map(Into::into) }
    }

    fn bytes(communicator: u64, bytes: u64, peer: Option<i32>) -> Option<Vec<u8>> {
        let mut all = [communicator.to_le_bytes(), bytes.to_le_bytes()].concat();
        if let Some(peer) = peer {
            all.extend([peer.to_le_bytes(), [0; 4]].concat());
        }
        Some(all)
    }

    fn told(ranges: Vec<Range>, launches: &[(i64, u64, &str)]) -> (Told, Notes) {
        let launch = |(at_ns, correlation, kernel): &(i64, u64, &str)| Launch {
            at_ns: *at_ns,
            correlation: *correlation,
            kernel: (*kernel).into(),
        };
        let mut notes = Notes::default();
        let launches = HashMap::from([(1, launches.iter().map(launch).collect())]);
        (read(ranges, &launches, &mut notes), notes)
    }

    fn ids(told: &Told) -> Vec<Option<u64>> {
        told.records.iter().map(|record| record.external_id).collect()
    }

    #[test]
    fn a_call_launches_inside_its_range_and_a_group_inside_the_end_of_the_outermost() {
        let (told, notes) = told(
            vec![
                range("ncclAllGather", 0, 100, bytes(7, 1_000, None)),
                range("ncclGroupStart", 200, 201, None),
                range("ncclGroupStart", 202, 203, None),
                range("ncclSend", 210, 220, bytes(7, 64, Some(1))),
                range("ncclGroupEnd", 230, 240, None),
                range("ncclRecv", 250, 260, bytes(7, 32, Some(3))),
                range("ncclGroupEnd", 300, 400, None),
            ],
            &[(50, 11, "ncclDevKernel_AllGather_RING_LL(x)"), (350, 12, "ncclDevKernel_SendRecv(x)")],
        );
        assert_eq!(ids(&told), [Some(11), Some(12), Some(12)]);
        let facts = &told.records[1].facts;
        assert_eq!((facts.op, facts.group_peer, facts.in_elements), (CommOp::Send { to: None }, Some(1), 64));
        let facts = &told.records[2].facts;
        assert_eq!((facts.op, facts.group_peer, facts.out_elements), (CommOp::Recv { from: None }, Some(3), 32));
        assert!(notes.is_empty());
    }

    #[test]
    fn communicators_of_a_group_have_a_kernel_each_and_what_does_not_fit_is_said() {
        let group = || {
            vec![
                range("ncclGroupStart", 0, 1, None),
                range("ncclAllGather", 2, 3, bytes(7, 8, None)),
                range("ncclAllGather", 4, 5, bytes(8, 8, None)),
                range("ncclAllGather", 6, 7, bytes(7, 8, None)),
                range("ncclGroupEnd", 10, 20, None),
            ]
        };
        let (two, notes) = told(group(), &[(11, 1, "a"), (12, 2, "b")]);
        assert_eq!((ids(&two), notes.is_empty()), (vec![Some(1), Some(2), Some(1)], true));
        let (four, notes) = told(group(), &[(11, 1, "a"), (12, 2, "b"), (13, 3, "c"), (14, 4, "d")]);
        assert_eq!((ids(&four), notes.iter().count()), (vec![Some(1); 3], 1));
        let (none, notes) = told(group(), &[]);
        assert_eq!((ids(&none), none.expected, notes.iter().count()), (vec![None; 3], 1, 1));
    }

    #[test]
    fn only_reductions_take_their_type_from_a_kernels_name_and_only_if_it_is_theirs() {
        let of = |call: &str, kernel: &str| {
            let (told, _) = told(vec![range(call, 0, 10, bytes(7, 1_000, Some(0)))], &[(5, 1, kernel)]);
            let facts = &told.records[0].facts;
            (facts.dtype, facts.element, facts.in_elements.max(facts.out_elements))
        };
        let f32 = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)";
        assert_eq!(of("ncclReduceScatter", f32), (Some(Dtype::F32), ElementSource::KernelName, 250));
        assert_eq!(of("ncclAllReduce", f32), (Some(Dtype::U8), ElementSource::Bytes, 1_000));
        assert_eq!(
            of("ncclAllGather", "ncclDevKernel_AllGather_RING_LL"),
            (Some(Dtype::U8), ElementSource::Bytes, 1_000)
        );
        let old = "ncclKernel_AllReduce_RING_LL_Sum_bf16(ncclWorkElem)";
        assert_eq!(of("ncclAllReduce", old), (Some(Dtype::Bf16), ElementSource::KernelName, 500));
    }

    #[test]
    fn calls_made_of_others_count_once_and_without_payload_have_no_size() {
        let (told, _) = told(
            vec![range("ncclBcast", 0, 100, None), range("ncclBroadcast", 10, 90, None)],
            &[(50, 1, "ncclDevKernel_Broadcast_RING_LL")],
        );
        assert_eq!((told.records.len(), told.sizeless), (1, 1));
        assert_eq!((told.records[0].facts.dtype, told.records[0].facts.in_elements), (None, 0));
    }
}
