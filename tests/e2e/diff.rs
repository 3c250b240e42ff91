//! Before and after from the command line: comparisons, gates, and variants recorded in turns.

use std::fs;
use std::path::Path;

use maestro_reports::{Headline, Run, RunWriter};
use serde_json::Value;

use crate::common::PATTERN;
use crate::harness::{Outcome, folder, golden, maestro, maestro_with};
use crate::planted::{Noise, two_sides};

const QUIET: Noise = Noise { run: 0.003, iteration: 0.01, spike: 0.0 };

/// Writes `runs` runs a side into the folders `before` and `after`; the reduce-scatter takes `factor` times as long after.
fn planted(here: &Path, runs: u64, factor: f64) {
    for (name, side) in ["before", "after"].into_iter().zip(two_sides(7, runs, factor, QUIET)) {
        side.iter().for_each(|run| write(&here.join(name).join(&run.info.id), run));
    }
}

fn write(folder: &Path, run: &Run) {
    let writer = RunWriter::create(folder, &run.info, PATTERN).unwrap();
    writer.write_part(0, &run.measurements().iter().collect::<Vec<_>>()).unwrap();
}

/// Calls `maestro diff before --against after` with further words.
fn diff(here: &Path, more: &[&str]) -> Outcome {
    maestro(here, ["diff", "before", "--against", "after"].iter().chain(more))
}

/// The verdicts of a JSON document, as `block metric verdict`.
fn verdicts(document: &Value) -> Vec<String> {
    let word = |row: &Value, key: &str| row[key].as_str().unwrap_or("-").to_owned();
    let rows = document["rows"].as_array().unwrap();
    rows.iter().map(|row| ["block", "metric", "verdict"].map(|key| word(row, key)).join(" ")).collect()
}

#[test]
fn a_planted_change_is_found_and_printed_in_every_format() {
    let here = folder();
    planted(here.path(), 6, 1.1);
    golden("diff/planted.txt", &diff(here.path(), &[]).ok());
    golden("diff/planted.md", &diff(here.path(), &["--format", "md"]).ok());
    let document = diff(here.path(), &["--json"]).json();
    assert_eq!(
        verdicts(&document),
        ["- step worse", "reduce overlapped ~", "reduce alone ~", "scatter overlapped worse", "scatter alone ~"]
    );
    let csv = diff(here.path(), &["--format", "csv", "--metric", "busbw,slowdown", "--block", "s*"]).ok();
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(csv.starts_with("block,axis,kind,size_bytes,metric,unit,before,after,change_pct"), "{csv}");
    // The other way round it is better.
    let back = maestro(here.path(), ["diff", "after", "--against", "before", "--json"]).json();
    assert!(verdicts(&back).contains(&"scatter overlapped better".to_owned()), "{back}");
}

#[test]
fn run_folders_are_given_one_by_one_or_by_the_folder_that_holds_them() {
    let here = folder();
    planted(here.path(), 2, 1.1);
    let each = ["before/a-1", "before/a-2", "--against", "after/b-1", "after/b-2", "--json"];
    let by_one = maestro(here.path(), ["diff"].iter().chain(&each)).json();
    assert_eq!(by_one, diff(here.path(), &["--json"]).json());
    assert!(verdicts(&by_one).iter().all(|row| row.ends_with("too few")), "{by_one}");
}

#[test]
fn a_gate_ends_with_the_code_that_says_what_became_of_it() {
    let here = folder();
    planted(here.path(), 6, 1.1);
    let gate = |rules: &str, more: &[&str]| {
        fs::write(here.path().join("rules.yaml"), format!("gate: 1\nrules:\n{rules}\n")).unwrap();
        let files = ["--gate", "rules.yaml", "--junit", "gate.xml", "--markdown", "gate.md"];
        diff(here.path(), &[files.as_slice(), more].concat())
    };
    let strict = "- {name: speed, metric: overlapped, threshold: 5%}";

    let passed = gate("- {name: speed, metric: overlapped, threshold: 15%}", &[]);
    assert!(
        passed.code == 0 && passed.stdout.contains("Gate passed (exit code 0)"),
        "{}{}",
        passed.stdout,
        passed.stderr
    );

    let failed = gate(strict, &[]);
    assert_eq!((failed.code, failed.stderr.as_str()), (1, "maestro: the gate failed: speed on scatter (dp)\n"));
    assert!(
        failed.stdout.contains("Gate failed (exit code 1): 1 failed, 0 inconclusive, 1 passed."),
        "{}",
        failed.stdout
    );
    let junit = fs::read_to_string(here.path().join("gate.xml")).unwrap();
    assert!(junit.contains("tests=\"2\" failures=\"1\" errors=\"0\"") && junit.contains("<failure"), "{junit}");
    let markdown = fs::read_to_string(here.path().join("gate.md")).unwrap();
    assert!(markdown.contains("| speed | scatter (dp) | overlapped | fail |"), "{markdown}");

    let document: Value = serde_json::from_str(&gate(strict, &["--json"]).stdout).unwrap();
    assert_eq!(document["gate"]["outcome"], "fail");

    // Six runs before, five after.
    fs::remove_dir_all(here.path().join("after/b-6")).unwrap();
    let open = gate(strict, &[]);
    assert_eq!(open.code, 3, "{}", open.stderr);
    assert!(open.stderr.contains("inconclusive") && open.stdout.contains("too few"), "{}{}", open.stdout, open.stderr);

    assert!(gate("- {metric: overlaped, threshold: 5%}", &[]).refused().contains("rules.yaml: line 3, column 12"));
    let nothing = gate("- {metric: overlapped, select: {kind: broadcast}, threshold: 5%}", &[]).refused();
    assert!(nothing.contains("selects nothing"), "{nothing}");
}

#[test]
fn the_page_of_a_comparison_says_what_is_proved() {
    let here = folder();
    planted(here.path(), 6, 1.1);
    assert_eq!(
        diff(here.path(), &["--format", "html", "-o", "page.html"]).ok(),
        "Page written to page.html; open it in a browser\n"
    );
    let page = fs::read_to_string(here.path().join("page.html")).unwrap();
    let document = diff(here.path(), &["--json"]).json();
    let step = &document["rows"][0];
    let number = |key: &str| step[key].as_f64().unwrap();
    let said =
        format!("After, the step takes {:.3} ms, {:.1} % more than before", number("after"), number("change_pct"));
    assert!(page.contains(&format!("<h1>{said}")), "{said}");
    assert!(page.contains("2 worse, 0 better, of 3 no change is proved.") && !page.contains("One run a side"));

    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    let data: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    let drawn = |key: &str| data["verdicts"].as_array().unwrap().iter().map(|row| row[key].clone()).collect::<Vec<_>>();
    let rows = document["rows"].as_array().unwrap();
    for key in ["metric", "change_pct", "verdict"] {
        assert_eq!(drawn(key), rows.iter().map(|row| row[key].clone()).collect::<Vec<_>>(), "{key}");
    }
    assert_eq!(
        data["verdicts"][0]["interval_pct"],
        serde_json::json!([number("change_pct_lo"), number("change_pct_hi")])
    );

    // The run that stands for its side has the third of six steps.
    for (side, name) in [(0, "before"), (1, "after")] {
        let mut steps: Vec<(f64, String)> = fs::read_dir(here.path().join(name))
            .unwrap()
            .map(|entry| Run::open(&entry.unwrap().path()).unwrap())
            .map(|run| (Headline::of(&run).unwrap().step_median_ms, run.info.id.clone()))
            .collect();
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert_eq!(data["runs"][side]["label"], format!("{name} ({})", steps[2].1));
    }

    let few = ["diff", "before/a-1", "--against", "after/b-1", "--format", "html"];
    let few = maestro(here.path(), few).ok();
    assert!(few.contains("too few runs for a verdict</h1>") && few.contains("Too few runs: to prove any"), "{few}");
}

#[test]
fn verdicts_are_refused_where_more_changed_than_was_declared() {
    let here = folder();
    planted(here.path(), 6, 1.1);
    for n in 1..=6 {
        let file = here.path().join(format!("after/b-{n}/run.json"));
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("\"gaps\"", "\"asap\"")).unwrap();
    }
    let refused = diff(here.path(), &[]).ok();
    assert!(
        refused.contains("settings.pacing: gaps -> asap") && refused.contains("--changed settings.pacing"),
        "{refused}"
    );
    assert!(!refused.contains("worse\n") && refused.contains("refused\n"), "{refused}");
    let rules = here.path().join("rules.yaml");
    fs::write(&rules, "gate: 1\nrules: [{metric: step, threshold: 50%}]\n").unwrap();
    assert_eq!(diff(here.path(), &["--gate", "rules.yaml"]).code, 3);
    let declared = diff(here.path(), &["--changed", "settings.pacing"]).ok();
    assert!(declared.contains("Changed on purpose: settings.pacing: gaps -> asap"), "{declared}");
    assert!(declared.contains("worse\n"), "{declared}");
}

#[test]
fn bad_sides_are_refused() {
    let here = folder();
    planted(here.path(), 1, 1.0);
    let said = maestro(here.path(), ["diff", "before", "--against", "nowhere"]).refused();
    assert!(said.contains("nowhere: no such folder"), "{said}");
    let said = maestro(here.path(), ["diff", "before", "--against", "./before/a-1"]).refused();
    assert!(said.contains("given twice"), "{said}");
    let said = diff(here.path(), &["--gate", "nowhere.yaml"]).refused();
    assert!(said.contains("nowhere.yaml") && said.contains("docs/DIFF.md"), "{said}");
    for wrong in [["--metric", "speed"], ["--alpha", "5"], ["--threshold", "0.05"], ["--junit", "x.xml"]] {
        assert_eq!(diff(here.path(), &wrong).code, 2, "{wrong:?}");
    }
}

/// A pattern small enough for any machine.
const SMALL: &str = "maestro: 1
name: small
axes: {dp: {size: 2}}
blocks:
  gather: {all_gather: {size: 4KiB, dtype: bf16}}
lanes: {comm: {}}
schedule:
  - {run: gather, on: dp}
";

const FEW: [&str; 6] = ["--backend", "threads", "--iterations", "2", "--rounds", "1"];

/// Calls `maestro replay small.yaml --ab` with a few iterations and further words.
fn variants(here: &Path, a: &str, b: &str, more: &[&str]) -> Outcome {
    fs::write(here.join("small.yaml"), SMALL).unwrap();
    let words = ["replay", "small.yaml", "--ab", a, b];
    // A variable of the surroundings must not decide the tests.
    maestro_with(here, words.iter().chain(&FEW).chain(more), &[("NCCL_PROTO", "Simple")])
}

fn info(run: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(run.join("run.json")).unwrap()).unwrap()
}

#[test]
fn variants_are_recorded_in_turns_each_with_its_own_environment() {
    let here = folder();
    let document = variants(
        here.path(),
        "NCCL_ALGO=Ring",
        "NCCL_ALGO=Tree MY_KNOB=7 axis.dp.max_ctas=4",
        &["--runs", "2", "-o", "out", "--json"],
    )
    .json();
    let changed: Vec<(&str, bool)> = document["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["key"].as_str().unwrap(), change["declared"].as_bool().unwrap()))
        .collect();
    assert_eq!(changed, [("MY_KNOB", true), ("NCCL_ALGO", true), ("axis.dp.max_ctas", true)]);
    assert_eq!((&document["before"][1], &document["after"][1]), (&"a-2".into(), &"b-2".into()));
    for (run, algorithm) in [("a/a-1", "Ring"), ("a/a-2", "Ring"), ("b/b-1", "Tree"), ("b/b-2", "Tree")] {
        let environment = info(&here.path().join("out").join(run))["environment"].clone();
        assert_eq!(environment["variables"]["NCCL_ALGO"], algorithm, "{run}");
        assert_eq!(environment["variables"]["NCCL_PROTO"], "Simple", "{run}");
        assert_eq!(environment["variant"]["MY_KNOB"].as_str(), (algorithm == "Tree").then_some("7"), "{run}");
    }
    let pattern = fs::read_to_string(here.path().join("out/b/b-1/pattern.yaml")).unwrap();
    assert!(pattern.contains("max_ctas: 4"), "{pattern}");
    // Compared again from the folders, nothing needs to be declared.
    let again = maestro(here.path(), ["diff", "out/a", "--against", "out/b", "--json"]).json();
    assert_eq!(verdicts(&again), verdicts(&document));
    assert!(verdicts(&again).iter().all(|row| row.ends_with("too few")), "{again}");
}

#[test]
fn without_a_number_there_are_enough_runs() {
    let here = folder();
    let out = variants(here.path(), "", "NCCL_ALGO=Tree", &[]).ok();
    for words in [
        "Before: 6 runs (a-1, a-2, a-3, a-4, a-5, a-6)",
        "Changed on purpose: NCCL_ALGO: - -> Tree.",
        "Before: everything as it is, in ab-small/a",
        "Compare otherwise: maestro diff ab-small/a --against ab-small/b",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
    assert!(!out.contains("too few") && !out.contains("takes turns"), "{out}");
}

#[test]
fn a_launcher_starts_each_run() {
    let here = folder();
    let more = ["--runs", "1", "-o", "out", "--launch", "env NCCL_DEBUG=WARN"];
    variants(here.path(), "", "NCCL_ALGO=Tree", &more).ok();
    for run in ["a/a-1", "b/b-1"] {
        assert_eq!(info(&here.path().join("out").join(run))["environment"]["variables"]["NCCL_DEBUG"], "WARN");
    }
}

#[test]
fn turns_alternate_so_that_a_steady_drift_is_under_both() {
    let here = folder();
    // Notes which run folder it is asked for.
    fs::write(here.path().join("note.sh"), "echo \"$5\" >>order\nexec \"$@\"\n").unwrap();
    variants(here.path(), "", "X=1", &["--runs", "4", "-o", "out", "--launch", "sh note.sh"]).ok();
    let order = fs::read_to_string(here.path().join("order")).unwrap();
    let order: Vec<&str> = order.lines().map(|path| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(order, ["a-1", "b-1", "b-2", "a-2", "a-3", "b-3", "b-4", "a-4"]);
}

#[test]
fn variants_that_cannot_be_are_refused_before_or_where_they_fail() {
    let here = folder();
    for (a, b, words) in [
        ("X=1", "X=1", "both variants are the same"),
        ("", "NCCL_ALGO", "`NCCL_ALGO` is neither a variable"),
        ("", "axis.dq.max_ctas=4", "no axis `dq`; did you mean `dp`?"),
        ("", "axis.dp.max_ctas", "axis.dp.max_ctas=4"),
    ] {
        let said = variants(here.path(), a, b, &["-o", "out"]).refused();
        assert!(said.contains(words), "{a} {b}: {said}");
        assert!(!here.path().join("out").exists());
    }
    fs::create_dir_all(here.path().join("used/a")).unwrap();
    assert!(variants(here.path(), "", "X=1", &["-o", "used"]).refused().contains("choose a new folder"));
    let said = variants(here.path(), "", "X=1", &["-o", "out", "--axis", "dp=3"]).refused();
    assert!(said.contains("does not divide into 3 ranks"), "{said}");
    let said = variants(here.path(), "", "X=1", &["-o", "out", "--graph"]).refused();
    assert!(said.contains("run out/a/a-1 (everything as it is) failed: --graph is for the back end nccl"), "{said}");
    let failed = variants(here.path(), "", "X=1", &["-o", "out3", "--launch", "false"]);
    assert_eq!(failed.code, 4, "{}", failed.stderr);
    assert!(failed.stderr.contains("run out3/a/a-1 (everything as it is) failed: exit status: 1"), "{}", failed.stderr);
    let gone = variants(here.path(), "", "X=1", &["-o", "out2", "--launch", "no-such-launcher -n 2"]).refused();
    assert!(gone.contains("`no-such-launcher` cannot be started"), "{gone}");
}

#[test]
fn a_setting_is_changed_for_one_replay() {
    let here = folder();
    fs::write(here.path().join("small.yaml"), SMALL).unwrap();
    let words =
        ["replay", "small.yaml", "-o", "run", "--set", "axis.dp.algorithm=Tree", "--set", "lane.comm.priority=high"];
    maestro(here.path(), words.iter().chain(&FEW)).ok();
    let pattern = fs::read_to_string(here.path().join("run/pattern.yaml")).unwrap();
    assert!(pattern.contains("algorithm: Tree") && pattern.contains("priority: high"), "{pattern}");
    let said = maestro(here.path(), ["check", "small.yaml", "--set", "lane.com.nvls=true"]).refused();
    assert!(said.contains("--set lane.com.nvls=true: the pattern has no lane `com`; did you mean `comm`?"), "{said}");
}
