//! Whether overlap is real: two 10 ms blocks on two lanes and on one, on the threads back end.
//!
//! `cargo bench -p maestro-replay --bench overlap`

use std::error::Error;

use maestro_pattern::{Pattern, Plan};
use maestro_replay::{Settings, backend};

fn main() -> Result<(), Box<dyn Error>> {
    println!("two 10 ms blocks, two ranks, from the barrier to the later end; median and largest of 20 steps");
    for (name, second) in [("on two lanes", "y"), ("on one lane", "x")] {
        let pattern = Pattern::from_yaml(&format!(
            "maestro: 1
name: overlap
axes: {{dp: {{size: 2}}}}
blocks: {{hold: {{compute: [{{hold: 10ms}}]}}}}
lanes: {{x: {{}}, y: {{}}}}
schedule: [{{run: hold, lane: x, as: first}}, {{run: hold, lane: {second}, as: second}}]
"
        ))?;
        let plan = Plan::new(&pattern, &[])?;
        let settings = Settings { iterations: 20, rounds: 1, alone: false, ..Settings::default() };
        let rows = backend("threads").ok_or("threads is not registered")?.run(&plan, &settings)?;
        let step = |i| rows.iter().filter(|row| row.iteration == i).map(|row| row.end_ns).max().unwrap_or(0);
        let mut steps: Vec<u64> = (0..20).map(step).collect();
        steps.sort_unstable();
        println!("  {name:12}  {:.3} ms  {:.3} ms", steps[10] as f64 / 1e6, steps[19] as f64 / 1e6);
    }
    Ok(())
}
