//! `maestro doctor`: what works on this machine and what is missing.

use maestro_replay::{BACKENDS, available_memory};

use crate::failure::Failure;
use crate::output;

pub fn run() -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut text =
        format!("maestro {} on {} {}\n", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    text += &format!("\nMachine\n  cores   {cores}\n");
    if let Some(available) = available_memory() {
        text += &format!("  memory  {} available\n", output::bytes(available));
    }
    text += "\nBack ends\n";
    for backend in BACKENDS {
        text += &format!("  {:<8} {}\n", backend.name(), backend.about());
    }
    #[cfg(feature = "nccl")]
    {
        text += &gpus();
    }
    text += "\nCaptures that can be imported\n";
    #[cfg(feature = "import")]
    for importer in maestro_importers::IMPORTERS {
        text += &format!("  {:<14} {}\n", importer.name(), importer.about());
    }
    #[cfg(not(feature = "import"))]
    {
        text += "  none: this is the lean replayer; the default build imports\n";
    }
    text += "\nReports\n";
    #[cfg(feature = "tables")]
    for report in maestro_reports::REPORTS {
        text += &format!("  {:<8} {}\n", report.name(), report.about());
    }
    #[cfg(not(feature = "tables"))]
    {
        text += "  summary  a plain table; full reports are made by the default build from the same run folders\n";
    }
    output::print(&text)?;
    Ok(())
}

/// What the back end nccl finds.
#[cfg(feature = "nccl")]
fn gpus() -> String {
    let found = maestro_replay::nccl::doctor();
    let mut text = "\nGPUs\n".to_owned();
    for device in &found.devices {
        text += &format!("  {device}\n");
    }
    text += "\nLibraries of the back end nccl, found when it runs\n";
    for library in &found.libraries {
        text += &match &library.found {
            Ok(there) => format!("  {:<11} {}, {}\n", library.name, there.version, there.file.display()),
            Err(why) => format!("  {:<11} missing: {why}\n", library.name),
        };
    }
    text
}
