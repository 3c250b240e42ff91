//! Imports of the captures against what is known of them by other means.
//!
//! The steps' figures come from a separate program that reads the files anew (interval unions over the raw events; the
//! first ranks' are also in fixtures/captures' README). The collectives are counted here by a second, plain reading of
//! the kernels' own metadata.

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::Value;

use crate::harness::{capture, folder, golden, maestro};

/// Capture, rank, step, activities, then communication, exposed, compute and span in microseconds.
type Known = (&'static str, u64, &'static str, u64, f64, f64, f64, f64);

const KNOWN: [Known; 16] = [
    ("ddp_large", 0, "ProfilerStep#1", 676, 34088.356, 3325.969, 192220.759, 198530.958),
    ("ddp_large", 0, "ProfilerStep#2", 676, 33981.667, 3173.893, 190754.109, 196984.951),
    ("ddp_large", 1, "ProfilerStep#1", 676, 19444.995, 2690.589, 193065.878, 198616.767),
    ("ddp_large", 1, "ProfilerStep#2", 676, 19292.998, 2667.611, 191297.774, 197024.866),
    ("fsdp_large", 0, "ProfilerStep#1", 484, 21161.042, 5642.112, 173810.947, 183910.034),
    ("fsdp_large", 0, "ProfilerStep#2", 484, 42731.781, 9085.904, 178647.764, 190658.416),
    ("fsdp_large", 1, "ProfilerStep#1", 484, 18242.928, 4392.414, 175151.097, 183961.626),
    ("fsdp_large", 1, "ProfilerStep#2", 484, 18517.583, 4382.017, 178432.566, 190567.475),
    ("fsdp", 0, "ProfilerStep#1", 1055, 12083.014, 11821.926, 67900.574, 259776.852),
    ("fsdp", 0, "ProfilerStep#2", 1055, 11955.65, 11698.178, 67495.799, 251533.874),
    ("fsdp", 1, "ProfilerStep#1", 1055, 222127.089, 156220.182, 82941.861, 249209.442),
    ("fsdp", 1, "ProfilerStep#2", 1055, 243646.987, 164063.594, 85392.762, 252113.55),
    ("pp_large", 0, "ProfilerStep#1", 837, 41847.92, 41847.92, 67591.036, 118712.989),
    ("pp_large", 0, "ProfilerStep#2", 837, 41642.387, 41633.267, 67666.472, 118434.622),
    ("pp_large", 1, "ProfilerStep#1", 778, 19708.997, 19708.997, 96007.738, 118622.467),
    ("pp_large", 1, "ProfilerStep#2", 778, 19408.294, 19408.294, 95910.883, 118238.659),
];

const CAPTURES: [&str; 4] = ["ddp_large", "fsdp_large", "fsdp", "pp_large"];

fn import(name: &str) -> Value {
    maestro(folder().path(), ["import".as_ref(), "--json".as_ref(), capture(name).as_os_str()]).json()
}

#[test]
fn steps_are_the_known_ones() {
    for name in CAPTURES {
        let document = import(name);
        let steps = document["steps"].as_array().unwrap();
        let known: Vec<&Known> = KNOWN.iter().filter(|known| known.0 == name).collect();
        assert_eq!(steps.len(), known.len(), "{name}");
        for (_, rank, step, activities, comm, exposed, compute, span) in known {
            let found = steps.iter().find(|s| s["rank"] == *rank && s["name"] == *step).expect(step);
            assert_eq!(found["activities"], *activities, "{name} {step} rank {rank}");
            for (key, known) in [("comm_us", comm), ("exposed_us", exposed), ("compute_us", compute), ("span_us", span)]
            {
                let found = found[key].as_f64().unwrap();
                assert!((found - known).abs() < 0.1, "{name} {step} rank {rank} {key}: {found}, known {known}");
            }
        }
    }
}

/// (rank, step, op, dtype, size, ranks) -> count.
type Collectives = BTreeMap<(u64, String, String, String, u64, Vec<u64>), u64>;

/// Collectives of a capture file by the metadata of its kernels.
fn metadata(name: &str, rank: u64) -> Collectives {
    let file = capture(name).join(format!("{name}_rank{rank}.json.gz"));
    let mut text = String::new();
    let packed = std::fs::File::open(&file).expect("a capture");
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).expect("text");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let events = document["traceEvents"].as_array().unwrap();
    let of = |cat: &'static str| events.iter().filter(move |e| e["cat"] == cat);
    let launches: BTreeMap<u64, f64> = of("cuda_runtime")
        .chain(of("cuda_driver"))
        .filter_map(|e| Some((e["args"]["correlation"].as_u64()?, e["ts"].as_f64()?)))
        .collect();
    let steps: Vec<(&str, f64, f64)> = of("user_annotation")
        .filter_map(|e| {
            let (name, ts) = (e["name"].as_str()?, e["ts"].as_f64()?);
            name.starts_with("ProfilerStep").then(|| (name, ts, ts + e["dur"].as_f64().unwrap()))
        })
        .collect();
    let mut found = Collectives::new();
    for kernel in of("kernel").filter(|e| e["args"]["Collective name"].is_string()) {
        let args = &kernel["args"];
        let launched = launches[&args["correlation"].as_u64().unwrap()];
        let step = steps.iter().find(|(_, from, to)| (*from..=*to).contains(&launched)).expect("a step").0;
        let (op, elements) = match args["Collective name"].as_str().unwrap() {
            "allreduce" => ("all_reduce", "In msg nelems"),
            "_allgather_base" => ("all_gather", "Out msg nelems"),
            "_reduce_scatter_base" => ("reduce_scatter", "In msg nelems"),
            other => panic!("{other}"),
        };
        let (dtype, bytes) = match args["dtype"].as_str().unwrap() {
            "Float" => ("f32", 4),
            "BFloat16" => ("bf16", 2),
            other => panic!("{other}"),
        };
        let ranks: Vec<u64> = serde_json::from_str(args["Process Group Ranks"].as_str().unwrap()).unwrap();
        let size = args[elements].as_u64().unwrap() * bytes;
        *found.entry((rank, step.to_owned(), op.to_owned(), dtype.to_owned(), size, ranks)).or_default() += 1;
    }
    found
}

fn imported(document: &Value) -> Collectives {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let rows = document["collectives"].as_array().unwrap().iter();
    rows.map(|row| {
        let ranks = row["ranks"].as_array().unwrap().iter().map(|r| r.as_u64().unwrap()).collect();
        let (rank, size) = (row["rank"].as_u64().unwrap(), row["size"].as_u64().unwrap());
        ((rank, text(&row["step"]), text(&row["op"]), text(&row["dtype"]), size, ranks), row["count"].as_u64().unwrap())
    })
    .collect()
}

#[test]
fn collectives_are_what_the_kernels_metadata_say() {
    for name in ["ddp_large", "fsdp_large", "fsdp"] {
        let document = import(name);
        let mut expected = metadata(name, 0);
        expected.extend(metadata(name, 1));
        assert!(expected.values().sum::<u64>() >= 56, "{name}: the second reading finds them");
        assert_eq!(imported(&document), expected, "{name}");
        let rows = document["collectives"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["inferred"] == false && row["axis"] == "dp"), "{name}");
    }
}

#[test]
fn sends_and_receives_without_metadata_come_from_their_records() {
    // The pipeline's records: 4 micro-batches of 16,777,216 bf16 each way; the batches at the ends have one direction.
    let mut expected = Collectives::new();
    for step in ["ProfilerStep#1", "ProfilerStep#2"] {
        for rank in [0, 1] {
            for (op, count) in [("send", 1), ("send_recv", 3), ("recv", 1)] {
                let key = (rank, step.to_owned(), op.to_owned(), "bf16".to_owned(), 33_554_432, vec![0, 1]);
                expected.insert(key, count);
            }
        }
    }
    let document = import("pp_large");
    assert_eq!(imported(&document), expected);
    assert!(document["collectives"].as_array().unwrap().iter().all(|row| row["inferred"] == true));
}

#[test]
fn wait_and_transfer_make_up_the_duration() {
    for row in import("fsdp_large")["collectives"].as_array().unwrap() {
        let of = |key: &str| row[key].as_f64().unwrap();
        assert!((of("wait_us") + of("transfer_us") - of("duration_us")).abs() < 0.01, "{row}");
        assert!(of("wait_us") >= 0.0 && of("transfer_us") > 0.0, "{row}");
    }
}

#[test]
fn every_activity_is_accounted_for() {
    for name in CAPTURES {
        let document = import(name);
        let chosen = document["chosen_step"].as_str().unwrap();
        let steps = document["steps"].as_array().unwrap();
        let expected: u64 =
            steps.iter().filter(|s| s["name"] == chosen).map(|s| s["activities"].as_u64().unwrap()).sum();
        let rows = document["conservation"].as_array().unwrap();
        let total = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!(total("kept") + total("fused"), expected, "{name}");
        assert_eq!(total("dropped"), 0, "{name}");
    }
}

/// Capture, and the most that its step and the starts of its communication may be off by dry run, in percent of the step;
/// and the most lines of its pattern.
const KEPT: [(&str, f64, f64, usize); 7] = [
    ("ddp_large", 1.0, 1.0, 200),
    ("fsdp_large", 1.0, 1.0, 200),
    ("fsdp_large_sync", 1.0, 1.0, 200),
    ("pp_large", 2.0, 1.0, 300),
    ("graph", 2.0, 3.0, 300),
    ("moe", 3.0, 3.0, 300),
    ("fsdp", 3.0, 3.0, 300),
];

#[test]
fn the_dry_run_keeps_to_the_capture() {
    for (name, step, start, lines) in KEPT {
        let document = import(name);
        let check = &document["self_check"];
        assert!(check["step_error_pct"].as_f64().unwrap() <= step, "{name}: {check}");
        assert!(check["collective_start_error_pct"].as_f64().unwrap() <= start, "{name}: {check}");
        let found = document["pattern"]["lines"].as_u64().unwrap();
        assert!(found <= lines as u64, "{name}: {found} lines");
    }
}

#[test]
fn patterns_are_pages_that_come_out_the_same_every_time() {
    for name in ["ddp_large", "fsdp_large", "pp_large", "fsdp", "moe", "graph"] {
        let here = folder();
        let once = |file: &str| {
            maestro(here.path(), ["import".as_ref(), capture(name).as_os_str(), "-o".as_ref(), file.as_ref()]).ok();
            std::fs::read_to_string(here.path().join(file)).unwrap()
        };
        let text = once("once.yaml");
        assert_eq!(text, once("again.yaml"), "{name}");
        // The model's layers (or micro-batches) are a loop with several things in it.
        assert!(name == "graph" || text.contains("repeat: "), "{name}");
        golden(&format!("import/{name}.yaml"), &text);
    }
}

#[test]
fn the_description_of_an_import_is_the_golden_one() {
    let here = folder();
    let text = maestro(here.path(), ["import".as_ref(), capture("fsdp_large").as_os_str()]).ok();
    golden("import/fsdp_large.txt", &text);
    assert!(here.path().join("fsdp_large.yaml").is_file());
}

#[test]
fn a_share_of_the_host_makes_the_step_as_long_as_it_was_unprofiled() {
    let capture = capture("moe");
    let import = |host: &str| {
        let words = ["import".as_ref(), "--json".as_ref(), capture.as_os_str(), "--host".as_ref(), host.as_ref()];
        maestro(folder().path(), words)
    };
    let step_us = |document: &Value| document["self_check"]["dry_step_us"].as_f64().unwrap();
    // A thousandth of the host's time is worth 55 us of this step.
    assert!((step_us(&import("step=36.1ms").json()) - 36_100.0).abs() < 55.0);
    for too in ["step=1us", "step=1s"] {
        let said = import(too).refused();
        assert!(said.contains("without any it takes 3") && said.contains("with all of it 8"), "{said}");
    }
}
