//! Small exports made by hand: old and new schemas, what is missing, what is refused.

use std::path::{Path, PathBuf};

use maestro_pattern::{CollectiveKind, Dtype};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::capture::{CallKind, Capture, CommOp, Timeline};
use crate::{Error, Head, IMPORTERS, Importer, Notes, Reading, Result, Verdict, read};

/// Process 7 of host 1, its thread 9; and process 8.
const PROCESS: i64 = (1 << 48) + (7 << 24);
const THREAD: i64 = PROCESS + 9;
const OTHER: i64 = (1 << 48) + (8 << 24);

struct Made {
    folder: TempDir,
    connection: Connection,
}

impl Made {
    /// A database of these statements.
    fn new(statements: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::open(folder.path().join("a.sqlite")).unwrap();
        connection.execute_batch(statements).unwrap();
        Self { folder, connection }
    }

    fn read(&self) -> (Result<Capture>, Notes) {
        let mut notes = Notes::default();
        (read(&[self.folder.path().join("a.sqlite")], &Reading::default(), &mut notes), notes)
    }

    fn capture(&self) -> (Capture, Notes) {
        let (capture, notes) = self.read();
        (capture.unwrap(), notes)
    }
}

/// As Nsight Systems 2020 wrote it: few columns, no schema version, texts in any encoding.
fn old() -> String {
    format!(
        "CREATE TABLE StringIds (id INTEGER, value TEXT);
         INSERT INTO StringIds VALUES (1, 'gemm<float>'), (2, 'cudaLaunchKernel_v7000'), (3, CAST(x'c8ea' AS TEXT));
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
            globalPid INT, demangledName INT, gridX INT, gridY INT, gridZ INT);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2000, 2500, 0, 7, 12, {PROCESS}, 3, 4, 1, 1),
            (1000, 1500, 0, 7, 11, {PROCESS}, 1, 4, 2, 1);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (900, 950, {THREAD}, 12, 2), (800, 850, {THREAD}, 11, 2);"
    )
}

#[test]
fn the_oldest_schema_is_read_unsorted_and_in_any_encoding() {
    let (capture, _) = Made::new(&old()).capture();
    let [timeline] = capture.timelines.as_slice() else { panic!("{}", capture.timelines.len()) };
    assert_eq!((timeline.process, timeline.device, timeline.device_name.as_deref()), (Some(7), 0, None));
    let names: Vec<&str> = timeline.activities.iter().map(|a| &*a.name).collect();
    assert_eq!(names, ["gemm<float>", "\u{fffd}\u{fffd}"]);
    assert_eq!((timeline.activities[0].duration_ns, timeline.activities[0].correlation), (500, Some(11)));
    let calls: Vec<_> = timeline.calls.iter().map(|call| (call.kind, call.start_ns)).collect();
    assert_eq!(calls, [(CallKind::Launch, 800), (CallKind::Launch, 900)]);
}

#[test]
fn correlations_count_per_process() {
    let made = Made::new(&old());
    let rows = format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5000, 5500, 1, 7, 11, {OTHER}, 1, 1, 1, 1);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (4000, 4100, {}, 11, 2);",
        OTHER + 1
    );
    made.connection.execute_batch(&rows).unwrap();
    let (capture, notes) = made.capture();
    let told: Vec<_> = capture.timelines.iter().map(|t| (t.rank, t.process, t.device, t.calls.len())).collect();
    assert_eq!(told, [(Some(0), Some(7), 0, 2), (Some(1), Some(8), 1, 1)]);
    assert!(notes.iter().any(|(kind, note)| kind.contains("order of the devices") && note.count == 2));
}

#[test]
fn what_cannot_be_imported_is_refused_with_a_remedy() {
    let empty = Made::new("CREATE TABLE StringIds (id INTEGER, value TEXT);").read().0.unwrap_err();
    assert!(matches!(empty, Error::DeviceRowsLost { activities: 0, .. }), "{empty}");
    let other = Made::new("CREATE TABLE photos (id INTEGER);").read().0.unwrap_err();
    assert!(matches!(other, Error::NoNsight { table: "StringIds", .. }), "{other}");
    let graphs = Made::new(&old());
    graphs
        .connection
        .execute_batch("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT); INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1)")
        .unwrap();
    let refused = graphs.read().0.unwrap_err();
    assert!(refused.to_string().contains("--cuda-graph-trace=node"), "{refused}");
    let lost = Made::new(&old());
    for n in 0..20 {
        let row = format!("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({n}, {n}, {THREAD}, {}, 2)", 100 + n);
        lost.connection.execute_batch(&row).unwrap();
    }
    let refused = lost.read().0.unwrap_err();
    assert!(matches!(refused, Error::DeviceRowsLost { activities: 2, .. }), "{refused}");
}

#[test]
fn a_damaged_database_says_what_sqlite_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.sqlite");
    let mut bytes = b"SQLite format 3\0".to_vec();
    bytes.extend([0xab; 4096]);
    std::fs::write(&file, bytes).unwrap();
    let error = read(&[file], &Reading::default(), &mut Notes::default()).unwrap_err();
    assert!(matches!(error, Error::Database { .. }) && error.to_string().contains("SQLite says"), "{error}");
}

/// The same with an all-gather, whose range has a payload with the header of SQLite exports, and waits of 2025's schema.
fn new() -> String {
    let payload = [1u64, (1 << 24) + 4, 16, 48, 0xabcd, 4096].map(|n| n.to_le_bytes()).concat();
    let payload: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
    old()
        + &format!(
            "INSERT INTO StringIds VALUES (10, 'ncclDevKernel_AllGather_RING_LL(x)'), (11, 'ncclAllGather'),
                (12, 'cudaStreamWaitEvent_v3020'), (13, 'cudaEventRecord_v3020');
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (6000, 7000, 0, 20, 30, {PROCESS}, 10, 8, 1, 1);
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (5010, 5020, {THREAD}, 30, 2),
                (4010, 4020, {THREAD}, 28, 13), (4030, 4040, {THREAD}, 29, 12);
             CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT,
                domainId INT, binaryData BLOB);
             INSERT INTO NVTX_EVENTS VALUES (-10, NULL, 75, 'NCCL', NULL, {THREAD}, 3, NULL),
                (-10, NULL, 75, 'cuBLAS', NULL, {THREAD}, 4, NULL),
                (5000, 5100, 59, NULL, 11, {THREAD}, 3, x'{payload}'),
                (700, 5500, 59, 'step 4', NULL, {THREAD}, 0, NULL),
                (710, 5400, 59, 'forward', NULL, {THREAD}, 0, NULL),
                (720, 5300, 59, 'cublasGemmEx', NULL, {THREAD}, 4, NULL),
                (730, 5200, 59, 'aten::mm, op_id = 4', NULL, {THREAD}, 0, NULL);
             CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INT, end INT, streamId INT, correlationId INT,
                globalPid INT, syncType INT, eventId INT, eventSyncId INT);
             CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (streamId INT, correlationId INT, globalPid INT, eventId INT,
                eventSyncId INT);
             INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (4030, 4040, 20, 29, {PROCESS}, 3, 5, 77),
                (4050, 4060, 4294967295, 12, {PROCESS}, 2, 5, 77);
             INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (9, 27, {PROCESS}, 5, 76), (7, 28, {PROCESS}, 6, 77);"
        )
}

fn only(made: &Made) -> Timeline {
    made.capture().0.timelines.remove(0)
}

#[test]
fn payloads_waits_steps_and_ranges_of_a_new_schema_are_read() {
    let timeline = only(&Made::new(&new()));
    let [record] = timeline.records.as_slice() else { panic!("{:?}", timeline.records) };
    let facts = &record.facts;
    assert_eq!(facts.op, CommOp::Collective(CollectiveKind::AllGather));
    assert_eq!((facts.dtype, facts.in_elements, facts.out_elements), (Some(Dtype::U8), 4096, 0));
    assert_eq!(facts.group_name.as_deref(), Some("000000000000abcd"));
    assert_eq!(record.external_id, Some(30));
    assert_eq!(timeline.activities.iter().filter(|a| a.external_id == Some(30)).count(), 1);
    // By its call it is a wait of a stream, whatever its own number says, and by its recording the other event's.
    let [wait] = timeline.stream_waits.as_slice() else { panic!("{:?}", timeline.stream_waits) };
    assert_eq!((wait.stream, wait.on_stream, wait.record_correlation, wait.event), (20, Some(7), Some(28), Some(5)));
    let steps: Vec<&str> = timeline.steps.iter().map(|mark| &*mark.name).collect();
    let ranges: Vec<&str> = timeline.annotations.iter().map(|range| &*range.name).collect();
    assert_eq!((steps, ranges), (vec!["step 4"], vec!["forward"]));
}

#[test]
fn without_numbers_of_recordings_a_wait_is_for_the_latest_one_before_it() {
    let made = Made::new(&new().replace("eventSyncId INT", "ignored INT"));
    let wait = only(&made).stream_waits[0];
    assert_eq!((wait.on_stream, wait.record_correlation), (Some(9), Some(27)));
}

/// JSON lines of a rank: it makes a communicator, all-gathers and exchanges.
fn lines(rank: u32, communicator: u64, makes: bool) -> String {
    let base64 = |bytes: &[u8]| -> String {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for group in bytes.chunks(3) {
            let mut padded = [0; 3];
            padded[..group.len()].copy_from_slice(group);
            let bits = u32::from_be_bytes([0, padded[0], padded[1], padded[2]]);
            text.extend((0..4).map(|n| ALPHABET[(bits >> (18 - 6 * n)) as usize & 63] as char));
        }
        text
    };
    let range = |name: &str, start: u32, end: u32, data: Option<Vec<u8>>| {
        let payload = data.map_or(String::new(), |data| {
            format!(r#""Payload":{{"BinaryData":[{{"SchemaId":"16777220","Data":"{}"}}]}},"#, base64(&data))
        });
        format!(
            r#"{{"Type":59,"NvtxEvent":{{"Type":59,"Timestamp":"{start}",{payload}"Text":"{name}","GlobalTid":"{THREAD}","EndTimestamp":"{end}","DomainId":"1"}}}}"#
        )
    };
    let kernel = |name: u32, correlation: u32, start: u32| {
        format!(
            r#"{{"Type":79,"CudaEvent":{{"startNs":"{start}","endNs":"{}","correlationId":{correlation},"deviceId":0,"contextId":"1","streamId":"7","globalPid":"{PROCESS}","kernel":{{"demangledName":"{name}","gridX":8,"gridY":1,"gridZ":1}}}}}}
{{"Type":48,"TraceProcessEvent":{{"startNs":"{}","endNs":"{}","correlationId":{correlation},"name":"0","globalTid":"{THREAD}"}}}}"#,
            start + 100,
            start - 500,
            start - 490
        )
    };
    let number = |n: u64| n.to_le_bytes().to_vec();
    let small = |n: u32| n.to_le_bytes().to_vec();
    let mut all = vec![
        r#"{"data": ["cudaLaunchKernel_v7000", "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_SendRecv"]}"#
            .to_owned(),
        r#"{"Type":75,"NvtxEvent":{"Type":75,"Timestamp":"-5","Text":"NCCL","GlobalTid":"THREAD","DomainId":"1"}}"#
            .replace("THREAD", &THREAD.to_string()),
    ];
    if makes {
        let data = [number(communicator), small(2), small(rank), small(0), small(0)].concat();
        all.push(range("ncclCommInitRankConfig", 10, 20, Some(data)));
    }
    all.push(range("ncclAllGather", 400, 600, Some([number(communicator), number(64)].concat())));
    all.push(kernel(1, 1, 1_000));
    all.push(range("ncclGroupStart", 1_300, 1_310, None));
    for peer in 0..2 {
        let of = |bytes| [number(communicator), number(bytes), small(peer), small(0)].concat();
        all.push(range("ncclSend", 1_320 + peer, 1_321 + peer, Some(of(100 + u64::from(peer)))));
        all.push(range("ncclRecv", 1_330 + peer, 1_331 + peer, Some(of(200 + u64::from(peer)))));
    }
    all.push(range("ncclGroupEnd", 1_400, 1_600, None));
    all.push(kernel(2, 2, 2_000));
    all.join("\n")
}

fn json(files: &[String]) -> (Capture, Notes) {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..files.len()).map(|n| folder.path().join(format!("file_{n}.jsonl"))).collect();
    for (path, text) in paths.iter().zip(files) {
        std::fs::write(path, text).unwrap();
    }
    let mut notes = Notes::default();
    let capture = read(&paths, &Reading::default(), &mut notes).unwrap();
    (capture, notes)
}

fn told(notes: &Notes, words: &str) -> bool {
    notes.iter().any(|(kind, _)| kind.contains(words))
}

#[test]
fn ranks_of_reports_and_communicators_are_those_that_joined() {
    // In the order of files rank 1 comes first.
    let (capture, notes) = json(&[lines(1, 5, true), lines(0, 5, true)]);
    let files: Vec<_> = capture.timelines.iter().map(|t| (t.rank, t.world_size, name(&t.file))).collect();
    assert_eq!(files, [(Some(0), Some(2), "file_1.jsonl".into()), (Some(1), Some(2), "file_0.jsonl".into())]);
    assert!(told(&notes, "ranks taken from the largest communicator"));
    for timeline in &capture.timelines {
        let [gather, exchange] = timeline.records.as_slice() else { panic!("{:?}", timeline.records) };
        assert_eq!(gather.facts.ranks, Some(vec![0, 1]));
        assert_eq!(exchange.facts.op, CommOp::Collective(CollectiveKind::AllToAll));
        assert_eq!((&*exchange.facts.in_splits, &*exchange.facts.out_splits), (&[100, 101][..], &[200, 201][..]));
    }
}

#[test]
fn addresses_of_communicators_are_put_together_by_their_calls_and_that_is_said() {
    let (capture, notes) = json(&[lines(0, 5, false), lines(1, 6, false)]);
    assert!(told(&notes, "only their equal calls show to be one"));
    assert!(capture.timelines.iter().flat_map(|t| &t.records).all(|record| record.facts.ranks == Some(vec![0, 1])));
    // Of one rank alone nothing is known.
    let (capture, notes) = json(&[lines(0, 5, false)]);
    assert!(!told(&notes, "taken as all-to-alls") && capture.timelines[0].records.len() == 5);
}

#[test]
fn lines_that_are_damaged_are_left_out_or_refused() {
    let text = lines(0, 5, true) + "\n{\"Type\":79,\"CudaEv";
    let (capture, notes) = json(std::slice::from_ref(&text));
    assert!(told(&notes, "lines that are not understood") && capture.timelines[0].activities.len() == 2);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    std::fs::write(&file, &text).unwrap();
    let outcome = read(&[file], &Reading { strict: true, helpers: 0 }, &mut Notes::default());
    match outcome {
        Err(Error::Malformed { byte, .. }) => assert_eq!(byte, text.len() as u64 - 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn formats_are_told_by_their_beginnings() {
    let who = |bytes: &[u8]| {
        let head = Head::new(bytes.to_vec(), false);
        let sure = |importer: &&&dyn Importer| importer.recognise(&head) == Verdict::Yes;
        IMPORTERS.iter().find(sure).map(|importer| importer.name())
    };
    assert_eq!(who(lines(0, 5, true).as_bytes()), Some("nsight-jsonl"));
    assert_eq!(who(br#"{"Type":48,"TraceProcessEvent":{}}"#), Some("nsight-jsonl"));
    assert_eq!(who(b"SQLite format 3\0...CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL"), Some("nsight-sqlite"));
    for other in [&b"{\"data\": [\"x\"]}"[..], b"{\"data\": [\"x\"]}\n{\"a\": 1}", b"SQLite format 3\0", b"\x00\x01"] {
        assert_eq!(who(other), None);
    }
}

#[test]
fn a_stray_process_is_no_rank_and_counts_as_left_out() {
    let made = Made::new(&new());
    for n in 0..10 {
        let row = format!("({0}, {0} + 5, 0, 7, {1}, {PROCESS}, 1, 1, 1, 1)", 10_000 + 10 * n, 200 + n);
        made.connection.execute_batch(&format!("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES {row}")).unwrap();
    }
    let stray = format!("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5000, 5500, 3, 7, 11, {OTHER}, 1, 1, 1, 1)");
    made.connection.execute_batch(&stray).unwrap();
    let (capture, notes) = made.capture();
    assert_eq!((capture.timelines.len(), capture.timelines[0].process), (1, Some(7)));
    assert!(told(&notes, "that is no rank"));
    let left_out: Vec<_> = capture.timelines[0].left_out.iter().map(|(what, counts)| (what.0, *counts)).collect();
    assert_eq!(left_out, [("kernel", (1, 500))]);
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
