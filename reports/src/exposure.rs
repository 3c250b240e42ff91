//! Exposed communication: what no compute of the same rank hides, and whose it is.
//!
//! Exposed = the part of a communication execution in which no compute execution of its rank runs. Where several
//! communication executions are exposed at the same instant, that instant is shared equally among them: so the exposed
//! times of all executions add up to the exposed time of the step, to the nanosecond, which sums of plain
//! "not covered" times do not. Copies and sets neither hide communication nor are they communication.

use maestro_pattern::{Kernel, Pattern, State, Work};

use crate::{Columns, Nullable};

/// What an execution is to the exposure of its step. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Can be exposed.
    Communication,
    /// Hides communication.
    Compute,
    /// Copies and sets: only part of the span.
    Neither,
}

impl Role {
    /// The role of a block's executions.
    pub fn of(work: &Work) -> Self {
        match work {
            Work::Collective(_) | Work::P2p { .. } | Work::Group(_) => Self::Communication,
            Work::Compute(kernels) if !kernels.is_empty() && kernels.iter().all(moves) => Self::Neither,
            Work::Compute(_) | Work::Cuda(_) => Self::Compute,
        }
    }
}

/// Whether a kernel is a copy or a set, which the copy engine does.
fn moves(kernel: &Kernel) -> bool {
    match kernel {
        Kernel::Copy { .. } | Kernel::Set { .. } => true,
        Kernel::Gemm { .. } | Kernel::Memory { .. } | Kernel::Hold { .. } => false,
    }
}

/// One execution on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// When it began, in nanoseconds.
    pub start_ns: u64,
    /// When it ended, in nanoseconds on the same clock.
    pub end_ns: u64,
    /// What it is.
    pub role: Role,
}

/// The figures of one step of one rank, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// From the first start to the last end.
    pub span_ns: u64,
    /// Time in which communication ran: the union of its intervals.
    pub communication_ns: u64,
    /// Time in which compute ran: the union of its intervals.
    pub compute_ns: u64,
    /// Time in which communication ran and compute did not.
    pub exposed_ns: u64,
    /// Time in which only copies and sets ran.
    pub copies_ns: u64,
}

impl Figures {
    /// Time in which nothing ran: what compute, exposed communication and copies leave of the span.
    pub fn idle_ns(&self) -> u64 {
        self.span_ns - self.compute_ns - self.exposed_ns - self.copies_ns
    }
}

/// The figures of one step of a rank, and the exposed nanoseconds of each of `intervals` (0 of all that do not
/// communicate), which add up to [`Figures::exposed_ns`] exactly.
///
/// The nanoseconds that remain when an instant is shared go to the executions that began first, of equal ones to those
/// listed first, so that the same input gives the same output.
pub fn sweep(intervals: &[Interval]) -> (Figures, Vec<u64>) {
    let mut order: Vec<u32> = (0..intervals.len() as u32).filter(|i| !is_empty(&intervals[*i as usize])).collect();
    order.sort_by_key(|i| intervals[*i as usize].start_ns);
    let mut ends = order.clone();
    ends.sort_by_key(|i| intervals[*i as usize].end_ns);

    let mut figures = Figures { span_ns: span(intervals), ..Figures::default() };
    let mut exposed = vec![0; intervals.len()];
    let mut communicating: Vec<u32> = Vec::new();
    let (mut computing, mut copying) = (0u32, 0u32);
    let mut now = 0;
    let (mut starts, mut ends) = (order.into_iter().peekable(), ends.into_iter().peekable());
    // Every execution ends after its start, so the ends outlast the starts.
    while let Some(&ending) = ends.peek() {
        let end = intervals[ending as usize].end_ns;
        let start = starts.peek().map(|i| intervals[*i as usize].start_ns).filter(|start| *start < end);
        let next = start.unwrap_or(end);
        let passed = next - now;
        if computing > 0 {
            figures.compute_ns += passed;
        }
        if !communicating.is_empty() {
            figures.communication_ns += passed;
            if computing == 0 {
                figures.exposed_ns += passed;
                share(passed, &communicating, &mut exposed);
            }
        } else if computing == 0 && copying > 0 {
            figures.copies_ns += passed;
        }
        now = next;
        if start.is_some() {
            if let Some(begun) = starts.next() {
                match intervals[begun as usize].role {
                    Role::Communication => communicating.push(begun),
                    Role::Compute => computing += 1,
                    Role::Neither => copying += 1,
                }
            }
        } else {
            ends.next();
            match intervals[ending as usize].role {
                Role::Communication => communicating.retain(|i| *i != ending),
                Role::Compute => computing -= 1,
                Role::Neither => copying -= 1,
            }
        }
    }
    (figures, exposed)
}

fn is_empty(interval: &Interval) -> bool {
    interval.end_ns <= interval.start_ns
}

fn span(intervals: &[Interval]) -> u64 {
    let first = intervals.iter().map(|i| i.start_ns).min().unwrap_or(0);
    let last = intervals.iter().map(|i| i.end_ns).max().unwrap_or(0);
    last.saturating_sub(first)
}

/// Shares `ns` equally among `running`, what remains one by one from the first.
fn share(ns: u64, running: &[u32], exposed: &mut [u64]) {
    let (each, rest) = (ns / running.len() as u64, ns % running.len() as u64);
    for (place, execution) in running.iter().enumerate() {
        exposed[*execution as usize] += each + u64::from((place as u64) < rest);
    }
}

/// One step of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankStep {
    /// Round of the interleaving.
    pub round: u32,
    /// Iteration inside the round.
    pub iteration: u32,
    /// Global rank.
    pub rank: u32,
    /// Its figures.
    pub figures: Figures,
    /// How it waited for other ranks.
    pub waits: Waits,
}

/// How a rank waited in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Executions whose wait is known.
    pub calls: u32,
    /// Those for which the others waited: this rank came last and waited for nobody.
    pub last: u32,
    /// All waiting for late ranks, in nanoseconds.
    pub wait_ns: u64,
}

impl Waits {
    fn of(columns: &Columns, rows: &[u32]) -> Self {
        let mut this = Self::default();
        for wait_ns in rows.iter().filter_map(|row| columns.wait_ns.get(*row as usize)) {
            this.calls += 1;
            this.last += u32::from(wait_ns == 0);
            this.wait_ns += wait_ns;
        }
        this
    }
}

/// The exposed communication of a whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Every overlapped step of every rank, by round, iteration and rank.
    pub steps: Vec<RankStep>,
    /// Per measurement: its exposed nanoseconds; missing for what does not communicate or ran alone.
    pub exposed_ns: Nullable,
}

impl Exposure {
    /// The overlapped iterations, each with the steps of its ranks.
    pub fn iterations(&self) -> impl Iterator<Item = &[RankStep]> {
        self.steps.chunk_by(|a, b| (a.round, a.iteration) == (b.round, b.iteration))
    }

    /// The exposure of everything that `columns` has overlapped.
    pub(crate) fn of(columns: &Columns, pattern: &Pattern) -> Self {
        let roles: Vec<Role> = pattern.blocks.iter().map(|block| Role::of(&block.work)).collect();
        let rows = in_steps(columns);
        let mut this = Self { steps: Vec::new(), exposed_ns: Nullable::missing(columns.len()) };
        let mut intervals = Vec::new();
        for step in steps(columns, &rows) {
            intervals.clear();
            intervals.extend(step.iter().map(|row| Interval {
                start_ns: columns.start_ns[*row as usize],
                end_ns: columns.end_ns[*row as usize],
                role: roles[columns.block[*row as usize] as usize],
            }));
            let (figures, exposed) = sweep(&intervals);
            let (round, iteration, rank) = place(columns, step[0]);
            this.steps.push(RankStep { round, iteration, rank, figures, waits: Waits::of(columns, step) });
            for ((row, interval), ns) in step.iter().zip(&intervals).zip(exposed) {
                if interval.role == Role::Communication {
                    this.exposed_ns.set(*row as usize, ns);
                }
            }
        }
        this
    }
}

/// Round, iteration and rank of a row.
pub(crate) fn place(columns: &Columns, row: u32) -> (u32, u32, u32) {
    let row = row as usize;
    (columns.round[row], columns.iteration[row], columns.rank[row])
}

/// The rows of everything overlapped, by round, iteration and rank.
pub(crate) fn in_steps(columns: &Columns) -> Vec<u32> {
    let rows = || (0..columns.len() as u32).filter(|row| columns.state[*row as usize] == State::Overlapped);
    let turn = |row: u32| (columns.round[row as usize], columns.iteration[row as usize]);
    let mut turns: Vec<(u32, u32)> = Vec::new();
    for row in rows() {
        // Executions of an iteration mostly follow each other.
        if turns.last() != Some(&turn(row)) {
            turns.push(turn(row));
        }
    }
    turns.sort_unstable();
    turns.dedup();
    let places = turns.len() * columns.ranks as usize;
    if places > 4 * columns.len() + 1024 {
        let mut sorted: Vec<u32> = rows().collect();
        sorted.sort_by_key(|row| place(columns, *row));
        return sorted;
    }
    // Counted into their places, which for millions of rows takes a fraction of sorting them.
    let mut last = (0, turns.first().copied().unwrap_or_default());
    let mut place_of = |row: u32| {
        if last.1 != turn(row) {
            last = (turns.partition_point(|known| *known < turn(row)), turn(row));
        }
        last.0 * columns.ranks as usize + columns.rank[row as usize] as usize
    };
    let mut next = vec![0u32; places];
    let mut total = 0;
    for row in rows() {
        next[place_of(row)] += 1;
        total += 1;
    }
    let mut before = 0;
    for count in &mut next {
        before += std::mem::replace(count, before);
    }
    let mut sorted = vec![0u32; total];
    for row in rows() {
        let next = &mut next[place_of(row)];
        sorted[*next as usize] = row;
        *next += 1;
    }
    sorted
}

/// The steps of ranks in rows that [`in_steps`] sorted.
pub(crate) fn steps<'a>(columns: &'a Columns, rows: &'a [u32]) -> impl Iterator<Item = &'a [u32]> {
    rows.chunk_by(|a, b| place(columns, *a) == place(columns, *b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(role: Role, start_ns: u64, end_ns: u64) -> Interval {
        Interval { start_ns, end_ns, role }
    }

    fn comm(start_ns: u64, end_ns: u64) -> Interval {
        interval(Role::Communication, start_ns, end_ns)
    }

    fn compute(start_ns: u64, end_ns: u64) -> Interval {
        interval(Role::Compute, start_ns, end_ns)
    }

    #[test]
    fn concurrent_communication_shares_what_compute_leaves() {
        // Compute hides [1000, 1150]; [1150, 1200] is shared by both, [1200, 1300] is the reduce-scatter's alone.
        let (figures, exposed) = sweep(&[comm(1000, 1200), comm(1100, 1300), compute(1000, 1150)]);
        assert_eq!(exposed, [25, 125, 0]);
        assert_eq!(
            figures,
            Figures { span_ns: 300, communication_ns: 300, compute_ns: 150, exposed_ns: 150, copies_ns: 0 }
        );
    }

    #[test]
    fn what_does_not_divide_goes_to_those_that_began_first() {
        // 10 ns among three: 4 to the first, 3 to the others; then 1 ns among the two that are left.
        let (figures, exposed) = sweep(&[comm(0, 11), comm(0, 10), comm(0, 11)]);
        assert_eq!(exposed, [5, 3, 3]);
        assert_eq!(figures.exposed_ns, 11);
    }

    #[test]
    fn only_compute_hides() {
        let copy = interval(Role::Neither, 0, 120);
        let (figures, exposed) = sweep(&[comm(0, 100), copy, compute(20, 50), compute(40, 60), compute(130, 135)]);
        assert_eq!(exposed, [60, 0, 0, 0, 0]);
        let expected = Figures { span_ns: 135, communication_ns: 100, compute_ns: 45, exposed_ns: 60, copies_ns: 20 };
        assert_eq!((figures, figures.idle_ns()), (expected, 10));
    }

    #[test]
    fn gaps_and_empty_executions_count_for_nothing() {
        let (figures, exposed) = sweep(&[comm(10, 20), comm(15, 15), comm(40, 50), compute(60, 70)]);
        assert_eq!(exposed, [10, 0, 10, 0]);
        assert_eq!(
            figures,
            Figures { span_ns: 60, communication_ns: 20, compute_ns: 10, exposed_ns: 20, copies_ns: 0 }
        );
        assert_eq!(sweep(&[]).0, Figures::default());
    }

    #[test]
    fn rows_come_in_the_order_of_their_steps_however_sparse_they_are() {
        let pattern = Pattern::from_yaml(
            "maestro: 1\nname: x\naxes: {dp: {size: 2}}\nblocks: {a: {compute: [{hold: 1us}]}}\nlanes: {main: {}}\n\
             schedule: [{run: a, lane: main}]\n",
        )
        .expect("a pattern");
        // Rounds, iterations and ranks in no order; then so many steps apart that counting would waste memory.
        for ranks in [2, 1 << 20] {
            let size = maestro_pattern::AxisSize { name: "dp".into(), size: ranks };
            let world = maestro_pattern::World::new(&pattern.axes, &[size]).expect("a world");
            let mut columns = Columns::new(&pattern, &world);
            for (round, iteration, rank) in [(1, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 1), (0, 0, 0), (0, 0, 1)] {
                let one = maestro_pattern::Measurement {
                    round,
                    iteration,
                    rank,
                    block: "a".into(),
                    axis: None,
                    lane: "main".into(),
                    instance: 0,
                    state: State::Overlapped,
                    start_ns: 0,
                    end_ns: 1,
                    wait_ns: None,
                    transfer_ns: None,
                    size_bytes: None,
                };
                columns.push(&one).expect("it fits");
            }
            columns.state[0] = State::Alone;
            assert_eq!(in_steps(&columns), [4, 3, 5, 1, 2], "{ranks} ranks");
        }
    }

    #[test]
    fn touching_intervals_are_one_union() {
        let (figures, exposed) = sweep(&[comm(0, 10), compute(10, 20), comm(20, 30), comm(30, 40)]);
        assert_eq!((figures.communication_ns, figures.exposed_ns), (30, 30));
        assert_eq!(exposed, [10, 0, 10, 10]);
    }
}
