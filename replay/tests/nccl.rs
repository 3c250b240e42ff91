//! The back end nccl on machines whose GPUs are not there: stand-ins of its libraries move the right data on the host.
//!
//! So everything that the back end itself does is put to the test anywhere: which calls it makes in which order, what
//! waits for what, how it finds libraries, and what becomes of calls that fail and work that never ends. Nothing here
//! says that NVIDIA's libraries do as the stand-ins do.

#![cfg(all(feature = "nccl", target_os = "linux"))]

mod standin;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use maestro_pattern::{Measurement, Pattern, Plan};
use maestro_replay::conformance::{self, Outcome};
use maestro_replay::nccl::{Nccl, doctor};
use maestro_replay::{Backend, Compute, Error, Notice, Observer, Result, Settings};

use standin::{Line, Machine, log};

/// Axes, blocks, lanes and schedule as a plan.
fn plan(text: &str) -> Plan {
    let pattern = Pattern::from_yaml(&format!("maestro: 1\nname: test\n{text}")).unwrap();
    Plan::new(&pattern, &[]).unwrap()
}

/// Ranks that reduce together once.
fn reducing(ranks: u32) -> Plan {
    plan(&format!(
        "axes: {{dp: {{size: {ranks}}}}}\nblocks: {{sum: {{all_reduce: {{size: 64KiB, dtype: f32}}}}}}\n\
         lanes: {{comm: {{}}}}\nschedule: [{{run: sum, on: dp}}]\n"
    ))
}

/// Ranks that hold one lane and then reduce together on the other.
fn holding_and_reducing(ranks: u32) -> Plan {
    plan(&format!(
        "axes: {{dp: {{size: {ranks}}}}}\nlanes: {{compute: {{}}, comm: {{}}}}\nblocks:\n  \
         work: {{compute: [{{hold: 1us}}]}}\n  sum: {{all_reduce: {{size: 40, dtype: f32}}}}\nschedule:\n  \
         - {{run: work, lane: compute}}\n  - {{run: sum, on: dp, lane: comm, after: [work]}}\n"
    ))
}

/// Three iterations of the step, the first of them a warm-up, and nothing else.
fn settings() -> Settings {
    Settings { warmup: 1, iterations: 2, rounds: 1, alone: false, verify: false, ..Settings::default() }
}

/// For what hangs: as long as a busy machine may take for a step, and no longer.
fn impatient() -> Settings {
    Settings { watchdog: Duration::from_secs(1), ..settings() }
}

fn error(result: Result<impl Sized>) -> Error {
    result.err().expect("it fails")
}

/// What of `whats` there was on the lanes of a device, in order: `issue` by the host, `begin` and `end` on a stream, each
/// with the function's name, and of copies and sets the bytes. Streams count from 0, and the first is the clock's.
fn events(device: u32, whats: &[&str]) -> Vec<String> {
    let stream = |line: &Line| line.words.first().and_then(|id| id.parse().ok()).unwrap_or(0);
    let wanted = log(device).into_iter().filter(|line| whats.contains(&&*line.what) && stream(line) > 0);
    wanted.map(|line| format!("{} {}", line.what, line.words[1..].join(" "))).collect()
}

/// What began and ended on the lanes of a device.
fn on_lanes(device: u32) -> Vec<String> {
    events(device, &["begin", "end"])
}

/// What else the stand-ins said of a device.
fn said(device: u32, what: &str) -> Vec<String> {
    log(device).into_iter().filter(|line| line.what == what).map(|line| line.words.join(" ")).collect()
}

/// Asserts that every rank gave its device back, with all memory: none was left behind inside a library.
fn assert_all_came_home(ranks: u32) {
    for device in 0..ranks {
        assert_eq!(said(device, "released"), ["0"], "device {device}: bytes that were not freed");
    }
}

/// Asserts that what ends the list is `times` times `one`.
fn assert_ends(list: &[String], one: &[&str], times: usize) {
    let expected = one.repeat(times);
    let found = &list[list.len().saturating_sub(expected.len())..];
    assert_eq!(found, expected, "the end of {list:#?}");
}

#[test]
fn all_data_is_right_on_eight_devices() {
    Machine::new(8).run("all_data_is_right_on_eight_devices", || {
        for (case, outcome) in conformance::run(&Nccl) {
            assert_eq!(outcome, Outcome::Passed, "{}", case.name);
        }
        assert!(on_lanes(0).contains(&"begin ncclAlltoAll".to_owned()));
    });
}

#[test]
fn the_error_of_the_clocks_is_told_once() {
    Machine::new(2).run("the_error_of_the_clocks_is_told_once", || {
        let told: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let listener = told.clone();
        let notify = Observer::new(move |notice| {
            if let Notice::ClockError(error) = notice {
                listener.lock().unwrap().push(error);
            }
        });
        Nccl.run(&reducing(2), &Settings { notify, ..settings() }).unwrap();
        let told = told.lock().unwrap();
        assert!(told.len() == 1 && told[0] > Duration::ZERO, "{told:?}");
    });
}

#[test]
fn all_data_is_right_where_nccl_has_no_all_to_all() {
    Machine::new(3).without("ncclAlltoAll").run("all_data_is_right_where_nccl_has_no_all_to_all", || {
        for case in conformance::cases().into_iter().filter(|case| case.plan.world.size() == 3) {
            assert_eq!(conformance::outcome(&Nccl, &case.plan), Outcome::Passed, "{}", case.name);
        }
        assert!(!on_lanes(0).contains(&"begin ncclAlltoAll".to_owned()));
    });
}

/// Rank 0 first waits on one lane for an answer to a question that it only then asks on the other, so the step ends only
/// if lanes run beside each other. Rank 1 answers `after` it was asked.
#[test]
fn lanes_run_beside_each_other() {
    let text = "axes: {pp: {size: 2}}\nlanes: {a: {}, b: {}}\nblocks:\n  \
        question: {p2p: [{send: {to: 1, size: 40, dtype: f32}}, {recv: {from: -1, size: 40, dtype: f32}}]}\n  \
        answer: {p2p: [{send: {to: -1, size: 80, dtype: f32}}, {recv: {from: 1, size: 80, dtype: f32}}]}\nschedule:\n  \
        - {run: answer, on: pp, lane: a, when: {pp: first}}\n  \
        - {run: question, on: pp, lane: b}\n  \
        - {run: answer, on: pp, lane: a, after: [question], when: {pp: last}}\n";
    Machine::new(2).run("lanes_run_beside_each_other", || {
        for graph in [false, true] {
            let rows = Nccl.run(&plan(text), &Settings { graph, ..settings() }).unwrap();
            assert_eq!(rows.len(), 2 * 2 * 2);
            let asked = ["begin ncclRecv", "end ncclRecv", "begin ncclSend", "end ncclSend"];
            assert_ends(&on_lanes(1), &asked, 3);
        }
    });
}

#[test]
fn what_comes_after_begins_when_the_other_has_ended() {
    let text = "axes: {dp: {size: 2}}\nlanes: {compute: {}, comm: {}}\nblocks:\n  \
        work: {compute: [{hold: 20ms}]}\n  more: {compute: [{hold: 1ms}]}\n  \
        sum: {all_reduce: {size: 40, dtype: f32}}\nschedule:\n  \
        - {run: work, lane: compute}\n  - {run: sum, on: dp, lane: comm, after: [work]}\n  \
        - {run: more, lane: compute, after: [sum]}\n";
    let rows_of = |rows: &[Measurement], block: &str| -> Vec<Measurement> {
        rows.iter().filter(|row| &*row.block == block).cloned().collect()
    };
    Machine::new(2).run("what_comes_after_begins_when_the_other_has_ended", || {
        for graph in [false, true] {
            let rows = Nccl.run(&plan(text), &Settings { graph, ..settings() }).unwrap();
            let (hold, sum) =
                (["begin maestro_hold", "end maestro_hold"], ["begin ncclAllReduce", "end ncclAllReduce"]);
            for device in 0..2 {
                assert_ends(&on_lanes(device), &[hold, sum, hold].concat(), 3);
            }
            let [work, sum, more] = ["work", "sum", "more"].map(|block| rows_of(&rows, block));
            assert_eq!([work.len(), sum.len(), more.len()], [4; 3]);
            for ((work, sum), more) in work.iter().zip(&sum).zip(&more) {
                /// What the device's times may be off by: they are given in milliseconds, as f32.
                const ROUNDED_NS: u64 = 100;
                assert!(work.end_ns - work.start_ns + ROUNDED_NS >= 20_000_000, "{work:?}");
                assert!(sum.start_ns + ROUNDED_NS >= work.end_ns, "{work:?}, {sum:?}");
                assert!(more.start_ns + ROUNDED_NS >= sum.end_ns, "{sum:?}, {more:?}");
            }
        }
    });
}

/// Or the host's share of issuing would count as the block's own time.
#[test]
fn a_block_alone_begins_when_the_host_has_issued_all_of_it() {
    Machine::new(2).run("a_block_alone_begins_when_the_host_has_issued_all_of_it", || {
        Nccl.run(&reducing(2), &Settings { alone: true, back_to_back: 4, ..settings() }).unwrap();
        let one = [["issue ncclAllReduce"; 4], ["begin ncclAllReduce"; 4]].concat();
        assert_ends(&events(1, &["issue", "begin"]), &one, 3);
    });
}

/// The rehearsal and the step are four executions; of those in a row that are issued next the first waits until the host
/// has issued all, and it never will have.
#[test]
fn what_waits_for_the_host_of_a_rank_that_failed_is_let_go() {
    let machine = Machine::new(2).with("STANDIN_FAIL", "ncclAllReduce@1+5");
    machine.run("what_waits_for_the_host_of_a_rank_that_failed_is_let_go", || {
        let settings = Settings { alone: true, back_to_back: 4, ..settings() };
        let text = error(Nccl.run(&reducing(2), &settings)).to_string();
        assert!(text.starts_with("rank 1, block `sum`: ncclAllReduce failed"), "{text}");
        assert_all_came_home(2);
    });
}

/// Each on a lane of its own, whose buffers are as large as it needs and no larger.
#[test]
fn every_kernel_runs_in_memory_that_is_there_and_nothing_is_left() {
    let kernels = [
        ("gemm: {m: 50, n: 70, k: 30, batch: 2, dtype: f8e4m3}", "cublasLtMatmul"),
        ("gemm: {m: 5, n: 7, k: 3, dtype: f64, layout: nt}", "cublasLtMatmul"),
        ("gemm: {m: 5, n: 7, k: 3, dtype: bf16, layout: tn}", "cublasLtMatmul"),
        ("memory: 10001B", "maestro_stream"),
        ("memory: 10001B, lasts: 1us", "maestro_stream"),
        ("hold: 1us, sms: 3", "maestro_hold"),
        ("copy: {h2d: 4097}", "copy 4097"),
        ("copy: {d2h: 4097}", "copy 4097"),
        ("copy: {d2d: 4097}", "copy 4097"),
        ("set: 4097", "set 4097"),
    ];
    let (mut lanes, mut blocks, mut schedule) = (String::new(), String::new(), String::new());
    for (n, (kernel, _)) in kernels.iter().enumerate() {
        lanes += &format!("  l{n}: {{}}\n");
        blocks += &format!("  b{n}: {{compute: [{{{kernel}, times: 2}}]}}\n");
        let after = if n > 0 { format!(", after: [b{}]", n - 1) } else { String::new() };
        schedule += &format!("  - {{run: b{n}, lane: l{n}{after}}}\n");
    }
    let text = format!("axes: {{dp: {{size: 2}}}}\nlanes:\n{lanes}blocks:\n{blocks}schedule:\n{schedule}");
    Machine::new(2).run("every_kernel_runs_in_memory_that_is_there_and_nothing_is_left", || {
        Nccl.run(&plan(&text), &Settings { compute: Compute::Work, ..settings() }).unwrap();
        let twice = |(_, name): &(_, &str)| vec![[format!("begin {name}"), format!("end {name}")]; 2].concat();
        let one: Vec<String> = kernels.iter().flat_map(twice).collect();
        for device in 0..2 {
            assert_ends(&on_lanes(device), &one.iter().map(String::as_str).collect::<Vec<_>>(), 3);
        }
        assert_all_came_home(2);
    });
}

#[test]
fn priorities_and_settings_reach_the_libraries() {
    let text = "axes: {dp: {size: 2}, tp: {size: 2, max_ctas: 8}}\n\
        lanes: {low: {priority: low}, normal: {}, high: {priority: high, min_ctas: 2}}\n\
        blocks: {sum: {all_reduce: {size: 40, dtype: f32}}}\nschedule:\n  \
        - {run: sum, on: dp, lane: low}\n  - {run: sum, on: dp, lane: normal}\n  - {run: sum, on: tp, lane: high}\n";
    Machine::new(4).run("priorities_and_settings_reach_the_libraries", || {
        Nccl.run(&plan(text), &settings()).unwrap();
        // The clock's comes first. Smaller is more urgent, from 0 to -5.
        assert_eq!(said(2, "stream"), ["0 -5", "1 0", "2 -2", "3 -5"]);
        // Rank 2 is the second on dp and the first on tp. 0 stands for what is left to NCCL.
        let made = ["world 2/4 ctas 0..0", "dp.low 1/2 ctas 0..0", "dp.normal 1/2 ctas 0..0", "tp.high 0/2 ctas 2..8"];
        assert_eq!(said(2, "communicator"), made);
        assert_eq!((said(2, "destroy").len(), said(2, "abort").len()), (4, 0));
    });
}

#[test]
fn a_call_that_fails_is_named_with_its_rank_and_block() {
    let machine = Machine::new(4).with("STANDIN_FAIL", "ncclAllReduce@2");
    machine.run("a_call_that_fails_is_named_with_its_rank_and_block", || {
        let text = error(Nccl.run(&reducing(4), &settings())).to_string();
        let told = "internal error; NCCL says: the stand-in was told to fail";
        assert_eq!(text, format!("rank 2, block `sum`: ncclAllReduce failed: {told}"));
        // Every rank gave its communicators up, or those that wait for rank 2 would wait for ever.
        for device in 0..4 {
            assert_eq!((said(device, "abort").len(), said(device, "destroy").len()), (2, 0), "device {device}");
        }
        assert_all_came_home(4);
    });
}

#[test]
fn a_driver_that_fails_is_named_with_its_rank_and_block() {
    let machine = Machine::new(2).with("STANDIN_FAIL", "cuStreamWaitEvent@1");
    machine.run("a_driver_that_fails_is_named_with_its_rank_and_block", || {
        let text = error(Nccl.run(&holding_and_reducing(2), &settings())).to_string();
        let told = "cuStreamWaitEvent failed: unknown error (CUDA_ERROR_UNKNOWN)";
        assert_eq!(text, format!("rank 1, block `sum`: {told}"));
        assert_all_came_home(2);
    });
}

/// The other ranks wait inside NCCL for the one that failed, and nothing gets them out: they are left behind.
#[test]
fn a_communicator_that_cannot_be_made_ends_the_run() {
    let machine = Machine::new(2).with("STANDIN_FAIL", "ncclCommSplit@1");
    machine.run("a_communicator_that_cannot_be_made_ends_the_run", || {
        let text = error(Nccl.run(&reducing(2), &settings())).to_string();
        assert!(text.starts_with("rank 1: ncclCommSplit failed: internal error"), "{text}");
    });
}

/// Asserts that `error` is of a hang of `sum` on lane `comm`, of a rank that waits for all others of `ranks`.
fn assert_hangs(error: &Error, ranks: u32) {
    let Error::Hang { rank, block, lane, peers, .. } = error else { panic!("{error}") };
    assert_eq!((&**block, &**lane), ("sum", "comm"));
    assert_eq!(*peers, (0..ranks).filter(|other| other != rank).collect::<Vec<_>>());
}

#[test]
fn work_that_never_ends_is_named() {
    Machine::new(3).with("STANDIN_HANG", "ncclAllReduce@1").run("work_that_never_ends_is_named", || {
        assert_hangs(&error(Nccl.run(&holding_and_reducing(3), &impatient())), 3);
        assert_all_came_home(3);
    });
}

/// The first execution is the rehearsal, the second the first of the graph, in the third the events have times already.
#[test]
fn work_that_never_ends_is_named_in_a_graph() {
    let machine = Machine::new(3).with("STANDIN_HANG", "ncclAllReduce@1+2");
    machine.run("work_that_never_ends_is_named_in_a_graph", || {
        let settings = Settings { graph: true, ..impatient() };
        assert_hangs(&error(Nccl.run(&holding_and_reducing(3), &settings)), 3);
        assert_all_came_home(3);
    });
}

#[test]
fn a_call_that_never_returns_is_named() {
    Machine::new(1).with("STANDIN_STALL", "ncclAllReduce@0").run("a_call_that_never_returns_is_named", || {
        assert_hangs(&error(Nccl.run(&reducing(1), &impatient())), 1);
    });
}

#[test]
fn a_rank_that_never_joins_is_named() {
    let machine = Machine::new(2).with("STANDIN_STALL", "ncclCommInitRankConfig@1");
    machine.run("a_rank_that_never_joins_is_named", || {
        let text = error(Nccl.run(&reducing(2), &impatient())).to_string();
        assert!(text.contains(": it joins the communicator of all ranks and has not returned for "), "{text}");
    });
}

#[test]
fn what_a_communicator_says_of_itself_ends_the_run() {
    let machine = Machine::new(2).with("STANDIN_BREAK", "ncclAllReduce@1");
    machine.run("what_a_communicator_says_of_itself_ends_the_run", || {
        // More patience than the test has: nothing but the communicator's own word may end it.
        let settings = Settings { watchdog: Duration::from_secs(3600), ..settings() };
        let text = error(Nccl.run(&reducing(2), &settings)).to_string();
        assert!(text.starts_with("rank 1") && text.contains("remote process exited"), "{text}");
        assert_all_came_home(2);
    });
}

#[test]
fn an_old_nccl_is_refused() {
    Machine::new(1).with("STANDIN_NCCL_VERSION", 21_706).run("an_old_nccl_is_refused", || {
        let text = error(Nccl.probe(&reducing(1), &settings())).to_string();
        assert!(text.starts_with("nccl: NCCL 2.17.6 is too old: communicators cannot be split; install"), "{text}");
    });
}

#[test]
fn an_nccl_that_lacks_a_function_is_refused() {
    Machine::new(1).without("ncclCommAbort").run("an_nccl_that_lacks_a_function_is_refused", || {
        let text = error(Nccl.probe(&reducing(1), &settings())).to_string();
        assert!(text.starts_with("nccl: NCCL (libnccl.so.2) was not found; what was found did not load: /"), "{text}");
        assert!(text.contains("/libnccl.so.2: it has no function ncclCommAbort; install it"), "{text}");
    });
}

/// Asserts that `error` says how much memory is there and what takes most.
fn assert_too_large(error: &Error, mib_available: u64) {
    let Error::Memory { needed, available, block, lane, largest } = error else { panic!("{error}") };
    assert_eq!((&**block, &**lane, available >> 20), ("gather", "comm", mib_available));
    assert_eq!((needed >> 20, largest >> 20), (96, 96));
}

/// Buffers of 32 MiB and 64 MiB.
fn gathering() -> Plan {
    plan(
        "axes: {dp: {size: 2}}\nblocks: {gather: {all_gather: {size: 64MiB, dtype: bf16}}}\nlanes: {comm: {}}\n\
         schedule: [{run: gather, on: dp}]\n",
    )
}

#[test]
fn too_small_a_device_is_refused_before_anything_runs() {
    let machine = Machine::new(2).with("STANDIN_MEMORY", 80 << 20);
    machine.run("too_small_a_device_is_refused_before_anything_runs", || {
        assert_too_large(&error(Nccl.probe(&gathering(), &settings())), 80);
    });
}

#[test]
fn memory_that_others_use_is_not_there() {
    let machine = Machine::new(2).with("STANDIN_MEMORY", 128 << 20).with("STANDIN_OCCUPIED", 48 << 20);
    machine.run("memory_that_others_use_is_not_there", || {
        Nccl.probe(&gathering(), &settings()).unwrap();
        assert_too_large(&error(Nccl.run(&gathering(), &settings())), 80);
    });
}

#[test]
fn a_machine_without_devices_says_so() {
    Machine::new(0).run("a_machine_without_devices_says_so", || {
        let text = error(Nccl.probe(&reducing(1), &settings())).to_string();
        let what = "cuInit failed: no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE)";
        assert!(text.starts_with(&format!("nccl: {what}; `maestro doctor`")), "{text}");
        assert!(!maestro_replay::nccl::has_gpus());
        assert_eq!(doctor().devices, ["none"]);
    });
}

#[test]
fn more_ranks_than_devices_are_refused() {
    Machine::new(1).run("more_ranks_than_devices_are_refused", || {
        let text = error(Nccl.probe(&reducing(2), &settings())).to_string();
        assert!(text.starts_with("nccl: the pattern has 2 ranks and this machine has 1 GPU; give"), "{text}");
    });
}

#[test]
fn the_doctor_says_what_is_there() {
    Machine::new(2).run("the_doctor_says_what_is_there", || {
        let found = doctor();
        let version = |place: usize| found.libraries[place].found.as_ref().map(|library| &*library.version);
        assert_eq!([version(0), version(1), version(2)], [Ok("12.8"), Ok("2.28.9"), Ok("13.1.0")]);
        let devices = [0, 1].map(|n| format!("{n}: Stand-in {n}, 1 GiB, 8 SMs, compute capability 9.0"));
        assert_eq!(found.devices, devices);
    });
}
