//! The plain summary of the lean replayer, which has no Polars.
//!
//! It is what a person needs on the machine where the run was made: did it work, and roughly how does each block fare.
//! Its columns are a subset of those of the full report, with the same definitions and under the same keys; the rest
//! is computed later, where the default build is, from the run folder.

use std::collections::BTreeMap;

use maestro_pattern::State;

use crate::statistics::{Sample, ratio_of_medians};
use crate::view::{Show, Shown};
use crate::{Run, Value, View, method};

const SHOWN: [Shown; 9] = [
    Shown::new("Block", "block", Show::Text),
    Shown::new("Axis", "axis", Show::Text),
    Shown::new("Size (B)", "size_bytes", Show::Bytes),
    Shown::new("Executions", "executions", Show::Count),
    Shown::new("Avg lat (ms)", "avg_ms", Show::Millis),
    Shown::new("Min lat", "min_ms", Show::Millis),
    Shown::new("Max lat", "max_ms", Show::Millis),
    Shown::new("Alone (ms)", "alone_ms", Show::Millis).after_bar(),
    Shown::new("Slowdown", "slowdown", Show::Factor),
];

/// What is said in place of the columns that are not here.
const MORE: &str =
    "Bandwidth, intervals and exposed time: `maestro report` on this run folder, with the default build of maestro.";

/// What is gathered about one block on one axis.
#[derive(Default)]
struct Gathered {
    size_bytes: Option<u64>,
    overlapped_ns: Vec<u64>,
    alone_ns: Vec<u64>,
    /// What the slowdown compares: (time, iteration), overlapped and alone.
    compared: [Vec<(u64, u32)>; 2],
}

/// One row a block and axis, in the pattern's order.
pub fn summary(run: &Run) -> View {
    let columns = run.measurements();
    let mut blocks: BTreeMap<(u32, Option<u32>), Gathered> = BTreeMap::new();
    for row in 0..columns.len() {
        let this = blocks.entry((columns.block[row], columns.axis[row])).or_default();
        let latency_ns = columns.latency_ns(row);
        this.size_bytes = this.size_bytes.max(columns.size_bytes.get(row));
        let compared = run.compared_ns(row);
        let side = match columns.state[row] {
            State::Overlapped => {
                this.overlapped_ns.push(latency_ns);
                0
            }
            State::Alone => {
                this.alone_ns.extend(compared);
                1
            }
        };
        // The interval is not shown here, so all iterations count as one and the bootstrap is not run.
        this.compared[side].extend(compared.map(|ns| (ns, 0)));
    }
    let rows = blocks
        .into_iter()
        .map(|((block, axis), gathered)| {
            let name = columns.blocks.name(block);
            let axis = axis.map(|axis| &**columns.axes.name(axis));
            gathered.row(name, axis)
        })
        .collect();
    let mut notes = method::runs(std::slice::from_ref(run));
    notes.extend([method::SLOWDOWN.to_owned(), MORE.to_owned()]);
    View { keys: SHOWN.map(|shown| shown.key.to_owned()).to_vec(), rows, shown: SHOWN.to_vec(), notes }
}

impl Gathered {
    fn row(self, block: &str, axis: Option<&str>) -> Vec<Value> {
        let [overlapped, alone] = self.compared.map(Sample::new);
        let ms = |ns: Option<u64>| Value::real(ns.map(|ns| ns as f64 / 1e6));
        vec![
            Value::Text(block.to_owned()),
            Value::text(axis),
            Value::integer(self.size_bytes),
            Value::Integer(self.overlapped_ns.len() as u64),
            Value::real(mean_ms(&self.overlapped_ns)),
            ms(self.overlapped_ns.iter().copied().min()),
            ms(self.overlapped_ns.iter().copied().max()),
            Value::real(mean_ms(&self.alone_ns)),
            Value::real(ratio_of_medians(&overlapped, &alone).map(|ratio| ratio.value)),
        ]
    }
}

fn mean_ms(values_ns: &[u64]) -> Option<f64> {
    (!values_ns.is_empty()).then(|| values_ns.iter().sum::<u64>() as f64 / values_ns.len() as f64 / 1e6)
}
