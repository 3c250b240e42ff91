//! Names for streams. Streams have numbers, and not the same ones on every rank; lanes are called by what runs on them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use maestro_pattern::Lane;

use super::blocks::Rank;
use super::fresh;

/// The lanes of the pattern, and the lane of each stream of each rank.
pub(crate) fn lanes(ranks: &[Rank<'_>]) -> (Vec<Lane>, Vec<HashMap<i64, usize>>) {
    let mut lanes: Vec<Lane> = Vec::new();
    let mut lane_of = Vec::new();
    for rank in ranks {
        let mut mine = HashMap::new();
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for (stream, stem) in stems(rank) {
            let told = rank.timeline.stated.as_ref().and_then(|stated| stated.lanes.get(&stream));
            let stem = told.map_or(stem, |name| name.to_string());
            let name = fresh(&stem, "", |name| taken.contains(name));
            taken.insert(name.clone());
            let lane = lanes.iter().position(|lane| lane.name == name).unwrap_or_else(|| {
                lanes.push(Lane { name, ..Lane::default() });
                lanes.len() - 1
            });
            mine.insert(stream, lane);
        }
        lane_of.push(mine);
    }
    (lanes, lane_of)
}

/// What each stream is for, in the order of first use.
fn stems(rank: &Rank<'_>) -> Vec<(i64, String)> {
    let mut order: Vec<i64> = Vec::new();
    let mut compute: BTreeMap<i64, i64> = BTreeMap::new();
    let mut carried: HashMap<i64, BTreeSet<&str>> = HashMap::new();
    for event in &rank.events.events {
        if !order.contains(&event.stream) {
            order.push(event.stream);
        }
        match rank.communication(event) {
            Some((resolved, _)) => {
                carried.entry(event.stream).or_default().insert(resolved.operation.name());
            }
            None => *compute.entry(event.stream).or_default() += event.end_ns - event.start_ns,
        }
    }
    let most = compute.iter().max_by_key(|(_, time)| **time).map(|(stream, _)| *stream);
    let stem = |stream: i64| match carried.get(&stream) {
        _ if most == Some(stream) => "compute".to_owned(),
        None => "side".to_owned(),
        Some(kinds) if kinds.len() == 1 => kinds.iter().next().copied().unwrap_or("comm").to_owned(),
        Some(_) => "comm".to_owned(),
    };
    order.into_iter().map(|stream| (stream, stem(stream))).collect()
}
