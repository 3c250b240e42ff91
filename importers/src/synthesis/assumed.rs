//! What an import could not read, stated in the pattern that builds on it: what was inferred, and what captures never tell
//! of a communication or tell only indirectly.

use std::collections::BTreeMap;
use std::sync::Arc;

use maestro_pattern::{Assumption, Confidence, Pattern};

use super::blocks::{Rank, gathers_in_place};
use super::classify::Trust;
use super::resolve::Operation;
use super::summary::CollectiveSummary;
use crate::capture::ElementSource;

/// States what was inferred.
pub(crate) fn inferred(
    pattern: &mut Pattern,
    (recorded, inferred): (usize, usize),
    collectives: &[CollectiveSummary],
    chosen: &str,
    captured: u32,
    world: u32,
) {
    let mut state = |what: String, confidence| pattern.assumed.push(Assumption { what, confidence });
    match (recorded, inferred) {
        (_, 0) => {}
        (0, _) => {
            state("dependencies between lanes inferred from the host's calls and the times".into(), Confidence::Medium);
        }
        (read, guessed) => state(
            format!(
                "what {guessed} of {} recorded stream waits were for inferred from the host's calls",
                read + guessed
            ),
            Confidence::Medium,
        ),
    }
    let chosen = || collectives.iter().filter(|row| &*row.step == chosen);
    let unknown: usize = chosen().filter(|row| row.size.is_none()).map(|row| row.count).sum();
    if unknown > 0 {
        let what = "communication kernels have no known size; those of no known operation stand as all-reduces; write their \
                    sizes into the pattern, or import a capture that has them";
        state(format!("{unknown} {what}"), Confidence::Low);
    }
    if captured < world {
        state(format!("{} of {world} ranks were not captured and do as the others", world - captured), Confidence::Low);
    }
}

/// States what captures never tell of a call, where the pattern holds such calls.
pub(crate) fn arguments(pattern: &mut Pattern, ranks: &[Rank<'_>]) {
    let events = ranks.iter().flat_map(|rank| rank.events.events.iter().map(move |event| (rank, event)));
    let (mut before, mut annotated, mut ordered, mut everyone) = (0, 0, 0, 0);
    let (mut even, mut named, mut bytes) = (0, 0, 0);
    let mut stand_ins: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    let (mut reduces, mut rooted, mut in_place) = (false, false, false);
    for (rank, event) in events {
        let Some((kernel, _)) = rank.communication(event) else { continue };
        if !kernel.unknown {
            before += usize::from(kernel.trust == Trust::Surroundings);
            annotated += usize::from(kernel.trust == Trust::Annotation);
            ordered += usize::from(kernel.trust == Trust::Order);
        }
        everyone += usize::from(!kernel.group_known);
        named += usize::from(kernel.element == ElementSource::KernelName);
        bytes += usize::from(kernel.element == ElementSource::Bytes);
        if let Some(recorded) = &kernel.stands_for {
            *stand_ins.entry(recorded.clone()).or_insert(0usize) += 1;
        }
        let Operation::Collective { collective, row } = &kernel.operation else { continue };
        let uneven = row.iter().any(|split| Some(split) != row.first());
        even += usize::from((uneven || kernel.splits_unknown) && collective.splits.is_empty());
        let told = rank.timeline.unit(kernel.activity).is_some();
        in_place |= gathers_in_place(collective, event) && !told;
        reduces |= collective.kind.reduces() && !kernel.unknown && !told;
        rooted |= collective.kind.rooted() && !told;
    }
    let mut state = |what: String, confidence| pattern.assumed.push(Assumption { what, confidence });
    if ranks.iter().any(|rank| rank.timeline.stated.is_some()) {
        let what = "no start times recorded: worked out from dependencies, order and durations";
        state(what.into(), Confidence::Medium);
    }
    if before > 0 {
        let what = format!("peers and sizes of {before} kernels without metadata taken from the records before them");
        state(what, Confidence::High);
    }
    if annotated > 0 {
        let what =
            format!("operations and sizes of {annotated} kernels taken from the annotations around their launch");
        state(what, Confidence::High);
    }
    if ordered > 0 {
        let what = format!("{ordered} kernels that nothing links to a record taken for those whose turn it was");
        state(what, Confidence::Medium);
    }
    if everyone > 0 {
        let what = format!("{everyone} kernels whose group is not recorded taken to be of all ranks");
        state(what, Confidence::Medium);
    }
    match (reduces, in_place) {
        (true, true) => state("reductions taken as sums, FSDP's all-gathers as in place".into(), Confidence::High),
        (true, false) => state("reductions taken as sums".into(), Confidence::High),
        (false, true) => state("FSDP's all-gathers taken as in place".into(), Confidence::High),
        (false, false) => {}
    }
    if rooted {
        state("roots taken as the first rank of the team".into(), Confidence::Low);
    }
    if even > 0 {
        state(format!("splits of {even} uneven all-to-alls taken as even: not all ranks' are known"), Confidence::Low);
    }
    if named > 0 {
        let what = format!("element types of {named} communications taken from their kernels' names");
        state(what, Confidence::Medium);
    }
    if bytes > 0 {
        let what = format!("element types of {bytes} communications not recorded, only bytes: u8 stands for them");
        state(what, Confidence::Low);
    }
    for (recorded, count) in stand_ins {
        let what = format!("element type {recorded} of {count} communications stood in for by one of the same size");
        state(what, Confidence::High);
    }
}
