//! Replays from the command line: the table, the run folder, and every view of it.

use std::fs;

use serde_json::Value;

use crate::harness::{capture, folder, golden, maestro, path};

/// A pattern small enough for any machine: a gather beside compute.
const SMALL: &str = "maestro: 1
name: small
axes: {dp: {size: 2}}
blocks:
  gather: {all_gather: {size: 64KiB, dtype: bf16}, captured: 100us}
  layer: {compute: [{hold: 2ms}]}
lanes: {compute: {}, comm: {}}
schedule:
  - repeat: 3
    do:
      - {run: gather, on: dp, lane: comm}
      - {run: layer, lane: compute, after: [\"gather[-1]\"]}
";

fn replayed(args: &[&str]) -> (tempfile::TempDir, String) {
    let here = folder();
    fs::write(here.path().join("small.yaml"), SMALL).unwrap();
    let all = ["replay", "small.yaml", "-o", "run"].iter().chain(args);
    let out = maestro(here.path(), all).ok();
    (here, out)
}

#[test]
fn a_replay_prints_the_table_and_writes_the_run() {
    let (here, out) = replayed(&["--iterations", "3"]);
    for words in ["Block", "Avg lat (ms)", "Alone (ms)", "Slowdown", "gather", "layer", "3 iterations x 2 rounds"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    for file in ["run.json", "pattern.yaml", "part-0.parquet"] {
        assert!(here.path().join("run").join(file).is_file(), "{file}");
    }
    assert_eq!(fs::read_to_string(here.path().join("run/pattern.yaml")).unwrap(), SMALL);
    let info: Value = serde_json::from_str(&fs::read_to_string(here.path().join("run/run.json")).unwrap()).unwrap();
    assert_eq!((&info["backend"], &info["ranks"]), (&"threads".into(), &2.into()));
    assert!(out.contains("Note: compute only holds its lane"), "{out}");
    assert_eq!(maestro(here.path(), ["report", "run"]).ok(), out.split("Run folder").next().unwrap());
}

#[test]
fn json_is_one_document_with_every_block() {
    let (_, out) = replayed(&["--json", "--iterations", "2"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    let names: Vec<&str> =
        document["blocks"].as_array().unwrap().iter().map(|b| b["block"].as_str().unwrap()).collect();
    assert_eq!(names, ["gather", "layer"]);
    // 3 a step, 2 ranks, 2 iterations, 2 rounds.
    assert_eq!(document["blocks"][0]["executions"], 24);
    assert!(document["blocks"][0]["alone_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn every_format_renders_the_same_run() {
    let (here, _) = replayed(&["--backend", "dry", "--iterations", "2", "--rounds", "1"]);
    // The dry back end is exact, so these are the same on every machine.
    for (format, golden_name) in [("table", "txt"), ("md", "md"), ("csv", "csv"), ("json", "json")] {
        let text = maestro(here.path(), ["report", "run", "--format", format]).ok();
        golden(&format!("report/small.{golden_name}"), &text);
    }
    let steps = maestro(here.path(), ["report", "run", "--table", "steps", "--json"]).json();
    assert!(steps.as_array().is_some_and(|rows| rows.len() == 1), "{steps}");
}

#[test]
fn the_plan_is_shown_without_running() {
    let here = folder();
    fs::write(here.path().join("small.yaml"), SMALL).unwrap();
    let out = maestro(here.path(), ["replay", "small.yaml", "--plan"]).ok();
    assert!(out.contains("2 ranks on threads") && out.contains("[0, 1]"), "{out}");
    assert!(!here.path().join("run-small").exists());
}

#[test]
fn runs_never_overwrite_each_other_by_default() {
    let here = folder();
    fs::write(here.path().join("small.yaml"), SMALL).unwrap();
    for folder in ["run-small", "run-small-2"] {
        let out = maestro(here.path(), ["replay", "small.yaml", "--backend", "dry"]).ok();
        assert!(out.contains(&format!("Run folder: {folder}\n")), "{out}");
    }
}

#[test]
fn a_capture_is_a_run() {
    let here = folder();
    let file = capture("pp_large");
    maestro(here.path(), ["import".as_ref(), file.as_os_str(), "--run".as_ref(), "captured".as_ref()]).ok();
    let out = maestro(here.path(), ["report", "captured"]).ok();
    assert!(out.contains("captured, read by kineto") && out.contains("send_next"), "{out}");
    let rows = maestro(here.path(), ["report", "captured", "--json"]).json();
    let send = rows.as_array().unwrap().iter().find(|row| row["block"] == "send_next").unwrap();
    assert_eq!(send["size_bytes"], 33_554_432);
    assert_eq!(send["alone_ms"], Value::Null);
}

#[test]
fn show_draws_captures_patterns_and_runs() {
    let (here, _) = replayed(&["--backend", "dry"]);
    for what in ["small.yaml", "run"] {
        let out = maestro(here.path(), ["show", what, "--width", "60"]).ok();
        for words in ["dp", "gather", "layer", "rank 0", "rank 1", "Timeline"] {
            assert!(out.contains(words), "{what}, {words}: {out}");
        }
    }
    let file = capture("fsdp_large");
    let args = ["show".as_ref(), file.as_os_str(), "--rank".as_ref(), "1".as_ref()];
    let out = maestro(here.path(), args).ok();
    assert!(out.contains("reduce_scatter_768M") && out.contains("rank 1") && !out.contains("rank 0  "), "{out}");
}

#[test]
fn doctor_lists_what_there_is() {
    let out = maestro(folder().path(), ["doctor"]).ok();
    for words in ["dry", "threads", "kineto", "blocks", "cores"] {
        assert!(out.contains(words), "{words}: {out}");
    }
}

#[test]
fn a_captured_step_replays_in_one_go() {
    let here = folder();
    let file = capture("pp_large");
    let args = ["--iterations", "1", "--rounds", "1", "--json"].map(std::ffi::OsStr::new);
    let document = maestro(here.path(), ["run".as_ref(), file.as_os_str()].into_iter().chain(args)).json();
    let blocks = document["blocks"].as_array().unwrap();
    let transfers = blocks.iter().filter(|block| block["kind"] == "p2p");
    assert_eq!(transfers.map(|block| block["executions"].as_u64().unwrap()).sum::<u64>(), 10);
    assert!(document["captured"]["captured_step_us"].as_f64().is_some_and(|us| (us - 118_434.622).abs() < 0.1));
    assert!(here.path().join("run-pp_large/part-0.parquet").is_file());
}

#[test]
fn hand_written_patterns_replay_on_threads() {
    for name in ["layer_overlap", "pipeline"] {
        let here = folder();
        let file = path("fixtures/patterns").join(format!("{name}.yaml"));
        let args = ["--iterations", "1", "--rounds", "1"].map(std::ffi::OsStr::new);
        let out = maestro(here.path(), ["replay".as_ref(), file.as_os_str()].into_iter().chain(args)).ok();
        assert!(out.contains("Step "), "{out}");
    }
}
