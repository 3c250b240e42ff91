//! The processes of a launch that replay one plan together, a rank each.
//!
//! What they have to agree on goes through the [`Store`]; what each runs is a back end's matter ([`Spread`]). Every
//! method but `fail` and `ended` is collective: all processes call the same ones in the same order.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use maestro_pattern::{Measurement, Plan};

use crate::executor::Record;
use crate::store::Store;
use crate::{BACKENDS, Backend, Error, Launch, Result, Settings, starts};

/// A back end whose ranks may live in processes of their own, one each.
pub trait Spread: Sync {
    /// As [`Backend::probe`], of one rank, on the machine of this process.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    fn probe_one(&self, plan: &Plan, settings: &Settings, launch: &Launch) -> Result<()>;

    /// As [`Backend::run`], of one rank: gives its executions. Waiting is told from transfer all the same, for the
    /// processes tell each other when theirs began.
    ///
    /// # Errors
    /// As [`Backend::run`], or another process failed.
    fn run_one(&self, plan: &Plan, settings: &Settings, crew: &Crew) -> Result<Vec<Measurement>>;
}

/// How `backend` runs `plan` on the processes of `launch`. It asks the environment and the plan alone, so that whoever
/// started the wrong number of processes hears of it at once, from all of them.
///
/// # Errors
/// The back end lives in one process, or the processes are not as many as the ranks.
pub fn spread<'b>(backend: &'b dyn Backend, plan: &Plan, launch: &Launch) -> Result<&'b dyn Spread> {
    let (by, processes, ranks) = (launch.by.name(), launch.world, plan.world.size());
    let Some(spread) = backend.spread() else {
        return Err(Error::Unusable {
            backend: backend.name(),
            what: format!("{by} started {processes} processes, and all its ranks live in one"),
            help: format!("start it once and without {by}, or run it by {}", spreading()),
        });
    };
    if processes != ranks {
        return Err(Error::Launch {
            what: format!("{by} started {processes} processes and the pattern has {ranks} ranks"),
            help: format!("start {ranks}, one a rank, or give its axes other sizes (--axis dp={processes})"),
        });
    }
    Ok(spread)
}

/// The back ends whose ranks may live in processes, as a person chooses them.
fn spreading() -> String {
    let names: Vec<String> = BACKENDS
        .iter()
        .filter(|backend| backend.spread().is_some())
        .map(|backend| format!("`--backend {}`", backend.name()))
        .collect();
    if names.is_empty() { "a build of maestro with the feature nccl or mpi".into() } else { names.join(" or ") }
}

/// The least time in which processes that have come must do what all then agree on: load libraries, make a folder.
const READY: Duration = Duration::from_secs(60);

/// This process among those of its launch, once all have come together.
pub struct Crew {
    launch: Launch,
    store: Arc<Store>,
}

impl Crew {
    /// Comes together with all processes of `launch`.
    ///
    /// # Errors
    /// As [`Store::join`].
    pub fn join(launch: Launch, patience: Duration) -> Result<Self> {
        let store = Arc::new(Store::join(&launch, patience)?);
        // Whoever expects all to be there at once does not expect them to be ready at once.
        store.set_patience(patience.max(READY));
        Ok(Self { launch, store })
    }

    /// Who this process is.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Whether this is the process that speaks for all.
    pub fn leads(&self) -> bool {
        self.launch.rank == 0
    }

    /// What the processes meet at.
    #[cfg_attr(
        not(any(feature = "mpi", feature = "nccl")),
        expect(dead_code, reason = "no back end of this build spreads")
    )]
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Rank 0's text, given to all.
    ///
    /// # Errors
    /// A process failed or did not come.
    pub fn share(&self, mine: Option<&str>) -> Result<String> {
        let shared = self.store.share(mine.map(str::as_bytes))?;
        String::from_utf8(shared).map_err(|_| Error::Rank { rank: 0, what: "it shared what is no text".into() })
    }

    /// Whether all processes could do something: the first refusal in order of rank, the same for all.
    ///
    /// # Errors
    /// A process failed or did not come, which is another matter: then nothing can be agreed on.
    pub fn agree(&self, mine: std::result::Result<(), String>) -> Result<std::result::Result<(), Error>> {
        // A refusal begins with a byte of its own: it might have no text.
        let mine = mine.err().map(|what| format!("!{what}")).unwrap_or_default();
        let first = self.store.gather(mine.as_bytes())?.map(|all| {
            let refusal = (0u32..).zip(&all).find_map(|(rank, mine)| Some((rank, mine.split_first()?.1)));
            refusal.map(|(rank, what)| [&rank.to_le_bytes(), what].concat()).unwrap_or_default()
        });
        let first = self.store.share(first.as_deref())?;
        Ok(match first.split_first_chunk() {
            None => Ok(()),
            Some((rank, what)) => {
                Err(Error::Rank { rank: u32::from_le_bytes(*rank), what: String::from_utf8_lossy(what).into_owned() })
            }
        })
    }

    /// On how many machines the processes run.
    ///
    /// # Errors
    /// A process failed or did not come.
    pub fn hosts(&self) -> Result<u32> {
        let count = self.store.gather(host().as_bytes())?.map(|hosts| {
            let hosts: BTreeSet<Vec<u8>> = hosts.into_iter().collect();
            hosts.len().to_string()
        });
        let count = self.share(count.as_deref())?;
        count.parse().map_err(|_| Error::Rank { rank: 0, what: format!("it counted {count} hosts") })
    }

    /// Adds what ranks in other processes did to this rank's record. Of their executions only the start is known, so they
    /// end as they begin. For [`crate::executor::Session::measurements_of`].
    ///
    /// # Errors
    /// A process failed or did not come, or another ran something else.
    pub fn exchange(&self, own: Record) -> Result<Vec<(u32, Record)>> {
        starts::exchange(&self.store, self.launch.rank, own)
    }

    /// Tells the others that this process failed, unless another failed before. From then on all their calls fail.
    pub fn fail(&self, text: &str) {
        self.store.fail(text);
    }

    /// For a process that is about to end because of a failure: lets rank 0 go first, and says whether that one can be
    /// relied on to tell the user what happened. Rank 0 itself always has to.
    pub fn ended(&self) -> bool {
        /// Longer than a rank that is stuck in a library is waited for.
        const PATIENCE: Duration = Duration::from_secs(7);
        self.store.let_rank_0_go_first(PATIENCE);
        !self.leads() && self.store.is_known_to_rank_0()
    }
}

impl Drop for Crew {
    /// A rank that was left behind in a library may still hold the store, so that is not left to its end.
    fn drop(&mut self) {
        if thread::panicking() {
            self.store.fail("it panicked; this is a bug of Maestro");
        }
        // Where a process is gone MPI would wait for it. Its launcher then ends what is left.
        #[cfg(feature = "mpi")]
        if self.store.check().is_ok() {
            crate::mpi::finish();
        }
        self.store.leave();
    }
}

/// What tells this machine from others. Containers of one machine share its boot.
fn host() -> String {
    let files = ["/proc/sys/kernel/random/boot_id", "/etc/hostname"];
    files.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
