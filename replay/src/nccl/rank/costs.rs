//! What measuring costs.

use std::time::Duration;

use super::Rank;
use crate::Result;
use crate::nccl::ffi::cuda::Event;
use crate::nccl::ffi::{Failure, Native};

impl Rank {
    /// Nanoseconds that the host took for an issue, on average, and how far off the moments of executions may be.
    pub(in crate::nccl) fn costs(&self) -> (f64, Duration) {
        (
            self.issuing.as_nanos() as f64 / self.issues.max(1) as f64,
            self.device_clock.error() + self.world.party.clock_error(),
        )
    }

    /// What timing a block costs on the device: nanoseconds by which a kernel that does nothing takes longer with an
    /// event behind it, as where its lane goes straight on, and with one before and one behind.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::nccl) fn cost_of_events(&self) -> Result<[f64; 2]> {
        const KERNELS: usize = 200;
        let on = |failure: Failure| self.world.failed(self.rank, None, failure);
        let main = self.device_clock.stream();
        let measure = |events: usize| -> Native<f64> {
            let (first, last) = (Event::new(&self.world.cuda, true)?, Event::new(&self.world.cuda, true)?);
            let all: Native<Vec<Event>> = (0..2 * KERNELS).map(|_| Event::new(&self.world.cuda, true)).collect();
            let all = all?;
            // The device is kept busy while the host enqueues, so that only the device's own time counts.
            let lane = self.lanes.values().next().map(|lane| lane.slot.all());
            if let Some(slot) = lane {
                self.kernels.hold(10_000_000, None, slot, main)?;
            }
            first.record(main)?;
            for pair in all.chunks(2) {
                if events > 1 {
                    pair[0].record(main)?;
                }
                self.kernels.nothing(main)?;
                if events > 0 {
                    pair[1].record(main)?;
                }
            }
            last.record(main)?;
            main.synchronize()?;
            last.since(&first)
        };
        let mut best = [f64::INFINITY; 2];
        for _ in 0..3 {
            let plain = measure(0).map_err(on)?;
            for (events, best) in (1..).zip(&mut best) {
                *best = best.min((measure(events).map_err(on)? - plain) / KERNELS as f64);
            }
        }
        Ok(best.map(|cost| cost.max(0.0)))
    }
}
