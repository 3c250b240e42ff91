//! A table on its way to a reader: all columns with their values, and which of them people see, and how.
//!
//! Every text format renders this one type, and it knows no Polars, so the lean replayer's summary and the full reports
//! look alike. It holds two tables in one: the raw columns with unit-named keys, which CSV and JSON give in full, and
//! the narrower one that is shown, where sizes are rounded and three raw columns make one cell.

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

/// A raw value. Numbers are finite.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Not measured, not defined, or too few samples.
    Missing,
    /// A name.
    Text(String),
    /// A count.
    Integer(u64),
    /// A measure in the unit that the key names.
    Real(f64),
}

impl Value {
    /// A number; missing if it is not finite.
    pub fn real(value: Option<f64>) -> Self {
        value.filter(|value| value.is_finite()).map_or(Self::Missing, Self::Real)
    }

    /// A count that may be missing.
    pub fn integer(value: Option<u64>) -> Self {
        value.map_or(Self::Missing, Self::Integer)
    }

    /// A name that may be missing.
    pub fn text(value: Option<&str>) -> Self {
        value.map_or(Self::Missing, |text| Self::Text(text.to_owned()))
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Missing | Self::Text(_) => None,
            Self::Integer(value) => Some(*value as f64),
            Self::Real(value) => Some(*value),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Missing => serializer.serialize_none(),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Integer(value) => serializer.serialize_u64(*value),
            Self::Real(value) => serializer.serialize_f64(*value),
        }
    }
}

/// How a shown column writes its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// As it is, at the left.
    Text,
    /// A count.
    Count,
    /// Bytes with a binary prefix and one decimal: 402759680 is 384.1M.
    Bytes,
    /// Three decimals: milliseconds to the microsecond.
    Millis,
    /// Two decimals.
    Rate,
    /// One decimal, in percent.
    Percent,
    /// Four significant digits.
    Significant,
    /// A change in percent with its sign, and ` [+8.1, +12.3]` where the keys with `_lo` and `_hi` added have values.
    Change,
    /// `1.31x`, and ` [1.28, 1.35]` where the keys with `_lo` and `_hi` added have values.
    Factor,
}

/// A column that people see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its heading.
    pub heading: &'static str,
    /// Key of the raw column that it shows.
    pub key: &'static str,
    /// How.
    pub show: Show,
    /// Whether a bar separates it from the column before.
    pub bar: bool,
    /// Whether it is left out where no row has a value.
    pub optional: bool,
}

impl Shown {
    /// A column without a bar before it.
    pub const fn new(heading: &'static str, key: &'static str, show: Show) -> Self {
        Self { heading, key, show, bar: false, optional: false }
    }

    /// The same with a bar before it.
    pub const fn after_bar(self) -> Self {
        Self { bar: true, ..self }
    }

    /// The same, left out of tables in which no row has a value.
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

/// A table with what is needed to print it. Serializes as an array of objects with the raw keys.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Unit-named keys of the raw columns.
    pub keys: Vec<String>,
    /// The raw values, a row as long as `keys`.
    pub rows: Vec<Vec<Value>>,
    /// The columns that people see.
    pub shown: Vec<Shown>,
    /// What to know about the numbers, printed below them: one line each.
    pub notes: Vec<String>,
}

impl View {
    /// The raw value in `row` under `key`; missing if there is no such key.
    pub fn value(&self, row: usize, key: &str) -> &Value {
        let column = self.keys.iter().position(|known| known == key);
        column.and_then(|column| self.rows.get(row)?.get(column)).unwrap_or(&Value::Missing)
    }

    /// The text of a shown column in `row`; `-` for a missing value.
    pub(crate) fn cell(&self, row: usize, shown: &Shown) -> String {
        let value = self.value(row, shown.key);
        let Some(number) = value.number() else {
            return if let Value::Text(text) = value { text.clone() } else { "-".into() };
        };
        let bound = |suffix| self.value(row, &format!("{}{suffix}", shown.key)).number();
        match shown.show {
            Show::Significant => significant(number),
            Show::Change => match (bound("_lo"), bound("_hi")) {
                (Some(low), Some(high)) => format!("{} [{}, {}]", signed(number), signed(low), signed(high)),
                _ => signed(number),
            },
            Show::Text | Show::Count => format!("{number}"),
            Show::Bytes => bytes(number),
            Show::Millis => format!("{number:.3}"),
            Show::Rate => format!("{number:.2}"),
            Show::Percent => format!("{number:.1}"),
            Show::Factor => match (bound("_lo"), bound("_hi")) {
                (Some(low), Some(high)) => format!("{number:.2}x [{low:.2}, {high:.2}]"),
                _ => format!("{number:.2}x"),
            },
        }
    }
}

impl Serialize for View {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_seq(Some(self.rows.len()))?;
        for row in &self.rows {
            rows.serialize_element(&Object { keys: &self.keys, row })?;
        }
        rows.end()
    }
}

/// One row as an object, keys in column order.
struct Object<'a> {
    keys: &'a [String],
    row: &'a [Value],
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(self.keys.len()))?;
        for (key, value) in self.keys.iter().zip(self.row) {
            object.serialize_entry(key, value)?;
        }
        object.end()
    }
}

/// With its sign and one decimal; what rounds to nothing has no sign.
fn signed(number: f64) -> String {
    if number.abs() < 0.05 { "0.0".to_owned() } else { format!("{number:+.1}") }
}

/// Four significant digits, whole numbers whole: 671.2, 0.004329, 12345.
fn significant(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return format!("{number}");
    }
    let places = 3 - number.abs().log10().floor() as i64;
    if places > 9 { format!("{number:.1e}") } else { format!("{number:.*}", places.max(0) as usize) }
}

/// Bytes with a binary prefix, as nccl-tests users write sizes: 384.1M is 384.1 MiB.
fn bytes(bytes: f64) -> String {
    let mut value = bytes;
    for prefix in ["", "K", "M", "G"] {
        // One decimal rounds 1023.95 up to the next prefix.
        if value < 1023.95 {
            return if prefix.is_empty() { format!("{value}") } else { format!("{value:.1}{prefix}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1}T")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_in_the_design() {
        assert_eq!(bytes(402_759_680.0), "384.1M");
        assert_eq!(bytes(0.0), "0");
        assert_eq!(bytes(1023.0), "1023");
        assert_eq!(bytes(1024.0), "1.0K");
        assert_eq!(bytes(1_048_575.0), "1.0M");
        assert_eq!(bytes(1_649_267_441_664.0), "1.5T");
    }

    #[test]
    fn a_change_has_a_sign_unless_it_is_none() {
        assert_eq!([9.94, -0.051, -0.04, 0.0].map(signed), ["+9.9", "-0.1", "0.0", "0.0"]);
    }

    #[test]
    fn four_digits_whatever_the_size() {
        let shown = [671.19, 0.004_329_004, 12_345.6, 1.0, 0.0, 9.9999, 3.2e-12].map(significant);
        assert_eq!(shown, ["671.2", "0.004329", "12346", "1.000", "0", "10.000", "3.2e-12"]);
    }

    #[test]
    fn a_factor_shows_its_interval_where_it_has_one() {
        let row = |low: Value, high: Value| vec![Value::Real(1.3149), low, high];
        let view = View {
            keys: ["slowdown", "slowdown_lo", "slowdown_hi"].map(String::from).to_vec(),
            rows: vec![row(Value::Real(1.28), Value::Real(1.35)), row(Value::Missing, Value::Missing)],
            shown: vec![Shown::new("Slowdown", "slowdown", Show::Factor)],
            notes: Vec::new(),
        };
        assert_eq!(view.cell(0, &view.shown[0]), "1.31x [1.28, 1.35]");
        assert_eq!(view.cell(1, &view.shown[0]), "1.31x");
        assert_eq!(view.cell(2, &view.shown[0]), "-");
    }

    #[test]
    fn what_is_not_finite_is_missing() {
        assert_eq!(Value::real(Some(f64::NAN)), Value::Missing);
        assert_eq!(Value::real(Some(f64::INFINITY)), Value::Missing);
        assert_eq!(serde_json::to_string(&Value::real(None)).unwrap(), "null");
    }
}
