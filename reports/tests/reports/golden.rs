//! The text formats of every view, against stored texts. `MAESTRO_BLESS=1` rewrites them.

use std::fs;
use std::path::Path;

use maestro_reports::{Format, Show, Shown, Value, View, summary};

use crate::common::run;

/// Compares `view` in every format with `tests/golden/<name>.<format>`.
fn check(name: &str, view: &View) {
    for format in Format::ALL {
        let extension = if format == Format::Table { "txt" } else { format.name() };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.{extension}"));
        let text = view.render(format);
        if std::env::var_os("MAESTRO_BLESS").is_some() {
            fs::write(&path, text).unwrap();
            continue;
        }
        let stored =
            fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}; MAESTRO_BLESS=1 writes it", path.display()));
        assert_eq!(text, stored, "{} differs; MAESTRO_BLESS=1 rewrites it", path.display());
    }
}

#[test]
fn the_summary_in_every_format() {
    check("summary", &summary(&run("a", 4, 3)));
}

#[test]
fn awkward_names_and_missing_values_in_every_format() {
    let view = View {
        keys: ["block", "size_bytes", "slowdown", "exposed_ms"].map(String::from).to_vec(),
        rows: vec![
            vec![Value::Text("a|b, \"c\" *d*".into()), Value::Integer(1_073_741_824), Value::Missing, Value::Real(0.5)],
            vec![Value::Text("schön".into()), Value::Missing, Value::Real(2.0), Value::Missing],
        ],
        shown: vec![
            Shown::new("Block", "block", Show::Text),
            Shown::new("Size (B)", "size_bytes", Show::Bytes),
            Shown::new("Slowdown", "slowdown", Show::Factor).after_bar(),
            Shown::new("Exposed (ms)", "exposed_ms", Show::Millis),
        ],
        notes: Vec::new(),
    };
    check("awkward", &view);
}

#[cfg(feature = "tables")]
#[test]
fn every_report_in_every_format() {
    for report in maestro_reports::REPORTS {
        let first = |runs: &[maestro_reports::Run]| {
            let mut view = report.view(runs).unwrap();
            // Of tables with a row for every step or percent the first ones show all there is to see.
            view.rows.truncate(16);
            view
        };
        check(report.name(), &first(&[run("a", 20, 3)]));
        check(&format!("{}_two_runs", report.name()), &first(&[run("a", 2, 1), run("b", 4, 1)]));
    }
}
