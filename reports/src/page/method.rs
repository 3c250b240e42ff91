//! How the numbers came to be: the lines below the tables, and the commands.

use std::collections::HashSet;

use super::PageOptions;
use super::escape::html;
use super::sources::Source;
use crate::View;
use crate::diff::Diff;

/// The notes of all tables, each once, then the commands, then where the runs were made.
pub(super) fn section(
    sources: &[Source<'_>],
    views: &[(&str, &str, View)],
    diff: Option<&Diff>,
    options: &PageOptions,
) -> String {
    let list = |notes: Vec<&String>| -> String {
        let items: Vec<String> = notes.into_iter().map(|note| format!("<li>{}</li>\n", html(note))).collect();
        format!("<ul>\n{}</ul>\n", items.concat())
    };
    // What every table says is said of the runs.
    let (of_runs, of_tables) = views.split_first().map_or((Vec::new(), views), |((.., first), others)| {
        let common = |note: &&String| others.iter().all(|(.., view)| view.notes.contains(note));
        (first.notes.iter().filter(common).collect(), views)
    });
    let mut said: HashSet<&String> = of_runs.iter().copied().collect();
    let mut text = list(of_runs);
    text += "<dl class=\"tables\">\n";
    if let Some(diff) = diff {
        text += &format!("<dt>Verdicts</dt><dd>{}</dd>\n", list(diff.view().notes.iter().collect()));
    }
    for (name, _, view) in of_tables {
        let notes: Vec<&String> = view.notes.iter().filter(|note| said.insert(note)).collect();
        if !notes.is_empty() {
            text += &format!("<dt>Table <code>{}</code></dt><dd>{}</dd>\n", html(name), list(notes));
        }
    }
    text += "</dl>\n<h3>Commands</h3>\n<dl class=\"commands\">\n";
    for source in sources {
        let command = &source.run.info.environment.command;
        let command = if command.is_empty() {
            "<dd>not recorded in its run folder</dd>".to_owned()
        } else {
            format!("<dd><code>{}</code></dd>", html(&shell(command)))
        };
        text += &format!("<dt>{}</dt>{command}\n", html(&source.label));
    }
    if !options.command.is_empty() {
        text += &format!("<dt>this page</dt><dd><code>{}</code></dd>\n", html(&shell(&options.command)));
    }
    text += "</dl>\n<h3>Where the runs were made</h3>\n<dl class=\"facts\">\n";
    for source in sources {
        text += &format!("<dt>{}</dt><dd>{}</dd>\n", html(&source.label), html(&place(source)));
    }
    text + "</dl>\n"
}

/// Versions, machine and variables of a run, in one line.
fn place(source: &Source<'_>) -> String {
    let info = &source.run.info;
    let environment = &info.environment;
    let mut facts = vec![format!("maestro {}", info.maestro), format!("pattern {}", info.pattern.hash)];
    facts.extend(environment.libraries.iter().map(|(name, version)| format!("{name} {version}")));
    facts.extend(environment.gpus.iter().map(|gpu| format!("GPU {gpu}")));
    facts.extend(environment.cpu.iter().map(|cpu| format!("{cpu}, {} cores", environment.cores)));
    facts.extend(environment.hosts.iter().map(|hosts| format!("{hosts} hosts")));
    facts.extend(environment.launcher.iter().map(|launcher| format!("started by {launcher}")));
    facts.extend(environment.variables.iter().map(|(name, value)| format!("{name}={value}")));
    facts.join(" · ")
}

/// A command line as a shell takes it.
pub(super) fn shell(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    let quoted: Vec<String> = words
        .iter()
        .map(|word| {
            if !word.is_empty() && word.chars().all(plain) {
                word.clone()
            } else {
                format!("'{}'", word.replace('\'', "'\\''"))
            }
        })
        .collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        let words = ["maestro", "import", "a b", "it's", "", "rank*.json"].map(String::from);
        assert_eq!(shell(&words), "maestro import 'a b' 'it'\\''s' '' 'rank*.json'");
    }
}
