//! Traces as torch.profiler wrote them from 2020 to 2026, in small: one step of a product and three communications. In
//! every form the same must come out, as far as the form tells.

mod common;

use common::{import, import_with, row, us};
use maestro_importers::Notes;
use maestro_importers::synthesis::{Import, Options, synthesise};
use serde_json::{Map, Value, json};

/// How a year wrote it.
#[derive(Clone, Copy)]
struct Form {
    cats: [&'static str; 4],
    /// Nanoseconds that times are relative to, and whether the header says so.
    base_ns: i64,
    header_base: bool,
    /// Whole microseconds.
    whole: bool,
    /// Times in nanoseconds, as some tools write them.
    nanoseconds: bool,
    text_ids: bool,
    kernel: &'static str,
    /// Whether records and kernels name their collective.
    named: bool,
    unlinked_id_is_correlation: bool,
    ranks: bool,
    /// The caller's rank, strides and concrete inputs.
    strides: bool,
    extras: bool,
}

const EPOCH_NS: i64 = 1_712_345_678_000_000_000;
const LOWER: [&str; 4] = ["kernel", "cuda_runtime", "cpu_op", "user_annotation"];

const Y2023: Form = Form {
    cats: LOWER,
    base_ns: EPOCH_NS,
    header_base: false,
    whole: true,
    nanoseconds: false,
    text_ids: false,
    kernel: "(ncclDevComm*, unsigned long, ncclWork*)",
    named: false,
    unlinked_id_is_correlation: true,
    ranks: false,
    strides: false,
    extras: false,
};

const Y2024_04: Form = Form { whole: false, named: true, unlinked_id_is_correlation: false, ..Y2023 };
const Y2024_05: Form = Form { header_base: true, ranks: true, ..Y2024_04 };
const Y2025: Form = Form { strides: true, kernel: "(ncclDevKernelArgsStorage<4096ul>)", ..Y2024_05 };
const Y2026: Form = Form { extras: true, ..Y2025 };

/// A call of the step: when it starts and how long its kernel runs, in microseconds, and what it is.
struct Call {
    at: f64,
    us: f64,
    kernel: &'static str,
    collective: &'static str,
    annotation: &'static str,
    operator: &'static str,
    /// Shapes of the operator: outputs and inputs.
    operands: Value,
    input: u64,
    output: u64,
}

fn calls() -> [Call; 3] {
    [
        Call {
            at: 100.0,
            us: 50.0,
            kernel: "ncclKernel_AllReduce_RING_LL_Sum_float",
            collective: "allreduce",
            annotation: "nccl:all_reduce",
            operator: "c10d::allreduce_",
            operands: json!([[], [], []]),
            input: 6144,
            output: 6144,
        },
        // The name lies: grouped sends and receives are what an all-to-all runs.
        Call {
            at: 200.0,
            us: 25.0,
            kernel: "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
            collective: "all_to_all",
            annotation: "nccl:all_to_all",
            operator: "c10d::alltoall_base_",
            operands: json!([[2048], [2048], [], []]),
            input: 2048,
            output: 2048,
        },
        Call {
            at: 300.0,
            us: 10.0,
            kernel: "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
            collective: "_allgather_base",
            annotation: "nccl:_all_gather_base",
            operator: "c10d::_allgather_base_",
            operands: json!([[4096], [1024], [], []]),
            input: 1024,
            output: 4096,
        },
    ]
}

impl Form {
    fn time(self, us: f64) -> Value {
        let ns = (us * 1e3) as i64 + if self.header_base { 0 } else { self.base_ns };
        let text = match (self.nanoseconds, self.whole) {
            (true, _) => ns.to_string(),
            (false, true) => (ns / 1000).to_string(),
            (false, false) => format!("{}.{:03}", ns / 1000, ns % 1000),
        };
        serde_json::from_str(&text).unwrap()
    }

    fn length(self, us: f64) -> Value {
        if self.nanoseconds { json!((us * 1e3) as i64) } else { json!(us) }
    }

    fn number(self, number: u64) -> Value {
        if self.text_ids { json!(number.to_string()) } else { json!(number) }
    }

    fn event(self, cat: usize, name: &str, at: f64, us: f64, args: Value) -> Value {
        let (pid, tid) = match (cat, self.text_ids) {
            (0, false) => (json!(0), args["stream"].clone()),
            (0, true) => (json!(0), json!(format!("stream {}", args["stream"].as_str().unwrap_or("7")))),
            (_, false) => (json!(77), json!(77)),
            (_, true) => (json!("77"), json!("77 (python)")),
        };
        let (ts, dur) = (self.time(at), self.length(us));
        json!({"ph": "X", "cat": self.cats[cat], "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})
    }

    fn facts(self, call: &Call, n: usize) -> Map<String, Value> {
        let mut facts = Map::new();
        if !self.named {
            return facts;
        }
        facts.insert("Collective name".into(), json!(call.collective));
        facts.insert("dtype".into(), json!("Float"));
        facts.insert("In msg nelems".into(), json!(call.input));
        facts.insert("Out msg nelems".into(), json!(call.output));
        facts.insert("Group size".into(), json!(4));
        if self.ranks {
            facts.insert("Process Group Name".into(), json!("0"));
            facts.insert("Process Group Description".into(), json!("default_pg"));
            facts.insert("Process Group Ranks".into(), json!("[0, 1, 2, 3]"));
            facts.insert("In split size".into(), json!("[]"));
            facts.insert("Out split size".into(), json!("[]"));
        }
        if self.strides {
            facts.insert("Rank".into(), json!(0));
            facts.insert("Input Strides".into(), json!([[1], [], []]));
            facts.insert("Concrete Inputs".into(), json!(["", "", "0"]));
        }
        if self.extras {
            facts.insert("Seq".into(), json!(n + 7));
            facts.insert("Comms Id".into(), json!(10_159_970_886_766_084_423u64));
            facts.insert("Is asynchronized op".into(), json!(false));
        }
        facts
    }

    fn trace(self) -> Value {
        let id = if self.cats[0] == "Kernel" { "external id" } else { "External id" };
        let step = if self.cats[0] == "Kernel" { 2 } else { 3 };
        let mut events = vec![self.event(step, "ProfilerStep#4", 1.0, 400.0, json!({}))];
        let launch = |events: &mut Vec<Value>, at: f64, correlation: u64| {
            let args = json!({"correlation": self.number(correlation), "cbid": 211});
            events.push(self.event(1, "cudaLaunchKernel", at, 2.0, args));
        };
        launch(&mut events, 10.0, 900);
        let gemm = json!({"stream": self.number(7), "correlation": self.number(900), id: self.number(900)});
        events.push(self.event(0, "sgemm", 20.0, 60.0, gemm));
        for (n, call) in calls().iter().enumerate() {
            let (record, correlation, kind) = (10 * n as u64 + 10, 901 + n as u64, "float");
            let mut args = self.facts(call, n);
            args.insert(id.into(), self.number(record));
            args.insert("Input Dims".into(), json!([[call.input], [], []]));
            args.insert("Input type".into(), json!([kind, "Scalar", "Scalar"]));
            events.push(self.event(2, "record_param_comms", call.at - 40.0, 30.0, args.into()));
            let types = match call.operator {
                "c10d::allreduce_" => ["TensorList", "", "Scalar", ""],
                _ => [kind, kind, "", "Scalar"],
            };
            let operator = json!({id: self.number(record - 1), "Input Dims": call.operands, "Input type": types});
            events.push(self.event(2, call.operator, call.at - 42.0, 34.0, operator));
            let annotation = json!({id: self.number(record + 1), "Input Dims": [[call.input]], "Input type": [kind]});
            events.push(self.event(3, call.annotation, call.at - 35.0, 20.0, annotation));
            launch(&mut events, call.at - 30.0, correlation);
            let mut args = self.facts(call, n);
            let linked = if self.unlinked_id_is_correlation { correlation } else { record };
            args.insert(id.into(), self.number(linked));
            args.insert("correlation".into(), self.number(correlation));
            args.insert("stream".into(), self.number(20));
            events.push(self.event(0, &format!("{}{}", call.kernel, self.kernel), call.at, call.us, args.into()));
            // What waits for it: a record without a tensor.
            let mut wait = json!({id: self.number(record + 5), "Input Dims": [[], []], "Input type": ["Scalar", ""]});
            if self.named {
                wait["Collective name"] = json!("wait");
            }
            events.push(self.event(2, "record_param_comms", call.at - 8.0, 1.0, wait));
        }
        if self.extras {
            events.push(json!({"ph": "X", "cat": "cuda_event", "name": "cudaEvent", "pid": 0, "tid": -1,
                "ts": self.time(5.0), "dur": 1, "args": {}}));
            events.push(json!({"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 1_000_007,
                "ts": self.time(5.0), "dur": 9000, "args": {"stream": 7, "correlation": 3}}));
            events.push(json!({"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans",
                "tid": "PyTorch Profiler", "ts": self.time(0.0), "dur": 9000}));
            events.push(json!({"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#4", "pid": 0, "tid": 7,
                "ts": self.time(20.0), "dur": 5, "args": {}}));
        }
        events.push(json!({"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": self.time(500.0)}));
        // Files are not in the order of time.
        events.reverse();
        let mut file = json!({"schemaVersion": 1, "traceEvents": events});
        if self.cats[0] != "Kernel" {
            file["distributedInfo"] = json!({"backend": "nccl", "rank": 0, "world_size": 4});
        }
        if self.header_base {
            file["baseTimeNanoseconds"] = json!(self.base_ns);
        }
        file
    }
}

/// Checks what every form that describes its communication gives.
fn check(form: Form, file: Value) -> (Import, Notes) {
    let (import, notes) = import(&[file]);
    assert_eq!(&*import.chosen_step, "ProfilerStep#4");
    let step = &import.steps[0];
    assert_eq!((step.activities, us(step.compute_ns), us(step.comm_ns)), (4, 60.0, 85.0));
    assert_eq!(us(step.span_ns), 290.0);
    for (op, size) in [("all_reduce", 24_576), ("all_to_all", 8_192), ("all_gather", 16_384)] {
        let row = row(&import, 0, op);
        assert_eq!((row.size, row.dtype, row.ranks.as_slice()), (Some(size), Some("f32"), &[0, 1, 2, 3][..]), "{op}");
        assert_eq!(row.inferred, !form.ranks && !form.named, "{op}");
    }
    assert!(!notes.iter().any(|(kind, _)| kind.contains("do not name") || kind.contains("not known")), "{notes:?}");
    (import, notes)
}

#[test]
fn the_array_of_2020_has_capitals_and_text_ids() {
    let form = Form { cats: ["Kernel", "Runtime", "Operator", "Operator"], text_ids: true, ..Y2023 };
    let file = form.trace()["traceEvents"].clone();
    // Without a header nothing tells the world; the rest must be there.
    let (import, notes) = import(&[file]);
    let step = &import.steps[0];
    assert_eq!((step.activities, us(step.compute_ns), us(step.comm_ns)), (4, 60.0, 85.0));
    assert_eq!((&*import.chosen_step, import.ranks.as_slice()), ("ProfilerStep#4", &[0][..]));
    assert!(notes.iter().any(|(kind, _)| kind == "ranks given by the order of the files"));
    assert_eq!(row(&import, 0, "all_to_all").size, Some(8_192));
}

#[test]
fn records_of_2022_say_nothing_and_annotations_all() {
    let form = Form { kernel: "(ncclWorkElem)", ..Y2023 };
    let (_, notes) = check(form, form.trace());
    let told = notes.iter().find(|(kind, _)| kind.contains("described by the annotation")).unwrap().1;
    assert_eq!(told.count, 3);
}

#[test]
fn external_ids_of_2023_repeat_the_correlation() {
    check(Y2023, Y2023.trace());
}

#[test]
fn without_annotations_the_operators_tell() {
    let mut file = Y2023.trace();
    file["traceEvents"].as_array_mut().unwrap().retain(|event| !event["name"].as_str().unwrap().starts_with("nccl:"));
    let (import, _) = import(&[file]);
    assert_eq!(row(&import, 0, "all_to_all").size, Some(8_192));
    assert_eq!(row(&import, 0, "all_gather").size, Some(16_384));
    // The operator is given a list, the shapes of which were not recorded then.
    assert_eq!(row(&import, 0, "all_reduce").size, None);
}

#[test]
fn without_shapes_sizes_are_unknown_and_said_to_be() {
    let mut file = Y2023.trace();
    for event in file["traceEvents"].as_array_mut().unwrap() {
        if let Some(args) = event["args"].as_object_mut() {
            args.remove("Input Dims");
            args.remove("Input type");
        }
    }
    let (import, _) = import(&[file]);
    for op in ["all_reduce", "all_to_all", "all_gather"] {
        let row = row(&import, 0, op);
        assert_eq!((row.size, row.algbw_gbps), (None, None), "{op}");
    }
    assert!(import.pattern.assumed.iter().any(|a| a.what.contains("3 communication kernels have no known size")));
}

#[test]
fn fractions_of_an_epoch_microsecond_count_in_2024() {
    let mut file = Y2024_04.trace();
    file["displayTimeUnit"] = json!("ns");
    check(Y2024_04, file);
}

#[test]
fn times_are_relative_to_a_base_from_2024_on() {
    let (import, _) = check(Y2024_05, Y2024_05.trace());
    assert_eq!(import.teams[0].1, [vec![0, 1, 2, 3]]);
}

#[test]
fn strides_and_concrete_inputs_of_2025_change_nothing() {
    check(Y2025, Y2025.trace());
}

#[test]
fn a_start_that_was_cut_off_at_the_base_is_no_time() {
    // What began before the base is written as 0, though it lasted.
    let mut file = Y2024_05.trace();
    for event in file["traceEvents"].as_array_mut().unwrap() {
        event["ts"] = json!(event["ts"].as_f64().unwrap() + 5_200_000_000_000.0);
    }
    let early = json!({"stream": 7, "correlation": 800});
    let mut lost = Y2024_05.event(0, "began before the base", 0.0, 12.0, early);
    lost["ts"] = json!(0);
    file["traceEvents"].as_array_mut().unwrap().push(lost);
    let (import, notes) = check(Y2024_05, file);
    assert_eq!(import.conservation[0].dropped.0, 1);
    assert!(notes.iter().any(|(kind, note)| kind.contains("without times") && note.count == 1));
}

#[test]
fn what_2026_adds_is_read_or_passed_over() {
    let (import, _) = check(Y2026, Y2026.trace());
    assert_eq!(import.steps.len(), 1, "device rows of a step are no steps");
}

#[test]
fn numbers_may_be_text() {
    let form = Form { text_ids: true, ..Y2024_05 };
    check(form, form.trace());
}

#[test]
fn nineteen_digits_are_nanoseconds() {
    let form = Form { nanoseconds: true, ..Y2024_04 };
    check(form, form.trace());
}

#[test]
fn a_file_of_another_order_is_the_same() {
    let mut file = Y2024_05.trace();
    file["traceEvents"].as_array_mut().unwrap().reverse();
    check(Y2024_05, file);
}

#[test]
fn barriers_of_2023_are_reductions_of_one_number_inside_a_barrier() {
    let mut file = Y2023.trace();
    for event in file["traceEvents"].as_array_mut().unwrap() {
        match event["name"].as_str().unwrap() {
            "c10d::allreduce_" => event["name"] = json!("c10d::barrier"),
            "nccl:all_reduce" => event["args"]["Input Dims"] = json!([[1]]),
            _ => {}
        }
    }
    let (import, _) = import(&[file]);
    assert_eq!(row(&import, 0, "barrier").algbw_gbps, None);
}

#[test]
fn the_tensors_of_a_coalesced_call_are_added_up() {
    let mut file = Y2024_05.trace();
    let events = file["traceEvents"].as_array_mut().unwrap();
    for event in events.iter_mut() {
        // Some versions count one tensor of the list only.
        if event["args"]["Collective name"] == "allreduce" {
            event["args"]["Collective name"] = json!("allreduce_coalesced");
            event["args"]["In msg nelems"] = json!(1000);
            event["args"]["Out msg nelems"] = json!(1000);
        }
        if event["args"]["Collective name"] == "_allgather_base" {
            event["args"]["Collective name"] = json!("all_gather_into_tensor_coalesced");
            event["args"]["In msg nelems"] = json!(24);
            event["args"]["Out msg nelems"] = json!(96);
            event["args"]["Input Dims"] = json!([[[1000], [24]], [], []]);
            event["args"]["Input type"] = json!(["TensorList", "", ""]);
        }
        if event["name"] == "nccl:all_reduce" {
            event["name"] = json!("nccl:allreduce_coalesced");
            event["args"]["Input Dims"] = json!([[1000], [4000], [1144]]);
            event["args"]["Input type"] = json!(["float", "float", "float"]);
        }
        if event["name"] == "nccl:_all_gather_base" {
            event["name"] = json!("nccl:all_gather_into_tensor_coalesced");
            event["args"]["Input Dims"] = json!([[1000], [24]]);
            event["args"]["Input type"] = json!(["float", "float"]);
        }
    }
    check(Y2024_05, file);
}

#[test]
fn calls_between_start_and_end_of_coalescing_are_one_kernel() {
    // Two records, then an `endcoalescing` around the launch; the kernel carries nothing.
    let mut file = Y2024_05.trace();
    let events = file["traceEvents"].as_array_mut().unwrap();
    let record = |events: &Vec<Value>, name: &str| {
        events
            .iter()
            .find(|e| e["name"] == "record_param_comms" && e["args"]["Collective name"] == name)
            .cloned()
            .unwrap()
    };
    let base = record(events, "allreduce");
    events.retain(|e| e["args"]["Collective name"] != "allreduce" || e["name"] != "record_param_comms");
    events.retain(|e| !["c10d::allreduce_", "nccl:all_reduce"].contains(&e["name"].as_str().unwrap()));
    for (n, (name, at, us)) in [
        ("startcoalescing", 58.0, 1.0),
        ("allreduce", 60.0, 2.0),
        ("allreduce", 63.0, 2.0),
        ("endcoalescing", 66.0, 20.0),
    ]
    .into_iter()
    .enumerate()
    {
        let mut one = base.clone();
        (one["ts"], one["dur"]) = (Y2024_05.time(at), json!(us));
        one["args"]["Collective name"] = json!(name);
        one["args"]["External id"] = json!(500 + n);
        events.push(one);
    }
    for event in events.iter_mut() {
        if event["args"]["correlation"] == 901 && event["cat"] == "kernel" {
            event["args"] = json!({"correlation": 901, "stream": 20});
        }
    }
    let (import, notes) = import(&[file]);
    let group = row(&import, 0, "group");
    assert_eq!((group.count, group.size, group.inferred), (1, Some(2 * 24_576), true));
    assert!(!notes.iter().any(|(kind, _)| kind.contains("name that is not known")), "{notes:?}");
}

#[test]
fn a_record_inside_its_like_is_the_same_call() {
    // The front end's record around the back end's, and a batch whose records are such pairs.
    let mut file = common::case("03-batched-p2p-no-metadata");
    let events = file["traceEvents"].as_array_mut().unwrap();
    let pairs: Vec<Value> = events.iter().filter(|event| event["name"] == "record_param_comms").cloned().collect();
    for (n, mut inner) in pairs.into_iter().enumerate() {
        inner["ts"] = json!(inner["ts"].as_f64().unwrap() + 2.0);
        inner["dur"] = json!(6.0);
        inner["args"]["External id"] = json!(600 + n);
        events.push(inner);
    }
    let (import, notes) = import(&[file]);
    assert_eq!(row(&import, 0, "send_recv").directions, Some((4_194_304, 4_194_304)), "not twice as much");
    assert!(notes.iter().any(|(kind, note)| kind.contains("inside one of the same call") && note.count == 2));
}

#[test]
fn cut_lists_of_ranks_come_from_the_header_or_from_their_spacing() {
    let ranks: Vec<u32> = (0..40).map(|i| 2 * i).collect();
    let cut = |ellipsis: &str| {
        let written: Vec<String> = ranks[..30].iter().map(u32::to_string).collect();
        format!("[{}, {ellipsis}]", written.join(", "))
    };
    for (ellipsis, in_header) in [("...", true), ("...", false), ("..., 78", false)] {
        let mut file = Y2024_05.trace();
        file["distributedInfo"] = json!({"rank": 0, "world_size": 80});
        if in_header {
            file["distributedInfo"]["pg_config"] = json!([{"pg_name": "0", "pg_desc": "x", "ranks": ranks}]);
        }
        for event in file["traceEvents"].as_array_mut().unwrap() {
            if event["args"].get("Process Group Ranks").is_none() {
                continue;
            }
            event["args"]["Process Group Ranks"] = json!(cut(ellipsis));
            event["args"]["Group size"] = json!(40);
            if event["name"] == "record_param_comms" && !in_header {
                event["args"]["Global rank start"] = json!(0);
                event["args"]["Global rank stride"] = json!(2);
            }
        }
        let (import, notes) = import(&[file]);
        assert_eq!(row(&import, 0, "all_reduce").ranks, ranks, "{ellipsis} {in_header}");
        let kinds: Vec<&str> = notes.iter().map(|(kind, _)| kind).collect();
        assert!(kinds.iter().any(|kind| kind.starts_with("cut lists of ranks")), "{kinds:?}");
    }
}

#[test]
fn kernels_that_no_id_links_are_the_records_in_their_order() {
    // AMD's tracer: one name for all kernels, correlation 0, no grid; two kernels of the step before at the front.
    let mut file = Y2024_05.trace();
    let events = file["traceEvents"].as_array_mut().unwrap();
    for event in events.iter_mut() {
        if event["cat"] == "kernel" && event["args"]["stream"] == 20 {
            event["name"] = json!("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)");
            event["args"] = json!({"correlation": 0, "stream": 20, "device": 0});
        }
        if event["name"] == "cudaLaunchKernel" {
            event["name"] = json!("hipExtLaunchKernel");
        }
    }
    // The second of them starts when the first record is already made.
    for at in [2.0, 65.0] {
        let args = json!({"correlation": 0, "stream": 20, "device": 0});
        events.push(Y2024_05.event(0, "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", at, 9.0, args));
    }
    let (import, notes) = import(&[file]);
    for (op, size) in [("all_reduce", 24_576), ("all_to_all", 8_192), ("all_gather", 16_384)] {
        let row = row(&import, 0, op);
        assert_eq!((row.size, row.inferred), (Some(size), true), "{op}");
    }
    assert_eq!(us(import.steps[0].comm_ns), 85.0, "what ran before anything was launched is of no step");
    let turn = notes.iter().find(|(kind, _)| kind.contains("whose turn it was")).unwrap().1;
    assert_eq!(turn.count, 3);
}

#[test]
fn durations_far_beyond_the_next_start_are_cut() {
    let mut file = Y2024_05.trace();
    for event in file["traceEvents"].as_array_mut().unwrap() {
        let name = event["name"].as_str().unwrap().to_owned();
        if event["cat"] == "kernel" && name.contains("AllReduce") {
            // Three seconds, past two kernels of its stream.
            event["dur"] = json!(3_000_000);
        }
    }
    let (import, notes) = import(&[file]);
    // Up to the next start on the stream, 100 us later.
    assert_eq!(us(row(&import, 0, "all_reduce").duration_ns), 100.0);
    let cut = notes.iter().find(|(kind, _)| kind.contains("cut there")).unwrap().1;
    assert!(cut.count == 1 && cut.example.contains("by 2999900.0 us"), "{}", cut.example);
    // Launches that overlap on purpose do so by microseconds, and stay.
    let mut file = Y2024_05.trace();
    for event in file["traceEvents"].as_array_mut().unwrap() {
        if event["cat"] == "kernel" && event["name"].as_str().unwrap().contains("AllReduce") {
            event["dur"] = json!(103.5);
        }
    }
    let (import, notes) = import_with(&[file], &Options::default());
    assert_eq!(us(row(&import, 0, "all_reduce").duration_ns), 103.5);
    assert!(!notes.iter().any(|(kind, _)| kind.contains("cut there")));
}

#[test]
fn types_that_the_pattern_lacks_are_stood_in_for_and_stated() {
    for (dtype, bytes, name, stated) in
        [("Short", 2, "f16", true), ("Float8_e4m3fnuz", 1, "f8e4m3", true), ("ComplexFloat", 8, "f32", false)]
    {
        let mut file = Y2024_05.trace();
        for event in file["traceEvents"].as_array_mut().unwrap() {
            if event["args"].get("dtype").is_some() {
                event["args"]["dtype"] = json!(dtype);
            }
        }
        let (import, _) = import(&[file]);
        let row = row(&import, 0, "all_reduce");
        assert_eq!((row.size, row.dtype), (Some(6144 * bytes), Some(name)), "{dtype}");
        let said = import.pattern.assumed.iter().any(|a| a.what.contains(&format!("element type {dtype} of 3")));
        assert_eq!(said, stated, "{dtype}");
    }
}

#[test]
fn ranks_of_2023_end_together_however_far_apart_they_start() {
    // Rank 1 begins each communication milliseconds before rank 0 and ends it a few microseconds after; its uneven
    // all-to-all has other shapes.
    let mut files = [Y2023.trace(), Y2023.trace()];
    for (rank, file) in files.iter_mut().enumerate() {
        file["distributedInfo"] = json!({"rank": rank, "world_size": 2});
        for event in file["traceEvents"].as_array_mut().unwrap() {
            if event["name"].as_str().unwrap().contains("all_to_all") || event["name"] == "c10d::alltoall_base_" {
                let operator = event["name"] == "c10d::alltoall_base_";
                let (input, output) = if rank == 0 { (2048, 1024) } else { (1024, 2048) };
                event["args"]["Input Dims"] = if operator { json!([[output], [input]]) } else { json!([[input]]) };
            }
            let early = if rank == 1 && event["cat"] == "kernel" && event["args"]["stream"] == 20 { 7_000 } else { 0 };
            event["ts"] = json!(event["ts"].as_i64().unwrap() - early);
            if early > 0 {
                event["dur"] = json!(event["dur"].as_f64().unwrap() as i64 + early + 3);
            }
        }
    }
    // Everything of rank 1 shifted: kernels now overlap on its stream by far, and are cut; so give each a stream.
    for (n, event) in files[1]["traceEvents"].as_array_mut().unwrap().iter_mut().enumerate() {
        if event["cat"] == "kernel" {
            event["args"]["stream"] = json!(100 + n);
            event["tid"] = json!(100 + n);
        }
    }
    let (import, notes) = import(&files);
    for (op, transfer) in [("all_reduce", 50.0), ("all_to_all", 25.0), ("all_gather", 10.0)] {
        let (one, other) = (row(&import, 0, op), row(&import, 1, op));
        assert_eq!((one.wait_ns.map(us), one.transfer_ns.map(us)), (Some(0.0), Some(transfer)), "{op}");
        // The clocks are aligned on the ends, so the 3 us between them are taken for their offset.
        assert_eq!((other.wait_ns.map(us), other.transfer_ns.map(us)), (Some(7_003.0), Some(transfer)), "{op}");
        assert_eq!(one.size, other.size, "{op}");
    }
    assert_eq!(row(&import, 0, "all_to_all").size, Some(8_192), "the larger side of the larger rank");
    assert!(import.pattern.assumed.iter().any(|a| a.what.contains("splits of 2 uneven all-to-alls taken as even")));
    assert!(!notes.iter().any(|(kind, _)| kind.contains("disagree")));
    assert_eq!((us(import.clocks[1].offset_ns), import.unmatched.len()), (3.0, 0));
}

#[test]
fn what_one_rank_lacks_is_listed() {
    let mut files = [Y2024_05.trace(), Y2024_05.trace()];
    for (rank, file) in files.iter_mut().enumerate() {
        file["distributedInfo"] = json!({"rank": rank, "world_size": 2});
        let events = file["traceEvents"].as_array_mut().unwrap();
        if rank == 1 {
            // It lost the last kernel.
            events.retain(|event| event["cat"] != "kernel" || event["ts"].as_f64() != Some(300.0));
        }
        for event in events {
            if event["args"].get("Group size").is_some() {
                event["args"]["Group size"] = json!(2);
                event["args"]["Process Group Ranks"] = json!("[0, 1]");
            }
        }
    }
    let (import, _) = import(&files);
    let [one] = import.unmatched.as_slice() else { panic!("{:?}", import.unmatched) };
    assert_eq!((one.number, one.ranks.as_slice()), (Some(2), &[0, 1][..]));
    assert_eq!(one.seen, [(0, "all_gather of 16384 B f32".to_owned())]);
}

#[test]
fn damage_to_any_form_is_no_panic() {
    // A small generator of pseudo-random numbers (Marsaglia's xorshift64).
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let folder = tempfile::tempdir().unwrap();
    let files = [0, 1].map(|rank| folder.path().join(format!("rank{rank}.json")));
    let (mut patterns, mut errors) = (0, 0);
    for round in 0..160 {
        let form = [Y2023, Y2024_04, Y2026, Form { text_ids: true, ..Y2024_05 }][round % 4];
        for (rank, file) in files.iter().enumerate() {
            let mut trace = form.trace();
            trace["distributedInfo"]["rank"] = json!(rank);
            let mut text = trace.to_string().into_bytes();
            for _ in 0..round / 4 {
                let at = random() % text.len();
                match text[at] {
                    b'0'..=b'9' => text[at] = b'0' + (random() % 10) as u8,
                    b'a'..=b'z' if random().is_multiple_of(8) => text[at] = b'a' + (random() % 26) as u8,
                    b',' if random().is_multiple_of(64) => text[at] = b'0',
                    _ => {}
                }
            }
            std::fs::write(file, &text).unwrap();
        }
        let mut notes = Notes::default();
        let outcome =
            maestro_importers::read(&[folder.path().to_owned()], &maestro_importers::Reading::default(), &mut notes)
                .and_then(|capture| synthesise(&capture, &Options::default(), &mut notes));
        match outcome {
            Ok(_) => patterns += 1,
            Err(_) => errors += 1,
        }
    }
    assert!(patterns > 20 && errors > 0, "{patterns} patterns, {errors} errors");
}

/// A trace without marks: the step of a form several times over, 1 ms apart, after what another step ended with.
fn unmarked(times: u64) -> Value {
    let mut file = Y2024_05.trace();
    let step = file["traceEvents"].take();
    let mut events = vec![];
    let kernel = json!({"stream": 7, "correlation": 5});
    events.push(Y2024_05.event(0, "end of the step before", 0.0, 5.0, kernel));
    for n in 0..times {
        for event in step.as_array().unwrap() {
            let mut event = event.clone();
            if event["ph"] != "X" || event["name"] == "ProfilerStep#4" {
                continue;
            }
            event["ts"] = json!(event["ts"].as_f64().unwrap() + 1000.0 * n as f64);
            for key in ["correlation", "External id"] {
                if let Some(id) = event["args"].get(key).and_then(Value::as_u64) {
                    event["args"][key] = json!(id + 1000 * n);
                }
            }
            events.push(event);
        }
    }
    file["traceEvents"] = events.into();
    file
}

#[test]
fn without_marks_repetitions_are_steps() {
    let (import, notes) = import(&[unmarked(4)]);
    let steps: Vec<_> = import.steps.iter().map(|s| (&*s.name, s.activities, us(s.comm_ns), us(s.span_ns))).collect();
    let expected = ["repetition#1", "repetition#2", "repetition#3", "repetition#4"].map(|n| (n, 4, 85.0, 290.0));
    assert_eq!(steps, expected);
    assert_eq!(import.conservation[0].dropped.0, 1, "what came before is of no step");
    let note = notes.iter().find(|(kind, _)| kind.contains("without step marks")).unwrap().1;
    assert!(note.example.starts_with("4 repetitions of 4 activities, each from sgemm on"), "{}", note.example);
    let second = import_with(&[unmarked(4)], &Options { step: Some("2".into()), ..Options::default() }).0;
    assert_eq!(&*second.chosen_step, "repetition#2");
}

#[test]
fn without_marks_and_repetitions_the_whole_is_a_step() {
    // Twice is no rule, and an exception breaks one.
    let mut exception = unmarked(4);
    let kernel = json!({"stream": 7, "correlation": 6});
    exception["traceEvents"].as_array_mut().unwrap().push(Y2024_05.event(0, "now and then", 1500.0, 1.0, kernel));
    let mut other = unmarked(4);
    let events = other["traceEvents"].as_array_mut().unwrap();
    events.iter_mut().filter(|event| event["name"] == "sgemm").nth(1).unwrap()["name"] = json!("dgemm");
    for file in [unmarked(2), exception, other] {
        let (import, _) = import(&[file]);
        assert_eq!((import.steps.len(), &*import.chosen_step), (1, "whole"));
    }
}
