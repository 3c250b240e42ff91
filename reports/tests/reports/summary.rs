//! The plain summary, and that it says what the full report says.

use maestro_reports::{Headline, Value, summary};

use crate::common::run;

#[test]
fn the_summary_is_worked_out_by_hand() {
    let run = run("a", 4, 3);
    let view = summary(&run);
    let real = |row, key| match view.value(row, key) {
        Value::Real(value) => *value,
        other => panic!("{key} is {other:?}"),
    };
    // The reduce-scatter takes 200 us + (2 round + iteration) us, on average 203.5 us, in the median too.
    assert_eq!(view.value(2, "block"), &Value::Text("scatter".into()));
    assert_eq!(view.value(2, "executions"), &Value::Integer(24));
    assert_eq!((real(2, "avg_ms"), real(2, "min_ms"), real(2, "max_ms")), (0.2035, 0.2, 0.207));
    assert_eq!((real(2, "alone_ms"), real(2, "slowdown")), (0.1, 2.035));
    // The all-reduce transfers for 180 us on rank 0, which waits for 20 us, and for 200 us on rank 1.
    assert_eq!((real(1, "avg_ms"), real(1, "slowdown")), (0.2, 1.9));
    assert_eq!(view.value(0, "size_bytes"), &Value::Missing);
}

#[test]
fn the_headline_is_worked_out_by_hand() {
    // Rank 0 is the longest: its copy ends at 310 us in every iteration. Exposed: 50 us shared, then the rest of the
    // reduce-scatter, 100 us + late, which is 3.5 us on average.
    let Headline { step_median_ms, exposed_ms, exposed_pct, .. } = Headline::of(&run("a", 4, 3)).unwrap();
    assert_eq!((step_median_ms, exposed_ms), (0.31, 0.1535));
    assert!((exposed_pct - 100.0 * 153.5 / 310.0).abs() < 1e-12);
    assert_eq!(Headline::of(&run("a", 0, 0)), None);
}

#[cfg(feature = "tables")]
#[test]
fn the_summary_agrees_with_the_full_report() {
    let runs = [run("a", 4, 3)];
    let (lean, full) = (summary(&runs[0]), maestro_reports::REPORTS[0].view(&runs).unwrap());
    assert_eq!(lean.rows.len(), full.rows.len());
    for row in 0..lean.rows.len() {
        for key in &lean.keys {
            assert_eq!(lean.value(row, key), full.value(row, key), "{key} of row {row}");
        }
    }
}
