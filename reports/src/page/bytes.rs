//! Who sends how much to whom by all-to-alls.

use maestro_pattern::{Collective, CollectiveKind, State, Work};
use serde::Serialize;

use super::sources::Source;
use super::typical;

/// Most rows of a matrix: a page with more cells is neither small nor legible. Of more ranks, neighbours share a row.
const MOST: u32 = 128;

/// Rank x rank of one run.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Bytes {
    /// Number of the run.
    run: usize,
    /// Executions of all-to-alls, of all ranks, in the step.
    executions: usize,
    /// How many ranks one after the other share a row and a column; the last ones may be fewer.
    ranks_a_row: u32,
    /// The last rank.
    last: u32,
    /// Per sender, per receiver: bytes of one step. What a rank keeps for itself is on the diagonal, and so is what goes
    /// between ranks of one row.
    bytes: Vec<Vec<u64>>,
}

/// The bytes of all-to-alls in the typical step of run number `run`; `None` without any.
pub(super) fn of(sources: &[Source<'_>], run: usize) -> Option<Bytes> {
    let source = sources[run].run;
    let ranks = source.world.size();
    let (step, _) = typical::step(source)?;
    let ranks_a_row = ranks.div_ceil(MOST);
    let row_of = |rank: u32| (rank / ranks_a_row) as usize;
    let columns = source.measurements();
    let mut bytes = vec![vec![0u64; row_of(ranks - 1) + 1]; row_of(ranks - 1) + 1];
    let mut executions = 0;
    for row in 0..columns.len() {
        if (columns.round[row], columns.iteration[row]) != step || columns.state[row] != State::Overlapped {
            continue;
        }
        let rank = columns.rank[row];
        let Some(axis) = columns.axis[row] else { continue };
        let Some((team, seat)) = source.world.seat(axis as usize, rank) else { continue };
        let Some(team) = source.world.teams(axis as usize).get(team as usize) else { continue };
        let mut any = false;
        for collective in all_to_alls(&source.pattern.blocks[columns.block[row] as usize].work) {
            any = true;
            for (peer, sent) in team.iter().zip(sent(collective, seat as usize, team.len())) {
                let cell = &mut bytes[row_of(rank)][row_of(*peer)];
                *cell = cell.saturating_add(sent);
            }
        }
        executions += usize::from(any);
    }
    (executions > 0).then_some(Bytes { run, executions, ranks_a_row, last: ranks - 1, bytes })
}

fn all_to_alls(work: &Work) -> impl Iterator<Item = &Collective> {
    let all: &[Collective] = match work {
        Work::Collective(one) => std::slice::from_ref(one),
        Work::Group(all) => all,
        Work::P2p { .. } | Work::Compute(_) | Work::Cuda(_) => &[],
    };
    all.iter().filter(|collective| collective.kind == CollectiveKind::AllToAll)
}

/// What the rank at `seat` sends to each of a team of `ranks`.
fn sent(collective: &Collective, seat: usize, ranks: usize) -> Vec<u64> {
    match collective.splits.get(seat) {
        Some(row) => row.iter().map(|elements| elements.saturating_mul(collective.dtype.bytes())).collect(),
        None => vec![collective.size.unwrap_or(0) / ranks as u64; ranks],
    }
}
