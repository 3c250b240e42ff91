//! Everything that the scripts draw, as it stands in the page.

use serde::Serialize;

use super::sources::{Block, Blocks, Source};
use super::{bandwidth, bytes, distributions, interference, timeline, verdicts, view, waits, waterfall};
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
        let runs = || 0..sources.len();
        let table = |name| view(views, name);
        let curves = table("quantiles").map_or_else(Vec::new, |t| distributions::all(sources, &blocks, t));
        Self {
            runs: sources.iter().map(|s| Named { role: s.role.clone(), label: s.label.clone() }).collect(),
            timelines: runs().filter_map(|run| timeline::of(sources, &blocks, run)).collect(),
            waterfalls: runs().filter_map(|run| waterfall::of(sources, &blocks, run)).collect(),
            bandwidth: table("blocks").map_or_else(Vec::new, |t| bandwidth::all(sources, &blocks, t, &curves)),
            distributions: curves,
            link_gbps: sources.iter().find_map(|source| source.run.link_gbps),
            interference: table("interference").map_or_else(Vec::new, |t| interference::all(sources, &blocks, t)),
            waits: runs().filter_map(|run| waits::of(sources, run, table("waits")?)).collect(),
            bytes: runs().filter_map(|run| bytes::of(sources, run)).collect(),
            verdicts: diff.map(verdicts::changes),
            blocks: blocks.all,
        }
    }
}
