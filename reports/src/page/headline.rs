//! One sentence and three numbers, for people who look no further.
//!
//! The sentence claims no cause and no significance: it says what was measured. Of two runs it gives the difference and
//! says that one run a side cannot show more.

use super::sources::Source;
use super::{sweep, verdicts, view};
use crate::diff::Diff;
use crate::{Headline, Origin, Value, View};

/// What stands at the top of the page. Plain text, not escaped.
#[derive(Debug, PartialEq)]
pub(super) struct Top {
    /// The pattern, the ranks, what made the run.
    pub kicker: String,
    pub sentence: String,
    /// What else the numbers say, below it.
    pub lead: String,
    /// What the sentence leaves out, if anything.
    pub caution: Option<String>,
    pub numbers: [Number; 3],
}

/// A number with its name.
#[derive(Debug, PartialEq)]
pub(super) struct Number {
    pub name: &'static str,
    pub value: String,
    pub unit: &'static str,
    /// What it is to be seen beside.
    pub beside: String,
}

/// The top of the page of `sources`.
pub(super) fn top(sources: &[Source<'_>], views: &[(&str, &str, View)], diff: Option<&Diff>) -> Top {
    let (subject, other) = Source::subject(sources);
    let this = &sources[subject];
    let headline = |source: usize| Headline::of(sources[source].run);
    let (now, then) = (headline(subject), other.and_then(headline));
    let info = &this.run.info;
    // A simulation knows no contention, so its slowdown of 1 is no finding.
    let simulated = info.made_by == Origin::Dry;
    let slowed = view(views, "blocks").filter(|_| !simulated).and_then(|table| Slowed::of(table, this));
    let count = if info.ranks == 1 { "rank" } else { "ranks" };
    let mut kicker = format!("{} · {} {count} · {}", info.pattern.name, info.ranks, device(this));
    for (n, source) in sources.iter().enumerate() {
        let (role, id) = (&source.role, &source.run.info.id);
        kicker += &match diff.map(|diff| [diff.before.len(), diff.after.len()]) {
            Some(runs) => format!(" · {role}: {} runs, drawn is {id}", runs[n.min(1)]),
            None if role == id => format!(" · {id}"),
            None => format!(" · {role}: {id}"),
        };
    }
    if let Some((axis, _)) = sweep::names(sources) {
        let kicker = format!(
            "{} · {} {count} · {} · {} runs of a sweep",
            info.pattern.name,
            info.ranks,
            device(this),
            sources.len()
        );
        return over_a_sweep(sources, views, kicker, axis);
    }
    let beside = other.map(|other| sources[other].role.as_str());
    let numbers = [step(now, beside.zip(then)), exposed(now, beside.zip(then)), slowdown(slowed.as_ref(), simulated)];
    let lead = |whole| now.map_or_else(String::new, |now| lead(now, slowed.as_ref(), whole));
    if let Some(diff) = diff {
        let [of_step, exposed, slowdown] = numbers;
        let why_none = diff.why_no_verdict().join(" ");
        let says = verdicts::lead(diff).map_or_else(String::new, |verdicts| format!("{verdicts} "));
        return Top {
            kicker,
            sentence: verdicts::sentence(diff),
            lead: format!("{says}In the run that is drawn, {}", lowered(&lead("the step"))),
            caution: (!why_none.is_empty()).then_some(why_none),
            numbers: [verdicts::step(diff).unwrap_or(of_step), exposed, slowdown],
        };
    }
    let caution = match (other.map(|other| sources[other].run.info.made_by), info.made_by) {
        (Some(Origin::Import) | None, _) => None,
        _ => Some("One run a side shows a difference, not whether it would show again: for a verdict compare several runs of each side with maestro diff.".to_owned()),
    };
    Top { kicker, sentence: sentence(this, now, beside.zip(then)), lead: lead("it"), caution, numbers }
}

/// The top of the page of a sweep along `axis`: its shortest step beside its longest.
fn over_a_sweep(sources: &[Source<'_>], views: &[(&str, &str, View)], kicker: String, axis: &str) -> Top {
    let mut steps: Vec<(Headline, &Source<'_>)> =
        sources.iter().filter_map(|source| Some((Headline::of(source.run)?, source))).collect();
    steps.sort_by(|(a, _), (b, _)| a.step_median_ms.total_cmp(&b.step_median_ms));
    let ends = steps.first().zip(steps.last());
    let sentence = match ends {
        Some(((least, _), (most, _))) if ms(least.step_median_ms) == ms(most.step_median_ms) => {
            format!("Whatever {axis} is, the step takes {} ms", ms(least.step_median_ms))
        }
        Some(((least, short), (most, long))) => format!(
            "Over {axis} the step takes from {} ms ({}) to {} ms ({})",
            ms(least.step_median_ms),
            sweep::given(short),
            ms(most.step_median_ms),
            sweep::given(long)
        ),
        None => "No run of the sweep holds a step that took any time".to_owned(),
    };
    let shortest = steps.first();
    let simulated = sources.iter().any(|source| source.run.info.made_by == Origin::Dry);
    let slowed = shortest
        .filter(|_| !simulated)
        .and_then(|(_, source)| view(views, "blocks").and_then(|table| Slowed::of(table, source)));
    let mut of_step = step(shortest.map(|(headline, _)| *headline), None);
    of_step.name = "Shortest step";
    if let Some((_, source)) = shortest {
        of_step.beside = sweep::given(source);
    }
    let lead = "The numbers below are of the run with the shortest step; each run is one sample, so of two that lie close \
                together compare several runs each with maestro diff.";
    Top {
        kicker,
        sentence,
        lead: lead.to_owned(),
        caution: None,
        numbers: [
            of_step,
            exposed(shortest.map(|(headline, _)| *headline), None),
            slowdown(slowed.as_ref(), simulated),
        ],
    }
}

/// What it ran on, in a few words.
fn device(source: &Source<'_>) -> String {
    let info = &source.run.info;
    // As `0: NVIDIA H200, 139 GiB, ...`.
    let gpu = info.environment.gpus.first().and_then(|line| line.split(", ").next()?.split(": ").last());
    match gpu {
        Some(gpu) => format!("{} on {gpu}", info.backend),
        None => info.backend.clone(),
    }
}

fn sentence(this: &Source<'_>, now: Option<Headline>, then: Option<(&str, Headline)>) -> String {
    let Some(now) = now else { return format!("The run {} holds no step that took any time", this.run.info.id) };
    let takes = format!("the step takes {} ms", ms(now.step_median_ms));
    match then {
        Some((role, then)) => {
            let change = percent(now.step_median_ms, then.step_median_ms);
            format!("{}, {takes}, {change} {role} ({} ms)", capitalised(&this.role), ms(then.step_median_ms))
        }
        None => capitalised(&takes),
    }
}

/// What is exposed of the step, which is called `whole`, and what overlap costs most.
fn lead(now: Headline, slowed: Option<&Slowed>, whole: &str) -> String {
    let exposed = if now.exposed_pct < 0.05 {
        "Compute hides all of its communication".to_owned()
    } else {
        format!("{:.1} % of {whole} is communication that no compute hides", now.exposed_pct)
    };
    match slowed {
        Some(Slowed { worst: Some(worst), .. }) => format!(
            "{exposed}. Overlap costs {} most: {:.2} times its time alone, {} ms a step.",
            worst.block,
            worst.factor,
            ms(worst.lost_ms)
        ),
        Some(_) => format!("{exposed}. No communication is shown to be slower than alone."),
        None => format!("{exposed}."),
    }
}

fn capitalised(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// Without its capital, as inside a sentence.
fn lowered(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_lowercase().chain(rest).collect())
}

/// `1.5 % less than`, as in `1.5 % less than before`.
fn percent(now: f64, then: f64) -> String {
    let change = 100.0 * (now - then) / then;
    match change {
        c if c.abs() < 0.05 => "as long as".to_owned(),
        c if c < 0.0 => format!("{:.1} % less than", -c),
        c => format!("{c:.1} % more than"),
    }
}

fn step(now: Option<Headline>, then: Option<(&str, Headline)>) -> Number {
    let beside = match (now, then) {
        (Some(now), Some((role, then))) => {
            format!(
                "{role} {} ms, {:+.1} %",
                ms(then.step_median_ms),
                100.0 * (now.step_median_ms / then.step_median_ms - 1.0)
            )
        }
        _ => "median over steps, of the longest rank".to_owned(),
    };
    Number { name: "Step", value: now.map_or("-".into(), |now| ms(now.step_median_ms)), unit: "ms", beside }
}

fn exposed(now: Option<Headline>, then: Option<(&str, Headline)>) -> Number {
    let mut beside = now.map_or_else(String::new, |now| format!("{:.1} % of the mean step", now.exposed_pct));
    if let Some((role, then)) = then {
        beside += &format!("; {role} {} ms, {:.1} %", ms(then.exposed_ms), then.exposed_pct);
    }
    Number {
        name: "Exposed communication",
        value: now.map_or("-".into(), |now| ms(now.exposed_ms)),
        unit: "ms a step",
        beside,
    }
}

fn slowdown(slowed: Option<&Slowed>, simulated: bool) -> Number {
    let (value, beside) = match slowed {
        Some(slowed) => (format!("{:.2}", slowed.mean), "overlapped / alone, mean weighted by time alone".to_owned()),
        None if simulated => ("-".to_owned(), "a simulation knows no contention".to_owned()),
        None => ("-".to_owned(), "nothing was measured alone".to_owned()),
    };
    Number { name: "Communication slowdown", value, unit: if slowed.is_some() { "×" } else { "" }, beside }
}

/// How communication fares overlapped.
#[derive(Debug, PartialEq)]
struct Slowed {
    /// Mean of the slowdowns, weighted by the time alone that they apply to in a step.
    mean: f64,
    /// Of the blocks whose interval lies above 1: the one that loses most time in a step.
    worst: Option<Worst>,
}

#[derive(Debug, PartialEq)]
struct Worst {
    block: String,
    factor: f64,
    /// (factor - 1) x time alone x calls a step.
    lost_ms: f64,
}

impl Slowed {
    /// From the rows of the table `blocks` that speak of communication in the run of `source`.
    fn of(table: &View, source: &Source<'_>) -> Option<Self> {
        let real = |row: usize, key: &str| match table.value(row, key) {
            Value::Real(value) => Some(*value),
            _ => None,
        };
        let (mut weighted, mut weights) = (0.0, 0.0);
        let mut worst: Option<Worst> = None;
        for row in 0..table.rows.len() {
            let ours = *table.value(row, "run") == Value::Text(source.run.info.id.clone());
            let communicates = *table.value(row, "axis") != Value::Missing;
            let (Some(factor), Some(alone_ms), true) =
                (real(row, "slowdown"), real(row, "alone_ms"), ours && communicates)
            else {
                continue;
            };
            let weight = alone_ms * real(row, "calls_per_step").unwrap_or(1.0);
            weighted += factor * weight;
            weights += weight;
            let shown = real(row, "slowdown_lo").is_some_and(|low| low > 1.0);
            let lost_ms = (factor - 1.0) * weight;
            if let (Value::Text(block), true) = (table.value(row, "block"), shown)
                && worst.as_ref().is_none_or(|worst| lost_ms > worst.lost_ms)
            {
                worst = Some(Worst { block: block.clone(), factor, lost_ms });
            }
        }
        (weights > 0.0).then(|| Self { mean: weighted / weights, worst })
    }
}

/// Four significant digits, or the microsecond.
pub(super) fn ms(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 100.0 => format!("{v:.1}"),
        v if v >= 10.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_said_in_words() {
        assert_eq!(percent(99.0, 100.0), "1.0 % less than");
        assert_eq!(percent(102.54, 100.0), "2.5 % more than");
        assert_eq!(percent(100.01, 100.0), "as long as");
    }

    #[test]
    fn milliseconds_have_four_digits() {
        assert_eq!([1234.4, 196.06, 36.256, 1.5].map(ms), ["1234", "196.1", "36.26", "1.500"]);
    }
}
