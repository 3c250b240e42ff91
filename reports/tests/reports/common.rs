//! Runs with known measurements, worked out by hand, for the tests of this crate.

use maestro_pattern::{Measurement, Pattern, State, World};
use maestro_reports::{AxisInfo, Environment, Origin, PatternInfo, Run, RunInfo, Settings};

/// Two ranks on one axis; a reduce-scatter and an all-reduce at once beside a forward pass, and a copy.
pub const PATTERN: &str = "\
maestro: 1
name: two-at-once
source: {format: kineto, files: 2, step: ProfilerStep#2, step_us: 300}
axes:
  dp: {size: 2}
blocks:
  forward: {compute: [{hold: 150us}], captured: 140us, skew: [1.0, 1.1]}
  reduce: {all_reduce: {size: 4MiB, dtype: f32}, captured: 160us}
  scatter: {reduce_scatter: {size: 402759680, dtype: bf16}, captured: 200us}
  load: {copy: {h2d: 1MiB}}
lanes:
  compute: {}
  reduce: {}
  scatter: {}
schedule:
- {run: forward, lane: compute}
- {run: reduce, on: dp, lane: reduce}
- {run: scatter, on: dp, lane: scatter}
- {run: load, lane: compute}
";

/// The description of a run of [`PATTERN`], the same on every machine.
pub fn info(id: &str, iterations: u32, rounds: u32) -> RunInfo {
    let pattern = Pattern::from_yaml(PATTERN).unwrap();
    let world = World::new(&pattern.axes, &[]).unwrap();
    RunInfo {
        id: id.into(),
        made_by: Origin::Replay,
        pattern: PatternInfo::new(&pattern.name, PATTERN),
        axes: AxisInfo::all(&world),
        ranks: world.size(),
        processes: 1,
        backend: "threads".into(),
        maestro: "0.1.0".into(),
        started_unix_s: 1_796_000_000,
        settings: Settings {
            warm_up: 2,
            iterations,
            rounds,
            pacing: Some("gaps".into()),
            compute: Some("hold".into()),
            graph: false,
            back_to_back: 1,
        },
        environment: Environment::default(),
        clock_error_ns: None,
        notes: Vec::new(),
    }
}

/// An execution of a block without a team.
pub fn local(state: State, turn: (u32, u32), rank: u32, block: &str, start_ns: u64, end_ns: u64) -> Measurement {
    Measurement {
        round: turn.0,
        iteration: turn.1,
        rank,
        block: block.into(),
        axis: None,
        lane: "compute".into(),
        instance: 0,
        state,
        start_ns,
        end_ns,
        wait_ns: None,
        transfer_ns: None,
        size_bytes: None,
    }
}

/// An execution of a collective on `dp`, of which `wait_ns` were waiting.
pub fn collective(
    state: State,
    turn: (u32, u32),
    rank: u32,
    (block, size_bytes): (&str, u64),
    (start_ns, wait_ns, end_ns): (u64, u64, u64),
) -> Measurement {
    Measurement {
        axis: Some("dp".into()),
        lane: block.into(),
        wait_ns: Some(wait_ns),
        transfer_ns: Some(end_ns - start_ns - wait_ns),
        size_bytes: Some(size_bytes),
        ..local(state, turn, rank, block, start_ns, end_ns)
    }
}

/// All-reduce of [`PATTERN`].
pub const REDUCE: (&str, u64) = ("reduce", 4 << 20);
/// Reduce-scatter of [`PATTERN`].
pub const SCATTER: (&str, u64) = ("scatter", 402_759_680);

/// What a replay of [`PATTERN`] measures. Iteration `i` of round `r` is slower by `late = (2 r + i) us` at the end of
/// its reduce-scatter, overlapped only. Times in nanoseconds, `u` microseconds:
///
/// | | overlapped, both ranks | wait of rank 0, rank 1 | alone |
/// |---|---|---|---|
/// | forward | 0 to 150 u | | 120 u |
/// | reduce | 0 to 200 u | 20 u, 0 | 100 u |
/// | scatter | 100 u to 300 u + late | 0, 0 | 100 u |
/// | load | 300 u to 310 u, rank 0 | | 10 u |
pub fn measurements(iterations: u32, rounds: u32) -> Vec<Measurement> {
    let u = 1_000;
    let mut all = Vec::new();
    for (round, iteration) in (0..rounds).flat_map(|round| (0..iterations).map(move |iteration| (round, iteration))) {
        let turn = (round, iteration);
        let late = u64::from(2 * round + iteration) * u;
        for rank in 0..2 {
            let wait = if rank == 0 { 20 * u } else { 0 };
            let state = State::Overlapped;
            all.push(local(state, turn, rank, "forward", 0, 150 * u));
            all.push(collective(state, turn, rank, REDUCE, (0, wait, 200 * u)));
            all.push(collective(state, turn, rank, SCATTER, (100 * u, 0, 300 * u + late)));
            if rank == 0 {
                all.push(local(state, turn, rank, "load", 300 * u, 310 * u));
            }
            let state = State::Alone;
            all.push(local(state, turn, rank, "forward", 0, 120 * u));
            all.push(collective(state, turn, rank, REDUCE, (0, 0, 100 * u)));
            all.push(collective(state, turn, rank, SCATTER, (0, 0, 100 * u)));
            if rank == 0 {
                all.push(local(state, turn, rank, "load", 0, 10 * u));
            }
        }
    }
    all
}

/// A run in memory of `iterations` x `rounds`.
pub fn run(id: &str, iterations: u32, rounds: u32) -> Run {
    let pattern = Pattern::from_yaml(PATTERN).unwrap();
    Run::new(info(id, iterations, rounds), pattern, &measurements(iterations, rounds)).unwrap()
}
