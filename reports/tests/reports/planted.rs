//! Runs with planted noise, and a planted change in one block, for the tests of comparisons.

use std::sync::LazyLock;

use maestro_pattern::{Measurement, Pattern, State};
use maestro_reports::{Run, RunInfo};

use crate::common::{PATTERN, REDUCE, SCATTER, collective, info, local};

/// How far things vary from one to the next, as standard deviations relative to the value.
#[derive(Clone, Copy)]
pub struct Noise {
    /// From run to run: placement, neighbours.
    pub run: f64,
    /// From iteration to iteration of a run.
    pub iteration: f64,
    /// Chance that an iteration takes 30 % more, as when something else ran. Where half of a run's iterations do, its
    /// median does, and a single such run of six is enough to leave nothing proved; so it is small here.
    pub spike: f64,
}

/// What runs look like on a machine with nothing else on it: 1 % between runs, 2 % between iterations, a few spikes.
pub const NOISE: Noise = Noise { run: 0.01, iteration: 0.02, spike: 0.02 };

/// Uniform and normal numbers by SplitMix64.
pub struct Random(pub u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Box and Muller (1958).
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// The iterations and rounds of every run here.
const TURNS: (u32, u32) = (5, 2);

/// A run in which the reduce-scatter takes `factor` times as long inside the step as in others, and nothing else differs.
pub fn run(id: &str, factor: f64, noise: Noise, random: &mut Random) -> Run {
    let (iterations, rounds) = TURNS;
    let mut of_run = || (noise.run * random.normal()).exp();
    let (reduce, scatter, alone) = (of_run(), of_run(), of_run());
    let mut all: Vec<Measurement> = Vec::new();
    for turn in (0..rounds).flat_map(|round| (0..iterations).map(move |iteration| (round, iteration))) {
        let mut ns = |us: f64| {
            let spike = if random.uniform() < noise.spike { 1.3 } else { 1.0 };
            (us * 1e3 * spike * (noise.iteration * random.normal()).exp()) as u64
        };
        let reduce_ns = ns(200.0 * reduce);
        let scatter_ns = ns(300.0 * scatter * factor);
        let (reduce_alone, scatter_alone) = (ns(100.0 * alone), ns(150.0 * alone));
        for rank in 0..2 {
            let wait = 10_000 * u64::from(rank == 0);
            let overlapped = State::Overlapped;
            all.push(local(overlapped, turn, rank, "forward", 0, 150_000));
            all.push(collective(overlapped, turn, rank, REDUCE, (0, wait, wait + reduce_ns)));
            all.push(collective(overlapped, turn, rank, SCATTER, (100_000, 0, 100_000 + scatter_ns)));
            all.push(collective(State::Alone, turn, rank, REDUCE, (0, 0, reduce_alone)));
            all.push(collective(State::Alone, turn, rank, SCATTER, (0, 0, scatter_alone)));
        }
    }
    /// Read once: these tests make tens of thousands of runs.
    static MADE: LazyLock<(Pattern, RunInfo)> =
        LazyLock::new(|| (Pattern::from_yaml(PATTERN).unwrap(), info("", TURNS.0, TURNS.1)));
    let (pattern, info) = MADE.clone();
    Run::new(RunInfo { id: id.into(), ..info }, pattern, &all).unwrap()
}

/// `runs` runs before and as many after, made in turns; `factor` as in [`run()`], of those after.
pub fn two_sides(seed: u64, runs: u64, factor: f64, noise: Noise) -> [Vec<Run>; 2] {
    // Seeds that follow each other give streams that share nothing that matters.
    let mut random = Random(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1));
    let mut sides = [Vec::new(), Vec::new()];
    for n in 0..runs {
        for (side, factor) in [1.0, factor].into_iter().enumerate() {
            let mut run = run(&format!("{}-{}", ["a", "b"][side], n + 1), factor, noise, &mut random);
            run.info.started_unix_s += 2 * n + side as u64;
            sides[side].push(run);
        }
    }
    sides
}
