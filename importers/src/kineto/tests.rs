//! Made-up files, read strictly: every kind of row, and what is wrong told with its place.

use std::io::Write as _;

use maestro_pattern::{CopyDirection, Dtype, GemmLayout};

use super::*;
use crate::capture::{ActivityKind, CallKind, CommOp, OperatorWork, Product};

/// A small trace of every kind of row, its metadata last, its rows out of order, with what has to be left out.
pub(super) const SMALL: &str = r#"{"schemaVersion": 1, "note": {"traceEvents": ["not these"]},
 "traceEvents": [
  {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": "python"}},
  {"ph": "X", "cat": "kernel", "name": "second", "pid": 3, "tid": 7, "ts": 20.002, "dur": 5,
   "args": {"stream": 7, "correlation": 12, "External id": 12, "grid": [2, 3, 4]}},
  {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 3, "tid": 8, "ts": 10.001, "dur": 1.5,
   "args": {"stream": 8, "correlation": 11, "External id": 5, "Collective name": "allreduce", "dtype": "BFloat16",
            "In msg nelems": 64, "Out msg nelems": 64, "Group size": 2, "Process Group Ranks": "[4, 6]", "Seq": 9}},
  {"ph": "X", "cat": "gpu_user_annotation", "name": "nccl:all_reduce", "pid": 3, "tid": 8, "ts": 10, "dur": 3},
  {"ph": "X", "cat": "kernel", "name": "lost", "pid": 3, "tid": 7, "ts": 0, "dur": 0, "args": {"correlation": 13}},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 3, "tid": 7, "ts": 30, "dur": 1,
   "args": {"stream": 7, "correlation": 14, "bytes": 832, "memory bandwidth (GB/s)": 0.5}},
  {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 3, "tid": 8, "ts": 8, "dur": 1, "args": {
   "stream": 8, "correlation": 21, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 20,
   "wait_on_cuda_event_id": 5}},
  {"ph": "X", "cat": "cuda_sync", "name": "Event Sync", "pid": 3, "tid": -1, "ts": 8, "dur": 1, "args": {}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 9, "dur": 1,
   "args": {"correlation": 11}},
  {"ph": "X", "cat": "cuda_runtime", "name": "INVALID", "pid": 9, "tid": 9, "ts": 7, "dur": 1,
   "args": {"correlation": 12}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaEventQuery", "pid": 9, "tid": 9, "ts": 6, "dur": 1,
   "args": {"correlation": 99}},
  {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 9, "tid": "9", "ts": 5, "dur": 6,
   "args": {"External id": 5, "Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 64}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 6.5, "dur": 2,
   "args": {"External id": 6, "Input Dims": [[2, 3], [3, 5]], "Input Strides": [[1, 2], [5, 1]],
            "Input type": ["float", "float"]}},
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "pid": 9, "tid": 9, "ts": 1, "dur": 40},
  {"ph": "X", "cat": "user_annotation", "name": "a \"b\"", "pid": 9, "tid": 9, "ts": 2, "dur": 3}
 ],
 "baseTimeNanoseconds": 1790857026000000000,
 "deviceProperties": [{"id": 3, "name": "NVIDIA H200", "numSms": 132}],
 "distributedInfo": {"rank": 4, "world_size": 8, "pg_config": [{"pg_name": "0", "ranks": [4, 6]}]}}
"#;

const BASE: i64 = 1_790_857_026_000_000_000;

pub(super) fn read_as(content: &[u8], reading: &Reading) -> (Result<Vec<Timeline>>, Notes) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    let mut notes = Notes::default();
    (Kineto.read(file.path(), reading, &mut notes), notes)
}

fn read_bytes(content: &[u8]) -> (Result<Vec<Timeline>>, Notes) {
    read_as(content, &Reading { strict: true, helpers: 0 })
}

fn read_text(content: &str) -> (Vec<Timeline>, Notes) {
    let (timelines, notes) = read_bytes(content.as_bytes());
    (timelines.unwrap(), notes)
}

fn read_error(content: &str) -> Error {
    read_bytes(content.as_bytes()).0.unwrap_err()
}

#[test]
fn every_kind_of_row_is_read() {
    let (timelines, notes) = read_text(SMALL);
    let [timeline] = timelines.as_slice() else { panic!("{} timelines", timelines.len()) };
    assert_eq!((timeline.rank, timeline.world_size, timeline.device), (Some(4), Some(8), 3));
    assert_eq!((timeline.device_name.as_deref(), timeline.device_sms), (Some("NVIDIA H200"), Some(132)));
    assert_eq!(timeline.groups[0].ranks, [4, 6]);

    let [comm, kernel, copy] = timeline.activities.as_slice() else { panic!("{:?}", timeline.activities) };
    assert_eq!((comm.start_ns, comm.duration_ns, comm.external_id), (BASE + 10_001, 1_500, Some(5)));
    let facts = comm.comm.as_deref().unwrap();
    assert_eq!((facts.in_elements, facts.ranks.as_deref(), facts.seq), (64, Some(&[4, 6][..]), Some(9)));
    assert_eq!((kernel.start_ns, kernel.kind), (BASE + 20_002, ActivityKind::Kernel { blocks: 24 }));
    assert_eq!(kernel.external_id, None, "an external id that repeats the correlation links nothing");
    let direction = Some(CopyDirection::H2d);
    assert_eq!(copy.kind, ActivityKind::Copy { direction, bytes: 832 });

    let calls: Vec<_> = timeline.calls.iter().map(|call| (call.kind, call.correlation, call.start_ns - BASE)).collect();
    assert_eq!(calls, [(CallKind::Launch, Some(12), 7_000), (CallKind::Launch, Some(11), 9_000)]);
    assert_eq!((timeline.records[0].thread, timeline.records[0].end_ns), (9, BASE + 11_000));
    assert!(matches!(timeline.records[0].facts.op, CommOp::Collective(_)));
    let (dtype, layout) = (Dtype::F32, GemmLayout::Tn);
    let product = Product { m: 2, n: 5, k: 3, batch: 1, dtype, layout };
    assert_eq!(timeline.operator(1), Some((0, &OperatorWork::Products(vec![product]))), "by the time of its launch");
    assert_eq!((&*timeline.steps[0].name, timeline.steps[0].end_ns), ("ProfilerStep#4", BASE + 41_000));
    assert_eq!(timeline.annotations.iter().map(|range| &*range.name).collect::<Vec<_>>(), ["a \"b\""]);
    let wait = timeline.stream_waits[0];
    assert_eq!((wait.stream, wait.on_stream, wait.record_correlation, wait.event), (8, Some(7), Some(20), Some(5)));

    let notes: Vec<_> = notes.iter().map(|(kind, note)| (kind, note.example.as_str())).collect();
    assert_eq!(notes, [("device rows without times, left out", "lost")]);
}

#[test]
fn the_first_format_of_2020_is_read() {
    let (timelines, _) = read_text(
        r#"[{"ph": "X", "cat": "Kernel", "name": "k", "pid": 1, "tid": "stream 7", "ts": 1607000000000000, "dur": 2,
             "args": {"correlation": 5, "external id": 3}},
            {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": "123 (python)", "ts": 1,
             "dur": 1, "args": {"correlation": 5}},
            {"ph": "X", "cat": "Operator", "name": "ProfilerStep#1", "pid": 9, "tid": "123", "ts": 1, "dur": 9}]"#,
    );
    let (activity, call) = (&timelines[0].activities[0], timelines[0].calls[0]);
    assert_eq!((activity.stream, activity.external_id), (7, Some(3)));
    assert_eq!(activity.start_ns, 1_607_000_000_000_000_000);
    assert_eq!((call.thread, timelines[0].steps.len(), timelines[0].rank), (123, 1, None));
}

#[test]
fn a_file_of_two_devices_gives_two_timelines() {
    let kernel = |device: u32, correlation: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "k", "pid": {device}, "ts": 5, "dur": 1,
                 "args": {{"correlation": {correlation}, "External id": {}}}}},
               {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 1, "dur": 1,
                 "args": {{"correlation": {correlation}}}}},
               {{"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 9, "tid": 9, "ts": 1, "dur": 1,
                 "args": {{"External id": {}, "Collective name": "wait"}}}}"#,
            correlation + 100,
            correlation + 100
        )
    };
    let text = format!(
        r#"{{"distributedInfo": {{"rank": 1}}, "traceEvents": [{}, {}, {},
            {{"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "pid": 9, "tid": 9, "ts": 2, "dur": 1,
              "args": {{"correlation": 50}}}}]}}"#,
        kernel(0, 1),
        kernel(1, 2),
        kernel(1, 3)
    );
    let (timelines, notes) = read_text(&text);
    let rows: Vec<_> = timelines
        .iter()
        .map(|timeline| {
            (timeline.device, timeline.rank, timeline.activities.len(), timeline.calls.len(), timeline.records.len())
        })
        .collect();
    // The call that no activity answers to is on both.
    assert_eq!(rows, [(0, None, 1, 2, 1), (1, Some(1), 2, 3, 2)]);
    assert_eq!(notes.iter().count(), 1);
}

#[test]
fn what_is_no_trace_is_told_so() {
    for (text, place) in [
        ("{}", 2),
        (r#"{"traceEvents": 3}"#, 18),
        (r#"{"a": [1, {"traceEvents": []}]}"#, 31),
        ("[1, 2]", 1),
        (r#"[{"ph": "X"}, 7]"#, 14),
        ("17", 0),
    ] {
        match read_error(text) {
            Error::Shape { byte, .. } => assert_eq!(byte, place, "{text}"),
            other => panic!("{text}: {other}"),
        }
    }
    for text in ["", "  \n", "\u{feff}"] {
        assert!(matches!(read_error(text), Error::Empty { .. }), "{text:?}");
    }
}

#[test]
fn host_rows_alone_are_an_error_that_counts_them() {
    let text =
        r#"{"traceEvents": [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 1}]}"#;
    assert!(matches!(read_error(text), Error::NoActivities { launches: 1, .. }));
    assert!(matches!(read_error(r#"{"traceEvents": []}"#), Error::NoActivities { launches: 0, .. }));
}

#[test]
fn malformed_text_is_told_with_its_place() {
    for (text, at) in [
        ("{\"traceEvents\": [{\"ph\": \"X\",\n \"ts\": 1, @\"dur\": 2}]}", "@"),
        ("{\"traceEvents\": [{\"ph\": \"X\", \"ts\": 0x1}]}", "x1"),
        ("{\"traceEvents\": [{\"name\": \"a\nb\"}]}", "a\nb"),
        ("{\"traceEvents\": [], \"distributedInfo\": {\"rank\": !}}", "!"),
        ("{\"traceEvents\": [] ; }", ";"),
        ("{\"traceEvents\": [{},]}", "]"),
        ("{\"traceEvents\": [{},,{}]}", ",{"),
        ("{\"traceEvents\": []} {}", "{}"),
        ("{traceEvents: []}", "traceEvents"),
    ] {
        match read_error(text) {
            Error::Malformed { byte, .. } => assert_eq!(byte as usize, text.rfind(at).unwrap(), "{text}"),
            other => panic!("{text}: {other}"),
        }
    }
    match read_bytes(b"{\"traceEvents\": [{\"name\": \"\xff\"}]}").0 {
        Err(Error::Malformed { byte, problem, .. }) => {
            assert_eq!((byte, problem.as_str()), (27, "bytes that are no UTF-8"))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_trace_cut_anywhere_is_truncated_there() {
    let whole = SMALL.trim_end();
    for length in 1..whole.len() {
        match read_error(&whole[..length]) {
            Error::Truncated { byte, .. } => assert_eq!(byte, length as u64),
            other => panic!("cut at {length}: {other}"),
        }
    }
}

#[test]
fn no_change_of_a_byte_is_a_panic() {
    for (at, byte) in (0..SMALL.len()).zip(b"\"\\}[9-,\0\xff{]:".iter().cycle()) {
        let mut changed = SMALL.as_bytes().to_vec();
        changed[at] = *byte;
        for strict in [true, false] {
            let Err(error) = read_as(&changed, &Reading { strict, helpers: 0 }).0 else { continue };
            assert!(error.to_string().contains("; "), "an error without a remedy: {error}");
        }
    }
}

#[test]
fn contents_are_recognised_not_names() {
    let verdict = |text: &str| Kineto.recognise(&Head::new(text.as_bytes().to_vec(), false));
    assert_eq!(verdict(SMALL), Verdict::Yes);
    assert_eq!(verdict("\u{feff} [\n{\"ph\": \"X\"}"), Verdict::Yes);
    assert_eq!(verdict("{\"a\": 1}"), Verdict::Maybe);
    assert_eq!(verdict("{}"), Verdict::Maybe);
    for text in ["maestro: 1", "SQLite format 3\0", "[section]", "{x}", "", "\"traceEvents\""] {
        assert_eq!(verdict(text), Verdict::No, "{text}");
    }
}

#[test]
fn what_a_rank_left_on_another_device_is_no_rank() {
    let stray = r#"{"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 5, "tid": 7, "ts": 3, "dur": 1,
        "args": {"stream": 7, "bytes": 4}}, "#;
    let (timelines, notes) = read_text(&SMALL.replacen("{\"ph\": \"M\"", &format!("{stray}{{\"ph\": \"M\""), 1));
    let devices: Vec<_> = timelines.iter().map(|timeline| (timeline.device, timeline.rank)).collect();
    assert_eq!(devices, [(3, Some(4))]);
    let left_out = notes.iter().find(|(kind, _)| kind.contains("does not communicate"));
    assert_eq!(left_out.map(|(_, note)| note.count), Some(1));
}

#[test]
fn of_arguments_given_twice_the_last_counts() {
    let (timelines, notes) = read_text(&SMALL.replace("\"Seq\": 9", "\"Seq\": 9, \"dtype\": \"Float\""));
    assert_eq!(timelines[0].activities.len(), 3);
    assert!(notes.iter().any(|(kind, note)| kind.contains("key that occurs twice") && note.count == 1));
}
