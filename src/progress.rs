//! What a run tells while it runs: a bar on standard error, and only if that is a terminal.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use maestro_replay::{Notice, Observer, Phase};

/// Shows the notices of a run.
#[derive(Clone)]
pub struct Progress {
    bar: ProgressBar,
    notes: std::sync::Arc<Mutex<Vec<String>>>,
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
        Self { bar, notes: Default::default() }
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
            Notice::Note(note) => {
                if let Ok(mut notes) = this.notes.lock() {
                    notes.push(note);
                }
            }
        })
    }

    /// Takes the bar away and gives what a reader of the numbers should know, each note once.
    pub fn finish(&self) -> Vec<String> {
        self.bar.finish_and_clear();
        let mut notes = self.notes.lock().map(|mut notes| std::mem::take(&mut *notes)).unwrap_or_default();
        notes.sort_unstable();
        notes.dedup();
        notes
    }
}
