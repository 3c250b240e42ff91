//! From the spans of ranks to measurements: what was waiting and what was transfer.
//!
//! One function for all back ends. Waiting ends when the last member of the meeting has arrived, so it can be told from
//! transfer only where the spans of all members are at hand; elsewhere both stay unknown rather than guessed.

use std::sync::Arc;

use maestro_pattern::{AxisId, Instruction, LaneId, Measurement, Plan, Work, exchanged};

use crate::meeting::{Execution, Meeting, exchanges};
use crate::{Span, Turn};

/// Collects measurements.
pub(crate) struct Rows<'p> {
    plan: &'p Plan,
    /// Whether compute does its work: bytes that a hold only stands for were never moved and have no size.
    works: bool,
    /// The one rank that is measured here, if the others live in other processes.
    only: Option<u32>,
    blocks: Vec<Arc<str>>,
    axes: Vec<Arc<str>>,
    lanes: Vec<Arc<str>>,
    rows: Vec<Measurement>,
}

impl<'p> Rows<'p> {
    pub(crate) fn new(plan: &'p Plan, works: bool) -> Self {
        Self {
            plan,
            works,
            only: None,
            blocks: plan.blocks.iter().map(|block| block.name.as_str().into()).collect(),
            axes: plan.world.axes().iter().map(|axis| axis.name.as_str().into()).collect(),
            lanes: plan.lanes.iter().map(|lane| lane.name.as_str().into()).collect(),
            rows: Vec::new(),
        }
    }

    /// Collects the measurements of this rank alone. Of the others only the starts are looked at.
    pub(crate) fn of(self, rank: u32) -> Self {
        Self { only: Some(rank), ..self }
    }

    /// Adds one iteration of `turn`. `spans` has an entry a rank of the world: its spans in ascending order of
    /// instruction, or `None` if it lives in another process. A p2p whose peers all lie beyond an end did nothing and is
    /// no execution.
    pub(crate) fn add(&mut self, turn: &Turn, round: u32, iteration: u32, spans: &[Option<Vec<Span>>]) {
        let meetings = turn.meetings();
        let arrivals: Vec<Option<u64>> = meetings.all().iter().map(|meeting| latest_start(meeting, spans)).collect();
        for (rank, own) in spans.iter().enumerate() {
            let rank = rank as u32;
            if self.only.is_some_and(|only| only != rank) {
                continue;
            }
            for span in own.iter().flatten() {
                let instruction = turn.program(rank).instructions.get(span.instruction as usize);
                let Some(Instruction::Issue { block, axis, lane, instance, .. }) = instruction else { continue };
                let work = &self.plan.blocks[*block as usize].work;
                let size_bytes = self.size(work, rank, *axis, *lane);
                if matches!(work, Work::P2p { .. }) && size_bytes.is_none() {
                    continue;
                }
                let meeting = meetings.index(Execution { rank, instruction: span.instruction });
                let arrival = meeting.and_then(|meeting| arrivals[meeting as usize]);
                // Executions in a row that were timed as one count as one of their mean time. Clocks of different hosts
                // agree only within their error, so an end may seem to come before another rank's start.
                let begun = arrival.unwrap_or(span.start_ns);
                let end_ns = begun + span.end_ns.saturating_sub(begun) / u64::from(turn.times.max(1));
                self.rows.push(Measurement {
                    round,
                    iteration,
                    rank,
                    block: self.blocks[*block as usize].clone(),
                    axis: axis.map(|axis| self.axes[axis as usize].clone()),
                    lane: self.lanes[*lane as usize].clone(),
                    instance: *instance,
                    state: turn.state,
                    start_ns: span.start_ns,
                    end_ns,
                    wait_ns: arrival.map(|ns| ns - span.start_ns),
                    transfer_ns: arrival.map(|ns| end_ns - ns),
                    size_bytes,
                });
            }
        }
    }

    /// The block's size; of a p2p only of the transfers that `rank` really makes, so that the last rank of a chain
    /// does not report the bandwidth of a message that it never sends.
    fn size(&self, work: &Work, rank: u32, axis: Option<AxisId>, lane: LaneId) -> Option<u64> {
        let Work::P2p { transfers, wrap } = work else {
            return work.size().filter(|_| self.works || work.communicates());
        };
        let axis = axis?;
        let (_, seat) = self.plan.world.seat(axis as usize, rank)?;
        let communicator = self.plan.communicator(rank, axis, lane)?;
        let ranks = self.plan.communicators[communicator as usize].ranks.len();
        let made = exchanges(transfers, *wrap, seat as usize, ranks).map(|(transfer, _)| transfer);
        Some(exchanged(made)).filter(|bytes| *bytes > 0)
    }

    /// All of them, in the order added.
    pub(crate) fn finish(self) -> Vec<Measurement> {
        self.rows
    }
}

/// When the last member arrived, if all are known.
fn latest_start(meeting: &Meeting, spans: &[Option<Vec<Span>>]) -> Option<u64> {
    if meeting.absent > 0 {
        return None;
    }
    let start = |member: &Execution| {
        let own = spans[member.rank as usize].as_ref()?;
        let at = own.binary_search_by_key(&member.instruction, |span| span.instruction).ok()?;
        Some(own[at].start_ns)
    };
    meeting.executions.iter().map(start).try_fold(0, |latest, start| Some(latest.max(start?)))
}
