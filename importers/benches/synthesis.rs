//! How fast passes turn a read capture into a pattern, by the size of the JSON that it was read from.
//!
//! `cargo bench -p maestro-importers --bench synthesis`

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flate2::read::GzDecoder;
use maestro_importers::synthesis::{Options, synthesise};
use maestro_importers::{Notes, Reading, read};

/// Bytes of JSON in the gzip files of `folder`.
fn json_bytes(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("a fixture folder").map(|entry| entry.expect("an entry").path());
    files
        .filter(|file| file.extension().is_some_and(|extension| extension == "gz"))
        .map(|file| {
            let mut text = Vec::new();
            GzDecoder::new(File::open(file).expect("a capture")).read_to_end(&mut text).expect("gzip");
            text.len() as u64
        })
        .sum()
}

fn synthesis(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("synthesis");
    for name in ["ddp_large", "fsdp_large", "fsdp", "pp_large"] {
        let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../fixtures/captures/kineto", name].iter().collect();
        group.throughput(Throughput::Bytes(json_bytes(&folder)));
        let capture = read(&[folder], &Reading::default(), &mut Notes::default()).expect("a capture");
        group.bench_function(name, |bencher| {
            bencher.iter(|| synthesise(&capture, &Options::default(), &mut Notes::default()).expect("a pattern"));
        });
    }
    group.finish();
}

criterion_group!(benches, synthesis);
criterion_main!(benches);
