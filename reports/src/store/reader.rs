//! Reads a run folder.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use maestro_pattern::Pattern;
use serde::Deserialize;

use super::decode::Fault;
use super::{PATTERN_YAML, RUN_JSON, decode, part_path};
use crate::{Columns, Error, PatternInfo, RUN_SCHEMA, Result, Run, RunInfo};

/// The one key of run.json that every version has.
#[derive(Deserialize)]
struct Head {
    schema: u64,
}

impl Run {
    /// Reads the run in `folder`.
    ///
    /// # Errors
    /// A folder that is not there or holds no run, a run.json that is malformed or of another version, a pattern that
    /// cannot be read or is not the one that ran, a part that is missing, damaged, or contradicts the pattern.
    pub fn open(folder: &Path) -> Result<Self> {
        if !folder.exists() {
            return Err(Error::FolderMissing { path: folder.to_owned() });
        }
        let info = info(folder)?;
        let pattern = pattern(folder, &info)?;
        let world =
            Self::world(&info, &pattern).map_err(|source| Error::Pattern { path: folder.join(RUN_JSON), source })?;
        let mut columns = Columns::new(&pattern, &world);
        for process in 0..info.processes {
            part(folder, process, info.processes, &mut columns)?;
        }
        Ok(Self::assemble(info, pattern, world, columns))
    }
}

fn info(folder: &Path) -> Result<RunInfo> {
    let path = folder.join(RUN_JSON);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(Error::NotARun { path: folder.to_owned() });
        }
        Err(source) => return Err(Error::io(&path, "read the file")(source)),
    };
    let json = |source| Error::Json { path: path.clone(), source };
    let head: Head = serde_json::from_str(&text).map_err(json)?;
    if head.schema != u64::from(RUN_SCHEMA) {
        return Err(Error::Schema { path, found: head.schema, known: RUN_SCHEMA });
    }
    serde_json::from_str(&text).map_err(json)
}

fn pattern(folder: &Path, info: &RunInfo) -> Result<Pattern> {
    let path = folder.join(PATTERN_YAML);
    let text = fs::read_to_string(&path).map_err(Error::io(&path, "read the pattern of the run"))?;
    let found = PatternInfo::new("", &text).hash;
    if found != info.pattern.hash {
        return Err(Error::PatternChanged { path, expected: info.pattern.hash.clone(), found });
    }
    Pattern::from_yaml(&text).map_err(|source| Error::Pattern { path, source })
}

fn part(folder: &Path, process: u32, processes: u32, columns: &mut Columns) -> Result<()> {
    let path = part_path(folder, process);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(Error::PartMissing { path, process, processes }),
        Err(source) => return Err(Error::io(&path, "read the part")(source)),
    };
    // The parquet crate asserts on some damaged pages. That, too, is a damaged part; `columns` is given up with it.
    let outcome = catch_unwind(AssertUnwindSafe(|| decode::read(file, columns)))
        .unwrap_or_else(|_| Err(Fault::Corrupt("its pages contradict each other".into())));
    outcome.map_err(|fault| match fault {
        Fault::Columns(columns) => Error::PartColumns { path, columns },
        Fault::Corrupt(why) => Error::PartCorrupt { path, why },
    })
}
