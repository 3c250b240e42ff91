//! What of one run is compared: for each metric of the step and of each block, the measured values with the iterations
//! that they belong to, and the one number that stands for the run.
//!
//! A run is reduced to these when it is read, so that a comparison of many runs never holds more than one of them whole.

use std::collections::{BTreeMap, HashMap};

use maestro_pattern::State;

use super::metric::Metric;
use super::tail::Tail;
use crate::statistics::{Sample, SplitMix64};
use crate::{Columns, Role, Run};

/// What a metric is measured of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The step as a whole.
    Step,
    /// A block on an axis.
    Block {
        /// Its name.
        block: String,
        /// Its axis, if it communicates.
        axis: Option<String>,
    },
}

/// Values of one metric of one subject in one run, in whole units: `per_unit` of them are one unit of the metric.
#[derive(Debug)]
pub(crate) struct Figure {
    values: Values,
    per_unit: f64,
}

#[derive(Debug)]
enum Values {
    /// The run's number is their median.
    Median(Sample),
    /// The run's number is the median of the first by the median of the second.
    Ratio(Sample, Sample),
    /// The run's number is their 99th percentile.
    Tail(Tail),
}

impl Figure {
    fn median(observed: Vec<(u64, u32)>, per_unit: f64) -> Option<Self> {
        let values = (!observed.is_empty()).then(|| Values::Median(Sample::new(observed)))?;
        Some(Self { values, per_unit })
    }

    /// The number that stands for the run; `None` where a ratio has nothing to divide by.
    pub(crate) fn value(&self) -> Option<f64> {
        let value = match &self.values {
            Values::Median(sample) => sample.median(),
            Values::Ratio(of, to) => ratio(of.median(), to.median()),
            Values::Tail(tail) => Some(tail.value()),
        };
        value.map(|value| value / self.per_unit)
    }

    /// The number that the run would have given with other iterations: `count` draws of as many iterations as there are,
    /// with everything that was measured in them.
    pub(crate) fn redraw(&self, random: &mut SplitMix64, count: usize) -> Vec<f64> {
        let mut draws = Vec::with_capacity(count);
        let mut weights = [Vec::new(), Vec::new()];
        for _ in 0..count {
            let mut drawn = |which: usize, iterations: usize| {
                weights[which].resize(iterations, 0);
                random.draw(&mut weights[which]);
            };
            let value = match &self.values {
                Values::Median(sample) => {
                    drawn(0, sample.iterations());
                    sample.weighted_median(&weights[0])
                }
                Values::Ratio(of, to) => {
                    drawn(0, of.iterations());
                    drawn(1, to.iterations());
                    ratio(of.weighted_median(&weights[0]), to.weighted_median(&weights[1]))
                }
                Values::Tail(tail) => {
                    drawn(0, tail.iterations());
                    tail.weighted(&weights[0])
                }
            };
            draws.extend(value.map(|value| value / self.per_unit));
        }
        draws
    }
}

fn ratio(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    Some(of? / to.filter(|to| *to > 0.0)?)
}

/// What a block is, as selectors and tables say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub kind: &'static str,
    pub size_bytes: Option<u64>,
}

/// All figures of a run.
#[derive(Debug)]
pub(crate) struct Figures {
    pub all: BTreeMap<(Subject, Metric), Figure>,
    /// Its blocks, in the pattern's order.
    pub blocks: Vec<(Subject, About)>,
    /// Overlapped iterations.
    pub iterations: usize,
    /// Whether blocks were left out because compute only held its lane.
    pub left_out_held: bool,
}

/// What was measured of one block.
#[derive(Default)]
struct Gathered {
    size_bytes: Option<u64>,
    /// What slowdown compares, overlapped and alone.
    compared_ns: [Vec<(u64, u32)>; 2],
    latency_ns: Vec<(u64, u32)>,
    wait_ns: Vec<(u64, u32)>,
    /// Bytes a second, overlapped and alone.
    bus: [Vec<(u64, u32)>; 2],
    /// Sum over ranks, by iteration.
    exposed_ns: BTreeMap<u32, u64>,
}

/// One millisecond in nanoseconds.
const MS: f64 = 1e6;
/// Parts of a percent in which shares of the step are kept.
const PER_PERCENT: f64 = 1e7;

impl Figures {
    /// The figures of `run` that `metrics` name.
    pub(crate) fn of(run: &Run, metrics: &[Metric]) -> Self {
        let columns = run.measurements();
        let iteration_of = iterations(columns);
        let mut figures = Self { all: BTreeMap::new(), blocks: Vec::new(), iterations: 0, left_out_held: false };
        figures.steps(run, metrics);

        // Held compute lasts as long as it is told to. It would find nothing, and make finding anything else harder.
        let held = run.info.settings.compute.as_deref() != Some("work");
        let mut blocks: BTreeMap<(u32, Option<u32>), Gathered> = BTreeMap::new();
        let ranks = ranks_per_step(run, &iteration_of);
        for (row, iteration) in iteration_of.iter().enumerate() {
            if held && role(run, columns.block[row]) != Role::Communication {
                figures.left_out_held |= run.info.settings.compute.is_some();
                continue;
            }
            let gathered = blocks.entry((columns.block[row], columns.axis[row])).or_default();
            gathered.add(run, row, *iteration);
        }
        for ((block, axis), gathered) in blocks {
            let subject = Subject::Block {
                block: columns.blocks.name(block).to_string(),
                axis: axis.map(|axis| columns.axes.name(axis).to_string()),
            };
            let kind = run.pattern.blocks[block as usize].work.kind();
            figures.blocks.push((subject.clone(), About { kind, size_bytes: gathered.size_bytes }));
            figures.block(&subject, gathered, metrics, &ranks);
        }
        figures
    }

    fn steps(&mut self, run: &Run, metrics: &[Metric]) {
        let steps = &run.exposure().steps;
        let (mut spans, mut exposed, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for (iteration, ranks) in steps.chunk_by(|a, b| (a.round, a.iteration) == (b.round, b.iteration)).enumerate() {
            let span = ranks.iter().map(|step| step.figures.span_ns).max().unwrap_or(0);
            let mean = ranks.iter().map(|step| step.figures.exposed_ns).sum::<u64>() / ranks.len() as u64;
            spans.push((span, iteration as u32));
            exposed.push((mean, iteration as u32));
            if span > 0 {
                shares.push(((100.0 * PER_PERCENT * mean as f64 / span as f64) as u64, iteration as u32));
            }
        }
        self.iterations = spans.len();
        for (metric, values, per_unit) in
            [(Metric::Step, spans, MS), (Metric::Exposed, exposed, MS), (Metric::ExposedPct, shares, PER_PERCENT)]
        {
            if metrics.contains(&metric) {
                self.put(Subject::Step, metric, Figure::median(values, per_unit));
            }
        }
    }

    fn block(&mut self, subject: &Subject, gathered: Gathered, metrics: &[Metric], ranks: &[u64]) {
        let Gathered { compared_ns: [overlapped, alone], latency_ns, wait_ns, bus: [busbw, alone_busbw], .. } =
            gathered;
        let exposed =
            gathered.exposed_ns.into_iter().map(|(iteration, ns)| (ns / ranks[iteration as usize], iteration));
        let exposed: Vec<(u64, u32)> = exposed.collect();
        /// Bytes a second in a gigabyte a second.
        const GB: f64 = 1e9;
        for metric in metrics.iter().filter(|metric| metric.of_blocks()) {
            let figure = match metric {
                Metric::Overlapped => Figure::median(overlapped.clone(), MS),
                Metric::Alone => Figure::median(alone.clone(), MS),
                Metric::Slowdown if overlapped.is_empty() || alone.is_empty() => None,
                Metric::Slowdown => {
                    let values = Values::Ratio(Sample::new(overlapped.clone()), Sample::new(alone.clone()));
                    Some(Figure { values, per_unit: 1.0 })
                }
                Metric::Latency => Figure::median(latency_ns.clone(), MS),
                Metric::Wait => Figure::median(wait_ns.clone(), MS),
                Metric::P99 => {
                    Tail::new(latency_ns.clone()).map(|tail| Figure { values: Values::Tail(tail), per_unit: MS })
                }
                Metric::Busbw => Figure::median(busbw.clone(), GB),
                Metric::AloneBusbw => Figure::median(alone_busbw.clone(), GB),
                Metric::Exposed => Figure::median(exposed.clone(), MS),
                Metric::Step | Metric::ExposedPct => None,
            };
            self.put(subject.clone(), *metric, figure);
        }
    }

    fn put(&mut self, subject: Subject, metric: Metric, figure: Option<Figure>) {
        self.all.extend(figure.map(|figure| ((subject, metric), figure)));
    }
}

impl Gathered {
    fn add(&mut self, run: &Run, row: usize, iteration: u32) {
        let columns = run.measurements();
        self.size_bytes = self.size_bytes.max(columns.size_bytes.get(row));
        let state = match columns.state[row] {
            State::Overlapped => 0,
            State::Alone => 1,
        };
        self.compared_ns[state].extend(run.compared_ns(row).map(|ns| (ns, iteration)));
        self.bus[state].extend(bus_bytes_per_second(run, row).map(|rate| (rate, iteration)));
        if columns.state[row] == State::Overlapped {
            self.latency_ns.push((columns.latency_ns(row), iteration));
            self.wait_ns.extend(columns.wait_ns.get(row).map(|ns| (ns, iteration)));
            if let Some(ns) = run.exposure().exposed_ns.get(row) {
                *self.exposed_ns.entry(iteration).or_default() += ns;
            }
        }
    }
}

fn role(run: &Run, block: u32) -> Role {
    Role::of(&run.pattern.blocks[block as usize].work)
}

/// Bus bandwidth of one execution: its team may be smaller than another of the axis, so the factor is its own.
fn bus_bytes_per_second(run: &Run, row: usize) -> Option<u64> {
    let columns = run.measurements();
    let (axis, rank) = (columns.axis[row]? as usize, columns.rank[row]);
    let (team, _) = run.world.seat(axis, rank)?;
    let ranks = run.world.teams(axis).get(team as usize)?.len();
    let factor = run.pattern.blocks[columns.block[row] as usize].work.bus_factor(ranks)?;
    let seconds = columns.transfer_ns.get(row).filter(|ns| *ns > 0)? as f64 / 1e9;
    Some((columns.size_bytes.get(row)? as f64 * factor / seconds) as u64)
}

/// Numbers the (round, iteration) pairs of the rows, ascending from 0. The exposure's steps are in the same order.
fn iterations(columns: &Columns) -> Vec<u32> {
    let mut pairs: Vec<(u32, u32)> = columns.round.iter().copied().zip(columns.iteration.iter().copied()).collect();
    let rows = pairs.clone();
    pairs.sort_unstable();
    pairs.dedup();
    let number: HashMap<(u32, u32), u32> = pairs.into_iter().zip(0..).collect();
    rows.iter().map(|pair| number[pair]).collect()
}

/// How many ranks ran something in each iteration; 1 of none, as they are divided by.
fn ranks_per_step(run: &Run, iteration_of: &[u32]) -> Vec<u64> {
    let columns = run.measurements();
    let mut ranks = vec![0; iteration_of.iter().max().map_or(0, |last| *last as usize + 1)];
    let pairs = columns.round.iter().copied().zip(columns.iteration.iter().copied());
    let number: HashMap<(u32, u32), u32> = pairs.zip(iteration_of.iter().copied()).collect();
    for step in &run.exposure().steps {
        ranks[number[&(step.round, step.iteration)] as usize] += 1;
    }
    ranks.into_iter().map(|ranks: u64| ranks.max(1)).collect()
}
