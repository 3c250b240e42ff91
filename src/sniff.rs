//! What a path is: a pattern, a run folder or a capture. Decided by content.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use maestro_pattern::Pattern;

/// As much of a file as tells what it is.
const HEAD_BYTES: u64 = 4096;

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pattern,
    Run,
    Capture,
}

/// Looks at what `path` leads to. What is neither a run nor a pattern is taken for a capture, whose importers then say
/// what is wrong with it.
pub fn kind(path: &Path) -> Kind {
    if path.is_dir() {
        return if path.join("run.json").is_file() { Kind::Run } else { Kind::Capture };
    }
    let yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
    let mut head = Vec::new();
    // What cannot be read here is said by whoever reads it next.
    let _ = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    let text = String::from_utf8_lossy(&head);
    let says_so = text.lines().any(|line| line.starts_with("maestro:"));
    if yaml || says_so { Kind::Pattern } else { Kind::Capture }
}

/// Reads a pattern file; gives its text, too.
///
/// # Errors
/// The file cannot be read, or is no right pattern: with file, line, column and what would help.
pub fn pattern(path: &Path) -> anyhow::Result<(Pattern, String)> {
    let bytes = std::fs::read(path).with_context(|| format!("{}: the pattern cannot be read", path.display()))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        anyhow::anyhow!("{}: byte {byte}: this is no text; a pattern is a YAML file in UTF-8", path.display())
    })?;
    let pattern = Pattern::from_yaml(&text).with_context(|| path.display().to_string())?;
    Ok((pattern, text))
}
