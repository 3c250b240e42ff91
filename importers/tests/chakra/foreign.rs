//! Files as others write them, and broken ones.

use std::io::Write as _;

use maestro_importers::synthesis::{Import, Options, synthesise};
use maestro_importers::{Notes, Reading, capture::Capture, read};

use crate::wire::{attribute, whole, written};
use crate::{capture, exported, imported};

const BOOL: u64 = 27;
const INT32: u64 = 7;
const INT64: u64 = 9;
const UINT32: u64 = 11;
const UINT64: u64 = 13;

/// A collective of a kind of number for its type and size.
fn collective(id: u64, deps: &[u64], us: u64, kind: Option<(u64, u64)>, size: Option<(u64, u64)>) -> Vec<u8> {
    let mut attributes = vec![attribute("is_cpu_op", BOOL, 0)];
    attributes.extend(kind.map(|(field, value)| attribute("comm_type", field, value)));
    attributes.extend(size.map(|(field, value)| attribute("comm_size", field, value)));
    written(id, "something", 7, deps, us, &attributes)
}

fn compute(id: u64, deps: &[u64], us: u64) -> Vec<u8> {
    written(id, "kernel", 4, deps, us, &[attribute("is_cpu_op", BOOL, 0)])
}

fn count(notes: &Notes, start: &str) -> u64 {
    notes.iter().filter(|(kind, _)| kind.starts_with(start)).map(|(_, note)| note.count).sum()
}

fn ops(import: &Import) -> Vec<(&str, Option<u64>)> {
    import.collectives.iter().filter(|row| row.rank == 0).map(|row| (row.op.as_str(), row.size)).collect()
}

#[test]
fn any_kind_of_integer_is_read_and_inputs_make_sizes() {
    // All-gather by its inputs: half of what each of two ranks gets.
    let gather = |kind, size| collective(2, &[1], 7, Some((kind, 2)), Some((size, 1000)));
    for (kind, size) in [(INT64, INT64), (INT32, UINT64), (UINT32, INT32), (UINT64, UINT32)] {
        let file = whole(&[compute(1, &[], 5), gather(kind, size)]);
        let (import, notes) = imported(&[file.clone(), file]);
        assert_eq!(ops(&import), [("all_gather", Some(2000))]);
        assert_eq!(count(&notes, "communications in bytes"), 2);
    }
}

#[test]
fn a_missing_type_is_no_all_reduce_of_a_size() {
    let file = whole(&[compute(1, &[], 5), collective(2, &[1], 7, None, Some((INT64, 1000)))]);
    let (import, notes) = imported(&[file.clone(), file]);
    assert!(ops(&import).iter().all(|(_, size)| size.is_none()), "{:?}", ops(&import));
    assert_eq!(count(&notes, "collectives without a type"), 2);
    // The type whose number is 0 is one.
    let file = whole(&[compute(1, &[], 5), collective(2, &[1], 7, Some((INT64, 0)), Some((INT64, 1000)))]);
    let (import, _) = imported(&[file.clone(), file]);
    assert_eq!(ops(&import), [("all_reduce", Some(1000))]);
}

#[test]
fn zero_bytes_and_what_is_not_known_are_noted_and_survived() {
    let odd = written(3, "later", 12, &[2], 1, &[attribute("maestro.unheard", 19 << 4, 3)]);
    let file = whole(&[compute(1, &[], 5), collective(2, &[1], 7, Some((INT64, 44)), Some((INT64, 0))), odd]);
    let (_, notes) = imported(&[file.clone(), file]);
    for kind in ["communications of zero bytes", "collectives of a type that is not known", "nodes of a type"] {
        assert_eq!(count(&notes, kind), 2, "{kind}");
    }
}

#[test]
fn sends_are_what_their_node_says_and_wait_for_their_receives() {
    // comm_type as one writer has it: the type of the node, which as a collective would be a broadcast.
    let message = |id: u64, kind: u64, deps: &[u64], from: u64, to: u64| {
        let attributes = [
            attribute("comm_type", INT64, kind),
            attribute("comm_size", INT64, 64),
            attribute("comm_src", INT32, from),
            attribute("comm_dst", INT32, to),
            attribute("comm_tag", INT32, 9),
        ];
        written(id, "message", kind, deps, 3, &attributes)
    };
    let files = [
        whole(&[compute(1, &[], 50), message(2, 5, &[1], 0, 1)]),
        whole(&[compute(1, &[], 10), message(2, 6, &[1], 0, 1), compute(3, &[2], 4)]),
    ];
    let (import, _) = imported(&files);
    let mut rows = import.measurements.iter().filter(|row| row.size_bytes.is_some());
    let (send, receive) = (rows.next().expect("a send"), rows.next().expect("a receive"));
    assert_eq!((send.rank, send.start_ns, send.end_ns), (0, 50_000, 53_000));
    assert_eq!((receive.rank, receive.start_ns, receive.end_ns), (1, 10_000, 53_000));
    assert_eq!((receive.wait_ns, receive.transfer_ns), (Some(40_000), Some(3_000)));
    let last = import.measurements.iter().filter(|row| row.rank == 1).map(|row| row.end_ns).max();
    assert_eq!(last, Some(57_000), "what depends on the receive starts when it has ended");
}

#[test]
fn messages_of_one_tag_are_received_in_order() {
    let message = |id: u64, kind: u64, deps: &[u64]| {
        let peer = if kind == 5 { "comm_dst" } else { "comm_src" };
        let attributes = [
            attribute("comm_size", INT64, 64 * id),
            attribute(peer, INT32, u64::from(kind == 5)),
            attribute("comm_tag", INT32, 0),
        ];
        written(id, "message", kind, deps, 3, &attributes)
    };
    let files = [
        whole(&[message(1, 5, &[]), message(2, 5, &[1])]),
        whole(&[message(1, 6, &[]), compute(3, &[1], 20), message(2, 6, &[3])]),
    ];
    let (import, notes) = imported(&files);
    assert_eq!(count(&notes, "communications that are not on all"), 0);
    let ends = |rank| {
        let rows = import.measurements.iter().filter(|row| row.rank == rank && row.size_bytes.is_some());
        rows.map(|row| (row.size_bytes, row.end_ns)).collect::<Vec<_>>()
    };
    assert_eq!(ends(0), [(Some(64), 3_000), (Some(128), 26_000)]);
    assert_eq!(ends(0), ends(1));
}

#[test]
fn ranks_that_all_send_before_they_receive_are_scheduled_apart_and_that_is_said() {
    let ring = |me: u64| {
        let other = 1 - me;
        let to = [attribute("comm_size", INT64, 64), attribute("comm_dst", INT32, other)];
        let from = [attribute("comm_size", INT64, 64), attribute("comm_src", INT32, other)];
        whole(&[written(1, "send", 5, &[], 3, &to), written(2, "recv", 6, &[1], 3, &from)])
    };
    let (import, notes) = imported(&[ring(0), ring(1)]);
    assert!(count(&notes, "communications whose ranks wait for each other in a circle") > 0);
    let why = import.plan.expect_err("a plan that would hang").to_string();
    assert!(why.contains("deadlock"), "{why}");
}

#[test]
fn a_stream_takes_one_node_after_the_other_and_hosts_launch() {
    let host = |id, us, deps: &[u64]| written(id, "op", 4, deps, us, &[attribute("is_cpu_op", BOOL, 1)]);
    let on = |id, deps: &[u64], us, stream| {
        written(id, "kernel", 4, deps, us, &[attribute("is_cpu_op", BOOL, 0), attribute("stream", INT64, stream)])
    };
    let file = whole(&[host(1, 10, &[]), on(2, &[1], 100, 7), host(3, 20, &[1]), on(4, &[3], 5, 7), on(5, &[3], 5, 8)]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("odd_name");
    std::fs::write(&path, file).expect("a file");
    let capture = read(&[path], &Reading::default(), &mut Notes::default()).expect("a capture");
    let rows: Vec<_> = capture.timelines[0].activities.iter().map(|a| (a.stream, a.start_ns, a.duration_ns)).collect();
    assert_eq!(rows, [(7, 10_000, 100_000), (8, 30_000, 5_000), (7, 110_000, 5_000)]);
    let calls: Vec<_> = capture.timelines[0].calls.iter().map(|call| call.start_ns).collect();
    assert_eq!(calls, [10_000, 30_000, 30_000]);
}

#[test]
fn circles_and_lost_dependencies_are_counted() {
    let file = whole(&[compute(1, &[2], 5), compute(2, &[1], 5), compute(3, &[77], 5)]);
    let (import, notes) = imported(std::slice::from_ref(&file));
    assert_eq!(count(&notes, "dependencies that close a circle"), 1);
    assert_eq!(count(&notes, "dependencies on nodes that are not in the file"), 1);
    assert_eq!(import.steps[0].span_ns, 15_000);
}

fn outcome(bytes: &[u8], strict: bool) -> Result<Capture, String> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("a file");
    let reading = Reading { strict, ..Reading::default() };
    read(&[file.path().to_owned()], &reading, &mut Notes::default()).map_err(|error| error.to_string())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn damaged_files_give_what_is_before_the_damage_or_an_error_with_a_remedy() {
    let file = exported(capture("pp_large").plan.as_ref().expect("a plan")).remove(0);
    let whole = outcome(&file, true).expect("a capture").timelines[0].activities.len();
    assert_eq!(outcome(&gzip(&file), true).expect("a capture").timelines[0].activities.len(), whole);
    let (mut less, mut refused) = (0, 0);
    for cut in (1..file.len()).step_by(file.len() / 97) {
        for bytes in [file[..cut].to_vec(), gzip(&file)[..gzip(&file).len() * cut / file.len()].to_vec()] {
            match outcome(&bytes, false) {
                Ok(capture) => less += usize::from(capture.timelines[0].activities.len() < whole),
                Err(error) => {
                    refused += 1;
                    assert!(error.contains("; "), "{error}");
                }
            }
        }
    }
    assert!(less > 100 && refused > 0, "{less} {refused}");
    let error = outcome(&file[..file.len() - 1], true).unwrap_err();
    assert!(error.contains("ends inside this message"), "{error}");
    // A length beyond the file, and a byte inside a message.
    for (at, value) in [(0, 0xff), (file.len() / 2, file[file.len() / 2] ^ 0xff)] {
        let mut broken = file.clone();
        broken[at] = value;
        if let Err(error) = outcome(&broken, false) {
            assert!(error.contains("; "), "{error}");
        }
    }
}

#[test]
fn no_change_of_a_byte_is_more_than_an_error() {
    let file = exported(capture("pp_large").plan.as_ref().expect("a plan")).remove(1);
    let (mut state, mut read) = (7u64, 0);
    for _ in 0..300 {
        let mut broken = file.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % broken.len();
            broken[at] = (state >> 20) as u8;
        }
        match outcome(&broken, false) {
            Ok(capture) => {
                read += 1;
                let _ = synthesise(&capture, &Options::default(), &mut Notes::default());
            }
            Err(error) => assert!(error.contains("; "), "{error}"),
        }
    }
    assert!(read > 50, "only {read} were read");
}

#[test]
fn graphs_of_the_host_alone_say_what_is_missing() {
    let error = outcome(&whole(&[written(1, "op", 4, &[], 5, &[attribute("is_cpu_op", BOOL, 1)])]), false).unwrap_err();
    assert!(error.contains("no node of a device") && error.contains("; "), "{error}");
}
