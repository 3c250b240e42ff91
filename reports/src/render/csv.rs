//! RFC 4180: the raw columns, comma-separated, CRLF, a header line.

use std::borrow::Cow;

use crate::{Value, View};

/// All raw columns of all rows; a missing value is an empty field.
pub(super) fn render(view: &View) -> String {
    let mut text = record(view.keys.iter().map(|key| quote(key)));
    for row in &view.rows {
        text += &record(row.iter().map(|value| match value {
            Value::Missing => Cow::Borrowed(""),
            Value::Text(text) => quote(text),
            Value::Integer(value) => Cow::Owned(value.to_string()),
            Value::Real(value) => Cow::Owned(value.to_string()),
        }));
    }
    text
}

fn record<'a>(fields: impl Iterator<Item = Cow<'a, str>>) -> String {
    let mut record = fields.collect::<Vec<_>>().join(",");
    record += "\r\n";
    record
}

/// A field, in quotes if it holds what separates fields or records.
fn quote(field: &str) -> Cow<'_, str> {
    if field.contains([',', '"', '\r', '\n']) {
        Cow::Owned(format!("\"{}\"", field.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(quote("gather_layer"), "gather_layer");
        assert_eq!(quote("a,b"), "\"a,b\"");
        assert_eq!(quote("a \"b\"\nc"), "\"a \"\"b\"\"\nc\"");
    }

    #[test]
    fn missing_values_are_empty() {
        let view = View {
            keys: vec!["block".into(), "p99_ms".into(), "avg_ms".into()],
            rows: vec![vec![Value::Text("a".into()), Value::Missing, Value::Real(1.0)]],
            shown: Vec::new(),
            notes: Vec::new(),
        };
        assert_eq!(render(&view), "block,p99_ms,avg_ms\r\na,,1\r\n");
    }
}
