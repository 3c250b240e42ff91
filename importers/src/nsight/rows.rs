//! Rows of a report as its exports give them, kept by the process that they are of.
//!
//! A process is told by the upper bits of a global thread (host, process, thread: 16, 24 and 24 bits); correlations,
//! events and domains count per process. Rows come in any order; [`Rows::finish`], next door, sorts them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use maestro_pattern::CopyDirection;

use super::nccl::{self, Range};
use super::steps;
use crate::Notes;
use crate::capture::{Activity, ActivityKind, Annotation, CallKind, HostCall, LeftOut};
use crate::kineto::{UNTIMED, call_kind, leave_out, merge};

/// Nothing in a step lasts a day; what seems to is damage, and sums of it would overflow.
const LONGEST_NS: i64 = 86_400_000_000_000;

/// Bits of a global thread that are the thread's.
const THREAD_BITS: u32 = 24;

/// A stream, an event and their like are none if they are this.
const NONE: i64 = u32::MAX as i64;

/// What was kept of a report.
#[derive(Default)]
pub(super) struct Rows {
    pub processes: BTreeMap<i64, Process>,
    /// Devices of the machine, by number.
    pub gpus: BTreeMap<u32, Gpu>,
    /// Device of the machine, by process and the number that this gives the device.
    pub gpu_of: HashMap<(i64, u32), u32>,
    /// Rows of graphs that were recorded as a whole.
    pub whole_graphs: usize,
    /// Ranges whose domain was not known yet.
    undecided: Vec<(i64, i64, Range)>,
    /// What the host called, by where its name is, which is kept beside so that it stays there: whether it matters.
    kinds: HashMap<usize, (Option<CallKind>, Arc<str>)>,
}

/// A device of the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Gpu {
    pub name: Option<String>,
    pub sms: Option<u32>,
}

/// The rows of one process.
#[derive(Default)]
pub(super) struct Process {
    pub devices: BTreeMap<u32, Device>,
    /// The device of each context.
    pub contexts: HashMap<i64, u32>,
    pub calls: Vec<HostCall>,
    /// Calls of no known kind, as launches: that they are, if an activity turns out to carry their correlation.
    pub unknown_calls: Vec<HostCall>,
    /// Correlations of launches of graphs.
    pub graph_launches: Vec<u64>,
    pub syncs: Vec<Sync>,
    pub events: Vec<EventRecord>,
    pub ranges: Vec<Annotation>,
    pub nccl: Vec<Range>,
    domains: HashMap<i64, Arc<str>>,
    /// Correlation of a launch and the graph that it launched.
    pub graphs: HashMap<u64, u64>,
    /// Correlations that activities carry, once these are sorted.
    pub carried: HashSet<u64>,
}

impl Process {
    fn append(&mut self, other: Self) {
        let Self {
            devices,
            contexts,
            calls,
            unknown_calls,
            graph_launches,
            syncs,
            events,
            ranges,
            nccl,
            domains,
            graphs,
            carried: _,
        } = other;
        for (ordinal, device) in devices {
            let mine = self.devices.entry(ordinal).or_default();
            mine.activities.extend(device.activities);
            merge(&mut mine.left_out, device.left_out);
        }
        self.contexts.extend(contexts);
        self.calls.extend(calls);
        self.unknown_calls.extend(unknown_calls);
        self.graph_launches.extend(graph_launches);
        self.syncs.extend(syncs);
        self.events.extend(events);
        self.ranges.extend(ranges);
        self.nccl.extend(nccl);
        self.domains.extend(domains);
        self.graphs.extend(graphs);
    }
}

/// What one device did for a process.
#[derive(Default)]
pub(super) struct Device {
    pub activities: Vec<Activity>,
    pub left_out: LeftOut,
}

/// Where and when a device row was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// The process, as a global thread.
    pub process: i64,
    pub device: u32,
    pub context: i64,
    pub stream: i64,
    pub correlation: Option<u64>,
    pub start_ns: i64,
    pub end_ns: i64,
    /// Number of the graph that it was part of.
    pub graph: Option<u64>,
}

/// A wait of a stream or of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sync {
    pub context: i64,
    pub stream: Option<i64>,
    pub correlation: u64,
    pub start_ns: i64,
    pub kind: i64,
    pub event: Option<u64>,
    /// Number of this recording of the event (2025 and later).
    pub recording: Option<u64>,
}

/// A recording of an event on a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventRecord {
    pub stream: Option<i64>,
    pub correlation: u64,
    pub event: u64,
    pub recording: Option<u64>,
}

/// A range or mark as exported.
#[derive(Clone, Debug)]
pub(super) struct Nvtx {
    pub kind: i64,
    pub thread: i64,
    pub domain: i64,
    pub name: Arc<str>,
    pub start_ns: i64,
    pub end_ns: Option<i64>,
    pub payload: Option<Box<[u8]>>,
}

/// `None` for the numbers that stand for nothing.
pub(super) fn some(number: Option<i64>) -> Option<i64> {
    number.filter(|number| (0..NONE).contains(number))
}

/// The process of a global thread.
pub(super) fn process(global: i64) -> i64 {
    global >> THREAD_BITS
}

impl Rows {
    /// Adds what was read beside this.
    pub fn append(&mut self, other: Self) {
        let Self { processes, gpus, gpu_of, whole_graphs, undecided, kinds: _ } = other;
        for (id, process) in processes {
            self.processes.entry(id).or_default().append(process);
        }
        self.gpus.extend(gpus);
        self.gpu_of.extend(gpu_of);
        self.whole_graphs += whole_graphs;
        self.undecided.extend(undecided);
    }

    fn process(&mut self, global: i64) -> &mut Process {
        self.processes.entry(process(global)).or_default()
    }

    /// Takes something that a device did.
    pub fn activity(&mut self, kind: ActivityKind, name: &Arc<str>, place: &Place, notes: &mut Notes) {
        let process = self.process(place.process);
        process.contexts.insert(place.context, place.device);
        let device = process.devices.entry(place.device).or_default();
        let duration_ns = place.end_ns.saturating_sub(place.start_ns);
        if (place.start_ns, place.end_ns) == (0, 0) || !(0..LONGEST_NS).contains(&duration_ns) {
            leave_out(&mut device.left_out, (kind.name(), UNTIMED), 0);
            notes.add("device rows without times, left out", || name.to_string());
            return;
        }
        device.activities.push(Activity {
            kind,
            name: name.clone(),
            start_ns: place.start_ns,
            duration_ns,
            stream: place.stream,
            correlation: place.correlation,
            external_id: None,
            comm: None,
        });
        if let (Some(graph), Some(launch)) = (place.graph, place.correlation) {
            process.graphs.insert(launch, graph);
        }
    }

    /// Takes a call of the runtime or driver.
    pub fn call(&mut self, name: &Arc<str>, thread: i64, (start_ns, end_ns): (i64, i64), correlation: Option<u64>) {
        // Millions of calls have a few hundred names, each once in its table.
        let (kind, _) =
            self.kinds.entry(name.as_ptr().addr()).or_insert_with(|| (call_kind(plain(name)), name.clone()));
        let kind = *kind;
        let correlation = correlation.filter(|id| *id != 0);
        if kind.is_none() && correlation.is_none() {
            return;
        }
        let end_ns = if (0..LONGEST_NS).contains(&end_ns.saturating_sub(start_ns)) { end_ns } else { start_ns };
        let call = HostCall { kind: kind.unwrap_or(CallKind::Launch), thread, start_ns, end_ns, correlation };
        let process = self.process(thread);
        if let (true, Some(correlation)) = (name.contains("GraphLaunch"), correlation) {
            process.graph_launches.push(correlation);
        }
        if kind.is_some() { &mut process.calls } else { &mut process.unknown_calls }.push(call);
    }

    pub fn sync(&mut self, global: i64, sync: Sync) {
        self.process(global).syncs.push(sync);
    }

    pub fn event(&mut self, global: i64, event: EventRecord) {
        self.process(global).events.push(event);
    }

    /// Takes an NVTX row: a domain's name or a range.
    pub fn nvtx(&mut self, row: Nvtx) {
        /// A domain is created.
        const DOMAIN: i64 = 75;
        /// Ranges by push and pop, and by start and end.
        const RANGES: [i64; 2] = [59, 60];
        if row.kind == DOMAIN {
            self.process(row.thread).domains.insert(row.domain, row.name);
            return;
        }
        let Some(end_ns) = row.end_ns.filter(|end_ns| (0..LONGEST_NS).contains(&end_ns.saturating_sub(row.start_ns)))
        else {
            return;
        };
        if !RANGES.contains(&row.kind) || steps::is_operator(&row.name) {
            return;
        }
        let Nvtx { thread, domain, name, start_ns, payload, .. } = row;
        let range = Range { thread, start_ns, end_ns, name, payload };
        self.undecided.push((process(thread), domain, range));
    }

    /// Sorts ranges by the domains that they are of, now that all of these are known.
    pub fn settle_ranges(&mut self) {
        for (process, domain, range) in std::mem::take(&mut self.undecided) {
            let process = self.processes.entry(process).or_default();
            match process.domains.get(&domain).map(|name| &**name) {
                Some(nccl::DOMAIN) => process.nccl.push(range),
                // A trimmed export may lack the name.
                None if domain != 0 && range.name.starts_with("nccl") => process.nccl.push(range),
                Some(library) if domain != 0 && steps::is_library(library) => {}
                _ => {
                    let Range { thread, start_ns, end_ns, name, payload: _ } = range;
                    process.ranges.push(Annotation { name, thread, start_ns, end_ns });
                }
            }
        }
    }
}

/// `cudaLaunchKernel_v7000` -> `cudaLaunchKernel`.
fn plain(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((head, version)) if !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()) => head,
        _ => name,
    }
}

/// Kind and name of a copy, by Nsight's numbers for its direction and the memories at its ends.
pub(super) fn copy(operation: i64, from: Option<i64>, to: Option<i64>, bytes: u64) -> (ActivityKind, String) {
    let (short, direction) = match operation {
        1 => ("HtoD", Some(CopyDirection::H2d)),
        2 => ("DtoH", Some(CopyDirection::D2h)),
        8 => ("DtoD", Some(CopyDirection::D2d)),
        3 => ("HtoA", None),
        4 => ("AtoH", None),
        5 => ("AtoA", None),
        6 => ("AtoD", None),
        7 => ("DtoA", None),
        9 => ("HtoH", None),
        10 => ("PtoP", None),
        11..=13 => ("Unified", None),
        _ => ("Unknown", None),
    };
    (ActivityKind::Copy { direction, bytes }, format!("Memcpy {short} ({} -> {})", memory(from), memory(to)))
}

/// Kind and name of a fill.
pub(super) fn set(kind: Option<i64>, bytes: u64) -> (ActivityKind, String) {
    (ActivityKind::Set { bytes }, format!("Memset ({})", memory(kind)))
}

fn memory(kind: Option<i64>) -> &'static str {
    match kind {
        Some(0) => "Pageable",
        Some(1) => "Pinned",
        Some(2) => "Device",
        Some(3) => "Array",
        Some(4) => "Managed",
        Some(5) => "Device Static",
        Some(6) => "Managed Static",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_no_part_of_a_calls_name() {
        for (name, expected) in [
            ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
            ("cudaStreamGetCaptureInfo_v3_v12030", "cudaStreamGetCaptureInfo_v3"),
            ("cuLaunchKernelEx", "cuLaunchKernelEx"),
            ("cuda_value", "cuda_value"),
        ] {
            assert_eq!(plain(name), expected);
        }
    }

    #[test]
    fn a_global_thread_tells_its_process() {
        // Host 1, process 145.
        assert_eq!(process(281_477_409_406_976) & 0xff_ffff, 145);
        assert_eq!(process(281_494_824_158_367), process(281_494_824_157_184));
        assert_ne!(process(281_494_824_158_367), process(281_494_840_934_400));
    }

    #[test]
    fn copies_are_named_as_other_profilers_name_them() {
        let (kind, name) = copy(1, Some(1), Some(2), 7);
        assert_eq!(name, "Memcpy HtoD (Pinned -> Device)");
        assert_eq!(kind, ActivityKind::Copy { direction: Some(CopyDirection::H2d), bytes: 7 });
        assert_eq!(copy(10, None, Some(99), 7).0, ActivityKind::Copy { direction: None, bytes: 7 });
        assert_eq!(set(Some(2), 4).1, "Memset (Device)");
    }
}
