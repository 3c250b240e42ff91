//! Synthesis on captures made by hand, each with one thing about it that is easy to get wrong.

use std::sync::Arc;

use maestro_importers::Notes;
use maestro_importers::capture::{
    Activity, ActivityKind, Annotation, CallKind, Capture, CommFacts, CommOp, HostCall, StepMark, Timeline,
};
use maestro_importers::synthesis::{HostTime, Import, Options, synthesise};
use maestro_pattern::{AxisShape, CollectiveKind, Dtype, Instruction, Plan, Selector, Step};

const COMPUTE: i64 = 7;
const COMM: i64 = 20;

/// A rank in the making: launches at given times, each kernel beginning when its launch ends.
struct Maker(Timeline);

impl Maker {
    fn rank(rank: u32, world: u32) -> Self {
        Self(Timeline { rank: Some(rank), world_size: Some(world), ..Timeline::default() })
    }

    /// A kernel of `duration_ns`, launched at `at_ns` by a call of 1 us.
    fn kernel(&mut self, name: &str, stream: i64, at_ns: i64, duration_ns: i64, comm: Option<CommFacts>) {
        let correlation = Some(self.0.calls.len() as u64 + 1);
        let call = HostCall { kind: CallKind::Launch, thread: 1, start_ns: at_ns, end_ns: at_ns + 1_000, correlation };
        self.0.calls.push(call);
        self.0.activities.push(Activity {
            kind: ActivityKind::Kernel { blocks: 8 },
            name: name.into(),
            start_ns: at_ns + 1_000,
            duration_ns,
            stream,
            correlation,
            external_id: None,
            comm: comm.map(Box::new),
        });
    }

    fn gemm(&mut self, at_ns: i64, duration_ns: i64) {
        self.kernel("gemm", COMPUTE, at_ns, duration_ns, None);
    }

    fn call(&mut self, at_ns: i64, duration_ns: i64, facts: CommFacts) {
        self.kernel("ncclDevKernel_x", COMM, at_ns, duration_ns, Some(facts));
    }

    /// A graph launched at `at_ns`, of kernels as (stream, start, duration, communication).
    fn graph(&mut self, id: u64, at_ns: i64, kernels: Vec<(i64, i64, i64, Option<CommFacts>)>) {
        let launch = self.0.calls.len() as u64 + 1;
        for (stream, start_ns, duration_ns, comm) in kernels {
            let name = if comm.is_some() { "ncclDevKernel_x" } else { "gemm" };
            self.kernel(name, stream, at_ns, duration_ns, comm);
            self.0.calls.truncate(launch as usize);
            if let Some(activity) = self.0.activities.last_mut() {
                (activity.start_ns, activity.correlation) = (start_ns, Some(launch));
            }
        }
        self.0.graphs.insert(launch, id);
    }

    fn mark(&mut self, name: &str, start_ns: i64, end_ns: i64) {
        self.0.steps.push(StepMark { name: name.into(), thread: 1, start_ns, end_ns });
    }
}

fn facts(op: CommOp, ranks: &[u32]) -> CommFacts {
    CommFacts {
        dtype: Some(Dtype::F32),
        in_elements: 1_000,
        out_elements: 1_000,
        group_size: Some(ranks.len() as u32),
        ranks: Some(ranks.to_vec()),
        group_name: Some("0".into()),
        group_desc: Some("data_parallel".into()),
        ..CommFacts::new(op, "x".into())
    }
}

fn all_reduce(ranks: &[u32]) -> CommFacts {
    facts(CommOp::Collective(CollectiveKind::AllReduce), ranks)
}

fn import(ranks: Vec<Maker>) -> (Import, Notes) {
    let timelines = ranks.into_iter().map(|maker| maker.0).collect();
    let mut notes = Notes::default();
    let capture = Capture { format: "test", files: Vec::new(), timelines };
    let import = synthesise(&capture, &Options::default(), &mut notes).expect("a pattern");
    let text = import.pattern.to_yaml();
    assert_eq!(maestro_pattern::Pattern::from_yaml(&text).as_ref(), Ok(&import.pattern), "{text}");
    (import, notes)
}

fn assumed(import: &Import, words: &str) -> bool {
    import.pattern.assumed.iter().any(|assumption| assumption.what.contains(words))
}

#[test]
fn calls_match_by_their_sequence_number_when_one_is_lost() {
    let make = |rank: u32, late_ns: i64| {
        let mut maker = Maker::rank(rank, 2);
        for n in 0..10 {
            if (rank, n) != (1, 3) {
                let at = i64::from(n) * 100_000 + late_ns;
                // Whoever comes late ends with the other all the same.
                maker.call(at, 20_000 - late_ns, CommFacts { seq: Some(n as u64), ..all_reduce(&[0, 1]) });
            }
        }
        maker
    };
    let (import, notes) = import(vec![make(0, 0), make(1, 5_000)]);
    let waits: Vec<(u32, Option<u64>, Option<u64>)> =
        import.measurements.iter().map(|m| (m.rank, m.wait_ns, m.transfer_ns)).collect();
    let expected = |rank| if rank == 0 { (0, Some(5_000), Some(15_000)) } else { (1, Some(0), Some(15_000)) };
    assert_eq!(waits.iter().filter(|w| **w == expected(0)).count(), 9, "{waits:?}");
    assert_eq!(waits.iter().filter(|w| **w == expected(1)).count(), 9, "{waits:?}");
    assert_eq!(waits.iter().filter(|w| w.1.is_none()).count(), 1, "the one whose partner is lost");
    assert!(notes.iter().any(|(kind, note)| kind.contains("without all their ranks") && note.count == 1));
}

#[test]
fn what_nothing_names_has_no_size() {
    let mut maker = Maker::rank(0, 1);
    maker.call(0, 10_000, facts(CommOp::Other, &[0]));
    maker.call(50_000, 10_000, facts(CommOp::Send { to: None }, &[0]));
    let (import, notes) = import(vec![maker]);
    for row in &import.collectives {
        assert_eq!((row.op.as_str(), row.size, row.inferred), ("unknown", None, false), "{row:?}");
    }
    assert!(assumed(&import, "2 communication kernels have no known size"));
    assert!(notes.iter().any(|(kind, _)| kind.contains("peer is not known")));
}

#[test]
fn a_group_that_is_not_recorded_is_stated() {
    let nameless = |ranks: &[u32]| CommFacts { ranks: None, group_size: None, ..all_reduce(ranks) };
    let make = |rank| {
        let mut maker = Maker::rank(rank, 2);
        maker.call(0, 10_000, nameless(&[0, 1]));
        maker
    };
    let (import, notes) = import(vec![make(0), make(1)]);
    assert!(import.collectives.iter().all(|row| row.inferred && row.ranks == [0, 1]));
    assert!(notes.iter().any(|(kind, note)| kind.contains("without a group") && note.count == 2));
}

#[test]
fn a_rank_that_does_one_thing_more_has_a_role_of_its_own() {
    // A 2 x 2 grid in which rank 0 alone launches a kernel more: no coordinate of one axis tells it apart.
    let make = |rank: u32| {
        let mut maker = Maker::rank(rank, 4);
        let (dp, tp) = ([rank % 2, rank % 2 + 2], [rank / 2 * 2, rank / 2 * 2 + 1]);
        let tensor =
            CommFacts { group_name: Some("1".into()), group_desc: Some("tensor_parallel".into()), ..all_reduce(&tp) };
        maker.call(0, 10_000, all_reduce(&dp));
        maker.call(50_000, 10_000, tensor);
        if rank == 0 {
            maker.gemm(100_000, 5_000);
        }
        maker
    };
    let (import, _) = import((0..4).map(make).collect());
    let plan = Plan::new(&import.pattern, &[]).expect("it runs");
    assert_eq!(plan.world.size(), 4);
    assert_eq!(plan.program_of.iter().filter(|p| **p == plan.program_of[0]).count(), 1);
    assert_eq!(plan.program_of[1], plan.program_of[3]);
    assert!(import.pattern.axes.iter().any(|axis| axis.shape == AxisShape::Teams(vec![vec![0, 1, 2, 3]])));
}

#[test]
fn ranks_that_were_not_captured_do_as_the_others() {
    let make = |rank: u32| {
        let mut maker = Maker::rank(rank, 4);
        maker.gemm(0, if rank == 0 { 1_000 } else { 2_000 });
        if rank == 0 {
            maker.kernel("log", COMPUTE, 100_000, 1_000, None);
        }
        maker
    };
    let (import, _) = import(vec![make(0), make(1), make(2)]);
    let plan = Plan::new(&import.pattern, &[]).expect("it runs");
    assert_eq!(plan.program_of[3], plan.program_of[1]);
    assert!(assumed(&import, "1 of 4 ranks were not captured"));
}

#[test]
fn host_time_in_loops_is_not_lost_however_short() {
    let mut maker = Maker::rank(0, 1);
    for n in 0..200 {
        let facts = CommFacts { in_elements: 1_000 * (1 + n as u64 % 2), ..all_reduce(&[0]) };
        maker.call(n * 900, 100, facts);
    }
    let (import, _) = import(vec![maker]);
    let plan = Plan::new(&import.pattern, &[]).expect("it runs");
    let host = |i: &Instruction| if let Instruction::Host(ns) = i { *ns } else { 0 };
    let total: u64 = plan.program(0).instructions.iter().map(host).sum();
    let captured = 199 * 900;
    assert!(total.abs_diff(captured) * 50 < captured, "{total} of {captured} ns\n{}", import.pattern.to_yaml());
    assert!(import.pattern.schedule.iter().any(|item| matches!(item.step, Step::Repeat { .. })));
}

#[test]
fn splits_that_are_not_all_known_are_stated() {
    let mut maker = Maker::rank(0, 2);
    let op = CommOp::Collective(CollectiveKind::AllToAll);
    maker.call(0, 10_000, CommFacts { in_splits: vec![700, 300], ..facts(op, &[0, 1]) });
    let (import, _) = import(vec![maker]);
    assert!(assumed(&import, "splits of 1 uneven all-to-alls taken as even"), "{:?}", import.pattern.assumed);
}

#[test]
fn two_marks_of_one_name_are_two_steps() {
    let mut maker = Maker::rank(0, 1);
    maker.mark("ProfilerStep#1", 0, 40_000);
    maker.mark("ProfilerStep#1", 50_000, 90_000);
    maker.gemm(1_000, 5_000);
    maker.gemm(51_000, 5_000);
    maker.gemm(60_000, 5_000);
    let (import, _) = import(vec![maker]);
    let steps: Vec<(&str, usize)> = import.steps.iter().map(|step| (&*step.name, step.activities)).collect();
    assert_eq!(steps, [("ProfilerStep#1", 1), ("ProfilerStep#1 (2)", 2)]);
    let rows = &import.conservation;
    assert_eq!(rows.iter().map(|row| row.kept.0 + row.fused.0).sum::<usize>(), 2);
    assert_eq!(rows.iter().map(|row| row.dropped.0).sum::<usize>(), 0);
}

#[test]
fn numbered_names_do_not_collide_with_annotations() {
    let mut maker = Maker::rank(0, 1);
    let around = |name: &str, start_ns: i64| Annotation {
        name: Arc::from(name),
        thread: 1,
        start_ns,
        end_ns: start_ns + 10_000,
    };
    maker.gemm(0, 100);
    maker.kernel("other", COMPUTE + 1, 20_000, 100, None);
    maker.gemm(40_000, 100);
    maker.0.annotations.push(around("forward 1", 39_000));
    let (import, _) = import(vec![maker]);
    let names: Vec<&str> = import.pattern.blocks.iter().map(|block| block.name.as_str()).collect();
    assert_eq!(names, ["forward_2", "forward_3", "forward_1"]);
}

/// The schedule as (block or motif, what it waits for), host time apart.
fn runs(items: &[maestro_pattern::Item]) -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    for item in items {
        match &item.step {
            Step::Run { block, after, .. } => {
                all.push((block.clone(), after.iter().map(|reference| reference.label.clone()).collect()));
            }
            Step::Repeat { body: maestro_pattern::Body::Motif(name), .. } => all.push((name.clone(), Vec::new())),
            Step::Repeat { body: maestro_pattern::Body::Inline(items), .. } => all.extend(runs(items)),
            Step::Host(_) | Step::Wait(_) => {}
        }
    }
    all
}

#[test]
fn the_launch_of_a_graph_is_a_motif_whose_parts_wait_as_the_times_say() {
    let mut maker = Maker::rank(0, 1);
    for n in 0..2 {
        let at = n * 1_000_000;
        // The all-reduce begins when the first product ends, the last product when the all-reduce does.
        maker.graph(
            5,
            at,
            vec![
                (COMPUTE, at + 5_000, 100_000, None),
                (COMM, at + 106_000, 200_000, Some(all_reduce(&[0]))),
                (COMPUTE, at + 307_000, 100_000, None),
            ],
        );
    }
    let (import, _) = import(vec![maker]);
    assert_eq!(import.pattern.motifs.iter().map(|motif| motif.name.as_str()).collect::<Vec<_>>(), ["graph_5"]);
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let [first, second, third] = &runs(&import.pattern.motifs[0].items)[..] else { panic!("three parts") };
    assert_eq!((&first.1, &second.1, &third.1), (&names(&[]), &names(&["forward"]), &names(&["all_reduce"])));
    assert_eq!(
        runs(&import.pattern.schedule),
        [("graph_5".to_owned(), Vec::new()), ("graph_5".to_owned(), Vec::new())]
    );
}

#[test]
fn without_recorded_calls_communication_waits_for_the_stream_it_was_called_from() {
    let mut maker = Maker::rank(0, 1);
    maker.gemm(0, 400_000);
    maker.call(20_000, 100_000, all_reduce(&[0]));
    if let Some(comm) = maker.0.activities.last_mut() {
        comm.start_ns = 402_000;
    }
    // Launched early, held back until the all-reduce had ended.
    maker.gemm(40_000, 50_000);
    if let Some(last) = maker.0.activities.last_mut() {
        last.start_ns = 503_000;
    }
    let (import, _) = import(vec![maker]);
    let waits: Vec<Vec<String>> = runs(&import.pattern.schedule).into_iter().map(|(_, after)| after).collect();
    assert_eq!(waits, [vec![], vec!["forward".to_owned()], vec!["all_reduce".to_owned()]]);
}

#[test]
fn a_pause_of_one_rank_stands_where_it_was() {
    let make = |rank: u32, pause_ns: i64| {
        let mut maker = Maker::rank(rank, 2);
        for n in 0..6 {
            let at = n * 100_000 + if n > 3 { pause_ns } else { 0 };
            let end = n * 100_000 + if n > 3 { 5_000_000 } else { 0 } + 20_000;
            maker.call(at, end - at, all_reduce(&[0, 1]));
        }
        maker
    };
    let (import, _) = import(vec![make(0, 0), make(1, 5_000_000)]);
    let pauses: Vec<_> = import
        .pattern
        .schedule
        .iter()
        .filter_map(|item| match item.step {
            Step::Host(ns) if !item.when.0.is_empty() => Some((item.when.0[0].1.clone(), ns)),
            _ => None,
        })
        .collect();
    let [(Selector::These(ranks), ns)] = &pauses[..] else { panic!("{pauses:?}") };
    assert_eq!(ranks, &[1]);
    assert!((4_900_000..=5_100_000).contains(ns), "{ns}");
    assert!(
        import.pattern.host_skew.iter().all(|factor| (factor - 1.0).abs() < 0.02),
        "{:?}",
        import.pattern.host_skew
    );
}

#[test]
fn less_of_the_hosts_time_is_kept_if_asked_for() {
    let step = |host: HostTime| {
        let mut maker = Maker::rank(0, 1);
        maker.mark("ProfilerStep#1", 0, 10_000_000);
        for n in 0..4 {
            maker.gemm(n * 1_000_000, 200_000);
            maker.call(n * 1_000_000 + 500_000, 100_000, all_reduce(&[0]));
        }
        let capture = Capture { format: "test", files: Vec::new(), timelines: vec![maker.0] };
        let options = Options { host, ..Options::default() };
        let import = synthesise(&capture, &options, &mut Notes::default()).unwrap();
        let host_ns = |i: &Instruction| if let Instruction::Host(ns) = i { *ns } else { 0 };
        import.plan.unwrap().program(0).instructions.iter().map(host_ns).sum::<u64>()
    };
    let captured = step(HostTime::Captured);
    assert_eq!(captured, 3_500_000);
    assert_eq!(step(HostTime::Scaled(0.4)), 1_400_000);
    assert_eq!(step(HostTime::Scaled(0.0)), 0);
}

#[test]
fn ranks_that_communicate_with_none_are_there_all_the_same() {
    let make = |rank: u32, team: Option<&[u32]>| {
        let mut maker = Maker::rank(rank, 3);
        maker.gemm(0, 20_000);
        if let Some(team) = team {
            maker.call(10_000, 30_000, all_reduce(team));
        }
        maker
    };
    let (import, _) = import(vec![make(0, Some(&[0, 1])), make(1, Some(&[0, 1])), make(2, None)]);
    let plan = import.plan.unwrap();
    assert_eq!(plan.world.size(), 3);
    let issues =
        |rank| plan.program(rank).instructions.iter().filter(|i| matches!(i, Instruction::Issue { .. })).count();
    assert_eq!([issues(0), issues(1), issues(2)], [2, 2, 1]);
}
