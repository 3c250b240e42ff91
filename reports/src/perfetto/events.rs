//! Slices, tracks and arrows as packets.
//!
//! All packets are of one sequence, in the order of their times, which spares a reader the sorting. Of events at the same
//! instant the order decides what nests in what and which way an arrow points; so it is part of the result: by process,
//! then a cause before its effect, then outer begin, inner begin, inner end, outer end.

use std::collections::BTreeMap;

use maestro_pattern::Measurement;
use prost::Message;

use super::process::{Process, Slice};
use super::proto::{
    DebugAnnotation, EXPLICIT, INCREMENTAL_STATE_CLEARED, ProcessDescriptor, ThreadDescriptor, Trace, TracePacket,
    TrackDescriptor, TrackEvent, Type,
};

/// The one sequence.
const SEQUENCE: u32 = 1;

/// Order among the events of one instant: process, slice, and which of the slice's four events.
type Place = (u64, usize, usize, u8);

/// Collects packets.
pub struct Writer {
    tracks: Vec<TrackDescriptor>,
    events: Vec<(Place, TrackEvent)>,
    processes: usize,
    /// One number is uuid and pid or tid: no two tracks share any of them. 0 is the root of all tracks.
    last_id: i32,
    last_flow: u64,
}

impl Writer {
    /// With nothing but the root, which says that processes and threads are shown in the order given.
    pub fn new() -> Self {
        let root = TrackDescriptor {
            uuid: Some(0),
            process_ordering: Some(EXPLICIT),
            thread_ordering: Some(EXPLICIT),
            ..TrackDescriptor::default()
        };
        Self { tracks: vec![root], events: Vec::new(), processes: 0, last_id: 0, last_flow: 0 }
    }

    /// Adds a process behind those that are there.
    pub fn add(&mut self, process: &Process<'_>) {
        let pid = self.id();
        self.tracks.push(TrackDescriptor {
            uuid: Some(pid as u64),
            sibling_order_rank: Some(self.processes as i32),
            process: Some(ProcessDescriptor { pid: Some(pid), process_name: Some(process.name.clone()) }),
            ..TrackDescriptor::default()
        });
        let mut uuids = BTreeMap::new();
        for (rank, (key, name)) in process.tracks.iter().enumerate() {
            let tid = self.id();
            uuids.insert(*key, tid as u64);
            self.tracks.push(TrackDescriptor {
                uuid: Some(tid as u64),
                parent_uuid: Some(pid as u64),
                sibling_order_rank: Some(rank as i32),
                thread: Some(ThreadDescriptor {
                    pid: Some(pid),
                    tid: Some(i64::from(tid)),
                    thread_name: Some(name.clone()),
                }),
                ..TrackDescriptor::default()
            });
        }
        for ((round, _, iteration), turn) in &process.turns {
            let begin = TrackEvent {
                debug_annotations: vec![number("round", *round), number("iteration", *iteration)],
                ..begin(pid as u64, &turn.name, "turn")
            };
            // A process' own row has no other slices, and its turns are apart, so their order needs no number.
            self.push((turn.begin_ns, 0, 0), begin);
            self.push((turn.end_ns, 0, 3), end(pid as u64));
        }
        let mut flows = vec![(Vec::new(), Vec::new()); process.slices.len()];
        for (cause, effect) in &process.arrows {
            self.last_flow += 1;
            flows[*cause].0.push(self.last_flow);
            flows[*effect].1.push(self.last_flow);
        }
        for (n, (slice, (flow_ids, terminating_flow_ids))) in process.slices.iter().zip(flows).enumerate() {
            let track = uuids[&slice.track];
            let event = TrackEvent {
                debug_annotations: annotations(slice),
                flow_ids,
                terminating_flow_ids,
                ..begin(track, &slice.of.block, slice.kind)
            };
            self.push((slice.begin_ns, n + 1, 0), event);
            if let Some(wait_end_ns) = slice.wait_end_ns {
                self.push((slice.begin_ns, n + 1, 1), begin(track, "wait", "wait"));
                self.push((wait_end_ns, n + 1, 2), end(track));
            }
            self.push((slice.end_ns, n + 1, 3), end(track));
        }
        self.processes += 1;
    }

    /// The bytes of the file.
    pub fn finish(mut self) -> Vec<u8> {
        self.events.sort_by_key(|(place, _)| *place);
        let tracks = self.tracks.into_iter().map(|track| TracePacket {
            track_descriptor: Some(track),
            trusted_packet_sequence_id: Some(SEQUENCE),
            ..TracePacket::default()
        });
        let events = self.events.into_iter().map(|((at_ns, ..), event)| TracePacket {
            timestamp: Some(at_ns),
            track_event: Some(event),
            trusted_packet_sequence_id: Some(SEQUENCE),
            ..TracePacket::default()
        });
        let mut bytes = Vec::new();
        for (n, packet) in tracks.chain(events).enumerate() {
            let sequence_flags = (n == 0).then_some(INCREMENTAL_STATE_CLEARED);
            let trace = Trace { packet: vec![TracePacket { sequence_flags, ..packet }] };
            // Messages written one behind the other are one message, so the file need not be held twice.
            bytes.extend(trace.encode_to_vec());
        }
        bytes
    }

    fn push(&mut self, (at_ns, slice, event): (u64, usize, u8), what: TrackEvent) {
        self.events.push(((at_ns, self.processes, slice, event), what));
    }

    fn id(&mut self) -> i32 {
        self.last_id += 1;
        self.last_id
    }
}

fn begin(track: u64, name: &str, category: &str) -> TrackEvent {
    TrackEvent {
        r#type: Some(Type::SliceBegin.into()),
        track_uuid: Some(track),
        name: Some(name.to_owned()),
        categories: vec![category.to_owned()],
        ..TrackEvent::default()
    }
}

fn end(track: u64) -> TrackEvent {
    TrackEvent { r#type: Some(Type::SliceEnd.into()), track_uuid: Some(track), ..TrackEvent::default() }
}

/// What the details of an execution show; what is not known is not there.
fn annotations(slice: &Slice<'_>) -> Vec<DebugAnnotation> {
    let Measurement { round, iteration, instance, state, start_ns, wait_ns, transfer_ns, size_bytes, .. } = slice.of;
    let text = |name: &str, value: &str| DebugAnnotation { string_value: Some(value.to_owned()), ..annotation(name) };
    let optional = |name: &str, value: Option<u64>| value.map(|value| number(name, value));
    let all = [
        optional("size_bytes", *size_bytes),
        slice.dtype.map(|dtype| text("dtype", dtype)),
        slice.of.axis.as_deref().map(|axis| text("axis", axis)),
        Some(text("state", state.name())),
        Some(number("round", *round)),
        Some(number("iteration", *iteration)),
        Some(number("instance", *instance)),
        Some(number("start_ns", *start_ns)),
        optional("wait_ns", *wait_ns),
        optional("transfer_ns", *transfer_ns),
    ];
    all.into_iter().flatten().collect()
}

fn number(name: &str, value: impl Into<u64>) -> DebugAnnotation {
    DebugAnnotation { uint_value: Some(value.into()), ..annotation(name) }
}

fn annotation(name: &str) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), ..DebugAnnotation::default() }
}
