//! Tenth pass: sequences that stand in several places become motifs.
//!
//! Works on the finished schedule, where an item's text says what it does. What a reference means depends on the
//! sequence around it, so moving items into a motif could change it: every motif is proved by lowering the pattern
//! before and after, and kept only if every rank still does the same, host time apart. That is averaged over the places,
//! which keeps its sum.

use std::collections::HashMap;

use maestro_pattern::{Body, Instruction, Item, Motif, Pattern, Plan, Step};

/// Lines that a motif must save to be worth a name.
const WORTH: usize = 4;

/// Places whose host times differ by more than this factor are not the same sequence.
const ALIKE: f64 = 1.25;

/// Moves repeated sequences of `pattern` into motifs.
pub(crate) fn extract(pattern: &mut Pattern) {
    let Ok(before) = Plan::new(pattern, &[]) else { return };
    while let Some(smaller) = candidates(pattern).iter().find_map(|candidate| {
        let attempt = replaced(pattern, candidate);
        Plan::new(&attempt, &[]).is_ok_and(|after| same(&before, &after)).then_some(attempt)
    }) {
        *pattern = smaller;
    }
}

/// Whether every rank does the same in both plans, host time apart.
fn same(before: &Plan, after: &Plan) -> bool {
    (0..before.world.size()).all(|rank| {
        let (a, b) = (&before.program(rank).instructions, &after.program(rank).instructions);
        a.len() == b.len()
            && a.iter().zip(b).all(|(a, b)| match (a, b) {
                (Instruction::Host(_), Instruction::Host(_)) => true,
                _ => a == b,
            })
    })
}

/// A sequence that stands in several places.
struct Candidate {
    /// (number of the body in the order of [`bodies`], first item).
    places: Vec<(usize, usize)>,
    length: usize,
    saved: usize,
}

/// Sequences worth a motif, those that save most first.
fn candidates(pattern: &Pattern) -> Vec<Candidate> {
    let bodies = bodies(pattern);
    let keys: Vec<Vec<String>> = bodies.iter().map(|(items, _)| items.iter().map(key).collect()).collect();
    let longest = keys.iter().map(Vec::len).max().unwrap_or(0);
    let mut all = Vec::new();
    for length in (2..=longest).rev() {
        let mut windows: HashMap<&[String], Vec<(usize, usize)>> = HashMap::new();
        for (body, keys) in keys.iter().enumerate() {
            for start in 0..(keys.len() + 1).saturating_sub(length) {
                let items = &bodies[body].0[start..start + length];
                let host = |item: Option<&Item>| item.is_none_or(|item| matches!(item.step, Step::Host(_)));
                // The gaps around a sequence belong to the place, not to the motif.
                if host(items.first()) || host(items.last()) {
                    continue;
                }
                let places = windows.entry(&keys[start..start + length]).or_default();
                let overlaps = |(b, s): &(usize, usize)| *b == body && s + length > start;
                if !places.last().is_some_and(overlaps) {
                    places.push((body, start));
                }
            }
        }
        for (_, places) in windows.into_iter().filter(|(_, places)| places.len() > 1) {
            let (body, start) = places[0];
            let each = lines(&bodies[body].0[start..start + length]);
            // What stays: the motif with its name, and a line a place.
            let saved = (each * places.len()).saturating_sub(each + 1 + places.len());
            let host = places.iter().map(|(body, start)| host_ns(&bodies[*body].0[*start..start + length]));
            let (least, most) = host.fold((u64::MAX, 0), |(least, most), ns| (least.min(ns), most.max(ns)));
            if saved >= WORTH && most as f64 <= ALIKE * least as f64 {
                all.push(Candidate { places, length, saved });
            }
        }
    }
    all.sort_by(|a, b| (b.saved, &a.places, a.length).cmp(&(a.saved, &b.places, b.length)));
    all
}

/// Every sequence of the pattern with how often it runs, outer before inner.
fn bodies(pattern: &Pattern) -> Vec<(&[Item], u64)> {
    let mut all = Vec::new();
    let roots = pattern.roles.iter().map(|role| role.schedule.as_slice());
    for root in roots.chain([pattern.schedule.as_slice()]) {
        inner(root, 1, &mut all);
    }
    all
}

fn inner<'a>(items: &'a [Item], times: u64, all: &mut Vec<(&'a [Item], u64)>) {
    all.push((items, times));
    for item in items {
        if let Step::Repeat { times: more, body: Body::Inline(items) } = &item.step {
            inner(items, times * more, all);
        }
    }
}

/// What makes two items the same: all but host time.
fn key(item: &Item) -> String {
    let step = match &item.step {
        Step::Host(_) => "host".to_owned(),
        Step::Repeat { times, body: Body::Inline(items) } => {
            format!("repeat {times} [{}]", items.iter().map(key).collect::<Vec<_>>().join(","))
        }
        other => format!("{other:?}"),
    };
    format!("{step} {:?}", item.when)
}

/// Host time of a sequence in nanoseconds.
fn host_ns(items: &[Item]) -> u64 {
    let of = |item: &Item| match &item.step {
        Step::Host(ns) => *ns,
        Step::Repeat { times, body: Body::Inline(items) } => times * host_ns(items),
        Step::Repeat { .. } | Step::Run { .. } | Step::Wait(_) => 0,
    };
    items.iter().map(of).sum()
}

fn lines(items: &[Item]) -> usize {
    let of = |item: &Item| match &item.step {
        Step::Repeat { body: Body::Inline(items), .. } => 2 + lines(items),
        _ => 1,
    };
    items.iter().map(of).sum()
}

/// The pattern with `candidate` as a motif.
fn replaced(pattern: &Pattern, candidate: &Candidate) -> Pattern {
    let bodies = bodies(pattern);
    let occurrences: Vec<(&[Item], u64)> = candidate
        .places
        .iter()
        .map(|(body, start)| (&bodies[*body].0[*start..start + candidate.length], bodies[*body].1))
        .collect();
    let motif =
        Motif { name: name(pattern, occurrences[0].0), items: averaged(&occurrences), place: Default::default() };
    let mut starts: HashMap<usize, Vec<usize>> = HashMap::new();
    for (body, start) in &candidate.places {
        starts.entry(*body).or_default().push(*start);
    }
    let mut result = pattern.clone();
    let mut number = 0;
    for role in &mut result.roles {
        put(&mut role.schedule, &motif.name, candidate.length, &starts, &mut number);
    }
    put(&mut result.schedule, &motif.name, candidate.length, &starts, &mut number);
    result.motifs.push(motif);
    result
}

/// Puts the motif in its places, numbering bodies as [`bodies`] does.
fn put(items: &mut Vec<Item>, name: &str, length: usize, starts: &HashMap<usize, Vec<usize>>, number: &mut usize) {
    let mine = *number;
    *number += 1;
    for item in items.iter_mut() {
        if let Step::Repeat { body: Body::Inline(items), .. } = &mut item.step {
            put(items, name, length, starts, number);
        }
    }
    // From the back, so that earlier starts stay where they are.
    for start in starts.get(&mine).into_iter().flatten().rev() {
        let item = Item::new(Step::Repeat { times: 1, body: Body::Motif(name.to_owned()) });
        items.splice(*start..start + length, [item]);
    }
    for item in items {
        // A loop over nothing but a motif says so in one line.
        let Step::Repeat { body, .. } = &mut item.step else { continue };
        if let Body::Inline(items) = body
            && let [Item { step: Step::Repeat { times: 1, body: only @ Body::Motif(_) }, when, .. }] = items.as_slice()
            && when.0.is_empty()
        {
            *body = only.clone();
        }
    }
}

/// The items of the first occurrence with the host time of all, each weighted by how often it runs.
fn averaged(occurrences: &[(&[Item], u64)]) -> Vec<Item> {
    let total: u64 = occurrences.iter().map(|(_, times)| times).sum();
    (0..occurrences[0].0.len())
        .map(|n| {
            let mut item = occurrences[0].0[n].clone();
            match &mut item.step {
                Step::Host(ns) => {
                    let sum: u64 = occurrences
                        .iter()
                        .map(|(items, times)| match items[n].step {
                            Step::Host(ns) => ns * times,
                            _ => 0,
                        })
                        .sum();
                    *ns = super::blocks::readable(sum as f64 / total.max(1) as f64);
                }
                Step::Repeat { body: Body::Inline(inner), .. } => {
                    let nested: Vec<(&[Item], u64)> = occurrences
                        .iter()
                        .filter_map(|(items, times)| match &items[n].step {
                            Step::Repeat { body: Body::Inline(items), .. } => Some((items.as_slice(), *times)),
                            _ => None,
                        })
                        .collect();
                    *inner = averaged(&nested);
                }
                Step::Repeat { .. } | Step::Run { .. } | Step::Wait(_) => {}
            }
            item
        })
        .collect()
}

/// `forward_motif`, `backward_motif` or `motif`, after the blocks inside, numbered if there are more.
fn name(pattern: &Pattern, items: &[Item]) -> String {
    let mut names = Vec::new();
    let mut todo: Vec<&Item> = items.iter().collect();
    while let Some(item) = todo.pop() {
        match &item.step {
            Step::Run { block, .. } => names.push(block.as_str()),
            Step::Repeat { body: Body::Inline(items), .. } => todo.extend(items),
            Step::Repeat { .. } | Step::Host(_) | Step::Wait(_) => {}
        }
    }
    let pass = ["backward", "forward"].into_iter().find(|pass| names.iter().any(|name| name.contains(pass)));
    let stem = pass.map_or_else(|| "motif".to_owned(), |pass| format!("{pass}_motif"));
    let taken = |name: &String| pattern.motifs.iter().any(|motif| motif.name == *name);
    let numbered = (2..).map(|n| format!("{stem}_{n}"));
    [stem.clone()].into_iter().chain(numbered).find(|name| !taken(name)).unwrap_or(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(schedule: &str) -> Pattern {
        let text = format!(
            "maestro: 1
name: t
axes: {{dp: {{size: 2}}}}
blocks:
  g: {{all_gather: {{size: 96, dtype: f32}}}}
  c: {{compute: [{{hold: 5us}}]}}
  d: {{compute: [{{hold: 5us}}]}}
lanes: {{main: {{}}, side: {{}}}}
schedule:
{schedule}"
        );
        Pattern::from_yaml(&text).unwrap()
    }

    const LAYER: &str = "- {run: g, on: dp, lane: side}
- {host: 10us}
- {run: c, lane: main, after: [g]}
- {host: 10us}
- {run: c, lane: main}
- {host: 10us}
- {run: d, lane: main}
";

    fn total(pattern: &Pattern) -> u64 {
        let plan = Plan::new(pattern, &[]).unwrap();
        let of = |i: &Instruction| if let Instruction::Host(ns) = i { *ns } else { 0 };
        plan.program(0).instructions.iter().map(of).sum()
    }

    #[test]
    fn what_stands_twice_becomes_a_motif_and_host_time_keeps_its_sum() {
        let slow = LAYER.replace("10us", "12us");
        let mut folded = pattern(&format!("{LAYER}- {{host: 7us}}\n- {{run: d, lane: side}}\n{slow}"));
        let plain = folded.clone();
        extract(&mut folded);
        assert_eq!(folded.motifs.len(), 1);
        assert_eq!(folded.schedule.len(), 4);
        assert_eq!(folded.motifs[0].items[1].step, Step::Host(11_000));
        assert_eq!(total(&folded), total(&plain));
        assert_eq!(Pattern::from_yaml(&folded.to_yaml()).unwrap(), folded);
    }

    #[test]
    fn host_times_that_differ_make_two_sequences() {
        let slow = LAYER.replace("10us", "40us");
        let mut folded = pattern(&format!("{LAYER}- {{run: d, lane: side}}\n{slow}"));
        extract(&mut folded);
        assert!(folded.motifs.is_empty());
    }

    #[test]
    fn what_would_change_its_meaning_stays() {
        // Inside a motif, `g` before its own gather would mean the one of the iteration before.
        let layer = LAYER.replace("- {run: g", "- {run: d, lane: main, after: [g]}\n- {run: g");
        let mut folded =
            pattern(&format!("- {{run: g, on: dp, lane: side}}\n{layer}- {{run: d, lane: side}}\n{layer}"));
        let plain = Plan::new(&folded, &[]).unwrap();
        extract(&mut folded);
        assert!(same(&plain, &Plan::new(&folded, &[]).unwrap()));
    }
}
