//! Crews as threads, and what is said to those that do not fit.

use maestro_pattern::Pattern;

use super::*;
use crate::store::{LONG, launches};
use crate::{BACKENDS, dry, threads};

fn crew<R: Send>(world: u32, body: impl Fn(Crew) -> R + Sync) -> Vec<R> {
    let (launches, body) = (launches(world), &body);
    let life = |launch| {
        let crew = Crew::join(launch, LONG).unwrap();
        // Nobody fails before all are there.
        crew.agree(Ok(())).unwrap().unwrap();
        body(crew)
    };
    let life = &life;
    thread::scope(|scope| {
        let ranks: Vec<_> = launches.into_iter().map(|launch| scope.spawn(move || life(launch))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn plan(ranks: u32) -> Plan {
    let text =
        format!("maestro: 1\nname: t\naxes: {{dp: {{size: {ranks}}}}}\nblocks: {{}}\nlanes: {{}}\nschedule: []\n");
    Plan::new(&Pattern::from_yaml(&text).unwrap(), &[]).unwrap()
}

#[test]
fn the_first_refusal_is_everyones() {
    let ends = crew(4, |crew| {
        let rank = crew.launch().rank;
        assert!(crew.agree(Ok(())).unwrap().is_ok());
        let refusal = if rank == 0 { Ok(()) } else { Err(format!("no GPU for {rank}")) };
        let agreed = crew.agree(refusal).unwrap().unwrap_err().to_string();
        // It ends nothing by itself, and even a refusal without words is one.
        assert!(crew.agree(Err(String::new())).unwrap().is_err());
        crew.agree(Ok(())).unwrap().unwrap();
        agreed
    });
    assert_eq!(ends, ["rank 1: no GPU for 1"; 4]);
}

#[test]
fn crews_share_and_count_their_hosts() {
    crew(3, |crew| {
        assert_eq!(crew.leads(), crew.launch().rank == 0);
        assert_eq!(crew.share(crew.leads().then_some("run-x")).unwrap(), "run-x");
        // Threads of one test do not live on several machines.
        assert_eq!(crew.hosts().unwrap(), 1);
    });
}

#[test]
fn rank_0_tells_what_happened_and_the_others_rely_on_it() {
    let reliable = crew(3, |crew| {
        if crew.launch().rank == 2 {
            crew.fail("out of memory");
        }
        assert_eq!(crew.agree(Ok(())).unwrap_err().to_string(), "rank 2: out of memory");
        crew.ended()
    });
    assert_eq!(reliable, [false, true, true]);
}

#[test]
fn where_rank_0_is_gone_everyone_tells() {
    let reliable = crew(2, |crew| {
        if crew.leads() {
            return None;
        }
        let error = crew.share(None).unwrap_err().to_string();
        assert!(error.starts_with("rank 0: it ended"), "{error}");
        Some(crew.ended())
    });
    assert_eq!(reliable, [None, Some(false)]);
}

#[test]
fn a_launch_that_does_not_fit_is_told_both_numbers_and_the_remedy() {
    let launch = &launches(2)[0];
    for backend in BACKENDS {
        let refusal = spread(*backend, &plan(4), launch).err().map(|error| error.to_string()).unwrap_or_default();
        if backend.spread().is_some() {
            assert!(refusal.contains("2 processes") && refusal.contains("4 ranks"), "{refusal}");
            assert!(refusal.contains("start 4") && refusal.contains("--axis dp=2"), "{refusal}");
            assert!(spread(*backend, &plan(2), launch).is_ok());
        } else {
            assert!(refusal.contains("torchrun started 2 processes") && refusal.contains("nccl"), "{refusal}");
        }
    }
    // Those two live in one process whatever is built in.
    assert!(dry::Dry.spread().is_none() && threads::Threads.spread().is_none());
}
