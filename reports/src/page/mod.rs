//! The page: one HTML file that shows runs to people, with everything inside and nothing fetched.
//!
//! What is a table elsewhere is the same table here: the page renders the [`View`]s of `REPORTS` and adds drawings. Each
//! drawing is prepared by a file of this folder as plain data ([`data`]), put into the page as one block of JSON, and
//! drawn by the scripts in `assets/`. Nothing is computed there but places on the screen.
//!
//! What may puzzle: names come from captures and patterns, so from strangers. They reach the page by two doors only,
//! [`escape::html`] and [`escape::json`], and the scripts set them as text, never as markup.

mod bandwidth;
mod bytes;
mod cells;
mod data;
mod distributions;
mod escape;
mod headline;
mod interference;
mod method;
mod sources;
mod sweep;
mod tables;
mod template;
mod timeline;
mod typical;
mod verdicts;
mod waits;
mod waterfall;

use std::collections::HashSet;

use self::cells::Cells;
use self::data::Data;
use self::sources::Source;
use crate::diff::{Diff, Judgement};
use crate::{Error, Origin, REPORTS, Result, Run, View};

/// What the page says beside the runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageOptions {
    /// The command that makes the page, word by word, to be shown at its end. May be empty.
    pub command: Vec<String>,
}

/// The page of `runs`: captured ones first, the others in their order. Two others are called before and after.
///
/// The same runs and options give the same text.
///
/// # Errors
/// There is no run, or a table cannot be computed.
pub fn page(runs: Vec<Run>, options: &PageOptions) -> Result<String> {
    build(runs, None, options)
}

/// The page of a comparison: its verdicts, what a gate made of them, and a run of each side, before and after, that stands
/// for the others.
///
/// # Errors
/// As [`page`].
pub fn page_of_diff(
    diff: &Diff,
    judgement: Option<&Judgement>,
    typical: [Run; 2],
    options: &PageOptions,
) -> Result<String> {
    build(typical.into(), Some(Comparison { diff, judgement }), options)
}

/// What was compared, beside the runs.
#[derive(Clone, Copy)]
struct Comparison<'a> {
    diff: &'a Diff,
    judgement: Option<&'a Judgement>,
}

fn build(mut runs: Vec<Run>, comparison: Option<Comparison<'_>>, options: &PageOptions) -> Result<String> {
    if runs.is_empty() {
        return Err(Error::NoRuns);
    }
    runs.sort_by_key(|run| run.info.made_by != Origin::Import);
    name_apart(&mut runs);
    let mut views: Vec<(&str, &str, View)> =
        REPORTS.iter().map(|report| Ok((report.name(), report.about(), report.view(&runs)?))).collect::<Result<_>>()?;
    // Of runs that no other repeats it says nothing new.
    let repeated = |view: &View| Cells::all(view).any(|row| row.count("runs").is_some_and(|runs| runs > 1));
    views.retain(|(name, _, view)| *name != "across" || repeated(view));
    let sources = Source::all(&runs);
    let data = Data::of(&sources, &views, comparison.map(|comparison| comparison.diff));
    Ok(template::page(&sources, &views, &data, comparison, options))
}

/// The view of the report `name`.
fn view<'a>(views: &'a [(&str, &str, View)], name: &str) -> Option<&'a View> {
    views.iter().find(|(known, ..)| *known == name).map(|(.., view)| view)
}

/// Gives folders of the same name, in different places, ids that tell them apart.
fn name_apart(runs: &mut [Run]) {
    let mut taken = HashSet::new();
    for run in runs {
        let (first, mut n) = (run.info.id.clone(), 2);
        while !taken.insert(run.info.id.clone()) {
            run.info.id = format!("{first} #{n}");
            n += 1;
        }
    }
}
