//! The one loop that runs a program, and the order of turns above it.
//!
//! [`drive`] has no clock and looks into no block: time and work are the endpoint's. [`Session`] decides what is driven
//! when: data verified once, then rounds of the whole step and of every working block alone, interleaved, so that whatever
//! drifts on a machine (its clock rate, its temperature, its neighbours) drifts under both alike.

use maestro_pattern::{Instruction, Measurement, Plan, Program};

use crate::timing::Rows;
use crate::verify::{self, Checked};
use crate::{Endpoint, Issue, Notice, Phase, Result, Settings, Span, Turn};

/// Runs `program` on `endpoint`, `iterations` times, and gives `keep` the spans of each: prepare; for each iteration
/// barrier, issue all, drain.
///
/// # Errors
/// The endpoint's first.
pub fn drive(
    endpoint: &mut dyn Endpoint,
    program: &Program,
    iterations: u32,
    mut keep: impl FnMut(u32, Vec<Span>),
) -> Result<()> {
    endpoint.prepare(program)?;
    for iteration in 0..iterations {
        endpoint.barrier()?;
        for (index, instruction) in program.instructions.iter().enumerate() {
            match instruction {
                Instruction::Issue { block, axis, lane, after, .. } => {
                    endpoint.issue(Issue { index: index as u32, block: *block, axis: *axis, lane: *lane, after })?;
                }
                Instruction::Wait(issued) => endpoint.wait(*issued)?,
                Instruction::Host(ns) => endpoint.host(*ns)?,
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
        let alone = if settings.alone || settings.verify { Turn::alone(plan, &step)? } else { Vec::new() };
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
            drive(endpoint, turn.program(rank), 1, |_, _| {})?;
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
                drive(
                    endpoint,
                    turn.program(rank),
                    warmup.saturating_add(self.settings.iterations),
                    |iteration, spans| {
                        if iteration >= warmup {
                            record.push(spans);
                        }
                        done += 1;
                        tell(Notice::Progress { done, total });
                    },
                )?;
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
            drive(&mut checked, &verify::awaited(turn.program(rank)), 1, |_, _| {})?;
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
