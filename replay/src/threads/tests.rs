//! Structure of what threads does: order, overlap, data, and how a world ends. No times are asserted, only order.

use std::time::Duration;

use maestro_pattern::{Instruction, Measurement, Pattern, Plan, Program, State};

use super::{Threads, run_each};
use crate::executor::Session;
use crate::{Backend, Compute, Endpoint, Error, Issue, Notice, Observer, Result, Settings, Span, host};

fn plan(text: &str) -> Plan {
    let pattern = Pattern::from_yaml(&format!("maestro: 1\nname: test\n{text}")).unwrap();
    Plan::new(&pattern, &[]).unwrap()
}

fn settings() -> Settings {
    Settings { warmup: 0, iterations: 2, rounds: 2, ..Settings::default() }
}

fn step(rows: &[Measurement], rank: u32) -> Vec<&Measurement> {
    let of_step =
        |row: &&Measurement| row.state == State::Overlapped && row.rank == rank && row.round == 1 && row.iteration == 1;
    rows.iter().filter(of_step).collect()
}

const LAYERS: &str = "
axes: {dp: {size: 2}}
blocks:
  gather: {all_gather: {size: 64KiB, dtype: bf16}}
  scatter: {reduce_scatter: {size: 64KiB, dtype: f32}}
  work: {compute: [{hold: 2ms}]}
lanes: {compute: {}, comm: {}}
schedule:
  - repeat: 3
    do:
      - {run: gather, on: dp, lane: comm}
      - {host: 100us}
      - {run: work, lane: compute, after: [gather]}
      - {run: scatter, on: dp, lane: comm, after: ['work[-1]']}
  - {wait: work}
  - {host: 1ms}
  - {run: work, lane: comm, as: tail}
";

#[test]
fn lanes_are_ordered_and_dependencies_kept() {
    let rows = Threads.run(&plan(LAYERS), &settings()).unwrap();
    // Two rounds, two iterations, two ranks; of the step ten executions, alone the two uses that communicate.
    assert_eq!(rows.len(), 2 * 2 * 2 * (10 + 2));
    for rank in 0..2 {
        let step = step(&rows, rank);
        for lane in ["compute", "comm"] {
            let on_lane: Vec<_> = step.iter().filter(|row| &*row.lane == lane).collect();
            assert!(on_lane.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns), "{on_lane:?}");
        }
        let of = |block: &str| step.iter().filter(|row| &*row.block == block).copied().collect::<Vec<_>>();
        let (gathers, works, scatters) = (of("gather"), of("work"), of("scatter"));
        for i in 0..3 {
            assert!(gathers[i].end_ns <= works[i].start_ns);
            assert!(i == 0 || works[i - 1].end_ns <= scatters[i].start_ns);
        }
        // The host waited for the last layer's work, then spent a millisecond.
        assert!(works[2].end_ns + 1_000_000 <= works[3].start_ns);
        assert!(gathers.iter().all(|row| row.wait_ns.is_some() && row.transfer_ns.is_some()));
    }
}

#[test]
fn two_lanes_run_at_once() {
    let plan = plan(
        "axes: {dp: {size: 1}}\nblocks: {hold: {compute: [{hold: 50ms}]}}\nlanes: {x: {}, y: {}}\n\
         schedule: [{run: hold, lane: x}, {run: hold, lane: y, as: other}]",
    );
    let rows = Threads.run(&plan, &Settings { alone: false, ..settings() }).unwrap();
    let step = step(&rows, 0);
    assert!(step[0].start_ns < step[1].end_ns && step[1].start_ns < step[0].end_ns, "{step:?}");
}

#[test]
fn compute_can_do_real_work() {
    let plan = plan(
        "axes: {dp: {size: 2}}
blocks:
  work: {compute: [{gemm: {m: 8, n: 16, k: 4, dtype: bf16}, times: 2}, {memory: 64KiB}, {hold: 10us}, {set: 1KiB}]}
lanes: {x: {}}
schedule: [{run: work}]",
    );
    let held = Threads.run(&plan, &settings()).unwrap_err().to_string();
    assert!(held.contains("block `work`") && held.contains("--compute work"), "{held}");
    let working = Settings { compute: Compute::Work, ..settings() };
    assert!(Threads.memory(&plan, &working) >= 64 << 10);
    assert_eq!(Threads.run(&plan, &working).unwrap().len(), 2 * 2 * 2 * 2);
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let unknown = plan(
        "axes: {dp: {size: 2}}\nblocks: {g: {all_gather: {size: unknown, dtype: u8}}}\nlanes: {x: {}}\n\
         schedule: [{run: g, on: dp}]",
    );
    let error = Threads.run(&unknown, &settings()).unwrap_err().to_string();
    assert!(error.contains("block `g` has no size"), "{error}");
    let error = host::check_memory(&plan(LAYERS), &settings(), &[0, 1], Some(1 << 10)).unwrap_err().to_string();
    assert!(error.contains("`scatter`") && error.contains("`comm`"), "{error}");
    assert!(host::check_memory(&plan(LAYERS), &settings(), &[0, 1], Some(1 << 20)).is_ok());
}

/// An endpoint that does to another what a broken back end would.
struct Broken<'e, F> {
    inner: &'e mut dyn Endpoint,
    fault: F,
}

/// Where a fault can sit.
trait Fault {
    fn issue(&mut self, _: Issue<'_>) {}
    fn input(&mut self, _: &mut [u8]) {}
    fn output(&mut self, _: &mut [u8]) {}
}

impl<F: Fault> Endpoint for Broken<'_, F> {
    fn rank(&self) -> u32 {
        self.inner.rank()
    }
    fn prepare(&mut self, program: &Program, state: State) -> Result<()> {
        self.inner.prepare(program, state)
    }
    fn barrier(&mut self) -> Result<()> {
        self.inner.barrier()
    }
    fn issue(&mut self, issue: Issue<'_>) -> Result<()> {
        self.fault.issue(issue);
        self.inner.issue(issue)
    }
    fn wait(&mut self, index: u32) -> Result<()> {
        self.inner.wait(index)
    }
    fn host(&mut self, ns: u64) -> Result<()> {
        self.inner.host(ns)
    }
    fn drain(&mut self) -> Result<Vec<Span>> {
        self.inner.drain()
    }
    fn load(&mut self, index: u32, fill: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.inner.load(index, &mut |input| {
            fill(input);
            self.fault.input(input);
        })
    }
    fn inspect(&mut self, index: u32, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.inner.inspect(index, &mut |output| {
            let mut output = output.to_vec();
            self.fault.output(&mut output);
            look(&output);
        })
    }
}

/// Runs `plan` with a fault on one rank; gives the error that it ends with.
fn broken(plan: &Plan, rank: u32, fault: impl Fn() -> Box<dyn Fault> + Sync) -> Error {
    let settings = settings();
    let session = Session::new(plan, &settings).unwrap();
    let body = |endpoint: &mut dyn Endpoint| {
        if endpoint.rank() == rank {
            session.perform(&mut Broken { inner: endpoint, fault: fault() }, false)
        } else {
            session.perform(endpoint, false)
        }
    };
    run_each(plan, &settings, &body).unwrap_err()
}

impl Fault for Box<dyn Fault> {
    fn issue(&mut self, issue: Issue<'_>) {
        (**self).issue(issue);
    }
    fn input(&mut self, input: &mut [u8]) {
        (**self).input(input);
    }
    fn output(&mut self, output: &mut [u8]) {
        (**self).output(output);
    }
}

#[test]
fn one_wrong_bit_is_caught_and_named() {
    struct Flip;
    impl Fault for Flip {
        fn output(&mut self, output: &mut [u8]) {
            output[4 * 1001 + 2] ^= 0x10;
        }
    }
    match broken(&plan(LAYERS), 1, || Box::new(Flip)) {
        Error::Mismatch { rank: 1, block, element: 2003, .. } => assert_eq!(block, "gather"),
        other => panic!("{other}"),
    }
}

#[test]
fn an_input_that_never_arrives_is_caught_by_the_others() {
    struct Zero;
    impl Fault for Zero {
        fn input(&mut self, input: &mut [u8]) {
            input.fill(0);
        }
    }
    assert!(matches!(broken(&plan(LAYERS), 1, || Box::new(Zero)), Error::Mismatch { .. }));
}

#[test]
fn a_panic_ends_all_ranks_and_names_its_own() {
    struct Panic;
    impl Fault for Panic {
        fn issue(&mut self, issue: Issue<'_>) {
            assert_ne!(issue.index, 4, "this panic is part of a test");
        }
    }
    match broken(&plan(LAYERS), 1, || Box::new(Panic)) {
        Error::Panicked { rank: 1, message } => assert!(message.contains("part of a test"), "{message}"),
        other => panic!("{other}"),
    }
}

/// `text`, but with only the first `keep` instructions for `rank`.
fn silenced(text: &str, rank: usize, keep: usize) -> Plan {
    let mut plan = plan(text);
    let instructions: Vec<Instruction> = plan.programs[plan.program_of[rank] as usize].instructions[..keep].to_vec();
    plan.program_of[rank] = plan.programs.len() as u32;
    plan.programs.push(Program { instructions });
    plan
}

fn hang(plan: &Plan) -> (u32, String, String, Vec<u32>) {
    let settings = Settings { watchdog: Duration::from_millis(100), verify: false, alone: false, ..settings() };
    match Threads.run(plan, &settings) {
        Err(Error::Hang { rank, block, lane, peers, .. }) => (rank, block, lane, peers),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_collective_that_a_rank_never_joins_is_named() {
    let plan = silenced(LAYERS, 1, 0);
    assert_eq!(hang(&plan), (0, "gather".into(), "comm".into(), vec![1]));
}

#[test]
fn a_message_that_nobody_takes_is_named() {
    let text = "
axes: {pp: {size: 2}}
blocks: {shift: {p2p: [{send: {to: 1, size: 8B, dtype: u8}}, {recv: {from: -1, size: 8B, dtype: u8}}]}}
lanes: {x: {}}
schedule: [{run: shift, on: pp}]
";
    assert_eq!(hang(&silenced(text, 1, 0)), (0, "shift".into(), "x".into(), vec![1]));
    assert_eq!(hang(&silenced(text, 0, 0)), (1, "shift".into(), "x".into(), vec![0]));
}

/// Rank 0 takes from rank 2 and rank 1 in one block. Rank 1 gives first and only then feeds rank 2, so rank 0 must not
/// insist on the order in which its block lists the two.
#[test]
fn a_late_message_holds_up_no_other() {
    let plan = plan(
        "
axes: {pp: {size: 3}}
blocks:
  take_both:
    p2p: [{recv: {from: 2, size: 8B, dtype: u8}}, {recv: {from: 1, size: 8B, dtype: u8}}]
  give: {p2p: [{send: {to: -1, size: 8B, dtype: u8}}]}
  feed: {p2p: [{send: {to: 1, size: 8B, dtype: u8}}]}
  eat: {p2p: [{recv: {from: -1, size: 8B, dtype: u8}}]}
  give_far: {p2p: [{send: {to: -2, size: 8B, dtype: u8}}]}
lanes: {x: {}}
schedule:
  - {run: take_both, on: pp, when: {pp: 0}}
  - {run: give, on: pp, when: {pp: 1}}
  - {run: feed, on: pp, when: {pp: 1}}
  - {run: eat, on: pp, when: {pp: 2}}
  - {run: give_far, on: pp, when: {pp: 2}}
",
    );
    let rows = Threads.run(&plan, &settings()).unwrap();
    assert_eq!(step(&rows, 0).len(), 1);
}

#[test]
fn a_run_tells_what_it_does() {
    let (tell, told) = std::sync::mpsc::channel();
    let notify = Observer::new(move |notice| tell.send(notice).unwrap_or(()));
    Threads.run(&plan(LAYERS), &Settings { notify, ..settings() }).unwrap();
    let told: Vec<Notice> = told.try_iter().collect();
    assert!(told.iter().any(|notice| matches!(notice, Notice::Verified { rank: 1, executions: 2, .. })), "{told:?}");
    // Three turns (the step and the two uses that communicate) of two rounds and two iterations.
    assert_eq!(told.last(), Some(&Notice::Progress { done: 12, total: 12 }));
}
