//! Run folders as people name them: one by one, or by the folder that holds them.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// The run folders that `paths` are or hold, in the order of the paths; those of one folder by their names, a-2 before
/// a-10. What holds none stands for itself, so that opening it says what is wrong.
///
/// # Errors
/// A folder that cannot be listed.
pub fn runs(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let is_run = |path: &Path| path.join("run.json").is_file();
    let mut all = Vec::new();
    for path in paths {
        let mut inside: Vec<PathBuf> = Vec::new();
        if path.is_dir() && !is_run(path) {
            let entries = std::fs::read_dir(path)
                .with_context(|| format!("{}: the folder cannot be listed; check its permissions", path.display()))?;
            inside.extend(entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| is_run(path)));
            inside.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        }
        if inside.is_empty() {
            inside.push(path.clone());
        }
        all.extend(inside);
    }
    Ok(all)
}
