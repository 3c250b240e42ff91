//! What can go wrong in a replay: where, and what would help.

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a plan was not run, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The back end cannot run this plan here.
    #[error("{backend}: {what}; {help}")]
    Unusable {
        /// Name of the back end.
        backend: &'static str,
        /// What stands in the way.
        what: String,
        /// What would help.
        help: String,
    },
    /// The buffers do not fit.
    #[error(
        "the plan needs {} MiB of buffers and {} MiB are available; the largest are {} MiB for block `{block}` on lane \
         `{lane}`: give it a smaller size, or the world fewer ranks",
        needed >> 20, available >> 20, largest >> 20
    )]
    Memory {
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        available: u64,
        /// The block with the largest buffers.
        block: String,
        /// The lane it runs on.
        lane: String,
        /// Bytes of its buffers on one rank.
        largest: u64,
    },
    /// A block gave wrong data.
    #[error(
        "rank {rank}: block `{block}` gave {found} for {expected} in element {element} of its output; the numbers of \
         such a run would mean nothing"
    )]
    Mismatch {
        /// The rank whose output is wrong.
        rank: u32,
        /// The block.
        block: String,
        /// Index of the first wrong element in the rank's output of the block.
        element: u64,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// Nothing moved for too long.
    #[error(
        "rank {rank} has been in block `{block}` on lane `{lane}` for {seconds:.1} s{}; look at what those ranks do \
         before it, or allow a longer silence",
        waits_for(peers)
    )]
    Hang {
        /// The rank that has waited longest.
        rank: u32,
        /// The block that it is in.
        block: String,
        /// The lane that it is on.
        lane: String,
        /// For how long.
        seconds: f64,
        /// The ranks that it waits for.
        peers: Vec<u32>,
    },
    /// The simulation came to a point from which nothing can go on.
    #[error("rank {rank}: block `{block}` on lane `{lane}` can never end{}", waits_for(peers))]
    Stuck {
        /// The first rank that cannot go on.
        rank: u32,
        /// The block that it is in.
        block: String,
        /// The lane that it is on.
        lane: String,
        /// The ranks that it waits for.
        peers: Vec<u32>,
    },
    /// A rank's thread panicked.
    #[error("rank {rank} panicked: {message}; this is a bug of Maestro")]
    Panicked {
        /// The rank.
        rank: u32,
        /// What the panic said.
        message: String,
    },
    /// A call of a native library failed.
    #[error("rank {rank}{}: {what}", in_block(block.as_deref()))]
    Native {
        /// The rank.
        rank: u32,
        /// The block, where it was of one.
        block: Option<String>,
        /// The function, and what its library says.
        what: String,
    },
    /// The system gave no thread.
    #[error("rank {rank}: the system gives no more threads; run fewer ranks or lanes")]
    Thread {
        /// The rank that wanted one.
        rank: u32,
        /// What the system said.
        source: std::io::Error,
    },
    /// The plan contradicts itself. Plans made by `Plan::new` do not.
    #[error("rank {rank}, block `{block}`: {what}; make plans by Plan::new, which checks them")]
    Plan {
        /// The rank.
        rank: u32,
        /// The block.
        block: String,
        /// The contradiction.
        what: String,
    },
    /// The environment says half of where this process stands among others, or nonsense.
    #[error("{what}; {help}")]
    Launch {
        /// What is wrong, with the variable's name.
        what: String,
        /// What would help.
        help: String,
    },
    /// This process did not come together with rank 0's.
    #[error("rank 0 at {address} {what}; {help}")]
    Join {
        /// Host and port.
        address: String,
        /// What rank 0, or whoever answers there, did or did not do.
        what: String,
        /// What would help.
        help: String,
    },
    /// Other processes did not come in time.
    #[error("{} did not {what} within {seconds:.1} s; {help}", named(ranks))]
    Missing {
        /// The ranks that did not come.
        ranks: Vec<u32>,
        /// What they did not do.
        what: String,
        /// How long they were waited for.
        seconds: f64,
        /// What would help.
        help: String,
    },
    /// The process of a rank failed, or is gone.
    #[error("{}", of_rank(*rank, what))]
    Rank {
        /// The rank.
        rank: u32,
        /// What it said, or what became of it.
        what: String,
    },
    /// Another rank failed first; that rank's error is the one to read, and the one that a run returns.
    #[error("another rank failed first")]
    Ended,
}

/// What a rank said, with its number in front unless it begins with that: so a failure reads the same where it happened
/// and where it was heard of.
fn of_rank(rank: u32, what: &str) -> String {
    let rest = what.strip_prefix(&format!("rank {rank}"));
    let named = rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()));
    if named { what.to_owned() } else { format!("rank {rank}: {what}") }
}

/// ", block `x`", or nothing.
fn in_block(block: Option<&str>) -> String {
    block.map_or_else(String::new, |block| format!(", block `{block}`"))
}

/// ", waiting for ranks 1, 2", or nothing.
fn waits_for(peers: &[u32]) -> String {
    if peers.is_empty() { String::new() } else { format!(", waiting for {}", named(peers)) }
}

/// "ranks 1, 2", with the first few of many.
fn named(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let plural = if ranks.len() == 1 { "" } else { "s" };
    let names: Vec<String> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    let more = if ranks.len() > SHOWN { format!(" and {} more", ranks.len() - SHOWN) } else { String::new() };
    format!("rank{plural} {}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_names_rank_block_lane_and_peers() {
        let hang = Error::Hang { rank: 1, block: "g".into(), lane: "l".into(), seconds: 30.0, peers: vec![0, 2] };
        let text = hang.to_string();
        assert!(
            text.starts_with("rank 1 has been in block `g` on lane `l` for 30.0 s, waiting for ranks 0, 2;"),
            "{text}"
        );
    }

    #[test]
    fn a_failure_reads_the_same_where_it_is_heard_of() {
        let here = Error::Native { rank: 1, block: Some("g".into()), what: "ncclAllGather failed".into() };
        let there = Error::Rank { rank: 1, what: here.to_string() };
        assert_eq!(there.to_string(), here.to_string());
        assert_eq!(Error::Rank { rank: 1, what: "rank 10 left".into() }.to_string(), "rank 1: rank 10 left");
        assert_eq!(Error::Rank { rank: 1, what: "its GPU is gone".into() }.to_string(), "rank 1: its GPU is gone");
    }

    #[test]
    fn many_peers_are_counted() {
        assert_eq!(waits_for(&[]), "");
        assert_eq!(waits_for(&[3]), ", waiting for rank 3");
        assert!(waits_for(&(0..10).collect::<Vec<_>>()).ends_with("7 and 2 more"));
    }
}
