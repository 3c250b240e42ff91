//! The page: what stands in it, that it is the tables, and that names cannot do harm.

use maestro_pattern::{Measurement, Pattern, State};
use maestro_reports::{Format, Origin, PageOptions, REPORTS, Run, RunInfo, Value, page};
use serde_json::Value as Json;

use crate::common::{self, collective, local, run};

fn of(runs: Vec<Run>) -> String {
    page(runs, &PageOptions::default()).unwrap()
}

/// What the scripts draw.
fn data(page: &str) -> Json {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn made_by(made_by: Origin, id: &str) -> Run {
    let pattern = Pattern::from_yaml(common::PATTERN).unwrap();
    let info = RunInfo { made_by, ..common::info(id, 2, 1) };
    Run::new(info, pattern, &common::measurements(2, 1)).unwrap()
}

fn number(json: &Json) -> u64 {
    json.as_u64().unwrap_or_else(|| panic!("{json} is no count"))
}

#[test]
fn every_cell_of_the_block_table_is_in_the_page() {
    let view = REPORTS[0].view(&[run("a", 20, 3)]).unwrap();
    let page = of(vec![run("a", 20, 3)]);
    let csv = view.render(Format::Csv);
    assert_eq!(csv.lines().count(), 1 + view.rows.len());
    for row in 0..view.rows.len() {
        for shown in view.shown.iter().filter(|shown| shown.key != "run") {
            let raw = match view.value(row, shown.key) {
                Value::Missing => String::new(),
                Value::Text(text) => text.clone(),
                Value::Integer(value) => value.to_string(),
                Value::Real(value) => value.to_string(),
            };
            assert!(page.contains(&format!("data-v=\"{raw}\">")), "{} of row {row}: {raw}", shown.key);
        }
        // The raw value is that of the other formats, digit by digit.
        let Value::Real(avg_ms) = view.value(row, "avg_ms") else { panic!("no latency in row {row}") };
        assert!(csv.contains(&avg_ms.to_string()));
    }
    for note in &view.notes {
        assert!(page.contains(&format!("<li>{}</li>", note.replace('\'', "&#39;"))), "{note}");
    }
}

#[test]
fn the_parts_of_the_step_sum_to_it() {
    let run = run("a", 4, 3);
    let steps =
        REPORTS.iter().find(|report| report.name() == "steps").unwrap().view(std::slice::from_ref(&run)).unwrap();
    let data = data(&of(vec![run]));
    let fall = &data["waterfalls"][0];
    let exposed: u64 = fall["exposed_ns"].as_array().unwrap().iter().map(number).sum();
    let part = |name: &str| number(&fall[name]);
    assert_eq!(
        part("compute_ns") + exposed + part("copies_ns") + part("idle_ns") + part("shorter_ns"),
        part("step_ns")
    );
    // Worked out by hand: compute takes 150 us of every step of both ranks; scatter ends at 300 us + late, late being
    // 0 to 7 us over the turns; rank 0 copies from 300 to 310 us.
    assert_eq!(number(&fall["rank_steps"]), 24);
    assert_eq!(part("compute_ns"), 24 * 150_000);
    let late: u64 = (0..3).flat_map(|round| (0..4).map(move |iteration| 2 * round + iteration)).sum::<u64>() * 1_000;
    assert_eq!(exposed, 2 * (12 * 150_000 + late));
    assert_eq!(part("copies_ns"), 12 * 10_000 - late);
    assert_eq!(part("step_ns"), 24 * 310_000);
    let Value::Real(step_avg_ms) = steps.value(0, "step_avg_ms") else { panic!("no step") };
    assert_eq!(part("step_ns") as f64 / 24e6, *step_avg_ms);
}

#[test]
fn the_timeline_is_the_step_of_median_length_with_its_exposed_parts() {
    let data = data(&of(vec![run("a", 3, 1)]));
    let line = &data["timelines"][0];
    assert_eq!((number(&line["round"]), number(&line["iteration"])), (0, 1), "all take 310 us: the middle one");
    let rank = &line["ranks"][0];
    // Compute hides the first 150 us; what communicates then runs to 300 us and 1 us more.
    assert_eq!(rank["exposed"], serde_json::json!([150_000, 301_000]));
    let lanes: Vec<&str> =
        rank["lanes"].as_array().unwrap().iter().map(|lane| lane["name"].as_str().unwrap()).collect();
    assert_eq!(lanes, ["compute", "reduce", "scatter"]);
    // Block, start from the start before, duration, wait: forward at 0 for 150 us, the copy 300 us later.
    let names: Vec<&str> =
        data["blocks"].as_array().unwrap().iter().map(|block| block["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["forward", "reduce", "scatter", "load"]);
    assert_eq!(rank["lanes"][0]["runs"], serde_json::json!([0, 0, 150_000, 0, 3, 300_000, 10_000, 0]));
    assert_eq!(rank["lanes"][1]["runs"], serde_json::json!([1, 0, 200_000, 20_000]));
}

#[test]
fn runs_are_named_by_what_they_are_to_each_other() {
    let roles = |runs: Vec<Run>| -> Vec<String> {
        let data = data(&of(runs));
        data["runs"].as_array().unwrap().iter().map(|run| run["role"].as_str().unwrap().to_owned()).collect()
    };
    let replayed = || run("r", 2, 1);
    assert_eq!(roles(vec![replayed()]), ["replayed"]);
    assert_eq!(roles(vec![replayed(), made_by(Origin::Import, "c")]), ["captured", "replayed"]);
    assert_eq!(roles(vec![replayed(), run("s", 2, 1)]), ["before", "after"]);
    assert_eq!(roles(vec![run("s", 2, 1), made_by(Origin::Import, "c"), replayed()]), ["captured", "before", "after"]);
    assert_eq!(roles(vec![replayed(), run("s", 2, 1), run("s", 2, 1)]), ["r", "s", "s #2"]);
}

#[test]
fn only_runs_before_and_after_need_a_verdict() {
    let caution = "for a verdict compare several runs";
    assert!(of(vec![run("a", 2, 1), run("b", 2, 1)]).contains(caution));
    assert!(!of(vec![run("a", 2, 1), made_by(Origin::Import, "c")]).contains(caution));
    let alone = of(vec![run("a", 2, 1)]);
    assert!(!alone.contains(caution));
    assert!(alone.contains("<h1>The step takes 0.310 ms</h1>"));
    let pair = of(vec![run("a", 2, 1), made_by(Origin::Import, "c")]);
    assert!(pair.contains("<h1>Replayed, the step takes 0.310 ms, as long as captured (0.310 ms)</h1>"));
}

#[test]
fn the_third_number_is_weighted_by_time_alone() {
    // Transfers: reduce 190 us over both ranks (180 and 200) against 100 us, scatter 201 us against 100 us.
    let page = of(vec![run("a", 3, 1)]);
    let view = REPORTS[0].view(&[run("a", 3, 1)]).unwrap();
    let real = |row: usize, key: &str| match view.value(row, key) {
        Value::Real(value) => *value,
        other => panic!("{key} is {other:?}"),
    };
    assert_eq!((real(1, "slowdown"), real(2, "slowdown")), (1.9, 2.01));
    assert!(page.contains("<b>1.96</b>") || page.contains("<b>1.95</b>"), "the mean of 1.90 and 2.01");
    assert!(page.contains("Overlap costs scatter most: 2.01 times its time alone, 0.101 ms a step."));
}

#[test]
fn commands_are_shown_as_a_shell_takes_them() {
    let mut info = common::info("a", 2, 1);
    info.environment.command = ["maestro", "replay", "my step.yaml"].map(String::from).to_vec();
    let pattern = Pattern::from_yaml(common::PATTERN).unwrap();
    let run = Run::new(info, pattern, &common::measurements(2, 1)).unwrap();
    let command = ["maestro", "report", "a"].map(String::from).to_vec();
    let page = page(vec![run], &PageOptions { command }).unwrap();
    assert!(page.contains("<code>maestro replay &#39;my step.yaml&#39;</code>"));
    assert!(page.contains("<dt>this page</dt><dd><code>maestro report a</code></dd>"));
    assert!(of(vec![self::run("a", 2, 1)]).contains("not recorded"));
}

/// What a stranger could call things.
const HOSTILE: [&str; 4] = [
    "</script><script>hacked()</script>",
    "<img src=x onerror=hacked()>",
    "\" onmouseover=\"hacked()\" x='",
    "{{data}}<!--\u{2028}]]>&amp;\\",
];

/// The pattern with hostile names everywhere, and a run of it.
fn hostile() -> Run {
    let mut pattern = Pattern::from_yaml(common::PATTERN).unwrap();
    pattern.name = HOSTILE[0].into();
    let renamed = |name: &str| match name {
        "forward" => HOSTILE[0],
        "reduce" => HOSTILE[1],
        "scatter" => HOSTILE[2],
        _ => HOSTILE[3],
    };
    for block in &mut pattern.blocks {
        block.name = renamed(&block.name).into();
    }
    for lane in &mut pattern.lanes {
        lane.name = HOSTILE[1].into();
    }
    let measurements: Vec<Measurement> = common::measurements(4, 1)
        .into_iter()
        .map(|m| Measurement { block: renamed(&m.block).into(), lane: HOSTILE[1].into(), ..m })
        .collect();
    let mut info = common::info(HOSTILE[2], 4, 1);
    info.pattern.name = HOSTILE[0].into();
    info.backend = HOSTILE[1].into();
    info.notes = HOSTILE.map(String::from).to_vec();
    info.environment.command = HOSTILE.map(String::from).to_vec();
    info.environment.gpus = vec![HOSTILE[1].into()];
    info.environment.variables.insert("NCCL_ALGO".into(), HOSTILE[1].into());
    Run::new(info, pattern, &measurements).unwrap()
}

#[test]
fn names_are_text_and_nothing_else() {
    let command = HOSTILE.map(String::from).to_vec();
    let page = page(vec![hostile()], &PageOptions { command }).unwrap();
    let tame = of(vec![run("a", 4, 1)]);
    for tag in ["<script", "</script", "<img", "<!--", "<style", "</style"] {
        assert_eq!(page.matches(tag).count(), tame.matches(tag).count(), "{tag}");
    }
    // Outside the data every quote of theirs is an entity, so no attribute can end early.
    let (before, rest) = page.split_once("<script type=\"application/json\"").unwrap();
    let (_, after) = rest.split_once("</script>").unwrap();
    assert!(before.contains("&quot; onmouseover") && !before.contains("\" onmouseover"));
    assert!(!after.contains("onmouseover"));
    let names: Vec<String> =
        data(&page)["blocks"].as_array().unwrap().iter().map(|block| block["name"].as_str().unwrap().into()).collect();
    assert_eq!(names, HOSTILE, "in the data they are what they were");
}

#[test]
fn the_page_is_the_same_for_the_same_runs_and_fetches_nothing() {
    let page = of(vec![run("a", 4, 1), run("b", 2, 2)]);
    assert_eq!(page, of(vec![run("a", 4, 1), run("b", 2, 2)]));
    for fetching in ["src=", "<link", "@import", "url(http", "fetch(", "XMLHttpRequest", "import("] {
        assert!(!page.contains(fetching), "{fetching}");
    }
    assert!(!page.contains("{{"), "every place is filled");
}

#[test]
fn runs_without_steps_or_without_anything_still_make_a_page() {
    assert!(of(vec![run("empty", 0, 0)]).contains("holds no step that took any time"));
    let refused = page(Vec::new(), &PageOptions::default()).unwrap_err().to_string();
    assert!(refused.starts_with("there is no run to report on"), "{refused}");
}

/// A step of `executions` on each of 8 ranks: compute and an all-reduce in turns, 2 us each.
fn large(executions: u64) -> Run {
    let text = common::PATTERN.replace("{size: 2}", "{size: 8}");
    let pattern = Pattern::from_yaml(&text).unwrap();
    let mut all = Vec::new();
    for rank in 0..8 {
        for n in 0..executions {
            // The higher the rank, the longer: so it is known which ones are the longest.
            let (start_ns, end_ns) = (2_000 * n, 2_000 * n + 1_900 + u64::from(rank));
            let mut m = if n % 2 == 0 {
                local(State::Overlapped, (0, 0), rank, "forward", start_ns, end_ns)
            } else {
                collective(State::Overlapped, (0, 0), rank, common::REDUCE, (start_ns, 100, end_ns))
            };
            m.instance = (n / 2) as u32;
            all.push(m);
        }
    }
    let mut info = RunInfo { ranks: 8, ..common::info("large", 1, 1) };
    info.axes[0].size = Some(8);
    Run::new(info, pattern, &all).unwrap()
}

#[test]
fn a_page_of_eight_ranks_stays_below_three_megabytes_and_says_what_it_leaves_out() {
    let page = of(vec![large(6_000), large(6_000)]);
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    let data = data(&page);
    let line = &data["timelines"][1];
    let ranks: Vec<u64> = line["ranks"].as_array().unwrap().iter().map(|rank| number(&rank["rank"])).collect();
    assert_eq!(ranks, [2, 3, 4, 5, 6, 7], "6 x 6000 fit into 40000, and the longest stay");
    assert!(line["left_out"].as_str().unwrap().contains("the 6 longest of 8 ranks are drawn"));
    assert!(self::data(&of(vec![large(100)]))["timelines"][0]["left_out"].is_null());
}
