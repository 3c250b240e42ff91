//! Reports of Nsight Systems: its SQLite and JSON-lines exports, and, where `nsys` is installed, the reports themselves.
//!
//! Each reader ([`sqlite`], [`jsonl`]) only finds the values of a row and hands them to [`rows`]; what they mean is said
//! once, behind that, so that two exports of one report cannot disagree but in what they lack. The exports do differ
//! there: payloads of NVTX ranges, which hold the sizes and communicators of NCCL's calls, are in every JSON export and
//! only in those SQLite exports that were asked for them. What devices are called is in SQLite exports only.
//!
//! A report may hold all processes of a host or one. Ranks and communicators span reports, so [`join`] settles them when
//! all files are read.

mod join;
mod jsonl;
mod line;
mod nccl;
mod payload;
mod report;
mod rows;
mod sqlite;
mod steps;
mod timeline;

#[cfg(test)]
mod tests;

use std::path::Path;

pub(crate) use self::join::{join, ranks};
use crate::capture::Timeline;
use crate::{Head, Importer, Notes, Reading, Result, Verdict};

/// Reads SQLite exports.
pub struct Sqlite;

impl Importer for Sqlite {
    fn name(&self) -> &'static str {
        "nsight-sqlite"
    }

    fn about(&self) -> &'static str {
        "SQLite by `nsys export --type sqlite`"
    }

    fn recognise(&self, head: &Head) -> Verdict {
        if head.is_gzip() || !head.bytes().starts_with(sqlite::MAGIC) {
            return Verdict::No;
        }
        // The list of tables may be anywhere in a file that grew; reading it will tell.
        if head.contains("CUPTI_ACTIVITY_KIND_") { Verdict::Yes } else { Verdict::Maybe }
    }

    fn read(&self, file: &Path, _: &Reading, notes: &mut Notes) -> Result<Vec<Timeline>> {
        sqlite::read(file, notes)?.finish(file, notes)
    }
}

/// Reads JSON-lines exports.
pub struct JsonLines;

impl Importer for JsonLines {
    fn name(&self) -> &'static str {
        "nsight-jsonl"
    }

    fn about(&self) -> &'static str {
        "JSON lines by `nsys export --type json` (plain or gzip)"
    }

    fn recognise(&self, head: &Head) -> Verdict {
        jsonl::recognise(head)
    }

    fn read(&self, file: &Path, reading: &Reading, notes: &mut Notes) -> Result<Vec<Timeline>> {
        jsonl::read(file, reading.strict, notes)?.finish(file, notes)
    }
}

/// Has `nsys` convert its reports.
pub struct Report;

impl Importer for Report {
    fn name(&self) -> &'static str {
        "nsight-report"
    }

    fn about(&self) -> &'static str {
        "reports of Nsight Systems (.nsys-rep), where `nsys` is on the PATH"
    }

    fn recognise(&self, head: &Head) -> Verdict {
        report::recognise(head)
    }

    fn read(&self, file: &Path, reading: &Reading, notes: &mut Notes) -> Result<Vec<Timeline>> {
        let export = report::convert(file)?;
        jsonl::read(export.path(), reading.strict, notes)?.finish(file, notes)
    }
}
