//! The frame of the page, with everything in its place.

use std::collections::HashMap;

use super::data::Data;
use super::sources::Source;
use super::{Comparison, PageOptions, escape, headline, method, tables, view};
use crate::{Show, Shown, Value, View};

const FRAME: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/page.css");

/// The scripts, in the order in which they need each other.
const SCRIPTS: [&str; 10] = [
    include_str!("assets/common.js"),
    include_str!("assets/table.js"),
    include_str!("assets/verdicts.js"),
    include_str!("assets/timeline.js"),
    include_str!("assets/waterfall.js"),
    include_str!("assets/distributions.js"),
    include_str!("assets/bandwidth.js"),
    include_str!("assets/sweep.js"),
    include_str!("assets/heat.js"),
    include_str!("assets/main.js"),
];

/// The section of a comparison's verdicts.
const VERDICTS: &str = include_str!("assets/verdicts.html");

/// The tables that stand elsewhere: `blocks` in its own section, the others, which are long, behind their drawings.
const DRAWN: [&str; 3] = ["blocks", "waits", "quantiles"];
/// Most rows of a table that is open from the beginning.
const SHORT: usize = 12;

/// The whole page.
pub(super) fn page(
    sources: &[Source<'_>],
    views: &[(&str, &str, View)],
    data: &Data,
    comparison: Option<Comparison<'_>>,
    options: &PageOptions,
) -> String {
    let diff = comparison.map(|comparison| comparison.diff);
    let top = headline::top(sources, views, diff);
    let html = escape::html;
    let numbers: Vec<String> = top
        .numbers
        .iter()
        .map(|number| {
            let (name, value, unit) = (number.name, html(&number.value), number.unit);
            let beside = html(&number.beside);
            format!("<div><dt>{name}</dt><dd><b>{value}</b> <span>{unit}</span><small>{beside}</small></dd></div>")
        })
        .collect();
    let caution = top.caution.map_or_else(String::new, |text| format!("<p class=\"caution\">{}</p>", html(&text)));
    let blocks = view(views, "blocks").map_or_else(String::new, |view| {
        let mut view = together(view, sources);
        // What to doubt belongs beside the numbers; a terminal has no room for it.
        let flagged = (0..view.rows.len()).any(|row| *view.value(row, "flags") != Value::Missing);
        if flagged {
            view.shown.push(Shown::new("Flags", "flags", Show::Text));
        }
        let note = if flagged { "<p class=\"note\">What flags mean stands under the method.</p>" } else { "" };
        tables::table(&view, "Blocks") + note
    });
    let others: Vec<String> = views
        .iter()
        .filter(|(name, _, view)| !DRAWN.contains(name) && !view.rows.is_empty())
        .map(|(name, about, view)| {
            let (name, about, table) = (html(name), html(about), tables::table(&together(view, sources), name));
            let open = if view.rows.len() <= SHORT { " open" } else { "" };
            format!("<details{open}><summary><code>{name}</code> {about}</summary>{table}</details>\n")
        })
        .collect();
    fill(FRAME, |name| match name {
        "title" => html(&format!("{}: {}", sources[0].run.info.pattern.name, top.sentence)),
        "style" => STYLE.to_owned(),
        "script" => SCRIPTS.join("\n"),
        "kicker" => html(&top.kicker),
        "sentence" => html(&top.sentence),
        "lead" => html(&top.lead),
        "caution" => caution.clone(),
        "numbers" => numbers.join("\n"),
        "verdicts" => comparison.map_or_else(String::new, verdicts),
        "blocks" => blocks.clone(),
        "tables" => others.concat(),
        "method" => method::section(sources, views, diff, options),
        "data" => escape::json(data),
        _ => unreachable!("the frame has a place `{name}` that nothing fills"),
    })
}

/// The section of a comparison.
fn verdicts(comparison: Comparison<'_>) -> String {
    let gate = comparison.judgement.map_or_else(String::new, |judgement| {
        let view = judgement.view();
        let notes: Vec<String> = view.notes.iter().map(|note| format!("<p>{}</p>", escape::html(note))).collect();
        format!("<h3>Gate</h3>\n{}{}", notes.concat(), tables::table(&view, "Gate"))
    });
    fill(VERDICTS, |name| match name {
        "table" => tables::table(&comparison.diff.view(), "Verdicts"),
        "gate" => gate.clone(),
        _ => unreachable!("the section has a place `{name}` that nothing fills"),
    })
}

/// A table of several runs with the roles of runs in place of their ids, and the block, axis and run in front.
fn together(view: &View, sources: &[Source<'_>]) -> View {
    let mut view = view.clone();
    let column = |key: &str| view.keys.iter().position(|known| known == key);
    if let Some(run) = column("run") {
        for row in &mut view.rows {
            let source = sources.iter().find(|source| row[run] == Value::Text(source.run.info.id.clone()));
            if let Some(source) = source {
                row[run] = Value::Text(source.role.clone());
            }
        }
    }
    // The rows of one block next to each other, in the order in which blocks first appear.
    if let (Some(block), Some(axis)) = (column("block"), column("axis")) {
        let mut order = HashMap::new();
        for row in &view.rows {
            let next = order.len();
            order.entry((text(&row[block]), text(&row[axis]))).or_insert(next);
        }
        let order: HashMap<_, _> = order.into_iter().map(|((b, a), n)| ((b.to_owned(), a.to_owned()), n)).collect();
        view.rows.sort_by_key(|row| order.get(&(text(&row[block]).to_owned(), text(&row[axis]).to_owned())).copied());
        view.shown.sort_by_key(|shown| ["block", "axis", "run"].iter().position(|key| *key == shown.key).unwrap_or(3));
    }
    view
}

fn text(value: &Value) -> &str {
    if let Value::Text(text) = value { text } else { "" }
}

/// `frame` with each `{{name}}` replaced, in one pass: what is filled in is not looked at again.
fn fill(frame: &str, value: impl Fn(&str) -> String) -> String {
    let mut text = String::with_capacity(frame.len());
    let mut rest = frame;
    while let Some((before, after)) = rest.split_once("{{") {
        text += before;
        let Some((name, behind)) = after.split_once("}}") else { break };
        text += &value(name);
        rest = behind;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_left_alone() {
        assert_eq!(fill("<{{a}}|{{b}}>", |name| format!("{{{{{name}{name}}}}}")), "<{{aa}}|{{bb}}>");
    }
}
