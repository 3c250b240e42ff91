//! One row of `traceEvents` as text: the keys that matter, borrowed from the event, read only when asked for.
//!
//! Every field is raw text, so that a key of an unexpected type (a thread named "stream 7", a null name, a number in
//! quotes) is a missing fact of that row and never the end of an import. `args` is read a second time, and only for the
//! few kinds of rows that are kept: most of a capture's bytes are arguments of rows that are not.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Notes;

/// A raw JSON value, or nothing.
pub(super) type Raw<'a> = Option<&'a RawValue>;

/// The keys of an event that matter.
#[derive(Default, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    ph: Raw<'a>,
    #[serde(borrow)]
    cat: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    pub(super) pid: Raw<'a>,
    #[serde(borrow)]
    pub(super) tid: Raw<'a>,
    #[serde(borrow)]
    pub(super) ts: Raw<'a>,
    #[serde(borrow)]
    pub(super) dur: Raw<'a>,
    #[serde(borrow)]
    args: Raw<'a>,
}

/// What a row is about. Rows of any other category are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    Kernel,
    Copy,
    Set,
    Sync,
    Call,
    Operator,
    Annotation,
}

impl<'a> Event<'a> {
    /// What it is about, if it has a duration and is of a kind that is read.
    pub(super) fn category(&self) -> Option<Category> {
        if bare(self.ph) != "X" {
            return None;
        }
        // Until 2021 the names were capitalised.
        match bare(self.cat) {
            "kernel" | "Kernel" => Some(Category::Kernel),
            "gpu_memcpy" | "Memcpy" => Some(Category::Copy),
            "gpu_memset" | "Memset" => Some(Category::Set),
            "cuda_sync" => Some(Category::Sync),
            "cuda_runtime" | "cuda_driver" | "Runtime" => Some(Category::Call),
            "cpu_op" | "Operator" => Some(Category::Operator),
            "user_annotation" => Some(Category::Annotation),
            _ => None,
        }
    }

    /// Its name; empty if it has none.
    pub(super) fn name(&self) -> Cow<'a, str> {
        text(self.name).unwrap_or_default()
    }

    /// Its arguments; none if they are missing, or cannot be read, which is noted.
    pub(super) fn args(&self, notes: &mut Notes) -> Args<'a> {
        let Some(raw) = self.args else { return Args::default() };
        serde_json::from_str(raw.get()).unwrap_or_else(|error| {
            notes.add("rows whose arguments cannot be read, taken as none", || format!("{}: {error}", self.name()));
            Args::default()
        })
    }
}

/// The arguments that matter.
#[derive(Default, Deserialize)]
pub(super) struct Args<'a> {
    #[serde(borrow, rename = "External id", alias = "external id")]
    pub(super) external_id: Raw<'a>,
    #[serde(borrow)]
    pub(super) correlation: Raw<'a>,
    #[serde(borrow)]
    pub(super) stream: Raw<'a>,
    #[serde(borrow)]
    pub(super) device: Raw<'a>,
    #[serde(borrow)]
    pub(super) grid: Raw<'a>,
    #[serde(borrow, rename = "graph id")]
    pub(super) graph: Raw<'a>,
    #[serde(borrow)]
    pub(super) bytes: Raw<'a>,
    #[serde(borrow)]
    pub(super) wait_on_stream: Raw<'a>,
    #[serde(borrow)]
    pub(super) wait_on_cuda_event_record_corr_id: Raw<'a>,
    #[serde(borrow)]
    pub(super) wait_on_cuda_event_id: Raw<'a>,
    #[serde(borrow, rename = "Input Dims", alias = "Input dims")]
    pub(super) input_dims: Raw<'a>,
    #[serde(borrow, rename = "Input type")]
    pub(super) input_type: Raw<'a>,
    #[serde(borrow, rename = "Concrete Inputs")]
    pub(super) concrete_inputs: Raw<'a>,
    #[serde(borrow, rename = "Collective name")]
    pub(super) collective: Raw<'a>,
    #[serde(borrow)]
    pub(super) dtype: Raw<'a>,
    #[serde(borrow, rename = "In msg nelems")]
    pub(super) in_elements: Raw<'a>,
    #[serde(borrow, rename = "Out msg nelems")]
    pub(super) out_elements: Raw<'a>,
    #[serde(borrow, rename = "In split size")]
    pub(super) in_splits: Raw<'a>,
    #[serde(borrow, rename = "Out split size")]
    pub(super) out_splits: Raw<'a>,
    #[serde(borrow, rename = "Group size")]
    pub(super) group_size: Raw<'a>,
    #[serde(borrow, rename = "Process Group Name")]
    pub(super) group_name: Raw<'a>,
    #[serde(borrow, rename = "Process Group Description")]
    pub(super) group_desc: Raw<'a>,
    #[serde(borrow, rename = "Process Group Ranks")]
    pub(super) ranks: Raw<'a>,
    #[serde(borrow, rename = "Seq")]
    pub(super) seq: Raw<'a>,
    #[serde(borrow, rename = "Rank")]
    pub(super) rank: Raw<'a>,
    #[serde(borrow, rename = "Global rank start")]
    pub(super) rank_start: Raw<'a>,
    #[serde(borrow, rename = "Global rank stride")]
    pub(super) rank_stride: Raw<'a>,
    #[serde(borrow, rename = "Record function id")]
    pub(super) function_id: Raw<'a>,
    #[serde(borrow, rename = "Src Rank")]
    pub(super) source: Raw<'a>,
    #[serde(borrow, rename = "Dst Rank")]
    pub(super) destination: Raw<'a>,
}

/// The text of a value without its quotes, escapes left as they are: for words that have none, numbers and lists.
pub(super) fn bare(raw: Raw<'_>) -> &str {
    let text = raw.map_or("", RawValue::get);
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// A string, unescaped. What is no string, or not valid in itself (half a surrogate pair), is taken as it stands.
pub(super) fn text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    let json = raw?.get();
    let inner = bare(raw);
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    Some(serde_json::from_str::<String>(json).map_or(Cow::Borrowed(inner), Cow::Owned))
}

/// A whole number, in quotes or not.
pub(super) fn integer<T: std::str::FromStr>(raw: Raw<'_>) -> Option<T> {
    bare(raw).trim().parse().ok()
}

/// The first run of digits: `7` of `7` and of `"stream 7"`.
pub(super) fn number_in(raw: Raw<'_>) -> Option<i64> {
    if let Some(number) = integer(raw) {
        return Some(number);
    }
    let text = bare(raw);
    let digits = &text[text.find(|c: char| c.is_ascii_digit())?..];
    digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())].parse().ok()
}

/// A list of whole numbers as the profiler writes it: a list, or a string that holds one, perhaps cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// All of it.
    Whole(Vec<u64>),
    /// It ended in an ellipsis, or is no list of whole numbers.
    Cut,
}

impl List {
    /// Reads a list; a missing one is empty.
    pub(super) fn read(raw: Raw<'_>) -> Self {
        let text = bare(raw).trim();
        if text.is_empty() || text == "null" {
            return Self::Whole(Vec::new());
        }
        let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else {
            return Self::Cut;
        };
        if inside.trim().is_empty() {
            return Self::Whole(Vec::new());
        }
        match inside.split(',').map(|item| item.trim().parse()).collect() {
            Ok(items) => Self::Whole(items),
            Err(_) => Self::Cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Raw<'_> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn any_type_of_any_key_is_survived() {
        for json in [
            "{}",
            r#"{"ph": 1, "cat": null, "name": [], "pid": "Spans", "tid": {}, "ts": "x", "dur": false, "args": "no"}"#,
            r#"{"ph": "X", "cat": "kernel", "args": {"External id": {}, "stream": "7", "grid": 3}}"#,
        ] {
            let event: Event = serde_json::from_str(json).unwrap();
            event.category();
            event.name();
            event.args(&mut Notes::default());
        }
    }

    #[test]
    fn names_lose_their_escapes() {
        let name = |json| text(raw(json)).unwrap();
        assert!(matches!(name(r#""plain""#), Cow::Borrowed("plain")));
        assert_eq!(name(r#""a \"b\" \u00b5""#), "a \"b\" µ");
        assert_eq!(name(r#""half \ud800""#), r"half \ud800");
        assert_eq!(text(raw("null")), None);
    }

    #[test]
    fn numbers_hide_in_text() {
        assert_eq!(number_in(raw("-1")), Some(-1));
        assert_eq!(number_in(raw(r#""stream 7""#)), Some(7));
        assert_eq!(number_in(raw(r#""1234 (python)""#)), Some(1234));
        assert_eq!(number_in(raw(r#""Spans""#)), None);
        assert_eq!(number_in(raw(r#""99999999999999999999""#)), None);
        assert_eq!(number_in(None), None);
    }

    #[test]
    fn lists_come_in_strings_and_may_be_cut() {
        assert_eq!(List::read(raw(r#""[0, 1]""#)), List::Whole(vec![0, 1]));
        assert_eq!(List::read(raw("[4757,3435]")), List::Whole(vec![4757, 3435]));
        assert_eq!(List::read(raw(r#""[]""#)), List::Whole(vec![]));
        assert_eq!(List::read(None), List::Whole(vec![]));
        for cut in [r#""[0, 1, ...]""#, r#""[0, 1...]""#, r#""[0, 1, ""#, r#""0, 1""#, "[0, -1]", "7", r#""[0, [1]]""#]
        {
            assert_eq!(List::read(raw(cut)), List::Cut, "{cut}");
        }
    }
}
