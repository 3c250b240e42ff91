//! Drives the built program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A path below the repository's root.
pub fn path(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(below)
}

/// The folder of a Kineto capture.
pub fn capture(name: &str) -> PathBuf {
    path("fixtures/captures/kineto").join(name)
}

/// An empty folder to run in.
pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// What one call of the program gave.
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Calls the program in `folder`.
pub fn maestro<A: AsRef<std::ffi::OsStr>>(folder: &Path, args: impl IntoIterator<Item = A>) -> Outcome {
    maestro_with(folder, args, &[])
}

/// Calls the program in `folder`, with these variables.
pub fn maestro_with<A: AsRef<std::ffi::OsStr>>(
    folder: &Path,
    args: impl IntoIterator<Item = A>,
    variables: &[(&str, &str)],
) -> Outcome {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_maestro"))
        .args(args)
        .current_dir(folder)
        .envs(variables.iter().copied())
        .output()
        .expect("the program starts");
    Outcome {
        code: output.status.code().expect("the program ends by itself"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

impl Outcome {
    /// Standard output of a call that must succeed.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self.stdout
    }

    /// The JSON document of a call that must succeed and print nothing else.
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).expect("standard output is one JSON document")
    }

    /// The one sentence of a call that must be refused as bad input.
    pub fn refused(self) -> String {
        assert_eq!(self.code, 2, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        let sentence = self.stderr.trim_end().to_owned();
        assert_eq!(sentence.lines().count(), 1, "one sentence: {sentence}");
        sentence
    }
}

/// Compares `found` with the golden file; rewrites that if MAESTRO_BLESS is set.
pub fn golden(name: &str, found: &str) {
    let file = path("fixtures/goldens").join(name);
    if std::env::var_os("MAESTRO_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("the folder of goldens");
        std::fs::write(&file, found).expect("a golden can be written");
        return;
    }
    let expected = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}; MAESTRO_BLESS=1 writes it", file.display()));
    let differs = expected.lines().zip(found.lines()).position(|(a, b)| a != b);
    assert!(
        expected == found,
        "{} differs, first in line {:?}; MAESTRO_BLESS=1 rewrites it",
        file.display(),
        differs.map(|line| line + 1)
    );
}
