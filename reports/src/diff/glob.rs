//! Names with `*` for any text.

/// Whether `name` is what `pattern` describes, in which `*` stands for any text and everything else for itself.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(last) = parts.next_back() else { return pattern == name };
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    // The first place is as good as any: what comes after it can only have more room.
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, name) in [("a", "a"), ("*", ""), ("*", "äb"), ("a*", "abc"), ("*c", "abc"), ("a*b*c", "a_b_b_c")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "ab"), ("a*", "ba"), ("*c", "cb"), ("a*b", "ab_"), ("", "a")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
