//! Reports as `nsys profile` writes them. Their format is NVIDIA's own: `nsys` converts them where it is installed, and
//! elsewhere the error says what to run where it is.
//!
//! What such a file begins with is nowhere documented, and no file was at hand to look. So any file of binary data that
//! does not begin as something else may be one, and its ending decides.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::sqlite;
use crate::{Error, Head, Result, Verdict};

/// Endings of reports, now and before 2021.
const ENDINGS: [&str; 3] = ["nsys-rep", "qdrep", "qdstrm"];

/// The converter.
const NSYS: &str = "nsys";

/// A conversion takes a second a hundred megabytes; what takes longer than this hangs.
const LONGEST: Duration = Duration::from_secs(600);

/// Longest message of the converter that is passed on, in bytes.
const MESSAGE: u64 = 400;

/// Whether it may be a report.
pub(super) fn recognise(head: &Head) -> Verdict {
    let bytes = head.bytes();
    let text = std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0'));
    let known =
        [sqlite::MAGIC, b"PAR1", b"\x89PNG", b"%PDF", b"PK\x03\x04"].iter().any(|magic| bytes.starts_with(magic));
    if text || known || head.is_gzip() { Verdict::No } else { Verdict::Maybe }
}

/// An export of a report, gone when this is.
pub(super) struct Export {
    path: PathBuf,
    _folder: TempDir,
}

impl Export {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Has `nsys` write the report as JSON lines.
pub(super) fn convert(file: &Path) -> Result<Export> {
    convert_by(Path::new(NSYS), file, LONGEST)
}

fn convert_by(nsys: &Path, file: &Path, longest: Duration) -> Result<Export> {
    let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if !ENDINGS.contains(&ending) {
        return Err(Error::Unrecognised { file: file.to_owned(), formats: crate::source::formats() });
    }
    let needs = |problem: String| Error::NeedsNsys { file: file.to_owned(), problem };
    let folder = tempfile::tempdir().map_err(|error| needs(format!("no temporary folder: {error}")))?;
    let path = folder.path().join("report.jsonl");
    let mut command = Command::new(nsys);
    command.args(["export", "--type", "json", "--force-overwrite", "true", "--output"]).arg(&path).arg(file);
    let said = tempfile::tempfile().map_err(|error| needs(format!("no temporary file: {error}")))?;
    let errors = said.try_clone().map_err(|error| needs(format!("no temporary file: {error}")))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(errors))
        .spawn()
        .map_err(|error| needs(format!("`{NSYS}` cannot be run here: {error}")))?;
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() < longest => sleep(Duration::from_millis(20)),
            Ok(None) => {
                // Nothing more can be done about a process that does not end even so.
                let _ = child.kill();
                let _ = child.wait();
                return Err(needs(format!("`{NSYS}` did not end within {} s", longest.as_secs())));
            }
            Err(error) => return Err(needs(format!("`{NSYS}` was lost: {error}"))),
        }
    };
    if !status.success() || !path.is_file() {
        return Err(needs(format!("`{NSYS}` failed, {status}{}", message(said))));
    }
    Ok(Export { path, _folder: folder })
}

/// What a process wrote, as the end of a sentence.
fn message(mut said: File) -> String {
    use std::io::Seek;
    let mut text = Vec::new();
    if said.rewind().is_err() || said.take(MESSAGE).read_to_end(&mut text).is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map_or_else(String::new, |line| format!(": {line}"))
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that stands for `nsys`, and a report beside it.
    fn program(text: &str) -> (TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (nsys, report) = (folder.path().join("nsys"), folder.path().join("a b.nsys-rep"));
        fs::write(&nsys, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&nsys, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&report, b"\x01\x00\xff\xfe").unwrap();
        (folder, nsys, report)
    }

    fn problem(outcome: Result<Export>) -> String {
        outcome.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_report_is_converted_into_a_folder_that_goes_away() {
        // Its arguments: export --type json --force-overwrite true --output PATH REPORT.
        let (_folder, nsys, report) = program("[ \"$1 $2 $3\" = 'export --type json' ] && cat \"$8\" > \"$7\"");
        let export = convert_by(&nsys, &report, LONGEST).unwrap();
        assert_eq!(fs::read(export.path()).unwrap(), b"\x01\x00\xff\xfe");
        let path = export.path().to_owned();
        drop(export);
        assert!(!path.exists());
    }

    #[test]
    fn what_fails_or_hangs_or_is_not_there_says_which_command_to_run() {
        let (_folder, nsys, report) = program("echo 'cannot open' >&2; exit 3");
        let told = problem(convert_by(&nsys, &report, LONGEST));
        assert!(told.contains("cannot open") && told.contains("nsys export --type json --output"), "{told}");
        let (_folder, nsys, report) = program("exec sleep 60");
        assert!(problem(convert_by(&nsys, &report, Duration::from_millis(50))).contains("did not end"));
        let told = problem(convert_by(Path::new("/no/such/nsys"), &report, LONGEST));
        assert!(told.contains("cannot be run") && told.contains("a b.nsys-rep"), "{told}");
    }

    #[test]
    fn binary_files_of_other_names_are_no_reports() {
        let (folder, nsys, _report) = program("exit 0");
        let other = folder.path().join("weights.bin");
        fs::write(&other, [0, 1, 2]).unwrap();
        assert!(matches!(convert_by(&nsys, &other, LONGEST), Err(Error::Unrecognised { .. })));
        for (bytes, verdict) in
            [(&b"text"[..], Verdict::No), (b"SQLite format 3\0", Verdict::No), (b"\x01\x00\xff", Verdict::Maybe)]
        {
            assert_eq!(recognise(&Head::new(bytes.to_vec(), false)), verdict);
        }
    }
}
