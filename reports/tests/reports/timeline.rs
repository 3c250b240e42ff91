//! Reads a timeline back and checks that it is one, by nothing but the wire format of protobuf.
//!
//! It shares no code with the writer: numbers of fields stand here a second time, as Perfetto's .proto files have them,
//! and a field that is not listed ends the test.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A value as it is on the wire.
#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => panic!("bytes where a number belongs"),
        }
    }

    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => panic!("a number where bytes belong"),
        }
    }

    fn text(self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a number of more than 64 bits");
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

/// The fields of a message: number and value.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Wire<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Wire::Number(varint(&mut bytes)),
            1 => Wire::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
            2 => {
                let length = varint(&mut bytes) as usize;
                Wire::Bytes(take(&mut bytes, length))
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

/// A process, or a thread in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    pub uuid: u64,
    pub parent: Option<u64>,
    pub order: u64,
    pub name: String,
    pub pid: u64,
    pub tid: Option<u64>,
}

/// A slice that has begun and ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Name of the process.
    pub process: String,
    /// Name of the thread; empty on a process' own row.
    pub thread: String,
    pub name: String,
    pub category: String,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// What it is inside of, as an index into the slices.
    pub inside: Option<usize>,
    /// Annotations: texts as they are, numbers in decimals.
    pub notes: BTreeMap<String, String>,
}

impl Slice {
    /// An annotation that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.notes.get(name).map(|value| value.parse().unwrap())
    }
}

/// What a file holds.
#[derive(Debug, Default)]
pub struct Timeline {
    /// In the order in which they are to be shown.
    pub processes: Vec<Track>,
    /// The same.
    pub threads: Vec<Track>,
    /// In the order of the file, which is that of their begins.
    pub slices: Vec<Slice>,
    /// (cause, effect), as indices into the slices.
    pub flows: Vec<(usize, usize)>,
}

impl Timeline {
    /// Slices of executions: neither the waiting inside nor the turns on a process' own row.
    pub fn executions(&self) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(|slice| !["wait", "turn"].contains(&slice.category.as_str()))
    }

    /// The flows between `process`' executions, as `name.instance -> name.instance`, sorted.
    pub fn arrows(&self, process: &str) -> Vec<String> {
        let inside = self.flows.iter().filter(|(cause, _)| self.slices[*cause].process == process);
        let name = |slice: usize| format!("{}.{}", self.slices[slice].name, self.slices[slice].notes["instance"]);
        let mut arrows: Vec<String> =
            inside.map(|(cause, effect)| format!("{} -> {}", name(*cause), name(*effect))).collect();
        arrows.sort();
        arrows
    }

    fn track(&self, uuid: u64) -> (&Track, String) {
        if let Some(process) = self.processes.iter().find(|track| track.uuid == uuid) {
            return (process, String::new());
        }
        let thread = self.threads.iter().find(|track| track.uuid == uuid).expect("an event on a track that is there");
        let process = self.processes.iter().find(|track| Some(track.uuid) == thread.parent).unwrap();
        (process, thread.name.clone())
    }
}

/// Reads a file and checks everything that holds for every timeline.
pub fn read(bytes: &[u8]) -> Timeline {
    let mut timeline = Timeline::default();
    let mut open: HashMap<u64, Vec<usize>> = HashMap::new();
    let (mut causes, mut effects) = (BTreeMap::new(), BTreeMap::new());
    let (mut last_ns, mut first) = (0, true);
    for (field, packet) in fields(bytes) {
        assert_eq!(field, 1, "Trace.packet");
        let (mut at_ns, mut event, mut track, mut sequence, mut flags) = (None, None, None, None, None);
        for (field, value) in fields(packet.bytes()) {
            match field {
                8 => at_ns = Some(value.number()),
                10 => sequence = Some(value.number()),
                11 => event = Some(value.bytes()),
                13 => flags = Some(value.number()),
                60 => track = Some(value.bytes()),
                other => panic!("TracePacket has no {other}"),
            }
        }
        assert_eq!(sequence, Some(1));
        // SEQ_INCREMENTAL_STATE_CLEARED begins the sequence.
        assert_eq!(flags, first.then_some(1));
        match (track, event) {
            (Some(track), None) if first => root(track),
            (Some(track), None) => descriptor(&mut timeline, track),
            (None, Some(event)) => {
                let at_ns = at_ns.expect("an event has a time");
                assert!(at_ns >= last_ns, "{at_ns} after {last_ns}");
                last_ns = at_ns;
                slice(&mut timeline, &mut open, (&mut causes, &mut effects), at_ns, event);
            }
            _ => panic!("a packet is a track or an event"),
        }
        first = false;
    }
    assert!(open.values().all(Vec::is_empty), "slices that never end");
    assert!(causes.keys().eq(effects.keys()), "flows without end: {causes:?} {effects:?}");
    timeline.flows = causes.into_values().zip(effects.into_values()).collect();
    for (cause, effect) in &timeline.flows {
        assert!(cause < effect && timeline.slices[*cause].end_ns <= timeline.slices[*effect].begin_ns);
    }
    for siblings in [&timeline.processes, &timeline.threads] {
        let mut next: HashMap<Option<u64>, u64> = HashMap::new();
        for track in siblings {
            let next = next.entry(track.parent).or_default();
            assert_eq!(track.order, *next, "{track:?}");
            *next += 1;
        }
    }
    timeline
}

/// The root says that processes and threads are in explicit order.
fn root(bytes: &[u8]) {
    let found: Vec<(u64, u64)> = fields(bytes).into_iter().map(|(field, value)| (field, value.number())).collect();
    assert_eq!(found, [(1, 0), (19, 1), (20, 1)]);
}

fn descriptor(timeline: &mut Timeline, bytes: &[u8]) {
    let (mut track, mut process) = (Track::default(), false);
    for (field, value) in fields(bytes) {
        match field {
            1 => track.uuid = value.number(),
            3 => {
                process = true;
                for (field, value) in fields(value.bytes()) {
                    match field {
                        1 => track.pid = value.number(),
                        6 => track.name = value.text(),
                        other => panic!("ProcessDescriptor has no {other}"),
                    }
                }
            }
            4 => {
                for (field, value) in fields(value.bytes()) {
                    match field {
                        1 => track.pid = value.number(),
                        2 => track.tid = Some(value.number()),
                        5 => track.name = value.text(),
                        other => panic!("ThreadDescriptor has no {other}"),
                    }
                }
            }
            5 => track.parent = Some(value.number()),
            12 => track.order = value.number(),
            other => panic!("TrackDescriptor has no {other}"),
        }
    }
    let all: BTreeSet<u64> = timeline.processes.iter().chain(&timeline.threads).map(|track| track.uuid).collect();
    assert!(track.uuid != 0 && !all.contains(&track.uuid), "uuid {} twice", track.uuid);
    assert!(!track.name.is_empty());
    if process {
        assert!(track.parent.is_none() && timeline.processes.iter().all(|other| other.pid != track.pid));
        timeline.processes.push(track);
    } else {
        let parent = timeline.processes.iter().find(|process| Some(process.uuid) == track.parent).expect("a parent");
        assert_eq!(track.pid, parent.pid);
        // A thread with the process' own number would be its main thread.
        assert!(track.tid.is_some_and(|tid| tid != track.pid));
        assert!(timeline.threads.iter().all(|other| other.tid != track.tid));
        timeline.threads.push(track);
    }
}

type Flows<'a> = (&'a mut BTreeMap<u64, usize>, &'a mut BTreeMap<u64, usize>);

fn slice(
    timeline: &mut Timeline,
    open: &mut HashMap<u64, Vec<usize>>,
    (causes, effects): Flows<'_>,
    at_ns: u64,
    bytes: &[u8],
) {
    let (mut kind, mut uuid, mut name, mut categories, mut notes) = (0, 0, None, Vec::new(), BTreeMap::new());
    let index = timeline.slices.len();
    for (field, value) in fields(bytes) {
        match field {
            4 => {
                let (name, value) = annotation(value.bytes());
                assert!(notes.insert(name, value).is_none());
            }
            9 => kind = value.number(),
            11 => uuid = value.number(),
            22 => categories.push(value.text()),
            23 => name = Some(value.text()),
            47 => assert!(causes.insert(value.number(), index).is_none(), "a flow of two causes"),
            48 => {
                assert!(causes.contains_key(&value.number()), "a flow ends before it begins");
                assert!(effects.insert(value.number(), index).is_none(), "a flow of two effects");
            }
            other => panic!("TrackEvent has no {other}"),
        }
    }
    let (process, thread) = timeline.track(uuid);
    let open = open.entry(uuid).or_default();
    match kind {
        1 => {
            let slice = Slice {
                process: process.name.clone(),
                thread,
                name: name.expect("a slice has a name"),
                category: categories.concat(),
                begin_ns: at_ns,
                end_ns: 0,
                inside: open.last().copied(),
                notes,
            };
            assert_eq!(categories.len(), 1);
            // Only waiting is inside of anything.
            assert_eq!(slice.inside.is_some(), slice.category == "wait", "{slice:?}");
            timeline.slices.push(slice);
            open.push(index);
        }
        2 => {
            assert!(name.is_none() && categories.is_empty() && notes.is_empty());
            let ended = open.pop().expect("an end has a begin");
            timeline.slices[ended].end_ns = at_ns;
        }
        other => panic!("an event of type {other}"),
    }
}

fn annotation(bytes: &[u8]) -> (String, String) {
    let (mut name, mut found) = (String::new(), Vec::new());
    for (field, value) in fields(bytes) {
        match field {
            3 => found.push(value.number().to_string()),
            6 => found.push(value.text()),
            10 => name = value.text(),
            other => panic!("DebugAnnotation has no {other}"),
        }
    }
    assert!(!name.is_empty() && found.len() == 1, "one value a name");
    (name, found.concat())
}
