//! Comparisons with known answers: runs with planted changes and planted noise.

use maestro_reports::diff::{Diff, Metric, Options, Row, Side, Subject, Verdict};
use maestro_reports::{Origin, Run};

use crate::planted::{NOISE, Noise, two_sides};

/// Compares two sides.
pub fn compare([before, after]: &[Vec<Run>; 2], options: &Options) -> Diff {
    let side = |runs: &[Run]| {
        let mut side = Side::default();
        runs.iter().for_each(|run| side.add(run, options));
        side
    };
    Diff::of(&side(before), &side(after), options).unwrap()
}

/// Few resamples: verdicts do not need them, and hundreds of comparisons are made here.
fn quick() -> Options {
    Options { resamples: 200, ..Options::default() }
}

/// The row of a block's metric.
fn row<'a>(diff: &'a Diff, block: &str, metric: Metric) -> &'a Row {
    let is = |row: &&Row| row.metric == metric && matches!(&row.subject, Subject::Block { block: b, .. } if b == block);
    diff.rows.iter().find(is).unwrap()
}

fn decided(row: &Row) -> bool {
    matches!(row.verdict, Verdict::Better | Verdict::Worse)
}

#[test]
fn nothing_changed_and_no_more_false_verdicts_than_alpha_allows() {
    let mut wrong = Vec::new();
    for seed in 0..200 {
        let diff = compare(&two_sides(seed, 6, 1.0, NOISE), &quick());
        assert_eq!(diff.rows.len(), 5, "the step, two blocks overlapped and alone");
        if diff.rows.iter().any(decided) {
            wrong.push(seed);
        }
    }
    // alpha is for a whole comparison: 5 % of 200.
    assert!(wrong.len() <= 10, "{} comparisons with a false verdict: {wrong:?}", wrong.len());
    println!("{} of 200 with a false verdict", wrong.len());
}

#[test]
fn ten_percent_is_always_found_and_only_where_it_is() {
    let mut elsewhere = 0;
    for seed in 0..200 {
        for (factor, verdict) in [(1.1, Verdict::Worse), (1.0 / 1.1, Verdict::Better)] {
            let diff = compare(&two_sides(seed, 6, factor, NOISE), &quick());
            let found = row(&diff, "scatter", Metric::Overlapped);
            assert_eq!(found.verdict, verdict, "seed {seed}: {found:?}");
            let untouched = [("reduce", Metric::Overlapped), ("reduce", Metric::Alone), ("scatter", Metric::Alone)];
            elsewhere += u32::from(untouched.iter().any(|(block, metric)| decided(row(&diff, block, *metric))));
        }
    }
    assert!(elsewhere <= 20, "{elsewhere} of 400 comparisons with a verdict on what did not change");
    println!("{elsewhere} of 400 with a false verdict elsewhere");
}

#[test]
fn small_changes_are_never_called_the_wrong_way() {
    let mut found = [0; 2];
    for seed in 0..200 {
        for (place, factor) in [1.01, 1.03].into_iter().enumerate() {
            let diff = compare(&two_sides(seed, 6, factor, NOISE), &quick());
            let row = row(&diff, "scatter", Metric::Overlapped);
            assert_ne!(row.verdict, Verdict::Better, "seed {seed}, {factor}: {row:?}");
            found[place] += u32::from(row.verdict == Verdict::Worse);
        }
    }
    println!("1 %: {} of 200 found, 3 %: {} of 200 found", found[0], found[1]);
    assert!(found[0] < found[1], "{found:?}");
}

/// How many of 1,000 intervals hold the change that was planted.
fn covered(noise: Noise) -> u32 {
    let options = Options { metrics: vec![Metric::Overlapped], blocks: vec!["scatter".into()], ..quick() };
    let covers = |seed: u64| {
        let truth = [1.0, 1.01, 1.03, 1.1][seed as usize % 4];
        let diff = compare(&two_sides(seed, 6, truth, noise), &options);
        let (low, high) = row(&diff, "scatter", Metric::Overlapped).interval.unwrap();
        u32::from((low..=high).contains(&truth))
    };
    (0..1000).map(covers).sum()
}

#[test]
fn intervals_cover_the_truth() {
    let covered = covered(NOISE);
    println!("{covered} of 1000 intervals cover the truth");
    assert!(covered >= 930, "{covered}");
}

#[test]
fn intervals_cover_the_truth_where_runs_differ_more_than_iterations() {
    let covered = covered(Noise { run: 0.02, iteration: 0.002, spike: 0.0 });
    println!("{covered} of 1000 intervals cover the truth where runs differ more than iterations");
    assert!(covered >= 930, "{covered}");
}

#[test]
fn few_runs_decide_nothing_and_say_how_many_would() {
    let diff = compare(&two_sides(1, 3, 1.5, NOISE), &quick());
    assert!(diff.rows.iter().all(|row| row.verdict == Verdict::TooFew && row.interval.is_none()), "{diff:?}");
    let notes = diff.view().notes.join("\n");
    assert!(notes.contains("to prove any of 5 comparisons takes 5 runs a side"), "{notes}");
    let one = Options { metrics: vec![Metric::Step], ..quick() };
    assert_eq!(compare(&two_sides(1, 4, 1.5, NOISE), &one).rows[0].verdict, Verdict::Worse);
}

#[test]
fn the_same_runs_give_the_same_intervals_and_seeds_others() {
    let sides = two_sides(3, 6, 1.03, NOISE);
    let first = compare(&sides, &quick());
    assert_eq!(first, compare(&sides, &quick()));
    let other = compare(&sides, &Options { seed: 1, ..quick() });
    assert_ne!(first.rows[0].interval, other.rows[0].interval);
    assert_eq!(first.rows[0].ratio, other.rows[0].ratio);
}

#[test]
fn no_verdict_where_something_else_changed_unless_it_was_declared() {
    let mut sides = two_sides(1, 6, 1.1, NOISE);
    for run in &mut sides[1] {
        run.info.environment.libraries.insert("NCCL".into(), "2.28.3".into());
    }
    let diff = compare(&sides, &quick());
    assert!(diff.refused() && diff.rows.iter().all(|row| row.verdict == Verdict::Refused));
    let notes = diff.view().notes.join("\n");
    assert!(notes.contains("libraries.NCCL: - -> 2.28.3") && notes.contains("--changed libraries.NCCL"), "{notes}");

    let declared = Options { declared: vec!["libraries.*".into()], ..quick() };
    assert_eq!(row(&compare(&sides, &declared), "scatter", Metric::Overlapped).verdict, Verdict::Worse);
    // One run of a side alone is enough to spoil it.
    sides[1].iter_mut().for_each(|run| run.info.environment.libraries.clear());
    sides[0][2].info.environment.variables.insert("NCCL_ALGO".into(), "Ring".into());
    assert!(compare(&sides, &quick()).refused());
}

#[test]
fn what_a_variant_was_given_is_declared() {
    let mut sides = two_sides(1, 6, 1.1, NOISE);
    for run in &mut sides[1] {
        run.info.environment.variables.insert("NCCL_ALGO".into(), "Tree".into());
        run.info.environment.variant.insert("NCCL_ALGO".into(), "Tree".into());
        run.info.environment.variant.insert("MY_KNOB".into(), "7".into());
    }
    let diff = compare(&sides, &quick());
    let lines: Vec<String> = diff.changes.iter().map(ToString::to_string).collect();
    assert_eq!((lines, diff.refused()), (vec!["MY_KNOB: - -> 7".into(), "NCCL_ALGO: - -> Tree".into()], false));
}

#[test]
fn simulated_runs_get_no_verdict() {
    let mut sides = two_sides(1, 6, 1.1, NOISE);
    sides.iter_mut().flatten().for_each(|run| run.info.made_by = Origin::Dry);
    let diff = compare(&sides, &quick());
    assert!(diff.refused() && diff.view().notes.iter().any(|note| note.contains("Simulated runs repeat exactly")));
}

#[test]
fn every_metric_is_compared_in_its_own_direction() {
    let options = Options { metrics: Metric::ALL.to_vec(), ..quick() };
    // 8 runs, because there are many comparisons; and little noise, because p99 is a tail.
    let noise = Noise { run: 0.005, iteration: 0.005, spike: 0.0 };
    let diff = compare(&two_sides(1, 8, 1.3, noise), &options);
    for (metric, verdict) in [
        (Metric::Overlapped, Verdict::Worse),
        (Metric::Latency, Verdict::Worse),
        (Metric::Slowdown, Verdict::Worse),
        (Metric::Busbw, Verdict::Worse),
        (Metric::Exposed, Verdict::Worse),
        (Metric::Alone, Verdict::Unclear),
        (Metric::AloneBusbw, Verdict::Unclear),
    ] {
        assert_eq!(row(&diff, "scatter", metric).verdict, verdict, "{}", metric.name());
    }
    // 402,759,680 B x 1/2 in 300 us.
    let busbw = row(&diff, "scatter", Metric::Busbw).before.unwrap();
    assert!((busbw / 671.266 - 1.0).abs() < 0.01, "{busbw}");
    // Of two ranks one waits 10 us for the other.
    assert_eq!(row(&diff, "reduce", Metric::Wait).before, Some(0.005));
    assert!(diff.rows.iter().all(|row| row.metric != Metric::P99), "20 executions have no 99th percentile");
    let step: Vec<Metric> = diff.rows.iter().filter(|r| r.subject == Subject::Step).map(|r| r.metric).collect();
    assert_eq!(step, [Metric::Step, Metric::Exposed, Metric::ExposedPct]);
}

#[test]
fn held_compute_is_left_out_and_working_compute_is_not() {
    let mut sides = two_sides(1, 6, 1.0, NOISE);
    let blocks = |diff: &Diff| diff.rows.iter().filter(|r| r.kind == Some("compute")).count();
    let held = compare(&sides, &quick());
    assert_eq!(blocks(&held), 0);
    assert!(held.view().notes.iter().any(|note| note.contains("only holds its lane")));
    sides.iter_mut().flatten().for_each(|run| run.info.settings.compute = Some("work".into()));
    assert_eq!(blocks(&compare(&sides, &quick())), 1);
}

#[test]
fn runs_not_made_in_turns_are_remarked() {
    let mut sides = two_sides(1, 6, 1.0, NOISE);
    let remarked = |diff: &Diff| diff.view().notes.iter().any(|note| note.contains("takes turns"));
    assert!(!remarked(&compare(&sides, &quick())));
    sides[1].iter_mut().for_each(|run| run.info.started_unix_s += 1000);
    assert!(remarked(&compare(&sides, &quick())));
}

#[test]
fn nothing_in_common_is_refused() {
    let options = Options { blocks: vec!["nope*".into()], metrics: vec![Metric::Alone], ..quick() };
    let sides = two_sides(1, 2, 1.0, NOISE).map(|runs| {
        let mut side = Side::default();
        runs.iter().for_each(|run| side.add(run, &options));
        side
    });
    let said = Diff::of(&sides[0], &sides[1], &options).unwrap_err().to_string();
    assert!(said.contains("reduce, scatter") && said.contains("alone"), "{said}");
    let said = Diff::of(&sides[0], &Side::default(), &options).unwrap_err().to_string();
    assert!(said.contains("--against"), "{said}");
}
