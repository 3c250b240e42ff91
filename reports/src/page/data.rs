//! Everything that the scripts draw, as it stands in the page.

use serde::Serialize;

use super::sources::{Block, Blocks, Source};
use super::{bandwidth, bytes, distributions, interference, sweep, timeline, verdicts, view, waits, waterfall};
use crate::View;
use crate::diff::Diff;

/// The data of a page. Times are whole nanoseconds, so that nothing is rounded before it is drawn.
#[derive(Debug, Serialize)]
pub(super) struct Data {
    pub runs: Vec<Named>,
    pub blocks: Vec<Block>,
    pub timelines: Vec<timeline::Timeline>,
    pub waterfalls: Vec<waterfall::Waterfall>,
    pub distributions: Vec<distributions::Curve>,
    pub bandwidth: Vec<bandwidth::Point>,
    pub link_gbps: Option<f64>,
    pub interference: Vec<interference::Pair>,
    pub waits: Vec<waits::Waits>,
    pub bytes: Vec<bytes::Bytes>,
    /// Of a comparison of several runs a side.
    pub verdicts: Option<Vec<verdicts::Change>>,
    /// Of the runs of a sweep.
    pub sweep: Option<sweep::Sweep>,
}

/// A run, as legends name it.
#[derive(Debug, Serialize)]
pub(super) struct Named {
    pub role: String,
    pub label: String,
}

impl Data {
    /// The data of `sources`, whose tables are `views`.
    pub fn of(sources: &[Source<'_>], views: &[(&str, &str, View)], diff: Option<&Diff>) -> Self {
        let blocks = Blocks::of(sources);
        let table = |name| view(views, name);
        let sweep = table("steps").zip(table("blocks")).and_then(|(s, b)| sweep::of(sources, &blocks, s, b));
        // A sweep has its curves; so many timelines and distributions on one page would show nothing.
        let each = if sweep.is_some() { 0..0 } else { 0..sources.len() };
        let runs = || each.clone();
        let drawn = |name| table(name).filter(|_| !each.is_empty());
        let curves = drawn("quantiles").map_or_else(Vec::new, |t| distributions::all(sources, &blocks, t));
        Self {
            runs: sources.iter().map(|s| Named { role: s.role.clone(), label: s.label.clone() }).collect(),
            timelines: runs().filter_map(|run| timeline::of(sources, &blocks, run)).collect(),
            waterfalls: runs().filter_map(|run| waterfall::of(sources, &blocks, run)).collect(),
            bandwidth: drawn("blocks").map_or_else(Vec::new, |t| bandwidth::all(sources, &blocks, t, &curves)),
            distributions: curves,
            link_gbps: sources.iter().find_map(|source| source.run.link_gbps),
            interference: drawn("interference").map_or_else(Vec::new, |t| interference::all(sources, &blocks, t)),
            waits: runs().filter_map(|run| waits::of(sources, run, table("waits")?)).collect(),
            bytes: runs().filter_map(|run| bytes::of(sources, run)).collect(),
            verdicts: diff.map(verdicts::changes),
            sweep,
            blocks: blocks.all,
        }
    }
}
