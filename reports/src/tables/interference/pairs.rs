//! Gathers, step by step, which executions of one block had another beside them.

use crate::beside::{Window, beside};
use crate::exposure::{in_steps, steps};
use crate::{Role, Run};

/// A block on an axis, by index; in the order of the pattern.
pub(super) type Who = (u32, Option<u32>);

/// The executions of one block beside which another ran.
#[derive(Default)]
pub(super) struct Beside {
    /// Their rows.
    pub touched: Vec<u32>,
    /// Of those beside which it ran for at least half of their time: time and iteration.
    pub with: Vec<(u64, u32)>,
    /// For how long it ran beside any.
    pub ns: u64,
}

impl Beside {
    /// One more execution, which took `time` and had the other beside it for `ns` of that.
    fn push(&mut self, row: u32, (time, step): (u64, u32), ns: u64) {
        self.touched.push(row);
        self.ns += ns;
        if 2 * ns >= time {
            self.with.push((time, step));
        }
    }
}

/// A block and another that ran beside it.
pub(super) struct Pair {
    pub one: Who,
    pub other: Who,
    pub found: Beside,
}

/// Who ran beside whom, in the order of the pattern; at least one of each pair communicates. `numbers` are the iterations
/// of the rows.
pub(super) fn pairs(run: &Run, numbers: &[u32]) -> Vec<Pair> {
    let columns = run.measurements();
    let axes = run.world.axes().len() as u32 + 1;
    let number = |row: usize| columns.block[row] * axes + columns.axis[row].map_or(0, |axis| axis + 1);
    let who = |number: u32| (number / axes, (number % axes).checked_sub(1));
    let communicates: Vec<bool> =
        run.pattern.blocks.iter().map(|block| Role::of(&block.work) == Role::Communication).collect();
    let matters = |one: u32, other: u32| communicates[(one / axes) as usize] || communicates[(other / axes) as usize];

    // Per block those that ran beside it: so few that looking through them is fastest.
    let mut pairs: Vec<Vec<(u32, Beside)>> = Vec::new();
    pairs.resize_with(run.pattern.blocks.len() * axes as usize, Vec::new);
    let sorted = in_steps(columns);
    let (mut windows, mut timed) = (Vec::new(), Vec::new());
    for step in steps(columns, &sorted) {
        timed.clear();
        timed.extend(step.iter().map(|row| run.compared_ns(*row as usize)));
        windows.clear();
        windows.extend(step.iter().zip(&timed).map(|(row, time)| {
            let row = *row as usize;
            let end_ns = columns.end_ns[row];
            // A transfer that is not known may have taken all of the latency.
            let ns = time.unwrap_or(columns.latency_ns(row));
            Window { start_ns: end_ns.saturating_sub(ns), end_ns, who: number(row) }
        }));
        beside(&windows, |window, other, ns| {
            let one = windows[window].who;
            let Some(time) = timed[window].filter(|_| matters(one, other)) else { return };
            let row = step[window];
            let near = &mut pairs[one as usize];
            let place = near.iter().position(|(known, _)| *known == other).unwrap_or_else(|| {
                near.push((other, Beside::default()));
                near.len() - 1
            });
            near[place].1.push(row, (time, numbers[row as usize]), ns);
        });
    }
    let of_one = |(one, mut near): (u32, Vec<(u32, Beside)>)| {
        near.sort_by_key(|(other, _)| *other);
        near.into_iter().map(move |(other, found)| Pair { one: who(one), other: who(other), found })
    };
    (0..).zip(pairs).flat_map(of_one).collect()
}
