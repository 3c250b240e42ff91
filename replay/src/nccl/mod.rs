//! The nccl back end: a GPU a rank, collectives by NCCL, products by cuBLASLt, timed by events on the device.
//!
//! Every library is found and loaded when it runs, so this is part of every build and says what is missing where
//! something is. A rank is a thread that issues to its GPU's streams; its peers are threads of this process (`run`), or
//! live in processes that a launcher started, one a GPU (`one`). Threads that hang inside a library cannot be ended: they
//! are left behind, with all that they hold, and the run fails without them.

mod buffers;
mod clock;
mod doctor;
mod ffi;
mod gate;
mod kernels;
mod libraries;
mod marks;
mod one;
mod party;
mod processes;
mod rank;
mod work;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use maestro_pattern::{CommSettings, Kernel, Measurement, Plan, Work};

pub use self::doctor::{Doctor, doctor};
pub use self::libraries::LIBRARIES;

use self::libraries::Libraries;
use self::party::Threads;
use self::rank::Rank;
use self::world::{Parts, World};
use crate::executor::{Record, Session};
use crate::host::{End, lacks_size, said};
use crate::{Backend, Compute, Error, Notice, Phase, Result, Settings, Spread, nominal_ns};

/// See the module.
pub struct Nccl;

const NAME: &str = "nccl";

/// The oldest NCCL that serves: it splits communicators.
const OLDEST: u32 = 21_800;

impl Backend for Nccl {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "a GPU a rank, collectives by NCCL on streams, compute by cuBLASLt and built-in kernels"
    }

    fn spread(&self) -> Option<&dyn Spread> {
        Some(self)
    }

    fn compute(&self) -> Compute {
        Compute::Work
    }

    fn probe(&self, plan: &Plan, settings: &Settings) -> Result<()> {
        runnable(plan, settings)?;
        let parts = parts()?;
        let (ranks, devices) = (plan.world.size() as usize, parts.devices.len());
        if ranks > devices {
            return Err(unusable(
                format!("the pattern has {ranks} ranks and this machine has {devices} {}", gpus(devices)),
                "give its axes smaller sizes (--axis dp=2), or run it by `--backend threads` or `--backend dry`",
            ));
        }
        for rank in 0..plan.world.size() {
            buffers::check(plan, settings, rank, parts.devices[rank as usize].memory)?;
        }
        Ok(())
    }

    fn memory(&self, plan: &Plan, settings: &Settings) -> u64 {
        let needed = (0..plan.world.size()).filter_map(|rank| buffers::needed(plan, settings, rank).ok());
        needed.fold(0, u64::saturating_add)
    }

    fn run(&self, plan: &Plan, settings: &Settings) -> Result<Vec<Measurement>> {
        self.probe(plan, settings)?;
        note_what_is_ignored(plan, settings);
        settings.notify.tell(Notice::Phase(Phase::Prepare));
        let ranks: Vec<u32> = (0..plan.world.size()).collect();
        let end = Arc::new(End::default());
        let party = Arc::new(Threads::new(&end, ranks.len()));
        let world = Arc::new(World::new(plan, settings, parts()?, party, end, &ranks));
        // Rank n on device n.
        let places: Vec<(u32, u32)> = ranks.iter().map(|rank| (*rank, *rank)).collect();
        let records = run_each(&world, &places)?;
        Ok(Session::new(plan, settings)?.measurements(records))
    }
}

/// Whether this machine has GPUs that the back end can use, so that it is the one to take by default.
pub fn has_gpus() -> bool {
    Libraries::find().devices().is_ok_and(|devices| !devices.is_empty())
}

/// What a rank's thread gives: its record, or why it has none.
type Answer = (u32, Result<Record>);

/// Brings the ranks of this process to life, each given with its device, and gives their records.
fn run_each(world: &Arc<World>, places: &[(u32, u32)]) -> Result<Vec<(u32, Record)>> {
    let (answer, answers) = channel::<Answer>();
    for (seat, (rank, device)) in places.iter().copied().enumerate() {
        let (world, answer, lead) = (world.clone(), answer.clone(), seat == 0);
        let life = move || live(&world, rank, device, lead, &answer);
        Builder::new().name(format!("rank {rank}")).spawn(life).map_err(|source| Error::Thread { rank, source })?;
    }
    drop(answer);
    watch(world, places.len(), &answers)
}

/// One rank, from its birth to its answer.
fn live(world: &Arc<World>, rank: u32, device: u32, lead: bool, answer: &Sender<Answer>) {
    let work = || {
        let mut endpoint = Rank::new(world, rank, device)?;
        perform(world, &mut endpoint, lead).map_err(|error| {
            // The others hear of it before the endpoint is dropped: that may wait for them.
            world.fail(error);
            Error::Ended
        })
    };
    let result = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Error::Panicked { rank, message: said(panic.as_ref()) }));
    // Whoever does not listen any more has given the world up.
    let _ = answer.send((rank, result));
}

/// Everything that a rank runs. Of the ranks of a process, one is the `lead`.
fn perform(world: &World, endpoint: &mut Rank, lead: bool) -> Result<Record> {
    let note = |text: String| {
        if lead {
            world.settings.notify.tell(Notice::Note(text));
        }
    };
    let session = Session::new(&world.plan, &world.settings)?;
    session.rehearse(endpoint)?;
    session.verify(endpoint, lead)?;
    if lead {
        let [one, two] = endpoint.cost_of_events()?.map(|ns| ns / 1e3);
        note(format!(
            "timing a block costs {one:.2} us on the device, {two:.2} us where its lane was idle (one event, two)"
        ));
    }
    endpoint.run_as_graphs(world.settings.graph);
    let record = session.measure(endpoint, lead)?;
    let (issue_ns, error) = endpoint.costs();
    let apart = 2 * error;
    note(format!(
        "issuing took the host {:.1} us a block; times of ranks agree within {:.1} us",
        issue_ns / 1e3,
        apart.as_secs_f64() * 1e6
    ));
    if lead {
        world.settings.notify.tell(Notice::ClockError(apart));
    }
    Ok(record)
}

/// Waits for the answers of all ranks. The first failure ends the world; the others then have a while to come home.
fn watch(world: &World, ranks: usize, answers: &Receiver<Answer>) -> Result<Vec<(u32, Record)>> {
    /// How often hosts that are inside a library are looked after.
    const LOOK: Duration = Duration::from_millis(100);
    /// How long ranks may take to notice the end.
    const GRACE: Duration = Duration::from_secs(5);
    let (mut records, mut answered) = (Vec::new(), 0);
    let mut ended: Option<Instant> = None;
    while answered < ranks && ended.is_none_or(|ended| ended.elapsed() < GRACE) {
        match answers.recv_timeout(LOOK) {
            Ok((rank, Ok(record))) => {
                answered += 1;
                records.push((rank, record));
            }
            Ok((_, Err(error))) => {
                answered += 1;
                world.fail(error);
            }
            // A rank that is inside a library hears nothing of other processes.
            Err(RecvTimeoutError::Timeout) => {
                if let Some(error) = world.overdue().or_else(|| world.party.check().err()) {
                    world.fail(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if ended.is_none() && world.end.check().is_err() {
            ended = Some(Instant::now());
        }
    }
    match world.end.take() {
        Some(error) => Err(error),
        None if records.len() < ranks => Err(Error::Ended),
        None => {
            records.sort_by_key(|(rank, _)| *rank);
            Ok(records)
        }
    }
}

fn unusable(what: String, help: impl Into<String>) -> Error {
    Error::Unusable { backend: NAME, what, help: help.into() }
}

fn gpus(count: usize) -> &'static str {
    if count == 1 { "GPU" } else { "GPUs" }
}

/// The libraries and devices, or what is missing.
fn parts() -> Result<Parts> {
    const HELP: &str = "`maestro doctor` lists what is there; without GPUs use `--backend threads`";
    let found = Libraries::find();
    let devices = found.devices().map_err(|what| unusable(what, HELP))?;
    if devices.is_empty() {
        return Err(unusable("this machine has no GPU".into(), HELP));
    }
    let cuda = found.cuda.map_err(|what| unusable(what, HELP))?.library;
    let nccl = found.nccl.map_err(|what| unusable(what, HELP))?.library;
    let version = nccl.version().map_err(|failure| unusable(failure.to_string(), HELP))?;
    if version < OLDEST {
        return Err(unusable(
            format!("NCCL {} is too old: communicators cannot be split", doctor::nccl_version(version)),
            "install NCCL 2.18 or newer, or name its folder in MAESTRO_LIBRARIES",
        ));
    }
    let (blas, nvrtc) = (found.blas.ok().map(|found| found.library), found.nvrtc.map(|found| found.library));
    Ok(Parts { cuda, nccl, blas, nvrtc, devices })
}

/// Refuses blocks that GPUs cannot run.
///
/// # Errors
/// The first such block and what would help.
fn runnable(plan: &Plan, settings: &Settings) -> Result<()> {
    for (block, _, _) in plan.uses() {
        let block = &plan.blocks[block as usize];
        let refuse = |what: String, help: &str| Err(unusable(format!("block `{}` {what}", block.name), help));
        let no_size = match &block.work {
            Work::Collective(one) => lacks_size(one),
            Work::Group(all) => all.iter().any(lacks_size),
            Work::P2p { .. } | Work::Compute(_) | Work::Cuda(_) => false,
        };
        if no_size {
            return refuse("has no size".into(), "write its size into the pattern, or simulate it with --backend dry");
        }
        match (&block.work, settings.compute) {
            (Work::Collective(_) | Work::P2p { .. } | Work::Group(_), _) => {}
            (Work::Compute(_) | Work::Cuda(_), Compute::Hold) => {
                if nominal_ns(block, 0, settings.pacing).is_none() {
                    return refuse(
                        "has no captured duration to hold its lane for".into(),
                        "`--compute work` runs its kernels; or give it a captured duration",
                    );
                }
            }
            (Work::Compute(kernels), Compute::Work) => {
                for kernel in kernels {
                    let Kernel::Gemm { dtype, .. } = kernel else { continue };
                    if ffi::blas::result_bytes(*dtype).is_none() {
                        return refuse(
                            format!("multiplies {}, which no matrix unit does", dtype.name()),
                            "take i8 or a float, or replay it with --compute hold",
                        );
                    }
                }
            }
            (Work::Cuda(own), Compute::Work) => {
                if !settings.sources.contains_key(&own.source) {
                    return refuse(format!("needs {}, which was not read", own.source), "put it beside the pattern");
                }
            }
        }
    }
    Ok(())
}

/// Tells what of the plan NCCL has no setting for, or a graph no place.
fn note_what_is_ignored(plan: &Plan, settings: &Settings) {
    let note = |text: String| settings.notify.tell(Notice::Note(text));
    let ignored = |has: fn(&CommSettings) -> bool, what: &str, instead: &str| {
        if plan.communicators.iter().any(|communicator| has(&communicator.settings)) {
            note(format!("NCCL has no {what} for one communicator: the pattern's is ignored; {instead}"));
        }
    };
    ignored(|s| s.algorithm.is_some(), "algorithm", "NCCL_ALGO sets it for all");
    ignored(|s| s.protocol.is_some(), "protocol", "NCCL_PROTO sets it for all");
    ignored(|s| s.nvls.is_some(), "switch for NVLS", "NCCL_NVLS_ENABLE sets it for all");
    if settings.graph {
        note("each turn ran as a CUDA graph: host time and host waits are left out".into());
    }
}
