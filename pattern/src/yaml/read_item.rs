//! Reads schedules: runs, waits, host time, repeats, references and conditions.

use super::node::{Node, Value};
use crate::{Body, Error, Item, Reference, Result, Selector, Step, When, check};

const STEPS: [&str; 5] = ["run", "host", "wait", "repeat", "do"];
const KEYS: [&str; 10] = ["run", "on", "lane", "as", "after", "host", "wait", "repeat", "do", "when"];

pub(super) fn items(node: &Node, what: &str) -> Result<Vec<Item>> {
    node.list(what)?.iter().map(|node| item(node, what)).collect()
}

fn item(node: &Node, parent: &str) -> Result<Item> {
    let what = format!("an item of {parent}");
    let fields = node.fields(&what, &KEYS)?;
    // `repeat: 4, do: x` is one step with two keys; of the others exactly one may stand.
    let (kind, key, body) = match (fields.get("repeat"), fields.get("do")) {
        (Some(_), Some(_)) => fields.only(&["run", "host", "wait", "repeat"], "an item does exactly one thing")?,
        (Some(times), None) => {
            return Err(
                Error::at(times.place, format!("{what} repeats nothing")).help("name a motif or list items with do:")
            );
        }
        _ => fields.only(&STEPS, "an item does exactly one thing")?,
    };
    if kind != "run" {
        for only in ["on", "lane", "as", "after"] {
            if let Some(node) = fields.get(only) {
                return Err(Error::at(node.place, format!("`{only}` belongs to run, not to {kind}")).help("remove it"));
            }
        }
    }
    let name = |key: &str| fields.get(key).map(|n| n.name(&format!("`{key}` of {what}"))).transpose();
    let step = match kind {
        "run" => Step::Run {
            block: body.name("the block to run")?,
            on: name("on")?,
            lane: name("lane")?,
            label: name("as")?,
            after: fields.get("after").map(references).transpose()?.unwrap_or_default(),
        },
        "host" => Step::Host(body.duration("host time")?),
        "wait" => Step::Wait(references(body)?),
        _ => {
            let times = fields.get("repeat").map(|n| n.count("repeat")).transpose()?.unwrap_or(1);
            let body = fields.need("do")?;
            let body = match body.value {
                Value::List(_) => Body::Inline(items(body, parent)?),
                _ => Body::Motif(body.name("the motif to do")?),
            };
            Step::Repeat { times, body }
        }
    };
    let when = fields.get("when").map(when).transpose()?.unwrap_or_default();
    Ok(Item { step, when, place: key.place })
}

/// One reference or a list of them.
fn references(node: &Node) -> Result<Vec<Reference>> {
    match &node.value {
        Value::List(list) => list.iter().map(reference).collect(),
        _ => Ok(vec![reference(node)?]),
    }
}

/// `gather` or `gather[-1]`.
fn reference(node: &Node) -> Result<Reference> {
    let text = node.text("a reference")?;
    let wrong = || node.wrong("a reference", "a label such as gather or gather[-1]");
    let (label, back) = match text.split_once('[') {
        None => (text.as_str(), 0),
        Some((label, rest)) => {
            let back = rest.strip_suffix(']').and_then(|n| n.strip_prefix('-')).and_then(|n| n.parse().ok());
            (label, back.filter(|back| *back > 0).ok_or_else(wrong)?)
        }
    };
    check::name(node.place, "a label", label)?;
    Ok(Reference { label: label.to_owned(), back })
}

pub(super) fn when(node: &Node) -> Result<When> {
    let mut all = Vec::new();
    for (key, node) in node.entries("when")? {
        let selector = match &node.value {
            Value::List(list) => {
                Selector::These(list.iter().map(|n| n.integer("a coordinate")).collect::<Result<_>>()?)
            }
            Value::Int(_) => Selector::These(vec![node.integer("a coordinate")?]),
            Value::Text(text) => match text.as_str() {
                "first" => Selector::First,
                "last" => Selector::Last,
                "not first" => Selector::NotFirst,
                "not last" => Selector::NotLast,
                other => {
                    return Err(Error::at(node.place, format!("`when` cannot be `{other}`"))
                        .nearest(other, ["first", "last", "not first", "not last"]));
                }
            },
            _ => return Err(node.wrong("when", "first, last, not first, not last, a coordinate or a list of them")),
        };
        all.push((key.name.clone(), selector));
    }
    Ok(When(all))
}
