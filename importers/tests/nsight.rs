//! Real captures of Nsight Systems, compared with Kineto's captures of the same kinds of steps.
//!
//! Nsight Systems records neither operators nor their shapes, so compute is held, and no phases but those that threads
//! tell; both are taken out of Kineto's captures before a comparison. It records waits of streams, which Kineto does if
//! asked: `fsdp_large_sync` is the capture to compare with. The element type of an all-gather is in no payload.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use maestro_importers::capture::Capture;
use maestro_importers::synthesis::{Import, Options, Sizes, synthesise};
use maestro_importers::{Error, Notes, Reading, mark_steps, read};
use maestro_pattern::{Body, CollectiveKind, Dtype, Item, Kernel, Pattern, Step, Work};
use serde_json::Value;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/captures").join(name)
}

fn capture(name: &str) -> (Capture, Notes) {
    let mut notes = Notes::default();
    let capture = read(&[path(name)], &Reading::default(), &mut notes).expect("a capture");
    (capture, notes)
}

fn import_of(capture: &Capture) -> Import {
    synthesise(capture, &Options::default(), &mut Notes::default()).expect("a pattern")
}

fn import(name: &str) -> Import {
    import_of(&capture(name).0)
}

fn count(notes: &Notes, words: &str) -> u64 {
    notes.iter().filter(|(kind, _)| kind.contains(words)).map(|(_, note)| note.count).sum()
}

/// A capture without what Nsight Systems does not record.
fn without_operators(mut capture: Capture) -> Capture {
    for timeline in &mut capture.timelines {
        timeline.annotations.clear();
        timeline.works.clear();
        timeline.launched.clear();
    }
    capture
}

/// Everything of a pattern but times, and what only one side knows: device, types of all-gathers, what was assumed.
fn structure(pattern: &Pattern) -> Pattern {
    let mut pattern = pattern.clone();
    pattern.name.clear();
    pattern.source = None;
    pattern.assumed.clear();
    pattern.host_skew.clear();
    for block in &mut pattern.blocks {
        (block.captured_ns, block.idle_ns) = (None, 0);
        block.skew.clear();
        match &mut block.work {
            Work::Collective(gather) if gather.kind == CollectiveKind::AllGather => gather.dtype = Dtype::U8,
            Work::Compute(kernels) => kernels.iter_mut().for_each(|kernel| {
                if let Kernel::Hold { duration_ns, sms, .. } = kernel {
                    (*duration_ns, *sms) = (1, None);
                }
            }),
            _ => {}
        }
    }
    timeless(&mut pattern.schedule);
    pattern.motifs.iter_mut().for_each(|motif| timeless(&mut motif.items));
    pattern.roles.iter_mut().for_each(|role| timeless(&mut role.schedule));
    pattern
}

fn timeless(items: &mut Vec<Item>) {
    items.retain(|item| !matches!(item.step, Step::Host(_)));
    for item in items {
        if let Step::Repeat { body: Body::Inline(inner), .. } = &mut item.step {
            timeless(inner);
        }
    }
}

#[test]
fn a_step_is_the_same_pattern_whoever_recorded_it() {
    let nsight = import("nsight/fsdp_large.nsys.jsonl.gz");
    let kineto = import_of(&without_operators(capture("kineto/fsdp_large_sync").0));
    let (ours, theirs) = (structure(&nsight.pattern), structure(&kineto.pattern));
    assert_eq!(ours.to_yaml(), theirs.to_yaml());
    assert!(ours == theirs && ours.blocks.len() == 23);
    assert_eq!(nsight.waits.1, 0, "every wait of the step is read, none inferred");
    // What runs alone on its lane for long. Short blocks beside others share the device with them: there, two captures
    // by Kineto differ by a quarter.
    let lasting: Vec<_> = theirs
        .blocks
        .iter()
        .enumerate()
        .filter(|(place, block)| {
            let long = kineto.pattern.blocks[*place].captured_ns.is_some_and(|ns| ns >= 6_000_000);
            long && matches!(block.work, Work::Compute(_))
        })
        .collect();
    assert_eq!(lasting.len(), 6);
    for (place, block) in lasting {
        let [ours, theirs] = [&nsight, &kineto].map(|i| i.pattern.blocks[place].captured_ns.expect("a time") as f64);
        assert!((ours / theirs - 1.0).abs() < 0.05, "{}: {ours} and {theirs} ns", block.name);
    }
}

#[test]
fn sizes_and_types_are_those_that_pytorch_recorded() {
    let sizes = |import: &Import| -> BTreeMap<(u32, String, Option<u64>, String), usize> {
        let rows = import.collectives.iter().filter(|row| row.step == import.chosen_step);
        rows.map(|row| ((row.rank, row.op.clone(), row.size, row.axis.clone()), row.count)).collect()
    };
    let (nsight, kineto) = (import("nsight/fsdp_large.nsys.jsonl.gz"), import("kineto/fsdp_large"));
    assert_eq!(sizes(&nsight), sizes(&kineto));
    assert_eq!(nsight.teams, kineto.teams);
    let scatters = nsight.collectives.iter().filter(|row| row.op == "reduce_scatter");
    assert!(scatters.clone().count() == 8 && scatters.clone().all(|row| row.dtype == Some("f32")));
    let assumed = |words: &str| nsight.pattern.assumed.iter().any(|assumption| assumption.what.contains(words));
    assert!(assumed("10 communications taken from their kernels' names") && assumed("18 communications not recorded"));
}

#[test]
fn an_export_without_payloads_is_the_same_but_for_sizes_and_says_what_has_them() {
    let (capture, notes) = capture("nsight/fsdp_large.sqlite");
    assert_eq!(count(&notes, "without a payload: sizes unknown"), 59);
    let told = notes.iter().any(|(_, note)| note.example.contains("--include-blobs=true"));
    assert!(told && capture.format == "nsight-sqlite");
    let device = &capture.timelines[0];
    assert_eq!((device.device_name.as_deref(), device.device_sms), (Some("NVIDIA H200"), Some(132)));
    let (sqlite, json) = (import_of(&capture), import("nsight/fsdp_large.nsys.jsonl.gz"));
    assert!(sqlite.collectives.iter().all(|row| row.size.is_none()));
    let counts = |import: &Import| -> BTreeMap<(u32, String), usize> {
        let mut counts = BTreeMap::new();
        for row in import.collectives.iter().filter(|row| row.step == import.chosen_step) {
            *counts.entry((row.rank, row.op.clone())).or_default() += row.count;
        }
        counts
    };
    assert_eq!(counts(&sqlite), counts(&json));
    assert_eq!((&sqlite.steps, &sqlite.conservation), (&json.steps, &json.conservation));
    let names = |import: &Import| import.pattern.lanes.iter().map(|lane| lane.name.clone()).collect::<Vec<_>>();
    assert_eq!((names(&sqlite), sqlite.teams), (names(&json), json.teams));
}

#[test]
fn groups_of_sends_and_receives_between_all_ranks_are_uneven_all_to_alls() {
    let (capture, notes) = capture("nsight/moe.nsys.jsonl.gz");
    let import = import_of(&capture);
    assert_eq!(count(&notes, "taken as all-to-alls"), 64, "16 a step and rank");
    let (mut uneven, mut exchanges, mut fused) = (0, 0, 0);
    for row in &import.collectives {
        match (row.op.as_str(), row.size) {
            ("all_to_all", Some(16)) => exchanges += row.count,
            ("all_to_all", Some(33_000_000..=38_000_000)) => uneven += row.count,
            // What Kineto records of the coalesced all-reduce.
            ("group", Some(396_556_800)) => fused += row.count,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((uneven, exchanges, fused), (64, 16, 4), "of two steps and ranks");
    assert_eq!(import.teams, [("ep".to_owned(), vec![vec![0, 1]]), ("dp".to_owned(), vec![vec![0, 1]])]);
    assert!(import.unmatched.is_empty(), "{:?}", import.unmatched);
    let splits = import.pattern.blocks.iter().filter_map(|block| match &block.work {
        Work::Collective(collective) if !collective.splits.is_empty() => Some(collective.splits.len()),
        _ => None,
    });
    assert!(splits.clone().count() > 0 && splits.clone().all(|ranks| ranks == 2));
}

#[test]
fn a_pipeline_knows_every_peer_and_size() {
    let transfers = |import: &Import| -> BTreeMap<(u32, String), (Vec<u64>, usize)> {
        let mut all: BTreeMap<(u32, String), (Vec<u64>, usize)> = BTreeMap::new();
        for row in import.collectives.iter().filter(|row| row.step == import.chosen_step) {
            let entry = all.entry((row.rank, row.op.clone())).or_default();
            entry.0.extend(row.size);
            entry.1 += row.count;
        }
        all
    };
    let nsight = import("nsight/pp.nsys.jsonl.gz");
    assert!(nsight.unmatched.is_empty(), "{:?}", nsight.unmatched);
    // The large pipeline sends twice as wide activations of twice as many sequences.
    let mut kineto = transfers(&import("kineto/pp_large"));
    kineto.values_mut().for_each(|(sizes, _)| sizes.iter_mut().for_each(|size| *size /= 4));
    assert_eq!(transfers(&nsight), kineto);
    assert_eq!(nsight.teams, [("pp".to_owned(), vec![vec![0, 1]])]);
}

#[test]
fn a_capture_that_lost_its_device_rows_is_refused() {
    let outcome = read(&[path("nsight/ddp_lost_kernels.sqlite")], &Reading::default(), &mut Notes::default());
    let error = outcome.expect_err("no capture");
    assert!(matches!(error, Error::DeviceRowsLost { activities: 1, .. }), "{error:?}");
    let told = error.to_string();
    assert!(told.contains("GPU rows are missing: of process 1278") && told.contains("nsys profile"), "{told}");
}

#[test]
fn steps_can_be_named_by_the_user() {
    let (mut capture, _) = capture("nsight/pp.nsys.jsonl.gz");
    mark_steps(&mut capture, "step 0").expect("marks");
    let import = import_of(&capture);
    assert_eq!((&*import.chosen_step, import.steps.len()), ("step 0", 2));
    assert!(matches!(mark_steps(&mut capture, "epoch *"), Err(Error::NoSuchMark { rank: 0, .. })));
}

#[test]
fn sizes_that_an_export_lacks_come_from_another_capture_of_the_job() {
    let (capture, _) = capture("nsight/fsdp_large.sqlite");
    let from = |name: &str| {
        let sizes = Some(Sizes::read(&path(name), &mut Notes::default()).expect("sizes"));
        synthesise(&capture, &Options { sizes, ..Options::default() }, &mut Notes::default()).expect("a pattern")
    };
    let json = import("nsight/fsdp_large.nsys.jsonl.gz");
    for (name, dtype) in [("kineto/fsdp_large", "bf16"), ("nsight/fsdp_large.nsys.jsonl.gz", "u8")] {
        let filled = from(name);
        assert_eq!(structure(&filled.pattern).to_yaml(), structure(&json.pattern).to_yaml(), "{name}");
        assert!(filled.collectives.iter().any(|row| row.op == "all_gather" && row.dtype == Some(dtype)), "{name}");
        let stated = |words: &str| filled.pattern.assumed.iter().any(|assumption| assumption.what.contains(words));
        assert!(stated("sizes of 28 communications taken from elsewhere") && !stated("no known size"));
    }
    // Another job's: the numbers of calls differ.
    assert!(from("kineto/ddp_large").collectives.iter().all(|row| row.size.is_none()));
}

/// What each process did in each step, read plainly: device rows, communication kernels and the sum of their durations.
type Truth = BTreeMap<(i64, String), (usize, usize, i64)>;

fn truth(name: &str) -> Truth {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path(name)).expect("a file")).read_to_string(&mut text).expect("text");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let number = |value: &Value| value.as_i64().or_else(|| value.as_str()?.parse().ok()).expect("a number");
    let (mut calls, mut steps) = (HashMap::new(), Vec::new());
    for row in &rows {
        let call = &row["TraceProcessEvent"];
        if call.is_object() {
            let key = (number(&call["globalTid"]) >> 24, number(&call["correlationId"]));
            calls.insert(key, number(&call["startNs"]));
        }
        let range = &row["NvtxEvent"];
        if let Some(text) = range["Text"].as_str().filter(|text| text.starts_with("step ")) {
            let times = (number(&range["Timestamp"]), number(&range["EndTimestamp"]));
            steps.push((number(&range["GlobalTid"]) >> 24, times, text.to_owned()));
        }
    }
    let mut truth = Truth::new();
    for event in rows.iter().map(|row| &row["CudaEvent"]) {
        if !["kernel", "memcpy", "memset"].iter().any(|kind| event[*kind].is_object()) {
            continue;
        }
        let process = number(&event["globalPid"]) >> 24;
        let Some(asked) = calls.get(&(process, number(&event["correlationId"]))) else { continue };
        let inside = |step: &&(i64, (i64, i64), String)| step.0 == process && (step.1.0..=step.1.1).contains(asked);
        let Some((.., step)) = steps.iter().find(inside) else { continue };
        let entry = truth.entry((process, step.clone())).or_default();
        entry.0 += 1;
        let kernel = event["kernel"]["demangledName"]
            .as_str()
            .and_then(|id| rows[0]["data"][id.parse::<usize>().ok()?].as_str());
        if kernel.is_some_and(|kernel| kernel.starts_with("nccl")) {
            entry.1 += 1;
            entry.2 += number(&event["endNs"]) - number(&event["startNs"]);
        }
    }
    truth
}

#[test]
fn every_step_holds_what_a_plain_reading_counts() {
    for name in ["fsdp_large", "moe", "pp"] {
        let name = format!("nsight/{name}.nsys.jsonl.gz");
        let import = import(&name);
        // Processes of these captures are in the order of their ranks.
        let truth: Vec<_> = truth(&name).into_iter().map(|((_, step), counts)| (step, counts)).collect();
        let mut told = Vec::new();
        for step in &import.steps {
            let mine = import.collectives.iter().filter(|row| row.rank == step.rank && row.step == step.name);
            let (count, ns) = mine.fold((0, 0), |(count, ns), row| (count + row.count, ns + row.duration_ns));
            told.push((step.name.to_string(), (step.activities, count, ns)));
        }
        assert_eq!(told, truth, "{name}");
    }
}

#[test]
fn two_exports_of_one_report_are_refused() {
    let both = ["nsight/fsdp_large.sqlite", "nsight/fsdp_large.nsys.jsonl.gz"].map(path);
    let error = read(&both, &Reading::default(), &mut Notes::default()).expect_err("no capture");
    assert!(matches!(error, Error::SameRecording { process: 1183, .. }), "{error:?}");
}
