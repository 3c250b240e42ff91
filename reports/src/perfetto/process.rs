//! One rank of one source: its executions as slices on tracks, and the arrows between them.
//!
//! Slices of a track must nest. Executions of a lane follow each other, since a lane is a queue; but measurements come
//! from files, and what overlaps on its lane all the same goes to a further track of it, so that no slice is ever bent.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use maestro_pattern::{Dtype, Measurement, State, Work};

use super::Traced;
use super::turns::{Key, Turns};

/// A track of a process: alone or not, lane, and how many of the lane's tracks are before it.
pub type TrackKey = (bool, usize, usize);

/// A rank of a source.
pub struct Process<'a> {
    /// What the group is called.
    pub name: String,
    /// In their order, with their names.
    pub tracks: BTreeMap<TrackKey, String>,
    /// In the order of their begins, a cause before what it holds up.
    pub slices: Vec<Slice<'a>>,
    /// Iterations of turns: begin, last end, and the name of what ran.
    pub turns: BTreeMap<Key, Iteration>,
    /// (cause, effect), as indices into `slices`.
    pub arrows: Vec<(usize, usize)>,
}

/// An execution.
pub struct Slice<'a> {
    /// What was measured.
    pub of: &'a Measurement,
    /// On the timeline.
    pub begin_ns: u64,
    /// On the timeline.
    pub end_ns: u64,
    /// End of the waiting at its begin, if it waited.
    pub wait_end_ns: Option<u64>,
    /// Where it is drawn.
    pub track: TrackKey,
    /// The block's kind.
    pub kind: &'static str,
    /// Its element type, where it has one alone.
    pub dtype: Option<&'static str>,
    issue: Option<u32>,
}

/// One iteration of a turn on this rank.
pub struct Iteration {
    /// `step`, or the block alone.
    pub name: String,
    /// On the timeline.
    pub begin_ns: u64,
    /// On the timeline.
    pub end_ns: u64,
}

impl<'a> Process<'a> {
    /// `measurements` of `rank`, at the places of their turns.
    pub fn new(traced: &Traced<'_>, rank: u32, measurements: &[&'a Measurement], turns: &Turns<'_>) -> Self {
        let mut lanes: HashMap<&str, usize> =
            traced.pattern.lanes.iter().enumerate().map(|(n, lane)| (lane.name.as_str(), n)).collect();
        // Run folders may name lanes that their pattern does not: those come last, by name.
        let unknown: BTreeSet<&str> =
            measurements.iter().map(|m| &*m.lane).filter(|lane| !lanes.contains_key(lane)).collect();
        for lane in unknown {
            lanes.insert(lane, lanes.len());
        }
        let mut this = Self {
            name: format!("{} rank {rank}", traced.name),
            tracks: BTreeMap::new(),
            slices: Vec::with_capacity(measurements.len()),
            turns: BTreeMap::new(),
            arrows: Vec::new(),
        };
        let causes = traced.causes(rank);
        for &of in measurements {
            let key = turns.key(of);
            let offset_ns = turns.offset_ns(key);
            let begin_ns = offset_ns.saturating_add(of.start_ns);
            let end_ns = offset_ns.saturating_add(of.end_ns);
            let work = traced.pattern.blocks.get(traced.block(&of.block)).map(|block| &block.work);
            let waited = of.wait_ns.filter(|wait_ns| *wait_ns > 0);
            this.slices.push(Slice {
                of,
                begin_ns,
                end_ns,
                // Clocks of captures are aligned with an error, so a wait may seem to outlast its execution.
                wait_end_ns: waited.map(|wait_ns| begin_ns.saturating_add(wait_ns).min(end_ns)),
                track: (of.state == State::Alone, lanes[&*of.lane], 0),
                kind: work.map_or("unknown", Work::kind),
                dtype: work.and_then(Work::dtype).map(Dtype::name),
                issue: causes.and_then(|causes| causes.issue(&of.block, of.instance)),
            });
            let iteration = this.turns.entry(key).or_insert_with(|| Iteration {
                name: match of.state {
                    State::Overlapped => "step".to_owned(),
                    State::Alone => format!("{} alone", of.block),
                },
                begin_ns: offset_ns,
                end_ns,
            });
            iteration.end_ns = iteration.end_ns.max(end_ns);
        }
        // Of equal begins the one issued first: a cause that took no time comes before what it held up.
        this.slices.sort_by_key(|s| (s.begin_ns, s.issue.unwrap_or(u32::MAX), s.end_ns, s.track));
        this.spread();
        if let Some(causes) = causes {
            this.connect(|issue| causes.of(issue));
        }
        this
    }

    /// Gives every slice the first track of its lane that is free.
    fn spread(&mut self) {
        let mut ends_ns: HashMap<(bool, usize), Vec<u64>> = HashMap::new();
        for slice in &mut self.slices {
            let (alone, lane, _) = slice.track;
            let ends_ns = ends_ns.entry((alone, lane)).or_default();
            let free = ends_ns.iter().position(|end_ns| *end_ns <= slice.begin_ns).unwrap_or(ends_ns.len());
            match ends_ns.get_mut(free) {
                Some(end_ns) => *end_ns = slice.end_ns,
                None => ends_ns.push(slice.end_ns),
            }
            slice.track.2 = free;
            self.tracks.entry(slice.track).or_insert_with(|| {
                let alone = if alone { " alone" } else { "" };
                let number = if free == 0 { String::new() } else { format!(" ({})", free + 1) };
                format!("{}{alone}{number}", slice.of.lane)
            });
        }
    }

    /// Finds the arrows, given what each instruction waits for. Only inside a step: alone, nothing waits.
    fn connect<'c>(&mut self, causes: impl Fn(u32) -> &'c [u32]) {
        let step = |s: &Slice<'_>| {
            (s.of.state == State::Overlapped).then_some(s.issue?).map(|issue| (s.of.round, s.of.iteration, issue))
        };
        let at: HashMap<(u32, u32, u32), usize> =
            self.slices.iter().enumerate().filter_map(|(n, slice)| Some((step(slice)?, n))).collect();
        for (effect, slice) in self.slices.iter().enumerate() {
            let Some((round, iteration, issue)) = step(slice) else { continue };
            for cause in causes(issue) {
                let Some(&cause) = at.get(&(round, iteration, *cause)) else { continue };
                if self.slices[cause].end_ns <= slice.begin_ns {
                    self.arrows.push((cause, effect));
                }
            }
        }
    }
}
