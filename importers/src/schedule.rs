//! When the nodes of recorded graphs run: a list schedule over all ranks at once. It knows no file format.
//!
//! A node starts when all that it depends on has ended and its lane is free; lanes take their nodes in the order of the
//! recording. Ranks run on one clock. A communication begins to move data when the last of its ranks is there, and then
//! lasts as long as each rank recorded: without this, ranks that are scheduled each for itself would end the same
//! collective at different times, and later passes would take that for their clocks. Communication that does not match
//! on its ranks, and nodes that wait for each other in a circle, are cut loose and counted.
//!
//! Integers all the way, so that equal graphs give equal times.

mod layout;
mod meetings;

use std::collections::{BTreeSet, HashMap};

use crate::Notes;
use crate::capture::{StatedLane, StatedNode, Timeline};
use meetings::Meetings;

/// A node of a rank: (timeline, place).
type At = (usize, usize);

/// When a node runs.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// When all that it depends on on the host has ended: a launch.
    asked_ns: i64,
    /// When its lane was free, for host nodes.
    free_ns: i64,
    start_ns: i64,
    end_ns: i64,
}

/// Gives times to all timelines that are recorded graphs.
pub(crate) fn schedule(timelines: &mut [Timeline], notes: &mut Notes) {
    let graphs: Vec<usize> = (0..timelines.len()).filter(|t| timelines[*t].stated.is_some()).collect();
    if graphs.is_empty() {
        return;
    }
    let orders: Vec<Vec<u32>> = graphs.iter().map(|t| nodes(&timelines[*t])).map(|nodes| order(nodes, notes)).collect();
    let meetings = Meetings::gather(&graphs.iter().map(|t| &timelines[*t]).collect::<Vec<_>>(), &orders, notes);
    let times =
        Run::new(&graphs.iter().map(|t| nodes(&timelines[*t])).collect::<Vec<_>>(), &orders, meetings).finish(notes);
    for ((t, order), times) in graphs.into_iter().zip(&orders).zip(times) {
        layout::fill(&mut timelines[t], order, &times);
    }
}

fn nodes(timeline: &Timeline) -> &[StatedNode] {
    timeline.stated.as_deref().map(|stated| stated.nodes.as_slice()).unwrap_or_default()
}

/// The nodes so that each stands behind all that it depends on, else in the order of the recording. What closes a
/// circle is passed over.
fn order(nodes: &[StatedNode], notes: &mut Notes) -> Vec<u32> {
    let mut order = Vec::with_capacity(nodes.len());
    // 0: not met, 1: being looked at, 2: placed.
    let mut state = vec![0u8; nodes.len()];
    let mut stack: Vec<(u32, usize)> = Vec::new();
    for root in 0..nodes.len() as u32 {
        if state[root as usize] == 0 {
            state[root as usize] = 1;
            stack.push((root, 0));
        }
        while let Some((node, next)) = stack.last_mut() {
            match nodes[*node as usize].after.get(*next) {
                Some(before) => {
                    *next += 1;
                    match state[*before as usize] {
                        0 => {
                            state[*before as usize] = 1;
                            stack.push((*before, 0));
                        }
                        1 => notes.add("dependencies that close a circle, left out", || {
                            format!("node {} of the file on node {before}", *node)
                        }),
                        _ => {}
                    }
                }
                None => {
                    state[*node as usize] = 2;
                    order.push(*node);
                    stack.pop();
                }
            }
        }
    }
    order
}

/// A schedule in the making.
struct Run<'a> {
    graphs: &'a [&'a [StatedNode]],
    meetings: Meetings,
    times: Vec<Vec<Times>>,
    /// What each node still waits for.
    missing: Vec<Vec<u32>>,
    /// Who waits for each node.
    behind: Vec<Vec<Vec<u32>>>,
    /// Nodes that can start, and which have.
    ready: Vec<At>,
    there: Vec<Vec<bool>>,
    /// Those that wait for the others of their meeting: since when, and which.
    waiting: BTreeSet<(i64, usize, usize)>,
    done: Vec<Vec<bool>>,
}

impl<'a> Run<'a> {
    fn new(graphs: &'a [&'a [StatedNode]], orders: &[Vec<u32>], meetings: Meetings) -> Self {
        let table = |value| graphs.iter().map(|nodes| vec![value; nodes.len()]).collect::<Vec<Vec<bool>>>();
        let mut run = Self {
            graphs,
            meetings,
            times: graphs.iter().map(|nodes| vec![Times::default(); nodes.len()]).collect(),
            missing: graphs.iter().map(|nodes| vec![0; nodes.len()]).collect(),
            behind: graphs.iter().map(|nodes| vec![Vec::new(); nodes.len()]).collect(),
            ready: Vec::new(),
            there: table(false),
            waiting: BTreeSet::new(),
            done: table(false),
        };
        for (g, order) in orders.iter().enumerate() {
            let mut last: HashMap<StatedLane, u32> = HashMap::new();
            let mut placed = vec![false; order.len()];
            for node in order {
                let mut before: BTreeSet<u32> =
                    graphs[g][*node as usize].after.iter().copied().filter(|before| placed[*before as usize]).collect();
                before.extend(last.insert(graphs[g][*node as usize].lane, *node));
                placed[*node as usize] = true;
                run.missing[g][*node as usize] = before.len() as u32;
                before.into_iter().for_each(|before| run.behind[g][before as usize].push(*node));
            }
            let free = order.iter().filter(|node| run.missing[g][**node as usize] == 0);
            run.ready.extend(free.map(|node| (g, *node as usize)));
        }
        run
    }

    fn finish(mut self, notes: &mut Notes) -> Vec<Vec<Times>> {
        loop {
            while let Some(at) = self.ready.pop() {
                self.start(at);
            }
            let Some((_, g, n)) = self.waiting.first().copied() else { return self.times };
            let stuck = (g, n);
            notes.add("communications whose ranks wait for each other in a circle, scheduled apart", || {
                format!("node {} of a file", stuck.1)
            });
            self.end(&[stuck]);
        }
    }

    /// All that the node waits for has ended.
    fn start(&mut self, at: At) {
        let (g, n) = at;
        let times = &mut self.times[g][n];
        times.start_ns = times.start_ns.max(times.asked_ns);
        self.there[g][n] = true;
        match self.meetings.of(at) {
            None => self.end(&[at]),
            Some(members) if members.iter().all(|(g, n)| self.there[*g][*n]) => {
                let members = members.to_vec();
                self.end(&members);
            }
            Some(_) => {
                self.waiting.insert((self.times[g][n].start_ns, g, n));
            }
        }
    }

    /// All of these are there.
    fn end(&mut self, members: &[At]) {
        let latest_ns = members.iter().map(|(g, n)| self.times[*g][*n].start_ns).max().unwrap_or(0);
        for &(g, n) in members {
            if std::mem::replace(&mut self.done[g][n], true) {
                continue;
            }
            self.waiting.remove(&(self.times[g][n].start_ns, g, n));
            let mine = &self.graphs[g][n];
            self.times[g][n].end_ns = latest_ns.saturating_add(mine.duration_ns);
            let (asked_ns, end_ns) = (self.times[g][n].asked_ns, self.times[g][n].end_ns);
            for behind in std::mem::take(&mut self.behind[g][n]) {
                let next = &mut self.times[g][behind as usize];
                next.start_ns = next.start_ns.max(end_ns);
                // What is launched behind another is not asked for before it.
                next.asked_ns = next.asked_ns.max(match mine.lane {
                    StatedLane::Host(_) => end_ns,
                    StatedLane::Stream(_) => asked_ns,
                });
                if mine.lane == self.graphs[g][behind as usize].lane {
                    next.free_ns = next.free_ns.max(end_ns);
                }
                self.missing[g][behind as usize] -= 1;
                if self.missing[g][behind as usize] == 0 {
                    self.ready.push((g, behind as usize));
                }
            }
        }
    }
}
