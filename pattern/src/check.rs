//! What can be checked without a world: every name can be written and resolves, no motif contains itself, nothing
//! nests without end.
//!
//! What needs to know who shares a team (sizes, splits, order of collectives) is checked on the plan.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{Block, Body, Error, Item, Motif, Pattern, Place, Result, Step, When};

/// How deep `do` may nest, through motifs and lists of items alike. Whatever walks a schedule recurses this deep.
const MOST_NESTED: usize = 64;

/// Checks all names of `pattern`.
///
/// # Errors
/// The first that cannot be written, does not resolve or is defined twice, with the nearest that would; a motif that
/// contains itself; sequences that nest too deep.
pub(crate) fn names(pattern: &Pattern) -> Result<()> {
    // First, because all other walks recurse.
    Nesting { motifs: pattern.motifs.iter().map(|m| (m.name.as_str(), m)).collect(), depths: HashMap::new() }
        .check(pattern)?;
    let check = Check {
        labels: labels(pattern),
        axes: Known::new(pattern.axes.iter().map(|a| (a.name.as_str(), ()))),
        blocks: Known::new(pattern.blocks.iter().map(|b| (b.name.as_str(), b))),
        lanes: Known::new(pattern.lanes.iter().map(|l| (l.name.as_str(), ()))),
        motifs: Known::new(pattern.motifs.iter().map(|m| (m.name.as_str(), ()))),
    };
    defined("axis", pattern.axes.iter().map(|a| (a.name.as_str(), a.place)))?;
    defined("block", pattern.blocks.iter().map(|b| (b.name.as_str(), b.place)))?;
    defined("lane", pattern.lanes.iter().map(|l| (l.name.as_str(), l.place)))?;
    defined("motif", pattern.motifs.iter().map(|m| (m.name.as_str(), m.place)))?;
    defined("role", pattern.roles.iter().map(|r| (r.name.as_str(), r.place)))?;
    for motif in &pattern.motifs {
        check.items(&motif.items)?;
    }
    check.items(&pattern.schedule)?;
    for role in &pattern.roles {
        check.when(&role.when, role.place)?;
        check.items(&role.schedule)?;
    }
    Ok(())
}

/// Refuses text that is no name: letters, digits, `_`, `-`, `.`, `/` and `:`, and nothing that YAML would take for
/// something else. So a name can be written as it is, wherever it stands.
pub(crate) fn name(place: Place, what: &str, text: &str) -> Result<()> {
    let fits = |c: char| c.is_alphanumeric() || "_-./:".contains(c);
    let starts = text.chars().next().is_some_and(|c| !c.is_ascii_digit() && !"-.:".contains(c));
    let word = ["true", "false", "null"].iter().any(|word| text.eq_ignore_ascii_case(word));
    if starts && !text.ends_with(':') && !word && text.chars().all(fits) {
        return Ok(());
    }
    let help = if word {
        "YAML takes this word for a value; choose another name"
    } else {
        "names are letters, digits and _ - . / : and start with no digit, dash, dot or colon, nor end with a colon"
    };
    Err(Error::at(place, format!("{what} cannot be named `{text}`")).help(help))
}

/// Every label that some item carries, ordered so that the same mistake gives the same sentence every time.
fn labels(pattern: &Pattern) -> BTreeSet<&str> {
    let mut labels = BTreeSet::new();
    let mut todo: Vec<&Item> = Vec::new();
    todo.extend(pattern.schedule.iter());
    todo.extend(pattern.motifs.iter().flat_map(|m| &m.items));
    todo.extend(pattern.roles.iter().flat_map(|r| &r.schedule));
    while let Some(item) = todo.pop() {
        match &item.step {
            Step::Run { block, label, .. } => {
                labels.insert(label.as_deref().unwrap_or(block));
            }
            Step::Repeat { body: Body::Inline(inner), .. } => todo.extend(inner),
            Step::Repeat { body: Body::Motif(_), .. } | Step::Host(_) | Step::Wait(_) => {}
        }
    }
    labels
}

/// Definitions: what is named, and once.
fn defined<'a>(what: &str, names: impl Iterator<Item = (&'a str, Place)>) -> Result<()> {
    let mut seen = HashSet::new();
    for (text, place) in names {
        name(place, what, text)?;
        if !seen.insert(text) {
            return Err(Error::at(place, format!("{what} `{text}` is defined twice")).help("rename one of them"));
        }
    }
    Ok(())
}

/// How deep every sequence nests.
struct Nesting<'a> {
    motifs: HashMap<&'a str, &'a Motif>,
    /// Of motifs that have been looked through.
    depths: HashMap<&'a str, usize>,
}

impl<'a> Nesting<'a> {
    fn check(&mut self, pattern: &'a Pattern) -> Result<()> {
        for motif in &pattern.motifs {
            self.motif(motif, &mut Vec::new(), 0)?;
        }
        self.sequence(&pattern.schedule, &mut Vec::new(), 0)?;
        for role in &pattern.roles {
            self.sequence(&role.schedule, &mut Vec::new(), 0)?;
        }
        Ok(())
    }

    /// How deep `items` nest that stand `level` deep, in the motifs of `path`.
    fn sequence(&mut self, items: &'a [Item], path: &mut Vec<&'a str>, level: usize) -> Result<usize> {
        let mut deepest = 0;
        for item in items {
            let Step::Repeat { body, .. } = &item.step else { continue };
            let too_deep = || {
                Error::at(item.place, format!("`do` nests more than {MOST_NESTED} deep"))
                    .help("let motifs do fewer others")
            };
            if level == MOST_NESTED {
                return Err(too_deep());
            }
            let inside = match body {
                Body::Inline(inner) => self.sequence(inner, path, level + 1)?,
                // One that is missing is found when names are resolved.
                Body::Motif(name) => match self.motifs.get(name.as_str()).copied() {
                    Some(motif) => self.motif(motif, path, level + 1)?,
                    None => 0,
                },
            };
            if level + 1 + inside > MOST_NESTED {
                return Err(too_deep());
            }
            deepest = deepest.max(1 + inside);
        }
        Ok(deepest)
    }

    /// Also refuses a motif that contains itself, naming the whole circle.
    fn motif(&mut self, motif: &'a Motif, path: &mut Vec<&'a str>, level: usize) -> Result<usize> {
        if let Some(depth) = self.depths.get(motif.name.as_str()) {
            return Ok(*depth);
        }
        if let Some(start) = path.iter().position(|seen| *seen == motif.name) {
            let circle: Vec<&str> = path[start..].iter().copied().chain([motif.name.as_str()]).collect();
            return Err(Error::at(motif.place, format!("motifs go in a cycle: {}", circle.join(" -> ")))
                .help("a motif cannot contain itself"));
        }
        path.push(&motif.name);
        let depth = self.sequence(&motif.items, path, level)?;
        path.pop();
        self.depths.insert(&motif.name, depth);
        Ok(depth)
    }
}

/// Names that are defined, in the order of definition.
struct Known<'a, T> {
    names: Vec<&'a str>,
    things: HashMap<&'a str, T>,
}

impl<'a, T> Known<'a, T> {
    fn new(named: impl Iterator<Item = (&'a str, T)>) -> Self {
        let (mut names, mut things) = (Vec::new(), HashMap::new());
        for (name, thing) in named {
            names.push(name);
            things.insert(name, thing);
        }
        Self { names, things }
    }

    fn find(&self, what: &str, name: &str, place: Place) -> Result<&T> {
        self.things.get(name).ok_or_else(|| {
            Error::at(place, format!("no {what} is named `{name}`")).nearest(name, self.names.iter().copied())
        })
    }
}

struct Check<'a> {
    labels: BTreeSet<&'a str>,
    axes: Known<'a, ()>,
    blocks: Known<'a, &'a Block>,
    lanes: Known<'a, ()>,
    motifs: Known<'a, ()>,
}

impl Check<'_> {
    fn when(&self, when: &When, place: Place) -> Result<()> {
        when.0.iter().try_for_each(|(axis, _)| self.axes.find("axis", axis, place).map(|_| ()))
    }

    fn items(&self, items: &[Item]) -> Result<()> {
        for item in items {
            self.when(&item.when, item.place)?;
            match &item.step {
                Step::Run { block, on, lane, label, after } => {
                    let block = self.blocks.find("block", block, item.place)?;
                    self.run(block, on.as_deref(), lane.as_deref(), item.place)?;
                    label.iter().try_for_each(|label| name(item.place, "a label", label))?;
                    after.iter().try_for_each(|r| self.label(&r.label, item.place))?;
                }
                Step::Wait(all) => all.iter().try_for_each(|r| self.label(&r.label, item.place))?,
                Step::Repeat { body: Body::Motif(name), .. } => {
                    self.motifs.find("motif", name, item.place)?;
                }
                Step::Repeat { body: Body::Inline(inner), .. } => self.items(inner)?,
                Step::Host(_) => {}
            }
        }
        Ok(())
    }

    fn run(&self, block: &Block, on: Option<&str>, lane: Option<&str>, place: Place) -> Result<()> {
        let communicates = block.work.communicates();
        let block = &block.name;
        match on {
            Some(axis) => {
                self.axes.find("axis", axis, place)?;
                if !communicates {
                    return Err(Error::at(place, format!("block `{block}` does not communicate and needs no axis"))
                        .help("remove `on`"));
                }
            }
            None if communicates => {
                return Err(Error::at(place, format!("block `{block}` communicates and needs an axis"))
                    .help(format!("add on: {}", self.axes.names.first().copied().unwrap_or("dp"))));
            }
            None => {}
        }
        match lane {
            Some(lane) => self.lanes.find("lane", lane, place).map(|_| ()),
            None if self.lanes.names.len() == 1 => Ok(()),
            None => Err(Error::at(place, format!("block `{block}` runs on no lane"))
                .help(format!("add lane: one of {}", self.lanes.names.join(", ")))),
        }
    }

    fn label(&self, label: &str, place: Place) -> Result<()> {
        if self.labels.contains(label) {
            return Ok(());
        }
        Err(Error::at(place, format!("nothing is labelled `{label}`")).nearest(label, self.labels.iter().copied()))
    }
}
