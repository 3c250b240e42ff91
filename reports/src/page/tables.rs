//! Views as HTML tables: the same columns and cells as in a terminal, with what sorting needs.

use super::escape::html;
use crate::render::at_right;
use crate::{Value, View};

/// A table in a box that scrolls sideways where the screen is narrow. Each heading is a button that sorts; each number
/// has its raw value beside the rounded text, and sorting goes by that. `caption` is said by screen readers.
pub(super) fn table(view: &View, caption: &str) -> String {
    let mut text = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table class=\"sortable\">\
         <caption class=\"hidden\">{0}</caption>\n<thead><tr>",
        html(caption)
    );
    for shown in &view.shown {
        let class = class(at_right(shown), shown.bar);
        text += &format!("<th scope=\"col\"{class}><button type=\"button\">{}</button></th>", html(shown.heading));
    }
    text += "</tr></thead>\n<tbody>\n";
    for row in 0..view.rows.len() {
        // Rows of several runs: the name stands out once. Sorting takes the class away.
        let first = |row: usize| view.shown.first().map(|shown| view.value(row, shown.key));
        text += if row > 0 && first(row) == first(row - 1) { "<tr class=\"same\">" } else { "<tr>" };
        for (n, shown) in view.shown.iter().enumerate() {
            let raw = match view.value(row, shown.key) {
                Value::Missing => String::new(),
                Value::Text(name) => html(name),
                Value::Integer(value) => value.to_string(),
                Value::Real(value) => value.to_string(),
            };
            let cell = html(&view.cell(row, shown));
            let class = class(at_right(shown), shown.bar);
            // The first column says what the row is about.
            let tag = if n == 0 { "th scope=\"row\"" } else { "td" };
            text += &format!("<{tag}{class} data-v=\"{raw}\">{cell}</{}>", &tag[..2]);
        }
        text += "</tr>\n";
    }
    text + "</tbody></table></div>\n"
}

fn class(right: bool, bar: bool) -> &'static str {
    match (right, bar) {
        (true, true) => " class=\"num bar\"",
        (true, false) => " class=\"num\"",
        (false, true) => " class=\"bar\"",
        (false, false) => "",
    }
}
