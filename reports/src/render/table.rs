//! Aligned columns for a terminal, the notes below.

use super::at_right;
use crate::View;

/// Characters a line of notes.
const WIDTH: usize = 120;

/// The table, two spaces between columns, a bar where the view has one.
pub(super) fn render(view: &View) -> String {
    let headings: Vec<String> = view.shown.iter().map(|shown| shown.heading.to_owned()).collect();
    let mut lines = vec![headings];
    lines.extend((0..view.rows.len()).map(|row| view.shown.iter().map(|shown| view.cell(row, shown)).collect()));
    let widths: Vec<usize> = (0..view.shown.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();

    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for ((cell, shown), width) in line.iter().zip(&view.shown).zip(&widths) {
            if !row.is_empty() {
                row.push_str(if shown.bar { " | " } else { "  " });
            }
            row += &if at_right(shown) { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
        }
        text += row.trim_end();
        text.push('\n');
    }
    if !view.notes.is_empty() {
        text.push('\n');
    }
    for note in &view.notes {
        wrap(note, &mut text);
    }
    text
}

/// Appends `note` in lines of at most [`WIDTH`] characters, broken between words; further ones are indented.
fn wrap(note: &str, text: &mut String) {
    let mut used = 0;
    for word in note.split_whitespace() {
        let width = word.chars().count();
        if used > 0 && used + 1 + width > WIDTH {
            text.push_str("\n  ");
            used = 2;
        } else if used > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += width;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_break_between_words() {
        let mut text = String::new();
        wrap(&format!("{} {} {}", "a".repeat(60), "b".repeat(59), "c".repeat(130)), &mut text);
        assert_eq!(text, format!("{} {}\n  {}\n", "a".repeat(60), "b".repeat(59), "c".repeat(130)));
    }
}
