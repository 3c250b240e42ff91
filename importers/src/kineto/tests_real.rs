//! Our captures, read whole. The figures were counted by a Python script from the raw JSON, not by this code.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::*;
use crate::capture::{Activity, ActivityKind, CallKind, CommOp, OperatorWork};

/// Captures and ranks, with how many rows there are of each kind: kernels, copies, sets; launches, event records,
/// stream waits, synchronisations; records, kernels with metadata of their own, activities with an external id,
/// operators that launched products, recorded stream waits, annotations; and the activities launched within each step.
const COUNTS: &str = "
ddp_large 0 982 134 236 1352 260 208 3 52 52 1352 150 0 58 676 676
ddp_large 1 982 134 236 1352 260 208 3 52 52 1352 150 0 58 676 676
fsdp 0 1478 76 556 2110 612 434 3 76 76 2110 438 0 392 1055 1055
fsdp 1 1478 76 556 2110 612 434 3 76 76 2110 438 0 392 1055 1055
fsdp_large 0 704 28 236 968 228 162 3 28 28 968 150 0 152 484 484
fsdp_large 1 704 28 236 968 228 162 3 28 28 968 150 0 152 484 484
fsdp_large_sync 0 704 28 236 968 228 162 3 28 28 968 150 134 152 484 484
fsdp_large_sync 1 704 28 236 968 228 162 3 28 28 968 150 134 152 484 484
graph 0 18 0 8 2 0 0 3 0 0 0 0 0 0 13 13
graph 1 18 0 8 2 0 0 3 0 0 0 0 0 0 13 13
moe 0 730 48 316 1102 172 88 35 44 40 1092 158 0 48 547 547
moe 1 730 48 316 1102 172 88 35 44 40 1092 158 0 48 547 547
pp_large 0 1178 0 496 1674 54 46 3 26 0 1664 288 0 14 837 837
pp_large 1 1108 0 448 1556 54 46 3 26 0 1546 312 0 14 778 778
";

/// Captures and ranks, with exact figures of the activities: first start, last end and summed duration in nanoseconds;
/// blocks of all kernels, bytes of all copies and sets; and the input elements of all records.
const SUMS: &str = "
ddp_large 0 1796046713655141597 1796046714051425533 456352319 30001984 8541673128 2135390720
ddp_large 1 1796046713655140387 1796046714051465347 428478632 30001984 8541673128 2135390720
fsdp 0 1796046083945168169 1796046084456906927 160965432 12679762 13260232 2810509056
fsdp 1 1796046083939458805 1796046084441367432 639843804 12679762 13260232 2810509056
fsdp_large 0 1796046851281952801 1796046851657132448 423262793 17866956 17400296 4008605440
fsdp_large 1 1796046851282014982 1796046851657164946 397271372 17866956 17400296 4008605440
fsdp_large_sync 0 1796046742932863535 1796046743312519566 427945679 17866956 17400296 4008605440
fsdp_large_sync 1 1796046742932764114 1796046743312686456 423272054 17866956 17400296 4008605440
graph 0 1796046164525032505 1796046164526827865 2149632 132176 32 0
graph 1 1796046164524674514 1796046164526704601 2874157 132176 32 0
moe 0 1796046147751136221 1796046147910067880 107124622 5775796 269360872 961985040
moe 1 1796046147751136011 1796046147910303719 61742654 5550564 269360872 904870416
pp_large 0 1796046797456571236 1796046797694259803 219252684 10132530 216576 268435456
pp_large 1 1796046797445600326 1796046797683096299 231484950 12974390 27808 268435456
";

fn fixture(name: &str, rank: u32) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/captures/kineto");
    fixtures.join(format!("{name}/{name}_rank{rank}.json.gz"))
}

fn real(name: &str, rank: u32) -> Timeline {
    let mut timelines = Kineto.read(&fixture(name, rank), &Reading::default(), &mut Notes::default()).unwrap();
    assert_eq!(timelines.len(), 1, "{name} has one device a file");
    timelines.remove(0)
}

/// Each line of `table` begins with a capture and a rank; `row` must give the rest of it.
fn compare(table: &str, row: impl Fn(&Timeline) -> String) {
    for line in table.trim().lines() {
        let mut words = line.splitn(3, ' ');
        let (name, rank) = (words.next().unwrap(), words.next().unwrap());
        assert_eq!(row(&real(name, rank.parse().unwrap())), words.next().unwrap(), "{name} rank {rank}");
    }
}

#[test]
fn rows_of_each_kind_are_all_there() {
    compare(COUNTS, |timeline| {
        let activities = |test: fn(&Activity) -> bool| timeline.activities.iter().filter(|a| test(a)).count();
        let products = timeline
            .launched
            .iter()
            .filter(|launched| matches!(timeline.works[launched.work as usize], OperatorWork::Products(_)));
        let products: std::collections::HashSet<u32> = products.map(|launched| launched.operator).collect();
        let calls = |kind| timeline.calls.iter().filter(|call| call.kind == kind).count();
        let mut row = format!(
            "{} {} {} {} {} {} {} {} {} {} {} {} {}",
            activities(|activity| matches!(activity.kind, ActivityKind::Kernel { .. })),
            activities(|activity| matches!(activity.kind, ActivityKind::Copy { .. })),
            activities(|activity| matches!(activity.kind, ActivityKind::Set { .. })),
            calls(CallKind::Launch),
            calls(CallKind::EventRecord { flags: false }) + calls(CallKind::EventRecord { flags: true }),
            calls(CallKind::StreamWait),
            calls(CallKind::Synchronize),
            timeline.records.len(),
            activities(|activity| activity.comm.is_some()),
            activities(|activity| activity.external_id.is_some()),
            products.len(),
            timeline.stream_waits.len(),
            timeline.annotations.len(),
        );
        for step in &timeline.steps {
            let launched = timeline
                .calls
                .iter()
                .filter(|call| call.kind == CallKind::Launch && (step.start_ns..=step.end_ns).contains(&call.start_ns));
            let launched: std::collections::HashSet<_> = launched.filter_map(|call| call.correlation).collect();
            let inside = |activity: &&Activity| activity.correlation.is_some_and(|id| launched.contains(&id));
            write!(row, " {}", timeline.activities.iter().filter(inside).count()).unwrap();
        }
        row
    });
}

#[test]
fn times_and_sizes_are_exact() {
    compare(SUMS, |timeline| {
        let (mut blocks_sum, mut bytes_sum) = (0, 0);
        for activity in &timeline.activities {
            match activity.kind {
                ActivityKind::Kernel { blocks } => blocks_sum += blocks,
                ActivityKind::Copy { bytes, .. } | ActivityKind::Set { bytes } => bytes_sum += bytes,
            }
        }
        let first = timeline.activities[0].start_ns;
        let last = timeline.activities.iter().map(Activity::end_ns).max().unwrap();
        let busy: i64 = timeline.activities.iter().map(|activity| activity.duration_ns).sum();
        let elements: u64 = timeline.records.iter().map(|record| record.facts.in_elements).sum();
        format!("{first} {last} {busy} {blocks_sum} {bytes_sum} {elements}")
    });
}

#[test]
fn collectives_are_those_of_the_known_truth() {
    // Both steps together, sizes in bytes as the captures' README has them.
    let counts = |timeline: &Timeline| {
        let mut counts = std::collections::BTreeMap::new();
        for facts in timeline.activities.iter().filter_map(|activity| activity.comm.as_deref()) {
            let CommOp::Collective(kind) = facts.op else { panic!("{facts:?}") };
            assert_eq!((facts.ranks.as_deref(), facts.group_size), (Some(&[0, 1][..]), Some(2)));
            let bytes = facts.in_elements.max(facts.out_elements) * facts.dtype.unwrap().bytes();
            *counts.entry((kind.name(), bytes)).or_insert(0) += 1;
        }
        counts.into_iter().map(|((name, bytes), count)| (name, bytes, count)).collect::<Vec<_>>()
    };
    for rank in [0, 1] {
        let expected = [
            ("all_gather", 100_716_544, 48),
            ("all_gather", 262_208_000, 2),
            ("reduce_scatter", 201_433_088, 24),
            ("reduce_scatter", 524_416_000, 2),
        ];
        assert_eq!(counts(&real("fsdp", rank)), expected);
        let all_reduces = counts(&real("ddp_large", rank));
        assert!(all_reduces.iter().all(|(name, ..)| *name == "all_reduce"));
        assert_eq!(all_reduces.iter().map(|(.., count)| count).sum::<i32>(), 52);
    }
}

#[test]
fn sends_receives_and_waits_are_told_apart() {
    for (rank, peer) in [(0, 1), (1, 0)] {
        let timeline = real("pp_large", rank);
        let count = |op| timeline.records.iter().filter(|record| record.facts.op == op).count();
        let (to, from) = (Some(peer), Some(peer));
        assert_eq!((count(CommOp::Send { to }), count(CommOp::Recv { from }), count(CommOp::Wait)), (8, 8, 10));
    }
}

#[test]
fn uneven_splits_of_two_ranks_fit_together() {
    // What a rank sends to the other is what the other receives from it.
    let splits = |rank| {
        let timeline = real("moe", rank);
        let uneven = timeline.activities.into_iter().filter_map(|activity| activity.comm);
        uneven.filter(|facts| !facts.in_splits.is_empty()).map(|f| (f.in_splits, f.out_splits)).collect::<Vec<_>>()
    };
    let (zero, one) = (splits(0), splits(1));
    assert_eq!((zero.len(), one.len()), (32, 32));
    for ((zero_in, zero_out), (one_in, one_out)) in zero.iter().zip(&one) {
        assert_eq!((zero_in[1], zero_out[1]), (one_out[0], one_in[0]));
        assert_eq!((zero_in[0], one_in[1]), (zero_out[0], one_out[1]));
    }
}

#[test]
fn a_real_file_cut_is_truncated_there() {
    let whole = std::fs::read(fixture("graph", 0)).unwrap();
    for length in [whole.len() / 2, whole.len() - 1] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&whole[..length]).unwrap();
        match Kineto.read(file.path(), &Reading { strict: true, helpers: 0 }, &mut Notes::default()) {
            Err(Error::GzipTruncated { byte, .. }) => assert_eq!(byte, length as u64),
            other => panic!("cut at {length}: {other:?}"),
        }
    }
}
