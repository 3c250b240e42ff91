//! How fast captures are read: megabytes of JSON a second, plain and gzip.

use std::hint::black_box;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use maestro_importers::{Notes, Reading, read};

fn parse(criterion: &mut Criterion) {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/captures/kineto/fsdp/fsdp_rank0.json.gz");
    let mut json = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(&packed).expect("the fixture is there"))
        .read_to_end(&mut json)
        .expect("the fixture is whole");
    let mut plain = tempfile::NamedTempFile::new().expect("a temporary file");
    plain.write_all(&json).expect("room for a temporary file");

    let mut group = criterion.benchmark_group("kineto");
    group.throughput(Throughput::Bytes(json.len() as u64));
    for (name, file) in [("plain", plain.path().to_owned()), ("gzip", packed)] {
        let files: [PathBuf; 1] = [file];
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                black_box(read(&files, &Reading::default(), &mut Notes::default()).expect("the fixture is a capture"))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, parse);
criterion_main!(benches);
