//! The built program under mpirun: an imported capture on two ranks, and ranks that die or hang.
//!
//! `scripts/test-mpi` runs these; conformance, which needs no program, is `replay/tests/mpi.rs`. `MPIRUN` names another
//! mpirun than the first on the path.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Both ranks exchange with each other all the time, and so wait for each other soon whenever one stops.
const EXCHANGING: &str = "maestro: 1
name: exchanging
axes: {pp: {size: 2}}
blocks: {shift: {p2p: [{send: {to: 1, size: 1MiB, dtype: f32}}, {recv: {from: -1, size: 1MiB, dtype: f32}}], wrap: true}}
lanes: {ring: {}}
schedule: [{repeat: 100, do: [{run: shift, on: pp, lane: ring}]}]
";

/// Rank 1 comes to the collective an hour after the others.
const LATE: &str = "maestro: 1
name: late
axes: {dp: {size: 3}}
blocks:
  nap: {compute: [{hold: 3600s}]}
  gather: {all_gather: {size: 3KiB, dtype: f32}}
lanes: {comm: {}}
schedule: [{run: nap, lane: comm, when: {dp: 1}}, {run: gather, on: dp, lane: comm}]
";

fn launcher() -> String {
    std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".into())
}

/// Whether mpirun is MPICH's. It kills all ranks at once when one is gone, so that none can say which.
fn kills_at_once() -> bool {
    let version = Command::new(launcher()).arg("--version").output().expect("mpirun is on the path").stdout;
    String::from_utf8_lossy(&version).contains("HYDRA")
}

/// mpirun with so many ranks, which each run `program` with `args` in `folder`.
fn mpirun(folder: &Path, ranks: u32, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(launcher());
    command.arg("-np").arg(ranks.to_string()).arg(program).args(args).current_dir(folder);
    // Open MPI's, which others pass over: more ranks than cores, and root, as in containers.
    let variables = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"];
    command.envs(variables.map(|name| (name, "1"))).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn maestro() -> &'static str {
    env!("CARGO_BIN_EXE_maestro")
}

/// A job whose ranks leave their process ids in its folder.
struct Job {
    folder: tempfile::TempDir,
    /// Until its end is waited for.
    mpirun: Option<Child>,
}

impl Job {
    /// Replays `pattern` for longer than any test lasts.
    fn start(pattern: &str, ranks: u32, options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("pattern.yaml"), pattern).unwrap();
        // The rank stands in the variables of Open MPI or of PMI.
        let script = format!(
            "echo $$ > pid-${{OMPI_COMM_WORLD_RANK-$PMI_RANK}}; exec {} replay pattern.yaml --backend mpi -o run \
             --iterations 1000000 --no-alone {options}",
            maestro()
        );
        let mpirun = mpirun(folder.path(), ranks, "sh", &["-c", &script]).spawn().expect("mpirun is on the path");
        Self { folder, mpirun: Some(mpirun) }
    }

    /// The process of a rank, once it has begun to run the program.
    fn process(&self, rank: u32) -> u32 {
        let file = self.folder.path().join(format!("pid-{rank}"));
        let read = || fs::read_to_string(&file).ok()?.trim().parse().ok();
        eventually(&format!("rank {rank} starts"), read)
    }

    /// Waits until `rank` has spent half a second of processor time on `lane`, where it does nothing but exchange: so it
    /// is in a block, and if it waits for somebody, it waits now.
    fn exchanges(&self, rank: u32, lane: &str) {
        let process = self.process(rank);
        let ticks = || {
            let name = format!("rank {rank} {lane}");
            let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
            let lane = tasks
                .flatten()
                .map(|task| task.path())
                .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name))?;
            let stat = fs::read_to_string(lane.join("stat")).ok()?;
            // User and system time stand 12th and 13th behind the name's parenthesis.
            let (_, fields) = stat.rsplit_once(')')?;
            let times: Vec<u64> = fields.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
            Some(times.iter().sum::<u64>()).filter(|ticks| *ticks >= 50)
        };
        eventually(&format!("rank {rank} exchanges"), ticks);
    }

    /// Sends a signal to the process of a rank.
    fn signal(&self, rank: u32, signal: &str) {
        let sent = Command::new("kill").arg(signal).arg(self.process(rank).to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// The end of the job: mpirun's code, and what all said. No run may be left.
    fn end(mut self) -> (Option<i32>, String) {
        eventually("the job ends", || self.mpirun.as_mut().and_then(|mpirun| mpirun.try_wait().unwrap()));
        let folder = self.folder.path().join("run");
        assert!(!folder.join("run.json").exists(), "a run that failed looks whole");
        let Output { status, stdout, stderr } = self.mpirun.take().unwrap().wait_with_output().unwrap();
        (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
    }
}

impl Drop for Job {
    /// Leaves nothing behind of a test that failed: mpirun and the ranks, which may be stopped.
    fn drop(&mut self) {
        let Some(mut mpirun) = self.mpirun.take() else { return };
        for file in fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            let is_id = file.file_name().to_string_lossy().starts_with("pid-");
            if let Some(id) = is_id.then(|| fs::read_to_string(file.path()).ok()).flatten() {
                // It may be gone already.
                let _ = Command::new("kill").args(["-KILL", id.trim()]).stderr(Stdio::null()).status();
            }
        }
        let _ = mpirun.kill();
        let _ = mpirun.wait();
    }
}

/// What comes to be, sooner or later: nothing here tells a test when, so it looks again and again.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn fixture(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(below)
}

#[test]
fn an_imported_capture_is_replayed_on_two_ranks() {
    let here = tempfile::tempdir().unwrap();
    // The very text that importing the capture gives, as the tests of imports hold it.
    let pattern = fixture("goldens/import/fsdp.yaml");
    let options = "--backend mpi -o run --warmup 0 --iterations 1 --rounds 1 --no-alone --watchdog 120";
    let args: Vec<&str> = ["replay", pattern.to_str().unwrap()].into_iter().chain(options.split(' ')).collect();
    let output = mpirun(here.path(), 2, maestro(), &args).output().expect("mpirun is on the path");
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}");
    assert!(told.contains("their clocks, and so starts on different ranks, agree within"), "{told}");
    for part in ["part-0.parquet", "part-1.parquet", "pattern.yaml"] {
        assert!(here.path().join("run").join(part).is_file(), "{part}");
    }
    let info: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(here.path().join("run/run.json")).unwrap()).unwrap();
    assert_eq!(info["backend"], "mpi");
    assert!(info["clock_error_ns"].as_u64().is_some_and(|ns| ns > 0), "{info}");
    let report = Command::new(maestro()).args(["report", "run"]).current_dir(here.path()).output().unwrap();
    let report = String::from_utf8(report.stdout).unwrap();
    assert!(report.contains("reduce_scatter_192M") && report.contains("2 ranks"), "{report}");
}

#[test]
fn a_rank_that_is_killed_is_named_with_the_block_in_which_it_was_awaited() {
    let job = Job::start(LATE, 3, "--no-verify --watchdog 3600");
    job.exchanges(0, "comm");
    job.signal(1, "-KILL");
    let (code, told) = job.end();
    assert_ne!(code, Some(0));
    if kills_at_once() {
        eprintln!("skipped: names: this mpirun kills all ranks at once");
        return;
    }
    let gone = told.lines().find(|line| line.starts_with("maestro: rank 1: its connection closed")).expect(&told);
    assert!(gone.ends_with("; rank 0 waited for it in block `gather` on lane `comm`"), "{told}");
}

#[test]
fn a_rank_that_hangs_is_named_and_the_job_ends_with_4() {
    let job = Job::start(EXCHANGING, 2, "--watchdog 2");
    job.exchanges(0, "ring");
    job.signal(1, "-STOP");
    let (code, told) = job.end();
    assert_eq!(code, Some(4), "{told}");
    assert!(told.contains("maestro: rank 0 has been in block `shift` on lane `ring` for "), "{told}");
    assert!(told.contains(" s, waiting for rank 1;"), "{told}");
}

#[test]
fn a_rank_that_is_asked_to_end_says_so() {
    let job = Job::start(EXCHANGING, 2, "");
    job.exchanges(1, "ring");
    job.signal(1, "-TERM");
    let (code, told) = job.end();
    assert_eq!(code, Some(4), "{told}");
    assert!(told.contains("maestro: rank 1: somebody asked its process to end (SIGTERM)"), "{told}");
}

#[test]
fn another_number_of_ranks_is_refused_with_both() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("pattern.yaml"), EXCHANGING).unwrap();
    let args = ["replay", "pattern.yaml", "--backend", "mpi"];
    let output = mpirun(here.path(), 3, maestro(), &args).output().expect("mpirun is on the path");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("started 3 processes and the pattern has 2 ranks"), "{told}");
}

/// As it is where the mpirun of one MPI starts a program that was built with another's.
#[test]
fn ranks_that_mpi_knows_nothing_of_are_refused() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("pattern.yaml"), EXCHANGING).unwrap();
    // Free a moment ago, and nobody here asks for another.
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port().to_string();
    let start = |rank: &str| {
        let variables = [
            ("RANK", rank),
            ("LOCAL_RANK", rank),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MAESTRO_PORT", &port),
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ];
        let mut command = Command::new(maestro());
        command.args(["replay", "pattern.yaml", "--backend", "mpi"]).envs(variables).current_dir(here.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let outputs = [start("0"), start("1")].map(|process| process.wait_with_output().unwrap());
    for output in &outputs {
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let told = String::from_utf8_lossy(&outputs[0].stderr).into_owned();
    assert!(told.contains(" of 1, and torchrun that it is rank "), "{told}");
}
