//! docs/TABLES.md lists the columns of every table as the program has them. `MAESTRO_BLESS=1` rewrites it.

use std::fmt::Write;
use std::path::Path;

use maestro_reports::{Field, Kind, REPORTS, RUN, SCHEMA, TABLE_SCHEMA};

const HEAD: &str = "\
# Tables: the columns of every report

`maestro report RUN... --table NAME --format csv|json|parquet|arrow` writes all columns of a table in full precision. What
they mean, with formulas, is in [MEASUREMENTS.md](MEASUREMENTS.md). This page is made from the program by
`MAESTRO_BLESS=1 cargo test -p maestro-reports schema`.
";

fn line(field: &Field) -> String {
    let kind = match field.kind {
        Kind::Text => "text",
        Kind::Count => "integer",
        Kind::Real => "real",
    };
    let unit = if field.unit.is_empty() { String::new() } else { format!(" in {}", field.unit) };
    format!("| `{}` | {kind}{unit} | {} |\n", field.key, field.about)
}

#[test]
fn the_schema_is_documented() {
    let mut text = format!(
        "{HEAD}\n**Schema {TABLE_SCHEMA}.** The number stands in the first column of every row, and as `maestro.schema` in \
         the metadata of Parquet\nand Arrow files, beside `maestro.table`. Columns may be added at the end of a table \
         without a new number; renaming,\nremoving, or another meaning, unit or type makes one. Text is UTF-8, integers are \
         unsigned with 64 bits, reals floats with\n64; whatever is missing is null (empty in CSV).\n\nAll tables begin \
         with these:\n\n| column | type | what |\n|---|---|---|\n{}{}",
        line(&SCHEMA),
        line(&RUN)
    );
    let mut known: Vec<(&str, &[Field])> = Vec::new();
    for report in REPORTS {
        write!(text, "\n## `{}`\n\n{}\n", report.name(), report.about()).unwrap();
        if let Some((same, _)) = known.iter().find(|(_, fields)| *fields == report.fields()) {
            write!(text, "\nThe columns are those of `{same}`.\n").unwrap();
            continue;
        }
        known.push((report.name(), report.fields()));
        text += "\n| column | type | what |\n|---|---|---|\n";
        text.extend(report.fields().iter().map(line));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/TABLES.md");
    if std::env::var_os("MAESTRO_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, stored, "docs/TABLES.md differs; MAESTRO_BLESS=1 rewrites it");
}

#[test]
fn columns_have_their_own_names_and_units_in_them() {
    for report in REPORTS {
        let columns = report.columns();
        for field in &columns {
            assert_eq!(columns.iter().filter(|other| other.key == field.key).count(), 1, "{}", field.key);
            let end = match field.unit {
                "ms" => "_ms",
                "GB/s" => "_gbps",
                "B" => "_bytes",
                _ => "",
            };
            assert!(field.key.ends_with(end), "{} is in {}", field.key, field.unit);
        }
    }
}
