//! Steps of a capture without marks, where its kernels repeat.
//!
//! A kernel that every rank runs once a step cuts the capture into equal parts, in the order in which the host launched:
//! the same names in the same order between any two of its runs. That is only taken if it holds without exception, for
//! at least three parts, with the same kernel on all ranks; of several such kernels the one with the longest pause
//! before it, because that is where a step begins. Else the whole capture is one step.

use std::collections::HashMap;
use std::sync::Arc;

use super::steps::{Step, Steps};
use super::unlinked::Links;
use crate::Notes;
use crate::capture::{ActivityKind, Timeline};

/// Parts that a repetition must have to be one.
const FEWEST: usize = 3;

/// No training step is shorter; what repeats faster is a loop inside one.
const SHORTEST_NS: i64 = 200_000;

/// What a timeline did, in the order of launches.
struct Sequence<'a> {
    /// Indices of activities.
    order: Vec<usize>,
    /// When each was launched, by place.
    issued_ns: Vec<i64>,
    names: Vec<&'a Arc<str>>,
    /// Places of each kernel.
    places: HashMap<&'a str, Vec<usize>>,
}

/// The steps of each timeline, if all repeat.
pub(crate) fn steps(timelines: &[Timeline], links: &[Links], notes: &mut Notes) -> Option<Vec<Steps>> {
    if timelines.is_empty() || timelines.iter().any(|timeline| !timeline.steps.is_empty()) {
        return None;
    }
    let sequences: Vec<Sequence<'_>> = timelines.iter().zip(links).map(|(t, l)| Sequence::new(t, l)).collect();
    let (first, others) = sequences.split_first()?;
    let pause = |name: &str| sequences.iter().map(|sequence| sequence.pause_ns(name)).sum::<i64>();
    let mut candidates: Vec<&str> = first.places.keys().copied().collect();
    candidates.retain(|name| {
        let parts = first.parts(name);
        parts >= FEWEST && others.iter().all(|sequence| sequence.parts(name) == parts)
    });
    let marker = candidates.into_iter().max_by_key(|name| (pause(name), *name))?;
    let parts = first.parts(marker);
    notes.add("captures without step marks, cut where their kernels repeat", || {
        format!("{parts} repetitions of {} activities, each from {marker} on", first.length(marker))
    });
    Some(sequences.iter().map(|sequence| sequence.cut(marker, parts)).collect())
}

impl<'a> Sequence<'a> {
    fn new(timeline: &'a Timeline, links: &Links) -> Self {
        let issued = |index: usize| {
            links.launches[index].map_or(timeline.activities[index].start_ns, |call| timeline.calls[call].start_ns)
        };
        let mut order: Vec<usize> = (0..timeline.activities.len()).collect();
        order.sort_by_key(|index| (issued(*index), *index));
        let names: Vec<&Arc<str>> = order.iter().map(|index| &timeline.activities[*index].name).collect();
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (place, index) in order.iter().enumerate() {
            if matches!(timeline.activities[*index].kind, ActivityKind::Kernel { .. }) {
                places.entry(names[place]).or_default().push(place);
            }
        }
        Self { issued_ns: order.iter().map(|index| issued(*index)).collect(), order, names, places }
    }

    fn at(&self, name: &str) -> &[usize] {
        self.places.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Activities from one run of a kernel to the next.
    fn length(&self, name: &str) -> usize {
        match self.at(name) {
            [first, second, ..] => second - first,
            _ => 0,
        }
    }

    /// How many equal parts a kernel cuts this into; 0 if they differ. What follows its last run is a part if it is
    /// whole.
    fn parts(&self, name: &str) -> usize {
        let (places, length) = (self.at(name), self.length(name));
        let (Some(first), true) = (places.first(), length > 0) else { return 0 };
        if places.windows(2).any(|pair| pair[1] - pair[0] != length) {
            return 0;
        }
        let model = &self.names[*first..first + length];
        let same = |place: &usize| self.names.get(*place..place + length) == Some(model);
        let (last, inner) = (places[places.len() - 1], &places[..places.len() - 1]);
        let apart_ns = (self.issued_ns[last] - self.issued_ns[*first]) / inner.len().max(1) as i64;
        let repeats = apart_ns >= SHORTEST_NS && inner.iter().all(same);
        if repeats { inner.len() + usize::from(same(&last)) } else { 0 }
    }

    /// The time before the launches of a kernel in which nothing was launched, all together.
    fn pause_ns(&self, name: &str) -> i64 {
        let places = self.at(name).iter().filter(|place| **place > 0);
        places.map(|place| self.issued_ns[*place] - self.issued_ns[place - 1]).sum()
    }

    fn cut(&self, name: &str, parts: usize) -> Steps {
        let length = self.length(name);
        let starts = &self.at(name)[..parts];
        let steps = starts.iter().enumerate().map(|(n, start)| {
            let mut activities = self.order[*start..start + length].to_vec();
            activities.sort_unstable();
            Step { name: format!("repetition#{}", n + 1).into(), activities }
        });
        let end = starts.last().map_or(0, |start| start + length);
        let before = starts.first().map_or(&[][..], |start| &self.order[..*start]);
        let outside = before.iter().chain(&self.order[end..]).copied().collect();
        Steps { steps: steps.collect(), outside }
    }
}
