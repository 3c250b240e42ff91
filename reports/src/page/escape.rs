//! The only two ways by which text that others wrote gets into the page.

use serde::Serialize;

/// Text as content of an element or of an attribute in quotes.
pub(super) fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c => escaped.push(visible(c)),
        }
    }
    escaped
}

/// A value as JSON inside a script element: no `<` that could end the element or open a comment, and none of the line
/// separators that JavaScript counts as line ends. In JSON these characters can stand inside strings only.
pub(super) fn json(value: &impl Serialize) -> String {
    // Writing plain data to memory cannot fail.
    let text = serde_json::to_string(value).expect("the data of a page serializes");
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match visible(c) {
            c @ ('<' | '>' | '&' | '\u{2028}' | '\u{2029}') => escaped += &format!("\\u{:04x}", u32::from(c)),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Marks that turn the direction of text around can make a name look like another; control characters are no text.
/// Both become the replacement character.
fn visible(c: char) -> char {
    match c {
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => char::REPLACEMENT_CHARACTER,
        '\n' | '\t' => c,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(html("<a href='x' b=\"y\">&</a>"), "&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;&lt;/a&gt;");
        assert_eq!(html("gather_layer µs"), "gather_layer µs");
        assert_eq!(html("a\u{202e}b\0c"), "a\u{fffd}b\u{fffd}c");
    }

    #[test]
    fn json_cannot_end_its_element() {
        let hostile = "</script><!--<script>&\u{2028}\"\\\u{202e}";
        let text = json(&[hostile]);
        assert!(!text.contains(['<', '>', '&', '\u{2028}', '\u{202e}']), "{text}");
        let back: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(back, ["</script><!--<script>&\u{2028}\"\\\u{fffd}"]);
    }
}
