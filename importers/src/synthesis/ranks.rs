//! Ninth pass, the frame: which ranks share a schedule, and what each has to itself.
//!
//! Ranks whose events are the same blocks in the same order share one; what their captures disagree on about waiting is
//! left out, because a dependency that one rank's times contradict is none. Ranks that differ get roles by their
//! coordinate on an axis. Host time is the mean over the ranks that share it, and `host_skew` says how much faster or
//! slower each rank's host is. Where one rank's host was held up for long at one place (a late start, a pause of the
//! garbage collector), no factor tells that: it stands there as host time of that rank alone, so that the others wait
//! for it in a replay as they did in the step.

use std::collections::{BTreeSet, HashSet};

use maestro_pattern::{Axis, AxisShape, Pattern, Role, Selector, When, World};

use super::blocks::{SKEW, readable, rounded_factor};
use super::emit::{Leaves, Parts, Writer, leaves};
use super::fold::{Leaf, fold};
use super::fresh;
use super::gaps::beats;
use crate::Notes;

/// The axis that tells single ranks apart where no other does.
const EVERYONE: &str = "rank";

/// Most delays of single ranks: more lines than this say less than they cost.
const MOST_DELAYS: usize = 8;

/// The axis of all ranks.
fn everyone_axis(name: &str, world: u32) -> Axis {
    let shape = AxisShape::Teams(vec![(0..world).collect()]);
    Axis { name: name.to_owned(), shape, settings: Default::default(), place: Default::default() }
}

/// Ranks that share a schedule.
struct Class {
    /// Indices of the ranks.
    members: Vec<usize>,
    /// What all of them do, with the mean of their host times.
    leaves: Leaves,
    /// Host times of each member.
    hosts_ns: Vec<Vec<f64>>,
}

/// Host time of one rank alone: its index, before which leaf, and how much in nanoseconds.
type Delay = (usize, usize, f64);

/// Fills the schedule, or roles, of `pattern`, whose axes, blocks and lanes are there.
pub(crate) fn schedule(pattern: &mut Pattern, parts: &Parts<'_>, notes: &mut Notes) {
    let mut classes = classes(parts);
    let mut skew = vec![1.0; parts.world as usize];
    let mut delays: Vec<Vec<Delay>> = Vec::new();
    for class in &mut classes {
        let matters_ns = matters_ns(parts, class);
        let written = class.members.iter().all(|r| parts.ranks[*r].timeline.stated.is_some());
        let mut mine = delayed(class, matters_ns, written);
        mine.extend(late(parts, class, matters_ns));
        average(class);
        let mean: f64 = class.leaves.iter().map(|(_, host_ns)| host_ns).sum();
        for (member, hosts_ns) in class.members.iter().zip(&class.hosts_ns).filter(|_| mean > 0.0) {
            skew[parts.ranks[*member].rank as usize] = rounded_factor(hosts_ns.iter().sum::<f64>() / mean);
        }
        delays.push(mine);
    }
    let skewed = skew.iter().any(|factor: &f64| (factor - 1.0).abs() > SKEW);
    let factor = |r: usize| if skewed { skew[parts.ranks[r].rank as usize] } else { 1.0 };
    for (class, delays) in classes.iter_mut().zip(&mut delays) {
        delays.sort_by_key(|(r, at, _)| (*at, *r));
        for (r, at, ns) in delays.iter().rev() {
            // The rank's factor will multiply this as all other host time.
            let ns = readable(ns / factor(*r));
            class.leaves.insert(*at, (Leaf::Delay { rank: *r, ns }, 0.0));
        }
    }
    if skewed {
        pattern.host_skew.clone_from(&skew);
    }
    let Ok(mut world) = World::new(&pattern.axes, &[]) else { return };
    let name = fresh(EVERYONE, "_", |name| pattern.axes.iter().any(|axis| axis.name == name));
    let mut everyone = false;
    if world.size() < parts.world {
        // Ranks that communicate with none are in no team, and there all the same.
        everyone = true;
        pattern.axes.push(everyone_axis(&name, parts.world));
        let Ok(all) = World::new(&pattern.axes, &[]) else { return };
        world = all;
    }
    let single = classes.len() == 1;
    let members = with_uncaptured(parts, &classes, world.size());
    let listed = !single && members.iter().any(|ranks| role(&world, ranks).is_none());
    let alone = |r: usize| coordinates(&world, parts.ranks[r].rank);
    let unnamed = delays.iter().flatten().any(|(r, ..)| alone(*r).is_none());
    if listed {
        notes.add("steps whose ranks differ by no coordinate of one axis: roles list their ranks", || {
            format!("{members:?}")
        });
    }
    if (listed || unnamed) && !everyone {
        pattern.axes.push(everyone_axis(&name, world.size()));
    }
    let condition =
        |r: usize| alone(r).unwrap_or_else(|| When(vec![(name.clone(), Selector::These(vec![parts.ranks[r].rank]))]));
    for (class, ranks) in classes.into_iter().zip(members) {
        // A role of one rank needs no condition inside.
        let only = !single && ranks.len() == 1;
        let when = |r: usize| if only { When::default() } else { condition(r) };
        let span_ns = span_ns(parts, &class);
        let beats = beats(fold(class.leaves), span_ns / 100.0);
        let mut writer = Writer::new(&pattern.blocks, parts, &when, std::mem::take(&mut pattern.motifs));
        let items = writer.items(&beats);
        pattern.motifs = writer.motifs;
        if single {
            pattern.schedule = items;
            return;
        }
        let (role, when) = role(&world, &ranks).filter(|_| !listed).unwrap_or_else(|| {
            let role = format!("{name}_{}", ranks.first().copied().unwrap_or_default());
            (role, When(vec![(name.clone(), Selector::These(ranks))]))
        });
        pattern.roles.push(Role { name: role, when, schedule: items, place: Default::default() });
    }
}

fn classes(parts: &Parts<'_>) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for r in 0..parts.ranks.len() {
        let leaves = leaves(parts, r);
        let hosts_ns = leaves.iter().map(|(_, host_ns)| *host_ns).collect();
        match classes.iter_mut().find(|class| same_blocks(&class.leaves, &leaves)) {
            Some(class) => {
                meet(&mut class.leaves, &leaves);
                class.members.push(r);
                class.hosts_ns.push(hosts_ns);
            }
            None => classes.push(Class { members: vec![r], leaves, hosts_ns: vec![hosts_ns] }),
        }
    }
    classes
}

fn same_blocks(a: &Leaves, b: &Leaves) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((a, _), (b, _))| a.does_as(b))
}

/// Keeps of `common` what `other` agrees with.
fn meet(common: &mut Leaves, other: &Leaves) {
    for ((leaf, _), (other, _)) in common.iter_mut().zip(other) {
        if let (Leaf::Run { after, .. }, Leaf::Run { after: other, .. }) = (leaf, other) {
            after.retain(|back| other.contains(back));
        }
    }
}

/// Length of the class's step: from its beginning to the last end, of the rank for which that is longest.
fn span_ns(parts: &Parts<'_>, class: &Class) -> f64 {
    let span = |r: &usize| {
        let events = &parts.ranks[*r].events.events;
        let end = events.iter().map(|event| event.end_ns).max().unwrap_or(0);
        end - parts.ranks[*r].events.begin_ns().unwrap_or(end)
    };
    class.members.iter().map(span).max().unwrap_or(0) as f64
}

/// From where on a delay of one rank is worth a line, in nanoseconds.
fn matters_ns(parts: &Parts<'_>, class: &Class) -> f64 {
    const LEAST_NS: f64 = 20_000.0;
    (span_ns(parts, class) / 100.0).max(LEAST_NS)
}

/// Takes out of the members' host times where one was held up: at least `matters_ns` more than the others, and more than
/// twice their time. Gives the longest such delays.
///
/// Host times that were `written` down, not captured, are alike but for each rank's factor and for delays: there every
/// rank is measured by its own factor, so that a pattern that went through such a recording has the same delays.
fn delayed(class: &mut Class, matters_ns: f64, written: bool) -> Vec<Delay> {
    let factors = if written { factors(&class.hosts_ns) } else { vec![1.0; class.members.len()] };
    let least = if written { 1.0 } else { 2.0 };
    let mut delays: Vec<(f64, usize, usize, f64)> = Vec::new();
    for at in 0..class.leaves.len() {
        let mut all: Vec<f64> =
            class.hosts_ns.iter().zip(&factors).map(|(hosts_ns, factor)| hosts_ns[at] / factor).collect();
        all.sort_by(f64::total_cmp);
        // The lower median, so that of two ranks the faster is the measure.
        let usual = all[(all.len() - 1) / 2];
        for (m, hosts_ns) in class.hosts_ns.iter().enumerate() {
            let usual = usual * factors[m];
            let more = hosts_ns[at] - usual;
            if more > matters_ns && hosts_ns[at] > least * usual {
                delays.push((more, m, at, usual));
            }
        }
    }
    delays.sort_by(|a, b| b.0.total_cmp(&a.0));
    delays.truncate(MOST_DELAYS);
    let taken = delays.into_iter().map(|(more, m, at, usual)| {
        class.hosts_ns[m][at] = usual;
        (class.members[m], at, more)
    });
    taken.collect()
}

/// How much longer than the first rank each takes, most of the time.
fn factors(hosts_ns: &[Vec<f64>]) -> Vec<f64> {
    /// In shorter times the digits that were rounded off weigh too much.
    const LEAST_NS: f64 = 10_000.0;
    let first = hosts_ns.first().map(Vec::as_slice).unwrap_or_default();
    let factor = |mine: &Vec<f64>| {
        let pairs = mine.iter().zip(first).filter(|(mine, first)| mine.min(**first) >= LEAST_NS);
        let mut ratios: Vec<f64> = pairs.map(|(mine, first)| mine / first).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(1.0)
    };
    hosts_ns.iter().map(factor).collect()
}

/// The latest starts of ranks that began later than the first, if they matter, to a tenth of other delays: everything
/// that a rank does is late by this.
fn late(parts: &Parts<'_>, class: &Class, matters_ns: f64) -> Vec<Delay> {
    let mut all: Vec<Delay> = class.members.iter().map(|r| (*r, 0, parts.host * parts.late_ns[*r] as f64)).collect();
    all.retain(|(.., ns)| *ns > matters_ns / 10.0);
    all.sort_by(|a, b| b.2.total_cmp(&a.2));
    all.truncate(MOST_DELAYS);
    all
}

/// Sets the host times of the class to the means of its members.
fn average(class: &mut Class) {
    for (at, (_, host_ns)) in class.leaves.iter_mut().enumerate() {
        let sum: f64 = class.hosts_ns.iter().map(|hosts_ns| hosts_ns[at]).sum();
        *host_ns = sum / class.members.len() as f64;
    }
}

/// The ranks of each class. Ranks that were not captured do as the largest class does, which the pattern states.
fn with_uncaptured(parts: &Parts<'_>, classes: &[Class], world: u32) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> =
        classes.iter().map(|class| class.members.iter().map(|r| parts.ranks[*r].rank).collect()).collect();
    let captured: HashSet<u32> = all.iter().flatten().copied().collect();
    if let Some(largest) = all.iter_mut().rev().max_by_key(|ranks| ranks.len()) {
        largest.extend((0..world).filter(|rank| !captured.contains(rank)));
        largest.sort_unstable();
    }
    all
}

/// The condition that selects exactly one rank: its coordinate on as many axes as that takes. `None` if the axes do not
/// tell it from others.
fn coordinates(world: &World, rank: u32) -> Option<When> {
    let mut all = Vec::new();
    let mut alone: HashSet<u32> = (0..world.size()).collect();
    for (axis, described) in world.axes().iter().enumerate() {
        if alone.len() == 1 {
            break;
        }
        if let Some((_, place)) = world.seat(axis, rank) {
            alone.retain(|other| world.seat(axis, *other).is_some_and(|(_, theirs)| theirs == place));
            all.push((described.name.clone(), Selector::These(vec![place])));
        }
    }
    (alone.len() == 1).then_some(When(all))
}

/// Name and condition of a role that is a set of coordinates on one axis.
fn role(world: &World, ranks: &[u32]) -> Option<(String, When)> {
    for (axis, described) in world.axes().iter().enumerate() {
        let place = |rank: u32| world.seat(axis, rank).map(|(_, place)| place);
        let places: BTreeSet<u32> = ranks.iter().filter_map(|rank| place(*rank)).collect();
        let selected = (0..world.size()).filter(|rank| place(*rank).is_some_and(|p| places.contains(&p)));
        if selected.collect::<Vec<u32>>() != ranks {
            continue;
        }
        let places: Vec<u32> = places.into_iter().collect();
        let shown: Vec<String> = places.iter().map(u32::to_string).collect();
        let name = format!("{}_{}", described.name, shown.join("_"));
        return Some((name, When(vec![(described.name.clone(), Selector::These(places))])));
    }
    None
}
