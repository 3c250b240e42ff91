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
