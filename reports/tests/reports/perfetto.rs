//! Timelines of hand-made runs, read back by an independent decoder.

use std::collections::BTreeSet;

use maestro_pattern::{Measurement, Pattern, Plan, State};
use maestro_reports::{Origin, Run, Traced, perfetto};

use crate::common::{collective, info, local, measurements, run};
use crate::timeline::{Slice, Timeline, read};

/// What is drawn of an execution, without its place in time: process, thread, name, round, iteration, instance, state,
/// start, length, wait, transfer, size.
type Drawn = (String, String, String, [u64; 3], String, [u64; 2], [Option<u64>; 3]);

fn expected(process: &str, m: &Measurement) -> Drawn {
    let alone = if m.state == State::Alone { " alone" } else { "" };
    (
        format!("{process} rank {}", m.rank),
        format!("{}{alone}", m.lane),
        m.block.to_string(),
        [m.round.into(), m.iteration.into(), m.instance.into()],
        m.state.name().to_owned(),
        [m.start_ns, m.end_ns - m.start_ns],
        [m.wait_ns, m.transfer_ns, m.size_bytes],
    )
}

fn drawn(timeline: &Timeline) -> Vec<Drawn> {
    let number = |slice: &Slice, name: &str| slice.number(name).unwrap();
    let mut all: Vec<Drawn> = timeline
        .executions()
        .map(|slice| {
            // The iteration around it, from the row of the process: where it began is the measurement's 0.
            let turn = timeline.slices.iter().rfind(|turn| {
                turn.category == "turn"
                    && turn.process == slice.process
                    && turn.begin_ns <= slice.begin_ns
                    && slice.end_ns <= turn.end_ns
            });
            let turn = turn.expect("every execution is in a turn");
            assert_eq!(
                (turn.number("round"), turn.number("iteration")),
                (slice.number("round"), slice.number("iteration"))
            );
            let alone = slice.notes["state"] == "alone";
            assert_eq!(turn.name, if alone { format!("{} alone", slice.name) } else { "step".to_owned() });
            assert_eq!(slice.begin_ns - turn.begin_ns, number(slice, "start_ns"));
            (
                slice.process.clone(),
                slice.thread.clone(),
                slice.name.clone(),
                ["round", "iteration", "instance"].map(|name| number(slice, name)),
                slice.notes["state"].clone(),
                [slice.begin_ns - turn.begin_ns, slice.end_ns - slice.begin_ns],
                ["wait_ns", "transfer_ns", "size_bytes"].map(|name| slice.number(name)),
            )
        })
        .collect();
    all.sort();
    all
}

#[test]
fn every_execution_is_drawn_where_it_was_to_the_nanosecond() {
    let runs = [run("a", 3, 2)];
    let timeline = read(&perfetto(&Traced::runs(&runs)));
    let mut all: Vec<Drawn> = measurements(3, 2).iter().map(|m| expected("replayed", m)).collect();
    all.sort();
    assert_eq!(drawn(&timeline), all);
}

#[test]
fn turns_follow_each_other_in_the_order_in_which_they_ran() {
    let runs = [run("a", 2, 2)];
    let timeline = read(&perfetto(&Traced::runs(&runs)));
    let rank_0: Vec<&Slice> =
        timeline.slices.iter().filter(|s| s.category == "turn" && s.process == "replayed rank 0").collect();
    let names: Vec<&str> = rank_0.iter().map(|turn| turn.name.as_str()).collect();
    let round = ["step", "forward alone", "reduce alone", "scatter alone", "load alone"];
    let round: Vec<&str> = round.iter().flat_map(|name| [*name, *name]).collect();
    assert_eq!(names, [round.clone(), round].concat());
    assert!(rank_0.windows(2).all(|two| two[0].end_ns < two[1].begin_ns));
    // The step lasts 310 us on rank 0; a twentieth and a nanosecond later comes the next.
    assert_eq!((rank_0[0].begin_ns, rank_0[0].end_ns), (0, 310_000));
    assert_eq!((rank_0[1].begin_ns, rank_0[1].number("iteration")), (325_501, Some(1)));
    // Rank 1 loads nothing, so its step is shorter, but all turns begin together.
    let rank_1: Vec<&Slice> =
        timeline.slices.iter().filter(|s| s.category == "turn" && s.process == "replayed rank 1").collect();
    assert_eq!((rank_1[0].end_ns, rank_1[1].end_ns), (300_000, 325_501 + 301_000));
    let begins = |turns: &[&Slice]| turns.iter().map(|turn| turn.begin_ns).collect::<BTreeSet<u64>>();
    assert!(begins(&rank_1).is_subset(&begins(&rank_0)) && rank_1.len() == 16);
}

#[test]
fn kinds_types_and_waits_are_told() {
    let runs = [run("a", 1, 1)];
    let timeline = read(&perfetto(&Traced::runs(&runs)));
    let of = |name: &str| {
        let found = timeline.slices.iter().position(|s| s.name == name && s.process == "replayed rank 0");
        found.map(|n| (n, &timeline.slices[n])).unwrap()
    };
    let kinds = ["forward", "reduce", "scatter", "load"].map(|name| of(name).1.category.as_str());
    assert_eq!(kinds, ["compute", "all_reduce", "reduce_scatter", "copy"]);
    let (at, reduce) = of("reduce");
    assert_eq!((reduce.notes["dtype"].as_str(), reduce.notes["axis"].as_str()), ("f32", "dp"));
    assert_eq!(of("scatter").1.notes["dtype"], "bf16");
    assert!(!of("forward").1.notes.contains_key("dtype"));
    // The one execution that waits does so for its first 20 us.
    let waits: Vec<&Slice> = timeline.slices.iter().filter(|s| s.category == "wait").collect();
    assert_eq!(waits.len(), 1);
    assert_eq!((waits[0].inside, waits[0].name.as_str()), (Some(at), "wait"));
    assert_eq!((waits[0].begin_ns, waits[0].end_ns), (0, 20_000));
}

#[test]
fn ranks_of_several_runs_stand_side_by_side() {
    let made = |id: &str, made_by| {
        let mut info = info(id, 1, 1);
        info.made_by = made_by;
        let pattern = Pattern::from_yaml(crate::common::PATTERN).unwrap();
        Run::new(info, pattern, &measurements(1, 1)).unwrap()
    };
    let names = |runs: &[Run]| -> Vec<String> {
        read(&perfetto(&Traced::runs(runs))).processes.into_iter().map(|process| process.name).collect()
    };
    let runs = [made("x", Origin::Import), made("y", Origin::Replay)];
    assert_eq!(names(&runs), ["captured rank 0", "replayed rank 0", "captured rank 1", "replayed rank 1"]);
    let runs = [made("old", Origin::Replay), made("new", Origin::Replay), made("new", Origin::Replay)];
    assert_eq!(names(&runs)[..3], ["replayed old rank 0", "replayed new rank 0", "replayed new (2) rank 0"]);
    // Lanes are in the pattern's order, those of what ran alone behind them.
    let timeline = read(&perfetto(&Traced::runs(&runs)));
    let lanes: Vec<&str> = timeline.threads.iter().take(6).map(|thread| thread.name.as_str()).collect();
    assert_eq!(lanes, ["compute", "reduce", "scatter", "compute alone", "reduce alone", "scatter alone"]);
    // The n-th step of all begins at once, and the same runs give the same bytes.
    let steps: BTreeSet<u64> = timeline.slices.iter().filter(|s| s.name == "step").map(|step| step.begin_ns).collect();
    assert_eq!(steps, BTreeSet::from([0]));
    assert_eq!(perfetto(&Traced::runs(&runs)), perfetto(&Traced::runs(&runs)));
}

/// Two layers behind their gathers, the second gather behind the first layer; then the host waits for the last layer.
const CHAIN: &str = "\
maestro: 1
name: chain
axes: {dp: {size: 2}}
blocks:
  gather: {all_gather: {size: 4KiB, dtype: bf16}}
  layer: {compute: [{hold: 1us}]}
  scatter: {reduce_scatter: {size: 4KiB, dtype: bf16}}
lanes: {compute: {}, gather: {}, scatter: {}}
schedule:
- repeat: 2
  do:
  - {run: gather, on: dp, lane: gather, after: [\"layer[-1]\"]}
  - {run: layer, lane: compute, after: [gather]}
- {wait: layer}
- {host: 5us}
- {run: scatter, on: dp, lane: scatter, after: [layer]}
- {run: gather, on: dp, lane: gather}
";

fn chain(turn: (u32, u32), rank: u32, times: [(u64, u64); 6]) -> Vec<Measurement> {
    let names = ["gather", "layer", "gather", "layer", "scatter", "gather"];
    names
        .iter()
        .zip(times)
        .enumerate()
        .map(|(n, (name, (start_ns, end_ns)))| {
            let instance = names[..n].iter().filter(|other| *other == name).count() as u32;
            let m = if *name == "layer" {
                local(State::Overlapped, turn, rank, name, start_ns, end_ns)
            } else {
                collective(State::Overlapped, turn, rank, (name, 4096), (start_ns, 0, end_ns))
            };
            Measurement { instance, ..m }
        })
        .collect()
}

fn chained(measurements: &[Measurement]) -> Timeline {
    let pattern = Pattern::from_yaml(CHAIN).unwrap();
    let plan = Plan::new(&pattern, &[]).unwrap();
    read(&perfetto(&[Traced::new("t", &pattern, Some(&plan), measurements)]))
}

const ALL: [&str; 4] = ["gather.0 -> layer.0", "gather.1 -> layer.1", "layer.0 -> gather.1", "layer.1 -> scatter.0"];

#[test]
fn arrows_go_from_what_ended_to_what_it_held_up() {
    let mut all = chain((0, 0), 0, [(10, 20), (20, 30), (30, 40), (40, 50), (60, 70), (60, 70)]);
    // The same instant throughout: causes that take no time still come first.
    all.extend(chain((0, 0), 1, [(10, 10); 6]));
    all.extend(chain((0, 1), 0, [(0, 1), (1, 2), (2, 3), (3, 4), (5, 6), (5, 6)]));
    let timeline = chained(&all);
    // The wait of the host and the `after` of the scatter are one arrow; the lane's own order needs none.
    assert_eq!(timeline.arrows("t rank 1"), ALL);
    let mut twice = [ALL, ALL].concat();
    twice.sort_unstable();
    assert_eq!(timeline.arrows("t rank 0"), twice);
    // Arrows stay in their iteration.
    for (cause, effect) in &timeline.flows {
        assert_eq!(timeline.slices[*cause].number("iteration"), timeline.slices[*effect].number("iteration"));
    }
}

#[test]
fn what_the_times_contradict_or_nobody_measured_has_no_arrow() {
    // The second gather began before the end of the first layer.
    let mut all = chain((0, 0), 0, [(10, 20), (20, 30), (29, 40), (40, 50), (60, 70), (60, 70)]);
    assert_eq!(chained(&all).arrows("t rank 0"), [ALL[0], ALL[1], ALL[3]]);
    all.remove(0);
    assert_eq!(chained(&all).arrows("t rank 0"), [ALL[1], ALL[3]]);
    let pattern = Pattern::from_yaml(CHAIN).unwrap();
    assert!(read(&perfetto(&[Traced::new("t", &pattern, None, all)])).flows.is_empty());
}

#[test]
fn a_host_wait_alone_holds_up_the_next_issue() {
    let text = CHAIN.replace(", after: [layer]}", "}");
    let pattern = Pattern::from_yaml(&text).unwrap();
    let plan = Plan::new(&pattern, &[]).unwrap();
    let all = chain((0, 0), 0, [(10, 20), (20, 30), (30, 40), (40, 50), (60, 70), (60, 70)]);
    assert_eq!(read(&perfetto(&[Traced::new("t", &pattern, Some(&plan), all)])).arrows("t rank 0"), ALL);
}

#[test]
fn whatever_the_times_are_slices_nest_and_keep_them() {
    // A fixed sequence of numbers that look random (Knuth's MMIX).
    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut all = Vec::new();
    for n in 0..400u32 {
        let times: [(u64, u64); 6] = std::array::from_fn(|_| {
            let start = next(50);
            (start, start + next(20))
        });
        for mut m in chain((n / 40, n % 4), n % 3 % 2, times) {
            m.wait_ns = m.wait_ns.map(|_| next(30));
            m.state = if next(4) == 0 { State::Alone } else { State::Overlapped };
            all.push(m);
        }
    }
    let timeline = chained(&all);
    let mut lengths: Vec<u64> = timeline.executions().map(|s| s.end_ns - s.begin_ns).collect();
    let mut right: Vec<u64> = all.iter().map(Measurement::latency_ns).collect();
    lengths.sort_unstable();
    right.sort_unstable();
    assert_eq!(lengths, right);
    assert!(timeline.threads.iter().any(|thread| thread.name == "gather (2)"));
}

#[test]
fn times_at_the_end_of_all_time_break_nothing() {
    let all = chain((0, 0), 0, [(0, u64::MAX - 1), (u64::MAX - 1, u64::MAX - 1), (1, 2), (3, 4), (5, 6), (7, 8)]);
    let later = chain((1, 0), 0, [(0, 5), (5, u64::MAX - 1), (1, 2), (3, 4), (5, 6), (7, 8)]);
    assert_eq!(chained(&[all, later].concat()).executions().count(), 12);
}

#[test]
fn lanes_that_the_pattern_lacks_come_last() {
    let mut all = chain((0, 0), 0, [(10, 20), (20, 30), (30, 40), (40, 50), (60, 70), (60, 70)]);
    (all[0].lane, all[2].lane) = ("z".into(), "a".into());
    let names: Vec<String> = chained(&all).threads.into_iter().map(|thread| thread.name).collect();
    assert_eq!(names, ["compute", "gather", "scatter", "a", "z"]);
}

#[test]
fn nothing_measured_is_an_empty_timeline() {
    let timeline = chained(&[]);
    assert!(timeline.processes.is_empty() && timeline.slices.is_empty());
}
