//! Which communicators there are: each its set of ranks, and its place among equal sets when there are several.
//!
//! The name that a rank gave its group is no identity, because ranks count their groups separately; but the order of
//! names is the order of creation, which is the same on all ranks. So equal sets are told apart by the place of their
//! name among the names of equal sets. All groups that the header lists count, so that ranks that use only some of them
//! agree; places that nobody uses are closed up afterwards.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::classify::Communication;
use crate::capture::{Capture, Timeline};

/// Index into [`Communicators::all`].
pub(crate) type CommId = usize;

/// A communicator of the capture.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Communicator {
    /// Global ranks, in group order.
    pub ranks: Vec<u32>,
    /// Which among the communicators with the same ranks.
    pub index: usize,
    /// What its groups are described as, best known.
    pub desc: String,
}

/// Every communicator that the capture uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Communicators {
    pub all: Vec<Communicator>,
    /// (timeline, rank set, group name on that timeline) -> communicator.
    by_name: HashMap<(usize, Vec<u32>, Arc<str>), CommId>,
}

impl Communicators {
    /// These communicators, for tests of later passes.
    #[cfg(test)]
    pub fn listed(all: Vec<Communicator>) -> Self {
        Self { all, by_name: HashMap::new() }
    }

    /// The communicator of a group of a timeline.
    pub fn of(&self, timeline: usize, ranks: Vec<u32>, name: Arc<str>) -> CommId {
        self.by_name.get(&(timeline, ranks, name)).copied().unwrap_or_default()
    }

    pub fn gather(capture: &Capture, classified: &[HashMap<usize, Communication>], world: u32) -> Self {
        let mut this = Self::default();
        for (index, (timeline, all)) in capture.timelines.iter().zip(classified).enumerate() {
            // By name, so that equal sets get the same place on every rank.
            let mut used: BTreeSet<(Vec<u32>, Arc<str>)> = BTreeSet::new();
            let mut descs = HashMap::new();
            for communication in all.values() {
                let (ranks, name, _) = identity(timeline, communication, world);
                if let Some(desc) = communication.facts.iter().find_map(|f| f.group_desc.clone()) {
                    descs.insert((ranks.clone(), name.clone()), desc.to_string());
                }
                used.insert((ranks, name));
            }
            let mut equal: BTreeMap<Vec<u32>, BTreeSet<&str>> = BTreeMap::new();
            let everyone: Vec<u32> = (0..world).collect();
            for group in &timeline.groups {
                let ranks = if group.ranks.is_empty() { &everyone } else { &group.ranks };
                equal.entry(ranks.clone()).or_default().insert(&group.name);
            }
            for (ranks, name) in used.iter().filter(|(_, name)| !name.is_empty()) {
                equal.entry(ranks.clone()).or_default().insert(name);
            }
            for (ranks, name) in &used {
                let mut named = used.iter().filter(|(other, name)| other == ranks && !name.is_empty());
                // What has no name is of the one group of these ranks, if that is the only one.
                let meant = match (name.is_empty(), named.next(), named.next()) {
                    (true, Some((_, only)), None) => only,
                    _ => name,
                };
                let names = equal.get(ranks);
                let place = names.and_then(|names| names.iter().position(|other| **other == **meant));
                let place = place.unwrap_or_else(|| names.map_or(0, BTreeSet::len));
                let desc = descs.get(&(ranks.clone(), name.clone())).cloned().unwrap_or_default();
                let id = this.intern(Communicator { ranks: ranks.clone(), index: place, desc });
                this.by_name.insert((index, ranks.clone(), name.clone()), id);
            }
        }
        this.close_up();
        this
    }

    fn intern(&mut self, wanted: Communicator) -> CommId {
        let same = |c: &Communicator| (&c.ranks, c.index) == (&wanted.ranks, wanted.index);
        match self.all.iter().position(same) {
            Some(id) => {
                if self.all[id].desc.is_empty() {
                    self.all[id].desc = wanted.desc;
                }
                id
            }
            None => {
                self.all.push(wanted);
                self.all.len() - 1
            }
        }
    }

    /// Numbers the communicators of each set of ranks without gaps.
    fn close_up(&mut self) {
        let mut places: HashMap<Vec<u32>, BTreeSet<usize>> = HashMap::new();
        for communicator in &self.all {
            places.entry(communicator.ranks.clone()).or_default().insert(communicator.index);
        }
        for communicator in &mut self.all {
            let used = &places[&communicator.ranks];
            communicator.index = used.range(..communicator.index).count();
        }
    }
}

/// The rank set of a communication, the name that its rank gave it, and whether the set was read: without one, it is
/// taken to be the whole world.
pub(crate) fn identity(timeline: &Timeline, communication: &Communication, world: u32) -> (Vec<u32>, Arc<str>, bool) {
    let name = communication.facts.iter().find_map(|f| f.group_name.clone()).unwrap_or_else(|| "".into());
    let everyone = || (0..world).collect::<Vec<u32>>();
    if let Some(ranks) = communication.facts.iter().find_map(|f| f.ranks.clone()).filter(|ranks| !ranks.is_empty()) {
        return (ranks, name, true);
    }
    match timeline.groups.iter().find(|group| *group.name == *name && !name.is_empty()) {
        Some(group) if group.ranks.is_empty() => (everyone(), name, true),
        Some(group) => (group.ranks.clone(), name, true),
        None => {
            let size = communication.facts.iter().find_map(|f| f.group_size);
            (everyone(), name, size == Some(world))
        }
    }
}
