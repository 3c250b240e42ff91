//! The full reports, with answers worked out by hand.

use maestro_pattern::{Measurement, Pattern, State, World};
use maestro_reports::{AxisInfo, PatternInfo, REPORTS, Report, Run, RunInfo, Value, View};

use crate::common::{self, REDUCE, collective, local, run};

fn report(name: &str) -> &'static dyn Report {
    REPORTS.iter().copied().find(|report| report.name() == name).unwrap()
}

/// A report of one run.
fn view(name: &str, run: Run) -> View {
    report(name).view(&[run]).unwrap()
}

/// The number in the row of `block`.
fn figure(view: &View, block: &str, key: &str) -> Option<f64> {
    let row = (0..view.rows.len()).find(|row| view.value(*row, "block") == &Value::Text(block.into())).unwrap();
    match view.value(row, key) {
        Value::Missing => None,
        Value::Integer(value) => Some(*value as f64),
        Value::Real(value) => Some(*value),
        Value::Text(text) => panic!("{key} is {text}"),
    }
}

#[track_caller]
fn close(found: Option<f64>, expected: f64) {
    let found = found.unwrap();
    assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{found} is not {expected}");
}

#[test]
fn every_report_has_its_own_name_and_fits_its_keys() {
    for report in REPORTS {
        assert_eq!(REPORTS.iter().filter(|other| other.name() == report.name()).count(), 1, "{}", report.name());
        assert!(report.about().ends_with('.'), "{}", report.name());
        let view = report.view(&[run("a", 2, 1), run("b", 2, 1)]).unwrap();
        assert!(!view.rows.is_empty() && !view.notes.is_empty());
        for shown in &view.shown {
            assert!(view.keys.iter().any(|key| key == shown.key), "{} shows `{}`", report.name(), shown.key);
        }
        assert_eq!(report.view(&[]).unwrap().rows.len(), 0);
        report.view(&[run("empty", 0, 0)]).unwrap();
    }
}

#[test]
fn blocks_are_worked_out_by_hand() {
    let view = view("blocks", run("a", 4, 3));
    let blocks: Vec<&Value> = (0..view.rows.len()).map(|row| view.value(row, "block")).collect();
    assert_eq!(blocks, ["forward", "reduce", "scatter", "load"].map(|name| Value::Text(name.into())).each_ref());
    let kinds: Vec<&Value> = (0..view.rows.len()).map(|row| view.value(row, "kind")).collect();
    assert_eq!(
        kinds,
        ["compute", "all_reduce", "reduce_scatter", "copy"].map(|name| Value::Text(name.into())).each_ref()
    );

    // 3 rounds x 4 iterations x 2 ranks.
    assert_eq!(figure(&view, "scatter", "executions"), Some(24.0));
    assert_eq!(figure(&view, "scatter", "calls_per_step"), Some(1.0));
    assert_eq!(figure(&view, "scatter", "size_bytes"), Some(402_759_680.0));
    // 200 us + late; late = 2 round + iteration, 0 to 7, on average 3.5, sorted 0 1 2 2 3 3 4 4 5 5 6 7: median 3.5.
    close(figure(&view, "scatter", "avg_ms"), 0.2035);
    assert_eq!(figure(&view, "scatter", "min_ms"), Some(0.2));
    assert_eq!(figure(&view, "scatter", "max_ms"), Some(0.207));
    close(figure(&view, "scatter", "slowdown"), 2.035);
    let late = [0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7];
    let mean = |of: fn(f64) -> f64| late.iter().map(|late| of(200.0 + f64::from(*late))).sum::<f64>() / 12.0;
    close(figure(&view, "scatter", "avg_gbps"), mean(|us| 402_759.680 / us));
    // The bus bandwidth is that of all bytes in all time, 203.5 us on average.
    close(figure(&view, "scatter", "busbw_gbps"), 402_759.680 / 203.5 / 2.0);
    close(figure(&view, "scatter", "alone_busbw_gbps"), 402_759.680 / 100.0 / 2.0);
    // Shared with the all-reduce from 150 to 200 us, then alone to 300 us + late.
    close(figure(&view, "scatter", "exposed_ms"), 0.1285);

    // 20 us of rank 0's 200 us are waiting: transfers are 180 and 200 us.
    close(figure(&view, "reduce", "avg_ms"), 0.2);
    close(figure(&view, "reduce", "slowdown"), 1.9);
    close(figure(&view, "reduce", "wait_ms"), 0.01);
    close(figure(&view, "reduce", "avg_gbps"), 4_194.304 / 200.0);
    close(figure(&view, "reduce", "busbw_gbps"), 4_194.304 / 190.0);
    close(figure(&view, "reduce", "exposed_ms"), 0.025);

    // Compute: latency is compared; it has no bandwidth, no wait, and is never exposed. Copies are compared too.
    close(figure(&view, "forward", "slowdown"), 1.25);
    for key in ["size_bytes", "avg_gbps", "busbw_gbps", "alone_busbw_gbps", "wait_ms", "exposed_ms"] {
        assert_eq!(figure(&view, "forward", key), None, "{key}");
    }
    close(figure(&view, "load", "slowdown"), 1.0);
    assert_eq!(figure(&view, "load", "exposed_ms"), None);
}

#[test]
fn spreads_bandwidths_and_counts_are_worked_out_by_hand() {
    let view = view("blocks-wide", run("a", 4, 3));
    // Transfers of the reduce-scatter are its latencies: 200 us + late, as above.
    close(figure(&view, "scatter", "overlap_median_ms"), 0.2035);
    close(figure(&view, "scatter", "overlap_avg_ms"), 0.2035);
    assert_eq!(figure(&view, "scatter", "overlap_min_ms"), Some(0.2));
    assert_eq!(figure(&view, "scatter", "overlap_max_ms"), Some(0.207));
    // 24 executions: the 23rd in order, ceil(0.95 x 24), is one of the two largest; P99 wants a hundred.
    close(figure(&view, "scatter", "overlap_p95_ms"), 0.207);
    assert_eq!(figure(&view, "scatter", "overlap_p99_ms"), None);
    // late's squares about 3.5: 2 (12.25 + 6.25 + 2 (2.25) + 2 (0.25)) = 47, twice over two ranks, over 24 - 1.
    close(figure(&view, "scatter", "overlap_cv_pct"), 100.0 * (94.0_f64 / 23.0).sqrt() / 203.5);
    close(figure(&view, "scatter", "algbw_gbps"), 402_759.680 / 203.5);
    close(figure(&view, "scatter", "alone_algbw_gbps"), 402_759.680 / 100.0);
    close(figure(&view, "scatter", "alone_median_ms"), 0.1);
    close(figure(&view, "scatter", "exposed_pct"), 100.0 * 128.5 / 310.0);
    let counts = ["ranks", "iterations", "alone_executions", "alone_iterations", "outliers"];
    let counts = counts.map(|key| figure(&view, "scatter", key));
    assert_eq!(counts, [2.0, 12.0, 24.0, 12.0, 0.0].map(Some));
    // Rank 0 waits 20 us of 200 us, rank 1 never.
    close(figure(&view, "reduce", "wait_avg_ms"), 0.01);
    close(figure(&view, "reduce", "wait_max_ms"), 0.02);
    close(figure(&view, "reduce", "wait_pct"), 5.0);
    close(figure(&view, "reduce", "transfer_ms"), 0.19);
    let text = |block: &str, key: &str| {
        let row = (0..view.rows.len()).find(|row| view.value(*row, "block") == &Value::Text(block.into())).unwrap();
        view.value(row, key).clone()
    };
    assert_eq!(text("scatter", "dtype"), Value::Text("bf16".into()));
    assert_eq!(text("scatter", "samples"), Value::Text("12x2 / 12x2".into()));
    // Transfers of 180 us on one rank and 200 us on the other.
    assert_eq!(text("reduce", "flags"), Value::Text("modes".into()));
    for key in ["ranks", "wait_pct", "transfer_ms", "algbw_gbps"] {
        assert_eq!(figure(&view, "forward", key), None, "{key}");
    }
}

#[test]
fn what_runs_beside_what_is_worked_out_by_hand() {
    let view = view("interference", run("a", 4, 3));
    let row = |block: &str, beside: &str| {
        let text = |text: &str| Value::Text(text.into());
        (0..view.rows.len())
            .find(|row| *view.value(*row, "block") == text(block) && *view.value(*row, "beside") == text(beside))
            .unwrap_or_else(|| panic!("{block} beside {beside}"))
    };
    let figure = |block, beside, key| match view.value(row(block, beside), key) {
        Value::Integer(value) => Some(*value as f64),
        Value::Real(value) => Some(*value),
        Value::Missing | Value::Text(_) => None,
    };
    // The window of rank 0's all-reduce is 20 to 200 us, of which forward covers 130 us (72 %) and the reduce-scatter 100
    // us (56 %); of rank 1's 0 to 200 us they cover 150 and 100 us. All are "with".
    close(figure("reduce", "forward", "beside_pct"), 100.0 * 280.0 / 380.0);
    close(figure("reduce", "scatter", "beside_pct"), 100.0 * 200.0 / 380.0);
    for beside in ["forward", "scatter"] {
        let counts = ["executions", "with", "partly", "without", "alone"].map(|key| figure("reduce", beside, key));
        assert_eq!(counts, [24.0, 24.0, 0.0, 0.0, 24.0].map(Some), "{beside}");
        close(figure("reduce", beside, "with_ms"), 0.19);
        close(figure("reduce", beside, "against_alone"), 1.9);
        assert_eq!(figure("reduce", beside, "against_without"), None);
    }
    // The reduce-scatter has 100 us beside the all-reduce: half of its 200 us only where it is not late.
    let counts = ["with", "partly", "without"].map(|key| figure("scatter", "reduce", key));
    assert_eq!(counts, [2.0, 22.0, 0.0].map(Some));
    // The copy runs on rank 0 from 300 to 310 us, and the reduce-scatter goes on beside it for `late`: 0 to 7 us. That is
    // nothing once, less than half of the copy seven times (1 2 2 3 3 4 4), half or more four times (5 5 6 7).
    let counts = ["with", "partly", "without"].map(|key| figure("load", "scatter", key));
    assert_eq!(counts, [4.0, 7.0, 1.0].map(Some));
    close(figure("load", "scatter", "against_without"), 1.0);
    // On rank 1 there is no copy at all, so twelve of its executions ran without, and one of rank 0's.
    let counts = ["with", "partly", "without"].map(|key| figure("scatter", "load", key));
    assert_eq!(counts, [0.0, 11.0, 13.0].map(Some));
    // Compute beside a copy is no matter of this table.
    assert!((0..view.rows.len()).all(|row| {
        [view.value(row, "block"), view.value(row, "beside")]
            != [&Value::Text("forward".into()), &Value::Text("load".into())]
    }));
}

#[test]
fn a_replay_beside_what_its_pattern_keeps_is_worked_out_by_hand() {
    let view = view("fidelity", run("a", 4, 3));
    assert_eq!(view.value(0, "level"), &Value::Text("step".into()));
    assert_eq!(view.value(0, "against"), &Value::Text("pattern".into()));
    assert_eq!((view.value(0, "captured_ms"), view.value(0, "replayed_ms")), (&Value::Real(0.3), &Value::Real(0.31)));
    // Captured 140 us, on rank 1 a tenth more, against 150 us on both.
    close(figure(&view, "forward", "captured_ms"), 0.147);
    assert!((figure(&view, "forward", "difference_ms").unwrap() - 0.003).abs() < 1e-12);
    // Transfers of 180 and 200 us against 160 us.
    close(figure(&view, "reduce", "replayed_ms"), 0.19);
    assert!((figure(&view, "reduce", "difference_pct").unwrap() - 18.75).abs() < 1e-9);
    assert_eq!(figure(&view, "load", "captured_ms"), None);
    assert_eq!(figure(&view, "reduce", "matched"), None);
}

#[test]
fn a_replay_beside_a_captured_run_is_compared_start_by_start() {
    let mut captured = run("captured", 1, 1);
    captured.info.made_by = maestro_reports::Origin::Import;
    let view = report("fidelity").view(&[captured, run("replayed", 3, 1)]).unwrap();
    assert!((0..view.rows.len()).all(|row| view.value(row, "run") == &Value::Text("replayed".into())));
    assert_eq!(view.value(0, "against"), &Value::Text("captured".into()));
    // Rank 0 ends with its copy at 310 us in all iterations, so the one in the middle stands for them: late by 1 us.
    assert_eq!(figure(&view, "scatter", "start_error_ms"), Some(0.0));
    assert_eq!(figure(&view, "scatter", "end_error_ms"), Some(0.001));
    assert_eq!((figure(&view, "scatter", "matched"), figure(&view, "scatter", "unmatched")), (Some(2.0), Some(0.0)));
    // Its mean is 1 us more, for the second and third iteration are late by 1 and 2 us.
    assert!((figure(&view, "scatter", "difference_ms").unwrap() - 0.001).abs() < 1e-12);
    let alone = report("fidelity").view(&[run_without_times()]).unwrap();
    assert!(alone.rows.is_empty() && alone.notes.iter().any(|note| note.starts_with("Nothing here was captured")));
}

/// A run of a pattern that was never captured.
fn run_without_times() -> Run {
    let pattern = Pattern::from_yaml(TEAMS).unwrap();
    let world = World::new(&pattern.axes, &[]).unwrap();
    let (axes, pattern_info) = (AxisInfo::all(&world), PatternInfo::new(&pattern.name, TEAMS));
    let info = RunInfo { axes, pattern: pattern_info, ranks: 6, ..common::info("a", 1, 1) };
    Run::new(info, pattern, &[]).unwrap()
}

#[test]
fn waits_are_told_rank_by_rank() {
    let view = view("waits", run("a", 2, 1));
    let row = |row: usize| ["iteration", "rank", "wait_ms", "calls", "last"].map(|key| view.value(row, key).clone());
    let expected = |iteration, rank, wait_ms, last| {
        [Value::Integer(iteration), Value::Integer(rank), Value::Real(wait_ms), Value::Integer(2), Value::Integer(last)]
    };
    assert_eq!(row(0), expected(0, 0, 0.02, 1));
    assert_eq!(row(3), expected(1, 1, 0.0, 2));
    assert_eq!(view.rows.len(), 4);
}

#[test]
fn quantiles_go_from_the_smallest_to_the_largest() {
    let view = view("quantiles", run("a", 4, 3));
    let times: Vec<f64> = (0..view.rows.len())
        .filter(|row| *view.value(*row, "block") == Value::Text("scatter".into()))
        .filter(|row| *view.value(*row, "state") == Value::Text("overlapped".into()))
        .map(|row| if let Value::Real(ms) = view.value(row, "time_ms") { *ms } else { panic!("no time") })
        .collect();
    // 0 1 2 2 3 3 4 4 5 5 6 7, twice: the median by nearest rank is the twelfth of 24.
    assert_eq!((times.len(), times[0], times[50], times[100]), (101, 0.2, 0.203, 0.207));
    assert!(times.is_sorted());
}

#[test]
fn exposure_is_that_of_the_axis() {
    let view = view("exposure", run("a", 4, 3));
    assert_eq!((view.rows.len(), view.value(0, "axis")), (1, &Value::Text("dp".into())));
    let figure = |key: &str| if let Value::Real(real) = view.value(0, key) { Some(*real) } else { None };
    close(figure("calls_per_step"), 2.0);
    // From 0 to 300 us + late, without a gap.
    close(figure("comm_ms"), 0.3035);
    close(figure("wait_ms"), 0.01);
    close(figure("exposed_ms"), 0.1535);
    close(figure("exposed_pct"), 100.0 * 153.5 / 310.0);
    close(figure("share_pct"), 100.0);
}

#[test]
fn exposed_times_of_blocks_add_up_to_that_of_the_step() {
    let blocks = view("blocks", run("a", 4, 3));
    let steps = view("steps", run("a", 4, 3));
    let sum: f64 = ["reduce", "scatter"].iter().filter_map(|block| figure(&blocks, block, "exposed_ms")).sum();
    let Value::Real(step) = steps.value(0, "exposed_ms") else { panic!("the step has exposed time") };
    assert!((sum - step).abs() < 1e-6, "{sum} is not {step}");
}

#[test]
fn steps_are_worked_out_by_hand() {
    let view = view("steps", run("a", 4, 3));
    let figure = |key| match view.value(0, key) {
        Value::Real(value) => Some(*value),
        Value::Integer(value) => Some(*value as f64),
        Value::Missing | Value::Text(_) => None,
    };
    assert_eq!((figure("steps"), figure("ranks")), (Some(12.0), Some(2.0)));
    // Rank 0 ends with its copy at 310 us, later than its reduce-scatter ever does.
    for key in ["step_avg_ms", "step_median_ms", "step_min_ms", "step_max_ms"] {
        close(figure(key), 0.31);
    }
    close(figure("comm_ms"), 0.3035);
    close(figure("compute_ms"), 0.15);
    close(figure("exposed_ms"), 0.1535);
    close(figure("exposed_pct"), 100.0 * 153.5 / 310.0);
}

#[test]
fn p99_needs_a_hundred_executions() {
    // 49 iterations x 2 ranks are 98; 50 are 100, of which the 99th in order is the second largest: 200 + 49 us, as
    // both ranks have the largest.
    assert_eq!(figure(&view("blocks", run("a", 49, 1)), "scatter", "p99_ms"), None);
    close(figure(&view("blocks", run("a", 50, 1)), "scatter", "p99_ms"), 0.249);
    // 75 iterations x 2 ranks are 150: the 149th is again 200 + 74 us; of 200 iterations, 400, the 396th is 200 + 197.
    close(figure(&view("blocks", run("a", 75, 1)), "scatter", "p99_ms"), 0.274);
    close(figure(&view("blocks", run("a", 200, 1)), "scatter", "p99_ms"), 0.397);
}

#[test]
fn intervals_need_three_iterations_a_side() {
    let two = view("blocks", run("a", 2, 1));
    assert_eq!((figure(&two, "scatter", "slowdown"), figure(&two, "scatter", "slowdown_lo")), (Some(2.005), None));
    assert!(two.notes.iter().any(|note| note.contains("3 iterations a side")));
    let three = view("blocks", run("a", 3, 1));
    // Iterations of 200, 201 and 202 us: 7 of 27 resamples have either extreme as their median.
    assert_eq!(figure(&three, "scatter", "slowdown_lo"), Some(2.0));
    assert_eq!(figure(&three, "scatter", "slowdown_hi"), Some(2.02));
}

#[test]
fn a_block_that_ran_only_overlapped_or_only_alone_has_a_row() {
    let pattern = Pattern::from_yaml(common::PATTERN).unwrap();
    let measured = [
        local(State::Overlapped, (0, 0), 0, "forward", 0, 1_000),
        collective(State::Alone, (0, 0), 0, REDUCE, (0, 0, 0)),
    ];
    let view = view("blocks", Run::new(common::info("a", 1, 1), pattern, &measured).unwrap());
    assert_eq!(figure(&view, "forward", "slowdown"), None);
    assert_eq!(figure(&view, "forward", "alone_ms"), None);
    assert_eq!(figure(&view, "reduce", "executions"), Some(0.0));
    assert_eq!(figure(&view, "reduce", "alone_ms"), Some(0.0));
    // No time taken: no bandwidth. No overlapped execution: no call, no latency, no exposed time.
    for key in ["alone_busbw_gbps", "calls_per_step", "avg_ms", "avg_gbps", "slowdown", "exposed_ms"] {
        assert_eq!(figure(&view, "reduce", key), None, "{key}");
    }
}

/// Ranks 0 and 1 are one team, 2 to 5 another.
const TEAMS: &str = "\
maestro: 1
name: uneven-teams
axes:
  ep: {teams: [[0, 1], [2, 3, 4, 5]]}
blocks:
  reduce: {all_reduce: {size: 4MiB, dtype: f32}}
lanes: {main: {}}
schedule:
- {run: reduce, on: ep}
- {run: reduce, on: ep}
";

#[test]
fn the_bus_factor_is_that_of_the_team() {
    let pattern = Pattern::from_yaml(TEAMS).unwrap();
    let world = World::new(&pattern.axes, &[]).unwrap();
    let (axes, pattern_info) = (AxisInfo::all(&world), PatternInfo::new(&pattern.name, TEAMS));
    let info = RunInfo { axes, pattern: pattern_info, ranks: 6, ..common::info("a", 1, 1) };
    let run_twice = |rank| {
        [0, 1].map(|instance| Measurement {
            axis: Some("ep".into()),
            instance,
            ..collective(State::Overlapped, (0, 0), rank, REDUCE, (0, 0, 1_000_000))
        })
    };
    let measured: Vec<Measurement> = [0, 2].into_iter().flat_map(run_twice).collect();
    let view = view("blocks", Run::new(info, pattern, &measured).unwrap());
    // All-reduce has 2 (n - 1) / n: 1 for two ranks, 1.5 for four. 4 MiB in 1 ms are 4.194304 GB/s.
    close(figure(&view, "reduce", "busbw_gbps"), 4.194304 * 1.25);
    // Four executions on the two ranks that ran any: two a step.
    assert_eq!(figure(&view, "reduce", "calls_per_step"), Some(2.0));
}

#[test]
fn several_runs_have_their_own_rows() {
    let view = report("blocks").view(&[run("before", 3, 1), run("after", 3, 1)]).unwrap();
    let runs: Vec<&Value> = (0..view.rows.len()).map(|row| view.value(row, "run")).collect();
    assert_eq!(
        runs,
        ["before", "before", "before", "before", "after", "after", "after", "after"]
            .map(|id| Value::Text(id.into()))
            .each_ref()
    );
    assert_eq!(view.shown[0].heading, "Run");
    let table = report("blocks").table(&[run("before", 3, 1)]).unwrap();
    assert_eq!((table.height(), table.width()), (4, 1 + report("blocks").fields().len()));
}

/// A run whose reduction takes so many microseconds inside the step, and 100 alone, in each of two iterations.
fn reducing(id: &str, us: u64) -> Run {
    let mut all: Vec<Measurement> = Vec::new();
    for turn in [(0, 0), (0, 1)] {
        for rank in 0..2 {
            all.push(collective(State::Overlapped, turn, rank, REDUCE, (0, 0, us * 1_000)));
            all.push(collective(State::Alone, turn, rank, REDUCE, (0, 0, 100_000)));
        }
    }
    let pattern = Pattern::from_yaml(common::PATTERN).unwrap();
    Run::new(RunInfo { id: id.into(), ..common::info("", 2, 1) }, pattern, &all).unwrap()
}

#[test]
fn repeated_runs_are_one_row_a_block() {
    let across = report("across");
    // Seven runs out of order: median 130, and of seven values the ends enclose the median in 98 % of cases.
    let us = [130, 100, 160, 110, 120, 150, 140];
    let runs: Vec<Run> = us.iter().enumerate().map(|(n, us)| reducing(&format!("r-{n}"), *us)).collect();
    let view = across.view(&runs).unwrap();
    let levels: Vec<&Value> = (0..view.rows.len()).map(|row| view.value(row, "level")).collect();
    assert_eq!(levels, [&Value::Text("step".into()), &Value::Text("block".into())]);
    assert_eq!(view.value(1, "run"), &Value::Text("r-0 and 6 more".into()));
    assert_eq!(view.value(1, "samples"), &Value::Text("7x2".into()));
    let of = |row: usize, key: &str| match view.value(row, key) {
        Value::Real(value) => Some(*value),
        Value::Integer(value) => Some(*value as f64),
        Value::Missing | Value::Text(_) => None,
    };
    // Sums of squares about the mean of 130 are 2,800 over six.
    let cv = 100.0 * (2_800.0_f64 / 6.0).sqrt() / 130.0;
    for (key, expected) in [
        ("runs", 7.0),
        ("iterations", 14.0),
        ("overlap_median_ms", 0.130),
        ("overlap_lo_ms", 0.100),
        ("overlap_hi_ms", 0.160),
        ("overlap_min_ms", 0.100),
        ("overlap_max_ms", 0.160),
        ("overlap_cv_pct", cv),
        ("alone_median_ms", 0.100),
        ("slowdown", 1.3),
        ("slowdown_lo", 1.0),
        ("slowdown_hi", 1.6),
    ] {
        close(of(1, key), expected);
    }
    assert!(of(1, "alone_cv_pct").is_some_and(|cv| cv < 1e-12));
    // Nothing hides it, so the step is as long, and all of it is exposed.
    for key in ["overlap_median_ms", "exposed_ms"] {
        close(of(0, key), 0.130);
    }

    // Five have no interval. A run that was given something else is no repeat.
    let mut runs: Vec<Run> = runs.into_iter().take(6).collect();
    runs[5].info.environment.variant.insert("NCCL_ALGO".into(), "Tree".into());
    let view = across.view(&runs).unwrap();
    let ids: Vec<&Value> = (0..view.rows.len()).map(|row| view.value(row, "run")).collect();
    let [many, one] = ["r-0 and 4 more", "r-5"].map(|id| Value::Text(id.into()));
    assert_eq!(ids, [&many, &many, &one, &one]);
    assert!((0..4).all(|row| *view.value(row, "overlap_lo_ms") == Value::Missing));
    assert_eq!(*view.value(3, "overlap_cv_pct"), Value::Missing);
}
