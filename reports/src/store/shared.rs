//! Writes a run folder from several processes, on any machines that share a file system.
//!
//! Before anything is measured, the first process makes the folder with a mark in it ([`RunWriter::offer`]) and the others
//! look for that mark ([`RunWriter::await_offer`]): a folder of the same name on a machine's own disk would take its
//! part and lose it. After measuring the first takes away what an older run left ([`RunWriter::replace`]), each writes
//! its part, and when all have, the first writes `run.json` ([`RunWriter::finish`]). Until then the folder holds no run.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::writer::{clear, describe};
use super::{MARK, PATTERN_YAML, RUN_JSON, UNFINISHED, part_path};
use crate::{Error, Result, RunInfo, RunWriter};

impl RunWriter {
    /// As the first process: makes the folder with a mark in it, and gives the mark's path.
    ///
    /// # Errors
    /// As [`RunWriter::check`].
    pub fn offer(folder: &Path) -> Result<PathBuf> {
        Self::check(folder)?;
        // Of this launch alone: no other machine has a file of this name by accident.
        let name = RandomState::new().hash_one(SystemTime::now());
        let mark = folder.join(format!("{MARK}{name:016x}{UNFINISHED}"));
        File::create_new(&mark).map_err(Error::io(&mark, "write the file"))?;
        Ok(mark)
    }

    /// As any other process: waits until `mark` is there, for `patience` at most, since file systems of a network may
    /// show a new file late. Gives the folder that it is in.
    ///
    /// # Errors
    /// It does not come: this process has another file system.
    pub fn await_offer(mark: &Path, patience: Duration) -> Result<PathBuf> {
        /// How often it is looked for.
        const PAUSE: Duration = Duration::from_millis(100);
        let folder = mark.parent().unwrap_or(Path::new("")).to_owned();
        let deadline = Instant::now() + patience;
        while !mark.exists() {
            if Instant::now() >= deadline {
                return Err(Error::FolderUnseen { path: folder });
            }
            thread::sleep(PAUSE);
        }
        Ok(folder)
    }

    /// As the first process, once all others have seen it: takes the mark away.
    ///
    /// # Errors
    /// A system that refuses.
    pub fn withdraw(mark: &Path) -> Result<()> {
        fs::remove_file(mark).map_err(Error::io(mark, "remove the file"))
    }

    /// As the first process, before any writes its part: takes away what an older run left.
    ///
    /// # Errors
    /// A folder that holds anything but a run, or a system that refuses.
    pub fn replace(folder: &Path) -> Result<Self> {
        Self::check(folder)?;
        // From here to the end this tells a run that was killed from a folder with other things in it.
        let unfinished = folder.join(format!("{RUN_JSON}{UNFINISHED}"));
        File::create(&unfinished).map_err(Error::io(&unfinished, "write the file"))?;
        // The description goes first, so that no new part is ever taken for one of the old run.
        for old in [RUN_JSON, PATTERN_YAML].map(|name| folder.join(name)) {
            if !old.exists() {
                break;
            }
            fs::remove_file(&old).map_err(Error::io(&old, "remove what an older run left"))?;
        }
        clear(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// As any other process, after [`RunWriter::replace`]: writes a part into `folder`.
    pub fn beside(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// As the first process, when all have written their parts: makes a run of them.
    ///
    /// # Errors
    /// A part is not there, a text that is not the one `info` names, or a system that refuses.
    pub fn finish(&self, info: &RunInfo, pattern_text: &str) -> Result<()> {
        for process in 0..info.processes {
            let path = part_path(&self.folder, process);
            if !path.exists() {
                return Err(Error::PartMissing { path, process, processes: info.processes });
            }
        }
        describe(&self.folder, info, pattern_text, [PATTERN_YAML, RUN_JSON])
    }
}
