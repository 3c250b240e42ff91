//! Processes as a launcher starts them: what is refused before any GPU is asked for, and who says what.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use crate::harness::{Outcome, folder, maestro_with};

/// Two ranks that compute.
const TWO: &str = "maestro: 1
name: two
axes: {dp: {size: 2}}
blocks: {layer: {compute: [{hold: 1us}]}}
lanes: {compute: {}}
schedule: [{run: layer, lane: compute}]
";

/// A folder with the pattern in it.
fn here() -> tempfile::TempDir {
    let here = folder();
    fs::write(here.path().join("two.yaml"), TWO).unwrap();
    here
}

/// A port that is free and that no other test here takes, below those that the system gives to connections.
fn port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 900) as u16;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port.to_string();
        }
    }
}

/// One process of a launch, as torchrun starts it.
fn process(here: &Path, (rank, world): (u32, u32), port: &str, args: &[&str]) -> Outcome {
    let (rank, world) = (rank.to_string(), world.to_string());
    let variables = [
        ("RANK", rank.as_str()),
        ("LOCAL_RANK", &rank),
        ("WORLD_SIZE", &world),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MAESTRO_PORT", port),
        ("MASTER_PORT", port),
        // No test may depend on whether this machine has GPUs.
        ("CUDA_VISIBLE_DEVICES", ""),
    ];
    maestro_with(here, ["replay"].iter().chain(args), &variables)
}

#[test]
fn another_number_of_processes_than_ranks_is_refused_with_both() {
    let here = here();
    for (rank, world) in [(0, 4), (3, 4)] {
        let said = process(here.path(), (rank, world), "10000", &["two.yaml", "--backend", "nccl"]).refused();
        for words in ["torchrun started 4 processes", "2 ranks", "start 2", "--axis dp=4"] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1, "no folder is made");
}

#[test]
fn back_ends_of_one_process_run_in_one() {
    let here = here();
    for backend in ["threads", "dry"] {
        let said = process(here.path(), (0, 2), "10000", &["two.yaml", "--backend", backend]).refused();
        assert!(said.starts_with(&format!("maestro: {backend}: torchrun started 2 processes")), "{said}");
        // A launch of one process is none.
        process(here.path(), (0, 1), "10000", &["two.yaml", "--backend", backend, "--iterations", "1"]).ok();
    }
}

#[test]
fn half_of_a_launchers_variables_are_refused_by_name() {
    let here = here();
    let said = maestro_with(here.path(), ["replay", "two.yaml", "--backend", "threads"], &[("RANK", "0")]).refused();
    assert!(said.contains("`RANK`") && said.contains("`WORLD_SIZE`"), "{said}");
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let here = here();
    let args = ["two.yaml", "--backend", "nccl", "--patience", "1"];
    let alone = process(here.path(), (0, 2), &port(), &args);
    assert_eq!(alone.code, 4, "{}", alone.stderr);
    assert!(alone.stderr.starts_with("maestro: rank 1 did not join rank 0 at 127.0.0.1:"), "{}", alone.stderr);
    let alone = process(here.path(), (1, 2), &port(), &args);
    assert_eq!(alone.code, 4, "{}", alone.stderr);
    assert!(alone.stderr.contains("was not reached"), "{}", alone.stderr);
}

#[test]
fn what_one_process_finds_wrong_ends_all_and_rank_0_says_it() {
    let here = here();
    fs::write(here.path().join("edited.yaml"), TWO.replace("1us", "2us")).unwrap();
    let (port, here) = (port(), here.path());
    let [first, second] = thread::scope(|scope| {
        let start = |rank, pattern| {
            let port = &port;
            scope.spawn(move || process(here, (rank, 2), port, &[pattern, "--backend", "nccl"]))
        };
        [start(0, "two.yaml"), start(1, "edited.yaml")].map(|process| process.join().unwrap())
    });
    let said = first.refused();
    assert!(said.starts_with("maestro: rank 1: its pattern, options or version"), "{said}");
    assert_eq!(second.refused(), "maestro: rank 1 ended with the others; rank 0 says why");
    assert_eq!(fs::read_dir(here).unwrap().count(), 2, "no folder is made");
}
