//! Standard output, and the units in which people read numbers.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, bail};

/// Writes `text` to standard output.
///
/// # Errors
/// Standard output does not take it: it is closed, or the disk behind it is full.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context(NOT_TAKEN)
}

const NOT_TAKEN: &str = "standard output does not take the result";

/// Writes one JSON document to standard output.
///
/// # Errors
/// As [`print()`].
pub fn json(document: &serde_json::Value) -> anyhow::Result<()> {
    print(&pretty(document))
}

/// A JSON document as text.
pub fn pretty(document: &serde_json::Value) -> String {
    format!("{document:#}\n")
}

/// Writes `text` to a file, or without one (or with `-`) to standard output.
///
/// # Errors
/// As [`print()`], or the file cannot be written.
pub fn text(file: Option<&Path>, text: &str) -> anyhow::Result<()> {
    match named(file) {
        Some(path) => write(path, text.as_bytes(), "-o"),
        None => print(text),
    }
}

/// Writes a page to a file and says so, or without one to standard output and nothing else.
///
/// # Errors
/// As [`text()`].
#[cfg(feature = "tables")]
pub fn page(file: Option<&Path>, html: &str) -> anyhow::Result<()> {
    text(file, html)?;
    named(file).map_or(Ok(()), |path| print(&format!("Page written to {}; open it in a browser\n", path.display())))
}

/// Writes a timeline to a file and says so, or without one to standard output and nothing else.
///
/// # Errors
/// As [`text()`], or standard output is a terminal, which bytes that are no text would only confuse.
pub fn timeline(file: Option<&Path>, bytes: &[u8]) -> anyhow::Result<()> {
    if let Some(path) = named(file) {
        write(path, bytes, "-o")?;
        return print(&format!("Timeline written to {}; open it in https://ui.perfetto.dev\n", path.display()));
    }
    not_to_a_terminal(bytes, "a timeline is no text: name a file with -o, as -o timeline.pftrace")
}

/// Writes a file that is no text, or without a name its bytes to standard output.
///
/// # Errors
/// As [`timeline()`].
#[cfg(feature = "tables")]
pub fn binary(file: Option<&Path>, bytes: &[u8]) -> anyhow::Result<()> {
    match named(file) {
        Some(path) => write(path, bytes, "-o"),
        None => not_to_a_terminal(bytes, "this format is no text: name a file with -o"),
    }
}

/// Writes bytes to standard output, unless that is a terminal, which they would only confuse.
fn not_to_a_terminal(bytes: &[u8], instead: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        bail!("standard output is a terminal, and {instead}");
    }
    out.write_all(bytes).and_then(|()| out.flush()).context(NOT_TAKEN)
}

fn named(file: Option<&Path>) -> Option<&Path> {
    file.filter(|path| *path != Path::new("-"))
}

/// Writes a file that `option` named.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, bytes: &[u8], option: &str) -> anyhow::Result<()> {
    std::fs::write(path, bytes)
        .with_context(|| format!("{}: the file cannot be written; choose another with {option}", path.display()))
}

/// Nanoseconds as microseconds, for JSON.
#[cfg(feature = "import")]
pub fn us(ns: i64) -> f64 {
    ns as f64 / 1e3
}

/// Nanoseconds as milliseconds with three decimals.
pub fn ms(ns: i64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

/// `1 rank`, `2 ranks`.
pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The beginning of a text that is longer than `most` characters: kernels have names of a thousand.
#[cfg(feature = "import")]
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Bytes with a binary unit and one decimal: `384.1 MiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A table in columns; cells that look like numbers go to the right.
pub fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..head.len())
        .map(|c| rows.iter().map(|row| row[c].chars().count()).chain([head[c].chars().count()]).max().unwrap_or(0))
        .collect();
    let right: Vec<bool> = (0..head.len())
        .map(|c| rows.iter().all(|row| row[c].starts_with(|c: char| c.is_ascii_digit() || c == '-')))
        .collect();
    let line = |cells: Vec<&str>| {
        let mut line = String::from(" ");
        for (c, cell) in cells.into_iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            line += &if right[c] { format!(" {pad}{cell} ") } else { format!(" {cell}{pad} ") };
        }
        format!("{}\n", line.trim_end())
    };
    let mut text = line(head.to_vec());
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}
