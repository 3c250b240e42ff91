//! Real captures of Nsight Systems, compared with Kineto's captures of the same kinds of steps.

use std::path::{Path, PathBuf};

use maestro_importers::capture::Capture;
use maestro_importers::synthesis::{Import, Options, synthesise};
use maestro_importers::{Notes, Reading, read};

fn captures(names: &[&str]) -> (Capture, Notes) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/captures");
    let paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    let mut notes = Notes::default();
    let capture = read(&paths, &Reading::default(), &mut notes).expect("a capture");
    (capture, notes)
}

fn import(capture: &Capture) -> Import {
    synthesise(capture, &Options::default(), &mut Notes::default()).expect("a pattern")
}

/// What Nsight Systems does not record.
fn without_operators(mut capture: Capture) -> Capture {
    for timeline in &mut capture.timelines {
        timeline.annotations.clear();
        timeline.works.clear();
        timeline.launched.clear();
    }
    capture
}

#[test]
fn explore() {
    let a = import(&captures(&["nsight/fsdp_large.nsys.jsonl.gz"]).0);
    let b = import(&without_operators(captures(&["kineto/fsdp_large_sync"]).0));
    let c = import(&without_operators(captures(&["kineto/fsdp_large"]).0));
    std::fs::write("/tmp/nsq/a.yaml", a.pattern.to_yaml()).unwrap();
    std::fs::write("/tmp/nsq/b.yaml", b.pattern.to_yaml()).unwrap();
    std::fs::write("/tmp/nsq/c.yaml", c.pattern.to_yaml()).unwrap();
}
