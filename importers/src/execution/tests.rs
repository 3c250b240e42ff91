//! Made-up traces of every schema, joined with made-up profiles.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use crate::capture::{Capture, CommOp};

/// Ranks of the group: more than the profiler writes out.
const RANKS: u64 = 40;

/// What rank 0 sends each rank in its `n`th all-to-all, in rows of 8 elements.
fn row(n: u64) -> Vec<u64> {
    (0..RANKS).map(|to| 1 + (to * 7 + n) % 5).collect()
}

fn total(n: u64) -> u64 {
    row(n).iter().sum::<u64>() * 8
}

fn cut(list: &[u64]) -> String {
    let head: Vec<String> = list[..30].iter().map(u64::to_string).collect();
    format!("[{}, ...]", head.join(", "))
}

/// A profile of two all-to-alls whose lists are cut; `functions`: ids of the recorded functions.
fn profile(rank: u64, functions: [u64; 2]) -> String {
    let mut events = String::new();
    let ranks: Vec<u64> = (0..RANKS).collect();
    for (n, function) in functions.iter().enumerate() {
        let (at, id, n) = (100 * n + 10, 5 + n, n as u64);
        let facts = format!(
            r#""Collective name": "all_to_allv", "dtype": "BFloat16", "In msg nelems": {t}, "Out msg nelems": {t},
               "Group size": {RANKS}, "Process Group Name": "9", "In split size": "{s}", "Out split size": "{s}",
               "Process Group Ranks": "{r}""#,
            t = total(n),
            s = cut(&row(n)),
            r = cut(&ranks),
        );
        write!(
            events,
            r#"{{"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 9, "tid": 4, "ts": {at}, "dur": 20,
                 "args": {{"External id": {id}, "Record function id": {function}, {facts}}}}},
               {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 4, "ts": {}, "dur": 2,
                 "args": {{"correlation": 90{id}}}}},
               {{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv", "pid": 0, "tid": 7, "ts": {}, "dur": 40,
                 "args": {{"stream": 7, "correlation": 90{id}, "External id": {id}, {facts}}}}},"#,
            at + 5,
            at + 20
        )
        .unwrap();
    }
    format!(
        r#"{{"distributedInfo": {{"rank": {rank}, "world_size": {RANKS}}}, "traceEvents": [{}]}}"#,
        events.trim_end().trim_end_matches(',')
    )
}

/// The groups, as the node that lists them has them.
fn groups() -> Value {
    let ranks: Vec<u64> = (0..RANKS).collect();
    json!(json!([{"pg_name": "9", "pg_desc": "ep", "ranks": ranks}, {"pg_name": "0", "ranks": []}]).to_string())
}

/// A trace of the same two calls, a wait before them, in a schema. `function`: id of the first call's function.
fn trace(schema: &str, function: u64) -> String {
    trace_of(8, schema, function)
}

/// The same of another process than that of the profiles, which is 9, or of it.
fn trace_of(process: u32, schema: &str, function: u64) -> String {
    let mut nodes = vec![];
    for n in 0..2u64 {
        let (id, rf) = (100 + 10 * n, if function == 0 { 0 } else { function + n });
        let tensor = json!([1, 2, 0, total(n), 2, "cuda:0"]);
        let group = json!(["9", "ep"]);
        nodes.push(match schema {
            "1.0.1" => json!({
                "name": "record_param_comms", "id": id, "rf_id": rf, "parent": 2, "tid": 1,
                "inputs": [tensor, n, 77, 0, "all_to_allv", row(n), row(n)],
                "input_shapes": [[total(n) / 8, 8], [], [], [], [], [], []],
                "input_types": ["Tensor(c10::BFloat16)", "Int", "Int", "Int", "String", "GenericList[]", "GenericList[]"],
                "outputs": [tensor], "output_shapes": [[total(n) / 8, 8]], "output_types": ["Tensor(c10::BFloat16)"],
            }),
            "1.0.3" => json!({
                "name": "record_param_comms", "id": id, "ctrl_deps": 2,
                "inputs": {
                    "values": [tensor, [n, false], group, 0, "all_to_allv", row(n), row(n), 0, 1, RANKS],
                    "shapes": [[total(n) / 8, 8], [], [], [], [], [], [], [], [], []],
                    "types": ["Tensor(c10::BFloat16)", "", "", "Int", "String", "", "", "Int", "Int", "Int"],
                },
                "outputs": {"values": [tensor], "shapes": [[total(n) / 8, 8]], "types": ["Tensor(c10::BFloat16)"]},
                "attrs": [{"name": "rf_id", "type": "uint64", "value": rf}, {"name": "tid", "type": "uint64", "value": 1}],
            }),
            _ => json!({
                "name": "record_param_comms", "id": id, "ctrl_deps": 2,
                "inputs": {"values": [tensor, [n, false], group, 0, "all_to_allv", [], []], "shapes": [], "types": []},
                "outputs": {"values": [], "shapes": [], "types": []},
                "attrs": [
                    {"name": "rf_id", "value": rf}, {"name": "tid", "value": 1},
                    {"name": "collective_name", "value": "all_to_allv"}, {"name": "dtype", "value": "BFloat16"},
                    {"name": "in_msg_nelems", "value": total(n)}, {"name": "out_msg_nelems", "value": total(n)},
                    {"name": "in_split_size", "value": format!("{:?}", row(n))},
                    {"name": "out_split_size", "value": format!("{:?}", row(n))},
                    {"name": "pg_name", "value": "9"}, {"name": "pg_size", "value": RANKS},
                ],
            }),
        });
    }
    let wait =
        json!({"name": "record_param_comms", "id": 50, "tid": 1, "rf_id": 0, "inputs": [1, 77, 0, "wait", [], []]});
    let init = match schema {
        "1.0.1" => json!({"name": "## process_group:init ##", "id": 3, "inputs": [groups()]}),
        _ => json!({"name": "## process_group:init ##", "id": 3,
                    "inputs": {"values": [groups()], "shapes": [[]], "types": ["String"]}}),
    };
    nodes.extend([json!({"name": "aten::mm", "id": 7, "inputs": {"values": [[1, 2]]}}), wait, init]);
    format!("{{\"schema\": \"{schema}\", \"pid\": {process}, \"nodes\": {}}}", Value::from(nodes))
}

fn read_all(files: &[(&str, &str)]) -> (Result<Capture>, Notes) {
    let folder = tempfile::tempdir().unwrap();
    let mut paths: Vec<PathBuf> = Vec::new();
    for (name, content) in files {
        paths.push(folder.path().join(name));
        std::fs::write(paths.last().unwrap(), content).unwrap();
    }
    let mut notes = Notes::default();
    (crate::read(&paths, &crate::Reading::default(), &mut notes), notes)
}

/// Rows and ranks of the kernels of the first timeline.
fn kernels(capture: &Capture) -> Vec<(Vec<u64>, Option<Vec<u32>>, bool)> {
    let facts = capture.timelines[0].activities.iter().filter_map(|activity| activity.comm.as_deref());
    facts.map(|facts| (facts.in_splits.clone(), facts.ranks.clone(), facts.splits_cut)).collect()
}

#[test]
fn every_schema_gives_what_the_profile_cut() {
    let ranks: Vec<u32> = (0..RANKS as u32).collect();
    let elements = |n| row(n).iter().map(|rows| rows * 8).collect::<Vec<u64>>();
    for schema in ["1.0.1", "1.0.3", "1.1.0-chakra.0.0.4"] {
        for functions in [[41, 42], [0, 0]] {
            let (capture, notes) = read_all(&[
                ("profile_rank0.json", &profile(0, functions)),
                ("et_rank0.json", &trace(schema, functions[0])),
            ]);
            let capture = capture.unwrap();
            assert_eq!(capture.files.len(), 1, "a trace is no capture");
            let expected = [(elements(0), Some(ranks.clone()), false), (elements(1), Some(ranks.clone()), false)];
            assert_eq!(kernels(&capture), expected, "{schema} {functions:?} {notes:?}");
            let joined = notes.iter().find(|(kind, _)| kind.contains("joined")).unwrap().1;
            assert!(joined.example.contains("2 of 2 records found, 2 completed"), "{}", joined.example);
        }
    }
}

#[test]
fn without_a_trace_the_cut_is_stated() {
    let (capture, notes) = read_all(&[("profile.json", &profile(0, [0, 0]))]);
    assert_eq!(kernels(&capture.unwrap()), vec![(Vec::new(), None, true); 2]);
    let kinds: Vec<&str> = notes.iter().map(|(kind, _)| kind).collect();
    assert!(kinds.contains(&"communications whose list of splits is cut"), "{kinds:?}");
    assert!(kinds.contains(&"communications whose list of ranks is cut"), "{kinds:?}");
}

#[test]
fn a_trace_alone_is_told_what_it_lacks() {
    let (capture, _) = read_all(&[("et.json", &trace("1.1.0", 0))]);
    let error = capture.unwrap_err();
    assert!(matches!(error, Error::ExecutionTraceAlone { .. }));
    assert!(error.to_string().contains("beside the profile"), "{error}");
}

#[test]
fn a_trace_goes_to_the_rank_of_its_name_or_the_one_it_fits() {
    let other = profile(1, [0, 0]).replace("all_to_allv", "allreduce");
    for name in ["et_rank0.json", "trace.json"] {
        let (capture, notes) =
            read_all(&[("a.json", &profile(0, [0, 0])), ("b.json", &other), (name, &trace("1.1.0", 0))]);
        assert_eq!(kernels(&capture.unwrap())[0].0.len(), RANKS as usize, "{name}");
        let joined = notes.iter().find(|(kind, _)| kind.contains("joined")).unwrap().1;
        assert!(joined.example.contains("with rank 0"), "{}", joined.example);
    }
    // The name of another rank: nothing there fits.
    let (capture, notes) =
        read_all(&[("a.json", &profile(0, [0, 0])), ("b.json", &other), ("et_rank1.json", &trace("1.1.0", 0))]);
    assert!(kernels(&capture.unwrap())[0].0.is_empty());
    assert!(notes.iter().any(|(kind, _)| kind.contains("fit no rank")));
}

#[test]
fn of_ranks_that_do_the_same_the_process_tells() {
    let other = profile(1, [0, 0]).replace("\"pid\": 9", "\"pid\": 7");
    let (capture, notes) =
        read_all(&[("a.json", &other), ("b.json", &profile(0, [0, 0])), ("t.json", &trace_of(7, "1.1.0", 0))]);
    let capture = capture.unwrap();
    assert_eq!((kernels(&capture)[0].0.len(), capture.timelines[1].process), (0, Some(7)));
    let joined = notes.iter().find(|(kind, _)| kind.contains("joined")).unwrap().1;
    assert!(joined.example.contains("with rank 1 (of its process)"), "{}", joined.example);
    // Without a process or a name it might be of either.
    let (_, notes) = read_all(&[("a.json", &other), ("b.json", &profile(0, [0, 0])), ("t.json", &trace("1.1.0", 0))]);
    assert!(notes.iter().any(|(kind, _)| kind.contains("fit no rank")));
    let (_, notes) =
        read_all(&[("a.json", &other), ("b.json", &profile(0, [0, 0])), ("host_1.json", &trace("1.1.0", 0))]);
    assert!(notes.iter().any(|(_, note)| note.example.contains("with rank 1 (by its name)")));
}

#[test]
fn calls_that_might_be_several_take_nothing() {
    // The trace holds the two calls twice, each time with other splits but the same totals.
    let text = trace("1.1.0", 0);
    let mut twice: Value = serde_json::from_str(&text).unwrap();
    let mut again: Vec<Value> = twice["nodes"].as_array().unwrap().clone();
    for node in &mut again {
        node["id"] = json!(node["id"].as_u64().unwrap() + 1000);
        for attribute in node["attrs"].as_array_mut().into_iter().flatten() {
            if attribute["name"] == "in_split_size" {
                let list: Vec<u64> = serde_json::from_str(attribute["value"].as_str().unwrap()).unwrap();
                attribute["value"] = json!(format!("{:?}", list.iter().rev().collect::<Vec<_>>()));
            }
        }
    }
    twice["nodes"].as_array_mut().unwrap().extend(again);
    let (capture, _) = read_all(&[("a.json", &profile(0, [0, 0])), ("et.json", &twice.to_string())]);
    assert_eq!(kernels(&capture.unwrap())[0].0, [0u64; 0]);
}

#[test]
fn a_trace_that_breaks_off_is_used_up_to_there() {
    let text = trace("1.0.3", 41);
    let end = text.rfind("aten::mm").unwrap();
    let (capture, notes) = read_all(&[("a.json", &profile(0, [41, 42])), ("et.json", &text[..end])]);
    assert_eq!(kernels(&capture.unwrap())[0].0.len(), RANKS as usize);
    assert!(notes.iter().any(|(kind, _)| kind.contains("break off")));
    let (capture, _) = read_all(&[("a.json", &profile(0, [41, 42])), ("et.json", "{\"schema\": 1, \"nodes\": [{")]);
    assert!(matches!(capture.unwrap_err(), Error::Malformed { .. }));
}

#[test]
fn sends_know_their_peer_by_its_place_in_the_group() {
    let node = json!({"name": "record_param_comms", "id": 1, "inputs": {
        "values": [[1, 2, 0, 6, 4, "cuda:0"], [3, true], ["pp", ""], 1, "send", [], [], 0, 1, 4],
        "shapes": [[2, 3]], "types": ["Tensor(float)"]}, "outputs": {"values": []}});
    let raw: RawNode = serde_json::from_value(node).unwrap();
    let facts = raw.read(&mut Notes::default()).unwrap().facts;
    assert_eq!((facts.op, facts.group_peer, facts.in_elements), (CommOp::Send { to: None }, Some(1), 6));
    assert_eq!((facts.group_name.as_deref(), facts.group_size), (Some("pp"), Some(4)));
}
