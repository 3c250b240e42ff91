//! Outputs of nccl-tests in their several forms, and which of their times stands for a block.

use std::path::Path;

use maestro_pattern::{Collective, CollectiveKind, Direction, Dtype, Transfer, Work};
use maestro_reports::{Baseline, Match, Point, Test};

/// Reads `text` as a file of this name.
fn read(name: &str, text: &str) -> Result<Baseline, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    Baseline::read(&path).map_err(|error| error.to_string())
}

fn point(kind: CollectiveKind, dtype: Dtype, ranks: usize, size_bytes: u64, time_us: f64) -> Point {
    Point { test: Test::Collective(kind), dtype, ranks, size_bytes, in_place: false, time_us }
}

/// The same, in place.
fn in_place(point: Point, time_us: f64) -> Point {
    Point { in_place: true, time_us, ..point }
}

#[test]
fn the_stored_output_of_several_tests_is_read() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/captures/baseline/nccl_tests_2xh200.txt");
    let baseline = Baseline::read(&file).unwrap();
    assert_eq!((baseline.tests.as_deref(), baseline.nccl.as_deref()), (Some("2.19.6"), Some("2.28.9")));
    let of = |test| baseline.points.iter().filter(|point| point.test == test).count();
    // Six sizes, out of place and in place.
    for test in
        [Test::Collective(CollectiveKind::AllReduce), Test::Collective(CollectiveKind::AllToAll), Test::SendRecv]
    {
        assert_eq!(of(test), 12, "{test:?}");
    }
    let first = point(CollectiveKind::AllReduce, Dtype::Bf16, 2, 1 << 20, 16.14);
    assert_eq!(baseline.points[..2], [first.clone(), in_place(first, 15.31)]);
}

/// As version 2.13 prints under MPI: no name of the test, rows of ranks, and a time stamp at the end of a row.
const OLD: &str = "\
# nThread 1 nGpus 1 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  18 on     host1 device  0 [0x18] NVIDIA A100
#  Rank  1 Group  0 Pid  19 on     host1 device  1 [0x2a] NVIDIA A100
#  Rank  2 Group  1 Pid  20 on     host2 device  0 [0x18] NVIDIA A100
#  Rank  3 Group  1 Pid  21 on     host2 device  1 [0x2a] NVIDIA A100
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong            timestamp
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)          %Y-%m-%d %H:%M:%S
        1024           256     float     sum      -1    8.210    0.12    0.12      0    8.150    0.13    0.13      0  2023-05-01 10:00:00
        2048           512     float              -1    9.500    0.22    0.22      0    9.410    0.22    0.22      0  2023-05-01 10:00:00
# Out of bounds values : 0 OK
";

#[test]
fn old_output_is_of_the_test_that_its_file_is_named_after() {
    let baseline = read("reduce_scatter_perf.log", OLD).unwrap();
    // Two groups of two ranks each; a row may lack the name of a reduction.
    let kind = CollectiveKind::ReduceScatter;
    let points = [(1024, 8.21, 8.15), (2048, 9.5, 9.41)].map(|(size, out, within)| {
        let point = point(kind, Dtype::F32, 2, size, out);
        [point.clone(), in_place(point, within)]
    });
    assert_eq!(baseline.points, points.concat());
    let refused = read("log.txt", OLD).unwrap_err();
    assert!(refused.contains("all_reduce_perf.txt") && refused.contains("line 13"), "{refused}");
}

/// As version 2.17 and later write with -J, cut down: two processes of two GPUs each.
const JSON: &str = r##"{"version":2,"start_time":"2026-01-01 00:00:00","args":[".\/build\/alltoall_perf","-J","x"],
"env":["A=B"],"nccl_version":22809,"config":{"nthreads":1,"ngpus":2,"minimum_bytes":1,"devices":[
{"rank":0,"group":0,"device":0},{"rank":2,"group":0,"device":0}]},
"results":[
{"size":1024,"count":128,"type":"half","redop":"none","root":"    -1",
 "out_of_place":{"time":10.5,"alg_bw":0.1,"bus_bw":0.1,"nwrong":null},
 "in_place":{"time":9.5,"alg_bw":0.1,"bus_bw":0.1,"nwrong":null},"actual_iterations":20},
{"size":2048,"count":256,"type":"half","redop":"none","root":"    -1","out_of_place":null,
 "in_place":{"time":9.5,"alg_bw":0.1,"bus_bw":0.1,"nwrong":null},"actual_iterations":20},
{"size":4096,"count":256,"type":"uint64","redop":"none","root":"    -1",
 "out_of_place":{"time":9.5,"alg_bw":0.1,"bus_bw":0.1,"nwrong":"nan"},"in_place":null}],
"out_of_bounds":{"count":0,"okay":"true"},"errors":[]}"##;

#[test]
fn json_is_read_and_what_cannot_be_compared_is_passed_over() {
    let baseline = read("x.json", JSON).unwrap();
    let of = |size, time| point(CollectiveKind::AllToAll, Dtype::F16, 4, size, time);
    assert_eq!(baseline.points, [of(1024, 10.5), in_place(of(1024, 0.0), 9.5), in_place(of(2048, 0.0), 9.5)]);
    assert_eq!(baseline.nccl.as_deref(), Some("2.28.9"));
    let refused = read("x.json", &JSON.replace("alltoall_perf", "hypercube_perf")).unwrap_err();
    assert!(refused.contains("hypercube_perf"), "{refused}");
    // A test that was killed leaves a document without an end.
    let refused = read("x.json", &JSON[..400]).unwrap_err();
    assert!(refused.contains("x.json") && refused.contains("line 6"), "{refused}");
}

#[test]
fn times_of_the_host_and_other_texts_are_refused() {
    let refused = read("all_reduce.txt", &OLD.replace("time   algbw", "cputime   algbw")).unwrap_err();
    assert!(refused.contains("(-C)"), "{refused}");
    assert!(read("x", "size count\n1 2 3\n").unwrap_err().contains("# nThread"));
    assert!(read("x", "").unwrap_err().contains("# nThread"));
}

#[test]
fn a_time_stands_for_the_same_operation_type_ranks_and_size() {
    let kind = CollectiveKind::AllGather;
    let sizes = [(1_000, 10.0), (4_000, 40.0), (4_000, 60.0), (16_001, 90.0)];
    let points = sizes.map(|(size, time)| point(kind, Dtype::Bf16, 2, size, time)).to_vec();
    let baseline = Baseline { name: "x".into(), tests: None, nccl: None, points };
    let work = |kind, dtype| Work::Collective(Collective::new(kind, 1, dtype));
    let find = |size| baseline.find(&work(kind, Dtype::Bf16), Some(size), Some(2));
    // Measured twice: the mean. Between: on the line from (1000, 10) to (4000, 50).
    assert_eq!(find(4_000), Match::Exact { time_us: 50.0 });
    assert_eq!(find(1_750), Match::Between { time_us: 20.0, sizes: (1_000, 4_000) });
    let within = Work::Collective(Collective { in_place: true, ..Collective::new(kind, 1, Dtype::Bf16) });
    for (found, because) in [
        (find(8_000), "other sizes"),
        (find(999), "other sizes"),
        (find(16_002), "other sizes"),
        (baseline.find(&work(kind, Dtype::F32), Some(4_000), Some(2)), "of bf16, not f32"),
        (baseline.find(&work(kind, Dtype::Bf16), Some(4_000), Some(8)), "on 2 ranks, not 8"),
        (baseline.find(&work(CollectiveKind::AllReduce, Dtype::Bf16), Some(4_000), Some(2)), "no all_reduce"),
        (baseline.find(&work(kind, Dtype::Bf16), None, Some(2)), "size is not known"),
        (baseline.find(&Work::P2p { transfers: Vec::new(), wrap: false }, Some(1), Some(2)), "in a ring only"),
        (baseline.find(&Work::Group(Vec::new()), Some(1), Some(2)), "no test of this kind"),
        (baseline.find(&within, Some(4_000), Some(2)), "out of place only"),
    ] {
        let Match::None { why } = found else { panic!("{found:?}, though {because}") };
        assert!(why.contains(because), "{why}");
    }
}

#[test]
fn what_is_done_in_place_has_the_time_in_place() {
    let kind = CollectiveKind::AllGather;
    let out = point(kind, Dtype::Bf16, 2, 4_000, 50.0);
    let points = vec![out.clone(), in_place(out, 40.0)];
    let baseline = Baseline { name: "x".into(), tests: None, nccl: None, points };
    for (in_place, time_us) in [(false, 50.0), (true, 40.0)] {
        let work = Work::Collective(Collective { in_place, ..Collective::new(kind, 1, Dtype::Bf16) });
        assert_eq!(baseline.find(&work, Some(4_000), Some(2)), Match::Exact { time_us });
    }
}

#[test]
fn a_ring_of_sends_and_receives_is_sendrecv() {
    let point = Point { test: Test::SendRecv, ..point(CollectiveKind::Barrier, Dtype::Bf16, 2, 4_000, 50.0) };
    let baseline = Baseline { name: "x".into(), tests: None, nccl: None, points: vec![point] };
    let transfer = |direction, offset, size| Transfer { direction, offset, size, dtype: Dtype::Bf16 };
    let find = |wrap, transfers| baseline.find(&Work::P2p { transfers, wrap }, Some(4_000), Some(2));
    let send = transfer(Direction::Send, 1, 4_000);
    let recv = |offset, size| transfer(Direction::Recv, offset, size);
    assert_eq!(find(true, vec![send.clone(), recv(-1, 4_000)]), Match::Exact { time_us: 50.0 });
    assert_eq!(find(true, vec![recv(-1, 4_000), send.clone()]), Match::Exact { time_us: 50.0 });
    for (wrap, transfers) in [
        // Ranks at the ends of a line do half of it.
        (false, vec![send.clone(), recv(-1, 4_000)]),
        (true, vec![send.clone()]),
        (true, vec![send.clone(), recv(1, 4_000)]),
        (true, vec![send.clone(), recv(-1, 2_000)]),
        (true, vec![send.clone(), send]),
    ] {
        let Match::None { why } = find(wrap, transfers) else { panic!("no ring") };
        assert!(why.contains("in a ring only"), "{why}");
    }
}
