//! What the back end mpi costs beside plain MPI, and whether overlap is real on it. Two ranks or more.
//!
//! Build it by `cargo bench -p maestro-replay --no-default-features --features mpi --bench mpi --no-run`, and start what
//! that names by `mpirun -np 2`. The plain loop runs in the same job, in turns with the replays.

use std::error::Error;
use std::time::{Duration, Instant};

use maestro_pattern::{Measurement, Pattern, Plan, State};
use maestro_replay::{Crew, Launch, Settings, Spread, backend};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::CommunicatorCollectives;

/// Bytes of the all-reduces that are compared.
const SIZE: u64 = 16 << 20;
/// How often replays and plain loops take turns.
const TURNS: usize = 8;
/// All-reduces a turn.
const EACH: u32 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let launch = Launch::from_environment(&|name| std::env::var(name).ok())?;
    let Some(launch) = launch.filter(|launch| launch.world > 1) else {
        println!("skipped: mpi: mpirun did not start this");
        return Ok(());
    };
    let mpi = backend("mpi").and_then(|backend| backend.spread()).ok_or("mpi is not built in")?;
    let crew = Crew::join(launch, Duration::from_secs(60))?;
    let alone = beside_plain(mpi, &crew)?;
    overlap(mpi, &crew, alone)
}

/// One all-reduce of 16 MiB by the back end and by MPI's own blocking call, and their ratio.
fn beside_plain(mpi: &dyn Spread, crew: &Crew) -> Result<f64, Box<dyn Error>> {
    let plan = plan(crew, SIZE, "[{run: reduce, on: dp, lane: x}]")?;
    let settings = Settings { iterations: EACH, rounds: 1, verify: false, alone: false, ..Settings::default() };
    let (mut replayed, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let rows = mpi.run_one(&plan, &settings, crew)?;
        replayed.extend(rows.iter().map(|row| (row.end_ns - row.start_ns) as f64 / 1e6));
        plain.extend(blocking(crew)?);
    }
    let best = [&replayed, &plain].map(|times| times.iter().copied().fold(f64::INFINITY, f64::min));
    let medians = [median(&mut replayed), median(&mut plain)];
    for (what, [replayed, plain]) in [("median", medians), ("best", best)] {
        let ratio = replayed / plain;
        tell(
            crew,
            &format!(
                "16 MiB all-reduce of f32, {what}: replayed {replayed:.2} ms, plain {plain:.2} ms, ratio {ratio:.2}"
            ),
        );
    }
    Ok(medians[0])
}

/// Milliseconds of a loop of MPI_Allreduce. Between two of them processes meet as they do in a replay, asleep: one that
/// spins all the time is interrupted more often where others use the cores, too.
fn blocking(crew: &Crew) -> Result<Vec<f64>, Box<dyn Error>> {
    let world = SimpleCommunicator::world();
    let (from, mut to) = (vec![1.0f32; SIZE as usize / 4], vec![0.0f32; SIZE as usize / 4]);
    let mut times = Vec::new();
    for _ in 0..=EACH {
        crew.agree(Ok(()))??;
        world.barrier();
        let begun = Instant::now();
        world.all_reduce_into(&from[..], &mut to[..], SystemOperation::sum());
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    // The first touches the memory.
    Ok(times.split_off(1))
}

/// A hold of 10 ms beside an all-reduce of about 10 ms, given how long 16 MiB take.
fn overlap(mpi: &dyn Spread, crew: &Crew, whole_ms: f64) -> Result<(), Box<dyn Error>> {
    // All ranks have to run one plan, so rank 0 decides.
    let size = (SIZE as f64 * 10.0 / whole_ms) as u64 / 4 * 4;
    let size: u64 = crew.share(Some(&size.to_string()))?.parse()?;
    let both = "[{run: reduce, on: dp, lane: x}, {run: hold, lane: y}]";
    let plan = plan(crew, size, both)?;
    let settings = Settings { iterations: EACH, rounds: 4, verify: false, ..Settings::default() };
    let rows = mpi.run_one(&plan, &settings, crew)?;
    let of = |state: State, block: &'static str| move |row: &&Measurement| row.state == state && &*row.block == block;
    let ms = |ns: u64| ns as f64 / 1e6;
    let mut alone: Vec<f64> =
        rows.iter().filter(of(State::Alone, "reduce")).map(|row| ms(row.end_ns - row.start_ns)).collect();
    let steps = rows.iter().filter(|row| row.state == State::Overlapped);
    let mut ends = std::collections::BTreeMap::new();
    for row in steps {
        let end = ends.entry((row.round, row.iteration)).or_insert(0);
        *end = row.end_ns.max(*end);
    }
    let (alone, step) = (median(&mut alone), median(&mut ends.into_values().map(ms).collect::<Vec<_>>()));
    let ratio = step / alone.max(10.0);
    tell(
        crew,
        &format!(
            "a 10 ms hold beside an all-reduce of {size} B, medians: all-reduce alone {alone:.2} ms, both {step:.2} ms, {ratio:.2} of the longer"
        ),
    );
    Ok(())
}

fn plan(crew: &Crew, size: u64, schedule: &str) -> Result<Plan, Box<dyn Error>> {
    let ranks = crew.launch().world;
    let text = format!(
        "maestro: 1
name: mpi
axes: {{dp: {{size: {ranks}}}}}
lanes: {{x: {{}}, y: {{}}}}
blocks:
  reduce: {{all_reduce: {{size: {size}, dtype: f32}}}}
  hold: {{compute: [{{hold: 10ms}}]}}
schedule: {schedule}
"
    );
    Ok(Plan::new(&Pattern::from_yaml(&text)?, &[])?)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn tell(crew: &Crew, text: &str) {
    if crew.leads() {
        println!("{text}");
    }
}
