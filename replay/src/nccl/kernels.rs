//! The built-in kernels: PTX that is checked in beside its source, so that no compiler is needed where it runs.

use std::sync::Arc;

use super::ffi::Native;
use super::ffi::cuda::{Cuda, DeviceInfo, Kernel, Module, Shape, Slice, Stream};

/// What NVRTC 11.8 makes of kernels.cu for `compute_70`, with the 0 that the driver wants at the end: old enough for
/// drivers from 520 and devices from Volta on.
const PTX: &str = concat!(include_str!("kernels.ptx"), "\0");

/// Bytes of a lane's slot for timed kernels, with room to a line of its own.
pub(super) const SLOT: usize = 256;

/// How long a hold's passing blocks stay at the least: long beside the time in which one block replaces another, short
/// beside what waits for a multiprocessor.
const QUANTUM_NS: u64 = 40_000;

/// Most rounds of passing blocks in a hold.
const ROUNDS: u64 = 64;

/// The kernels, loaded into the current context.
pub(super) struct Kernels {
    stream: Kernel,
    hold: Kernel,
    fill: Kernel,
    sms: u32,
    shared_memory: u32,
}

impl Kernels {
    /// Loads them.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(cuda: &Arc<Cuda>, device: &DeviceInfo) -> Native<Self> {
        let module = Module::new(cuda, PTX.as_bytes())?;
        Ok(Self {
            stream: module.kernel("maestro_stream", 0)?,
            hold: module.kernel("maestro_hold", device.shared_memory)?,
            fill: module.kernel("maestro_fill", 0)?,
            sms: device.sms,
            shared_memory: device.shared_memory,
        })
    }

    /// Reads `bytes` and writes as many, evenly over at least `ns` nanoseconds. `slot` is the lane's memory for that.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn stream(&self, [from, to, slot]: [Slice; 3], bytes: u64, ns: u64, on: &Stream) -> Native<()> {
        /// Vectors that a block moves.
        const EACH: u64 = 2048;
        let vectors = bytes.div_ceil(16);
        let grid = u32::try_from(vectors.div_ceil(EACH)).unwrap_or(u32::MAX).max(1);
        let arguments = &mut [from.argument(), to.argument(), vectors, ns, slot.argument()];
        on.launch(&self.stream, flat(grid, 512, 0), arguments)
    }

    /// Keeps `sms` multiprocessors, or all, busy for `ns` nanoseconds.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn hold(&self, ns: u64, sms: Option<u32>, slot: Slice, on: &Stream) -> Native<()> {
        let sms = sms.map_or(self.sms, |sms| sms.min(self.sms)).max(1);
        // Of some multiprocessors nobody is kept away, so their blocks may stay.
        let rounds = if sms < self.sms { 1 } else { (ns / QUANTUM_NS).clamp(1, ROUNDS) };
        let passing = (rounds - 1) * u64::from(sms);
        let grid = (rounds * u64::from(sms)) as u32;
        on.launch(&self.hold, flat(grid, 32, self.shared_memory), &mut [ns, ns / rounds, passing, slot.argument()])
    }

    /// Lets a lane pass `ns` nanoseconds and keeps nothing busy but a warp.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn idle(&self, ns: u64, slot: Slice, on: &Stream) -> Native<()> {
        on.launch(&self.hold, flat(1, 32, 0), &mut [ns, ns, 0, slot.argument()])
    }

    /// Fills memory with numbers of about a normal distribution.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn fill(&self, to: Slice, seed: u64, on: &Stream) -> Native<()> {
        let words = (to.bytes / 8) as u64;
        if words == 0 {
            return Ok(());
        }
        on.launch(&self.fill, flat(8 * self.sms, 256, 0), &mut [to.argument(), words, seed])
    }

    /// A kernel that does nothing.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn nothing(&self, on: &Stream) -> Native<()> {
        on.launch(&self.fill, flat(1, 32, 0), &mut [0, 0, 0])
    }
}

fn flat(grid: u32, threads: u32, shared_memory: u32) -> Shape {
    Shape { grid: [grid, 1, 1], threads: [threads, 1, 1], shared_memory }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::ffi::nvrtc::{Nvrtc, Target};
    use super::*;

    /// Where `.ci/run` puts NVRTC 11.8; elsewhere this folder is mostly missing, and the test says so.
    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/nvrtc-11.8/nvidia/cuda_nvrtc/lib");

    #[test]
    fn the_checked_in_ptx_is_what_its_source_compiles_to() {
        let folder = Path::new(FOLDER);
        if !folder.exists() {
            eprintln!("skipped: no NVRTC 11.8 in {FOLDER}; scripts/nvrtc installs it");
            return;
        }
        Nvrtc::preload(&folder.join("libnvrtc-builtins.so.11.8"));
        let nvrtc = Nvrtc::load(&folder.join("libnvrtc.so.11.2")).unwrap();
        assert_eq!(nvrtc.version().unwrap(), (11, 8));
        let made = nvrtc.compile(include_str!("kernels.cu"), "kernels.cu", Target::Ptx(70)).unwrap();
        if std::env::var_os("MAESTRO_BLESS").is_some() {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/nccl/kernels.ptx");
            std::fs::write(file, &made[..made.len() - 1]).unwrap();
            return;
        }
        assert!(made == PTX.as_bytes(), "kernels.cu changed: MAESTRO_BLESS=1 writes kernels.ptx anew");
    }
}
