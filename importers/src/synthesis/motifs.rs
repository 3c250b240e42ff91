//! Tenth pass: sequences that stand in several places become motifs.
//!
//! Works on the finished schedule, where an item's text says what it does. What a reference means depends on the
//! sequence around it, so moving items into a motif could change it: [`Row::changes`] tells where it would, and such a
//! sequence is cut there. In the end the pattern is proved by lowering it before and after, and kept only if every rank
//! still does the same, host time apart. That is averaged over the places, which keeps its sum; roles share a motif only
//! if none of them gains or loses host time by it.
//!
//! Schedules have thousands of items. So repeats are found by sorting, those that save most are looked at first, and
//! there are bounds: on motifs, because a page with more of them is no easier to read and each takes another search; on
//! sequences looked at, because cutting could go on for long. As what would change is cut before, one proof of all
//! motifs together is the rule; lowering a long schedule costs as much as the search for a motif.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};

use maestro_pattern::{Body, Instruction, Item, Motif, Pattern, Plan, Reference, Step};

use super::fresh;
use super::spans::Spans;

/// Lines that a motif must save to be worth a name.
const WORTH: usize = 4;

/// Places whose host times differ by more than this factor are not the same sequence.
const ALIKE: f64 = 1.25;

/// Most motifs of a pattern, and so most plans that are made to prove them.
const MOST_MOTIFS: usize = 16;

/// Most sequences that are looked at closely.
const MOST_LOOKS: usize = 1_000;

/// Share of a rank's host time, beside [`DRIFT_NS`], that averaging may add or take: what rounding does.
const DRIFT: f64 = 0.01;

/// Host time in nanoseconds that averaging may add or take.
const DRIFT_NS: f64 = 1_000.0;

/// Moves repeated sequences of `pattern` into motifs.
pub(crate) fn extract(pattern: &mut Pattern) {
    let mut smaller: Vec<Pattern> = Vec::new();
    let mut looks = MOST_LOOKS;
    while smaller.len() < MOST_MOTIFS {
        let now = smaller.last().unwrap_or(pattern);
        let Some(next) = best(&Row::new(now), &mut looks).map(|motif| replaced(now, &motif)) else { break };
        smaller.push(next);
    }
    if smaller.is_empty() {
        return;
    }
    let Ok(before) = Plan::new(pattern, &[]) else { return };
    while let Some(attempt) = smaller.pop() {
        if Plan::new(&attempt, &[]).is_ok_and(|after| same(&before, &after)) {
            *pattern = attempt;
            return;
        }
    }
}

/// Whether every rank does the same in both plans, with as much host time in all.
fn same(before: &Plan, after: &Plan) -> bool {
    // Ranks share programs, which are long.
    let programs: HashSet<(u32, u32)> =
        before.program_of.iter().copied().zip(after.program_of.iter().copied()).collect();
    before.program_of.len() == after.program_of.len()
        && programs.into_iter().all(|(a, b)| {
            let (a, b) = (&before.programs[a as usize].instructions, &after.programs[b as usize].instructions);
            let alike = |(a, b): (&Instruction, &Instruction)| match (a, b) {
                (Instruction::Host(_), Instruction::Host(_)) => true,
                _ => a == b,
            };
            let (host, other) = (host_of(a), host_of(b));
            a.len() == b.len() && a.iter().zip(b).all(alike) && (host - other).abs() <= DRIFT * host + DRIFT_NS
        })
}

/// Host time of a program in nanoseconds.
fn host_of(instructions: &[Instruction]) -> f64 {
    instructions.iter().map(|instruction| if let Instruction::Host(ns) = instruction { *ns as f64 } else { 0.0 }).sum()
}

/// A sequence that stands in several places. In the order in which they are taken: what may save most lines first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    saved: usize,
    /// Where it starts in the row, ascending and without overlap; empty until looked at.
    places: Reverse<Vec<usize>>,
    length: Reverse<usize>,
    /// Where the places are: from and to which index in the order of the row, and how far from there.
    source: (usize, usize, usize),
}

/// What moving an item into a motif depends on: the nearest places of its sequence where what it refers to is issued.
struct Link {
    before: usize,
    /// Or the item itself.
    after: usize,
}

/// All sequences of a pattern one after the other, and what is to be known of their items.
struct Row<'a> {
    bodies: Vec<Sequence<'a>>,
    /// Per item: its sequence, and the number of what makes it the same as others. A sequence ends with one that none
    /// is the same as.
    items: Vec<(usize, u32)>,
    links: Vec<Vec<Link>>,
    /// Before each item: lines and nanoseconds of host time.
    lines: Vec<usize>,
    host_ns: Vec<f64>,
}

/// A sequence of a pattern.
struct Sequence<'a> {
    items: &'a [Item],
    /// How often it runs.
    times: u64,
    /// Number of the role, or of the one schedule.
    root: usize,
    /// Its first item in the row.
    start: usize,
}

impl<'a> Row<'a> {
    fn new(pattern: &'a Pattern) -> Self {
        let bodies = bodies(pattern);
        let motifs: HashMap<&str, &[Item]> =
            pattern.motifs.iter().map(|motif| (motif.name.as_str(), motif.items.as_slice())).collect();
        let mut row =
            Self { bodies: Vec::new(), items: Vec::new(), links: Vec::new(), lines: vec![0], host_ns: vec![0.0] };
        let mut numbers = HashMap::new();
        for (n, body) in bodies.iter().enumerate() {
            let one = |item| std::slice::from_ref(item);
            row.items.extend(body.items.iter().map(|item| (n, number(item, &mut numbers))));
            row.items.push((n, u32::MAX - n as u32));
            row.links.extend(links(body, &motifs));
            row.links.push(Vec::new());
            for (lines, host_ns) in
                body.items.iter().map(|item| (lines(one(item)), host_ns(one(item)))).chain([(0, 0.0)])
            {
                row.lines.push(row.lines[row.lines.len() - 1] + lines);
                row.host_ns.push(row.host_ns[row.host_ns.len() - 1] + host_ns);
            }
        }
        row.bodies = bodies;
        row
    }

    fn item(&self, place: usize) -> Option<&'a Item> {
        let body = &self.bodies[self.items.get(place)?.0];
        body.items.get(place - body.start)
    }

    fn host_ns(&self, start: usize, length: usize) -> f64 {
        self.host_ns[start + length] - self.host_ns[start]
    }

    /// The sequence of `length` items at each of `places`, without host time at its ends, if it is worth a motif there
    /// or, where only the `source` of the places is known, could be. The gaps around belong to the place, not to the
    /// motif.
    fn candidate(
        &self,
        mut start: usize,
        mut length: usize,
        mut places: Vec<usize>,
        mut source: (usize, usize, usize),
    ) -> Option<Candidate> {
        let host = |place| self.item(place).is_none_or(|item| matches!(item.step, Step::Host(_)));
        while length > 0 && host(start + length - 1) {
            length -= 1;
        }
        let skipped = (start..start + length).take_while(|place| host(*place)).count();
        (start, length, source.2) = (start + skipped, length - skipped, source.2 + skipped);
        places.iter_mut().for_each(|place| *place += skipped);
        if length < 2 {
            return None;
        }
        let most = if places.is_empty() { source.1 - source.0 } else { places.len() };
        let times = most.min(self.items.len() / length);
        let each = self.lines[start + length] - self.lines[start];
        // What stays: the motif with its name, and a line a place.
        let saved = (each * times).saturating_sub(each + 1 + times);
        let candidate = Candidate { saved, places: Reverse(places), length: Reverse(length), source };
        (times > 1 && saved >= WORTH).then_some(candidate)
    }

    /// Every sequence that stands in several places and neither goes on nor begins earlier in all of them.
    fn repeats(&self) -> (Vec<usize>, Vec<Candidate>) {
        let keys: Vec<u32> = self.items.iter().map(|(_, number)| *number).collect();
        let spans = Spans::new(&keys);
        let sorted = spans.sorted();
        let mut all = Vec::new();
        // Before each in their order: how often what precedes was not what precedes the one before.
        let preceding = |place: usize| place.checked_sub(1).map(|place| keys[place]);
        let mut changes = vec![0, 0];
        for pair in sorted.windows(2) {
            changes.push(changes[changes.len() - 1] + usize::from(preceding(pair[0]) != preceding(pair[1])));
        }
        // Lengths that all from an index on have in common, ascending.
        let mut open: Vec<(usize, usize)> = Vec::new();
        for index in 1..=sorted.len() {
            let common = if index < sorted.len() { spans.ahead(sorted[index - 1], sorted[index]) } else { 0 };
            let mut from = index - 1;
            while let Some((length, first)) = open.pop_if(|(length, _)| *length > common) {
                if changes[index] > changes[first + 1] {
                    all.extend(self.candidate(sorted[first], length, Vec::new(), (first, index, 0)));
                }
                from = first;
            }
            if common > 0 && open.last().is_none_or(|(length, _)| *length < common) {
                open.push((common, from));
            }
        }
        (sorted, all)
    }

    /// A candidate with its places, which do not overlap: the first, then the next after it.
    fn located(&self, candidate: &Candidate, sorted: &[usize]) -> Option<Candidate> {
        let (from, to, skipped) = candidate.source;
        let Reverse(length) = candidate.length;
        let mut all: Vec<usize> = sorted[from..to].iter().map(|place| place + skipped).collect();
        all.sort_unstable();
        let mut places: Vec<usize> = Vec::new();
        for place in all {
            if places.last().is_none_or(|last| last + length <= place) {
                places.push(place);
            }
        }
        self.candidate(*places.first()?, length, places, candidate.source)
    }

    /// Where a motif would change what a reference means: it refers to what was issued before the sequence, and the
    /// sequence issues that again, which in a motif makes it the one of the iteration before. Gives the item that refers
    /// and the first that issues; the sequence must not hold both.
    fn changes(&self, candidate: &Candidate) -> Option<(usize, usize)> {
        let Reverse(length) = candidate.length;
        (0..length).find_map(|n| {
            candidate.places.0.iter().find_map(|start| {
                let wrong = |link: &&Link| link.before < *start && link.after < start + length;
                self.links[start + n].iter().find(wrong).map(|link| (n, link.after - start))
            })
        })
    }

    /// Whether the places' host times differ too much for one motif; then also the item that does most.
    fn unlike(&self, candidate: &Candidate) -> Option<usize> {
        let spread = |offset: usize, length: usize| {
            let host = candidate.places.0.iter().map(|place| self.host_ns(place + offset, length));
            host.fold((f64::INFINITY, 0.0), |(least, most), ns| (ns.min(least), ns.max(most)))
        };
        let Reverse(length) = candidate.length;
        let (least, most) = spread(0, length);
        let differs = |n: &usize| {
            let (least, most) = spread(*n, 1);
            most - least
        };
        let most_unlike = (0..length).max_by(|a, b| differs(a).total_cmp(&differs(b)));
        most_unlike.filter(|_| most > ALIKE * least)
    }

    /// The places of each role, if some role would gain or lose host time by sharing the motif with another.
    fn roles(&self, candidate: &Candidate) -> Vec<Vec<usize>> {
        let Reverse(length) = candidate.length;
        let body = |place: &usize| &self.bodies[self.items[*place].0];
        let groups: Vec<&[usize]> = candidate.places.0.chunk_by(|a, b| body(a).root == body(b).root).collect();
        let sums = |places: &[usize]| {
            let of = |place| (body(place).times as f64, body(place).times as f64 * self.host_ns(*place, length));
            places.iter().map(of).fold((0.0, 0.0), |(times, sum), (more, ns)| (times + more, sum + ns))
        };
        let (times, host_ns) = sums(&candidate.places.0);
        let drifts = |group: &&[usize]| {
            let (of_group, group_ns) = sums(group);
            let root = self.bodies.iter().find(|sequence| sequence.root == body(&group[0]).root);
            let all = root.map_or(0.0, |root| self.host_ns(root.start, root.items.len()));
            // So little that all motifs together do not add up to more than is allowed.
            (group_ns - of_group * host_ns / times).abs() > (DRIFT * all + DRIFT_NS) / MOST_MOTIFS as f64
        };
        if !groups.iter().any(drifts) || groups.len() < 2 {
            return Vec::new();
        }
        groups.into_iter().map(<[usize]>::to_vec).collect()
    }
}

/// The candidate that saves most and changes nothing; what would is cut into what does not.
fn best(row: &Row<'_>, looks: &mut usize) -> Option<Candidate> {
    let (sorted, all) = row.repeats();
    let mut todo: BinaryHeap<Candidate> = all.into();
    let mut seen = HashSet::new();
    while let Some(candidate) = todo.pop() {
        *looks = looks.checked_sub(1)?;
        let Reverse(length) = candidate.length;
        let Some(first) = candidate.places.0.first().copied() else {
            todo.extend(row.located(&candidate, &sorted));
            continue;
        };
        if !seen.insert((candidate.places.0.clone(), length)) {
            continue;
        }
        let part = |from: usize, to: usize| {
            let places = candidate.places.0.iter().map(|place| place + from).collect();
            row.candidate(first + from, to - from, places, candidate.source)
        };
        let roles = row.roles(&candidate);
        if let Some((reference, target)) = row.changes(&candidate) {
            todo.extend(part(reference + 1, length).into_iter().chain(part(0, target)));
        } else if let Some(gap) = row.unlike(&candidate) {
            todo.extend(part(0, gap).into_iter().chain(part(gap + 1, length)));
        } else if !roles.is_empty() {
            let role = |places: Vec<usize>| row.candidate(places[0], length, places, candidate.source);
            todo.extend(roles.into_iter().filter_map(role));
        } else {
            return Some(candidate);
        }
    }
    None
}

/// Every sequence of the pattern, outer before inner.
fn bodies(pattern: &Pattern) -> Vec<Sequence<'_>> {
    let mut all = Vec::new();
    let roots = pattern.roles.iter().map(|role| role.schedule.as_slice());
    for (root, items) in roots.chain([pattern.schedule.as_slice()]).enumerate() {
        inner(items, 1, root, &mut all);
    }
    let mut next = 0;
    for sequence in &mut all {
        sequence.start = next;
        next += sequence.items.len() + 1;
    }
    all
}

fn inner<'a>(items: &'a [Item], times: u64, root: usize, all: &mut Vec<Sequence<'a>>) {
    all.push(Sequence { items, times, root, start: 0 });
    for item in items {
        if let Step::Repeat { times: more, body: Body::Inline(items) } = &item.step {
            inner(items, times * more, root, all);
        }
    }
}

/// What makes two items the same: all but host time.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Host,
    Run(&'a str, &'a Option<String>, &'a Option<String>, &'a Option<String>, &'a [Reference]),
    Wait(&'a [Reference]),
    Inline(u64, Vec<u32>),
    Motif(u64, &'a str),
}

/// The number of the item's key and condition.
fn number<'a>(item: &'a Item, numbers: &mut HashMap<(Key<'a>, String), u32>) -> u32 {
    let key = match &item.step {
        Step::Host(_) => Key::Host,
        Step::Run { block, on, lane, label, after } => Key::Run(block, on, lane, label, after),
        Step::Wait(all) => Key::Wait(all),
        Step::Repeat { times, body: Body::Motif(name) } => Key::Motif(*times, name),
        Step::Repeat { times, body: Body::Inline(items) } => {
            Key::Inline(*times, items.iter().map(|item| number(item, numbers)).collect())
        }
    };
    let when = if item.when.0.is_empty() { String::new() } else { format!("{:?}", item.when) };
    let next = numbers.len() as u32;
    *numbers.entry((key, when)).or_insert(next)
}

/// The links of each item of a sequence: those that could go wrong, with both ends inside the sequence.
fn links(sequence: &Sequence<'_>, motifs: &HashMap<&str, &[Item]>) -> Vec<Vec<Link>> {
    let names: Vec<Names<'_>> = sequence.items.iter().map(|item| Names::new(item, motifs)).collect();
    let mut issued: HashMap<&str, Vec<usize>> = HashMap::new();
    for (n, names) in names.iter().enumerate() {
        names.issued.iter().for_each(|label| issued.entry(label).or_default().push(sequence.start + n));
    }
    let link = |place: usize, label: &&str| {
        let places = issued.get(label)?;
        let next = places.partition_point(|other| *other < place);
        Some(Link { before: *places.get(next.checked_sub(1)?)?, after: *places.get(next)? })
    };
    let of = |(n, names): (usize, &Names<'_>)| {
        names.free.iter().filter_map(|label| link(sequence.start + n, label)).collect()
    };
    names.iter().enumerate().map(of).collect()
}

/// The labels that an item issues, and those that it refers to but what it contains does not issue.
#[derive(Default)]
struct Names<'a> {
    issued: BTreeSet<&'a str>,
    free: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    fn new(item: &'a Item, motifs: &HashMap<&str, &'a [Item]>) -> Self {
        let mut names = Self::default();
        match &item.step {
            Step::Host(_) => {}
            Step::Wait(all) => names.free.extend(all.iter().map(|reference| reference.label.as_str())),
            Step::Run { block, label, after, .. } => {
                names.issued.insert(label.as_deref().unwrap_or(block));
                names.free.extend(after.iter().map(|reference| reference.label.as_str()));
            }
            Step::Repeat { body, .. } => {
                let items = match body {
                    Body::Inline(items) => items,
                    Body::Motif(name) => motifs.get(name.as_str()).copied().unwrap_or_default(),
                };
                for inner in items.iter().map(|item| Self::new(item, motifs)) {
                    names.issued.extend(inner.issued);
                    names.free.extend(inner.free);
                }
                names.free.retain(|label| !names.issued.contains(label));
            }
        }
        names
    }
}

/// Host time of a sequence in nanoseconds.
fn host_ns(items: &[Item]) -> f64 {
    let of = |item: &Item| match &item.step {
        Step::Host(ns) => *ns as f64,
        Step::Repeat { times, body: Body::Inline(items) } => *times as f64 * host_ns(items),
        Step::Repeat { .. } | Step::Run { .. } | Step::Wait(_) => 0.0,
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
    let Reverse(length) = candidate.length;
    let mut occurrences: Vec<(&[Item], u64)> = Vec::new();
    let mut starts: HashMap<usize, Vec<usize>> = HashMap::new();
    for place in &candidate.places.0 {
        let number = bodies.partition_point(|body| body.start <= *place) - 1;
        let body = &bodies[number];
        let start = place - body.start;
        occurrences.push((&body.items[start..start + length], body.times));
        starts.entry(number).or_default().push(start);
    }
    let motif =
        Motif { name: name(pattern, occurrences[0].0), items: averaged(&occurrences), place: Default::default() };
    let mut result = pattern.clone();
    let mut number = 0;
    for role in &mut result.roles {
        put(&mut role.schedule, &motif.name, length, &starts, &mut number);
    }
    put(&mut result.schedule, &motif.name, length, &starts, &mut number);
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
                    let sum: f64 = occurrences
                        .iter()
                        .map(|(items, times)| match items[n].step {
                            Step::Host(ns) => ns as f64 * *times as f64,
                            _ => 0.0,
                        })
                        .sum();
                    *ns = super::blocks::readable(sum / total.max(1) as f64);
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
    fresh(&stem, "_", |name| pattern.motifs.iter().any(|motif| motif.name == name))
}

#[cfg(test)]
mod tests;
