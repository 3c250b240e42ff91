//! The timelines that the rows of a file make once all are there: one a device, each with the host rows that are its.
//!
//! A file is usually one process with one device. It may be one process that drives several, and then ids tell which
//! host row belongs to which device; or several processes that a tool merged, and then ids repeat, and devices and
//! processes are paired first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use super::header::Header;
use super::overrun;
use super::rows::{DeviceRows, Rows};
use crate::capture::{CallKind, CommRecord, HostCall, LeftOut, Timeline};
use crate::{Error, Notes, Result, libraries};

/// A device of a process.
type Device = (i64, u32);

/// Which device did what a host row asked for, by the ids that link them.
#[derive(Default)]
struct Owners {
    by_correlation: HashMap<u64, Device>,
    by_external_id: HashMap<u64, Device>,
    /// The host process of each device, where there are several.
    processes: BTreeMap<Device, i64>,
}

impl Rows {
    /// The timelines of `file`, one a device that did something, times absolute and in order.
    ///
    /// # Errors
    /// No device did anything.
    pub(super) fn finish(mut self, file: &Path, header: &Header, notes: &mut Notes) -> Result<Vec<Timeline>> {
        let mut devices = std::mem::take(&mut self.devices);
        devices.retain(|_, rows| !rows.activities.is_empty());
        // The rank's own device is the busiest; on another it may hold no more than a stray context.
        let Some((&busiest, _)) = devices.iter().max_by_key(|(_, rows)| rows.activities.len()) else {
            let launches = self.calls.iter().filter(|call| call.kind == CallKind::Launch).count();
            return Err(Error::NoActivities { file: file.to_owned(), launches });
        };
        devices.values_mut().for_each(|rows| rows.leave_out_cut_starts(notes));
        self.name_threads();
        self.settle_records(notes);
        let activities = devices.values_mut().flat_map(|rows| rows.activities.iter_mut());
        self.groups.settle(header, activities, &mut self.records, notes);
        // A process of a job has one rank; what it left on other devices (a context, a stray copy) is none.
        let communicates = |rows: &DeviceRows| {
            rows.activities.iter().any(|a| a.comm.is_some() || libraries::is_communication(&a.name))
        };
        if header.rank.is_some() && devices.get(&busiest).is_some_and(communicates) {
            let mut stray = LeftOut::new();
            devices.retain(|device, rows| {
                let kept = *device == busiest || communicates(rows);
                if !kept {
                    for activity in &rows.activities {
                        leave_out(&mut stray, (activity.kind.name(), ELSEWHERE), activity.duration_ns);
                        notes.add("activities on a device where this rank does not communicate, left out", || {
                            format!("{} on device {}", activity.name, device.1)
                        });
                    }
                }
                kept
            });
            if let Some(rows) = devices.get_mut(&busiest) {
                merge(&mut rows.left_out, stray);
            }
        }
        if devices.len() > 1 {
            notes.add("files of several devices, a timeline each", || {
                let ordinals: Vec<String> = devices.keys().map(|(_, ordinal)| ordinal.to_string()).collect();
                format!("{}: devices {}", file.display(), ordinals.join(", "))
            });
        }
        // Devices that all communicate are ranks of their own, and the header tells one at most.
        let several = devices.values().filter(|rows| communicates(rows)).count() > 1;

        let mut owners = Owners::default();
        for (&device, rows) in &devices {
            for activity in &rows.activities {
                owners.by_correlation.extend(activity.correlation.map(|id| (id, device)));
                owners.by_external_id.extend(activity.external_id.map(|id| (id, device)));
            }
        }
        let launched = |correlation: Option<u64>| correlation.is_some_and(|id| owners.by_correlation.contains_key(&id));
        self.calls.extend(self.unknown_calls.drain(..).filter(|call| launched(call.correlation)));
        owners.processes = self.processes(&devices);

        let only = devices.len() == 1;
        let mut timelines = Vec::new();
        for (device, rows) in devices {
            let mut timeline = self.timeline(device, rows, &owners, only);
            timeline.file = file.to_owned();
            timeline.rank = header.rank.filter(|_| device == busiest && !several);
            timeline.world_size = header.world_size;
            timeline.groups.clone_from(&header.groups);
            if let Some(properties) = header.devices.iter().find(|properties| properties.id == device.1) {
                timeline.device_name.clone_from(&properties.name);
                timeline.device_sms = properties.sms;
            }
            settle(&mut timeline, header.base_ns);
            overrun::cut(&mut timeline.activities, notes);
            self.operators.link(&mut timeline, header.base_ns);
            timelines.push(timeline);
        }
        Ok(timelines)
    }

    /// Gives threads the numbers that they keep.
    fn name_threads(&mut self) {
        let now = self.threads.settle();
        let calls = self.calls.iter_mut().chain(&mut self.unknown_calls).map(|call| &mut call.thread);
        let records = self.records.iter_mut().map(|record| &mut record.thread);
        let hints = self.hints.iter_mut().map(|hint| &mut hint.thread);
        let annotations = self.annotations.iter_mut().map(|annotation| &mut annotation.thread);
        let operators = self.operators.threads();
        let steps = self.steps.iter_mut().map(|step| &mut step.thread);
        for thread in calls.chain(records).chain(hints).chain(annotations).chain(operators).chain(steps) {
            *thread = now.get(thread).copied().unwrap_or(*thread);
        }
    }

    /// Which process drove each device, if there are several of both: the one with most of the device's correlations
    /// among its launches; of equals (ids repeat) the first that no other device has.
    fn processes(&self, devices: &BTreeMap<Device, DeviceRows>) -> BTreeMap<Device, i64> {
        let mut launches: BTreeMap<i64, BTreeSet<u64>> = BTreeMap::new();
        for call in self.calls.iter().filter(|call| call.kind == CallKind::Launch) {
            if let (Some(process), Some(correlation)) = (self.threads.process(call.thread), call.correlation) {
                launches.entry(process).or_default().insert(correlation);
            }
        }
        if launches.len() < 2 || devices.len() < 2 {
            return BTreeMap::new();
        }
        let mut given: BTreeMap<Device, i64> = BTreeMap::new();
        for (&device, rows) in devices {
            let matching = |known: &BTreeSet<u64>| {
                rows.activities.iter().filter_map(|a| a.correlation).filter(|id| known.contains(id)).count()
            };
            let best = launches.iter().max_by_key(|(process, known)| {
                let free = !given.values().any(|taken| taken == *process);
                (matching(known), free, std::cmp::Reverse(**process))
            });
            if let Some((process, _)) = best {
                given.insert(device, *process);
            }
        }
        let distinct: BTreeSet<i64> = given.values().copied().collect();
        // One process that drives several devices needs ids only; its helpers launch little.
        if distinct.len() < 2 { BTreeMap::new() } else { given }
    }

    /// What one device did, with all host rows but those that are known to belong to another. The `only` device gets
    /// the rows themselves: the copies would be half of the memory that a file takes.
    fn timeline(&mut self, device: Device, rows: DeviceRows, owners: &Owners, only: bool) -> Timeline {
        let process = owners.processes.get(&device).copied();
        let threads = &self.threads;
        let here = |thread: i64| process.is_none_or(|process| threads.process(thread) == Some(process));
        let mine = |owners: &HashMap<u64, Device>, id: Option<u64>| {
            process.is_some() || id.and_then(|id| owners.get(&id)).is_none_or(|owner| *owner == device)
        };
        let its = |call: &HostCall| mine(&owners.by_correlation, call.correlation) && here(call.thread);
        let calls = share(&mut self.calls, only, its);
        let its = |record: &CommRecord| mine(&owners.by_external_id, record.external_id) && here(record.thread);
        let records = share(&mut self.records, only, its);
        Timeline {
            process: process.or_else(|| self.threads.process(calls.first()?.thread)),
            device: device.1,
            activities: rows.activities,
            stream_waits: rows.waits,
            graphs: rows.graphs,
            left_out: rows.left_out,
            calls,
            records,
            annotations: share(&mut self.annotations, only, |annotation| here(annotation.thread)),
            steps: share(&mut self.steps, only, |step| here(step.thread)),
            ..Timeline::default()
        }
    }
}

/// Why rows without times are left out.
pub(crate) const UNTIMED: &str = "recorded without times";

/// Why rows of other devices are.
const ELSEWHERE: &str = "on a device where the rank does not communicate";

/// Counts an activity that is left out.
pub(crate) fn leave_out(left_out: &mut LeftOut, what: (&'static str, &'static str), duration_ns: i64) {
    let (count, ns) = left_out.entry(what).or_default();
    *count += 1;
    *ns += duration_ns;
}

/// Adds what else was left out.
pub(crate) fn merge(left_out: &mut LeftOut, more: LeftOut) {
    for (what, (count, ns)) in more {
        let mine = left_out.entry(what).or_default();
        *mine = (mine.0 + count, mine.1 + ns);
    }
}

impl DeviceRows {
    /// Leaves out what is written to start at the base itself when all else came long after: that start is none.
    fn leave_out_cut_starts(&mut self, notes: &mut Notes) {
        /// Bases are months apart, so that nothing of a recording lies this close behind one by chance.
        const LONG_NS: i64 = 60_000_000_000;
        let others = self.activities.iter().map(|activity| activity.start_ns).filter(|start| *start != 0).min();
        if others.is_none_or(|first| first < LONG_NS) {
            return;
        }
        for activity in self.activities.extract_if(.., |activity| activity.start_ns == 0) {
            leave_out(&mut self.left_out, (activity.kind.name(), UNTIMED), activity.duration_ns);
            notes.add("device rows without times, left out", || activity.name.to_string());
        }
    }
}

/// The rows of one device: all, if it is the `only` one, else copies of those that are its own.
fn share<T: Clone>(rows: &mut Vec<T>, only: bool, its_own: impl Fn(&T) -> bool) -> Vec<T> {
    if only { std::mem::take(rows) } else { rows.iter().filter(|row| its_own(row)).cloned().collect() }
}

/// Makes times absolute and sorts by them: files are not in the order of time.
fn settle(timeline: &mut Timeline, base_ns: i64) {
    for activity in &mut timeline.activities {
        activity.start_ns += base_ns;
    }
    for call in &mut timeline.calls {
        call.start_ns += base_ns;
        call.end_ns += base_ns;
    }
    for wait in &mut timeline.stream_waits {
        wait.at_ns += base_ns;
    }
    for record in &mut timeline.records {
        record.start_ns += base_ns;
        record.end_ns += base_ns;
    }
    for annotation in &mut timeline.annotations {
        annotation.start_ns += base_ns;
        annotation.end_ns += base_ns;
    }
    for step in &mut timeline.steps {
        step.start_ns += base_ns;
        step.end_ns += base_ns;
    }
    timeline.activities.sort_by_key(|activity| activity.start_ns);
    timeline.calls.sort_by_key(|call| call.start_ns);
    timeline.records.sort_by_key(|record| record.start_ns);
    timeline.annotations.sort_by_key(|annotation| annotation.start_ns);
    timeline.steps.sort_by_key(|step| step.start_ns);
    // Their calls are what counts, and correlations count up with those.
    timeline.stream_waits.sort_by_key(|wait| wait.correlation);
}
