//! What can be checked without a world: every name resolves, no motif contains itself, nothing waits in a circle.
//!
//! What needs to know who shares a team (sizes, splits, order of collectives) is checked on the plan.

use std::collections::HashSet;

use crate::{Body, Error, Item, Pattern, Place, Result, Step, When};

/// Checks all names of `pattern`.
///
/// # Errors
/// The first that does not resolve or is defined twice, with the nearest that would; a motif that contains itself; a
/// reference to something that only comes later.
pub(crate) fn names(pattern: &Pattern) -> Result<()> {
    let check = Check {
        pattern,
        labels: labels(pattern),
        axes: pattern.axes.iter().map(|a| a.name.as_str()).collect(),
        blocks: pattern.blocks.iter().map(|b| b.name.as_str()).collect(),
        lanes: pattern.lanes.iter().map(|l| l.name.as_str()).collect(),
        motifs: pattern.motifs.iter().map(|m| m.name.as_str()).collect(),
    };
    twice("axis", pattern.axes.iter().map(|a| (a.name.as_str(), a.place)))?;
    twice("block", pattern.blocks.iter().map(|b| (b.name.as_str(), b.place)))?;
    twice("lane", pattern.lanes.iter().map(|l| (l.name.as_str(), l.place)))?;
    twice("motif", pattern.motifs.iter().map(|m| (m.name.as_str(), m.place)))?;
    twice("role", pattern.roles.iter().map(|r| (r.name.as_str(), r.place)))?;
    check.motif_circles()?;
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

/// Every label that some item carries.
fn labels(pattern: &Pattern) -> HashSet<&str> {
    let mut labels = HashSet::new();
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

fn twice<'a>(what: &str, names: impl Iterator<Item = (&'a str, Place)>) -> Result<()> {
    let mut seen = HashSet::new();
    for (name, place) in names {
        if !seen.insert(name) {
            return Err(Error::at(place, format!("{what} `{name}` is defined twice")).help("rename one of them"));
        }
    }
    Ok(())
}

struct Check<'a> {
    pattern: &'a Pattern,
    labels: HashSet<&'a str>,
    axes: Vec<&'a str>,
    blocks: Vec<&'a str>,
    lanes: Vec<&'a str>,
    motifs: Vec<&'a str>,
}

impl Check<'_> {
    fn known(&self, what: &str, name: &str, known: &[&str], place: Place) -> Result<()> {
        if known.contains(&name) {
            return Ok(());
        }
        Err(Error::at(place, format!("no {what} is named `{name}`")).nearest(name, known.iter().copied()))
    }

    fn when(&self, when: &When, place: Place) -> Result<()> {
        when.0.iter().try_for_each(|(axis, _)| self.known("axis", axis, &self.axes, place))
    }

    fn items(&self, items: &[Item]) -> Result<()> {
        for item in items {
            self.when(&item.when, item.place)?;
            match &item.step {
                Step::Run { block, on, lane, after, .. } => {
                    self.known("block", block, &self.blocks, item.place)?;
                    self.run(block, on.as_deref(), lane.as_deref(), item.place)?;
                    after.iter().try_for_each(|r| self.label(&r.label, item.place))?;
                }
                Step::Wait(all) => all.iter().try_for_each(|r| self.label(&r.label, item.place))?,
                Step::Repeat { body: Body::Motif(name), .. } => {
                    self.known("motif", name, &self.motifs, item.place)?;
                }
                Step::Repeat { body: Body::Inline(inner), .. } => self.items(inner)?,
                Step::Host(_) => {}
            }
        }
        Ok(())
    }

    fn run(&self, block: &str, on: Option<&str>, lane: Option<&str>, place: Place) -> Result<()> {
        let communicates = self.pattern.blocks.iter().any(|b| b.name == block && b.work.communicates());
        match on {
            Some(axis) => {
                self.known("axis", axis, &self.axes, place)?;
                if !communicates {
                    return Err(Error::at(place, format!("block `{block}` does not communicate and needs no axis"))
                        .help("remove `on`"));
                }
            }
            None if communicates => {
                return Err(Error::at(place, format!("block `{block}` communicates and needs an axis"))
                    .help(format!("add on: {}", self.axes.first().copied().unwrap_or("dp"))));
            }
            None => {}
        }
        match lane {
            Some(lane) => self.known("lane", lane, &self.lanes, place),
            None if self.lanes.len() == 1 => Ok(()),
            None => Err(Error::at(place, format!("block `{block}` runs on no lane"))
                .help(format!("add lane: one of {}", self.lanes.join(", ")))),
        }
    }

    fn label(&self, label: &str, place: Place) -> Result<()> {
        if self.labels.contains(label) {
            return Ok(());
        }
        Err(Error::at(place, format!("nothing is labelled `{label}`")).nearest(label, self.labels.iter().copied()))
    }

    /// Refuses motifs that contain themselves, naming the whole circle.
    fn motif_circles(&self) -> Result<()> {
        let mut done = HashSet::new();
        for motif in &self.pattern.motifs {
            self.descend(&motif.name, &mut Vec::new(), &mut done)?;
        }
        Ok(())
    }

    /// Depth-first; recursion is as deep as motifs nest, and a motif met twice on the way is the error looked for.
    fn descend<'s>(&'s self, name: &'s str, path: &mut Vec<&'s str>, done: &mut HashSet<&'s str>) -> Result<()> {
        if done.contains(name) {
            return Ok(());
        }
        let Some(motif) = self.pattern.motifs.iter().find(|m| m.name == name) else { return Ok(()) };
        if let Some(start) = path.iter().position(|seen| *seen == name) {
            let circle: Vec<&str> = path[start..].iter().copied().chain([name]).collect();
            return Err(Error::at(motif.place, format!("motifs go in a cycle: {}", circle.join(" -> ")))
                .help("a motif cannot contain itself"));
        }
        path.push(name);
        let mut todo: Vec<&Item> = motif.items.iter().rev().collect();
        while let Some(item) = todo.pop() {
            match &item.step {
                Step::Repeat { body: Body::Motif(inner), .. } => self.descend(inner, path, done)?,
                Step::Repeat { body: Body::Inline(inner), .. } => todo.extend(inner.iter().rev()),
                Step::Run { .. } | Step::Host(_) | Step::Wait(_) => {}
            }
        }
        path.pop();
        done.insert(name);
        Ok(())
    }
}
