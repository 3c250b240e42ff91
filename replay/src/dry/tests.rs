//! Timings computed by hand.

use maestro_pattern::{Measurement, Pattern, Plan, Program, State};

use super::Dry;
use crate::{Backend, Compute, Error, Pacing, Settings};

fn plan(text: &str) -> Plan {
    let pattern = Pattern::from_yaml(&format!("maestro: 1\nname: test\n{text}")).unwrap();
    Plan::new(&pattern, &[]).unwrap()
}

fn settings(pacing: Pacing) -> Settings {
    Settings { warmup: 0, iterations: 1, rounds: 1, alone: false, pacing, ..Settings::default() }
}

fn overlapped(plan: &Plan, pacing: Pacing) -> Vec<Measurement> {
    Dry.run(plan, &settings(pacing)).unwrap()
}

/// (rank, block, start in us, end in us).
fn times(rows: &[Measurement]) -> Vec<(u32, &str, u64, u64)> {
    rows.iter().map(|row| (row.rank, &*row.block, row.start_ns / 1_000, row.end_ns / 1_000)).collect()
}

/// (wait, transfer) in us.
fn parts(rows: &[Measurement]) -> Vec<(Option<u64>, Option<u64>)> {
    rows.iter().map(|row| (row.wait_ns.map(|ns| ns / 1_000), row.transfer_ns.map(|ns| ns / 1_000))).collect()
}

const ONE_RANK: &str = "
axes: {dp: {size: 1}}
blocks:
  a: {compute: [{hold: 10us}]}
  b: {compute: [{hold: 10us, times: 2}]}
  c: {compute: [{hold: 5us}]}
lanes: {x: {}, y: {}}
schedule:
  - {run: a, lane: x}
  - {host: 3us}
  - {run: b, lane: y, after: [a]}
  - {run: c, lane: x}
  - {wait: b}
  - {host: 2us}
  - {run: c, lane: y, as: last}
";

#[test]
fn lanes_dependencies_waits_and_host_time_add_up() {
    let rows = overlapped(&plan(ONE_RANK), Pacing::Gaps);
    assert_eq!(times(&rows), [(0, "a", 0, 10), (0, "b", 10, 30), (0, "c", 10, 15), (0, "c", 32, 37)]);
    assert_eq!(rows[3].instance, 1);
    assert!(rows.iter().all(|row| row.axis.is_none() && row.wait_ns.is_none() && row.transfer_ns.is_none()));
}

#[test]
fn asap_leaves_host_time_out_and_keeps_waits() {
    let rows = overlapped(&plan(ONE_RANK), Pacing::Asap);
    assert_eq!(times(&rows), [(0, "a", 0, 10), (0, "b", 10, 30), (0, "c", 10, 15), (0, "c", 30, 35)]);
}

#[test]
fn asap_leaves_out_what_a_lane_idled_inside_a_block() {
    let plan = plan(
        "axes: {dp: {size: 1}}\nblocks: {a: {compute: [{memory: 8B}], captured: 10us, idle: 4us}}\nlanes: {x: {}}\n\
         schedule: [{run: a}]",
    );
    assert_eq!(times(&overlapped(&plan, Pacing::Gaps)), [(0, "a", 0, 10)]);
    assert_eq!(times(&overlapped(&plan, Pacing::Asap)), [(0, "a", 0, 6)]);
}

#[test]
fn a_collective_waits_for_the_last_rank_and_then_transfers() {
    let plan = plan(
        "axes: {dp: {size: 2}}
blocks:
  work: {compute: [{memory: 8B}], captured: 10us, skew: [1, 3]}
  gather: {all_gather: {size: 8B, dtype: u8}, captured: 4us}
lanes: {x: {}, y: {}}
schedule: [{run: work, lane: x}, {run: gather, on: dp, lane: y, after: [work]}]",
    );
    let rows = overlapped(&plan, Pacing::Gaps);
    assert_eq!(times(&rows), [(0, "work", 0, 10), (0, "gather", 10, 34), (1, "work", 0, 30), (1, "gather", 30, 34)]);
    assert_eq!(parts(&rows), [(None, None), (Some(20), Some(4)), (None, None), (Some(0), Some(4))]);
    assert_eq!((rows[1].axis.as_deref(), &*rows[1].lane, rows[1].size_bytes), (Some("dp"), "y", Some(8)));
}

const CHAIN: &str = "
axes: {pp: {size: 3}}
blocks:
  work: {compute: [{memory: 8B}], captured: 10us, skew: [1, 2, 4]}
  shift: {p2p: [{send: {to: 1, size: 8B, dtype: u8}}, {recv: {from: -1, size: 8B, dtype: u8}}], captured: 5us}
lanes: {x: {}}
schedule: [{run: work}, {run: shift, on: pp}]
";

#[test]
fn a_message_waits_for_its_own_peers_only() {
    let rows: Vec<_> =
        overlapped(&plan(CHAIN), Pacing::Gaps).into_iter().filter(|row| &*row.block == "shift").collect();
    assert_eq!(times(&rows), [(0, "shift", 10, 25), (1, "shift", 20, 45), (2, "shift", 40, 45)]);
    assert_eq!(parts(&rows), [(Some(10), Some(5)), (Some(20), Some(5)), (Some(0), Some(5))]);
}

#[test]
fn alone_each_block_lasts_as_long_as_it_was_captured() {
    let settings = Settings { alone: true, iterations: 2, rounds: 3, compute: Compute::Work, ..settings(Pacing::Gaps) };
    let rows = Dry.run(&plan(CHAIN), &settings).unwrap();
    // Two blocks, three ranks, overlapped and alone.
    assert_eq!(rows.len(), 2 * 3 * 2 * 2 * 3);
    let alone: Vec<_> =
        rows.iter().filter(|row| row.state == State::Alone && row.round == 2 && row.iteration == 1).collect();
    assert_eq!(alone.len(), 6);
    for row in alone {
        let captured = if &*row.block == "shift" { 5_000 } else { [10_000, 20_000, 40_000][row.rank as usize] };
        assert_eq!((row.start_ns, row.end_ns, row.wait_ns.unwrap_or(0)), (0, captured, 0), "{row:?}");
    }
}

#[test]
fn held_compute_is_not_run_alone() {
    let settings = Settings { alone: true, ..settings(Pacing::Gaps) };
    let rows = Dry.run(&plan(CHAIN), &settings).unwrap();
    assert!(rows.iter().filter(|row| row.state == State::Alone).all(|row| &*row.block == "shift"));
    assert_eq!(rows.iter().filter(|row| row.state == State::Alone).count(), 3);
}

#[test]
fn a_block_that_was_never_captured_is_refused_by_name() {
    let plan = plan(
        "axes: {dp: {size: 2}}\nblocks: {g: {all_gather: {size: 8B, dtype: u8}}}\nlanes: {x: {}}\n\
         schedule: [{run: g, on: dp}]",
    );
    let error = Dry.run(&plan, &settings(Pacing::Gaps)).unwrap_err().to_string();
    assert!(error.contains("block `g`") && error.contains("captured: "), "{error}");
}

#[test]
fn a_plan_that_cannot_end_names_who_waits_for_whom() {
    let mut plan = plan(CHAIN);
    let silent = Program { instructions: plan.programs[0].instructions[..1].to_vec() };
    plan.programs.push(silent);
    plan.program_of[1] = 1;
    match Dry.run(&plan, &settings(Pacing::Gaps)) {
        Err(Error::Stuck { rank: 0, block, lane, peers }) => {
            assert_eq!((&*block, &*lane, peers), ("shift", "x", vec![1]));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn five_hundred_ranks_are_quick() {
    let plan = plan(
        "axes: {dp: {size: 32}, tp: {size: 16}}
blocks:
  work: {compute: [{hold: 10us}]}
  gather: {all_gather: {size: 32KiB, dtype: bf16}, captured: 4us}
  reduce: {all_reduce: {size: 32KiB, dtype: bf16}, captured: 3us}
  shift: {p2p: [{send: {to: 1, size: 8B, dtype: u8}}, {recv: {from: -1, size: 8B, dtype: u8}}], captured: 1us}
lanes: {x: {}, y: {}, z: {}}
schedule:
  - repeat: 250
    do:
      - {run: gather, on: dp, lane: y}
      - {run: work, lane: x, after: [gather]}
      - {run: reduce, on: tp, lane: z, after: [work]}
      - {run: shift, on: tp, lane: z}
      - {wait: reduce}
",
    );
    let rows = overlapped(&plan, Pacing::Gaps);
    assert_eq!(rows.len(), 512 * 1_000);
    // The host waits for each reduce, so the next gather begins with the shift: 4 + 10 + 3 a round, one shift behind.
    assert_eq!(rows.iter().map(|row| row.end_ns).max(), Some(250 * 17_000 + 1_000));
}
