//! What a run tells while it runs: a bar on standard error, and only if that is a terminal.

use std::io::{IsTerminal, stderr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use maestro_replay::{Notice, Observer, Phase};

/// Shows the notices of a run.
#[derive(Clone)]
pub struct Progress {
    bar: ProgressBar,
    told: Arc<Mutex<Told>>,
}

/// What a run told of its numbers.
#[derive(Default)]
pub struct Told {
    /// What a reader of the numbers should know, in alphabetical order, each note once.
    pub notes: Vec<String>,
    /// How far times of one rank may be off those of another, where the back end knows.
    pub clock_error: Option<Duration>,
}

impl Progress {
    pub fn new() -> Self {
        let bar = ProgressBar::new(0);
        if !stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} {eta}") {
            bar.set_style(style);
        }
        Self { bar, told: Arc::default() }
    }

    /// What a run is told to notify.
    pub fn observer(&self) -> Observer {
        let this = self.clone();
        Observer::new(move |notice| match notice {
            Notice::Phase(phase) => this.bar.set_message(match phase {
                Phase::Prepare => "preparing",
                Phase::Verify => "verifying the data",
                Phase::Measure => "measuring",
            }),
            Notice::Progress { done, total } => {
                this.bar.set_length(total);
                this.bar.set_position(done);
            }
            Notice::Verified { .. } => {}
            Notice::ClockError(more) => this.told(|told| *told.clock_error.get_or_insert_default() += more),
            Notice::Note(note) => this.told(|told| told.notes.push(note)),
        })
    }

    fn told<T: Default>(&self, change: impl FnOnce(&mut Told) -> T) -> T {
        self.told.lock().map(|mut told| change(&mut told)).unwrap_or_default()
    }

    /// Takes the bar away and gives what was told.
    pub fn finish(&self) -> Told {
        self.bar.finish_and_clear();
        let mut told = self.told(std::mem::take);
        told.notes.sort_unstable();
        told.notes.dedup();
        told
    }
}
