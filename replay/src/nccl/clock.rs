//! The device's time on the host's clock.
//!
//! An event is recorded on an empty stream and watched by the host, so its moment lies between two readings of the
//! host's clock. That is done anew before each barrier: over one iteration the two clocks cannot drift apart by much.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ffi::Native;
use super::ffi::cuda::{Cuda, Event, Stream};

/// How often the moment of an event is taken; the narrowest counts.
const SIGHTINGS: usize = 4;

/// Ties one device to the host's clock.
pub(super) struct Clock {
    stream: Stream,
    events: Vec<Event>,
    /// The event of the narrowest sighting, and its moment.
    seen: (usize, Instant),
    error: Duration,
}

impl Clock {
    /// On a stream of this priority.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(cuda: &Arc<Cuda>, priority: i32) -> Native<Self> {
        let events: Native<Vec<Event>> = (0..SIGHTINGS).map(|_| Event::new(cuda, true)).collect();
        let seen = (0, Instant::now());
        Ok(Self { stream: Stream::new(cuda, priority)?, events: events?, seen, error: Duration::ZERO })
    }

    /// Its stream, empty but for sightings.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Takes the moment of an event, some times, and keeps the narrowest.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn sight(&mut self) -> Native<()> {
        let mut narrowest = Duration::MAX;
        for (index, event) in self.events.iter().enumerate() {
            let before = Instant::now();
            event.record(&self.stream)?;
            while !event.ended()? {
                std::hint::spin_loop();
            }
            let width = before.elapsed();
            if width < narrowest {
                narrowest = width;
                self.seen = (index, before + width / 2);
            }
        }
        self.error = self.error.max(narrowest / 2);
        Ok(())
    }

    /// When `event` was, in nanoseconds from `zero`, which came after the sighting. It has ended.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn moment(&self, event: &Event, zero: Instant) -> Native<u64> {
        let (index, seen) = self.seen;
        let since = event.since(&self.events[index])?;
        Ok((since - (zero - seen).as_nanos() as f64).max(0.0).round() as u64)
    }

    /// Whether the device has come to `event` since the sighting. False of an event that it never came to.
    pub(super) fn passed(&self, event: &Event) -> bool {
        event.since(&self.events[self.seen.0]).is_ok_and(|ns| ns > 0.0)
    }

    /// By how much a moment was off at the most.
    pub(super) fn error(&self) -> Duration {
        self.error
    }
}
