//! How fast collectives move through shared memory: 64 MiB on two ranks, on the threads back end.
//!
//! `cargo bench -p maestro-replay --bench collectives`

use std::error::Error;

use maestro_pattern::{Block, Pattern, Plan, State};
use maestro_replay::{Settings, backend};

fn main() -> Result<(), Box<dyn Error>> {
    println!("64 MiB, two ranks, each collective alone; median over ranks and 20 iterations; busbw as nccl-tests");
    let mut blocks = String::new();
    let mut schedule = String::new();
    for kind in ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast"] {
        for dtype in ["f32", "bf16", "f16", "f8e4m3"] {
            blocks += &format!("  {kind}_{dtype}: {{{kind}: {{size: 64MiB, dtype: {dtype}}}}}\n");
            schedule += &format!("  - {{run: {kind}_{dtype}, on: dp}}\n");
        }
    }
    let pattern = Pattern::from_yaml(&format!(
        "maestro: 1
name: collectives
axes: {{dp: {{size: 2}}}}
lanes: {{main: {{}}}}
blocks:
{blocks}schedule:
{schedule}"
    ))?;
    let plan = Plan::new(&pattern, &[])?;
    let settings = Settings { iterations: 10, ..Settings::default() };
    let rows = backend("threads").ok_or("threads is not registered")?.run(&plan, &settings)?;
    for Block { name, work, .. } in &plan.blocks {
        let alone = rows.iter().filter(|row| row.state == State::Alone && *row.block == **name);
        let mut times: Vec<u64> = alone.filter_map(|row| row.transfer_ns).collect();
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().ok_or("no row")?;
        let bandwidth = (64 << 20) as f64 / median as f64 * work.bus_factor(2).unwrap_or(1.0);
        println!("  {name:24}  {:8.3} ms  {bandwidth:6.2} GB/s", median as f64 / 1e6);
    }
    Ok(())
}
