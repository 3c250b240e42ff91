//! Why a command failed, and the exit code that says so.

use std::io::ErrorKind;

/// A regression is proved.
pub const REGRESSION: u8 = 1;
/// Neither a regression nor its absence can be said.
pub const INCONCLUSIVE: u8 = 3;
/// Bad input or usage.
pub const INPUT: u8 = 2;
/// The run itself failed: a hang, wrong data, a rank that died.
pub const RUN: u8 = 4;

/// An error with its exit code.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    pub error: anyhow::Error,
}

impl Failure {
    /// The run failed after it was found runnable.
    pub fn run(error: impl Into<anyhow::Error>) -> Self {
        Self { code: RUN, error: error.into() }
    }

    /// What is printed: the error with its causes, each of which is said once.
    pub fn said(&self) -> String {
        self.error.chain().fold(String::new(), |said, cause| match cause.to_string() {
            cause if said.contains(&cause) => said,
            cause if said.is_empty() => cause,
            cause => format!("{said}: {cause}"),
        })
    }

    /// Whether standard output was closed by its reader.
    pub fn is_broken_pipe(&self) -> bool {
        let io = self.error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
        io.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    }
}

/// Everything that is not said to be something else is bad input.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { code: INPUT, error: error.into() }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn each_cause_is_said_once() {
        let error =
            Err::<(), _>(anyhow!("no such file")).context("a.yaml: cannot be read (no such file)").context("import");
        let failure = Failure::from(error.unwrap_err());
        assert_eq!(failure.said(), "import: a.yaml: cannot be read (no such file)");
    }
}
