//! From rows to timelines, one a process and device that did something; and what cannot be imported, refused.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use super::nccl::{self, Launch, Told};
use super::rows::{Process, Rows, Sync};
use super::steps;
use crate::capture::{Activity, ActivityKind, CallKind, CommRecord, HostCall, LeftOut, StreamWait, Timeline};
use crate::kineto::{leave_out, merge};
use crate::{Error, Notes, Result, libraries, marks};

/// Why the rows of strays are left out.
const ELSEWHERE: &str = "of a process or device that does not communicate";

/// Bits of a process number in what identifies a process.
const PROCESS_BITS: i64 = 0xff_ffff;

impl Rows {
    /// The timelines of `file`, in the order of the machine's devices.
    ///
    /// # Errors
    /// Device rows were lost; graphs were recorded as a whole.
    pub(super) fn finish(mut self, file: &Path, notes: &mut Notes) -> Result<Vec<Timeline>> {
        self.settle_ranges();
        self.processes.values_mut().for_each(Process::sort);
        let whole = self.processes.values().map(Process::whole_graphs).sum::<usize>().max(self.whole_graphs);
        if whole > 0 {
            return Err(Error::GraphsAsWhole { file: file.to_owned(), launches: whole });
        }
        let mut timelines = Vec::new();
        let mut sizeless = 0;
        for (id, mut process) in std::mem::take(&mut self.processes) {
            let told = process.told(notes);
            if let Some(error) = process.lost(file, id & PROCESS_BITS, &told) {
                return Err(error);
            }
            sizeless += told.sizeless;
            timelines.extend(process.timelines(told, notes).into_iter().map(|mut timeline| {
                let gpu = self.gpu_of.get(&(id & PROCESS_BITS, timeline.device)).copied().unwrap_or(timeline.device);
                if let Some(gpu) = self.gpus.get(&gpu) {
                    timeline.device_name.clone_from(&gpu.name);
                    timeline.device_sms = gpu.sms;
                }
                timeline.file = file.to_owned();
                timeline.process = Some(id & PROCESS_BITS);
                (gpu, timeline)
            }));
        }
        if timelines.is_empty() {
            let seen = "no process did anything on a GPU".to_owned();
            return Err(Error::DeviceRowsLost { file: file.to_owned(), seen, activities: 0 });
        }
        notes.add_many("communication calls without a payload: sizes unknown", sizeless as u64, || {
            "export with `nsys export --type json`, or `--type sqlite --include-blobs=true` of Nsight Systems 2024 or \
             later"
                .to_owned()
        });
        set_strays_apart(&mut timelines, notes);
        // Ranks that nothing else tells are given in this order.
        timelines.sort_by_key(|(gpu, timeline)| (*gpu, timeline.process));
        Ok(timelines.into_iter().map(|(_, timeline)| timeline).collect())
    }
}

impl Process {
    fn sort(&mut self) {
        self.carried = self.devices.values().flat_map(|d| &d.activities).filter_map(|a| a.correlation).collect();
        let carried = &self.carried;
        let launched = |call: &HostCall| call.correlation.is_some_and(|id| carried.contains(&id));
        self.calls.extend(self.unknown_calls.drain(..).filter(launched));
        self.calls.sort_by_key(|call| call.start_ns);
        self.syncs.sort_by_key(|sync| sync.correlation);
        self.events.sort_by_key(|event| event.correlation);
        self.ranges.sort_by_key(|range| range.start_ns);
        for device in self.devices.values_mut() {
            device.activities.sort_by_key(|activity| activity.start_ns);
        }
    }

    fn activities(&self) -> impl Iterator<Item = &Activity> {
        self.devices.values().flat_map(|device| &device.activities)
    }

    /// Launches of graphs without an activity, if they are most: single ones are at an edge of the recording.
    fn whole_graphs(&self) -> usize {
        let carried = &self.carried;
        // With next to no activities they were lost, graphs or not.
        if carried.is_empty() {
            return 0;
        }
        let whole = self.graph_launches.iter().filter(|id| !carried.contains(id)).count();
        if 2 * whole > self.graph_launches.len() { whole } else { 0 }
    }

    /// What NCCL's ranges tell.
    fn told(&mut self, notes: &mut Notes) -> Told {
        let kernels: HashMap<u64, &Activity> = self
            .activities()
            .filter(|activity| is_communication(activity))
            .filter_map(|activity| Some((activity.correlation?, activity)))
            .collect();
        let mut launches: HashMap<i64, Vec<Launch>> = HashMap::new();
        for call in self.calls.iter().filter(|call| call.kind == CallKind::Launch) {
            let Some(correlation) = call.correlation else { continue };
            let Some(kernel) = kernels.get(&correlation) else { continue };
            let launch = Launch { at_ns: call.start_ns, correlation, kernel: kernel.name.clone() };
            launches.entry(call.thread).or_default().push(launch);
        }
        nccl::read(std::mem::take(&mut self.nccl), &launches, notes)
    }

    /// Why this process cannot have done no more than its device rows say.
    fn lost(&self, file: &Path, process: i64, told: &Told) -> Option<Error> {
        /// Fewer of anything may be an edge of the recording.
        const FEW: usize = 8;
        let carried = &self.carried;
        let launches: HashSet<u64> =
            self.calls.iter().filter(|c| c.kind == CallKind::Launch).filter_map(|call| call.correlation).collect();
        let seen = launches.iter().filter(|id| carried.contains(id)).count();
        let activities = self.activities().count();
        let communicates = self.activities().any(is_communication);
        let waits = self.syncs.len() + self.events.len();
        let seen = if launches.len() >= FEW && 2 * seen < launches.len() {
            format!("{} launches were recorded", launches.len())
        } else if told.expected >= FEW && !communicates {
            format!("{} communication calls were recorded, none with a kernel", told.expected)
        } else if waits >= FEW * FEW && activities < waits / FEW {
            format!("{waits} events and waits were recorded")
        } else {
            return None;
        };
        let seen = format!("of process {process} {seen}");
        Some(Error::DeviceRowsLost { file: file.to_owned(), seen, activities })
    }

    /// One timeline a device; host rows go to the device that did what they asked for, others to each.
    fn timelines(mut self, told: Told, notes: &mut Notes) -> Vec<Timeline> {
        self.devices.retain(|_, device| !device.activities.is_empty());
        let waits = self.waits(notes);
        let marks = marks::take(&mut self.ranges, steps::marks);
        let mut owners: HashMap<u64, u32> = HashMap::new();
        let several = self.devices.len() > 1;
        if several {
            for (ordinal, device) in &self.devices {
                owners.extend(device.activities.iter().filter_map(|a| Some((a.correlation?, *ordinal))));
            }
        }
        let recorded: BTreeSet<u64> = told.records.iter().filter_map(|record| record.external_id).collect();
        let mut timelines = Vec::new();
        for (ordinal, mut device) in std::mem::take(&mut self.devices) {
            for activity in device.activities.iter_mut().filter(|activity| is_communication(activity)) {
                activity.external_id = activity.correlation.filter(|id| recorded.contains(id));
            }
            let mine = |id: Option<u64>| id.and_then(|id| owners.get(&id)).is_none_or(|owner| *owner == ordinal);
            let graphs = device.activities.iter().filter_map(|activity| {
                let launch = activity.correlation?;
                Some((launch, *self.graphs.get(&launch)?))
            });
            timelines.push(Timeline {
                device: ordinal,
                graphs: graphs.collect(),
                calls: share(&mut self.calls, several, |call: &HostCall| mine(call.correlation)),
                records: told.records.iter().filter(|r: &&CommRecord| mine(r.external_id)).cloned().collect(),
                annotations: if several { self.ranges.clone() } else { std::mem::take(&mut self.ranges) },
                steps: marks.clone(),
                stream_waits: waits.get(&ordinal).cloned().unwrap_or_default(),
                joined: told.joined.clone(),
                activities: device.activities,
                left_out: device.left_out,
                ..Timeline::default()
            });
        }
        for timeline in &mut timelines {
            timeline.records.sort_by_key(|record| record.start_ns);
        }
        timelines
    }

    /// Waits of streams, by device. The row's own kind is not believed where its call is there: Nsight Systems 2023.4
    /// gives waits of streams the number of waits for streams.
    fn waits(&self, notes: &mut Notes) -> BTreeMap<u32, Vec<StreamWait>> {
        /// A wait of a stream for an event.
        const STREAM_WAIT: i64 = 2;
        let kinds: HashMap<u64, CallKind> =
            self.calls.iter().filter_map(|call| Some((call.correlation?, call.kind))).collect();
        // The ends of an event's recordings, by event, in the order of calls.
        let mut records: HashMap<u64, Vec<usize>> = HashMap::new();
        for (place, event) in self.events.iter().enumerate() {
            records.entry(event.event).or_default().push(place);
        }
        let recordings: HashMap<u64, usize> = self
            .events
            .iter()
            .enumerate()
            .filter_map(|(place, event)| Some((event.recording.filter(|id| *id > 0)?, place)))
            .collect();
        let recorded = |sync: &Sync| -> Option<usize> {
            if let Some(place) = sync.recording.and_then(|id| recordings.get(&id)) {
                return Some(*place);
            }
            let mine = records.get(&sync.event?)?;
            let before = mine.partition_point(|place| self.events[*place].correlation < sync.correlation);
            before.checked_sub(1).map(|at| mine[at])
        };
        let only = self.devices.keys().next().copied().filter(|_| self.devices.len() == 1);
        let mut waits: BTreeMap<u32, Vec<StreamWait>> = BTreeMap::new();
        for sync in &self.syncs {
            let waits_on_device = match kinds.get(&sync.correlation) {
                Some(kind) => *kind == CallKind::StreamWait,
                None => sync.kind == STREAM_WAIT && kinds.is_empty(),
            };
            let (true, Some(stream)) = (waits_on_device, sync.stream) else { continue };
            let Some(device) = only.or_else(|| self.contexts.get(&sync.context).copied()) else { continue };
            let record = recorded(sync).map(|place| self.events[place]);
            if record.is_none() {
                notes.add("stream waits for an event whose record was not seen", || {
                    format!("correlation {}", sync.correlation)
                });
            }
            waits.entry(device).or_default().push(StreamWait {
                stream,
                at_ns: sync.start_ns,
                on_stream: record.and_then(|record| record.stream),
                correlation: sync.correlation,
                record_correlation: record.map(|record| record.correlation),
                event: sync.event,
            });
        }
        waits
    }
}

/// Takes out what is no rank: next to nothing, on a device or of a process that does not communicate where others do. The
/// largest timeline counts it among what was left out.
fn set_strays_apart(timelines: &mut Vec<(u32, Timeline)>, notes: &mut Notes) {
    /// Of the largest's activities.
    const SHARE: usize = 10;
    let communicates = |t: &Timeline| !t.records.is_empty() || t.activities.iter().any(is_communication);
    let most = timelines.iter().map(|(_, timeline)| timeline.activities.len()).max().unwrap_or(0);
    if !timelines.iter().any(|(_, timeline)| communicates(timeline)) {
        return;
    }
    let mut stray = LeftOut::new();
    timelines.retain(|(_, timeline)| {
        let kept = communicates(timeline) || SHARE * timeline.activities.len() >= most;
        if !kept {
            for activity in &timeline.activities {
                leave_out(&mut stray, (activity.kind.name(), ELSEWHERE), activity.duration_ns);
                notes.add("activities of a process or device that is no rank, left out", || activity.name.to_string());
            }
            merge(&mut stray, timeline.left_out.clone());
        }
        kept
    });
    if let Some((_, largest)) = timelines.iter_mut().max_by_key(|(_, timeline)| timeline.activities.len()) {
        merge(&mut largest.left_out, stray);
    }
}

/// Whether something is a kernel of a communication library that has NVTX ranges.
fn is_communication(activity: &Activity) -> bool {
    matches!(activity.kind, ActivityKind::Kernel { .. }) && libraries::is_nccl(&activity.name)
}

/// The rows of one device: all, or copies of its own if there are `several` devices.
fn share<T: Clone>(rows: &mut Vec<T>, several: bool, its_own: impl Fn(&T) -> bool) -> Vec<T> {
    if several { rows.iter().filter(|row| its_own(row)).cloned().collect() } else { std::mem::take(rows) }
}
