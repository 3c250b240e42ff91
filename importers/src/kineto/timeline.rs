//! The timelines that the rows of a file make once all are there.

use std::collections::HashMap;
use std::path::Path;

use super::header::Header;
use super::rows::{DeviceRows, Rows};
use crate::capture::{self, CallKind, Timeline};
use crate::{Error, Notes, Result};

/// Which device did what a host row asked for, by the ids that link them.
#[derive(Default)]
struct Owners {
    by_correlation: HashMap<u64, u32>,
    by_external_id: HashMap<u64, u32>,
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
        // A process of a job has one rank; what it left on other devices (a context, a stray copy) is none.
        let communicates =
            |rows: &DeviceRows| rows.activities.iter().any(|a| a.comm.is_some() || capture::is_communication(&a.name));
        if header.rank.is_some() && devices.get(&busiest).is_some_and(communicates) {
            devices.retain(|device, rows| {
                let kept = *device == busiest || communicates(rows);
                if !kept {
                    for activity in &rows.activities {
                        notes.add("activities on a device where this rank does not communicate, left out", || {
                            format!("{} on device {device}", activity.name)
                        });
                    }
                }
                kept
            });
        }
        if devices.len() > 1 {
            notes.add("files of several devices, a timeline each", || {
                let ordinals: Vec<String> = devices.keys().map(u32::to_string).collect();
                format!("{}: devices {}", file.display(), ordinals.join(", "))
            });
        }

        let mut owners = Owners::default();
        for (&device, rows) in &devices {
            for activity in &rows.activities {
                owners.by_correlation.extend(activity.correlation.map(|id| (id, device)));
                owners.by_external_id.extend(activity.external_id.map(|id| (id, device)));
            }
        }
        let launched = |correlation: Option<u64>| correlation.is_some_and(|id| owners.by_correlation.contains_key(&id));
        self.calls.extend(self.unknown_calls.drain(..).filter(|call| launched(call.correlation)));

        let only = devices.len() == 1;
        let timelines = devices.into_iter().map(|(device, rows)| {
            let mut timeline = self.timeline(device, rows, &owners, only);
            timeline.file = file.to_owned();
            timeline.rank = header.rank.filter(|_| device == busiest);
            timeline.world_size = header.world_size;
            timeline.groups.clone_from(&header.groups);
            if let Some(properties) = header.devices.iter().find(|properties| properties.id == device) {
                timeline.device_name.clone_from(&properties.name);
                timeline.device_sms = properties.sms;
            }
            settle(&mut timeline, header.base_ns);
            timeline
        });
        Ok(timelines.collect())
    }

    /// What one device did, with all host rows but those that are known to belong to another. The `only` device gets
    /// the rows themselves: the copies would be half of the memory that a file takes.
    fn timeline(&mut self, device: u32, rows: DeviceRows, owners: &Owners, only: bool) -> Timeline {
        let mine = |owners: &HashMap<u64, u32>, id: Option<u64>| {
            id.and_then(|id| owners.get(&id)).is_none_or(|owner| *owner == device)
        };
        Timeline {
            device,
            activities: rows.activities,
            stream_waits: rows.waits,
            calls: share(&mut self.calls, only, |call| mine(&owners.by_correlation, call.correlation)),
            records: share(&mut self.records, only, |record| mine(&owners.by_external_id, record.external_id)),
            annotations: share(&mut self.annotations, only, |_| true),
            steps: share(&mut self.steps, only, |_| true),
            products: if only { std::mem::take(&mut self.products) } else { self.products.clone() },
            ..Timeline::default()
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
    // These have no time of their own; correlations count up with the calls.
    timeline.stream_waits.sort_by_key(|wait| wait.correlation);
}
