//! The entries of an object, one level deep, borrowed from its text.
//!
//! Faster than a general reader, because it looks into no value: [`super::outline`] has looked at the bytes before, and
//! what gave reason for doubt went through serde_json. A text that is no object as expected ends the entries early;
//! [`Entries::complete`] tells.

use super::outline::{Outline, outline};

/// Goes through the entries of an object.
pub(super) struct Entries<'a> {
    text: &'a str,
    at: usize,
    complete: bool,
}

impl<'a> Entries<'a> {
    /// The entries of `text`, an object.
    pub(super) fn of(text: &'a str) -> Self {
        let at = text.len() - text.trim_ascii_start().len();
        let at = if text.as_bytes().get(at) == Some(&b'{') { at } else { text.len() };
        Self { text, at, complete: false }
    }

    /// Whether the object was gone through to its end.
    pub(super) fn complete(&self) -> bool {
        self.complete
    }

    /// The next byte that is not space.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// Takes a string, quotes included.
    fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        loop {
            match bytes.get(at)? {
                b'"' => break,
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        self.at = at + 1;
        self.text.get(start..self.at)
    }

    /// Takes an array or object, whatever is in it.
    fn nested(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            match self.text.as_bytes().get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Takes a value.
    fn value(&mut self) -> Option<&'a str> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        match bytes.get(start)? {
            b'"' => return self.string(),
            b'{' => match outline(&bytes[start..]) {
                Outline::Whole(length, _) => self.at = start + length,
                _ => self.nested()?,
            },
            b'[' => self.nested()?,
            _ => {
                let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']' | b'"' | b':');
                self.at += bytes[start..].iter().position(ends).filter(|length| *length > 0)?;
            }
        }
        self.text.get(start..self.at)
    }
}

impl<'a> Iterator for Entries<'a> {
    /// Key without its quotes, escapes left as they are, and value.
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        // The brace or the comma before the entry.
        let first = match self.peek()? {
            b'{' => true,
            b',' => false,
            b'}' => {
                self.at += 1;
                self.complete = self.peek().is_none();
                return None;
            }
            _ => return None,
        };
        self.at += 1;
        match self.peek()? {
            b'"' => {}
            b'}' if first => return self.next(),
            _ => return None,
        }
        let key = self.string()?;
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        self.peek()?;
        let value = self.value()?;
        Some((&key[1..key.len() - 1], value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_lent_as_they_stand() {
        let text = r#" {"a": 1 , "b\"":"x\\" ,"c":[1,"]",[{}]], "d": {"e": [{"f": "}"}]},"g":-1.5e3,"h":null}"#;
        let mut entries = Entries::of(text);
        let found: Vec<_> = entries.by_ref().collect();
        let wanted = [
            ("a", "1"),
            (r#"b\""#, r#""x\\""#),
            ("c", r#"[1,"]",[{}]]"#),
            ("d", r#"{"e": [{"f": "}"}]}"#),
            ("g", "-1.5e3"),
            ("h", "null"),
        ];
        assert_eq!(found, wanted);
        assert!(entries.complete());
        let mut none = Entries::of(" { } ");
        assert!(none.next().is_none() && none.complete());
    }

    #[test]
    fn what_is_no_object_is_not_complete() {
        for text in [
            "",
            "3",
            "[1]",
            "{",
            "{\"a\"}",
            "{\"a\": }",
            "{\"a\": 1",
            "{\"a\": 1 \"b\": 2}",
            "{\"a\": 1,}",
            "{} {}",
            "{a: 1}",
        ] {
            let mut entries = Entries::of(text);
            entries.by_ref().for_each(drop);
            assert!(!entries.complete(), "{text}");
        }
    }
}
