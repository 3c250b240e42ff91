//! Makes JSON of what a profiler should have written as JSON.
//!
//! The slow way, for values that serde_json has refused. Each change is of a kind seen in real files, and is reported
//! with its place; whether the outcome is JSON, serde_json decides again. Nothing is completed by guessing at facts: a
//! word that is no JSON becomes null, and an event whose end is lost is not brought here.

use serde::de::IgnoredAny;

use super::outline::key_after;

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A word or number that is no JSON.
    Word,
    /// A backslash that escapes nothing.
    Backslash,
    /// A quote inside a string.
    Quote,
    /// A byte below space inside a string.
    Control,
    /// Bytes that are no UTF-8.
    Encoding,
    /// A comma too many, or one that is missing.
    Comma,
    /// A closing bracket that is missing or of the wrong kind.
    Bracket,
}

impl Fault {
    /// Its kind of note.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Word => "values that are no JSON (inf, NaN, ...), read as null",
            Self::Backslash => "backslashes that escape nothing, read as themselves",
            Self::Quote => "quotes inside strings without a backslash, read as part of them",
            Self::Control => "control characters inside strings, read as part of them",
            Self::Encoding => "texts that are no UTF-8, read with replacement characters",
            Self::Comma => "commas that are missing or too many",
            Self::Bracket => "brackets inside values that are missing or of the wrong kind, put right",
        }
    }
}

/// A value that was mended.
pub(super) struct Repaired {
    /// The value, now JSON.
    pub(super) json: String,
    /// What was wrong, where in the given text, and what stood there.
    pub(super) faults: Vec<(Fault, usize, String)>,
}

/// Mends the value in `text`; `None` if that cannot be done.
pub(super) fn repair(text: &[u8]) -> Option<Repaired> {
    // A backslash before a quote mostly escapes it. Where that leads nowhere, it may end a Windows path.
    [false, true].into_iter().find_map(|paths| {
        let mut mender = Mender { text, at: 0, out: Vec::with_capacity(text.len() + 16), faults: Vec::new(), paths };
        mender.value(Place::Array, 0)?;
        mender.space();
        if mender.at < text.len() {
            return None;
        }
        let json = String::from_utf8(mender.out).unwrap_or_else(|error| {
            let byte = std::str::from_utf8(text).map_or_else(|error| error.valid_up_to(), |_| 0);
            mender.faults.push((
                Fault::Encoding,
                byte,
                text[byte..].first().map_or(String::new(), |b| format!("{b:#04x}")),
            ));
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        });
        serde_json::from_str::<IgnoredAny>(&json).ok()?;
        Some(Repaired { json, faults: mender.faults })
    })
}

/// Deeper values are no rows of a trace.
const DEEPEST: usize = 64;

/// What a string is, which tells what may follow it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Key,
    /// A value in an object.
    Object,
    /// A value in an array, or all there is.
    Array,
}

/// Goes through a text and writes it as JSON. Its steps give `None` where they know no way on.
struct Mender<'t> {
    text: &'t [u8],
    at: usize,
    out: Vec<u8>,
    faults: Vec<(Fault, usize, String)>,
    /// Whether a backslash before a quote that may end its string is one of the string.
    paths: bool,
}

impl Mender<'_> {
    fn space(&mut self) -> Option<u8> {
        while self.text.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn fault(&mut self, fault: Fault, at: usize, what: &[u8]) {
        self.faults.push((fault, at, String::from_utf8_lossy(&what[..what.len().min(40)]).into_owned()));
    }

    fn value(&mut self, place: Place, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match self.space()? {
            b'{' => self.entries(Place::Object, depth),
            b'[' => self.entries(Place::Array, depth),
            b'"' => self.string(place),
            _ => self.word(),
        }
    }

    /// An object or an array.
    fn entries(&mut self, place: Place, depth: usize) -> Option<()> {
        let (open, close, other) = if place == Place::Object { (b'{', b'}', b']') } else { (b'[', b']', b'}') };
        self.out.push(open);
        self.at += 1;
        let (mut first, mut comma) = (true, None);
        loop {
            match self.space() {
                Some(b',') => {
                    if first || comma.is_some() {
                        self.fault(Fault::Comma, self.at, b",");
                    }
                    comma = Some(self.at);
                    self.at += 1;
                    continue;
                }
                Some(byte) if byte != close && byte != other => {}
                end => {
                    if let Some(at) = comma {
                        self.fault(Fault::Comma, at, b",");
                    }
                    if end == Some(close) {
                        self.at += 1;
                    } else {
                        self.fault(Fault::Bracket, self.at, &[close]);
                    }
                    self.out.push(close);
                    return Some(());
                }
            }
            if !first {
                if comma.is_none() {
                    self.fault(Fault::Comma, self.at, b"");
                }
                self.out.push(b',');
            }
            (first, comma) = (false, None);
            if place == Place::Object {
                if self.space()? != b'"' {
                    return None;
                }
                self.string(Place::Key)?;
                if self.space()? != b':' {
                    return None;
                }
                self.at += 1;
                self.out.push(b':');
            }
            self.value(place, depth + 1)?;
        }
    }

    fn string(&mut self, place: Place) -> Option<()> {
        self.out.push(b'"');
        self.at += 1;
        loop {
            let (byte, next) = (*self.text.get(self.at)?, self.text.get(self.at + 1).copied());
            match byte {
                b'"' if self.closes(self.at + 1, place) => {
                    self.out.push(b'"');
                    self.at += 1;
                    return Some(());
                }
                b'"' => {
                    self.fault(
                        Fault::Quote,
                        self.at,
                        &self.text[self.at.saturating_sub(10)..(self.at + 10).min(self.text.len())],
                    );
                    self.out.extend(br#"\""#);
                }
                b'\\' => {
                    let hex = || {
                        self.text.get(self.at + 2..self.at + 6).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
                    };
                    let escape = match next? {
                        b'"' => !(self.paths && self.closes(self.at + 2, place)),
                        b'u' => hex(),
                        other => b"\\/bfnrt".contains(&other),
                    };
                    self.out.push(b'\\');
                    if escape {
                        self.out.push(next?);
                        self.at += 1;
                    } else {
                        self.fault(Fault::Backslash, self.at, &[byte, next?]);
                        self.out.push(b'\\');
                    }
                }
                ..=0x1f => {
                    self.fault(Fault::Control, self.at, format!("\\u{byte:04x}").as_bytes());
                    self.out.extend(format!("\\u{byte:04x}").bytes());
                }
                _ => self.out.push(byte),
            }
            self.at += 1;
        }
    }

    /// Whether a quote can end its string if the text goes on at `at`: only before what may follow a string there.
    fn closes(&self, at: usize, place: Place) -> bool {
        let behind = |at: usize| {
            let space = self.text[at..].iter().position(|byte| !byte.is_ascii_whitespace())?;
            Some((at + space, self.text[at + space]))
        };
        match (place, behind(at)) {
            (Place::Key, next) => next.is_some_and(|(_, byte)| byte == b':'),
            (_, None) => true,
            (Place::Object, Some((at, b'}'))) => {
                behind(at + 1).is_none_or(|(_, byte)| matches!(byte, b',' | b'}' | b']'))
            }
            (Place::Object, Some((at, b','))) => {
                key_after(self.text, at + 1).is_some() || behind(at + 1).is_some_and(|(_, byte)| byte == b'}')
            }
            (Place::Array, Some((at, b','))) => behind(at + 1).is_some_and(|(_, byte)| {
                matches!(byte, b'"' | b'[' | b'{' | b']' | b'-' | b'0'..=b'9' | b'n' | b't' | b'f')
            }),
            (Place::Array, Some((_, byte))) => byte == b']',
            (Place::Object, Some(_)) => false,
        }
    }

    /// A number or a word.
    fn word(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        let length =
            rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b'\n' | b'"')).unwrap_or(rest.len());
        let word = rest[..length].trim_ascii_end();
        if serde_json::from_slice::<IgnoredAny>(word).is_ok() {
            self.out.extend(word);
        } else {
            self.fault(Fault::Word, self.at, word);
            self.out.extend(b"null");
        }
        self.at += length;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(text: &str) -> Option<(String, Vec<(Fault, usize)>)> {
        let repaired = repair(text.as_bytes())?;
        Some((repaired.json, repaired.faults.into_iter().map(|(fault, at, _)| (fault, at)).collect()))
    }

    #[test]
    fn each_kind_of_fault_is_mended_where_it_stands() {
        use Fault::*;
        for (text, json, faults) in [
            (
                r#"{"a":inf,"b":-inf,"c": NaN }"#,
                r#"{"a":null,"b":null,"c":null}"#,
                &[(Word, 5), (Word, 13), (Word, 23)][..],
            ),
            (r#"{"a":N/A,"b":[True, 0x1]}"#, r#"{"a":null,"b":[null,null]}"#, &[(Word, 5), (Word, 14), (Word, 20)]),
            (r#"{"a":"C:\Users\x"}"#, r#"{"a":"C:\\Users\\x"}"#, &[(Backslash, 8), (Backslash, 14)]),
            (r#"{"a":"C:\dir\","b":1}"#, r#"{"a":"C:\\dir\\","b":1}"#, &[(Backslash, 8), (Backslash, 12)]),
            (r#"{"a":"foo("bar")baz","b":1}"#, r#"{"a":"foo(\"bar\")baz","b":1}"#, &[(Quote, 10), (Quote, 14)]),
            (r#"{"a":"one"two","b":1}"#, r#"{"a":"one\"two","b":1}"#, &[(Quote, 9)]),
            ("{\"a\":\"x\ny\"}", r#"{"a":"x\u000ay"}"#, &[(Control, 7)]),
            (r#"{"a":1,,"b":[1,],}"#, r#"{"a":1,"b":[1]}"#, &[(Comma, 7), (Comma, 14), (Comma, 16)]),
            (r#"{"a":1 "b":2}"#, r#"{"a":1,"b":2}"#, &[(Comma, 7)]),
            (r#"{"a":{"b":[1},"c":2"#, r#"{"a":{"b":[1]},"c":2}"#, &[(Bracket, 12), (Bracket, 19)]),
        ] {
            let (found, its) = mended(text).unwrap_or_else(|| panic!("{text} is given up"));
            assert_eq!((found.as_str(), its.as_slice()), (json, faults), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let repaired = repair(b"{\"a\":\"x\xffy\"}").unwrap();
        assert_eq!(repaired.json, "{\"a\":\"x\u{fffd}y\"}");
        assert_eq!(repaired.faults, [(Fault::Encoding, 7, "0xff".to_owned())]);
    }

    #[test]
    fn what_cannot_be_mended_is_given_up() {
        for text in ["", "{a: 1}", r#"{"a" 1}"#, r#"{"a": "x"#, "{} {}", r#"{"a": 1]"#] {
            assert!(repair(text.as_bytes()).is_none(), "{text}");
        }
        assert!(repair("[".repeat(100_000).as_bytes()).is_none());
    }
}
