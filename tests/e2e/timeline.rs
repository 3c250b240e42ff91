//! Timelines from the command line, of a real capture, its simulation and a pattern; read back by the decoder of
//! reports/, which shares no code with the writer.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use maestro_pattern::{Instruction, Measurement, Plan};
use maestro_reports::Run;

use crate::decoder::{Timeline, read};
use crate::harness::{capture, folder, maestro, path};

/// Block, instance, lane, start and length of a rank's executions, sorted.
type Rows = Vec<(String, u64, String, u64, u64)>;

fn drawn(timeline: &Timeline, process: &str) -> Rows {
    let of = timeline.executions().filter(|slice| slice.process == process);
    let mut rows: Rows = of
        .map(|s| {
            let instance = s.number("instance").unwrap();
            assert_eq!(s.number("start_ns"), Some(s.begin_ns), "the only iteration begins at 0");
            (s.name.clone(), instance, s.thread.clone(), s.begin_ns, s.end_ns - s.begin_ns)
        })
        .collect();
    rows.sort();
    rows
}

fn measured(measurements: &[Measurement], rank: u32) -> Rows {
    let of = measurements.iter().filter(|m| m.rank == rank);
    let mut rows: Rows = of
        .map(|m| (m.block.to_string(), m.instance.into(), m.lane.to_string(), m.start_ns, m.end_ns - m.start_ns))
        .collect();
    rows.sort();
    rows
}

/// The arrows that the plan asks for and the times of `measurements` allow, sorted; and how many they forbid.
fn asked(plan: &Plan, measurements: &[Measurement], rank: u32) -> (Vec<String>, usize) {
    let of = measurements.iter().filter(|m| m.rank == rank);
    let at: BTreeMap<(&str, u32), &Measurement> = of.map(|m| ((&*m.block, m.instance), m)).collect();
    let instructions = &plan.program(rank).instructions;
    let issued = |index: u32| match &instructions[index as usize] {
        Instruction::Issue { block, instance, .. } => at[&(plan.blocks[*block as usize].name.as_str(), *instance)],
        other => panic!("{other:?} is no issue"),
    };
    let name = |m: &Measurement| format!("{}.{}", m.block, m.instance);
    let (mut arrows, mut forbidden) = (Vec::new(), 0);
    for (index, instruction) in instructions.iter().enumerate() {
        let Instruction::Issue { after, .. } = instruction else { continue };
        // What the host waited for between the issue before and this one.
        let before = instructions[..index].iter().rev().take_while(|i| !matches!(i, Instruction::Issue { .. }));
        let waited = before.filter_map(|i| if let Instruction::Wait(cause) = i { Some(*cause) } else { None });
        let mut causes: Vec<u32> = after.iter().copied().chain(waited).collect();
        causes.sort_unstable();
        causes.dedup();
        let effect = issued(index as u32);
        for cause in causes.into_iter().map(issued) {
            if cause.end_ns <= effect.start_ns {
                arrows.push(format!("{} -> {}", name(cause), name(effect)));
            } else {
                forbidden += 1;
            }
        }
    }
    arrows.sort();
    (arrows, forbidden)
}

fn timeline(here: &Path, args: &[&str]) -> Timeline {
    let out = maestro(here, args.iter().copied().chain(["--format", "perfetto", "-o", "t.pftrace"])).ok();
    assert_eq!(out, "Timeline written to t.pftrace; open it in https://ui.perfetto.dev\n");
    read(&fs::read(here.join("t.pftrace")).unwrap())
}

#[test]
fn a_captured_step_stands_beside_its_simulation() {
    let here = folder();
    let file = capture("fsdp_large");
    let args = ["import".as_ref(), file.as_os_str(), "--run".as_ref(), "captured".as_ref(), "-o".as_ref()];
    maestro(here.path(), args.into_iter().chain(["p.yaml".as_ref()])).ok();
    maestro(here.path(), ["replay", "p.yaml", "--backend", "dry", "--no-alone", "-o", "simulated"]).ok();
    let both = timeline(here.path(), &["report", "captured", "simulated"]);
    let names: Vec<&str> = both.processes.iter().map(|process| process.name.as_str()).collect();
    assert_eq!(names, ["captured rank 0", "simulated rank 0", "captured rank 1", "simulated rank 1"]);
    for id in ["captured", "simulated"] {
        let run = Run::open(&here.path().join(id)).unwrap();
        let measurements: Vec<Measurement> = run.measurements().iter().collect();
        let plan = Plan::new(&run.pattern, &[]).unwrap();
        for rank in 0..2 {
            let process = format!("{id} rank {rank}");
            assert_eq!(drawn(&both, &process), measured(&measurements, rank), "{process}");
            let (arrows, forbidden) = asked(&plan, &measurements, rank);
            assert!(arrows.len() > 30, "{process}: {arrows:?}");
            assert_eq!(both.arrows(&process), arrows, "{process}");
            // An import keeps no dependency that the times contradict, and a simulation keeps them all.
            assert_eq!(forbidden, 0, "{process}");
            let waits: u64 = measurements.iter().filter(|m| m.rank == rank).filter_map(|m| m.wait_ns).sum();
            let inside = both.slices.iter().filter(|s| s.category == "wait" && s.process == process);
            assert_eq!(inside.map(|s| s.end_ns - s.begin_ns).sum::<u64>(), waits, "{process}");
        }
    }
    // Lanes are in the pattern's order, and a gather tells what it is.
    let lanes: Vec<&str> = both.threads.iter().take(4).map(|thread| thread.name.as_str()).collect();
    assert_eq!(lanes, ["compute", "side", "all_gather", "reduce_scatter"]);
    let gather = both.slices.iter().find(|s| s.name == "all_gather_384M").unwrap();
    assert_eq!(gather.category, "all_gather");
    for (name, value) in [("size_bytes", "402759680"), ("dtype", "bf16"), ("axis", "dp"), ("state", "overlapped")] {
        assert_eq!(gather.notes[name], value, "{name}");
    }
    // What is read from the capture at once is the same, down to the bytes if it is called the same.
    let shown = maestro(here.path(), ["show".as_ref(), file.as_os_str(), "--format=perfetto".as_ref(), "-oa".as_ref()]);
    shown.ok();
    maestro(here.path(), ["report", "captured", "--format", "perfetto", "-o", "b"]).ok();
    assert!(fs::read(here.path().join("a")).unwrap() == fs::read(here.path().join("b")).unwrap());
}

#[test]
fn a_pattern_is_drawn_by_dry_run_and_ranks_are_chosen() {
    let here = folder();
    let file = path("fixtures/patterns/pipeline.yaml");
    let pattern = file.to_str().unwrap();
    let all = timeline(here.path(), &["show", pattern]);
    assert_eq!(all.processes.len(), 4);
    assert!(all.arrows("simulated rank 1").contains(&"forward.0 -> send_activations.0".to_owned()));
    let one = timeline(here.path(), &["show", pattern, "--rank", "2"]);
    let names: Vec<&str> = one.processes.iter().map(|process| process.name.as_str()).collect();
    assert_eq!(names, ["simulated rank 2"]);
    assert_eq!(drawn(&one, names[0]), drawn(&all, names[0]));
    let refused = maestro(here.path(), ["show", pattern, "--rank", "4", "--format", "perfetto"]).refused();
    assert!(refused.contains("rank 4") && refused.contains("0 to 3"), "{refused}");
}

#[test]
fn what_has_no_timeline_says_why() {
    let here = folder();
    let untimed = "maestro: 1\nname: x\naxes: {dp: {size: 2}}\nblocks: {b: {barrier: {}}}\nlanes: {l: {}}\n\
                   schedule: [{run: b, on: dp}]\n";
    fs::write(here.path().join("x.yaml"), untimed).unwrap();
    let refused = maestro(here.path(), ["show", "x.yaml", "--format", "perfetto", "-o", "t"]).refused();
    assert!(refused.contains("x.yaml") && refused.contains("captured: 120us"), "{refused}");
    assert!(!here.path().join("t").exists());
    let file = path("fixtures/patterns/pipeline.yaml");
    let args = ["show", file.to_str().unwrap(), "--format", "perfetto", "-o", "no/such/folder"];
    let refused = maestro(here.path(), args).refused();
    assert!(refused.contains("no/such/folder"), "{refused}");
}

#[test]
fn tables_and_documents_go_to_files_too() {
    let here = folder();
    let file = path("fixtures/patterns/pipeline.yaml");
    maestro(here.path(), ["replay".as_ref(), file.as_os_str(), "--backend=dry".as_ref(), "-orun".as_ref()]).ok();
    for (args, to_file) in [(["report", "run", "--format", "md"], "r"), (["show", "run", "--format", "json"], "s")] {
        let printed = maestro(here.path(), args).ok();
        assert_eq!(maestro(here.path(), args.into_iter().chain(["-o", to_file])).ok(), "");
        assert_eq!(fs::read_to_string(here.path().join(to_file)).unwrap(), printed);
    }
    assert_eq!(
        maestro(here.path(), ["show", "run", "--json"]).ok(),
        fs::read_to_string(here.path().join("s")).unwrap()
    );
}
