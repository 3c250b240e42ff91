//! The events of a program's instructions: what is recorded, and what time each execution is given.
//!
//! Two events around each block would keep a device from beginning one while the other ends: on an H200 they cost some
//! 5 us a block. So a start is recorded only where it tells something. A block that goes straight on, whose predecessors
//! are still at work when it is issued, begins when the last of them ends, and that is known without an event.

use std::sync::Arc;
use std::time::Instant;

use maestro_pattern::{Instruction, LaneId, Program};

use super::clock::Clock;
use super::ffi::Native;
use super::ffi::cuda::{Cuda, Event, Stream};
use crate::{Issue, Span};

/// The events of one instruction.
struct Mark {
    start: Event,
    end: Event,
    /// Inside a graph other lanes wait for this one: an event whose time can be read there cannot be waited for.
    joint: Event,
    /// What must have ended before it begins: the instruction before it on its lane, and those that it is `after`.
    before: Vec<u32>,
    /// How its start is known in this iteration, once it is issued.
    begin: Begin,
    /// Whether its end was recorded in this iteration.
    ends: bool,
}

/// How the start of an execution is known.
#[derive(Clone, Copy)]
enum Begin {
    /// Its event was recorded.
    Recorded,
    /// It went straight on when the last of its predecessors ended; not before the host issued it, where that is known.
    StraightOn(Option<Instant>),
}

/// The events of all instructions of the program that is being run.
pub(super) struct Marks {
    cuda: Arc<Cuda>,
    all: Vec<Mark>,
    /// Instructions issued since the barrier, in order.
    issued: Vec<u32>,
}

impl Marks {
    pub(super) fn new(cuda: &Arc<Cuda>) -> Self {
        Self { cuda: cuda.clone(), all: Vec::new(), issued: Vec::new() }
    }

    /// Makes ready for a program. Events are kept for the next.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn prepare(&mut self, program: &Program) -> Native<()> {
        let mut last: Vec<(LaneId, u32)> = Vec::new();
        for (index, instruction) in program.instructions.iter().enumerate() {
            if self.all.len() == index {
                let event = |timed| Event::new(&self.cuda, timed);
                let (start, end, joint) = (event(true)?, event(true)?, event(false)?);
                self.all.push(Mark { start, end, joint, before: Vec::new(), begin: Begin::Recorded, ends: false });
            }
            let mark = &mut self.all[index];
            mark.before.clear();
            let Instruction::Issue { lane, after, .. } = instruction else { continue };
            let index = index as u32;
            match last.iter_mut().find(|(known, _)| known == lane) {
                Some((_, earlier)) => mark.before.push(std::mem::replace(earlier, index)),
                None => last.push((*lane, index)),
            }
            mark.before.extend(after);
        }
        self.clear();
        Ok(())
    }

    /// Forgets what was issued.
    pub(super) fn clear(&mut self) {
        for index in self.issued.drain(..) {
            self.all[index as usize].ends = false;
        }
    }

    /// Has the stream wait for what the issue is `after`.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn wait(&self, issue: &Issue<'_>, stream: &Stream, captured: bool) -> Native<()> {
        issue.after.iter().try_for_each(|earlier| {
            let mark = &self.all[*earlier as usize];
            stream.wait(if captured { &mark.joint } else { &mark.end })
        })
    }

    /// The issue, at `now`, is next on the stream: notes or records its start. `held` says that nothing issued since the
    /// barrier can have ended, `captured` that all of it becomes a graph.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn begin(
        &mut self,
        issue: &Issue<'_>,
        now: Instant,
        stream: &Stream,
        held: bool,
        captured: bool,
    ) -> Native<()> {
        self.issued.push(issue.index);
        let mark = &self.all[issue.index as usize];
        let mut straight = !mark.before.is_empty() && mark.before.iter().all(|i| self.all[*i as usize].ends);
        if straight && !held && !captured {
            straight = self.any_open(&mark.before)?;
        }
        let begin = match (straight, captured) {
            (true, true) => Begin::StraightOn(None),
            (true, false) => Begin::StraightOn(Some(now)),
            (false, true) => {
                mark.start.record_in_graph(stream)?;
                Begin::Recorded
            }
            (false, false) => {
                mark.start.record(stream)?;
                Begin::Recorded
            }
        };
        self.all[issue.index as usize].begin = begin;
        Ok(())
    }

    fn any_open(&self, instructions: &[u32]) -> Native<bool> {
        for index in instructions {
            if !self.all[*index as usize].end.ended()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The issue was put on the stream: records its end.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn end(&mut self, issue: &Issue<'_>, stream: &Stream, captured: bool) -> Native<()> {
        let mark = &mut self.all[issue.index as usize];
        mark.ends = true;
        if captured {
            mark.end.record_in_graph(stream)?;
            mark.joint.record(stream)
        } else {
            mark.end.record(stream)
        }
    }

    /// What was issued since the barrier, in order.
    pub(super) fn issued(&self) -> &[u32] {
        &self.issued
    }

    /// Whether an issued instruction has ended.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn ended(&self, index: u32) -> Native<bool> {
        self.all.get(index as usize).map_or(Ok(true), |mark| mark.end.ended())
    }

    /// How many of the issued instructions have ended; `graph` as for [`Self::stuck`].
    pub(super) fn reached(&self, graph: Option<&Clock>) -> u64 {
        self.issued.iter().filter(|index| ended(&self.all[**index as usize].end, graph)).count() as u64
    }

    /// Of what was issued and has not ended, the first that has begun, else the first. `graph` is the device's clock if
    /// the instructions run as a graph: launching one does not reset its events, so they have the times of the run
    /// before until this one comes to them.
    pub(super) fn stuck(&self, graph: Option<&Clock>) -> Option<u32> {
        let begun = |mark: &Mark| match mark.begin {
            Begin::Recorded => ended(&mark.start, graph),
            Begin::StraightOn(_) => mark.before.iter().all(|i| ended(&self.all[*i as usize].end, graph)),
        };
        let open = || self.issued.iter().copied().filter(|index| !ended(&self.all[*index as usize].end, graph));
        open().find(|index| begun(&self.all[*index as usize])).or_else(|| open().next())
    }

    /// The spans of all that was issued, in nanoseconds from `zero`, in ascending order of instruction. All has ended.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn spans(&self, clock: &Clock, zero: Instant) -> Native<Vec<Span>> {
        let mut ends = vec![0; self.all.len()];
        for index in &self.issued {
            ends[*index as usize] = clock.moment(&self.all[*index as usize].end, zero)?;
        }
        let span = |index: &u32| {
            let mark = &self.all[*index as usize];
            let start_ns = match mark.begin {
                Begin::Recorded => clock.moment(&mark.start, zero)?,
                Begin::StraightOn(issued) => {
                    let issued = issued.map_or(0, |at| at.saturating_duration_since(zero).as_nanos() as u64);
                    mark.before.iter().map(|i| ends[*i as usize]).fold(issued, u64::max)
                }
            };
            Ok(Span { instruction: *index, start_ns, end_ns: ends[*index as usize].max(start_ns) })
        };
        let mut spans: Vec<Span> = self.issued.iter().map(span).collect::<Native<_>>()?;
        spans.sort_unstable_by_key(|span| span.instruction);
        Ok(spans)
    }
}

/// Whether the device has come to an event since it was recorded, or since the sighting of the clock. One that cannot be
/// asked it has not come to.
fn ended(event: &Event, graph: Option<&Clock>) -> bool {
    event.ended().unwrap_or(false) && graph.is_none_or(|clock| clock.passed(event))
}
