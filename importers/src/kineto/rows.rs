//! The rows of a file as they come: which are kept, and what of them.
//!
//! Times stay relative to the header's base, because the header may come last; [`Rows::finish`], next door, adds it.

use std::collections::{BTreeMap, HashMap};

use maestro_pattern::CopyDirection;

use super::comm;
use super::event::{Args, Category, Event, List, bare, integer, number_in};
use super::groups::Groups;
use super::names::Names;
use super::records::{Hint, OPERATORS, RECORD, is_library};
use super::threads::Threads;
use super::time::{is_nanoseconds, parse, parse_ns, parse_us};
use super::timeline::{UNTIMED, leave_out, merge};
use super::work::{self, Operators};
use crate::Notes;
use crate::capture::{
    Activity, ActivityKind, Annotation, CallKind, CommRecord, HostCall, LeftOut, StepMark, StreamWait,
};

/// Host ranges of this name and a number mark steps.
const STEP_PREFIX: &str = "ProfilerStep#";

/// What was kept of a file so far.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) names: Names,
    pub(super) groups: Groups,
    /// By process and ordinal: files that hold several ranks give each a process of its own.
    pub(super) devices: BTreeMap<(i64, u32), DeviceRows>,
    pub(super) threads: Threads,
    pub(super) calls: Vec<HostCall>,
    /// Calls of no known kind, as launches: that they are, if an activity turns out to carry their correlation.
    pub(super) unknown_calls: Vec<HostCall>,
    pub(super) records: Vec<CommRecord>,
    pub(super) hints: Vec<Hint>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) steps: Vec<StepMark>,
    pub(super) operators: Operators,
}

/// What one device did.
#[derive(Default)]
pub(super) struct DeviceRows {
    pub(super) activities: Vec<Activity>,
    pub(super) graphs: HashMap<u64, u64>,
    pub(super) waits: Vec<StreamWait>,
    pub(super) left_out: LeftOut,
}

/// Start and duration of a row, relative to the base.
pub(super) struct Time {
    pub(super) start_ns: i64,
    pub(super) duration_ns: i64,
}

impl Time {
    pub(super) fn end_ns(&self) -> i64 {
        self.start_ns + self.duration_ns
    }
}

impl Rows {
    /// Exchanges the names seen so far: readers keep theirs from one part of a file to the next.
    pub(super) fn swap_names(&mut self, names: &mut Names) {
        std::mem::swap(&mut self.names, names);
    }

    /// Adds what comes behind these in the file.
    pub(super) fn append(&mut self, later: Rows) {
        let Rows {
            names: _,
            groups,
            devices,
            threads,
            calls,
            unknown_calls,
            records,
            hints,
            annotations,
            steps,
            operators,
        } = later;
        self.groups.append(groups);
        self.threads.append(threads);
        for (device, rows) in devices {
            let mine = self.devices.entry(device).or_default();
            mine.activities.extend(rows.activities);
            mine.graphs.extend(rows.graphs);
            mine.waits.extend(rows.waits);
            merge(&mut mine.left_out, rows.left_out);
        }
        self.calls.extend(calls);
        self.unknown_calls.extend(unknown_calls);
        self.records.extend(records);
        self.hints.extend(hints);
        self.annotations.extend(annotations);
        self.steps.extend(steps);
        self.operators.append(operators);
    }

    /// Takes one row, if it is of a kind that matters.
    pub(super) fn take(&mut self, event: &Event<'_>, notes: &mut Notes) {
        match event.category() {
            Some(category @ (Category::Kernel | Category::Copy | Category::Set)) => {
                self.activity(category, event, notes);
            }
            Some(Category::Sync) => self.sync(event, notes),
            Some(Category::Call) => self.call(event, notes),
            Some(Category::Operator) => self.operator(event, notes),
            Some(Category::Annotation) => self.annotation(event, notes),
            None => {}
        }
    }

    fn activity(&mut self, category: Category, event: &Event<'_>, notes: &mut Notes) {
        let name = event.name();
        let args = event.args(notes);
        let kind = match category {
            Category::Copy => {
                ActivityKind::Copy { direction: direction(&name), bytes: integer(args.bytes).unwrap_or(0) }
            }
            Category::Set => ActivityKind::Set { bytes: integer(args.bytes).unwrap_or(0) },
            _ => ActivityKind::Kernel { blocks: blocks(&args) },
        };
        let Some(time) = time(event, notes) else {
            leave_out(&mut self.device(event, &args).left_out, (kind.name(), UNTIMED), 0);
            return;
        };
        if time.start_ns == 0 && time.duration_ns == 0 {
            // The profiler writes so what it lost the times of.
            leave_out(&mut self.device(event, &args).left_out, (kind.name(), UNTIMED), 0);
            notes.add("device rows without times, left out", || name.into_owned());
            return;
        }
        // AMD's tracer gives 0 to what it cannot link.
        let correlation = integer(args.correlation).filter(|id| *id != 0);
        if let (Some(launch), Some(graph @ 1..)) = (correlation, integer::<u64>(args.graph)) {
            self.device(event, &args).graphs.insert(launch, graph);
        }
        let comm = comm::facts(&args, &mut self.names, notes).map(Box::new);
        let activity = Activity {
            kind,
            name: self.names.share(&name),
            start_ns: time.start_ns,
            duration_ns: time.duration_ns,
            stream: integer(args.stream).or_else(|| number_in(event.tid)).unwrap_or(0),
            correlation,
            // Until 2023 a row linked to no operator carried its correlation here; the two count separately. Rows that
            // describe their communication are younger, and may carry both by chance.
            external_id: integer(args.external_id).filter(|id| correlation != Some(*id) || comm.is_some()),
            comm,
        };
        self.device(event, &args).activities.push(activity);
    }

    fn sync(&mut self, event: &Event<'_>, notes: &mut Notes) {
        if event.name() != "Stream Wait Event" {
            // The others are waits of the host, which its calls show.
            return;
        }
        let args = event.args(notes);
        let (Some(stream), Some(correlation)) = (integer(args.stream), integer(args.correlation)) else {
            notes.add("stream waits without stream or correlation, left out", || bare(event.ts).to_owned());
            return;
        };
        // Minus one stands for what was not seen, and so parses as no unsigned number.
        let Some(time) = time(event, notes) else { return };
        let wait = StreamWait {
            stream,
            at_ns: time.start_ns,
            on_stream: integer(args.wait_on_stream).filter(|stream| *stream >= 0),
            correlation,
            record_correlation: integer(args.wait_on_cuda_event_record_corr_id),
            event: integer(args.wait_on_cuda_event_id),
        };
        if wait.record_correlation.is_none() {
            notes.add("stream waits for an event whose record was not seen", || format!("correlation {correlation}"));
        }
        self.device(event, &args).waits.push(wait);
    }

    fn call(&mut self, event: &Event<'_>, notes: &mut Notes) {
        let kind = call_kind(&event.name());
        let correlation = integer(event.args(notes).correlation).filter(|id| *id != 0);
        if kind.is_none() && correlation.is_none() {
            return;
        }
        let Some(time) = time(event, notes) else { return };
        let call = HostCall {
            kind: kind.unwrap_or(CallKind::Launch),
            thread: self.thread(event),
            start_ns: time.start_ns,
            end_ns: time.end_ns(),
            correlation,
        };
        if kind.is_some() { &mut self.calls } else { &mut self.unknown_calls }.push(call);
    }

    fn operator(&mut self, event: &Event<'_>, notes: &mut Notes) {
        let name = event.name();
        if name == RECORD {
            self.record(event, notes);
        } else if name.starts_with(OPERATORS) {
            self.hint(event, notes);
        } else if name.starts_with(STEP_PREFIX) {
            // Until 2022 marks were operators.
            self.annotation(event, notes);
        } else if work::works(&name) {
            let Some(time) = time(event, notes) else { return };
            let args = event.args(notes);
            let thread = self.thread(event);
            self.operators.take(&name, &args, thread, (time.start_ns, time.end_ns()), notes);
        }
    }

    fn annotation(&mut self, event: &Event<'_>, notes: &mut Notes) {
        let Some(time) = time(event, notes) else { return };
        let name = self.names.share(&event.name());
        if is_library(&name) {
            self.hint(event, notes);
        }
        let (thread, start_ns, end_ns) = (self.thread(event), time.start_ns, time.end_ns());
        if name.starts_with(STEP_PREFIX) {
            self.steps.push(StepMark { name, thread, start_ns, end_ns });
        } else {
            self.annotations.push(Annotation { name, thread, start_ns, end_ns });
        }
    }

    fn device(&mut self, event: &Event<'_>, args: &Args<'_>) -> &mut DeviceRows {
        let process: i64 = integer(event.pid).unwrap_or(0);
        let ordinal = integer(args.device).or_else(|| u32::try_from(process).ok()).unwrap_or(0);
        self.devices.entry((process, ordinal)).or_default()
    }

    pub(super) fn thread(&mut self, event: &Event<'_>) -> i64 {
        self.threads.id(number_in(event.pid).unwrap_or(0), number_in(event.tid).unwrap_or(0))
    }
}

/// When a row was. A missing or negative duration (of what was not finished) is none; without a start the row is lost.
pub(super) fn time(event: &Event<'_>, notes: &mut Notes) -> Option<Time> {
    let Some(start_ns) = parse(bare(event.ts)) else {
        notes.add("rows without a readable time, left out", || format!("{} at `{}`", event.name(), bare(event.ts)));
        return None;
    };
    /// Nothing in a step lasts a day; what seems to is damage, and sums of it would overflow.
    const LONGEST_NS: i64 = 86_400_000_000_000;
    let parse = if is_nanoseconds(bare(event.ts)) { parse_ns } else { parse_us };
    let duration_ns = parse(bare(event.dur)).filter(|duration| (0..LONGEST_NS).contains(duration));
    if duration_ns.is_none() {
        notes.add("rows without a readable duration, taken as none", || {
            format!("{} of `{}`", event.name(), bare(event.dur))
        });
    }
    Some(Time { start_ns, duration_ns: duration_ns.unwrap_or(0) })
}

/// Thread blocks: the product of the grid's dimensions; 0 if it is not recorded.
fn blocks(args: &Args<'_>) -> u64 {
    match List::read(args.grid) {
        List::Whole(grid) if !grid.is_empty() => {
            grid.iter().try_fold(1u64, |blocks, size| blocks.checked_mul(*size)).unwrap_or(0)
        }
        _ => 0,
    }
}

/// `Memcpy HtoD (Pinned -> Device)` and its like. Peer to peer is none of these.
fn direction(name: &str) -> Option<CopyDirection> {
    match name.split_whitespace().nth(1) {
        Some("HtoD") => Some(CopyDirection::H2d),
        Some("DtoH") => Some(CopyDirection::D2h),
        Some("DtoD") => Some(CopyDirection::D2d),
        _ => None,
    }
}

/// What a call of CUDA's or HIP's runtime or driver asks for, by its family of names; `None`: nothing known to matter.
pub(crate) fn call_kind(name: &str) -> Option<CallKind> {
    let has = |part| name.contains(part);
    if (has("Graph") && !has("GraphLaunch")) || has("LaunchHostFunc") {
        // Building a graph names what its nodes will do later; a host function is no work of the device.
        None
    } else if has("StreamWaitEvent") {
        Some(CallKind::StreamWait)
    } else if has("EventRecord") {
        Some(CallKind::EventRecord { flags: has("WithFlags") })
    } else if has("Synchronize") {
        Some(CallKind::Synchronize)
    } else if has("Launch") || has("Memcpy") || has("Memset") {
        Some(CallKind::Launch)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_their_family() {
        for (kind, names) in [
            (
                Some(CallKind::Launch),
                "cudaLaunchKernel cudaLaunchKernelExC cuLaunchKernelEx cudaLaunchCooperativeKernel hipLaunchKernel \
                 hipExtModuleLaunchKernel cudaMemcpyAsync cudaMemcpy cuMemcpyHtoDAsync_v2 hipMemcpyWithStream \
                 cudaMemsetAsync cuMemsetD32Async cudaGraphLaunch hipGraphLaunch",
            ),
            (Some(CallKind::EventRecord { flags: false }), "cudaEventRecord cuEventRecord hipEventRecord"),
            (
                Some(CallKind::EventRecord { flags: true }),
                "cudaEventRecordWithFlags cuEventRecordWithFlags hipEventRecordWithFlags",
            ),
            (Some(CallKind::StreamWait), "cudaStreamWaitEvent cuStreamWaitEvent hipStreamWaitEvent"),
            (
                Some(CallKind::Synchronize),
                "cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize cuCtxSynchronize \
                 cuStreamSynchronize cuEventSynchronize hipDeviceSynchronize hipStreamSynchronize",
            ),
            (
                None,
                "cudaEventQuery cudaStreamIsCapturing cudaGetFuncBySymbol INVALID cudaGraphAddMemcpyNode \
                 cudaLaunchHostFunc cuGraphAddEventRecordNode cudaGraphInstantiate cudaFuncSetAttribute",
            ),
        ] {
            for name in names.split_whitespace() {
                assert_eq!(call_kind(name), kind, "{name}");
            }
        }
    }

    #[test]
    fn copies_know_their_direction() {
        for (name, expected) in [
            ("Memcpy HtoD (Pinned -> Device)", Some(CopyDirection::H2d)),
            ("Memcpy DtoH (Device -> Pageable)", Some(CopyDirection::D2h)),
            ("Memcpy DtoD (Device -> Device)", Some(CopyDirection::D2d)),
            ("Memcpy PtoP (Device -> Device)", None),
            ("", None),
        ] {
            assert_eq!(direction(name), expected, "{name}");
        }
    }
}
