//! Verification: an endpoint around an endpoint, that loads known inputs and compares outputs.
//!
//! [`Checked`] is run by the same loop as everything else and sees a back end only through [`Endpoint`], so that every
//! back end is verified by the same code. What must come out is computed from the definition of each collective
//! ([`expect`]), never by the code that moves the data.

mod expect;
mod values;

use std::collections::BTreeMap;

use maestro_pattern::{Instruction, Plan, Program, State};

use self::expect::{Expected, Messages};
use crate::meeting::place;
use crate::{Endpoint, Error, Issue, Result, Span};

pub(crate) use self::values::noise;

/// `program` with a wait after every issue, because only what the host has waited for can be looked at. `program` is
/// that of a turn alone: nothing but issues.
pub(crate) fn awaited(program: &Program) -> Program {
    let mut instructions = Vec::with_capacity(2 * program.instructions.len());
    for issue in &program.instructions {
        let index = instructions.len() as u32;
        instructions.push(issue.clone());
        instructions.push(Instruction::Wait(index));
    }
    Program { instructions }
}

/// An endpoint that verifies every communicating block that it is issued, once the host waits for it.
pub(crate) struct Checked<'e> {
    plan: &'e Plan,
    inner: &'e mut dyn Endpoint,
    messages: Messages,
    /// What must come out of the executions since the barrier.
    expected: BTreeMap<u32, Expected>,
    executions: u64,
    bytes: u64,
}

impl<'e> Checked<'e> {
    pub(crate) fn new(plan: &'e Plan, inner: &'e mut dyn Endpoint) -> Self {
        let (messages, expected) = (Messages::default(), BTreeMap::new());
        Self { plan, inner, messages, expected, executions: 0, bytes: 0 }
    }

    /// How many executions and bytes of output were compared.
    pub(crate) fn compared(&self) -> (u64, u64) {
        (self.executions, self.bytes)
    }
}

impl Endpoint for Checked<'_> {
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    fn prepare(&mut self, program: &Program, state: State) -> Result<()> {
        self.messages = Messages::default();
        self.inner.prepare(program, state)
    }

    fn barrier(&mut self) -> Result<()> {
        self.inner.barrier()
    }

    fn issue(&mut self, issue: Issue<'_>) -> Result<()> {
        if let Some(axis) = issue.axis {
            let (communicator, seat) = place(self.plan, self.rank(), issue.block, axis, issue.lane)?;
            let ranks = self.plan.communicators[communicator as usize].ranks.len();
            let block = &self.plan.blocks[issue.block as usize];
            let expected = Expected::new(block, seat, ranks, &mut self.messages);
            self.inner.load(issue.index, &mut |input| expected.fill(input))?;
            self.expected.insert(issue.index, expected);
        }
        self.inner.issue(issue)
    }

    fn wait(&mut self, index: u32) -> Result<()> {
        self.inner.wait(index)?;
        let Some(expected) = self.expected.get(&index) else { return Ok(()) };
        let mut wrong = None;
        self.inner.inspect(index, &mut |output| wrong = expected.compare(output))?;
        if let Some(wrong) = wrong {
            return Err(Error::Mismatch {
                rank: self.inner.rank(),
                block: expected.block.clone(),
                element: wrong.element,
                expected: wrong.expected,
                found: wrong.found,
            });
        }
        self.executions += 1;
        self.bytes += expected.output_bytes();
        Ok(())
    }

    fn host(&mut self, ns: u64) -> Result<()> {
        self.inner.host(ns)
    }

    /// Beside draining, leaves noise where the known inputs were: those hold zeros and, as floats, subnormals and NaN,
    /// with which arithmetic may run at another speed.
    fn drain(&mut self) -> Result<Vec<Span>> {
        let spans = self.inner.drain()?;
        for index in std::mem::take(&mut self.expected).into_keys() {
            self.inner.load(index, &mut noise)?;
        }
        Ok(spans)
    }

    fn load(&mut self, index: u32, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.inner.load(index, fill)
    }

    fn inspect(&mut self, index: u32, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.inner.inspect(index, look)
    }
}
