//! Chakra execution traces, there and back, and as others write them.

mod foreign;
mod schema;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use maestro_importers::export::EXPORTERS;
use maestro_importers::synthesis::{Import, Options, synthesise};
use maestro_importers::{Notes, Reading, read};
use maestro_pattern::{Body, Item, Pattern, Plan, Step};

/// Captures of everything that a step may hold: dense and sharded data parallelism, pipelines, experts, graphs.
pub(crate) const CAPTURES: [&str; 6] = ["ddp_large", "fsdp_large", "fsdp", "pp_large", "moe", "graph"];

/// A capture, imported once for all tests.
pub(crate) fn capture(name: &str) -> &'static Import {
    static ALL: OnceLock<Vec<Import>> = OnceLock::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/captures/kineto");
    let all = ALL.get_or_init(|| CAPTURES.iter().map(|name| import(&[folder.join(name)]).0).collect());
    &all[CAPTURES.iter().position(|known| *known == name).expect("a capture")]
}

pub(crate) fn import(paths: &[PathBuf]) -> (Import, Notes) {
    let mut notes = Notes::default();
    let capture = read(paths, &Reading::default(), &mut notes).expect("a capture");
    let import = synthesise(&capture, &Options::default(), &mut notes).expect("a pattern");
    (import, notes)
}

/// The files of a plan, by rank.
pub(crate) fn exported(plan: &Plan) -> Vec<Vec<u8>> {
    let exporter = EXPORTERS.iter().find(|exporter| exporter.name() == "chakra").expect("the format");
    (0..plan.world.size()).map(|rank| exporter.write(plan, rank)).collect()
}

/// Files written to a folder and imported.
pub(crate) fn imported(files: &[Vec<u8>]) -> (Import, Notes) {
    let folder = tempfile::tempdir().expect("a folder");
    for (rank, file) in files.iter().enumerate() {
        std::fs::write(folder.path().join(format!("step.{rank}.et")), file).expect("a file");
    }
    import(&[folder.path().to_owned()])
}

/// A pattern without what a way of recording it changes: where it came from, what was assumed of that, and which
/// sequences got a name. Host time is rounded to tenths of a microsecond, to which sums of it are written.
fn plain(pattern: &Pattern) -> Pattern {
    let mut plain = pattern.clone();
    (plain.name, plain.source, plain.assumed) = Default::default();
    plain.schedule = inlined(&pattern.schedule, pattern);
    plain.roles.iter_mut().for_each(|role| role.schedule = inlined(&role.schedule, pattern));
    plain.motifs.clear();
    plain
}

/// Items with motifs written out, those that run once in place.
fn inlined(items: &[Item], pattern: &Pattern) -> Vec<Item> {
    let mut all = Vec::new();
    for item in items {
        let Step::Repeat { times, body } = &item.step else {
            let mut item = item.clone();
            if let Step::Host(ns) = &mut item.step {
                *ns = (*ns + 50) / 100 * 100;
            }
            all.push(item);
            continue;
        };
        let inside = match body {
            Body::Inline(items) => items,
            Body::Motif(name) => &pattern.motifs.iter().find(|motif| motif.name == *name).expect("a motif").items,
        };
        let inside = inlined(inside, pattern);
        match times {
            1 if item.when.0.is_empty() => all.extend(inside),
            times => {
                let step = Step::Repeat { times: *times, body: Body::Inline(inside) };
                all.push(Item { step, ..item.clone() });
            }
        }
    }
    all
}

#[test]
fn every_capture_is_the_same_pattern_after_a_way_through_chakra() {
    for name in CAPTURES {
        let before = capture(name);
        let (after, notes) = imported(&exported(before.plan.as_ref().expect("a plan")));
        let (wanted, found) = (plain(&before.pattern), plain(&after.pattern));
        assert_eq!(found.to_yaml(), wanted.to_yaml(), "{name}");
        assert_eq!(found, wanted, "{name}");
        assert!(wanted.blocks.len() > 1 && !wanted.axes.is_empty(), "{name} compares nothing");
        // What is told outright needs no inference, and nothing is odd about our own files.
        assert!(after.pattern.assumed.iter().any(|assumed| assumed.what.contains("no start times")), "{name}");
        assert!(after.waits.1 == 0 && after.unmatched.is_empty(), "{name}");
        let odd: Vec<&str> =
            notes.iter().map(|(kind, _)| kind).filter(|kind| !kind.starts_with("first comm")).collect();
        assert!(odd.is_empty(), "{name}: {odd:?}");
    }
}

#[test]
fn a_difference_anywhere_is_seen() {
    let before = capture("pp_large");
    let wanted = plain(&before.pattern);
    let mut other = before.pattern.clone();
    other.blocks[0].captured_ns = other.blocks[0].captured_ns.map(|ns| ns + 1_000);
    let mut less = before.pattern.clone();
    assert!(less.roles.iter_mut().any(|role| role.schedule.pop().is_some()));
    for changed in [other, less] {
        assert_ne!(plain(&changed), wanted);
    }
}

#[test]
fn what_captures_never_tell_comes_back_too() {
    let text = "
maestro: 1
name: all
axes: {dp: {size: 2}, tp: {size: 2}}
blocks:
  top: {all_reduce: {size: 4096, dtype: f16, op: max}, captured: 20us}
  spread: {broadcast: {size: 4096, dtype: i32, root: 1}, captured: 21us}
  route: {all_to_all: {size: 44, dtype: f32, splits: [[1, 3], [9, 2]]}, captured: 9us}
  ring: {p2p: [{send: {to: 1, size: 64, dtype: bf16}}, {recv: {from: -1, size: 64, dtype: bf16}}], wrap: true, captured: 5us}
  both:
    group:
      - {all_gather: {size: 4096, dtype: bf16}}
      - {reduce_scatter: {size: 8192, dtype: f32, op: avg}}
    captured: 30us
  work:
    compute:
      - {gemm: {m: 64, n: 32, k: 16, dtype: bf16}, times: 3}
      - {gemm: {m: 64, n: 32, k: 16, dtype: bf16, layout: nt}}
      - {gemm: {m: 64, n: 32, k: 16, batch: 2, dtype: f32, layout: tn}, times: 2}
      - {gemm: {m: 64, n: 32, k: 16, dtype: bf16, layout: tt}}
      - {copy: {d2h: 512}, times: 2}
      - {set: 64}
      - {memory: 1024}
      - {hold: 1500ns, sms: 7}
    captured: 100us
    idle: 40us
lanes: {compute: {}, comm: {}, side: {}}
schedule:
  - {run: work, lane: compute}
  - {host: 12us}
  - {run: top, on: dp, lane: comm, after: [work]}
  - {run: spread, on: tp, lane: side}
  - {run: route, on: dp, lane: side, after: [top]}
  - {host: 300us}
  - {wait: top}
  - {run: both, on: tp, lane: comm}
  - {run: ring, on: dp, lane: comm}
";
    let before = Pattern::from_yaml(text).unwrap_or_else(|error| panic!("{error}"));
    let plan = Plan::new(&before, &[]).unwrap_or_else(|error| panic!("{error}"));
    let (after, _) = imported(&exported(&plan));
    for block in &before.blocks {
        if block.name == "ring" {
            // Peers are told by rank, and which way round a ring goes is lost: the ranks at its ends have blocks of
            // their own.
            let mut parts = after.pattern.blocks.iter().filter(|other| other.name.starts_with("ring"));
            assert!(parts.clone().count() == 2);
            assert!(parts.all(|part| (part.work.kind(), part.work.size()) == ("p2p", Some(64))));
            continue;
        }
        let found = after.pattern.blocks.iter().find(|other| other.name == block.name);
        let found = found.unwrap_or_else(|| panic!("no {}", block.name));
        assert_eq!(found.work, block.work);
        assert_eq!((found.captured_ns, found.idle_ns), (block.captured_ns, block.idle_ns), "{}", block.name);
    }
    let names: Vec<&str> = after.pattern.axes.iter().map(|axis| axis.name.as_str()).collect();
    assert_eq!(names, ["dp", "tp"]);
}
