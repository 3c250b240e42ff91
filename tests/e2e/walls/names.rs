//! What Rust source names: paths, macros and keywords, each with its line. Comments and the contents of strings name
//! nothing, and neither does what is only compiled for tests.
//!
//! Text is taken apart into tokens, not searched: `use std::{fs, io}` names `std::fs` as much as `std::fs::read` does,
//! and prose about files names nothing.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Something that source names: `std::fs`, `println!`, `unsafe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Line, from 1.
    pub line: usize,
    /// The path as written, imports in braces spelt out.
    pub path: String,
}

impl Name {
    /// Whether `wanted` is a run of whole segments of the path: `std::fs` is in `std::fs::read`, `fs` in both.
    pub fn holds(&self, wanted: &str) -> bool {
        let path: Vec<&str> = self.path.split("::").collect();
        let wanted: Vec<&str> = wanted.split("::").collect();
        path.windows(wanted.len()).any(|window| window == wanted)
    }
}

/// Everything that `text` names outside of what `#[cfg(test)]` hides from the product.
pub fn names(text: &str) -> Vec<Name> {
    let mut found = Vec::new();
    walk(tokens(text), &mut found);
    found
}

/// The modules that `text` declares for tests alone (`#[cfg(test)] mod tests;`): their files are no product either.
pub fn test_modules(text: &str) -> Vec<String> {
    let mut modules = Vec::new();
    let tokens: Vec<TokenTree> = tokens(text).into_iter().collect();
    for (at, _) in tokens.iter().enumerate().filter(|(at, _)| is_for_tests(&tokens[*at..])) {
        let item = &tokens[at + 2..at + item_length(&tokens[at..])];
        if let [.., TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(_)] = item
            && word == "mod"
        {
            modules.push(name.to_string());
        }
    }
    modules
}

fn tokens(text: &str) -> TokenStream {
    text.parse().unwrap_or_else(|error| panic!("this is no Rust: {error}"))
}

fn walk(stream: TokenStream, found: &mut Vec<Name>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if is_for_tests(&tokens[at..]) {
            at += item_length(&tokens[at..]);
            continue;
        }
        match &tokens[at] {
            TokenTree::Ident(_) => at += path("", &tokens[at..], found),
            TokenTree::Group(group) => {
                walk(group.stream(), found);
                at += 1;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
        }
    }
}

/// Reads the path that `tokens` begin with, which `before` precedes; gives the number of tokens read.
fn path(before: &str, tokens: &[TokenTree], found: &mut Vec<Name>) -> usize {
    let mut path = before.to_owned();
    let mut line = 0;
    let mut at = 0;
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(word)) => {
                path.push_str(word.to_string().trim_start_matches("r#"));
                line = word.span().start().line;
            }
            Some(TokenTree::Punct(star)) if star.as_char() == '*' => {
                path.push('*');
                line = star.span().start().line;
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                branches(&path, group, found);
                return at + 1;
            }
            // A generic argument: `Vec::<u8>::new`.
            _ => {
                path.truncate(path.len().saturating_sub(2));
                break;
            }
        }
        at += 1;
        if !is_colons(&tokens[at..]) {
            break;
        }
        path.push_str("::");
        at += 2;
    }
    if is_macro(&tokens[at..]) {
        path.push('!');
        at += 1;
    }
    found.push(Name { line, path });
    at
}

/// The branches of `use before::{...}`.
fn branches(before: &str, group: &Group, found: &mut Vec<Name>) {
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    for branch in tokens.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ',')) {
        match branch {
            [] => {}
            // `self` is what precedes the braces.
            [TokenTree::Ident(word), ..] if word == "self" => {
                let path = before.trim_end_matches("::").to_owned();
                found.push(Name { line: word.span().start().line, path });
            }
            _ => {
                path(before, branch, found);
            }
        }
    }
}

fn is_colons(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(a), TokenTree::Punct(b), ..] if a.as_char() == ':' && b.as_char() == ':')
}

/// `!` before arguments, and not `!=`.
fn is_macro(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(bang), next, ..]
        if bang.as_char() == '!' && matches!(next, TokenTree::Group(_) | TokenTree::Ident(_)))
}

/// `#[cfg(test)]`, or any `cfg` that asks for `test` and negates nothing.
fn is_for_tests(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] = tokens else { return false };
    let inside: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match inside.as_slice() {
        [TokenTree::Ident(cfg), TokenTree::Group(condition)] if hash.as_char() == '#' && cfg == "cfg" => {
            let mut words = Vec::new();
            walk(condition.stream(), &mut words);
            words.iter().any(|word| word.path == "test") && !words.iter().any(|word| word.path == "not")
        }
        _ => false,
    }
}

/// Tokens of the attributes and the item that `tokens` begin with: up to its `;` or its braces.
fn item_length(tokens: &[TokenTree]) -> usize {
    let end = tokens.iter().position(|token| match token {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    });
    end.map_or(tokens.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        names(text).into_iter().map(|name| name.path).collect()
    }

    #[test]
    fn prose_and_strings_name_nothing() {
        let text = r##"
            //! std::fs
            /// println!("x")
            /* unsafe /* nested */ unsafe */
            const A: &str = "std::fs \" unsafe";
            const B: &[u8] = br#"println!("x")"#;
            const C: char = '"';
            fn d<'a>(e: &'a str) {}
        "##;
        for hidden in ["std", "fs", "unsafe", "println!"] {
            assert!(!names(text).iter().any(|name| name.holds(hidden)), "{hidden}");
        }
        assert!(names(text).iter().any(|name| name.path == "d"));
    }

    #[test]
    fn imports_in_braces_are_spelt_out() {
        let found = paths("use std::{fs, io::{self, Read}, path::Path as P}; use polars::*;");
        for wanted in ["std::fs", "std::io", "std::io::Read", "std::path::Path", "polars::*"] {
            assert!(found.iter().any(|path| path == wanted), "{wanted}: {found:?}");
        }
    }

    #[test]
    fn macros_keywords_and_lines_are_found() {
        let found = names("fn f() {\n    if a != b { std::println!(\"x\") }\n    unsafe { g() }\n}");
        let at = |path: &str| found.iter().find(|name| name.path == path).map(|name| name.line);
        assert_eq!((at("std::println!"), at("unsafe"), at("a"), at("a!")), (Some(2), Some(3), Some(2), None));
        assert!(names("let v = Vec::<u8>::new();").iter().any(|name| name.path == "Vec"));
    }

    #[test]
    fn a_name_holds_runs_of_whole_segments() {
        let name = Name { line: 1, path: "std::fs::write".into() };
        assert!(name.holds("std::fs") && name.holds("fs::write") && name.holds("write"));
        assert!(!name.holds("std::f") && !name.holds("std::write") && !name.holds("a::std::fs::write"));
    }

    #[test]
    fn what_is_only_for_tests_names_nothing() {
        let text = "#[cfg(test)]\nuse std::fs;\n#[cfg(test)]\nmod tests { fn f() { std::process::exit(1) } }\n\
                    fn g() {}\n#[cfg(all(test, unix))]\nmod more;\n#[cfg(not(test))]\nuse std::net;";
        let found = paths(text);
        assert!(!found.iter().any(|path| path.contains("fs") || path.contains("exit")), "{found:?}");
        assert!(found.contains(&"g".into()) && found.contains(&"std::net".into()), "{found:?}");
    }

    #[test]
    fn modules_for_tests_are_known_by_name() {
        let text =
            "mod a;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\npub(crate) mod tests_real;\n#[cfg(test)]\nmod b {}\n";
        assert_eq!(test_modules(text), ["tests", "tests_real"]);
    }
}
