//! Writes a run folder.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use maestro_pattern::Measurement;
use serde::Serialize;

use super::{PATTERN_YAML, RUN_JSON, UNFINISHED, encode, is_part, part_path};
use crate::{Error, PatternInfo, RUN_SCHEMA, Result, RunInfo};

/// A run folder that is being written.
#[derive(Debug)]
pub struct RunWriter {
    pub(super) folder: PathBuf,
}

/// run.json: the version, then everything else.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    #[serde(flatten)]
    info: &'a RunInfo,
}

impl RunWriter {
    /// Whether a run can be written to `folder`, asked before one is made that would be lost.
    ///
    /// # Errors
    /// As [`RunWriter::create`], which does what this only looks at.
    pub fn check(folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).map_err(Error::io(folder, "make the folder"))?;
        runs_only(folder).map(|_| ())
    }

    /// Starts a run in `folder`, which is made if it is not there; a run that is in it is replaced.
    ///
    /// # Errors
    /// A folder that holds anything but a run, a text that is not the one `info` names, or a system that refuses.
    pub fn create(folder: &Path, info: &RunInfo, pattern_text: &str) -> Result<Self> {
        fits(folder, info, pattern_text)?;
        fs::create_dir_all(folder).map_err(Error::io(folder, "make the folder"))?;
        clear(folder)?;
        describe(folder, info, pattern_text, [RUN_JSON, PATTERN_YAML])?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Writes what a process measured, once everything is measured.
    ///
    /// # Errors
    /// A system that refuses.
    pub fn write_part(&self, process: u32, measurements: &[Measurement]) -> Result<()> {
        whole(&part_path(&self.folder, process), |file| {
            encode::write(file, measurements).map_err(std::io::Error::other)
        })
    }
}

/// Refuses a text that is not the one `info` names.
fn fits(folder: &Path, info: &RunInfo, pattern_text: &str) -> Result<()> {
    let found = PatternInfo::new("", pattern_text).hash;
    if found == info.pattern.hash {
        return Ok(());
    }
    Err(Error::PatternChanged { path: folder.join(PATTERN_YAML), expected: info.pattern.hash.clone(), found })
}

/// Writes what says how a run came to be and what it ran, in this order.
pub(super) fn describe(folder: &Path, info: &RunInfo, pattern_text: &str, order: [&str; 2]) -> Result<()> {
    fits(folder, info, pattern_text)?;
    let path = folder.join(RUN_JSON);
    let mut text = serde_json::to_string_pretty(&Document { schema: RUN_SCHEMA, info })
        .map_err(|source| Error::Json { path, source })?;
    text.push('\n');
    for name in order {
        let content = if name == RUN_JSON { &text } else { pattern_text };
        whole(&folder.join(name), |file| file.write_all(content.as_bytes()))?;
    }
    Ok(())
}

/// What is in a folder; refuses one that holds other things and no run. A run that was killed while it was written may
/// have left nothing but unfinished files.
fn runs_only(folder: &Path) -> Result<Vec<fs::DirEntry>> {
    let entries = fs::read_dir(folder)
        .and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>())
        .map_err(Error::io(folder, "list the folder"))?;
    let ours = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name == RUN_JSON || name.ends_with(UNFINISHED))
    };
    if !entries.is_empty() && !entries.iter().any(ours) {
        return Err(Error::FolderInUse { path: folder.to_owned() });
    }
    Ok(entries)
}

/// Removes the parts of an older run.
pub(super) fn clear(folder: &Path) -> Result<()> {
    for entry in runs_only(folder)? {
        if entry.file_name().to_str().is_some_and(is_part) {
            fs::remove_file(entry.path()).map_err(Error::io(&entry.path(), "remove the part of an older run"))?;
        }
    }
    Ok(())
}

/// Writes a file under a temporary name and gives it its own when all of it is on disk.
fn whole(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let result = File::create(&unfinished).and_then(|file| {
        let mut buffered = BufWriter::new(file);
        write(&mut buffered)?;
        buffered.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&unfinished, path)
    });
    result.map_err(Error::io(path, "write the file"))
}
