//! Inference against what the profiler recorded of the same step.

use std::collections::HashSet;
use std::path::Path;

use super::*;
use crate::capture::Capture;
use crate::synthesis::unlinked::Links;
use crate::synthesis::{classify, resolve, steps};
use crate::{Reading, source};

/// Edges of every step of a timeline that neither lane order nor other edges imply, as (cause, effect) activities.
fn edges(capture: &Capture, t: usize) -> HashSet<(usize, usize)> {
    let timeline = &capture.timelines[t];
    let mut notes = Notes::default();
    let ranges = HostRanges::new(timeline);
    let links = Links::new(timeline, &ranges);
    let launches = &links.launches;
    let classified = vec![classify::classify(timeline, &links, &ranges, &[], &mut notes)];
    let alone = Capture { timelines: vec![timeline.clone()], ..capture.clone() };
    let (_, resolved) = resolve::resolve(&alone, &classified, 2, &mut notes);
    let name = |index| resolved[0].iter().find(|kernel| kernel.activity == index).map(|k| k.operation.name());
    let mut all = HashSet::new();
    for step in &steps::assign(timeline, launches).steps {
        let issues = issues(timeline, launches, &step.activities, name);
        let found = dependencies(timeline, &issues, &ranges, &mut notes);
        all.extend(reduced(timeline, &issues, &found.edges));
    }
    all
}

/// Without what lane order and the other edges imply.
fn reduced(timeline: &Timeline, issues: &[Issue], edges: &HashSet<(usize, usize)>) -> HashSet<(usize, usize)> {
    let mut kept = HashSet::new();
    // Per activity: everything that has ended when it begins.
    let mut before: std::collections::HashMap<usize, HashSet<usize>> = Default::default();
    let mut last: std::collections::HashMap<i64, usize> = Default::default();
    for issue in issues {
        let effect = issue.activity;
        let mut known = HashSet::new();
        if let Some(previous) = last.insert(timeline.activities[effect].stream, effect) {
            known.extend(before[&previous].iter().copied().chain([previous]));
        }
        let mut causes: Vec<usize> = edges.iter().filter(|(_, e)| *e == effect).map(|(cause, _)| *cause).collect();
        causes.sort_by_key(|cause| std::cmp::Reverse(timeline.activities[*cause].end_ns()));
        for cause in causes {
            if known.insert(cause) {
                known.extend(before.get(&cause).into_iter().flatten().copied());
                kept.insert((cause, effect));
            }
        }
        before.insert(effect, known);
    }
    kept
}

#[test]
fn what_is_inferred_is_what_was_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/captures/kineto/fsdp_large_sync");
    let capture = source::read(&[folder], &Reading::default(), &mut Notes::default()).unwrap();
    let mut hidden = capture.clone();
    hidden.timelines.iter_mut().for_each(|timeline| timeline.stream_waits.clear());
    let (mut right, mut inferred, mut recorded) = (0, 0, 0);
    let mut wrong: Vec<String> = Vec::new();
    for t in 0..capture.timelines.len() {
        let (truth, guess) = (edges(&capture, t), edges(&hidden, t));
        let timeline = &capture.timelines[t];
        let show = |index: usize| {
            let activity = &timeline.activities[index];
            let at_us = (activity.start_ns - timeline.activities[0].start_ns) / 1000;
            format!("{:.30} on stream {} at {at_us} us", activity.name, activity.stream)
        };
        wrong.extend(truth.difference(&guess).map(|(a, b)| format!("missed: {} -> {}", show(*a), show(*b))));
        wrong.extend(guess.difference(&truth).map(|(a, b)| format!("invented: {} -> {}", show(*a), show(*b))));
        right += truth.intersection(&guess).count();
        recorded += truth.len();
        inferred += guess.len();
    }
    assert!(recorded > 100, "the capture holds {recorded} edges");
    assert!(right * 100 >= 95 * inferred, "precision: {right} of {inferred}\n{}", wrong.join("\n"));
    assert!(right * 100 >= 95 * recorded, "recall: {right} of {recorded}\n{}", wrong.join("\n"));
}
