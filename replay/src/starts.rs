//! When the executions of ranks in other processes began, so that waiting is told from transfer there, too.
//!
//! Once everything is measured, each process gives the starts of its own executions to rank 0, which gives all of them
//! to everyone. An iteration is a count and then its starts: instruction (4 bytes), nanoseconds (8), all little-endian.

use crate::executor::Record;
use crate::store::Store;
use crate::{Error, Result, Span};

/// See [`crate::Crew::exchange`].
pub(crate) fn exchange(store: &Store, rank: u32, own: Record) -> Result<Vec<(u32, Record)>> {
    let joined = store.gather(&encode(&own))?.map(|parts| join(&parts));
    let shared = store.share(joined.as_deref())?;
    let parts = split(&shared).ok_or_else(|| Error::Rank { rank: 0, what: "it shared what are no starts".into() })?;
    let mut records = Vec::with_capacity(parts.len());
    for (other, part) in (0..).zip(parts) {
        if other != rank {
            let record = decode(part).filter(|record| record.len() == own.len());
            let what = || format!("it did not measure the {} iterations that rank {rank} did", own.len());
            records.push((other, record.ok_or_else(|| Error::Rank { rank: other, what: what() })?));
        }
    }
    records.push((rank, own));
    Ok(records)
}

fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(record.iter().map(|spans| 4 + 12 * spans.len()).sum());
    for spans in record {
        bytes.extend((spans.len() as u32).to_le_bytes());
        for span in spans {
            bytes.extend(span.instruction.to_le_bytes());
            bytes.extend(span.start_ns.to_le_bytes());
        }
    }
    bytes
}

/// `None` for what [`encode`] did not write.
fn decode(mut bytes: &[u8]) -> Option<Record> {
    let mut record = Record::new();
    while !bytes.is_empty() {
        let (count, rest) = bytes.split_first_chunk()?;
        let length = (u32::from_le_bytes(*count) as usize).checked_mul(12)?;
        let (spans, rest) = rest.split_at_checked(length)?;
        record.push(spans.as_chunks().0.iter().map(span).collect());
        bytes = rest;
    }
    Some(record)
}

fn span(bytes: &[u8; 12]) -> Span {
    let [a, b, c, d, start @ ..] = *bytes;
    let start_ns = u64::from_le_bytes(start);
    Span { instruction: u32::from_le_bytes([a, b, c, d]), start_ns, end_ns: start_ns }
}

/// Parts one after the other, each behind its length.
fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.iter().flat_map(|part| [&(part.len() as u64).to_le_bytes(), part.as_slice()].concat()).collect()
}

/// `None` for what [`join`] did not write.
fn split(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        parts.push(part);
        bytes = rest;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use maestro_pattern::{Pattern, Plan};

    use super::*;
    use crate::Settings;
    use crate::executor::Session;
    use crate::store::together;

    #[test]
    fn bytes_that_nobody_wrote_are_refused() {
        let record = vec![vec![], vec![Span { instruction: 7, start_ns: u64::MAX, end_ns: u64::MAX }]];
        let bytes = encode(&record);
        assert_eq!(decode(&bytes), Some(record));
        assert!(decode(&bytes[..bytes.len() - 1]).is_none() && decode(&[0xff; 4]).is_none());
        let joined = join(&[vec![1], vec![], vec![2, 3]]);
        assert_eq!(split(&joined).unwrap(), [&[1][..], &[], &[2, 3]]);
        assert!(split(&joined[..joined.len() - 1]).is_none() && split(&[0xff; 9]).is_none());
    }

    #[test]
    fn waiting_is_told_from_transfer_across_processes() {
        let pattern = Pattern::from_yaml(
            "
maestro: 1
name: t
axes: {dp: {size: 3}}
blocks: {g: {all_gather: {size: 6B, dtype: u8}}}
lanes: {x: {}}
schedule: [{run: g, on: dp, lane: x}, {run: g, on: dp, lane: x}]
",
        );
        let plan = Plan::new(&pattern.unwrap(), &[]).unwrap();
        let settings = Settings { iterations: 2, rounds: 1, alone: false, verify: false, ..Settings::default() };
        // Rank 2 is the last at the first gather and rank 0 at the second.
        let starts = [[10, 300], [20, 200], [100, 150]];
        let ends = [[110, 310], [115, 320], [120, 330]];
        let rows = together(3, |store| {
            let rank = store.rank();
            let span = |n: usize| Span {
                instruction: n as u32,
                start_ns: starts[rank as usize][n],
                end_ns: ends[rank as usize][n],
            };
            let own: Record = vec![vec![span(0), span(1)]; 2];
            let records = exchange(&store, rank, own).unwrap();
            Session::new(&plan, &settings).unwrap().measurements_of(rank, records)
        });
        for (rank, rows) in rows.iter().enumerate() {
            assert_eq!(rows.len(), 4);
            for (row, latest) in rows.iter().zip([100, 300, 100, 300]) {
                let n = row.instance as usize;
                assert_eq!((row.rank as usize, row.start_ns), (rank, starts[rank][n]));
                assert_eq!(row.wait_ns, Some(latest - starts[rank][n]));
                assert_eq!(row.transfer_ns, Some(ends[rank][n] - latest));
            }
        }
    }

    #[test]
    fn large_records_pass_and_other_ones_are_named() {
        together(4, |store| {
            let rank = store.rank();
            let span = |n: u64| Span { instruction: n as u32, start_ns: n * u64::from(rank + 1), end_ns: u64::MAX };
            let own: Record = vec![(0..20_000).map(span).collect(); 3];
            let records = exchange(&store, rank, own.clone()).unwrap();
            assert_eq!(records.len(), 4);
            for (other, record) in records {
                assert_eq!(record.len(), 3);
                assert_eq!(record[2][19_999].start_ns, 19_999 * u64::from(other + 1));
                assert!(other != rank || record == own);
            }
            let own = vec![vec![]; if rank == 3 { 1 } else { 2 }];
            let told = exchange(&store, rank, own).unwrap_err().to_string();
            let wrong =
                if rank == 3 { "rank 0: it did not measure the 1 " } else { "rank 3: it did not measure the 2 " };
            assert!(told.starts_with(wrong), "{told}");
        });
    }
}
