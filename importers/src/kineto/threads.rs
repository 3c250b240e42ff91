//! Threads by numbers that are unique in the file, though processes of different hosts may number theirs alike.
//!
//! While rows come, a thread's number is made of its process and itself, always the same way, so that parts of a file
//! can be read apart. Once all rows are there, threads that share their own number with none get it back.

use std::collections::{BTreeSet, HashMap};

/// The threads that were met.
#[derive(Default)]
pub(super) struct Threads {
    /// Process and thread, by the number given.
    known: HashMap<i64, (i64, i64)>,
}

impl Threads {
    /// The number of a thread while rows come.
    pub(super) fn id(&mut self, process: i64, thread: i64) -> i64 {
        // Any odd factor spreads processes over all numbers; this is 2^64 over the golden ratio.
        let id = thread.wrapping_add(process.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64));
        self.known.insert(id, (process, thread));
        id
    }

    /// Adds those of another part of the file.
    pub(super) fn append(&mut self, other: Self) {
        self.known.extend(other.known);
    }

    /// Gives threads their own numbers back where these are unique; returns what each is now.
    pub(super) fn settle(&mut self) -> HashMap<i64, i64> {
        let mut processes: HashMap<i64, BTreeSet<i64>> = HashMap::new();
        for (process, thread) in self.known.values() {
            processes.entry(*thread).or_default().insert(*process);
        }
        let now = |id: i64, thread: i64| if processes[&thread].len() == 1 { thread } else { id };
        let renamed = self.known.iter().map(|(id, (_, thread))| (*id, now(*id, *thread))).collect();
        self.known = self.known.iter().map(|(id, (p, thread))| (now(*id, *thread), (*p, *thread))).collect();
        renamed
    }

    /// The process of a thread.
    pub(super) fn process(&self, id: i64) -> Option<i64> {
        self.known.get(&id).map(|(process, _)| *process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_keep_their_numbers_unless_two_processes_share_one() {
        let mut threads = Threads::default();
        let ids = [(1, 7), (2, 7), (1, 8), (2, 9)].map(|(process, thread)| threads.id(process, thread));
        assert_eq!(Threads::default().id(2, 7), ids[1], "whatever came before");
        let renamed = threads.settle();
        let now = ids.map(|id| renamed[&id]);
        assert_eq!((now[2], now[3]), (8, 9));
        assert!(now[0] != now[1] && now[0] != 7 && now[1] != 7);
        assert_eq!(now.map(|id| threads.process(id)), [Some(1), Some(2), Some(1), Some(2)]);
    }
}
