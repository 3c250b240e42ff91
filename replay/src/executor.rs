//! The one loop that runs a program, and the order of turns above it.
//!
//! [`drive`] has no clock and looks into no block: time and work are the endpoint's. [`Session`] decides what is driven
//! when: data verified once, then rounds of the whole step and of every working block alone, interleaved, so that whatever
//! drifts on a machine (its clock rate, its temperature, its neighbours) drifts under both alike.

use maestro_pattern::{Instruction, Measurement, Plan, Program, State};

use crate::timing::Rows;
use crate::verify::{self, Checked};
use crate::{Endpoint, Issue, Notice, Phase, Result, Settings, Span, Turn};

/// How [`drive`] goes through a program.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// Whether this is the step or a block alone.
    pub state: State,
    /// How often everything is issued in a row between a barrier and a drain, as one.
    pub times: u32,
    /// Barriers and drains.
    pub iterations: u32,
}

impl Drive {
    /// Once, as part of no measurement.
    pub const ONCE: Self = Self { state: State::Overlapped, times: 1, iterations: 1 };
}

/// Runs `program` on `endpoint` and gives `keep` the spans of each iteration: prepare; for each iteration barrier, issue
/// all, drain.
///
/// # Errors
/// The endpoint's first.
pub fn drive(
    endpoint: &mut dyn Endpoint,
    program: &Program,
    Drive { state, times, iterations }: Drive,
    mut keep: impl FnMut(u32, Vec<Span>),
) -> Result<()> {
    endpoint.prepare(program, state)?;
    for iteration in 0..iterations {
        endpoint.barrier()?;
        for time in 0..times {
            let (first, last) = (time == 0, time + 1 == times);
            for (index, instruction) in program.instructions.iter().enumerate() {
                match instruction {
                    Instruction::Issue { block, axis, lane, after, .. } => {
                        let (block, axis, lane, index) = (*block, *axis, *lane, index as u32);
                        endpoint.issue(Issue { index, block, axis, lane, after, first, last })?;
                    }
                    Instruction::Wait(issued) => endpoint.wait(*issued)?,
                    Instruction::Host(ns) => endpoint.host(*ns)?,
                }
            }
        }
        keep(iteration, endpoint.drain()?);
    }
    Ok(())
}

/// What one run measures, and in which order: the same for every rank, made once and shared.
pub struct Session<'p> {
    plan: &'p Plan,
    settings: &'p Settings,
    /// The whole step.
    step: Turn,
    /// Every block alone.
    alone: Vec<Turn>,
}

/// Everything that one rank saw: per recorded iteration of [`Session::recorded`], its spans.
pub type Record = Vec<Vec<Span>>;

impl<'p> Session<'p> {
    /// The turns of `plan` under `settings`.
    ///
    /// # Errors
    /// The plan contradicts itself.
    pub fn new(plan: &'p Plan, settings: &'p Settings) -> Result<Self> {
        let step = Turn::step(plan)?;
        let mut alone = if settings.alone || settings.verify { Turn::alone(plan, &step)? } else { Vec::new() };
        alone.iter_mut().for_each(|turn| turn.times = settings.back_to_back);
        Ok(Self { plan, settings, step, alone })
    }

    /// The turns of one round.
    pub fn turns(&self) -> impl Iterator<Item = &Turn> {
        // A hold lasts as long as it is told to: alone it would say nothing, and its slowdown less.
        let worth = |turn: &&Turn| self.settings.alone && (turn.communicates() || self.settings.works());
        std::iter::once(&self.step).chain(self.alone.iter().filter(worth))
    }

    /// The recorded iterations in the order in which they are run: round, turn, iteration in the round.
    pub fn recorded(&self) -> impl Iterator<Item = (u32, &Turn, u32)> {
        (0..self.settings.rounds).flat_map(move |round| {
            self.turns().flat_map(move |turn| (0..self.settings.iterations).map(move |i| (round, turn, i)))
        })
    }

    /// Runs everything on one rank. Of the ranks of a process, one is the `lead` and tells how far things are.
    ///
    /// # Errors
    /// Wrong data, or the endpoint's first error.
    pub fn perform(&self, endpoint: &mut dyn Endpoint, lead: bool) -> Result<Record> {
        self.verify(endpoint, lead)?;
        self.measure(endpoint, lead)
    }

    /// Runs everything that can be run alone once, untimed: libraries load kernels and connect ranks when they are first
    /// asked to, and some do so only while nothing else runs.
    ///
    /// # Errors
    /// The endpoint's first.
    pub fn rehearse(&self, endpoint: &mut dyn Endpoint) -> Result<()> {
        let rank = endpoint.rank();
        for turn in Turn::alone(self.plan, &self.step)? {
            drive(endpoint, turn.program(rank), Drive::ONCE, |_, _| {})?;
        }
        Ok(())
    }

    /// Runs every turn of every round on one rank, timed.
    ///
    /// # Errors
    /// The endpoint's first.
    pub fn measure(&self, endpoint: &mut dyn Endpoint, lead: bool) -> Result<Record> {
        let tell = |notice: Notice| {
            if lead {
                self.settings.notify.tell(notice);
            }
        };
        tell(Notice::Phase(Phase::Measure));
        let (rank, mut record, mut done) = (endpoint.rank(), Record::new(), 0);
        let warmup = self.settings.warmup;
        let each = u64::from(self.settings.rounds) * (u64::from(warmup) + u64::from(self.settings.iterations));
        let total = self.turns().count() as u64 * each;
        for _ in 0..self.settings.rounds {
            for turn in self.turns() {
                let iterations = warmup.saturating_add(self.settings.iterations);
                let how = Drive { state: turn.state, times: turn.times, iterations };
                drive(endpoint, turn.program(rank), how, |iteration, spans| {
                    if iteration >= warmup {
                        record.push(spans);
                    }
                    done += 1;
                    tell(Notice::Progress { done, total });
                })?;
            }
        }
        Ok(record)
    }

    /// Runs every communicating block alone on known data and compares what comes out, if the settings ask for it.
    ///
    /// # Errors
    /// Wrong data, or the endpoint's first error.
    pub fn verify(&self, endpoint: &mut dyn Endpoint, lead: bool) -> Result<()> {
        if !self.settings.verify {
            return Ok(());
        }
        if lead {
            self.settings.notify.tell(Notice::Phase(Phase::Verify));
        }
        let rank = endpoint.rank();
        let mut checked = Checked::new(self.plan, endpoint);
        for turn in self.alone.iter().filter(|turn| turn.communicates()) {
            drive(&mut checked, &verify::awaited(turn.program(rank)), Drive::ONCE, |_, _| {})?;
        }
        let (executions, bytes) = checked.compared();
        self.settings.notify.tell(Notice::Verified { rank, executions, bytes });
        Ok(())
    }

    /// One measurement a recorded execution, of the ranks whose records are given: (rank, record).
    pub fn measurements(&self, records: Vec<(u32, Record)>) -> Vec<Measurement> {
        self.rows(Rows::new(self.plan, self.settings.works()), records)
    }

    /// [`Session::measurements`] of `rank` alone, where of the others only the starts are known.
    pub fn measurements_of(&self, rank: u32, records: Vec<(u32, Record)>) -> Vec<Measurement> {
        self.rows(Rows::new(self.plan, self.settings.works()).of(rank), records)
    }

    fn rows(&self, mut rows: Rows<'_>, records: Vec<(u32, Record)>) -> Vec<Measurement> {
        let mut records: Vec<(u32, std::vec::IntoIter<Vec<Span>>)> =
            records.into_iter().map(|(rank, record)| (rank, record.into_iter())).collect();
        for (round, turn, iteration) in self.recorded() {
            let mut spans = vec![None; self.plan.world.size() as usize];
            for (rank, record) in &mut records {
                spans[*rank as usize] = record.next();
            }
            rows.add(turn, round, iteration, &spans);
        }
        rows.finish()
    }
}

#[cfg(test)]
mod tests {
    use maestro_pattern::Pattern;

    use super::*;

    /// An endpoint whose executions take 10 ns each, one after the other from 100 ns on.
    #[derive(Default)]
    struct Ticking {
        rank: u32,
        now: u64,
        spans: Vec<Span>,
        marks: Vec<(State, bool, bool)>,
        state: Option<State>,
    }

    impl Endpoint for Ticking {
        fn rank(&self) -> u32 {
            self.rank
        }
        fn prepare(&mut self, _: &Program, state: State) -> Result<()> {
            self.state = Some(state);
            Ok(())
        }
        fn barrier(&mut self) -> Result<()> {
            // Rank 1 comes 6 ns later.
            self.now = 100 + 6 * u64::from(self.rank);
            Ok(())
        }
        fn issue(&mut self, issue: Issue<'_>) -> Result<()> {
            self.marks.extend(self.state.map(|state| (state, issue.first, issue.last)));
            if issue.first {
                self.spans.push(Span { instruction: issue.index, start_ns: self.now, end_ns: 0 });
            }
            self.now += 10;
            if let Some(span) = self.spans.last_mut().filter(|_| issue.last) {
                span.end_ns = self.now;
            }
            Ok(())
        }
        fn wait(&mut self, _: u32) -> Result<()> {
            Ok(())
        }
        fn host(&mut self, _: u64) -> Result<()> {
            Ok(())
        }
        fn drain(&mut self) -> Result<Vec<Span>> {
            Ok(std::mem::take(&mut self.spans))
        }
        fn load(&mut self, _: u32, _: &mut dyn FnMut(&mut [u8])) -> Result<()> {
            Ok(())
        }
        fn inspect(&mut self, _: u32, _: &mut dyn FnMut(&[u8])) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn executions_back_to_back_are_timed_as_one_and_count_as_their_mean() {
        let text = "{maestro: 1, name: t, axes: {dp: {size: 2}}, blocks: {g: {all_gather: {size: 8, dtype: u8}}}, \
                    lanes: {x: {}}, schedule: [{run: g, on: dp}]}";
        let plan = Plan::new(&Pattern::from_yaml(text).unwrap(), &[]).unwrap();
        let settings =
            Settings { warmup: 0, iterations: 1, rounds: 1, verify: false, back_to_back: 4, ..Settings::default() };
        let session = Session::new(&plan, &settings).unwrap();
        let mut records = Vec::new();
        for rank in 0..2 {
            let mut endpoint = Ticking { rank, ..Ticking::default() };
            records.push((rank, session.measure(&mut endpoint, false).unwrap()));
            let alone = [(true, false), (false, false), (false, false), (false, true)];
            assert_eq!(endpoint.marks[0], (State::Overlapped, true, true));
            assert_eq!(endpoint.marks[1..], alone.map(|(first, last)| (State::Alone, first, last)));
        }
        let rows = session.measurements(records);
        let times: Vec<_> = rows.iter().map(|row| (row.state, row.start_ns, row.end_ns, row.wait_ns)).collect();
        // Rank 1 arrives at 106 ns; from there rank 0 takes 34 ns for four executions, rank 1 40 ns.
        let (step, alone) = (State::Overlapped, State::Alone);
        assert_eq!(
            times,
            [
                (step, 100, 110, Some(6)),
                (step, 106, 116, Some(0)),
                (alone, 100, 106 + 8, Some(6)),
                (alone, 106, 106 + 10, Some(0)),
            ]
        );
        assert_eq!(rows[3].transfer_ns, Some(10));
    }
}
