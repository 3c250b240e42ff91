//! The matrices of all-to-alls, from what each rank recorded of its own row and column.
//!
//! A rank records what it sends to each (its row) and what it receives from each (its column). Rows are taken, columns
//! checked against them. Where a rank recorded no row but all others' columns hold its part, that is its row.

use maestro_pattern::CollectiveKind;

use super::matching::{At, Meeting};
use super::resolve::{Communicators, Operation, Resolved};
use crate::Notes;
use crate::capture::Capture;

/// Puts the rows of an all-to-all together, in team order. With rows missing it stays even, which the pattern then
/// states as assumed.
pub(crate) fn complete(
    capture: &Capture,
    communicators: &Communicators,
    meeting: &Meeting,
    resolved: &mut [Vec<Resolved>],
    notes: &mut Notes,
) {
    let Some(&(t, i)) = meeting.at.first() else { return };
    let Operation::Collective { collective, .. } = &resolved[t][i].operation else { return };
    if collective.kind != CollectiveKind::AllToAll {
        return;
    }
    let team = &communicators.all[resolved[t][i].communicator].ranks;
    let mut rows: Vec<Vec<u64>> = vec![Vec::new(); team.len()];
    let mut columns = rows.clone();
    for &(t, i) in &meeting.at {
        let Some(seat) = team.iter().position(|rank| *rank == capture.rank(t)) else { continue };
        if let Operation::Collective { row, .. } = &resolved[t][i].operation {
            rows[seat].clone_from(row);
        }
        columns[seat].clone_from(&resolved[t][i].received);
    }
    let n = team.len();
    for (from, row) in rows.iter_mut().enumerate().filter(|(_, row)| row.is_empty()) {
        let parts = columns.iter().map(|column| column.get(from).copied());
        *row = parts.collect::<Option<_>>().unwrap_or_default();
    }
    for (from, row) in rows.iter().enumerate().filter(|(_, row)| row.len() == n) {
        for (to, column) in columns.iter().enumerate().filter(|(_, column)| column.len() == n) {
            if row[to] != column[from] {
                notes.add("pairs of ranks that disagree on what one sends the other in an all-to-all", || {
                    let (sent, wanted) = (row[to], column[from]);
                    format!("rank {} sends {sent} elements to rank {}, which expects {wanted}", team[from], team[to])
                });
            }
        }
    }
    if rows.iter().any(|row| row.len() != n) {
        unify(&meeting.at, n as u64, resolved);
        return;
    }
    let first = rows.first().and_then(|row| row.first());
    let even = rows.iter().flatten().all(|split| Some(split) == first);
    let most = largest_side(&rows);
    for (t, i) in &meeting.at {
        resolved[*t][*i].splits_unknown = false;
        if let Operation::Collective { collective, .. } = &mut resolved[*t][*i].operation {
            if !even {
                collective.splits = rows.clone();
            }
            collective.size = Some(most.saturating_mul(collective.dtype.bytes())).filter(|size| *size > 0);
        }
    }
}

/// The most elements that any rank sends or receives in an all-to-all of these splits: S of nccl-tests.
pub(crate) fn largest_side(splits: &[Vec<u64>]) -> u64 {
    let total = |splits: &mut dyn Iterator<Item = u64>| splits.fold(0u64, u64::saturating_add);
    let columns = (0..splits.len()).map(|to| total(&mut splits.iter().map(|row| row.get(to).copied().unwrap_or(0))));
    splits.iter().map(|row| total(&mut row.iter().copied())).chain(columns).max().unwrap_or(0)
}

/// Gives all ranks of an all-to-all with unknown splits the largest of their sizes: the S of nccl-tests.
fn unify(at: &[At], ranks: u64, resolved: &mut [Vec<Resolved>]) {
    let size = |&(t, i): &At| match &resolved[t][i].operation {
        Operation::Collective { collective, .. } => collective.size,
        Operation::Group(_) | Operation::P2p(_) => None,
    };
    let Some(most) = at.iter().filter_map(size).max() else { return };
    for (t, i) in at {
        if let Operation::Collective { collective, .. } = &mut resolved[*t][*i].operation {
            let unit = collective.dtype.bytes() * ranks.max(1);
            collective.size = Some(most.next_multiple_of(unit));
        }
    }
}
