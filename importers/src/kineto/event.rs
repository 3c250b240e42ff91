//! One row of `traceEvents` as text: the keys that matter, borrowed from the event, read only when asked for.
//!
//! Every field is raw text, so that a key of an unexpected type (a thread named "stream 7", a null name, a number in
//! quotes) is a missing fact of that row and never the end of an import. `args` is read a second time, and only for the
//! few kinds of rows that are kept: most of a capture's bytes are arguments of rows that are not.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::lex::Entries;
use crate::Notes;

/// The text of a JSON value as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    /// The text.
    pub(super) fn get(self) -> &'a str {
        self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(raw.get()))
    }
}

/// A raw JSON value, or nothing: the key is missing or null.
pub(super) type Raw<'a> = Option<Text<'a>>;

/// Declares an object of raw values: each field with the keys that it may have in the text.
macro_rules! object {
    ($(#[$about:meta])* $name:ident { $($field:ident: $($key:literal)|+,)* }) => {
        $(#[$about])*
        #[derive(Default)]
        pub(super) struct $name<'a> { $(pub(super) $field: Raw<'a>,)* }

        impl<'a> $name<'a> {
            /// What the object in `text` says, and a key that occurs twice in it, of which the last counts. `None`: it
            /// is no object.
            fn read(text: &'a str) -> Option<(Self, Option<&'a str>)> {
                let (mut read, mut twice) = (Self::default(), None);
                let mut entries = Entries::of(text);
                for (key, value) in entries.by_ref() {
                    let field = match key {
                        $($($key)|+ => &mut read.$field,)*
                        _ => continue,
                    };
                    if field.is_some() {
                        twice = Some(key);
                    }
                    *field = (value != "null").then_some(Text(value));
                }
                entries.complete().then_some((read, twice))
            }
        }
    };
}

object! {
    /// The keys of an event that matter.
    Event {
        ph: "ph",
        cat: "cat",
        name: "name",
        pid: "pid",
        tid: "tid",
        ts: "ts",
        dur: "dur",
        args: "args",
    }
}

object! {
    /// The arguments that matter.
    Args {
        external_id: "External id" | "external id",
        correlation: "correlation",
        stream: "stream",
        device: "device",
        grid: "grid",
        graph: "graph id",
        bytes: "bytes",
        wait_on_stream: "wait_on_stream",
        wait_on_cuda_event_record_corr_id: "wait_on_cuda_event_record_corr_id",
        wait_on_cuda_event_id: "wait_on_cuda_event_id",
        input_dims: "Input Dims" | "Input dims",
        input_strides: "Input Strides",
        input_type: "Input type",
        concrete_inputs: "Concrete Inputs",
        collective: "Collective name",
        dtype: "dtype",
        in_elements: "In msg nelems",
        out_elements: "Out msg nelems",
        in_splits: "In split size",
        out_splits: "Out split size",
        group_size: "Group size",
        group_name: "Process Group Name",
        group_desc: "Process Group Description",
        ranks: "Process Group Ranks",
        seq: "Seq",
        rank: "Rank",
        rank_start: "Global rank start",
        rank_stride: "Global rank stride",
        function_id: "Record function id",
        source: "Src Rank",
        destination: "Dst Rank",
    }
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

impl Category {
    /// The category of this name. Until 2021 the names were capitalised.
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "kernel" | "Kernel" => Some(Self::Kernel),
            "gpu_memcpy" | "Memcpy" => Some(Self::Copy),
            "gpu_memset" | "Memset" => Some(Self::Set),
            "cuda_sync" => Some(Self::Sync),
            "cuda_runtime" | "cuda_driver" | "Runtime" => Some(Self::Call),
            "cpu_op" | "Operator" => Some(Self::Operator),
            "user_annotation" => Some(Self::Annotation),
            _ => None,
        }
    }
}

/// Whether the event in `text` is of no kind that is read, as far as its beginning tells: for passing over it cheaply.
pub(super) fn is_of_no_use(text: &str) -> bool {
    for (key, value) in Entries::of(text) {
        let value = value.trim_matches('"');
        match key {
            "ph" if value != "X" => return true,
            "cat" => return Category::from_name(value).is_none(),
            // The arguments cost most to go through, and mostly come last.
            "args" => return false,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
impl<'a> Args<'a> {
    /// The arguments in `text`, an object.
    pub(super) fn of(text: &'a str) -> Self {
        Self::read(text).expect("an object").0
    }
}

impl<'a> Event<'a> {
    /// The event that `text` holds, and a key that occurs twice in it, of which the last counts. `None`: it holds none.
    pub(super) fn of(text: &'a str) -> Option<(Self, Option<&'a str>)> {
        Self::read(text)
    }

    /// What it is about, if it has a duration and is of a kind that is read.
    pub(super) fn category(&self) -> Option<Category> {
        if bare(self.ph) == "X" { Category::from_name(bare(self.cat)) } else { None }
    }

    /// Its name; empty if it has none.
    pub(super) fn name(&self) -> Cow<'a, str> {
        text(self.name).unwrap_or_default()
    }

    /// Its arguments; none if they are missing, or cannot be read, which is noted.
    pub(super) fn args(&self, notes: &mut Notes) -> Args<'a> {
        let Some(raw) = self.args else { return Args::default() };
        let Some((args, twice)) = Args::read(raw.get()) else {
            notes.add("rows whose arguments cannot be read, taken as none", || self.name().into_owned());
            return Args::default();
        };
        if let Some(key) = twice {
            notes.add("rows with a key that occurs twice, the last taken", || format!("`{key}` of {}", self.name()));
        }
        args
    }
}

/// The text of a value without its quotes, escapes left as they are: for words that have none, numbers and lists.
pub(super) fn bare(raw: Raw<'_>) -> &str {
    let text = raw.map_or("", Text::get);
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
            let (event, _) = Event::of(json).unwrap();
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
