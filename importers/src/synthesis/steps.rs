//! First pass: which activity belongs to which step, and which step is taken.
//!
//! An activity belongs to the step in which the host launched it, not the one in which it ran: near the end of a step
//! the device lags behind by milliseconds. Activities without a recorded launch go by their own start, but for those
//! that ran before anything launched in the recording did on their stream: they were launched before it began.

use std::collections::HashMap;
use std::sync::Arc;

use crate::capture::{Capture, Timeline};
use crate::{Error, Result};

/// The activities of one step of one timeline.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Name of its mark, or [`WHOLE`].
    pub name: Arc<str>,
    /// Indices of its activities, by start.
    pub activities: Vec<usize>,
}

/// Name of the one step of a capture without marks.
pub(crate) const WHOLE: &str = "whole";

/// Steps of one timeline, and what lies outside all of them.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    pub steps: Vec<Step>,
    /// Indices of activities that no step launched.
    pub outside: Vec<usize>,
}

/// Sorts the activities of `timeline` into its steps.
pub(crate) fn assign(timeline: &Timeline, launches: &[Option<usize>]) -> Steps {
    if timeline.steps.is_empty() {
        let activities = (0..timeline.activities.len()).collect();
        let step = Step { name: WHOLE.into(), activities };
        return Steps { steps: vec![step], outside: Vec::new() };
    }
    // Marks may share a name (a profiler that was started twice): the second is another step.
    let mut taken: HashMap<&str, usize> = HashMap::new();
    let mut steps: Vec<Step> = Vec::with_capacity(timeline.steps.len());
    for mark in &timeline.steps {
        let count = taken.entry(&mark.name).or_default();
        *count += 1;
        let name = if *count == 1 { mark.name.clone() } else { format!("{} ({count})", mark.name).into() };
        steps.push(Step { name, activities: Vec::new() });
    }
    let mut first_launched: HashMap<i64, i64> = HashMap::new();
    for (activity, _) in timeline.activities.iter().zip(launches).filter(|(_, launch)| launch.is_some()) {
        first_launched.entry(activity.stream).or_insert(activity.start_ns);
    }
    let mut outside = Vec::new();
    for (index, activity) in timeline.activities.iter().enumerate() {
        let issued = match launches[index] {
            Some(call) => timeline.calls[call].start_ns,
            None if first_launched.get(&activity.stream).is_some_and(|first| activity.start_ns < *first) => {
                outside.push(index);
                continue;
            }
            None => activity.start_ns,
        };
        // Marks do not overlap: the last one that began before is the only candidate.
        let after = timeline.steps.partition_point(|mark| mark.start_ns <= issued);
        match after.checked_sub(1).filter(|i| issued <= timeline.steps[*i].end_ns) {
            Some(step) => steps[step].activities.push(index),
            None => outside.push(index),
        }
    }
    Steps { steps, outside }
}

/// Chooses the step to import: the one named `wanted`, or the last one of typical length.
///
/// Typical is within a tenth of the median over the steps that every rank has; a step's length is its longest mark, or
/// what it took on the device, where the host ran ahead of that.
///
/// # Errors
/// No step has that name, or no step is in all timelines.
pub(crate) fn choose(capture: &Capture, steps: &[Steps], wanted: Option<&str>) -> Result<Arc<str>> {
    let Some(first) = steps.first() else { return Err(Error::NoRanks) };
    let everywhere = |name: &str| steps.iter().all(|s| s.steps.iter().any(|step| &*step.name == name));
    let common: Vec<&Step> =
        first.steps.iter().filter(|step| everywhere(&step.name) && !step.activities.is_empty()).collect();
    if let Some(wanted) = wanted {
        // `--step 2` is short for `ProfilerStep#2` or `step 2`.
        let short = ["#", " "].map(|joint| format!("{joint}{wanted}"));
        let named = |step: &&&Step| &*step.name == wanted || short.iter().any(|end| step.name.ends_with(end));
        let found = common.iter().find(named);
        return found.map(|step| step.name.clone()).ok_or_else(|| Error::NoSuchStep {
            wanted: wanted.to_owned(),
            known: common.iter().map(|step| step.name.to_string()).collect(),
        });
    }
    // The marks of a timeline are in the order of its steps.
    let length = |name: &str| {
        let mark = |(timeline, steps): (&Timeline, &Steps)| {
            let place = steps.steps.iter().position(|step| &*step.name == name)?;
            let marked = timeline.steps.get(place).map(|mark| mark.end_ns - mark.start_ns);
            marked.max(span(timeline, &steps.steps[place].activities))
        };
        capture.timelines.iter().zip(steps).filter_map(mark).max().unwrap_or(0)
    };
    let mut lengths: Vec<i64> = common.iter().map(|step| length(&step.name)).collect();
    lengths.sort_unstable();
    let Some(median) = lengths.get(lengths.len() / 2).copied() else {
        return Err(Error::NoCommonStep { known: first.steps.iter().map(|step| step.name.to_string()).collect() });
    };
    let typical = common.iter().rev().find(|step| (length(&step.name) - median).abs() <= median / 10);
    Ok(typical.or(common.last()).map_or_else(|| first.steps[0].name.clone(), |step| step.name.clone()))
}

/// From the first start to the last end.
fn span(timeline: &Timeline, activities: &[usize]) -> Option<i64> {
    let all = || activities.iter().map(|index| &timeline.activities[*index]);
    let start = all().map(|activity| activity.start_ns).min()?;
    all().map(|activity| activity.end_ns() - start).max()
}
