//! Reports of every fixture, and the forms in which a report is written.

use std::collections::BTreeMap;
use std::path::PathBuf;

use maestro_pattern::Work;
use maestro_reports::{REPORTS, Run, Value, View};
use serde_json::Value as Json;

use crate::harness::{folder, golden, maestro, path};

fn view(table: &str, run: &Run) -> View {
    let report = REPORTS.iter().find(|report| report.name() == table).expect(table);
    report.view(std::slice::from_ref(run)).expect(table)
}

fn real(view: &View, row: usize, key: &str) -> f64 {
    if let Value::Real(real) = view.value(row, key) { *real } else { 0.0 }
}

/// What is exposed, in milliseconds, by step, by block and by axis; and what the parts of the step sum up to beside its
/// mean length.
fn exposed(run: &Run) -> ([f64; 3], [f64; 2]) {
    let steps = view("steps", run);
    let sum = |table: &str| {
        let view = view(table, run);
        (0..view.rows.len()).map(|row| real(&view, row, "exposed_ms")).sum::<f64>()
    };
    let parts = ["compute_ms", "exposed_ms", "copies_ms", "idle_ms", "uneven_ms"];
    let parts: f64 = parts.iter().map(|key| real(&steps, 0, key)).sum();
    ([real(&steps, 0, "exposed_ms"), sum("blocks"), sum("exposure")], [parts, real(&steps, 0, "step_avg_ms")])
}

/// Every capture of the fixtures: the files of its ranks.
fn captures() -> Vec<Vec<PathBuf>> {
    let files = |below: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path(below)).expect(below);
        let mut all: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        all.sort();
        all
    };
    let mut all: Vec<Vec<PathBuf>> = files("fixtures/captures/kineto").into_iter().map(|folder| vec![folder]).collect();
    let name = |file: &PathBuf| file.file_name().expect("a name").to_string_lossy().into_owned();
    all.extend(
        files("fixtures/captures/nsight").into_iter().filter(|file| !name(file).ends_with(".md")).map(|f| vec![f]),
    );
    let mut cases: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files("fixtures/cases").into_iter().filter(|file| name(file).ends_with(".json")) {
        let case = name(&file).split("-rank").next().expect("a name").to_owned();
        cases.entry(case).or_default().push(file);
    }
    all.extend(cases.into_values());
    all
}

/// Within a nanosecond: rounding is all that may differ.
#[track_caller]
fn adds_up(what: &str, run: &Run) {
    let ([step, blocks, axes], [parts, length]) = exposed(run);
    assert!((step - blocks).abs() < 1e-6, "{what}: exposed {step} ms a step, {blocks} ms over its blocks");
    assert!((step - axes).abs() < 1e-6, "{what}: exposed {step} ms a step, {axes} ms over its axes");
    assert!((parts - length).abs() < 1e-6, "{what}: a step of {length} ms whose parts are {parts} ms");
}

#[test]
fn exposed_time_adds_up_on_every_captured_fixture() {
    let (mut read, mut with_exposed) = (0, 0);
    for files in captures() {
        let here = folder();
        let mut args: Vec<PathBuf> = ["import", "--run", "run", "-o", "p.yaml"].map(PathBuf::from).to_vec();
        args.extend(files.iter().cloned());
        // Some captures are there to be refused, or give no pattern that runs.
        if maestro(here.path(), args).code != 0 {
            continue;
        }
        let run = Run::open(&here.path().join("run")).expect("a run");
        adds_up(&files[0].display().to_string(), &run);
        read += 1;
        with_exposed += usize::from(exposed(&run).0[0] > 0.0);
    }
    assert!(read >= 20 && with_exposed >= 15, "{read} captures read, {with_exposed} with exposed communication");
}

#[test]
fn exposed_time_adds_up_on_every_example_pattern() {
    let mut read = 0;
    for entry in std::fs::read_dir(path("fixtures/patterns")).expect("the patterns") {
        let file = entry.expect("an entry").path();
        if file.extension().is_some_and(|extension| extension == "yaml") {
            let here = folder();
            let args = [
                "replay".as_ref(),
                file.as_os_str(),
                "--backend".as_ref(),
                "dry".as_ref(),
                "-o".as_ref(),
                "run".as_ref(),
            ];
            maestro(here.path(), args).ok();
            adds_up(&file.display().to_string(), &Run::open(&here.path().join("run")).expect("a run"));
            read += 1;
        }
    }
    assert!(read >= 7, "{read} patterns");
}

/// A pattern whose blocks are in the stored output of nccl-tests, between two of its sizes, or not in it.
const BLOCKS: &str = "\
maestro: 1
name: beside-nccl-tests
axes: {dp: {size: 2}}
blocks:
  same: {all_reduce: {size: 16MiB, dtype: bf16}, captured: 80us}
  between: {all_gather: {size: 384MiB, dtype: bf16}, captured: 900us}
  larger: {all_gather: {size: 8GiB, dtype: bf16}, captured: 9ms}
  wider: {reduce_scatter: {size: 64MiB, dtype: f32}, captured: 200us}
  other: {gather: {size: 64MiB, dtype: bf16}, captured: 200us}
  inside: {all_gather: {size: 64MiB, dtype: bf16, in_place: true}, captured: 160us}
  shift: {p2p: [{send: {to: 1, size: 16MiB, dtype: bf16}}, {recv: {from: -1, size: 16MiB, dtype: bf16}}], wrap: true, captured: 90us}
lanes: {comm: {}}
schedule:
- {run: same, on: dp, lane: comm}
- {run: between, on: dp, lane: comm}
- {run: larger, on: dp, lane: comm}
- {run: wider, on: dp, lane: comm}
- {run: other, on: dp, lane: comm}
- {run: inside, on: dp, lane: comm}
- {run: shift, on: dp, lane: comm}
";

#[test]
fn a_baseline_stands_beside_what_it_measured() {
    let here = folder();
    std::fs::write(here.path().join("p.yaml"), BLOCKS).expect("a file");
    maestro(here.path(), ["replay", "p.yaml", "--backend", "dry", "-o", "run"]).ok();
    let baseline = path("fixtures/captures/baseline/nccl_tests_2xh200.txt");
    let call = |form: &str| {
        let args = ["report", "run", "--baseline", baseline.to_str().expect("a path"), "--format", form];
        maestro(here.path(), args)
    };
    golden("report/baseline.txt", &call("table").ok());
    let rows = call("json").json();
    let of =
        |block: &str| rows.as_array().expect("rows").iter().find(|row| row["block"] == block).expect("a row").clone();
    assert_eq!(of("same")["outside"], "exact");
    assert!((of("same")["outside_ms"].as_f64().expect("a time") - 0.0779).abs() < 1e-9);
    // 16 MiB in 77.90 us are 215.37 GB/s, and an all-reduce of two ranks has factor 1.
    assert!((of("same")["outside_busbw_gbps"].as_f64().expect("a rate") - 215.37).abs() < 0.01);
    // 384 MiB lie a sixth of the way from 256 MiB (544.45 us) to 1 GiB (1994.28 us).
    let between = 0.54445 + (1.99428 - 0.54445) / 6.0;
    assert!((of("between")["outside_ms"].as_f64().expect("a time") - between).abs() < 1e-9);
    // In place: 151.22 us, not the 157.18 us out of place. Both directions at once: sendrecv_perf.
    for (block, ms) in [("inside", 0.15122), ("shift", 0.08155)] {
        assert!((of(block)["outside_ms"].as_f64().expect("a time") - ms).abs() < 1e-9, "{block}");
    }
    for block in ["larger", "wider", "other"] {
        assert!(of(block)["outside_ms"].is_null() && of(block)["outside"].is_string(), "{block}");
    }
    std::fs::write(here.path().join("no.txt"), "nothing of the kind\n").expect("a file");
    let refused = maestro(here.path(), ["report", "run", "--baseline", "no.txt"]).refused();
    assert!(refused.contains("no.txt") && refused.contains("all_reduce_perf"), "{refused}");
}

#[test]
fn a_bandwidth_stands_beside_what_the_link_is_said_to_carry() {
    let here = folder();
    std::fs::write(here.path().join("p.yaml"), BLOCKS).expect("a file");
    maestro(here.path(), ["replay", "p.yaml", "--backend", "dry", "-o", "run"]).ok();
    let call = |form: &str| {
        maestro(here.path(), ["report", "run", "--table", "blocks-wide", "--link-rate", "200GB/s", "--format", form])
    };
    let rows = call("json").json();
    let of =
        |block: &str| rows.as_array().expect("rows").iter().find(|row| row["block"] == block).expect("a row").clone();
    // 16 MiB in 80 us, factor 1 on two ranks.
    let percent = 100.0 * (16.0 * 1_048_576.0 / 80e3) / 200.0;
    for key in ["link_pct", "alone_link_pct"] {
        assert!((of("same")[key].as_f64().expect("a share") - percent).abs() < 1e-9, "{key}");
    }
    let flagged = |block: &str| of(block)["flags"].as_str().expect("flags").contains("ring-equivalent");
    // 64 MiB in 200 us, factor 1/2: 168 GB/s.
    assert!(flagged("same") && !flagged("wider"));
    let table = call("table").ok();
    assert!(table.contains("of link (%)") && table.contains("ring-equivalent: the bus bandwidth"), "{table}");
    let plain = maestro(here.path(), ["report", "run", "--table", "blocks-wide"]).ok();
    assert!(!plain.contains("of link (%)") && !plain.contains("ring-equivalent"), "{plain}");
}

#[test]
fn a_captured_step_stands_beside_its_replay() {
    let here = folder();
    let capture = path("fixtures/captures/kineto/fsdp_large");
    let import = [
        "import".as_ref(),
        capture.as_os_str(),
        "--run".as_ref(),
        "captured".as_ref(),
        "-o".as_ref(),
        "p.yaml".as_ref(),
    ];
    maestro(here.path(), import).ok();
    maestro(here.path(), ["replay", "p.yaml", "--backend", "dry", "-o", "simulated"]).ok();
    let rows = maestro(here.path(), ["report", "captured", "simulated", "--table", "fidelity", "--json"]).json();
    let rows = rows.as_array().expect("rows");
    // The step is the one that the import's self-check prints, and every execution finds its own.
    assert_eq!((&rows[0]["level"], &rows[0]["against"]), (&"step".into(), &"captured".into()));
    assert!((rows[0]["captured_ms"].as_f64().expect("a time") - 190.658).abs() < 0.001);
    assert!((rows[0]["replayed_ms"].as_f64().expect("a time") - 190.575).abs() < 0.001);
    assert!(rows.len() > 10 && rows.iter().all(|row| row["unmatched"] == 0 && row["matched"].as_u64() > Some(0)));
}

#[test]
fn files_with_types_go_where_they_are_asked_to() {
    let here = folder();
    std::fs::write(here.path().join("p.yaml"), BLOCKS).expect("a file");
    maestro(here.path(), ["replay", "p.yaml", "--backend", "dry", "-o", "run"]).ok();
    for (format, magic) in [("parquet", &b"PAR1"[..]), ("arrow", &b"ARROW1"[..])] {
        let said = maestro(here.path(), ["report", "run", "--format", format, "--table", "steps", "-o", "file"]).ok();
        assert_eq!(said, "");
        let bytes = std::fs::read(here.path().join("file")).expect("the file");
        assert!(bytes.starts_with(magic) && bytes.ends_with(magic), "{format}");
    }
}

/// Two collectives of a size, and one of none.
const SMALL: &str = "\
maestro: 1
name: s
axes: {dp: {size: 2}}
blocks:
  a: {all_reduce: {size: 1MiB, dtype: f32}}
  b: {all_gather: {size: 1KiB, dtype: f32}}
  c: {barrier: {}}
lanes: {comm: {}}
schedule:
- {run: a, on: dp, lane: comm}
- {run: b, on: dp, lane: comm}
- {run: c, on: dp, lane: comm}
";

#[test]
fn a_sweep_of_settings_is_a_run_a_choice_and_draws_curves() {
    let here = folder();
    std::fs::write(here.path().join("p.yaml"), SMALL).expect("a file");
    let sweep = ["sweep", "p.yaml", "--backend", "threads", "--iterations", "1", "--rounds", "1", "-o", "out"];
    let over =
        ["--size", "4KiB..8KiB", "--block", "a", "--set", "axis.dp.max_ctas=4,16", "--set", "lane.comm.priority=high"];
    let told = maestro(here.path(), sweep.iter().chain(&over)).ok();
    assert!(told.contains("`maestro report out --format html -o page.html` draws the curves"), "{told}");
    let each = [(4_096, 4), (4_096, 16), (8_192, 4), (8_192, 16)];
    for (size, ctas) in each {
        let run = Run::open(&here.path().join(format!("out/{size}_axis.dp.max_ctas={ctas}"))).expect("a run");
        let Work::Collective(one) = &run.pattern.blocks[0].work else { panic!("a collective") };
        assert_eq!(one.size, Some(size));
        let text = run.pattern.to_yaml();
        assert!(text.contains(&format!("max_ctas: {ctas}")) && text.contains("priority: high"), "{text}");
        let variant: Vec<(&str, &str)> =
            run.info.environment.variant.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(variant, [("axis.dp.max_ctas", &*ctas.to_string()), ("size", &*size.to_string())]);
    }

    // A folder stands for the runs in it.
    let page = maestro(here.path(), ["report", "out", "--format", "html"]).ok();
    let (_, rest) = page.split_once("id=\"data\">").expect("a page has data");
    let data: Json = serde_json::from_str(rest.split_once("</script>").expect("that end").0).expect("JSON");
    assert_eq!(data["sweep"]["axis"], "size");
    let points = data["sweep"]["points"].as_array().expect("points");
    let mut drawn: Vec<(u64, String)> = points
        .iter()
        .map(|point| {
            (point["x"].as_f64().expect("a size") as u64, point["panel"].as_str().expect("a panel").to_owned())
        })
        .collect();
    drawn.sort();
    let mut expected = each.map(|(size, ctas)| (size, format!("axis.dp.max_ctas={ctas}"))).to_vec();
    expected.sort();
    assert_eq!(drawn, expected);
    assert!(data["timelines"].as_array().expect("a list").is_empty());
    // Two runs are before and after, whatever they were given.
    let two = ["report", "out/4096_axis.dp.max_ctas=4", "out/4096_axis.dp.max_ctas=16", "--format", "html"];
    assert!(maestro(here.path(), two).ok().contains("\"sweep\":null"));
}

#[test]
fn a_sweep_is_a_run_a_size() {
    let here = folder();
    std::fs::write(here.path().join("p.yaml"), SMALL).expect("a file");
    let sweep = |more: &[&str]| {
        let args = ["sweep", "p.yaml", "--backend", "threads", "--iterations", "1", "--rounds", "1", "-o", "out"];
        maestro(here.path(), args.iter().chain(more))
    };
    let rows = sweep(&["--size", "4KiB..64KiB*4", "--block", "a", "--json"]).json();
    let of = |block: &str| -> Vec<(String, u64)> {
        let rows = rows.as_array().expect("rows").iter().filter(|row| row["block"] == block);
        rows.map(|row| (row["run"].as_str().expect("a run").to_owned(), row["size_bytes"].as_u64().expect("a size")))
            .collect()
    };
    assert_eq!(of("a"), [4096, 16384, 65536].map(|size| (size.to_string(), size)));
    assert!(of("b").iter().all(|(_, size)| *size == 1024));
    // The folders are runs like others.
    let again = maestro(here.path(), ["report", "out/4096", "out/65536", "--json"]).json();
    assert_eq!(again.as_array().expect("rows").len(), 6);

    // All is refused before anything is run.
    for (more, says) in [
        (&[][..], "there is nothing to sweep"),
        (&["--set", "axis.dp.max_ctas=4"], "there is nothing to sweep"),
        (&["--set", "axis.dp.max_ctas=4,x"], "must be a whole number, not `x`"),
        (&["--set", "axis.dp.max_ctas=4,4"], "is there twice"),
        (&["--set", "axis.tp.max_ctas=4,8"], "no axis `tp`"),
        (&["--size", "4KiB..1KiB"], "4KiB..1KiB"),
        (&["--size", "4KiB..8KiB", "--block", "x"], "no block is named `x`"),
        (&["--size", "4KiB..8KiB", "--block", "c"], "`c` has no one size"),
        (&["--size", "2..8"], "with size 2 B"),
    ] {
        let outcome = sweep(more);
        assert_eq!(outcome.code, 2, "{more:?}");
        assert!(outcome.stderr.contains(says), "{more:?}: {}", outcome.stderr);
    }
}
