//! Which ranks do the same: one schedule is lowered a class, however many ranks it has.

use std::collections::{HashMap, HashSet};

use crate::{Body, Error, Item, Pattern, Place, Result, Selector, Step, When, World};

/// Per rank its class, and per class its first rank. Ranks that agree on all conditions and have teams on the same
/// axes are of one class.
pub(crate) fn classes(pattern: &Pattern, world: &World) -> Result<(Vec<u32>, Vec<u32>)> {
    let conditions = conditions(pattern);
    for (when, place) in &conditions {
        check_coordinates(when, world, *place)?;
    }
    let mut numbers: HashMap<(Vec<bool>, Vec<bool>), u32> = HashMap::new();
    let mut class_of = Vec::new();
    let mut first_ranks = Vec::new();
    for rank in 0..world.size() {
        let selected = conditions.iter().map(|(when, _)| world.selects(when, rank)).collect::<Result<Vec<bool>>>()?;
        let seated = (0..world.axes().len()).map(|axis| world.seat(axis, rank).is_some()).collect();
        let next = first_ranks.len() as u32;
        let class = *numbers.entry((selected, seated)).or_insert(next);
        if class == next {
            first_ranks.push(rank);
        }
        class_of.push(class);
    }
    Ok((class_of, first_ranks))
}

/// Refuses coordinates that no rank has: a condition that selects nobody is a slip.
fn check_coordinates(when: &When, world: &World, place: Place) -> Result<()> {
    for (name, selector) in &when.0 {
        let (Some(axis), Selector::These(all)) = (world.axis(name), selector) else { continue };
        let size = world.teams(axis).iter().map(Vec::len).max().unwrap_or(0);
        if let Some(coordinate) = all.iter().find(|coordinate| **coordinate as usize >= size) {
            return Err(Error::at(
                place,
                format!("`when` asks for coordinate {coordinate} of axis `{name}` of size {size}"),
            )
            .help(format!("coordinates go from 0 to {}", size.saturating_sub(1))));
        }
    }
    Ok(())
}

/// Every distinct condition of the pattern, with the place where it stands first.
fn conditions(pattern: &Pattern) -> Vec<(&When, Place)> {
    let mut all = Vec::new();
    let mut seen = HashSet::new();
    let mut todo: Vec<&Item> = Vec::new();
    // A stack, filled from the back so that it empties in the order of the text.
    todo.extend(pattern.roles.iter().flat_map(|r| &r.schedule).rev());
    todo.extend(pattern.schedule.iter().rev());
    todo.extend(pattern.motifs.iter().flat_map(|m| &m.items).rev());
    for role in &pattern.roles {
        if seen.insert(&role.when) {
            all.push((&role.when, role.place));
        }
    }
    while let Some(item) = todo.pop() {
        if !item.when.0.is_empty() && seen.insert(&item.when) {
            all.push((&item.when, item.place));
        }
        if let Step::Repeat { body: Body::Inline(inner), .. } = &item.step {
            todo.extend(inner.iter().rev());
        }
    }
    all
}
