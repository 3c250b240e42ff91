//! The command line of Maestro: opens files, calls the rooms in order, prints.
//!
//! `main` knows errors and exit codes; [`cli`] knows the words of the command line; each command is a file in
//! [`commands`] that reads like its description. Logic worth a unit test lives in the library crates.

mod cli;
mod commands;
mod draw;
mod failure;
mod output;
mod progress;
mod record;
mod sniff;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors, and clap prints them to standard output itself.
            let code = if error.use_stderr() { failure::INPUT } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output has had enough of it: no failure.
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("maestro: {}", failure.said());
            ExitCode::from(failure.code)
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        #[cfg(feature = "import")]
        Command::Import(args) => commands::import::run(&args),
        Command::Show(args) => commands::show::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Replay(args) => commands::replay::run(&args),
        #[cfg(feature = "import")]
        Command::Run(args) => commands::run::run(&args),
        #[cfg(feature = "import")]
        Command::Export(args) => commands::export::run(&args),
        #[cfg(feature = "tables")]
        Command::Sweep(args) => commands::sweep::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Diff(args) => commands::diff::run(&args),
        Command::Doctor => commands::doctor::run(),
    }
}
