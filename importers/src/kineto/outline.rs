//! Where an object ends, found 64 bytes at a time, and what in it gives reason to look closer.
//!
//! It is no judge of JSON: it knows strings, braces and the balance of brackets, and marks what it cannot vouch for. A
//! text without a mark is as a profiler writes it; any other is for serde_json to judge and for [`super::repair`] to
//! mend. That is what makes rows that nobody needs cheap to pass over, without trusting damaged ones.

use wide::u8x16;

/// Bytes that are looked at together, a bit each.
const LANES: usize = 64;

/// Why a text needs a closer look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Doubt {
    /// Its content may break the grammar: a bare word (`inf` as well as `true`), a backslash, bytes beyond ASCII.
    pub(super) content: bool,
    /// Its quotes or braces cannot be right, so that it may end elsewhere.
    pub(super) structure: bool,
}

/// What is known of an object from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outline {
    /// It is so many bytes long.
    Whole(usize, Doubt),
    /// The text ends first.
    Unfinished,
    /// Its structure is damaged; where it ends has to be found by other means.
    Damaged,
}

/// Which of 64 bytes are of which kind.
#[derive(Clone, Copy, Default)]
struct Masks {
    quote: u64,
    backslash: u64,
    open: u64,
    close: u64,
    square_open: u64,
    square_close: u64,
    /// Below space.
    control: u64,
    /// What may stand before a string: space, `,`, `:`, `{`, `[`.
    lead: u64,
    letter: u64,
    /// Beyond ASCII.
    high: u64,
}

/// The outline of the object that begins `text`, a `{`.
pub(super) fn outline(text: &[u8]) -> Outline {
    let (mut at, mut depth) = (0, 0usize);
    // Carried from one 64 bytes to the next.
    let (mut inside, mut escaped, mut led) = (0u64, 0u64, 1u64);
    let (mut squares, mut content) = (0i64, false);
    while at < text.len() {
        let length = (text.len() - at).min(LANES);
        let masks = if let Some(whole) = text[at..].first_chunk() {
            masks(whole)
        } else {
            let mut padded = [b' '; LANES];
            padded[..length].copy_from_slice(&text[at..]);
            masks(&padded)
        };
        let quote = masks.quote & !escapes(masks.backslash, &mut escaped);
        // All bytes from an opening quote to the one before its closing quote.
        let within = parity(quote) ^ inside;
        inside = ((within as i64) >> 63) as u64;
        let unled = quote & within & !(masks.lead << 1 | led);
        led = masks.lead >> 63;
        let mut broken = unled | (masks.control & within);
        let bare = masks.letter & !within;
        let (mut braces, opening) = ((masks.open | masks.close) & !within, masks.open);
        let (opens, closes) = (masks.square_open & !within, masks.square_close & !within);
        while braces != 0 {
            let bit = braces & braces.wrapping_neg();
            let index = bit.trailing_zeros() as usize;
            braces ^= bit;
            if opening & bit != 0 {
                depth += 1;
                if depth > 1 && (begins_event(text, at + index) || begins_document(text, at + index)) {
                    broken |= bit;
                }
                continue;
            }
            // The text begins with an opening brace, so there is one to close.
            depth = depth.saturating_sub(1);
            if depth == 0 {
                let before = bit - 1;
                squares += i64::from((opens & before).count_ones()) - i64::from((closes & before).count_ones());
                if broken & before != 0 || squares != 0 {
                    return Outline::Damaged;
                }
                content |= (bare | masks.backslash | masks.high) & before != 0;
                return Outline::Whole(at + index + 1, Doubt { content, structure: false });
            }
        }
        if broken != 0 {
            return Outline::Damaged;
        }
        squares += i64::from(opens.count_ones()) - i64::from(closes.count_ones());
        content |= bare | masks.backslash | masks.high != 0;
        at += length;
    }
    Outline::Unfinished
}

/// The keys that rows of a trace begin with.
const FIRST_KEYS: [&[u8]; 10] = [b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"id", b"args", b"s"];

/// The keys of a document, by which it is told from a row, and the end of the rows from the end of a list.
pub(super) const TOP_KEYS: [&[u8]; 18] = [
    b"schemaVersion",
    b"traceEvents",
    b"deviceProperties",
    b"distributedInfo",
    b"traceName",
    b"displayTimeUnit",
    b"baseTimeNanoseconds",
    b"trace_id",
    b"record_shapes",
    b"with_stack",
    b"with_flops",
    b"with_modules",
    b"profile_memory",
    b"cuda_runtime_version",
    b"cuda_driver_version",
    b"cupti_version",
    b"hip_runtime_version",
    b"hip_driver_version",
];

/// Whether the `{` at `at` looks like the beginning of a row of the trace: behind a comma, or behind a row whose comma
/// is lost, and with a key of a row. The arguments of a row follow a colon instead.
pub(super) fn begins_event(text: &[u8], at: usize) -> bool {
    let before = text[..at].iter().rev().find(|byte| !byte.is_ascii_whitespace());
    !matches!(before, Some(b':' | b'[')) && key_after(text, at + 1).is_some_and(|key| FIRST_KEYS.contains(&key))
}

/// Whether the `{` at `at` looks like the beginning of a document of its own.
pub(super) fn begins_document(text: &[u8], at: usize) -> bool {
    let before = text[..at].iter().rev().find(|byte| !byte.is_ascii_whitespace());
    before != Some(&b':') && key_after(text, at + 1).is_some_and(|key| TOP_KEYS.contains(&key))
}

/// The key in quotes, with a colon behind it, that follows `at` and perhaps space.
pub(super) fn key_after(text: &[u8], at: usize) -> Option<&[u8]> {
    /// No key of a trace is as long.
    const LONGEST: usize = 64;
    let rest = text.get(at..)?.trim_ascii_start().strip_prefix(b"\"")?;
    let length = rest.iter().take(LONGEST).position(|byte| matches!(byte, b'"' | b'\\' | b'\n'))?;
    let (key, behind) = rest.split_at(length);
    behind.strip_prefix(b"\"")?.trim_ascii_start().starts_with(b":").then_some(key)
}

/// The bytes that a backslash before them takes their meaning from; `carry` is one into the first of the next 64.
fn escapes(mut backslash: u64, carry: &mut u64) -> u64 {
    let mut escaped = *carry;
    *carry = 0;
    // A backslash that is itself escaped escapes nothing.
    backslash &= !escaped;
    while backslash != 0 {
        let bit = backslash & backslash.wrapping_neg();
        if bit >> 63 != 0 {
            *carry = 1;
        }
        escaped |= bit << 1;
        backslash &= !(bit | bit << 1);
    }
    escaped
}

/// Each bit the parity of the bits up to and with it.
fn parity(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// Looks at sixteen bytes at a time, as many as every processor of interest compares in one instruction.
#[inline]
fn masks(bytes: &[u8; LANES]) -> Masks {
    let mut masks = Masks::default();
    for (part, bytes) in bytes.as_chunks::<16>().0.iter().enumerate() {
        let text = u8x16::new(*bytes);
        let bits = |mask: u8x16| u64::from(mask.to_bitmask() as u16) << (16 * part);
        let same = |text: u8x16, byte: u8| text.simd_eq(u8x16::splat(byte));
        let upto = |text: u8x16, most: u8| text.min(u8x16::splat(most)).simd_eq(text);
        // Letters in lower case, and square brackets as braces.
        let lower = text | u8x16::splat(0x20);
        masks.quote |= bits(same(text, b'"'));
        masks.backslash |= bits(same(text, b'\\'));
        masks.open |= bits(same(text, b'{'));
        masks.close |= bits(same(text, b'}'));
        masks.square_open |= bits(same(text, b'['));
        masks.square_close |= bits(same(text, b']'));
        masks.control |= bits(upto(text, 0x1f));
        masks.lead |= bits(same(lower, b'{') | same(text, b',') | same(text, b':') | upto(text, b' '));
        masks.letter |= bits(upto(lower - u8x16::splat(b'a'), b'z' - b'a'));
        masks.high |= bits(text);
    }
    masks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Option<(&str, bool)> {
        match outline(text.as_bytes()) {
            Outline::Whole(length, doubt) => Some((&text[..length], doubt.content)),
            _ => None,
        }
    }

    #[test]
    fn every_byte_is_of_its_kinds() {
        for start in (0..=255).step_by(32) {
            let bytes: [u8; LANES] = std::array::from_fn(|index| (start + index) as u8);
            let masks = masks(&bytes);
            let check = |found: u64, is: fn(u8) -> bool| {
                let wanted = bytes.iter().rev().fold(0, |bits, byte| bits << 1 | u64::from(is(*byte)));
                assert_eq!(found, wanted, "bytes from {start}");
            };
            check(masks.quote, |byte| byte == b'"');
            check(masks.backslash, |byte| byte == b'\\');
            check(masks.open, |byte| byte == b'{');
            check(masks.close, |byte| byte == b'}');
            check(masks.square_open, |byte| byte == b'[');
            check(masks.square_close, |byte| byte == b']');
            check(masks.control, |byte| byte < b' ');
            check(masks.lead, |byte| byte <= b' ' || matches!(byte, b',' | b':' | b'{' | b'['));
            check(masks.letter, |byte| byte.is_ascii_alphabetic());
            check(masks.high, |byte| byte >= 0x80);
        }
    }

    #[test]
    fn objects_end_where_their_brace_does_at_any_place() {
        let object = r#"{"name": "a } { \" [", "args": {"x": [[1, 2], []], "y": {}}}"#;
        for pad in 0..130 {
            let padded = format!("{{\"p\": \"{}\", \"o\": {object}}} , {{", "x".repeat(pad));
            let (found, content) = whole(&padded).unwrap();
            assert!(found.ends_with("}}}") && found.len() == padded.len() - 4 && content, "{found}");
            for length in 1..found.len() {
                assert_eq!(outline(&found.as_bytes()[..length]), Outline::Unfinished, "{length}");
            }
        }
        assert_eq!(whole("{}x"), Some(("{}", false)));
    }

    #[test]
    fn escapes_reach_across_the_seams() {
        for pad in 40..140 {
            for count in 1..5 {
                let text = format!(r#"{{"{}{}""#, "x".repeat(pad), r"\".repeat(count))
                    + if count % 2 == 1 { "\"}" } else { "}" };
                assert_eq!(whole(&text).map(|(found, _)| found), Some(text.as_str()), "{pad} {count}");
            }
        }
    }

    #[test]
    fn what_needs_a_closer_look_is_marked() {
        for (text, content) in [
            (r#"{"a": 1.5, "b": [2]}"#, false),
            (r#"{"a": inf}"#, true),
            (r#"{"a": nan}"#, true),
            (r#"{"a": true}"#, true),
            (r#"{"a": "C:\\x"}"#, true),
            ("{\"a\": \"µ\"}", true),
        ] {
            assert_eq!(whole(text), Some((text, content)));
        }
    }

    #[test]
    fn impossible_structure_is_damage() {
        for text in [
            r#"{"name": "foo("bar")baz", "ts": 1}"#,
            "{\"name\": \"a\nb\", \"ts\": 1}",
            r#"{"name": "a"b", "ts": 1}, {"ph": "X"}"#,
            r#"{"args": {"a": 1}, {"ph": "X"}, {"ph": "X"}]}"#,
            r#"{"args": [1}"#,
        ] {
            assert_eq!(outline(text.as_bytes()), Outline::Damaged, "{text}");
        }
    }
}
