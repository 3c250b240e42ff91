//! What to doubt of a row, in words: each flag is a rule with a threshold, and a sentence below the table.

use crate::doubts::has_two_modes;
use crate::{Value, View};

/// Fewest iterations for an interval of a median that means something: of five, even the whole range covers it in less
/// than 95 % of cases.
const FEWEST_ITERATIONS: u64 = 6;

/// What the rules look at; pairs are overlapped and alone.
pub(super) struct Evidence<'a> {
    pub communicates: bool,
    pub iterations: [u64; 2],
    /// Ascending.
    pub times: [&'a [u64]; 2],
    pub drifts: bool,
    pub wait_ns: Option<f64>,
    pub wait_pct: Option<f64>,
    pub clock_error_ns: Option<u64>,
    pub sized: bool,
    pub mixed: bool,
    /// Whether the pattern states that something of the block was inferred.
    pub inferred: bool,
    /// Bus bandwidth in percent of the link's declared rate, overlapped or alone, whichever is more.
    pub link_pct: Option<f64>,
}

/// A flag, what it says, and when.
struct Rule {
    name: &'static str,
    meaning: &'static str,
    holds: fn(&Evidence<'_>) -> bool,
}

/// In the order in which they are written.
const RULES: [Rule; 10] = [
    Rule {
        name: "few",
        meaning: "few: fewer than 6 iterations overlapped or alone, so intervals and percentiles say little.",
        holds: |e| e.iterations.iter().any(|n| (1..FEWEST_ITERATIONS).contains(n)),
    },
    Rule {
        name: "modes",
        meaning: "modes: times overlapped fall into two groups, each a tenth of them or more; no single number stands \
            for both. Look at instances, ranks and iterations apart.",
        holds: |e| has_two_modes(e.times[0]),
    },
    Rule {
        name: "alone-modes",
        meaning: "alone-modes: the same of the times alone.",
        holds: |e| has_two_modes(e.times[1]),
    },
    Rule {
        name: "drift",
        meaning: "drift: iterations grow slower or faster in the order in which they ran, more than chance would (1 %).",
        holds: |e| e.drifts,
    },
    Rule {
        name: "clock",
        meaning: "clock: the median wait is below the error of the ranks' clocks, so it and the transfer are known no \
            better than that.",
        holds: |e| e.wait_ns.zip(e.clock_error_ns).is_some_and(|(wait, error)| wait < error as f64),
    },
    Rule {
        name: "late",
        meaning: "late: more than half of the latency is waiting for a rank that arrives late.",
        holds: |e| e.wait_pct.is_some_and(|pct| pct > 50.0),
    },
    Rule {
        name: "unsized",
        meaning: "unsized: how many bytes it moves is not known, so it has no bandwidth.",
        holds: |e| e.communicates && !e.sized,
    },
    Rule {
        name: "mixed",
        meaning: "mixed: executions differ in size or in the size of their team; Size and Ranks are the largest.",
        holds: |e| e.mixed,
    },
    Rule {
        name: "inferred",
        meaning: "inferred: the capture does not say all of what it does (its size, type, peers or splits); `assumed` in the \
            pattern tells how it was taken.",
        holds: |e| e.inferred,
    },
    Rule {
        name: "ring-equivalent",
        meaning: "ring-equivalent: the bus bandwidth is above the declared rate of the link. It counts what a ring would \
            send; where a switch reduces or multicasts (NVLS, SHARP) less travels.",
        holds: |e| e.link_pct.is_some_and(|pct| pct > 100.0),
    },
];

/// The flags that hold, with a blank between.
pub(super) fn of(evidence: &Evidence<'_>) -> String {
    let held: Vec<&str> = RULES.iter().filter(|rule| (rule.holds)(evidence)).map(|rule| rule.name).collect();
    held.join(" ")
}

/// What the flags of a table mean, those that occur.
pub(super) fn meanings(view: &View) -> Vec<&'static str> {
    let occurs = |name: &str| {
        (0..view.rows.len()).any(|row| match view.value(row, "flags") {
            Value::Text(flags) => flags.split(' ').any(|flag| flag == name),
            _ => false,
        })
    };
    RULES.iter().filter(|rule| occurs(rule.name)).map(|rule| rule.meaning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: Evidence<'static> = Evidence {
        communicates: true,
        iterations: [6, 6],
        times: [&[], &[]],
        drifts: false,
        wait_ns: Some(2_000.0),
        wait_pct: Some(50.0),
        clock_error_ns: Some(2_000),
        sized: true,
        mixed: false,
        inferred: false,
        link_pct: Some(100.0),
    };

    #[test]
    fn each_rule_holds_just_beyond_its_threshold() {
        let modes: Vec<u64> = (0..20).map(|i| if i < 10 { 100 } else { 200 }).collect();
        assert_eq!(of(&SOUND), "");
        assert_eq!(of(&Evidence { iterations: [6, 5], ..SOUND }), "few");
        // What did not run alone at all is not little of it.
        assert_eq!(of(&Evidence { iterations: [6, 0], ..SOUND }), "");
        assert_eq!(of(&Evidence { times: [&modes, &[]], ..SOUND }), "modes");
        assert_eq!(of(&Evidence { times: [&[], &modes], ..SOUND }), "alone-modes");
        assert_eq!(of(&Evidence { drifts: true, ..SOUND }), "drift");
        assert_eq!(of(&Evidence { clock_error_ns: Some(2_001), ..SOUND }), "clock");
        assert_eq!(of(&Evidence { clock_error_ns: None, wait_ns: Some(0.0), ..SOUND }), "");
        assert_eq!(of(&Evidence { wait_pct: Some(50.1), ..SOUND }), "late");
        assert_eq!(of(&Evidence { sized: false, ..SOUND }), "unsized");
        assert_eq!(of(&Evidence { sized: false, communicates: false, ..SOUND }), "");
        assert_eq!(of(&Evidence { inferred: true, ..SOUND }), "inferred");
        assert_eq!(of(&Evidence { link_pct: Some(100.1), ..SOUND }), "ring-equivalent");
        assert_eq!(of(&Evidence { link_pct: None, ..SOUND }), "");
        assert_eq!(of(&Evidence { mixed: true, drifts: true, ..SOUND }), "drift mixed");
    }
}
