//! Chakra there and back.

use std::path::{Path, PathBuf};

use maestro_importers::export::EXPORTERS;
use maestro_importers::synthesis::{Import, Options, synthesise};
use maestro_importers::{Notes, Reading, read};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/captures/kineto").join(name)
}

fn import(paths: &[PathBuf]) -> (Import, Notes) {
    let mut notes = Notes::default();
    let capture = read(paths, &Reading::default(), &mut notes).expect("a capture");
    let import = synthesise(&capture, &Options::default(), &mut notes).expect("a pattern");
    (import, notes)
}

#[test]
fn scratch() {
    for name in ["ddp_large", "fsdp_large", "fsdp", "pp_large", "moe", "graph"] {
        let (before, _) = import(&[fixture(name)]);
        let plan = before.plan.as_ref().expect("a plan");
        let folder = PathBuf::from("/tmp/chakra-scratch").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for rank in 0..plan.world.size() {
            let file = EXPORTERS[0].file("step", rank);
            std::fs::write(folder.join(file), EXPORTERS[0].write(plan, rank)).unwrap();
        }
        let (after, notes) = import(&[folder]);
        std::fs::write(format!("/tmp/chakra-scratch/{name}.before.yaml"), before.pattern.to_yaml()).unwrap();
        std::fs::write(format!("/tmp/chakra-scratch/{name}.after.yaml"), after.pattern.to_yaml()).unwrap();
        for (kind, note) in notes.iter() {
            println!("{name}: {} {kind}: {}", note.count, note.example);
        }
    }
}
