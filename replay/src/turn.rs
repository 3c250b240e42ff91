//! Turns: what the ranks run between two drains, again and again: the whole step, or one block alone.
//!
//! A block alone is the shortest set of executions that can run by itself. For compute that is one execution, for a
//! collective one on every rank of the team. For a lone send it is the send and whatever receives it, which may be
//! another block; so a turn is closed under [`Meetings`]: whoever meets a member is a member. What such a turn runs is
//! taken from the step in the step's order, hence cannot deadlock where the step does not.

use std::collections::{BTreeSet, HashMap};

use maestro_pattern::{AxisId, BlockId, Instruction, LaneId, Plan, Program, State};

use crate::meeting::{Execution, Meetings};
use crate::{Issue, Result};

type Use = (BlockId, Option<AxisId>, LaneId);

/// A program for every rank, and who meets whom in them.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The whole step (overlapped) or a block alone.
    pub state: State,
    /// How many executions in a row are timed as one.
    pub times: u32,
    programs: Vec<Program>,
    /// Per rank, index into `programs`.
    program_of: Vec<u32>,
    meetings: Meetings,
}

impl Turn {
    /// The whole step.
    ///
    /// # Errors
    /// The plan contradicts itself.
    pub fn step(plan: &Plan) -> Result<Self> {
        Self::new(plan, State::Overlapped, plan.programs.clone(), plan.program_of.clone())
    }

    /// Every distinct use of a block alone, in the order of first issue. A use that cannot run without another (a
    /// send without its recv) shares that one's turn. `step` is [`Turn::step`] of the same plan.
    ///
    /// # Errors
    /// The plan contradicts itself.
    pub fn alone(plan: &Plan, step: &Self) -> Result<Vec<Self>> {
        let firsts: Vec<HashMap<Use, u32>> = plan.programs.iter().map(first_uses).collect();
        let mut done: BTreeSet<(u32, Use)> = BTreeSet::new();
        let mut turns = Vec::new();
        for this in plan.uses() {
            let seeds: Vec<Execution> = (0..plan.world.size())
                .filter_map(|rank| {
                    let instruction = *firsts[plan.program_of[rank as usize] as usize].get(&this)?;
                    Some(Execution { rank, instruction })
                })
                .collect();
            if seeds.iter().all(|seed| done.contains(&(seed.rank, this))) {
                continue;
            }
            let members = step.closure(seeds);
            done.extend(members.iter().filter_map(|member| Some((member.rank, step.used_by(*member)?))));
            turns.push(step.only(plan, &members)?);
        }
        Ok(turns)
    }

    fn new(plan: &Plan, state: State, programs: Vec<Program>, program_of: Vec<u32>) -> Result<Self> {
        let meetings = Meetings::new(plan, |rank| &programs[program_of[rank as usize] as usize])?;
        Ok(Self { state, times: 1, programs, program_of, meetings })
    }

    /// What a rank runs; empty for a rank that has no part in the turn.
    pub fn program(&self, rank: u32) -> &Program {
        &self.programs[self.program_of[rank as usize] as usize]
    }

    /// The distinct programs, and which of them a rank runs.
    pub(crate) fn programs(&self) -> (&[Program], &[u32]) {
        (&self.programs, &self.program_of)
    }

    /// Who meets whom.
    pub fn meetings(&self) -> &Meetings {
        &self.meetings
    }

    /// Whether any rank communicates in it.
    pub fn communicates(&self) -> bool {
        !self.meetings.all().is_empty()
    }

    fn used_by(&self, execution: Execution) -> Option<Use> {
        issue(self.program(execution.rank), execution.instruction).map(|issue| (issue.block, issue.axis, issue.lane))
    }

    /// `seeds` and everything that meets a member.
    fn closure(&self, seeds: Vec<Execution>) -> BTreeSet<Execution> {
        let mut members: BTreeSet<Execution> = seeds.iter().copied().collect();
        let mut open = seeds;
        while let Some(member) = open.pop() {
            let Some(meeting) = self.meetings.of(member) else { continue };
            open.extend(meeting.executions.iter().filter(|other| members.insert(**other)));
        }
        members
    }

    /// The turn of only these executions, on their lanes, in this turn's order.
    fn only(&self, plan: &Plan, members: &BTreeSet<Execution>) -> Result<Self> {
        let mut programs = Vec::new();
        let mut index_of: HashMap<Vec<Instruction>, u32> = HashMap::new();
        let program_of = (0..plan.world.size())
            .map(|rank| {
                let first = Execution { rank, instruction: 0 };
                let last = Execution { rank, instruction: u32::MAX };
                let instructions: Vec<Instruction> = members
                    .range(first..=last)
                    .filter_map(|member| self.program(rank).instructions.get(member.instruction as usize))
                    .filter_map(|instruction| match *instruction {
                        Instruction::Issue { block, axis, lane, instance, .. } => {
                            Some(Instruction::Issue { block, axis, lane, after: Vec::new(), instance })
                        }
                        Instruction::Wait(_) | Instruction::Host(_) => None,
                    })
                    .collect();
                *index_of.entry(instructions).or_insert_with_key(|instructions| {
                    programs.push(Program { instructions: instructions.clone() });
                    programs.len() as u32 - 1
                })
            })
            .collect();
        Self::new(plan, State::Alone, programs, program_of)
    }
}

/// The `Issue` of this index, if it is one.
pub(crate) fn issue(program: &Program, index: u32) -> Option<Issue<'_>> {
    match program.instructions.get(index as usize)? {
        Instruction::Issue { block, axis, lane, after, .. } => {
            Some(Issue { index, block: *block, axis: *axis, lane: *lane, after, first: true, last: true })
        }
        Instruction::Wait(_) | Instruction::Host(_) => None,
    }
}

/// Every `Issue` of a program, in order.
pub(crate) fn issues(program: &Program) -> impl Iterator<Item = Issue<'_>> {
    (0..program.instructions.len() as u32).filter_map(|index| issue(program, index))
}

/// Per use, the index of its first issue.
fn first_uses(program: &Program) -> HashMap<Use, u32> {
    let mut firsts = HashMap::new();
    for issue in issues(program) {
        firsts.entry((issue.block, issue.axis, issue.lane)).or_insert(issue.index);
    }
    firsts
}

#[cfg(test)]
mod tests {
    use maestro_pattern::Pattern;

    use super::*;

    fn turns(text: &str) -> (Plan, Vec<Turn>) {
        let pattern = Pattern::from_yaml(&format!("maestro: 1\nname: test\n{text}")).unwrap();
        let plan = Plan::new(&pattern, &[]).unwrap();
        let alone = Turn::alone(&plan, &Turn::step(&plan).unwrap()).unwrap();
        (plan, alone)
    }

    /// Names of the blocks that a rank issues in a turn.
    fn blocks<'p>(plan: &'p Plan, turn: &Turn, rank: u32) -> Vec<&'p str> {
        issues(turn.program(rank)).map(|issue| plan.blocks[issue.block as usize].name.as_str()).collect()
    }

    #[test]
    fn a_block_used_twice_alike_is_alone_once() {
        let (plan, alone) = turns(
            "
axes: {dp: {size: 2}}
blocks: {g: {all_gather: {size: 8B, dtype: u8}}, w: {compute: [{hold: 1us}]}}
lanes: {x: {}, y: {}}
schedule: [{repeat: 3, do: [{run: g, on: dp, lane: x}, {run: w, lane: y}]}, {run: w, lane: x, as: tail}]
",
        );
        let names: Vec<_> = alone.iter().map(|turn| blocks(&plan, turn, 1)).collect();
        assert_eq!(names, [vec!["g"], vec!["w"], vec!["w"]]);
        assert_eq!((alone[0].communicates(), alone[1].communicates()), (true, false));
    }

    #[test]
    fn a_lone_send_brings_its_recv_and_both_share_a_turn() {
        let (plan, alone) = turns(
            "
axes: {pp: {size: 3}, dp: {size: 2}}
blocks:
  give: {p2p: [{send: {to: 1, size: 8B, dtype: u8}}]}
  take: {p2p: [{recv: {from: -1, size: 8B, dtype: u8}}]}
lanes: {x: {}}
schedule:
  - repeat: 2
    do:
      - {run: take, on: pp, when: {pp: not first}}
      - {run: give, on: pp, when: {pp: not last}}
",
        );
        assert_eq!(alone.len(), 1);
        for (rank, expected) in [vec!["give"], vec!["take", "give"], vec!["take"]].into_iter().enumerate() {
            for dp in 0..2 {
                assert_eq!(blocks(&plan, &alone[0], 2 * rank as u32 + dp), expected);
            }
        }
    }

    #[test]
    fn ranks_without_the_block_idle() {
        let (plan, alone) = turns(
            "
axes: {pp: {size: 2}}
blocks: {loss: {compute: [{hold: 1us}]}}
lanes: {x: {}}
schedule: [{run: loss, when: {pp: last}}]
",
        );
        assert_eq!((blocks(&plan, &alone[0], 0), blocks(&plan, &alone[0], 1)), (vec![], vec!["loss"]));
    }
}
