//! A timeline in characters: a row a rank and lane, a letter a block.

use std::collections::BTreeMap;

use maestro_pattern::{Measurement, Pattern, State};

/// Letters for blocks, communication first so that it keeps capital ones.
const CAPITALS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const SMALL: &str = "abcdefghijklmnopqrstuvwxyz";

/// Draws the first overlapped iteration, of one rank if `rank` says which.
pub fn timeline(pattern: &Pattern, measurements: &[Measurement], rank: Option<u32>, width: usize) -> String {
    let overlapped = || measurements.iter().filter(|m| m.state == State::Overlapped);
    let first = overlapped().map(|m| (m.round, m.iteration)).min();
    let shown: Vec<&Measurement> = overlapped()
        .filter(|m| Some((m.round, m.iteration)) == first && rank.is_none_or(|rank| rank == m.rank))
        .collect();
    let (Some(start), Some(end)) = (shown.iter().map(|m| m.start_ns).min(), shown.iter().map(|m| m.end_ns).max())
    else {
        return match rank {
            Some(rank) => format!("  nothing was measured on rank {rank}\n"),
            None => "  nothing was measured\n".to_owned(),
        };
    };
    let letters = letters(pattern);
    let scale = (end - start).max(1) as f64 / width as f64;
    let mut rows: BTreeMap<(u32, usize), Vec<(f64, char)>> = BTreeMap::new();
    for m in &shown {
        let lane = pattern.lanes.iter().position(|lane| lane.name == *m.lane).unwrap_or_default();
        let row = rows.entry((m.rank, lane)).or_insert_with(|| vec![(0.0, ' '); width]);
        let letter = letters.get(&*m.block).copied().unwrap_or('?');
        let (from, to) = ((m.start_ns - start) as f64 / scale, (m.end_ns - start) as f64 / scale);
        // A character shows whatever filled most of its time; what is too short to see gives way.
        for (at, cell) in row.iter_mut().enumerate().take(to.ceil() as usize).skip(from as usize) {
            let covered = to.min(at as f64 + 1.0) - from.max(at as f64);
            if covered > cell.0 {
                *cell = (covered, letter);
            }
        }
    }
    let name = |lane: usize| pattern.lanes.get(lane).map_or("", |lane| lane.name.as_str());
    let longest = rows.keys().map(|(_, lane)| name(*lane).len()).max().unwrap_or(0);
    let mut text = format!("  {:.3} ms, {:.1} us a character\n", (end - start) as f64 / 1e6, scale / 1e3);
    for ((rank, lane), row) in &rows {
        let drawn: String = row.iter().map(|(_, letter)| letter).collect();
        text += &format!("  rank {rank:<3} {:<longest$} |{drawn}|\n", name(*lane));
    }
    for block in &pattern.blocks {
        if shown.iter().any(|m| *m.block == *block.name) {
            text += &format!("  {} {}\n", letters.get(&*block.name).copied().unwrap_or('?'), block.name);
        }
    }
    text
}

/// A letter a block: capital for communication, small for the rest, `*` and `.` when they run out.
fn letters(pattern: &Pattern) -> BTreeMap<&str, char> {
    let (mut capitals, mut small) = (CAPITALS.chars(), SMALL.chars());
    pattern
        .blocks
        .iter()
        .map(|block| {
            let letter =
                if block.work.communicates() { capitals.next().unwrap_or('*') } else { small.next().unwrap_or('.') };
            (block.name.as_str(), letter)
        })
        .collect()
}
