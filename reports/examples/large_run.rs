//! Writes a run folder as large as a long job leaves, to time reports on: `large_run FOLDER [MILLIONS]`.
//!
//! Eight ranks on two axes run 48 blocks a step on four lanes, of which communication overlaps compute and itself, and
//! every block alone; times vary by a fixed generator, so the folder is the same everywhere.

use std::error::Error;
use std::path::Path;

use maestro_pattern::{Measurement, Pattern, State, World};
use maestro_reports::{AxisInfo, Environment, Origin, PatternInfo, RunInfo, RunWriter, Settings};

/// Blocks of each kind: as many gathers, scatters and all-reduces as compute blocks.
const LAYERS: u32 = 12;
const RANKS: u32 = 8;
/// Executions of each block in a step.
const INSTANCES: u32 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("give the folder to write")?;
    let millions: f64 = args.next().map_or(Ok(10.0), |millions| millions.parse())?;
    let text = pattern();
    let pattern = Pattern::from_yaml(&text)?;
    let world = World::new(&pattern.axes, &[])?;
    // Each iteration has every block overlapped, `INSTANCES` times, and once alone.
    let each = u64::from(RANKS * 4 * LAYERS * (INSTANCES + 1));
    let iterations = ((millions * 1e6) as u64).div_ceil(each) as u32;
    let info = RunInfo {
        id: "large".into(),
        made_by: Origin::Replay,
        pattern: PatternInfo::new(&pattern.name, &text),
        axes: AxisInfo::all(&world),
        ranks: RANKS,
        processes: RANKS,
        backend: "threads".into(),
        maestro: env!("CARGO_PKG_VERSION").into(),
        started_unix_s: 1_796_000_000,
        settings: Settings { iterations, rounds: 1, ..Settings::default() },
        environment: Environment::default(),
        clock_error_ns: None,
        notes: Vec::new(),
    };
    let writer = RunWriter::create(Path::new(&folder), &info, &text)?;
    for rank in 0..RANKS {
        writer.write_part(rank, &measured(rank, iterations))?;
    }
    Ok(())
}

/// Layers of compute, each with a gather before, a scatter after and an all-reduce on the other axis.
fn pattern() -> String {
    let mut text = String::from("maestro: 1\nname: large\naxes:\n  dp: {size: 4}\n  tp: {size: 2}\nblocks:\n");
    for layer in 0..LAYERS {
        text += &format!("  compute{layer}: {{compute: [{{hold: 1ms}}], captured: 1ms}}\n");
        text += &format!("  gather{layer}: {{all_gather: {{size: 64MiB, dtype: bf16}}, captured: 1ms}}\n");
        text += &format!("  scatter{layer}: {{reduce_scatter: {{size: 64MiB, dtype: f32}}, captured: 1ms}}\n");
        text += &format!("  reduce{layer}: {{all_reduce: {{size: 8MiB, dtype: bf16}}, captured: 1ms}}\n");
    }
    text += "lanes: {compute: {}, gather: {}, scatter: {}, reduce: {}}\nschedule:\n";
    for layer in (0..LAYERS).flat_map(|layer| [layer; INSTANCES as usize]) {
        text += &format!("- {{run: gather{layer}, on: dp, lane: gather}}\n- {{run: compute{layer}, lane: compute}}\n");
        text += &format!("- {{run: scatter{layer}, on: dp, lane: scatter}}\n");
        text += &format!("- {{run: reduce{layer}, on: tp, lane: reduce}}\n");
    }
    text
}

/// What one rank measures.
fn measured(rank: u32, iterations: u32) -> Vec<Measurement> {
    let kinds = [("compute", None), ("gather", Some("dp")), ("scatter", Some("dp")), ("reduce", Some("tp"))];
    let names: Vec<_> =
        (0..LAYERS).flat_map(|layer| kinds.map(|(kind, axis)| (format!("{kind}{layer}"), kind, axis))).collect();
    let mut noise = u64::from(rank) + 1;
    let mut random = |below: u64| {
        // Knuth's MMIX generator; the high bits are good enough for noise.
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (noise >> 33) % below
    };
    let mut all = Vec::new();
    for iteration in 0..iterations {
        for (state, instances) in [(State::Overlapped, INSTANCES), (State::Alone, 1)] {
            for (place, (name, kind, axis)) in names.iter().enumerate() {
                let block: std::sync::Arc<str> = name.as_str().into();
                for instance in 0..instances {
                    let slot = (place as u64 / 4 * u64::from(INSTANCES) + u64::from(instance)) * 1_200_000;
                    let start_ns = if state == State::Overlapped { slot + random(150_000) } else { 0 };
                    let wait_ns = if axis.is_some() { random(50_000) } else { 0 };
                    let transfer_ns = 800_000 + random(200_000);
                    all.push(Measurement {
                        round: 0,
                        iteration,
                        rank,
                        block: std::sync::Arc::clone(&block),
                        axis: axis.map(Into::into),
                        lane: (*kind).into(),
                        instance,
                        state,
                        start_ns,
                        end_ns: start_ns + wait_ns + transfer_ns,
                        wait_ns: axis.map(|_| wait_ns),
                        transfer_ns: axis.map(|_| transfer_ns),
                        size_bytes: axis.map(|axis| if axis == "dp" { 64 << 20 } else { 8 << 20 }),
                    });
                }
            }
        }
    }
    all
}
