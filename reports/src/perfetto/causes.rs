//! What a program says must end before what begins.

use std::collections::HashMap;

use maestro_pattern::{Instruction, Plan, Program};

/// The order that one program asks for. Numbers are indices of `Issue` instructions, so a cause has the smaller one.
#[derive(Clone, Debug, Default)]
pub struct Causes {
    /// The instructions that issue a block, by instance.
    issue: HashMap<String, Vec<u32>>,
    /// Per instruction what it waits for, ascending and each once: its `after`, and what the host waited for since the
    /// issue before.
    of: HashMap<u32, Vec<u32>>,
}

impl Causes {
    /// One of each program of `plan`.
    pub fn all(plan: &Plan) -> Vec<Self> {
        plan.programs.iter().map(|program| Self::new(plan, program)).collect()
    }

    fn new(plan: &Plan, program: &Program) -> Self {
        let mut this = Self::default();
        // A host wait holds up everything behind it; the first issue stands for all, since the host issues in order.
        let mut waited: Vec<u32> = Vec::new();
        for (index, instruction) in program.instructions.iter().enumerate() {
            match instruction {
                Instruction::Issue { block, after, .. } => {
                    let index = index as u32;
                    // Instances count from 0 in program order, so the place in the list is the instance.
                    this.issue.entry(plan.blocks[*block as usize].name.clone()).or_default().push(index);
                    waited.extend(after);
                    waited.sort_unstable();
                    waited.dedup();
                    if !waited.is_empty() {
                        this.of.insert(index, std::mem::take(&mut waited));
                    }
                }
                Instruction::Wait(cause) => waited.push(*cause),
                Instruction::Host(_) => {}
            }
        }
        this
    }

    /// The instruction that issued this execution of a block.
    pub fn issue(&self, block: &str, instance: u32) -> Option<u32> {
        self.issue.get(block)?.get(instance as usize).copied()
    }

    /// What must have ended before this instruction's block begins.
    pub fn of(&self, issue: u32) -> &[u32] {
        self.of.get(&issue).map_or(&[], Vec::as_slice)
    }
}
