//! One step of each run, lane by lane, and where its communication is exposed.

use std::collections::BTreeMap;

use maestro_pattern::State;
use serde::Serialize;

use super::sources::{Blocks, Source};
use super::typical;
use crate::{Role, Run};

/// Most executions of a run that a page holds. At some 16 bytes each they take two thirds of a megabyte.
const MOST: usize = 40_000;

/// A step of one run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Timeline {
    /// Number of the run.
    run: usize,
    round: u32,
    iteration: u32,
    step_ns: u64,
    ranks: Vec<Rank>,
    /// What is not drawn, as a sentence.
    left_out: Option<String>,
}

/// What one rank did.
#[derive(Debug, PartialEq, Serialize)]
struct Rank {
    rank: u32,
    lanes: Vec<Lane>,
    /// Where communication runs and compute does not: starts and ends, in turns.
    exposed: Vec<u64>,
}

/// What one lane did.
#[derive(Debug, PartialEq, Serialize)]
struct Lane {
    name: String,
    /// Four numbers an execution, by start: block, nanoseconds from the start before it (of the first, from the start
    /// of the iteration), duration, wait (0 where it is unknown).
    runs: Vec<u64>,
}

/// The typical step of run number `run`.
pub(super) fn of(sources: &[Source<'_>], blocks: &Blocks, run: usize) -> Option<Timeline> {
    let source = &sources[run];
    let ((round, iteration), step_ns) = typical::step(source.run)?;
    let columns = source.run.measurements();
    let mut of_rank: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for row in 0..columns.len() {
        let here = (columns.round[row], columns.iteration[row]) == (round, iteration);
        if here && columns.state[row] == State::Overlapped {
            of_rank.entry(columns.rank[row]).or_default().push(row);
        }
    }
    let exposed: BTreeMap<u32, Vec<u64>> =
        of_rank.iter().map(|(rank, rows)| (*rank, exposed(source.run, rows))).collect();
    let left_out = fit(source.run, &mut of_rank, MOST);
    let ranks = of_rank
        .into_iter()
        .map(|(rank, rows)| Rank {
            rank,
            lanes: lanes(sources, blocks, run, rows),
            exposed: exposed.get(&rank).cloned().unwrap_or_default(),
        })
        .collect();
    Some(Timeline { run, round, iteration, step_ns, ranks, left_out })
}

/// Leaves ranks out until at most `most` executions remain, the longest rank last; of a single rank that has more, the
/// shortest executions. Says what is missing.
fn fit(run: &Run, of_rank: &mut BTreeMap<u32, Vec<usize>>, most: usize) -> Option<String> {
    let columns = run.measurements();
    let span = |rows: &[usize]| {
        let first = rows.iter().map(|row| columns.start_ns[*row]).min().unwrap_or_default();
        rows.iter().map(|row| columns.end_ns[*row]).max().unwrap_or_default() - first
    };
    let all = of_rank.len();
    let mut by_length: Vec<(u64, u32)> = of_rank.iter().map(|(rank, rows)| (span(rows), *rank)).collect();
    by_length.sort_unstable();
    let mut total: usize = of_rank.values().map(Vec::len).sum();
    for (_, rank) in by_length.iter().take(all.saturating_sub(1)) {
        if total <= most {
            break;
        }
        total -= of_rank.remove(rank).map_or(0, |rows| rows.len());
    }
    let mut said = Vec::new();
    if of_rank.len() < all {
        said.push(format!("the {} longest of {all} ranks are drawn", of_rank.len()));
    }
    for rows in of_rank.values_mut().filter(|rows| rows.len() > most) {
        let executions = rows.len();
        rows.sort_by_key(|row| std::cmp::Reverse(columns.latency_ns(*row)));
        rows.truncate(most);
        said.push(format!("the {most} longest of {executions} executions are drawn"));
    }
    (!said.is_empty()).then(|| format!("To keep the page small {}; --format perfetto has all.", said.join(", and ")))
}

/// The lanes of a rank in the order of the pattern.
fn lanes(sources: &[Source<'_>], blocks: &Blocks, run: usize, mut rows: Vec<usize>) -> Vec<Lane> {
    let columns = sources[run].run.measurements();
    rows.sort_by_key(|row| (columns.lane[*row], columns.start_ns[*row], columns.end_ns[*row]));
    rows.chunk_by(|a, b| columns.lane[*a] == columns.lane[*b])
        .map(|rows| {
            let mut last_ns = 0;
            let mut runs = Vec::with_capacity(4 * rows.len());
            for row in rows {
                let start_ns = columns.start_ns[*row];
                runs.extend([
                    blocks.number(sources, run, *row) as u64,
                    start_ns - last_ns,
                    columns.latency_ns(*row),
                    columns.wait_ns.get(*row).unwrap_or(0).min(columns.latency_ns(*row)),
                ]);
                last_ns = start_ns;
            }
            Lane { name: columns.lanes.name(columns.lane[rows[0]]).to_string(), runs }
        })
        .collect()
}

/// Where the communication among `rows` of one rank runs and no compute does.
fn exposed(run: &Run, rows: &[usize]) -> Vec<u64> {
    let columns = run.measurements();
    let of = |wanted: Role| {
        let rows =
            rows.iter().filter(|row| Role::of(&run.pattern.blocks[columns.block[**row] as usize].work) == wanted);
        union(rows.map(|row| (columns.start_ns[*row], columns.end_ns[*row])).collect())
    };
    without(&of(Role::Communication), &of(Role::Compute)).into_iter().flat_map(|(start, end)| [start, end]).collect()
}

/// Intervals as few as possible that cover the same instants, by start.
fn union(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in intervals.into_iter().filter(|(start, end)| start < end) {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// What of `these` none of `those` covers; both by start and without overlaps.
fn without(these: &[(u64, u64)], those: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    let mut first = 0;
    for &(start, end) in these {
        let mut from = start;
        // What ends before this one begins is behind all that follow, too.
        while first < those.len() && those[first].1 <= start {
            first += 1;
        }
        for &(hidden_from, hidden_to) in those[first..].iter().take_while(|(begin, _)| *begin < end) {
            if from < hidden_from {
                left.push((from, hidden_from));
            }
            from = from.max(hidden_to);
        }
        if from < end {
            left.push((from, end));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_cut_out() {
        let comm = union(vec![(30, 50), (0, 20), (10, 25), (60, 60), (70, 90)]);
        assert_eq!(comm, [(0, 25), (30, 50), (70, 90)]);
        assert_eq!(
            without(&comm, &[(5, 10), (20, 35), (50, 60), (65, 75), (80, 100)]),
            [(0, 5), (10, 20), (35, 50), (75, 80)]
        );
        assert_eq!(without(&comm, &[]), comm);
        assert_eq!(without(&comm, &[(0, 100)]), []);
    }
}
