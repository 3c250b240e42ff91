//! Gates with known outcomes, on runs with planted changes.

use std::path::Path;

use maestro_reports::Run;
use maestro_reports::diff::{Gate, Judgement, Options, Outcome};

use crate::diff::compare;
use crate::planted::{NOISE, Noise, two_sides};

/// Judges `rules`, a line each, on two sides.
fn judge(rules: &str, sides: &[Vec<Run>; 2]) -> Result<Judgement, String> {
    let path = Path::new("rules.yaml");
    let gate = Gate::read(&format!("gate: 1\nrules:\n{rules}"), path).map_err(|error| error.to_string())?;
    let options = Options { metrics: gate.metrics(), resamples: 100, ..Options::default() };
    gate.judge(&compare(sides, &options), path).map_err(|error| error.to_string())
}

fn outcomes(judgement: &Judgement) -> Vec<(&str, Outcome)> {
    judgement.all.iter().map(|judged| (judged.subject.as_str(), judged.outcome)).collect()
}

const QUIET: Noise = Noise { run: 0.003, iteration: 0.01, spike: 0.0 };

#[test]
fn a_proved_regression_fails_only_the_rule_that_forbids_it() {
    let sides = two_sides(1, 6, 1.1, QUIET);
    let rules = "- {name: latency, metric: overlapped, threshold: 5%}\n\
                 - {name: bandwidth, metric: busbw, select: {block: sc*}, threshold: 5%}\n\
                 - {name: room, metric: overlapped, select: {kind: reduce_scatter}, threshold: 20%}\n\
                 - {name: no faster, metric: overlapped, select: {axis: dp}, direction: decrease, threshold: 5%}\n";
    let judged = judge(rules, &sides).unwrap();
    assert_eq!(
        outcomes(&judged),
        [
            ("reduce (dp)", Outcome::Pass),
            ("scatter (dp)", Outcome::Fail),
            ("scatter (dp)", Outcome::Fail),
            ("scatter (dp)", Outcome::Pass),
            ("reduce (dp)", Outcome::Pass),
            ("scatter (dp)", Outcome::Pass),
        ]
    );
    assert_eq!((judged.outcome(), judged.count(Outcome::Fail)), (Outcome::Fail, 2));
    assert!(judged.all[1].why.contains("proved") && judged.all[1].why.contains("5 % are allowed"), "{judged:?}");
}

#[test]
fn nothing_changed_passes() {
    let judged =
        judge("- {metric: step, threshold: 3%}\n- {metric: alone, threshold: 3%}\n", &two_sides(2, 6, 1.0, QUIET));
    let judged = judged.unwrap();
    assert_eq!((judged.outcome(), judged.all.len()), (Outcome::Pass, 3));
}

#[test]
fn what_cannot_be_said_is_inconclusive() {
    let why = |rules: &str, sides: &[Vec<Run>; 2]| {
        let judged = judge(rules, sides).unwrap();
        assert_eq!(judged.outcome(), Outcome::Inconclusive, "{judged:?}");
        judged.all.iter().map(|judged| judged.why.clone()).collect::<Vec<_>>().join("\n")
    };
    let step = "- {metric: step, threshold: 5%}\n";
    assert!(
        why(step, &two_sides(1, 5, 1.0, QUIET)).contains("5 + 5 runs are too few: 1 comparisons at alpha 0.05 take 6")
    );

    let loud = Noise { run: 0.2, iteration: 0.01, spike: 0.0 };
    assert!(why(step, &two_sides(1, 6, 1.0, loud)).contains("differ among themselves by"));

    let mut changed = two_sides(1, 6, 1.3, QUIET);
    changed[1][0].info.environment.cores = 3;
    assert!(why(step, &changed).contains("more changed than was declared"));
}

#[test]
fn a_change_beyond_the_threshold_that_is_not_proved_does_not_pass() {
    // 8 % more, but two runs after are as fast as those before: no test of 6 + 6 runs proves it.
    let mut sides = two_sides(1, 6, 1.08, QUIET);
    let mut faster = two_sides(5, 6, 0.9, QUIET);
    for place in [1, 4] {
        sides[1][place] = faster[1].remove(0);
    }
    let judged = judge("- {metric: overlapped, select: {block: scatter}, threshold: 5%}\n", &sides).unwrap();
    assert_eq!(judged.outcome(), Outcome::Inconclusive);
    assert!(judged.all[0].why.contains("not proved"), "{judged:?}");
}

#[test]
fn false_failures_are_no_more_than_alpha_allows() {
    let rules =
        "- {metric: step, threshold: 0%}\n- {metric: overlapped, threshold: 0%}\n- {metric: alone, threshold: 0%}\n";
    let failed = (0..200).filter(|seed| {
        let judged = judge(rules, &two_sides(1000 + seed, 6, 1.0, NOISE)).unwrap();
        judged.outcome() == Outcome::Fail
    });
    let failed = failed.count();
    println!("{failed} of 200 gates failed though nothing changed");
    assert!(failed <= 10, "{failed} of 200 gates failed though nothing changed");
}

#[test]
fn a_rule_that_selects_nothing_is_bad_input() {
    let sides = two_sides(1, 2, 1.0, QUIET);
    let said = judge("- {name: typo, metric: alone, select: {block: scater}, threshold: 5%}\n", &sides).unwrap_err();
    for words in ["rules.yaml", "`typo` selects nothing", "reduce_scatter scatter (dp)"] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn sizes_select() {
    let sides = two_sides(1, 6, 1.0, QUIET);
    let of = |select: &str| {
        let judged = judge(&format!("- {{metric: alone, select: {{{select}}}, threshold: 5%}}\n"), &sides).unwrap();
        judged.all.iter().map(|judged| judged.subject.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("min_size: 5MiB"), ["scatter (dp)"]);
    assert_eq!(of("max_size: 4MiB"), ["reduce (dp)"]);
    assert_eq!(of("min_size: 4194304"), ["reduce (dp)", "scatter (dp)"]);
}
