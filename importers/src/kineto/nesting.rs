//! Where a value ends, whatever it is, found piece by piece, so that none of it need be kept.
//!
//! For what stands beside the events, which is short, strange and not to be trusted: [`super::outline`] is ten times
//! faster, and knows only objects that are there as a whole.

/// How deep in a value the text is; fed piece by piece.
#[derive(Default)]
pub(super) struct Nesting {
    depth: u32,
    quoted: bool,
    escaped: bool,
    /// The value is a bare number or word.
    pub(super) scalar: bool,
    /// Whether it looks for what no JSON can have.
    wary: bool,
    /// A bit a level, the innermost last: whether it is an array.
    arrays: u64,
    /// The last byte outside of strings that was no space.
    last: u8,
    /// What no JSON can have, and where in the piece.
    pub(super) damage: Option<(usize, &'static str)>,
}

impl Nesting {
    /// Before a value; whether to look for what no JSON can have.
    pub(super) fn watched(wary: bool) -> Self {
        Self { wary, ..Self::default() }
    }

    /// Goes through `text`; the number of its bytes up to the end of the value, if that is in it.
    pub(super) fn feed(&mut self, text: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if self.quoted {
                if self.escaped {
                    text.get(at)?;
                    at += 1;
                    self.escaped = false;
                }
                at += text[at..].iter().position(|byte| matches!(byte, b'"' | b'\\') || *byte < b' ' && self.wary)?;
                match text[at] {
                    b'\\' => self.escaped = true,
                    b'"' => self.quoted = false,
                    _ => return self.damaged(at, "a control character inside a string"),
                }
                at += 1;
                if !self.quoted && self.depth == 0 {
                    return Some(at);
                }
            } else if self.depth > 0 {
                let start = at;
                at += text[at..].iter().position(|byte| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']' | b':'))?;
                if let Some(last) = text[start..at].iter().rev().find(|byte| !byte.is_ascii_whitespace()) {
                    self.last = *last;
                }
                match text[at] {
                    b'"' if self.wary && !matches!(self.last, b'{' | b'[' | b',' | b':') => {
                        return self.damaged(at, "a string where none can be");
                    }
                    b'"' => self.quoted = true,
                    b':' if self.wary && self.arrays & 1 != 0 => return self.damaged(at, "a colon inside a list"),
                    b':' => {}
                    open @ (b'{' | b'[') => {
                        self.depth += 1;
                        self.arrays = self.arrays << 1 | u64::from(open == b'[');
                    }
                    _ => {
                        self.depth -= 1;
                        self.arrays >>= 1;
                    }
                }
                self.last = text[at];
                at += 1;
                if self.depth == 0 {
                    return Some(at);
                }
            } else if self.scalar {
                let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b':' | b']' | b'}');
                return text[at..].iter().position(ends).map(|end| at + end);
            } else {
                match text.get(at)? {
                    b'"' => self.quoted = true,
                    open @ (b'{' | b'[') => {
                        self.depth = 1;
                        self.arrays = u64::from(*open == b'[');
                        self.last = *open;
                    }
                    _ => self.scalar = true,
                }
                at += 1;
            }
        }
    }

    fn damaged(&mut self, at: usize, problem: &'static str) -> Option<usize> {
        self.damage = Some((at, problem));
        None
    }
}
