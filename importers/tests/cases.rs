//! The cases of fixtures/cases, each with a page of what is right, and others of the same kind: other numbers, other
//! ranks, so that the kind is tested and not the file. Here: who communicates what, how long, and who waited.

mod common;

use common::{all, case, close, import, import_raw, raw, row, scaled, us};
use maestro_importers::synthesis::{Executions, Options};
use maestro_importers::{CommKernel, Notes};
use serde_json::{Value, json};

#[test]
fn case_01_a_kernel_and_its_record_share_an_id() {
    for factor in [1, 3] {
        let (import, _) = import(&[scaled(case("01-ncclDevKernel-driver-launch"), factor)]);
        let step = &import.steps[0];
        assert_eq!((us(step.comm_ns), us(step.compute_ns), us(step.exposed_ns)), (400.0, 600.0, 20.0));
        assert_eq!(us(step.span_ns), 620.0);
        let row = row(&import, 0, "all_reduce");
        assert_eq!((row.size, row.dtype, row.inferred), (Some(67_108_864 * factor), Some("bf16"), false));
        close(row.algbw_gbps, 167.77216 * factor as f64);
        close(row.busbw_gbps, 293.60128 * factor as f64);
        assert_eq!(row.ranks, (0..8).collect::<Vec<u32>>());
    }
}

#[test]
fn case_03_a_batch_of_sends_and_receives_carries_nothing() {
    let (import, _) = import(&[case("03-batched-p2p-no-metadata")]);
    let row = row(&import, 0, "send_recv");
    assert_eq!((row.size, row.directions, row.inferred), (Some(4_194_304), Some((4_194_304, 4_194_304)), true));
    close(row.algbw_gbps, 41.94304);
    close(row.busbw_gbps, 41.94304);
    let (sent, received) = row.directions.unwrap();
    close(Some((sent + received) as f64 / row.duration_ns as f64), 83.88608);
    assert_eq!((import.steps[0].exposed_ns, us(import.steps[0].comm_ns)), (0, 100.0));
    assert!(import.pattern.assumed.iter().any(|a| a.what.contains("without metadata taken from the records before")));
}

#[test]
fn case_03_peers_come_from_ranks_in_the_group_or_from_annotations() {
    // The same on ranks 4 and 6, without global peers: what is recorded is the peer's place in the group.
    let moved = |with_place: bool| {
        let mut file = case("03-batched-p2p-no-metadata");
        file["distributedInfo"]["rank"] = json!(4);
        file["distributedInfo"]["world_size"] = json!(8);
        file["distributedInfo"]["pg_config"] = json!([{"pg_name": "3", "pg_desc": "mesh_pp", "ranks": [4, 6]}]);
        for event in file["traceEvents"].as_array_mut().unwrap() {
            let Some(args) = event["args"].as_object_mut().filter(|args| args.contains_key("Collective name")) else {
                continue;
            };
            args["Process Group Ranks"] = json!("[4, 6]");
            args.remove("Src Rank");
            args.remove("Dst Rank");
            args.remove("Rank");
            if with_place {
                args.insert("Rank".to_owned(), json!(1));
            }
        }
        file
    };
    let mut annotated = moved(false);
    let events = annotated["traceEvents"].as_array_mut().unwrap();
    let records: Vec<Value> = events.iter().filter(|e| e["name"] == "record_param_comms").cloned().collect();
    for record in records {
        let name = match record["args"]["Collective name"].as_str() {
            Some("send") => "nccl:send 0->1",
            _ => "nccl:recv 0<-1",
        };
        let ts = record["ts"].as_f64().unwrap() + 1.0;
        events.push(json!({"ph": "X", "cat": "user_annotation", "name": name, "pid": record["pid"],
            "tid": record["tid"], "ts": ts, "dur": 5.0, "args": {}}));
    }
    for file in [moved(true), annotated] {
        let (import, notes) = import(&[file]);
        let row = row(&import, 4, "send_recv");
        assert_eq!((row.directions, row.ranks.as_slice()), (Some((4_194_304, 4_194_304)), &[4, 6][..]));
        assert!(!notes.iter().any(|(kind, _)| kind.contains("peer is not known")));
    }
    let (import, notes) = import(&[moved(false)]);
    assert_eq!(import.collectives[0].size, None, "a peer that nothing tells is not guessed");
    assert!(notes.iter().any(|(kind, _)| kind.contains("peer is not known")));
}

#[test]
fn case_05_a_graph_is_one_launch_of_many_kernels() {
    for graph in [5, 12] {
        let mut file = case("05-cuda-graph-replay");
        for event in file["traceEvents"].as_array_mut().unwrap() {
            if event["args"].get("graph id").is_some() {
                event["args"]["graph id"] = json!(graph);
            }
        }
        let (import, notes) = import(&[file]);
        let step = &import.steps[0];
        assert_eq!((step.activities, us(step.comm_ns), us(step.exposed_ns)), (3, 40.0, 40.0));
        assert_eq!((us(step.compute_ns), us(step.span_ns), us(step.span_ns - step.busy_ns)), (100.0, 144.0, 4.0));
        assert_eq!(step.overlap_pct(), Some(0.0));
        let row = row(&import, 0, "all_reduce");
        assert_eq!((row.size, row.algbw_gbps, row.busbw_gbps, row.inferred), (None, None, None, true));
        // The blocks of the graph are together, in the order of the device, and the pattern asks for the size.
        let text = import.pattern.to_yaml();
        assert!(text.contains(&format!("graph_{graph}:")) && text.contains(&format!("do: graph_{graph}}}")), "{text}");
        assert!(text.contains("all_reduce: {size: unknown"), "{text}");
        assert!(import.pattern.assumed.iter().any(|a| a.what.contains("no known size")));
        assert!(notes.iter().any(|(kind, _)| kind.contains("sizes unknown")));
    }
}

#[test]
fn case_07_what_is_no_json_is_read_as_null() {
    let text = raw("07-inf-nan-bandwidth.json");
    let byte = text.find("inf").unwrap();
    for (from, to) in [("inf", "inf"), ("inf", "-Infinity"), ("NaN", "N/A"), ("inf", "nan")] {
        let (import, notes) = import_raw(&[("a.json", text.replace(from, to).as_bytes())], false).unwrap();
        let note = notes.iter().find(|(kind, _)| kind.contains("no JSON")).unwrap().1;
        assert_eq!(note.count, 2);
        assert!(note.example.contains(&format!("at byte {byte}")), "{}", note.example);
        let step = &import.steps[0];
        assert_eq!((us(step.copy_ns), us(step.compute_ns), step.overlap_pct()), (40.0, 100.0, None));
        let copies: usize = import.copies.iter().map(|row| row.count).sum();
        assert_eq!(copies, 3);
        let strict = import_raw(&[("a.json", text.replace(from, to).as_bytes())], true).unwrap_err();
        assert!(strict.contains("byte"), "{strict}");
    }
}

#[test]
fn case_07_copies_that_took_no_time_have_no_bandwidth() {
    // The bandwidths that the profiler wrote, which are no JSON, are another test's matter.
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/07-inf-nan-bandwidth.json");
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.replace("(GB/s)\": inf", "(GB/s)\": null").replace("(GB/s)\": NaN", "(GB/s)\": null");
    let (import, _) = import(&[serde_json::from_str(&text).unwrap()]);
    let count: usize = import.copies.iter().map(|copies| copies.count).sum();
    let timed: Vec<_> = import.copies.iter().filter(|copies| copies.gbps.is_some()).collect();
    assert_eq!((count, timed.len(), us(timed[0].duration_ns)), (3, 1, 40.0));
    close(timed[0].gbps, 26.2144);
    assert!(import.copies.iter().all(|copies| copies.duration_ns > 0 || copies.gbps.is_none()));
}

#[test]
fn case_09_a_name_is_no_identity() {
    let (import, _) = import(&all("09-group-name-reused", 4));
    assert_eq!(import.teams, [("tp".to_owned(), vec![vec![0, 1], vec![2, 3]])]);
    let expected = [(0, 20.0, 40.0), (1, 0.0, 40.0), (2, 10.0, 40.0), (3, 0.0, 40.0)];
    for (rank, wait, transfer) in expected {
        let row = row(&import, rank, "all_reduce");
        assert_eq!((row.wait_ns.map(us), row.transfer_ns.map(us)), (Some(wait), Some(transfer)), "rank {rank}");
        close(row.algbw_gbps, 209.7152);
        close(row.busbw_gbps, 209.7152);
    }
}

#[test]
fn case_09_names_that_differ_between_ranks_are_one_group() {
    // Ranks 1 and 3 call their group otherwise, and list two more groups of the same ranks that they do not use.
    let mut files = all("09-group-name-reused", 4);
    for (rank, file) in files.iter_mut().enumerate() {
        let team = if rank < 2 { json!([0, 1]) } else { json!([2, 3]) };
        let name = if rank % 2 == 1 { "7" } else { "5" };
        let groups = file["distributedInfo"]["pg_config"].as_array_mut().unwrap();
        groups[1]["pg_name"] = json!(name);
        groups.push(json!({"pg_name": "4", "pg_desc": "idle", "ranks": team}));
        groups.push(json!({"pg_name": "8", "pg_desc": "idle", "ranks": team}));
        for event in file["traceEvents"].as_array_mut().unwrap() {
            if event["args"].get("Process Group Name").is_some() {
                event["args"]["Process Group Name"] = json!(name);
            }
        }
    }
    let (import, notes) = import(&files);
    assert_eq!(import.teams, [("tp".to_owned(), vec![vec![0, 1], vec![2, 3]])]);
    assert_eq!(row(&import, 0, "all_reduce").wait_ns.map(us), Some(20.0));
    assert!(!notes.iter().any(|(kind, _)| kind.contains("without all their ranks")));
}

#[test]
fn case_11_clocks_are_aligned_on_ends() {
    for late in [0.0, 123_456.0] {
        let mut files = all("11-clock-skew", 2);
        for event in files[1]["traceEvents"].as_array_mut().unwrap() {
            if let Some(ts) = event["ts"].as_f64() {
                event["ts"] = json!(ts + late);
            }
        }
        let (import, _) = import(&files);
        let clock = import.clocks[1];
        assert_eq!((us(clock.offset_ns), us(clock.error_ns)), (5000.0 + late, 1.0));
        // Per instance: the wait of each rank, and the transfer from the last arrival to the last end.
        let times = |rank: u32, what: fn(&maestro_pattern::Measurement) -> Option<u64>| -> Vec<f64> {
            let mine = import.measurements.iter().filter(|m| m.rank == rank && m.wait_ns.is_some());
            mine.map(|m| us(what(m).unwrap() as i64)).collect()
        };
        assert_eq!(times(0, |m| m.wait_ns), [30.0, 0.0, 5.0]);
        assert_eq!(times(1, |m| m.wait_ns), [0.0, 50.0, 0.0]);
        let transfers = times(0, |m| m.transfer_ns).into_iter().zip(times(1, |m| m.transfer_ns));
        assert_eq!(transfers.map(|(a, b)| a.max(b)).collect::<Vec<f64>>(), [71.0, 70.0, 75.0]);
        let arrivals: Vec<_> = import.clocks.iter().map(|c| (c.rank, c.last, c.decided)).collect();
        assert_eq!((arrivals, import.ties), (vec![(0, 1, 3), (1, 2, 3)], 0));
    }
}

#[test]
fn case_13_the_first_of_a_window_stands_apart() {
    let (import, notes) = import(&all("13-window-start-arrival", 2));
    let row = row(&import, 0, "all_reduce");
    assert_eq!((us(row.duration_ns), us(row.steady_duration_ns())), (250_400.0, 400.0));
    let first = row.first.unwrap();
    assert_eq!((first.wait_ns.map(us), first.transfer_ns.map(us)), (Some(249_900.0), Some(100.0)));
    assert_eq!((row.wait_ns.map(us), row.transfer_ns.map(us), row.count), (Some(249_900.0), Some(500.0), 5));
    close(row.busbw_gbps, 41.94304);
    assert_eq!((us(import.steps[0].comm_ns), us(import.steps[0].steady_comm_ns)), (250_400.0, 400.0));
    let arrivals: Vec<_> = import.clocks.iter().map(|c| (c.rank, c.last, c.decided)).collect();
    assert_eq!((arrivals, import.ties), (vec![(0, 0, 1), (1, 1, 1)], 4));
    assert!(notes.iter().any(|(kind, note)| kind.contains("left out of steady sums") && note.count == 2));
}

#[test]
fn case_13_one_rank_alone_leaves_the_first_out_of_its_bandwidth() {
    let (import, _) = import(&all("13-window-start-arrival", 1));
    let row = row(&import, 0, "all_reduce");
    assert_eq!((row.wait_ns, row.transfer_ns), (None, None));
    close(row.busbw_gbps, 41.94304);
}

#[test]
fn case_15_what_has_no_times_is_counted_and_in_no_interval() {
    for more in [0, 2] {
        let mut file = case("15-zero-timestamp-kernel");
        let events = file["traceEvents"].as_array_mut().unwrap();
        let lost = events.iter().find(|event| event["cat"] == "kernel" && event["ts"] == 0).unwrap().clone();
        events.extend(std::iter::repeat_n(lost, more));
        let (import, _) = import(&[file]);
        let step = &import.steps[0];
        assert_eq!((us(step.span_ns), us(step.comm_ns), us(step.exposed_ns)), (500.0, 400.0, 200.0));
        let kernels = &import.conservation[0];
        assert_eq!((kernels.kind, kernels.dropped), ("kernel", (1 + more, 0)));
        assert_eq!(kernels.why, Some("recorded without times"));
    }
}

#[test]
fn case_18_recorded_waits_are_dependencies_and_no_work() {
    let (import, _) = import(&[case("18-cuda-sync-events")]);
    let step = &import.steps[0];
    assert_eq!((us(step.compute_ns), us(step.comm_ns), us(step.exposed_ns)), (200.0, 400.0, 300.0));
    assert_eq!((step.activities, step.overlap_pct()), (2, Some(25.0)));
    let streams: Vec<_> = import.streams.iter().map(|one| (one.stream, one.on_stream, one.count)).collect();
    assert_eq!((import.waits, streams), ((1, 0), vec![(7, 20, 1)]));

    // A product behind the wait is held back by it, whatever the times would allow.
    let mut file = case("18-cuda-sync-events");
    let events = file["traceEvents"].as_array_mut().unwrap();
    let copy = |events: &[Value], cat: &str, name: &str| {
        events.iter().find(|e| e["cat"] == cat && e["name"].as_str().unwrap().starts_with(name)).unwrap().clone()
    };
    let (mut launch, mut kernel) = (copy(events, "cuda_runtime", "cudaLaunch"), copy(events, "kernel", "nvjet"));
    (launch["args"]["correlation"], kernel["args"]["correlation"]) = (json!(160), json!(160));
    (launch["ts"], kernel["ts"]) = (json!(5_200_000_001_150.0), json!(5_200_000_001_700.0));
    events.extend([launch, kernel]);
    let (import, _) = common::import(&[file]);
    let text = import.pattern.to_yaml();
    assert!(text.contains("after: [all_reduce]"), "{text}");
    assert!(!text.contains("dependencies between lanes inferred"), "{text}");
}

#[test]
fn case_20_devices_of_one_process_are_ranks() {
    let (import, notes) = import(&[case("20-two-gpus-one-process")]);
    let spans = |rank: usize| {
        let step = &import.steps[rank];
        (us(step.compute_ns), us(step.comm_ns), us(step.exposed_ns))
    };
    assert_eq!((spans(0), spans(1)), ((400.0, 400.0, 400.0), (700.0, 100.0, 100.0)));
    for (rank, wait) in [(0, 300.0), (1, 0.0)] {
        let row = row(&import, rank, "all_reduce");
        assert_eq!((row.count, row.size, row.ranks.as_slice()), (1, Some(16_777_216), &[0, 1][..]));
        assert_eq!((row.wait_ns.map(us), row.transfer_ns.map(us)), (Some(wait), Some(100.0)));
        close(row.busbw_gbps, 167.77216);
    }
    assert!(notes.iter().any(|(kind, _)| kind == "ranks given by the order of the devices in a file"));
}

#[test]
fn case_20_merged_ranks_repeat_ids_and_threads() {
    // What a tool makes of two files of one rank each: processes renumbered, ids left as they were.
    let mut merged = case("09-group-name-reused-rank0");
    let mut other = case("09-group-name-reused-rank1");
    for event in other["traceEvents"].as_array_mut().unwrap() {
        if let Some(pid) = event["pid"].as_i64() {
            event["pid"] = json!(pid + 1_000_000);
            event["tid"] = if pid > 100 { json!(4100) } else { event["tid"].clone() };
        }
    }
    let more = other["traceEvents"].as_array().unwrap().clone();
    merged["traceEvents"].as_array_mut().unwrap().extend(more);
    let (import, _) = import(&[merged]);
    assert_eq!(import.ranks, [0, 1]);
    for (rank, wait) in [(0, 20.0), (1, 0.0)] {
        let row = row(&import, rank, "all_reduce");
        assert_eq!((row.count, row.wait_ns.map(us), row.transfer_ns.map(us)), (1, Some(wait), Some(40.0)));
    }
    assert_eq!(import.steps.iter().map(|step| step.activities).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn case_21_bandwidths_of_two_streams_at_once() {
    let (import, _) = import(&[case("21-concurrent-comm-streams")]);
    assert_eq!((us(import.steps[0].comm_ns), us(import.steps[0].exposed_ns)), (300.0, 150.0));
    for (op, size) in [("all_reduce", 8_388_608), ("reduce_scatter", 16_777_216)] {
        let row = row(&import, 0, op);
        assert_eq!(row.size, Some(size));
        close(row.busbw_gbps, 73.40032);
    }
}

#[test]
fn case_23_the_matrix_of_a_subgroup_is_whole() {
    let (import, notes) = import(&all("23-uneven-alltoall-subgroup", 4));
    assert_eq!(import.ranks, [2, 3]);
    let matrix = vec![vec![1_048_576, 3_145_728], vec![1_048_576, 2_097_152]];
    for rank in [2, 3] {
        let row = row(&import, rank, "all_to_all");
        assert_eq!(
            (row.size, row.splits.as_ref(), row.ranks.as_slice()),
            (Some(10_485_760), Some(&matrix), &[2, 3][..])
        );
        close(row.algbw_gbps, 52.4288);
        close(row.busbw_gbps, 26.2144);
    }
    assert!(!notes.iter().any(|(kind, _)| kind.contains("disagree")));
}

/// Changes what a rank of case 23 says of its all-to-all.
fn all_to_all(rank: u32, changes: &[(&str, Value)]) -> Value {
    let mut file = case(&format!("23-uneven-alltoall-subgroup-rank{rank}"));
    for event in file["traceEvents"].as_array_mut().unwrap() {
        if event["args"].get("Collective name").is_some() {
            for (key, value) in changes {
                event["args"][*key] = value.clone();
            }
        }
    }
    file
}

#[test]
fn case_23_receivers_that_expect_something_else_are_named() {
    let out = ("Out split size", json!("[3145727, 2097153]"));
    let (import, notes) = import(&[all_to_all(2, &[]), all_to_all(3, &[out])]);
    let note = notes.iter().find(|(kind, _)| kind.contains("disagree on what one sends")).unwrap().1;
    assert_eq!(note.count, 2);
    assert_eq!(note.example, "rank 2 sends 3145728 elements to rank 3, which expects 3145727");
    assert!(row(&import, 2, "all_to_all").splits.is_some(), "senders are believed");
}

#[test]
fn case_23_empty_splits_are_even_only_if_both_sides_agree() {
    let none = [("In split size", json!("[]")), ("Out split size", json!("[]"))];
    let (uneven, _) = import(&[all_to_all(2, &none), all_to_all(3, &none)]);
    let row_2 = row(&uneven, 2, "all_to_all");
    assert_eq!((row_2.splits.as_ref(), row_2.size), (None, Some(10_485_760)), "the largest side of any rank");
    let even_taken = |import: &maestro_importers::synthesis::Import| {
        import.pattern.assumed.iter().any(|a| a.what.contains("uneven all-to-alls taken as even"))
    };
    assert!(even_taken(&uneven));
    let mut even = none.to_vec();
    even.extend([("In msg nelems", json!(4096)), ("Out msg nelems", json!(4096))]);
    let (even, _) = import(&[all_to_all(2, &even), all_to_all(3, &even)]);
    assert_eq!(row(&even, 2, "all_to_all").size, Some(8192));
    assert!(!even_taken(&even));
}

#[test]
fn case_23_a_rank_without_a_row_has_it_in_the_others_columns() {
    // Rank 2 recorded no splits; both columns (its own is recorded as out splits) hold its row.
    let none = [("In split size", json!("[]"))];
    let (import, _) = import(&[all_to_all(2, &none), all_to_all(3, &[])]);
    let matrix = vec![vec![1_048_576, 3_145_728], vec![1_048_576, 2_097_152]];
    assert_eq!(row(&import, 3, "all_to_all").splits.as_ref(), Some(&matrix));
}

#[test]
fn case_23_cut_splits_are_stated_as_even() {
    let cut = [("In split size", json!("[1048576, ...]")), ("Out split size", json!("[3145728, ..., 7]"))];
    let (import, notes) = import(&[all_to_all(2, &cut), all_to_all(3, &cut)]);
    assert_eq!(row(&import, 2, "all_to_all").splits, None);
    let stated = |a: &maestro_pattern::Assumption| a.what.starts_with("splits of 2 uneven all-to-alls taken as even");
    assert!(import.pattern.assumed.iter().any(stated));
    assert!(notes.iter().any(|(kind, _)| kind == "communications whose list of splits is cut"));
}

#[test]
fn case_25_waits_run_nothing_and_barriers_have_no_bandwidth() {
    let (import, _) = import(&[case("25-wait-and-barrier-records")]);
    let data = row(&import, 0, "all_reduce");
    assert_eq!((data.count, data.size, us(data.duration_ns)), (1, Some(8_388_608), 100.0));
    close(data.algbw_gbps, 83.88608);
    close(data.busbw_gbps, 146.80064);
    let barrier = row(&import, 0, "barrier");
    assert_eq!((barrier.count, us(barrier.duration_ns)), (1, 15.0));
    assert_eq!((barrier.algbw_gbps, barrier.busbw_gbps), (None, None));
    assert_eq!(us(import.steps[0].comm_ns), 115.0);
    assert_eq!(import.collectives.len(), 2);
}

#[test]
fn case_25_a_barrier_is_told_by_its_record_whatever_its_kernel_says() {
    // The kernel's metadata are those of the all-reduce of one float that a barrier runs, recorded inside the barrier.
    let mut file = case("25-wait-and-barrier-records");
    let events = file["traceEvents"].as_array_mut().unwrap();
    let mut inner = None;
    for event in events.iter_mut() {
        if event["args"]["Collective name"] == "barrier" {
            if event["name"] == "record_param_comms" {
                let mut record = event.clone();
                record["ts"] = json!(record["ts"].as_f64().unwrap() + 1.0);
                record["dur"] = json!(30.0);
                record["args"]["External id"] = json!(77);
                for (key, value) in [("Collective name", json!("allreduce")), ("dtype", json!("Float"))] {
                    record["args"][key] = value;
                }
                record["args"]["In msg nelems"] = json!(1);
                record["args"]["Out msg nelems"] = json!(1);
                inner = Some(record);
            } else {
                event["args"]["Collective name"] = json!("allreduce");
                event["args"]["External id"] = json!(77);
                event["args"]["dtype"] = json!("Float");
                event["args"]["In msg nelems"] = json!(1);
                event["args"]["Out msg nelems"] = json!(1);
            }
        }
    }
    events.extend(inner);
    let (import, _) = import(&[file]);
    assert_eq!(row(&import, 0, "barrier").algbw_gbps, None);
    assert_eq!(row(&import, 0, "all_reduce").count, 1);
}

#[test]
fn case_26_what_is_before_the_cut_is_read() {
    let text = raw("26-truncated-file.json");
    let (import, notes) = import_raw(&[("a.json", text.as_bytes())], false).unwrap();
    let step = &import.steps[0];
    assert_eq!((step.activities, us(step.comm_ns), us(step.exposed_ns)), (2, 400.0, 300.0));
    assert_eq!(step.overlap_pct(), Some(25.0));
    let says = |notes: &Notes, words: &str| notes.iter().any(|(_, note)| note.example.contains(words));
    assert!(says(&notes, "incomplete: cut at byte 5254"));
    assert!(import_raw(&[("a.json", text.as_bytes())], true).unwrap_err().contains("byte 5254"));
    // Cut anywhere behind the all-reduce, in the middle of a row or between two, the same is left.
    let whole = text.rfind("ncclDevKernel").map(|at| at + text[at..].find("}}").unwrap() + 2).unwrap();
    for length in (whole..text.len()).step_by(7) {
        let (import, notes) = import_raw(&[("a.json", &text.as_bytes()[..length])], false).unwrap();
        assert_eq!(import.steps[0].activities, 2, "cut at {length}");
        assert!(says(&notes, &format!("cut at byte {length}")), "cut at {length}");
    }
}

#[test]
fn case_29_a_kernel_before_its_launch_keeps_it() {
    for early in [0.0, 2.25] {
        let mut file = case("29-kernel-before-launch");
        for event in file["traceEvents"].as_array_mut().unwrap() {
            if event["cat"] == "kernel" {
                event["ts"] = json!(event["ts"].as_f64().unwrap() - early);
            }
        }
        let (import, notes) = import(&[file]);
        let row = row(&import, 0, "all_to_all");
        close(row.algbw_gbps, 419.4304);
        close(row.busbw_gbps, 367.0016);
        let note = notes.iter().find(|(kind, _)| *kind == "kernels that start before their launch call").unwrap().1;
        assert_eq!(note.count, 1);
        assert!(note.example.contains(&format!("by {} us", 1.5 + early)), "{}", note.example);
    }
}

#[test]
fn case_31_alone_and_together_are_told_apart() {
    let (import, _) = import(&[case("31-overlap-slowdown")]);
    let step = &import.steps[0];
    assert_eq!((us(step.comm_ns), us(step.exposed_ns), step.overlap_pct()), (500.0, 200.0, Some(60.0)));
    let [comm, gemm] = &import.contention[..] else { panic!("{:?}", import.contention) };
    let state = |one: &Executions| (one.count, one.mean_ns().map(|ns| ns / 1e3));
    assert!(comm.communicates && !gemm.communicates);
    assert_eq!((state(&comm.alone), state(&comm.together)), ((1, Some(200.0)), (1, Some(300.0))));
    assert_eq!((state(&gemm.alone), state(&gemm.together)), ((1, Some(100.0)), (2, Some(120.0))));
    assert_eq!((state(&gemm.partly), state(&comm.partly)), ((1, Some(120.0)), (0, None)));
    close(comm.slowdown(), 1.5);
    close(gemm.slowdown(), 1.2);
    let bandwidths = |ns: f64| (comm.gbps(ns), comm.bus_gbps(ns));
    for (ns, algbw, busbw) in [(200e3, 83.88608, 146.80064), (300e3, 16_777.216 / 300.0, 1.75 * 16_777.216 / 300.0)] {
        close(bandwidths(ns).0, algbw);
        close(bandwidths(ns).1, busbw);
    }
    let (rank, gain) = import.gains[0];
    assert_eq!((rank, gain.stretches, gain.together_ns, gain.back_to_back_ns), (0, 1, 360e3, 500e3));
    close(gain.efficiency_pct(), 70.0);
}

#[test]
fn case_21_exposed_time_is_shared() {
    let (import, _) = import(&[case("21-concurrent-comm-streams")]);
    let step = &import.steps[0];
    assert_eq!((us(step.comm_ns), us(step.exposed_ns), step.overlap_pct()), (300.0, 150.0, Some(50.0)));
    assert_eq!((us(step.busy_ns), us(step.span_ns)), (300.0, 300.0));
    assert_eq!(row(&import, 0, "all_reduce").exposed_ns, 25e3);
    assert_eq!(row(&import, 0, "reduce_scatter").exposed_ns, 125e3);
}

#[test]
fn case_33_a_name_tells_no_algorithm_and_nothing_is_clamped() {
    let (import, _) = import(&[case("33-ring-ll-name-large-message")]);
    let row = row(&import, 0, "all_reduce");
    assert_eq!(row.size, Some(1 << 30));
    close(row.algbw_gbps, 268.435456);
    close(row.busbw_gbps, 469.762048);
    let text = import.pattern.to_yaml().to_lowercase();
    assert!(!text.contains("ring") && !text.contains("_ll"), "{text}");
}

#[test]
fn kernels_of_the_users_own_communicate_as_told() {
    let mut file = case("01-ncclDevKernel-driver-launch");
    for event in file["traceEvents"].as_array_mut().unwrap() {
        if event["cat"] == "kernel" && event["args"].get("Collective name").is_some() {
            event["name"] = json!("void ours::halo_push<4>(float*)");
            event["args"] = json!({"stream": 20, "device": 0, "correlation": 103, "grid": [16, 1, 1]});
        }
    }
    let comm = |options: &Options| common::import_with(&[file.clone()], options).0;
    assert_eq!(comm(&Options::default()).steps[0].comm_ns, 0);
    let ours: CommKernel = "halo_push=all_gather".parse().unwrap();
    let import = comm(&Options { comm_kernels: vec![ours], ..Options::default() });
    assert_eq!(us(import.steps[0].comm_ns), 400.0);
    assert_eq!((row(&import, 0, "all_gather").size, row(&import, 0, "all_gather").algbw_gbps), (None, None));
}
