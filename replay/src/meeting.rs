//! Which executions, on which ranks, belong together: the members of one collective, the two ends of a message.
//!
//! This follows from the programs alone, before anything runs: on a communicator the n-th collective of every rank is
//! the same one, and the n-th send from a to b is what the n-th recv at b from a receives. The simulation needs it to
//! know who waits for whom, measurement to tell waiting from transfer, and a turn alone to know which other blocks a
//! lone send or recv cannot do without.

use std::collections::HashMap;

use maestro_pattern::{AxisId, BlockId, Direction, Instruction, LaneId, Plan, Program, Transfer, Work, peer};

use crate::{Error, Result};

/// One execution: the instruction of this index in this rank's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Execution {
    /// Global rank.
    pub rank: u32,
    /// Index of the `Issue` instruction.
    pub instruction: u32,
}

/// Executions that none of its members can end without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The members, ascending.
    pub executions: Vec<Execution>,
    /// Of a p2p the execution whose peers these are; a peer has a meeting of its own, with its own peers. A collective
    /// is one meeting for all.
    pub owner: Option<Execution>,
    /// How many members no program has. Never any in a plan that passed its checks; a meeting that lacks some never
    /// ends.
    pub absent: u32,
}

/// The meetings of one set of programs.
#[derive(Clone, Debug, Default)]
pub struct Meetings {
    all: Vec<Meeting>,
    /// Per rank, per instruction: index into `all`.
    of: Vec<Vec<Option<u32>>>,
}

/// Communicator, sender, receiver.
type Route = (u32, u32, u32);

/// The ends of the messages of one route, in order.
#[derive(Default)]
struct Messages {
    sends: Vec<Execution>,
    recvs: Vec<Execution>,
}

impl Messages {
    fn post(&mut self, execution: Execution, transfer: &Transfer) {
        match transfer.direction {
            Direction::Send => self.sends.push(execution),
            Direction::Recv => self.recvs.push(execution),
        }
    }
}

/// The route of a transfer that `here` makes with `there`.
fn route(communicator: u32, transfer: &Transfer, here: u32, there: u32) -> Route {
    match transfer.direction {
        Direction::Send => (communicator, here, there),
        Direction::Recv => (communicator, there, here),
    }
}

impl Meetings {
    /// The meetings when rank r runs `program(r)`.
    ///
    /// # Errors
    /// A rank communicates on an axis that does not hold it.
    pub fn new<'p>(plan: &Plan, program: impl Fn(u32) -> &'p Program) -> Result<Self> {
        let mut meetings = Self::default();
        // Per communicator, the meetings of its collectives in order.
        let mut collectives: Vec<Vec<u32>> = vec![Vec::new(); plan.communicators.len()];
        let mut messages: HashMap<Route, Messages> = HashMap::new();
        let mut p2p = Vec::new();
        for rank in 0..plan.world.size() {
            let instructions = &program(rank).instructions;
            let mut of = vec![None; instructions.len()];
            let mut counts: HashMap<u32, usize> = HashMap::new();
            for (index, instruction) in instructions.iter().enumerate() {
                let Instruction::Issue { block, axis: Some(axis), lane, .. } = instruction else { continue };
                let this = Execution { rank, instruction: index as u32 };
                let (communicator, seat) = place(plan, rank, *block, *axis, *lane)?;
                let ranks = &plan.communicators[communicator as usize].ranks;
                match &plan.blocks[*block as usize].work {
                    Work::Collective(_) | Work::Group(_) => {
                        let count = counts.entry(communicator).or_default();
                        let known = &mut collectives[communicator as usize];
                        if *count == known.len() {
                            let absent = ranks.len() as u32;
                            known.push(meetings.all.len() as u32);
                            meetings.all.push(Meeting { executions: Vec::new(), owner: None, absent });
                        }
                        let meeting = known[*count];
                        *count += 1;
                        meetings.all[meeting as usize].executions.push(this);
                        meetings.all[meeting as usize].absent -= 1;
                        of[index] = Some(meeting);
                    }
                    Work::P2p { transfers, wrap } => {
                        let mut made = 0;
                        for (transfer, there) in exchanges(transfers, *wrap, seat, ranks.len()) {
                            made += 1;
                            messages
                                .entry(route(communicator, transfer, rank, ranks[there]))
                                .or_default()
                                .post(this, transfer);
                        }
                        p2p.push((this, made));
                    }
                    Work::Compute(_) | Work::Cuda(_) => {}
                }
            }
            meetings.of.push(of);
        }
        meetings.join(p2p, messages);
        Ok(meetings)
    }

    /// Makes the meeting of every p2p execution, given with the number of its transfers: itself and the executions that
    /// its messages go to and come from.
    fn join(&mut self, p2p: Vec<(Execution, usize)>, messages: HashMap<Route, Messages>) {
        let mut peers: HashMap<Execution, Vec<Execution>> = HashMap::new();
        for Messages { sends, recvs } in messages.into_values() {
            for (send, recv) in sends.into_iter().zip(recvs) {
                peers.entry(send).or_default().push(recv);
                peers.entry(recv).or_default().push(send);
            }
        }
        for (this, transfers) in p2p {
            let mut executions = peers.remove(&this).unwrap_or_default();
            let absent = (transfers - executions.len()) as u32;
            executions.push(this);
            executions.sort_unstable();
            executions.dedup();
            self.of[this.rank as usize][this.instruction as usize] = Some(self.all.len() as u32);
            self.all.push(Meeting { executions, owner: Some(this), absent });
        }
    }

    /// Index of the meeting of an execution, if its block communicates.
    pub fn index(&self, execution: Execution) -> Option<u32> {
        self.of.get(execution.rank as usize)?.get(execution.instruction as usize).copied().flatten()
    }

    /// The meeting of an execution, if its block communicates.
    pub fn of(&self, execution: Execution) -> Option<&Meeting> {
        self.index(execution).map(|index| &self.all[index as usize])
    }

    /// Every meeting.
    pub fn all(&self) -> &[Meeting] {
        &self.all
    }
}

/// The transfers that the rank in `seat` of `ranks` really makes, each with its peer's seat.
pub(crate) fn exchanges(
    transfers: &[Transfer],
    wrap: bool,
    seat: usize,
    ranks: usize,
) -> impl Iterator<Item = (&Transfer, usize)> {
    transfers.iter().filter_map(move |transfer| Some((transfer, peer(seat, transfer.offset, ranks, wrap)?)))
}

/// The communicator that `rank` uses for this block, and its seat there.
pub(crate) fn place(plan: &Plan, rank: u32, block: BlockId, axis: AxisId, lane: LaneId) -> Result<(u32, usize)> {
    let seat = plan.world.seat(axis as usize, rank).map(|(_, seat)| seat as usize);
    plan.communicator(rank, axis, lane).zip(seat).ok_or_else(|| Error::Plan {
        rank,
        block: plan.blocks[block as usize].name.clone(),
        what: "it communicates on an axis that does not hold this rank".into(),
    })
}
