//! What an import could not read, stated in the pattern that builds on it: what was inferred, and what captures never tell
//! of a communication or tell only indirectly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use maestro_pattern::{Assumption, Confidence, Pattern};

use super::blocks::{Blocks, Rank, gathers_in_place};
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
    let mut state = |what: String, confidence| pattern.assumed.push(Assumption::new(what, confidence));
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

/// How often something was inferred, and for which blocks, by number.
#[derive(Default)]
struct Seen {
    count: usize,
    blocks: BTreeSet<usize>,
}

impl Seen {
    fn note(&mut self, block: usize, inferred: bool) {
        if inferred {
            self.count += 1;
            self.blocks.insert(block);
        }
    }
}

/// States what captures never tell of a call, where the pattern holds such calls.
pub(crate) fn arguments(pattern: &mut Pattern, ranks: &[Rank<'_>], blocks: &Blocks) {
    let [mut before, mut annotated, mut ordered, mut everyone, mut even, mut named, mut bytes]: [Seen; 7] =
        Default::default();
    let mut stand_ins: BTreeMap<Arc<str>, Seen> = BTreeMap::new();
    let (mut reduces, mut rooted, mut in_place) = (false, false, false);
    let events = ranks.iter().zip(&blocks.block_of).flat_map(|(rank, block_of)| {
        rank.events.events.iter().zip(block_of).map(move |(event, block)| (rank, event, *block))
    });
    for (rank, event, block) in events {
        let Some((kernel, _)) = rank.communication(event) else { continue };
        for (seen, trust) in
            [(&mut before, Trust::Surroundings), (&mut annotated, Trust::Annotation), (&mut ordered, Trust::Order)]
        {
            seen.note(block, !kernel.unknown && kernel.trust == trust);
        }
        everyone.note(block, !kernel.group_known);
        named.note(block, kernel.element == ElementSource::KernelName);
        bytes.note(block, kernel.element == ElementSource::Bytes);
        if let Some(recorded) = &kernel.stands_for {
            stand_ins.entry(recorded.clone()).or_default().note(block, true);
        }
        let Operation::Collective { collective, row } = &kernel.operation else { continue };
        let uneven = row.iter().any(|split| Some(split) != row.first());
        even.note(block, (uneven || kernel.splits_unknown) && collective.splits.is_empty());
        let told = rank.timeline.unit(kernel.activity).is_some();
        in_place |= gathers_in_place(collective, event) && !told;
        reduces |= collective.kind.reduces() && !kernel.unknown && !told;
        rooted |= collective.kind.rooted() && !told;
    }
    let assumed = &mut pattern.assumed;
    if ranks.iter().any(|rank| rank.timeline.stated.is_some()) {
        let what = "no start times recorded: worked out from dependencies, order and durations";
        assumed.push(Assumption::new(what, Confidence::Medium));
    }
    let named_blocks = |seen: &Seen| seen.blocks.iter().map(|block| blocks.blocks[*block].name.clone()).collect();
    let mut state = |seen: &Seen, what: String, confidence| {
        if seen.count > 0 {
            assumed.push(Assumption { what, confidence, blocks: named_blocks(seen) });
        }
    };
    let what =
        format!("peers and sizes of {} kernels without metadata taken from the records before them", before.count);
    state(&before, what, Confidence::High);
    let what =
        format!("operations and sizes of {} kernels taken from the annotations around their launch", annotated.count);
    state(&annotated, what, Confidence::High);
    let what = format!("{} kernels that nothing links to a record taken for those whose turn it was", ordered.count);
    state(&ordered, what, Confidence::Medium);
    let what = format!("{} kernels whose group is not recorded taken to be of all ranks", everyone.count);
    state(&everyone, what, Confidence::Medium);
    let what = format!("splits of {} uneven all-to-alls taken as even: not all ranks' are known", even.count);
    state(&even, what, Confidence::Low);
    let what = format!("element types of {} communications taken from their kernels' names", named.count);
    state(&named, what, Confidence::Medium);
    let what = format!("element types of {} communications not recorded, only bytes: u8 stands for them", bytes.count);
    state(&bytes, what, Confidence::Low);
    for (recorded, seen) in &stand_ins {
        let what =
            format!("element type {recorded} of {} communications stood in for by one of the same size", seen.count);
        state(seen, what, Confidence::High);
    }
    let of_kinds = match (reduces, in_place) {
        (true, true) => Some("reductions taken as sums, FSDP's all-gathers as in place"),
        (true, false) => Some("reductions taken as sums"),
        (false, true) => Some("FSDP's all-gathers taken as in place"),
        (false, false) => None,
    };
    assumed.extend(of_kinds.map(|what| Assumption::new(what, Confidence::High)));
    if rooted {
        assumed.push(Assumption::new("roots taken as the first rank of the team", Confidence::Low));
    }
}
