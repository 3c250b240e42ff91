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
    folder: PathBuf,
}

/// run.json: the version, then everything else.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    #[serde(flatten)]
    info: &'a RunInfo,
}

impl RunWriter {
    /// Starts a run in `folder`, which is made if it is not there; a run that is in it is replaced.
    ///
    /// # Errors
    /// A folder that holds anything but a run, a text that is not the one `info` names, or a system that refuses.
    pub fn create(folder: &Path, info: &RunInfo, pattern_text: &str) -> Result<Self> {
        let found = PatternInfo::new("", pattern_text).hash;
        if found != info.pattern.hash {
            let path = folder.join(PATTERN_YAML);
            return Err(Error::PatternChanged { path, expected: info.pattern.hash.clone(), found });
        }
        fs::create_dir_all(folder).map_err(Error::io(folder, "make the folder"))?;
        clear(folder)?;
        let this = Self { folder: folder.to_owned() };
        let path = folder.join(RUN_JSON);
        let mut text = serde_json::to_string_pretty(&Document { schema: RUN_SCHEMA, info })
            .map_err(|source| Error::Json { path: path.clone(), source })?;
        text.push('\n');
        whole(&path, |file| file.write_all(text.as_bytes()))?;
        whole(&folder.join(PATTERN_YAML), |file| file.write_all(pattern_text.as_bytes()))?;
        Ok(this)
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

/// Removes the parts of an older run; refuses a folder that holds other things and no run.
fn clear(folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder)
        .and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>())
        .map_err(Error::io(folder, "list the folder"))?;
    let is_run = folder.join(RUN_JSON).is_file();
    if !entries.is_empty() && !is_run {
        return Err(Error::FolderInUse { path: folder.to_owned() });
    }
    for entry in entries {
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
