//! A pipe table as GitHub draws it, the notes as a list below.

use super::at_right;
use crate::View;

/// The table; a view's bars are not drawn, since every column has one.
pub(super) fn render(view: &View) -> String {
    let mut text = line(view.shown.iter().map(|shown| shown.heading.to_owned()));
    text += &line(view.shown.iter().map(|shown| if at_right(shown) { "---:" } else { ":---" }.to_owned()));
    for row in 0..view.rows.len() {
        text += &line(view.shown.iter().map(|shown| escape(&view.cell(row, shown))));
    }
    if !view.notes.is_empty() {
        text.push('\n');
    }
    for note in &view.notes {
        text += &format!("- {}\n", escape(note));
    }
    text
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let mut line = String::from("|");
    for cell in cells {
        line += &format!(" {cell} |");
    }
    line.push('\n');
    line
}

/// Names may hold what Markdown takes for its own: a pipe ends the cell, a star starts emphasis, `<` a tag. An
/// underscore inside a word is safe.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '|' | '*' | '<' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
