//! Ranks as threads on the loopback interface, and what may come between them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use super::*;
use crate::Launcher;

/// Longer than any test takes, so that it never decides one.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A port that is free and that no other test takes: below those that the system gives to connections, and far from
/// where a process that was started next to this one looks.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (u64::from(std::process::id()) * 101 % 9_000) as u16;
    loop {
        let port = 11_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 9_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn launches(world: u32) -> Vec<Launch> {
    let port = port();
    let launch = |rank| Launch {
        rank,
        world,
        local_rank: rank,
        by: Launcher::Torchrun,
        address: "127.0.0.1".into(),
        port,
        secret: "secret".into(),
    };
    (0..world).map(launch).collect()
}

/// Runs every rank of a world in a thread of its own, once all have joined, and gives what each returned.
pub(crate) fn run<R: Send>(world: u32, body: impl Fn(Store) -> R + Sync) -> Vec<R> {
    let launches = launches(world);
    // A rank that leaves the store's barrier first and fails at once would be heard of by ranks that are still in it.
    let joined = Barrier::new(world as usize);
    let (body, joined) = (&body, &joined);
    thread::scope(|scope| {
        let start = |launch| {
            scope.spawn(move || {
                let store = Store::join(launch, LONG).unwrap();
                store.barrier().unwrap();
                joined.wait();
                body(store)
            })
        };
        let ranks: Vec<_> = launches.iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The error of a join that must fail.
fn refused(result: Result<Store>) -> Error {
    result.err().expect("a store that is not joined")
}

/// What a rank hears that waits for nothing.
fn failure(store: &Store) -> Error {
    loop {
        match store.check() {
            Ok(()) => thread::yield_now(),
            Err(error) => return error,
        }
    }
}

/// A connection to rank 0 that has said nothing yet. Rank 0 is listening then.
fn knock(launch: &Launch) -> TcpStream {
    loop {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", launch.port)) {
            // Once rank 0 has greeted, it is waiting for an answer.
            let mut greeting = [0; 24];
            stream.read_exact(&mut greeting).unwrap();
            return stream;
        }
        thread::yield_now();
    }
}

#[test]
fn ranks_share_and_gather() {
    let long = vec![3; 1 << 20];
    run(4, |store| {
        let rank = store.rank();
        let shared = store.share((rank == 0).then_some(b"identity")).unwrap();
        assert_eq!(shared, b"identity");
        let gathered = store.gather(&vec![rank as u8; rank as usize]).unwrap();
        assert_eq!(gathered, (rank == 0).then(|| vec![vec![], vec![1], vec![2; 2], vec![3; 3]]));
        // Longer than a buffer of the system, one way and the other.
        let gathered = store.gather(&long).unwrap();
        assert!(gathered.is_none_or(|parts| parts.len() == 4 && parts.iter().all(|part| *part == long)));
        assert_eq!(store.share((rank == 0).then_some(&long)).unwrap(), long);
        store.resync().unwrap();
        assert!(store.clock_error() > Duration::ZERO);
        store.check().unwrap();
    });
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    const WORLD: u32 = 4;
    let entered = AtomicU32::new(0);
    let moments = run(WORLD, |store| {
        let pass = |turn: u32| {
            entered.fetch_add(1, Ordering::SeqCst);
            let moment = store.barrier().unwrap();
            assert!(entered.load(Ordering::SeqCst) >= WORLD * (turn + 1));
            assert!(Instant::now() >= moment);
            moment
        };
        (0..100).map(pass).collect::<Vec<_>>()
    });
    for moments in moments {
        assert!(moments.is_sorted());
    }
}

#[test]
fn a_world_of_one_meets_itself() {
    let launch = Launch { address: "no such host".into(), ..launches(1).remove(0) };
    let store = Store::join(&launch, Duration::ZERO).unwrap();
    assert_eq!(store.share(Some(b"x")).unwrap(), b"x");
    assert_eq!(store.gather(b"y").unwrap(), Some(vec![b"y".to_vec()]));
    store.barrier().unwrap();
    store.resync().unwrap();
    assert_eq!(store.clock_error(), Duration::ZERO);
    assert!(matches!(store.share(None), Err(Error::Rank { rank: 0, .. })));
}

#[test]
fn a_rank_that_does_not_come_is_named_to_those_who_did() {
    let launches = launches(4);
    thread::scope(|scope| {
        let early = scope.spawn(|| refused(Store::join(&launches[1], LONG)));
        let error = refused(Store::join(&launches[0], Duration::from_millis(500)));
        let Error::Missing { ranks, .. } = &error else { panic!("{error}") };
        assert!(ranks.ends_with(&[2, 3]), "{error}");
        // On a slow machine rank 1 may have been too late; then it finds nobody.
        if ranks.len() == 2 {
            assert!(error.to_string().starts_with("ranks 2, 3 did not join rank 0 at 127.0.0.1:"), "{error}");
            let told = early.join().unwrap();
            assert!(matches!(told, Error::Rank { rank: 0, .. }));
            assert!(told.to_string().contains("ranks 2, 3 did not join"), "{told}");
        }
    });
}

#[test]
fn without_rank_0_nobody_is_reached() {
    let error = refused(Store::join(&launches(2)[1], Duration::from_millis(20)));
    assert!(matches!(error, Error::Join { .. }));
    let text = error.to_string();
    assert!(text.contains("was not reached") && text.contains("firewall") && text.contains("MAESTRO_PORT"), "{text}");
    let nowhere = Launch { address: "nowhere.invalid".into(), ..launches(2).remove(1) };
    assert!(matches!(refused(Store::join(&nowhere, Duration::ZERO)), Error::Join { .. }));
}

#[test]
fn a_port_that_is_taken_is_said() {
    let launches = launches(2);
    let _taken = TcpListener::bind(("127.0.0.1", launches[0].port)).unwrap();
    let error = refused(Store::join(&launches[0], LONG)).to_string();
    assert!(error.contains("cannot listen") && error.contains("MAESTRO_PORT"), "{error}");
}

#[test]
fn another_program_on_the_port_is_said() {
    let launches = launches(2);
    let other = TcpListener::bind(("127.0.0.1", launches[0].port)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| other.accept().unwrap().0.write_all(b"220 smtp.example.org").unwrap());
        let error = refused(Store::join(&launches[1], LONG)).to_string();
        assert!(error.contains("is another program"), "{error}");
    });
}

/// Whoever comes first is turned away with `reason`; the ranks then meet all the same.
fn turned_away(launches: &[Launch], first: &Launch, reason: &str) {
    thread::scope(|scope| {
        let ranks = scope.spawn(|| Store::join(&launches[0], LONG).unwrap().barrier().unwrap());
        let error = refused(Store::join(first, LONG));
        assert!(matches!(error, Error::Join { .. }) && error.to_string().contains(reason), "{error}");
        Store::join(&launches[1], LONG).unwrap().barrier().unwrap();
        ranks.join().unwrap();
    });
}

#[test]
fn another_secret_or_world_is_turned_away() {
    let ours = launches(2);
    let other = Launch { secret: "another".into(), ..ours[1].clone() };
    turned_away(&ours, &other, "belongs to another launch");
    let ours = launches(2);
    let other = Launch { world: 3, ..ours[1].clone() };
    turned_away(&ours, &other, "expects 2 ranks, and this is rank 1 of 3");
    let ours = launches(2);
    let other = Launch { rank: 2, world: 2, ..ours[1].clone() };
    turned_away(&ours, &other, "has a rank 2 already");
}

#[test]
fn who_was_turned_away_is_named_with_who_is_missing() {
    let launches = launches(2);
    thread::scope(|scope| {
        let rank_0 = scope.spawn(|| refused(Store::join(&launches[0], Duration::from_millis(500))));
        let other = Launch { secret: "another".into(), ..launches[1].clone() };
        let turned = refused(Store::join(&other, LONG)).to_string();
        let error = rank_0.join().unwrap().to_string();
        assert!(error.starts_with("rank 1 did not join"), "{error}");
        if turned.contains("another launch") {
            assert!(error.contains("(turned away: 127.0.0.1 came as rank 1 of another launch"), "{error}");
        }
    });
}

#[test]
fn a_second_rank_of_one_number_is_turned_away() {
    let launches = launches(3);
    thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Store::join(&launches[0], LONG).unwrap().barrier().unwrap());
        // Both are rank 1. One is let in and waits for rank 2; the other is told.
        let (says, said) = channel();
        for _ in 0..2 {
            let (says, launch) = (says.clone(), &launches[1]);
            scope.spawn(move || says.send(Store::join(launch, LONG).and_then(|store| store.barrier())).unwrap());
        }
        let error = said.recv().unwrap().expect_err("to be turned away");
        assert!(error.to_string().contains("has a rank 1 already"), "{error}");
        Store::join(&launches[2], LONG).unwrap().barrier().unwrap();
        said.recv().unwrap().unwrap();
        rank_0.join().unwrap();
    });
}

#[test]
fn strangers_neither_come_in_nor_hold_up() {
    let launches = launches(2);
    thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Store::join(&launches[0], LONG).unwrap().barrier().unwrap());
        let silent: Vec<_> = (0..20).map(|_| knock(&launches[0])).collect();
        let mut garbage = knock(&launches[0]);
        garbage.write_all(&[b'x'; 1000]).unwrap();
        let mut halting = knock(&launches[0]);
        halting.write_all(&handshake::MAGIC).unwrap();
        let mut other_version = knock(&launches[0]);
        other_version.write_all(b"maestro\0").unwrap();
        let mut answer = [0; 5];
        other_version.read_exact(&mut answer).unwrap();
        assert_eq!(answer[0], 1);
        drop(knock(&launches[0]));
        Store::join(&launches[1], LONG).unwrap().barrier().unwrap();
        rank_0.join().unwrap();
        drop((silent, halting));
    });
}

#[test]
fn a_rank_that_fails_is_named_by_all() {
    let errors = run(4, |store| {
        if store.rank() == 2 {
            store.fail("its GPU fell off the bus");
        }
        // Rank 3 is in another operation than the rest, and rank 1 in none.
        let result = match store.rank() {
            1 => Err(failure(&store)),
            3 => store.share(None).map(drop),
            _ => store.barrier().map(drop),
        };
        let error = result.unwrap_err().to_string();
        // And ever after.
        assert_eq!(store.gather(b"").unwrap_err().to_string(), error);
        error
    });
    for error in errors {
        assert_eq!(error, "rank 2: its GPU fell off the bus");
    }
}

#[test]
fn a_failure_ends_what_the_rank_itself_waits_for() {
    run(2, |store| {
        if store.rank() == 1 {
            thread::scope(|scope| {
                let waiting = scope.spawn(|| store.barrier());
                store.fail("interrupted");
                assert_eq!(waiting.join().unwrap().unwrap_err().to_string(), "rank 1: interrupted");
            });
        } else {
            assert_eq!(failure(&store).to_string(), "rank 1: interrupted");
        }
    });
}

#[test]
fn a_connection_that_closes_names_its_rank() {
    let errors = run(3, |store| {
        if store.rank() == 1 {
            store.post.links[0].stream.shutdown(Shutdown::Both).unwrap();
        }
        store.barrier().unwrap_err().to_string()
    });
    assert!(errors[0].starts_with("rank 1: its connection closed without a goodbye"), "{}", errors[0]);
    assert_eq!(errors[2], errors[0]);
    assert!(errors[1].starts_with("rank 0: its connection"), "{}", errors[1]);
}

#[test]
fn a_goodbye_is_no_failure_until_somebody_waits() {
    let errors = run(3, |store| match store.rank() {
        1 => None,
        _ => store.barrier().err().map(|error| error.to_string()),
    });
    assert_eq!(errors[1], None);
    for error in [&errors[0], &errors[2]] {
        assert!(
            error.as_ref().unwrap().starts_with("rank 1: it ended while rank 0 waited for it to reach the barrier")
        );
    }
}

#[test]
fn a_rank_that_panics_says_so() {
    let launches = launches(2);
    thread::scope(|scope| {
        let rank_1 = scope.spawn(|| {
            let _store = Store::join(&launches[1], LONG).unwrap();
            panic!("as it must");
        });
        let error = Store::join(&launches[0], LONG).unwrap().barrier().unwrap_err();
        assert!(error.to_string().starts_with("rank 1: it panicked"), "{error}");
        assert!(rank_1.join().is_err());
    });
}

#[test]
fn whoever_does_not_come_to_an_operation_is_named() {
    // Rank 0 is the judge where it waits itself.
    let (done, waiting) = (AtomicU32::new(0), Duration::from_millis(50));
    let errors = run(3, |store| {
        if store.rank() == 0 {
            store.set_patience(waiting);
        }
        let error = match store.rank() {
            2 => {
                while done.load(Ordering::SeqCst) < 2 {
                    thread::yield_now();
                }
                failure(&store).to_string()
            }
            _ => store.barrier().unwrap_err().to_string(),
        };
        done.fetch_add(1, Ordering::SeqCst);
        error
    });
    // Rank 1 may itself have been late for so little patience.
    assert!(errors[0].contains("did not reach the barrier within 0.1 s"), "{}", errors[0]);
    assert!(errors[0].contains('2'), "{}", errors[0]);
    assert_eq!(errors[1], format!("rank 0: {}", errors[0]));
}

#[test]
fn where_rank_0_does_not_come_it_says_who_else_has_not() {
    let done = AtomicU32::new(0);
    let errors = run(4, |store| {
        if store.rank() == 1 || store.rank() == 3 {
            if store.rank() == 3 {
                store.gather(b"as one that is far ahead").unwrap();
                store.gather(b"").unwrap();
            } else {
                store.set_patience(Duration::ZERO);
                let error = store.share(None).unwrap_err();
                done.store(1, Ordering::SeqCst);
                return error.to_string();
            }
        }
        while done.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        String::new()
    });
    assert!(errors[1].starts_with("ranks 0, 2 did not ask for what rank 0 shares"), "{}", errors[1]);
}

#[test]
fn ranks_that_are_out_of_step_are_told() {
    let errors = run(2, |store| match store.rank() {
        0 => store.barrier().unwrap_err().to_string(),
        _ => store.share(None).unwrap_err().to_string(),
    });
    assert!(
        errors[0].starts_with("rank 1: it is to ask for what rank 0 shares while rank 0 is to reach"),
        "{}",
        errors[0]
    );
    assert_eq!(errors[0], errors[1]);
}

#[test]
fn a_barrier_aligns_clocks_that_are_stale() {
    run(3, |store| {
        store.resync().unwrap();
        let forget = || *lock(&store.aligned) = None;
        forget();
        // Rank 0 alone decides.
        store.barrier().unwrap();
        assert!(lock(&store.aligned).is_some());
        assert_eq!(store.share((store.rank() == 0).then_some(b"in step")).unwrap(), b"in step");
    });
}

#[test]
fn a_rank_can_tell_whether_rank_0_knows_what_failed() {
    run(3, |store| {
        if store.rank() == 1 {
            store.fail("first");
        }
        assert_eq!(failure(&store).to_string(), "rank 1: first");
        assert!(store.is_known_to_rank_0());
    });
    run(2, |store| {
        if store.rank() == 0 {
            // As if its process were gone.
            store.post.links[0].stream.shutdown(Shutdown::Both).unwrap();
        } else {
            assert!(failure(&store).to_string().starts_with("rank 0: its connection"));
            assert!(!store.is_known_to_rank_0());
        }
    });
}

#[test]
fn rank_0_goes_first() {
    let said = AtomicU32::new(0);
    run(3, |store| {
        if store.rank() == 0 {
            assert_eq!(failure(&store).to_string(), "rank 1: interrupted");
            store.let_rank_0_go_first(LONG);
            said.store(1, Ordering::SeqCst);
            store.leave();
        } else {
            if store.rank() == 1 {
                store.fail("interrupted");
            }
            store.let_rank_0_go_first(LONG);
            assert_eq!(said.load(Ordering::SeqCst), 1);
        }
    });
}
