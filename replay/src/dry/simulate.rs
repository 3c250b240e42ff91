//! The simulation: one loop over a list of what is known and has not been told to those who depend on it.
//!
//! Every time is the latest of some earlier ones plus a constant, so the order in which things are worked out does not
//! matter and nothing needs a queue sorted by time: as soon as all that a thing depends on is known, so is the thing.
//! The host of a rank runs ahead until it waits for an execution whose end is not known.

use maestro_pattern::{Instruction, Plan, Program, Work};

use crate::meeting::{Execution, exchanges, place};
use crate::turn::{issue, issues};
use crate::{Error, Issue, Pacing, Result, Span, Turn, nominal_ns};

/// What to work out next.
enum Event {
    /// The host of this rank can go on.
    Host(u32),
    /// Everything that an execution depends on has ended: it starts.
    Start(Execution),
    /// An execution ended, then.
    End(Execution, u64),
}

/// One rank under simulation.
struct Rank<'t> {
    program: &'t Program,
    /// The host's next instruction.
    next: usize,
    /// The host's time.
    clock: u64,
    /// The instruction that the host waits for.
    waits_for: Option<u32>,
    /// Per instruction; of use where it is an issue.
    executions: Vec<Known>,
}

/// What is known of one execution, or of the start of one meeting.
#[derive(Clone, Copy, Default)]
struct Known {
    /// How many of the things that it depends on are not known.
    unknown: u32,
    /// The latest of those that are; once all are, its start.
    start: u64,
    end: Option<u64>,
}

impl Known {
    /// One more of the things that it depends on is known. Whether that was the last.
    fn learn(&mut self, time: u64) -> bool {
        self.start = self.start.max(time);
        self.unknown -= 1;
        self.unknown == 0
    }
}

struct Simulation<'t> {
    plan: &'t Plan,
    turn: &'t Turn,
    pacing: Pacing,
    /// Per program, per instruction: the instructions that its end lets start.
    dependents: Vec<Vec<Vec<u32>>>,
    ranks: Vec<Rank<'t>>,
    meetings: Vec<Known>,
    events: Vec<Event>,
}

/// Simulates one iteration of `turn`: per rank, its spans.
///
/// # Errors
/// Something never ends. Plans made by [`Plan::new`] have no such thing.
pub(super) fn simulate(plan: &Plan, turn: &Turn, pacing: Pacing) -> Result<Vec<Vec<Span>>> {
    let mut simulation = Simulation::new(plan, turn, pacing);
    while let Some(event) = simulation.events.pop() {
        match event {
            Event::Host(rank) => simulation.host(rank),
            Event::Start(execution) => simulation.start(execution)?,
            Event::End(execution, end) => simulation.end(execution, end),
        }
    }
    simulation.spans()
}

impl<'t> Simulation<'t> {
    fn new(plan: &'t Plan, turn: &'t Turn, pacing: Pacing) -> Self {
        let (programs, program_of) = turn.programs();
        let order: Vec<_> = programs.iter().map(|program| dependencies(program, plan.lanes.len())).collect();
        let rank = |program: &u32| Rank {
            program: &programs[*program as usize],
            next: 0,
            clock: 0,
            waits_for: None,
            executions: order[*program as usize].1.clone(),
        };
        let ranks = program_of.iter().map(rank).collect();
        let meetings = turn
            .meetings()
            .all()
            .iter()
            .map(|meeting| Known { unknown: meeting.executions.len() as u32 + meeting.absent, ..Known::default() });
        Self {
            plan,
            turn,
            pacing,
            ranks,
            meetings: meetings.collect(),
            dependents: order.into_iter().map(|(dependents, _)| dependents).collect(),
            events: (0..plan.world.size()).map(Event::Host).collect(),
        }
    }

    /// Runs a host on until it waits or is done.
    fn host(&mut self, rank: u32) {
        let this = &mut self.ranks[rank as usize];
        let program = this.program;
        while let Some(instruction) = program.instructions.get(this.next) {
            match instruction {
                Instruction::Issue { .. } => {
                    if this.executions[this.next].learn(this.clock) {
                        self.events.push(Event::Start(Execution { rank, instruction: this.next as u32 }));
                    }
                }
                Instruction::Host(ns) => match self.pacing {
                    Pacing::Gaps => this.clock += ns,
                    Pacing::Asap => {}
                },
                Instruction::Wait(index) => match this.executions[*index as usize].end {
                    Some(end) => this.clock = this.clock.max(end),
                    None => {
                        this.waits_for = Some(*index);
                        return;
                    }
                },
            }
            this.next += 1;
        }
    }

    /// An execution starts: compute ends by itself, communication when its meeting is complete.
    fn start(&mut self, this: Execution) -> Result<()> {
        let start = self.ranks[this.rank as usize].executions[this.instruction as usize].start;
        let meetings = self.turn.meetings();
        let Some(meeting) = meetings.of(this) else {
            let end = start + self.duration(this)?;
            self.events.push(Event::End(this, end));
            return Ok(());
        };
        if meeting.owner.is_none() {
            return self.arrive(this, start);
        }
        // Every peer of a p2p has a meeting of its own that waits for this one, too.
        meeting.executions.iter().try_for_each(|peer| self.arrive(*peer, start))
    }

    /// A member of `of`'s meeting has arrived.
    fn arrive(&mut self, of: Execution, start: u64) -> Result<()> {
        let meetings = self.turn.meetings();
        let Some(index) = meetings.index(of) else { return Ok(()) };
        if !self.meetings[index as usize].learn(start) {
            return Ok(());
        }
        let (meeting, latest) = (&meetings.all()[index as usize], self.meetings[index as usize].start);
        let ending = meeting.owner.as_ref().map_or(meeting.executions.as_slice(), std::slice::from_ref);
        for member in ending {
            let end = latest + self.duration(*member)?;
            self.events.push(Event::End(*member, end));
        }
        Ok(())
    }

    /// An execution ended: tells the lane, whoever is `after` it, and the host.
    fn end(&mut self, execution: Execution, end: u64) {
        let Execution { rank, instruction } = execution;
        let (_, program_of) = self.turn.programs();
        let this = &mut self.ranks[rank as usize];
        this.executions[instruction as usize].end = Some(end);
        for dependent in &self.dependents[program_of[rank as usize] as usize][instruction as usize] {
            if this.executions[*dependent as usize].learn(end) {
                self.events.push(Event::Start(Execution { rank, instruction: *dependent }));
            }
        }
        if this.waits_for == Some(instruction) {
            this.waits_for = None;
            self.events.push(Event::Host(rank));
        }
    }

    fn issue(&self, execution: Execution) -> Option<Issue<'t>> {
        issue(self.ranks[execution.rank as usize].program, execution.instruction)
    }

    fn duration(&self, execution: Execution) -> Result<u64> {
        let Some(issue) = self.issue(execution) else { return Ok(0) };
        let block = &self.plan.blocks[issue.block as usize];
        nominal_ns(block, execution.rank, self.pacing).ok_or_else(|| Error::Plan {
            rank: execution.rank,
            block: block.name.clone(),
            what: "it has no captured duration".into(),
        })
    }

    fn spans(&self) -> Result<Vec<Vec<Span>>> {
        let mut all = Vec::with_capacity(self.ranks.len());
        for (rank, this) in self.ranks.iter().enumerate() {
            let mut spans = Vec::new();
            for instruction in 0..this.executions.len() as u32 {
                let execution = Execution { rank: rank as u32, instruction };
                let Some(issue) = self.issue(execution) else { continue };
                let known = this.executions[instruction as usize];
                let end_ns = known.end.ok_or_else(|| self.stuck(execution, issue))?;
                spans.push(Span { instruction, start_ns: known.start, end_ns });
            }
            all.push(spans);
        }
        Ok(all)
    }

    /// The error of an execution that never ends: its first, on the first such rank.
    fn stuck(&self, this: Execution, issue: Issue<'_>) -> Error {
        let started = |rank: &u32| {
            self.turn.meetings().of(this).is_some_and(|meeting| {
                meeting.executions.iter().any(|member| {
                    let known = self.ranks[member.rank as usize].executions[member.instruction as usize];
                    member.rank == *rank && known.unknown == 0
                })
            })
        };
        let block = &self.plan.blocks[issue.block as usize];
        let mut peers = match issue.axis.map(|axis| place(self.plan, this.rank, issue.block, axis, issue.lane)) {
            Some(Ok((communicator, seat))) => {
                let ranks = &self.plan.communicators[communicator as usize].ranks;
                match &block.work {
                    Work::P2p { transfers, wrap } => {
                        exchanges(transfers, *wrap, seat, ranks.len()).map(|(_, there)| ranks[there]).collect()
                    }
                    Work::Collective(_) | Work::Group(_) => ranks.clone(),
                    Work::Compute(_) | Work::Cuda(_) => Vec::new(),
                }
            }
            Some(Err(_)) | None => Vec::new(),
        };
        peers.retain(|rank| !started(rank));
        let lane = self.plan.lanes[issue.lane as usize].name.clone();
        Error::Stuck { rank: this.rank, block: block.name.clone(), lane, peers }
    }
}

/// Per instruction of `program`: which instructions its end lets start, and how many ends or issues it waits for.
fn dependencies(program: &Program, lanes: usize) -> (Vec<Vec<u32>>, Vec<Known>) {
    let count = program.instructions.len();
    let (mut dependents, mut known) = (vec![Vec::new(); count], vec![Known::default(); count]);
    let mut last_on: Vec<Option<u32>> = vec![None; lanes];
    for issue in issues(program) {
        let before = last_on[issue.lane as usize].replace(issue.index);
        for earlier in before.iter().chain(issue.after) {
            dependents[*earlier as usize].push(issue.index);
            known[issue.index as usize].unknown += 1;
        }
        // Its own issue.
        known[issue.index as usize].unknown += 1;
    }
    (dependents, known)
}
