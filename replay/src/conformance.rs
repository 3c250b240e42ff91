//! One suite of small plans for all back ends: every collective, element type, reduction, root and shape of message.
//!
//! A back end is seen through [`Backend`] alone: a case is run with verification on, and passes if the back end says of
//! each of its ranks that exactly the bytes which the rank must get were compared ([`Notice::Verified`]). So a back end
//! that forgets to verify, or a rank, fails. Each process of a back end that has several looks at its own ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use maestro_pattern::{
    Axis, AxisShape, Block, Collective, CollectiveKind, CommSettings, Direction, Dtype, Item, Lane, Measurement,
    Pattern, Plan, ReduceOp, Selector, Step, Transfer, When, Work,
};

use crate::layout::Layout;
use crate::turn::issues;
use crate::{Backend, Crew, Error, Notice, Observer, Settings, Spread};

/// Sizes of teams that every collective is run on. A team of one is what a machine with one GPU can run.
pub const TEAMS: [u32; 5] = [1, 2, 3, 4, 8];

/// Elements a rank and part. Odd, and with 8 ranks no multiple of them.
const ELEMENTS: u64 = 37;

/// Elements of long cases: more than any block or period that data is worked through or repeats in.
const LONG: u64 = 20_011;

/// A small plan.
pub struct Case {
    /// What it is about.
    pub name: String,
    /// What is run.
    pub plan: Plan,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All data was right.
    Passed,
    /// The back end cannot run it here, and why.
    Skipped(String),
    /// Data was wrong, not compared, or the run failed.
    Failed(String),
}

/// Puts `backend` through every case.
pub fn run(backend: &dyn Backend) -> Vec<(Case, Outcome)> {
    cases()
        .into_iter()
        .map(|case| (outcome(backend, &case.plan), case))
        .map(|(outcome, case)| (case, outcome))
        .collect()
}

/// Puts `backend` through one plan, each of whose blocks is issued once.
pub fn outcome(backend: &dyn Backend, plan: &Plan) -> Outcome {
    judged(plan, |settings| {
        backend.probe(plan, settings).map_err(|error| Outcome::Skipped(error.to_string()))?;
        backend.run(plan, settings).map_err(failed)
    })
}

/// [`outcome`] where each rank is a process: of this one's. All processes call it together, with plans of as many ranks.
pub fn outcome_of_one(backend: &dyn Spread, plan: &Plan, crew: &Crew) -> Outcome {
    judged(plan, |settings| {
        backend.probe_one(plan, settings, crew.launch()).map_err(|error| Outcome::Skipped(error.to_string()))?;
        backend.run_one(plan, settings, crew).map_err(failed)
    })
}

fn failed(error: Error) -> Outcome {
    Outcome::Failed(error.to_string())
}

/// What becomes of a run that is told by these settings to verify its data.
fn judged(plan: &Plan, run: impl FnOnce(&Settings) -> Result<Vec<Measurement>, Outcome>) -> Outcome {
    let compared: Arc<Mutex<BTreeMap<u32, u64>>> = Arc::default();
    let seen = compared.clone();
    let notify = Observer::new(move |notice| {
        if let Notice::Verified { rank, bytes, .. } = notice {
            seen.lock().unwrap_or_else(PoisonError::into_inner).insert(rank, bytes);
        }
    });
    // Under a memory checker NCCL alone takes half a minute to begin.
    let watchdog = Duration::from_secs(150);
    let settings =
        Settings { warmup: 0, iterations: 1, rounds: 1, alone: false, watchdog, notify, ..Settings::default() };
    let rows = match run(&settings) {
        Ok(rows) => rows,
        Err(outcome) => return outcome,
    };
    let compared = compared.lock().unwrap_or_else(PoisonError::into_inner);
    let ranks: BTreeSet<u32> = rows.iter().map(|row| row.rank).collect();
    for rank in ranks {
        let (found, expected) = (compared.get(&rank).copied(), output_bytes(plan, rank));
        if found != Some(expected) {
            return Outcome::Failed(format!("rank {rank}: {found:?} B were compared of {expected} B"));
        }
    }
    Outcome::Passed
}

/// Bytes that a rank gets in all.
fn output_bytes(plan: &Plan, rank: u32) -> u64 {
    issues(plan.program(rank))
        .filter_map(|issue| {
            let axis = issue.axis? as usize;
            let (team, seat) = plan.world.seat(axis, rank)?;
            let ranks = plan.world.teams(axis)[team as usize].len();
            let layout = Layout::of(&plan.blocks[issue.block as usize].work, seat as usize, ranks);
            Some(layout.parts.iter().map(|part| part.output.len() as u64).sum::<u64>())
        })
        .sum()
}

/// Every case.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for ranks in TEAMS {
        let mut case = |name: &str, works: Vec<Work>| {
            cases.push(on_one_axis(&format!("{name}, {ranks} ranks"), ranks, works));
        };
        case("data that is moved", moved(u64::from(ranks)));
        case("reductions", reductions(u64::from(ranks)));
        case("long buffers", long(u64::from(ranks)));
        case("messages", messages());
        case("groups", groups(u64::from(ranks)));
        cases.push(chain(ranks));
    }
    cases.push(on_two_axes(2, 2));
    cases.push(on_two_axes(2, 4));
    cases
}

/// Every collective that moves data, with every element type and every root, and a barrier.
fn moved(ranks: u64) -> Vec<Work> {
    let mut works = vec![Work::Collective(Collective::new(CollectiveKind::Barrier, 0, Dtype::U8))];
    for dtype in Dtype::ALL {
        for kind in CollectiveKind::ALL {
            if kind == CollectiveKind::Barrier || kind.reduces() {
                continue;
            }
            let parts = if kind.divided() { ranks } else { 1 };
            let roots = if kind.rooted() { ranks as u32 } else { 1 };
            for root in 0..roots {
                let size = ELEMENTS * parts * dtype.bytes();
                let collective = Collective { root, ..Collective::new(kind, size, dtype) };
                if kind.may_be_in_place() {
                    works.push(Work::Collective(Collective { in_place: true, ..collective.clone() }));
                }
                works.push(Work::Collective(collective));
            }
        }
        works.push(Work::Collective(uneven(ranks, dtype, 0)));
        works.push(Work::Collective(uneven(ranks, dtype, 3)));
    }
    works
}

/// An all-to-all whose parts differ; those that divide by `none` are empty, unless that is 0.
fn uneven(ranks: u64, dtype: Dtype, none: u64) -> Collective {
    let part = |from: u64, to: u64| match 1 + 5 * from + 3 * to {
        elements if none != 0 && elements.is_multiple_of(none) => 0,
        elements => elements,
    };
    let splits: Vec<Vec<u64>> = (0..ranks).map(|from| (0..ranks).map(|to| part(from, to)).collect()).collect();
    let sent = splits.iter().map(|row| row.iter().sum::<u64>());
    let received = (0..ranks as usize).map(|to| splits.iter().map(|row| row[to]).sum::<u64>());
    let size = sent.chain(received).max().unwrap_or(0) * dtype.bytes();
    Collective { splits, ..Collective::new(CollectiveKind::AllToAll, size, dtype) }
}

/// Every reduction of every element type: over fewer elements than ranks, over odd parts, and to every root.
fn reductions(ranks: u64) -> Vec<Work> {
    let mut works = Vec::new();
    for dtype in Dtype::ALL {
        for op in ReduceOp::ALL {
            for elements in [3, ELEMENTS] {
                let size = elements * dtype.bytes();
                works.push(Collective { op, ..Collective::new(CollectiveKind::AllReduce, size, dtype) });
                works.push(Collective { op, ..Collective::new(CollectiveKind::ReduceScatter, size * ranks, dtype) });
            }
            // A root for each, all of them in the end.
            let root = works.len() as u32 / 5 % ranks as u32;
            let size = ELEMENTS * dtype.bytes();
            works.push(Collective { op, root, ..Collective::new(CollectiveKind::Reduce, size, dtype) });
        }
    }
    works.into_iter().map(Work::Collective).collect()
}

fn long(ranks: u64) -> Vec<Work> {
    let all = CollectiveKind::ALL.into_iter().filter(|kind| *kind != CollectiveKind::Barrier);
    all.flat_map(|kind| {
        let parts = if kind.divided() { ranks } else { 1 };
        [Dtype::Bf16, Dtype::F32]
            .map(|dtype| Work::Collective(Collective::new(kind, LONG * parts * dtype.bytes(), dtype)))
    })
    .collect()
}

fn send(offset: i64, size: u64, dtype: Dtype) -> Transfer {
    Transfer { direction: Direction::Send, offset, size, dtype }
}

fn recv(offset: i64, size: u64, dtype: Dtype) -> Transfer {
    Transfer { direction: Direction::Recv, offset, size, dtype }
}

/// Exchanges in which every rank runs the same block.
fn messages() -> Vec<Work> {
    let one_way = |dtype: Dtype| vec![send(1, 40, dtype), recv(-1, 40, dtype)];
    let both_ways = vec![
        recv(-1, 4000, Dtype::Bf16),
        send(1, 4000, Dtype::Bf16),
        recv(1, 24, Dtype::F32),
        send(-1, 24, Dtype::F32),
        // A second message to the same peer.
        send(1, 8, Dtype::U8),
        recv(-1, 8, Dtype::U8),
    ];
    let to_itself = vec![send(0, 16, Dtype::I64), recv(0, 16, Dtype::I64)];
    let empty = vec![send(1, 0, Dtype::F32), recv(-1, 0, Dtype::F32)];
    [false, true]
        .into_iter()
        .flat_map(|wrap| {
            let mut all: Vec<Vec<Transfer>> = Dtype::ALL.into_iter().map(one_way).collect();
            all.extend([both_ways.clone(), to_itself.clone(), empty.clone()]);
            all.into_iter().map(move |transfers| Work::P2p { transfers, wrap })
        })
        .collect()
}

/// Collectives fused into one launch.
fn groups(ranks: u64) -> Vec<Work> {
    let reduce = |op, size, dtype| Collective { op, ..Collective::new(CollectiveKind::AllReduce, size, dtype) };
    vec![
        Work::Group(vec![
            reduce(ReduceOp::Sum, ELEMENTS * 2, Dtype::Bf16),
            reduce(ReduceOp::Max, ELEMENTS * 4, Dtype::F32),
            reduce(ReduceOp::Sum, ELEMENTS * 2, Dtype::Bf16),
        ]),
        Work::Group(vec![
            Collective::new(CollectiveKind::AllGather, ELEMENTS * ranks, Dtype::I8),
            Collective::new(CollectiveKind::ReduceScatter, ELEMENTS * ranks * 4, Dtype::F32),
            uneven(ranks, Dtype::F16, 3),
            Collective {
                root: (ranks - 1) as u32,
                ..Collective::new(CollectiveKind::Broadcast, ELEMENTS * 8, Dtype::F64)
            },
        ]),
    ]
}

/// Sends and receives in blocks of their own, which only some ranks run, as the stages of a pipeline do.
fn chain(ranks: u32) -> Case {
    let (size, dtype, wrap) = (ELEMENTS * 2, Dtype::Bf16, false);
    let mut pattern = pattern(&format!("a chain of lone sends and recvs, {ranks} ranks"), &[("pp", ranks)], &["main"]);
    let receiving = Work::P2p { transfers: vec![recv(-1, size, dtype)], wrap };
    let sending = Work::P2p { transfers: vec![send(1, size, dtype)], wrap };
    add(&mut pattern, receiving, "pp", "main", When(vec![("pp".into(), Selector::NotFirst)]));
    add(&mut pattern, sending, "pp", "main", When(vec![("pp".into(), Selector::NotLast)]));
    planned(pattern)
}

/// Collectives on two axes and two lanes at once.
fn on_two_axes(dp: u32, tp: u32) -> Case {
    let mut pattern =
        pattern(&format!("two axes at once, {dp} x {tp} ranks"), &[("dp", dp), ("tp", tp)], &["outer", "inner"]);
    for (axis, lane, ranks) in [("dp", "outer", dp), ("tp", "inner", tp), ("tp", "outer", tp), ("dp", "inner", dp)] {
        for kind in CollectiveKind::ALL.into_iter().filter(|kind| *kind != CollectiveKind::Barrier) {
            let size = ELEMENTS * u64::from(ranks) * 4;
            add(&mut pattern, Work::Collective(Collective::new(kind, size, Dtype::F32)), axis, lane, When::default());
        }
        let transfers = vec![send(1, 40, Dtype::F32), recv(-1, 40, Dtype::F32)];
        add(&mut pattern, Work::P2p { transfers, wrap: true }, axis, lane, When::default());
    }
    planned(pattern)
}

fn on_one_axis(name: &str, ranks: u32, works: Vec<Work>) -> Case {
    let mut pattern = pattern(name, &[("dp", ranks)], &["main"]);
    for work in works {
        add(&mut pattern, work, "dp", "main", When::default());
    }
    planned(pattern)
}

fn pattern(name: &str, axes: &[(&str, u32)], lanes: &[&str]) -> Pattern {
    let axis = |(name, size): &(&str, u32)| Axis {
        name: (*name).into(),
        shape: AxisShape::Size(*size),
        settings: CommSettings::default(),
        place: Default::default(),
    };
    Pattern {
        name: name.into(),
        axes: axes.iter().map(axis).collect(),
        lanes: lanes.iter().map(|name| Lane { name: (*name).into(), ..Lane::default() }).collect(),
        ..Pattern::default()
    }
}

/// Adds a block and its one issue.
fn add(pattern: &mut Pattern, work: Work, axis: &str, lane: &str, when: When) {
    let name = format!("{}_{}", work.kind(), pattern.blocks.len());
    pattern.blocks.push(Block::new(name.clone(), work));
    let run = Step::Run { block: name, on: Some(axis.into()), lane: Some(lane.into()), label: None, after: Vec::new() };
    pattern.schedule.push(Item { when, ..Item::new(run) });
}

/// # Panics
/// The pattern does not pass its checks: the suite itself is wrong.
fn planned(pattern: Pattern) -> Case {
    match Plan::new(&pattern, &[]) {
        Ok(plan) => Case { name: pattern.name, plan },
        Err(error) => panic!("conformance case `{}` is no pattern: {error}", pattern.name),
    }
}
