//! What only all ranks together tell: which rank each is, and which ranks a communicator has.
//!
//! NCCL gives its communicators numbers that all their ranks share (since 2.25). The ranks are those that were seen to
//! join, where that was recorded; else those that were seen to use it. Before, numbers differ or are none; then ranks are
//! put together that made the same calls of the same sizes in the same order, which is said. Once a communicator's size
//! is known, groups of sends and receives between all its ranks are the all-to-alls that they stand for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use maestro_pattern::CollectiveKind;

use crate::Notes;
use crate::capture::{CommFacts, CommOp, CommRecord, RecordSource, Timeline};

/// The calls of a communicator: kind, and elements in and out.
type Calls = Vec<(String, u64, u64)>;

/// Gives ranks to timelines that lack them, from the communicator that all of them joined.
pub(crate) fn ranks(timelines: &mut [Timeline], notes: &mut Notes) {
    let size = timelines.iter().flat_map(|timeline| &timeline.joined).map(|joined| joined.size).max();
    let Some(size) = size else { return };
    let place = |timeline: &Timeline| {
        let joined = timeline.joined.iter().find(|joined| joined.size == size)?;
        Some((joined.name.clone(), joined.place))
    };
    let all: Option<Vec<(Arc<str>, u32)>> = timelines.iter().map(place).collect();
    let Some(all) = all.filter(|_| timelines.iter().all(|timeline| timeline.rank.is_none())) else { return };
    let one = all.iter().all(|(name, _)| *name == all[0].0);
    let distinct: BTreeSet<u32> = all.iter().map(|(_, place)| *place).collect();
    if !one || distinct.len() != all.len() {
        return;
    }
    for (timeline, (_, place)) in timelines.iter_mut().zip(&all) {
        timeline.rank = Some(*place);
        timeline.world_size = Some(size);
    }
    notes.add_many("ranks taken from the largest communicator that all of them joined", all.len() as u64, || {
        format!("communicator {} of {size} ranks", all[0].0)
    });
}

/// Completes what NCCL's ranges told: ranks of communicators, and what follows from their number.
pub(crate) fn join(timelines: &mut [Timeline], notes: &mut Notes) {
    let told = |record: &CommRecord| record.source == RecordSource::Range;
    if !timelines.iter().any(|timeline| timeline.records.iter().any(told)) {
        return;
    }
    alias(timelines, notes);
    let members = members(timelines, notes);
    let world =
        (0u32..).zip(timelines.iter()).map(|(i, t)| t.world_size.unwrap_or(0).max(t.rank.unwrap_or(i) + 1)).max();
    for timeline in timelines {
        for record in timeline.records.iter_mut().filter(|record| told(record)) {
            let ranks = record.facts.group_name.as_ref().and_then(|name| members.get(name));
            if let Some(ranks) = ranks {
                record.facts.group_size = u32::try_from(ranks.len()).ok();
                record.facts.ranks = Some(ranks.clone());
            }
            let count = ranks.map_or(u64::from(world.unwrap_or(1)), |ranks| ranks.len() as u64);
            if record.facts.op == CommOp::Collective(CollectiveKind::AllToAll) {
                // One message goes to each rank.
                record.facts.in_elements = record.facts.in_elements.saturating_mul(count);
                record.facts.out_elements = record.facts.in_elements;
            }
        }
        exchanges(timeline, notes);
    }
}

/// Gives communicators one name on all ranks where only their calls tell that they are one.
fn alias(timelines: &mut [Timeline], notes: &mut Notes) {
    let mut users: HashMap<Arc<str>, BTreeSet<usize>> = HashMap::new();
    let mut calls: BTreeMap<(usize, Arc<str>), Calls> = BTreeMap::new();
    for (t, timeline) in timelines.iter().enumerate() {
        for record in timeline.records.iter().filter(|record| record.source == RecordSource::Range) {
            let Some(name) = &record.facts.group_name else { continue };
            users.entry(name.clone()).or_default().insert(t);
            let facts = &record.facts;
            if let CommOp::Collective(kind) = facts.op {
                let call = (kind.name().to_owned(), facts.in_elements, facts.out_elements);
                calls.entry((t, name.clone())).or_default().push(call);
            }
        }
    }
    // Several timelines, and every number on one only: they are addresses.
    if timelines.len() < 2 || users.values().any(|users| users.len() > 1) {
        return;
    }
    let mut alike: BTreeMap<&Calls, Vec<&(usize, Arc<str>)>> = BTreeMap::new();
    for (user, calls) in &calls {
        alike.entry(calls).or_default().push(user);
    }
    let mut renamed: HashMap<(usize, Arc<str>), Arc<str>> = HashMap::new();
    for (calls, users) in alike {
        let ranks: BTreeSet<usize> = users.iter().map(|(t, _)| *t).collect();
        if users.len() < 2 || ranks.len() != users.len() {
            // Alone, or a rank has two that cannot be told apart.
            continue;
        }
        notes.add("communicators that only their equal calls show to be one", || {
            format!("{} calls on {} ranks", calls.len(), users.len())
        });
        renamed.extend(users.iter().map(|user| ((*user).clone(), users[0].1.clone())));
    }
    for (t, timeline) in timelines.iter_mut().enumerate() {
        for record in &mut timeline.records {
            let Some(name) = &mut record.facts.group_name else { continue };
            if let Some(new) = renamed.get(&(t, name.clone())) {
                *name = new.clone();
            }
        }
    }
}

/// Global ranks of each communicator, in its order, where they are known.
fn members(timelines: &[Timeline], notes: &mut Notes) -> HashMap<Arc<str>, Vec<u32>> {
    let mut joined: BTreeMap<Arc<str>, (u32, BTreeMap<u32, u32>)> = BTreeMap::new();
    let mut users: BTreeMap<Arc<str>, BTreeSet<u32>> = BTreeMap::new();
    let mut highest: HashMap<Arc<str>, u32> = HashMap::new();
    for (t, timeline) in timelines.iter().enumerate() {
        let rank = timeline.rank.unwrap_or(t as u32);
        for one in &timeline.joined {
            let known = joined.entry(one.name.clone()).or_insert((one.size, BTreeMap::new()));
            known.1.insert(one.place, rank);
        }
        for facts in timeline.records.iter().map(|record| &record.facts) {
            let Some(name) = &facts.group_name else { continue };
            users.entry(name.clone()).or_default().insert(rank);
            let peer = highest.entry(name.clone()).or_default();
            *peer = (*peer).max(facts.group_peer.unwrap_or(0));
        }
    }
    let mut members = HashMap::new();
    for (name, users) in users {
        let known = joined.get(&name).filter(|(size, places)| places.len() == *size as usize);
        if let Some((_, places)) = known {
            members.insert(name, places.values().copied().collect());
            continue;
        }
        // Used by one rank of the capture, or by fewer than its peers are: not all of its ranks are here.
        let peers = highest.get(&name).copied().unwrap_or(0) as usize;
        let size = joined.get(&name).map(|(size, _)| *size as usize);
        if users.len() < 2 || users.len() <= peers || size.is_some_and(|size| size != users.len()) {
            continue;
        }
        notes.add("communicators taken to be of the ranks that used them", || format!("{name}: ranks {users:?}"));
        members.insert(name, users.into_iter().collect());
    }
    members
}

/// Makes all-to-alls of the groups that send to and receive from every rank of their communicator once, this rank itself
/// included: nothing else does that.
fn exchanges(timeline: &mut Timeline, notes: &mut Notes) {
    let mut groups: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (place, record) in timeline.records.iter().enumerate() {
        if let (Some(launch), RecordSource::Range) = (record.external_id, record.source) {
            groups.entry(launch).or_default().push(place);
        }
    }
    let mut gone: BTreeSet<usize> = BTreeSet::new();
    for places in groups.into_values().filter(|places| places.len() > 1) {
        let facts: Vec<&CommFacts> = places.iter().map(|place| &timeline.records[*place].facts).collect();
        let Some(exchange) = exchange(&facts) else { continue };
        notes.add("groups of sends and receives between all ranks of a communicator, taken as all-to-alls", || {
            format!("{} sends and receives", facts.len())
        });
        let end_ns = places.iter().map(|place| timeline.records[*place].end_ns).max().unwrap_or(0);
        let first = &mut timeline.records[places[0]];
        (first.facts, first.end_ns) = (exchange, end_ns);
        gone.extend(&places[1..]);
    }
    let mut place = 0;
    timeline.records.retain(|_| {
        place += 1;
        !gone.contains(&(place - 1))
    });
}

fn exchange(facts: &[&CommFacts]) -> Option<CommFacts> {
    let first = facts.first()?;
    let count = first.ranks.as_ref()?.len();
    if facts.len() != 2 * count || facts.iter().any(|f| f.group_name != first.group_name || f.dtype != first.dtype) {
        return None;
    }
    let (mut sent, mut received) = (vec![None; count], vec![None; count]);
    for facts in facts {
        let peer = facts.group_peer? as usize;
        let (side, elements) = match facts.op {
            CommOp::Send { .. } => (&mut sent, facts.in_elements),
            CommOp::Recv { .. } => (&mut received, facts.out_elements),
            CommOp::Collective(_) | CommOp::Wait | CommOp::Other => return None,
        };
        // Twice to one rank is no all-to-all.
        if side.get_mut(peer)?.replace(elements).is_some() {
            return None;
        }
    }
    let whole = |side: Vec<Option<u64>>| side.into_iter().collect::<Option<Vec<u64>>>();
    let (sent, received) = (whole(sent)?, whole(received)?);
    let total = |side: &[u64]| side.iter().fold(0u64, |sum, one| sum.saturating_add(*one));
    Some(CommFacts {
        op: CommOp::Collective(CollectiveKind::AllToAll),
        in_elements: total(&sent),
        out_elements: total(&received),
        in_splits: sent,
        out_splits: received,
        group_peer: None,
        ..(*first).clone()
    })
}
