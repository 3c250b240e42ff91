//! The shipped patterns: each says what it shows, is right, and runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use maestro_pattern::{Measurement, Pattern, Plan, State};
use maestro_replay::{Settings, backend};

/// Every pattern of `fixtures/patterns/`: its file name and its text.
fn shipped() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/patterns");
    let mut all: Vec<(String, String)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "yaml"))
        .map(|file| (file.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(file).unwrap()))
        .collect();
    all.sort();
    all
}

/// One iteration of the step of the shipped pattern `file` by exact simulation.
fn simulated(file: &str) -> Vec<Measurement> {
    let (_, text) = shipped().into_iter().find(|(name, _)| name == file).unwrap();
    dry_run(&Plan::new(&Pattern::from_yaml(&text).unwrap(), &[]).unwrap(), false)
}

fn dry_run(plan: &Plan, alone: bool) -> Vec<Measurement> {
    let settings = Settings { warmup: 0, iterations: 1, rounds: 1, alone, ..Settings::default() };
    backend("dry").unwrap().run(plan, &settings).unwrap()
}

/// What is wrong with the opening of a pattern: it must be a comment that begins with a sentence.
fn opening(text: &str) -> Result<(), &'static str> {
    let comment: Vec<&str> = text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
    let paragraph = comment.split(|line| line.is_empty()).next().unwrap_or_default().join(" ");
    match paragraph.split_once(". ").map_or(paragraph.as_str(), |(first, _)| first).chars().next() {
        None => Err("it does not open with a comment"),
        Some(first) if !first.is_uppercase() => Err("its comment begins with no sentence"),
        Some(_) if !paragraph.ends_with('.') => Err("its first sentence has no end"),
        Some(_) => Ok(()),
    }
}

#[test]
fn the_founding_examples_are_there() {
    let names: Vec<String> = shipped().into_iter().map(|(name, _)| name).collect();
    for wanted in ["allgather_reducescatter.yaml", "layer_overlap.yaml", "pipeline.yaml"] {
        assert!(names.iter().any(|name| name == wanted), "{wanted} is not among {names:?}");
    }
}

#[test]
fn each_opens_with_a_sentence() {
    for (name, text) in shipped() {
        assert_eq!(opening(&text), Ok(()), "{name}");
    }
    assert!(opening("maestro: 1\n").is_err());
    assert!(opening("#\nmaestro: 1\n").is_err());
    assert!(opening("# no sentence.\n").is_err());
    assert!(opening("# Never ends\nmaestro: 1\n").is_err());
    assert_eq!(opening("# Shows a thing. And\n# another.\n#\n# More.\nmaestro: 1\n"), Ok(()));
}

#[test]
fn each_is_right_and_its_canonical_text_means_the_same() {
    for (name, text) in shipped() {
        let pattern = Pattern::from_yaml(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let canonical = pattern.to_yaml();
        let again = Pattern::from_yaml(&canonical).unwrap_or_else(|error| panic!("{name}, canonical: {error}"));
        assert_eq!(again, pattern, "{name}");
        assert_eq!(again.to_yaml(), canonical, "{name}");
        Plan::new(&pattern, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn each_runs_and_every_block_has_a_row_together_and_alone() {
    for (name, text) in shipped() {
        let plan = Plan::new(&Pattern::from_yaml(&text).unwrap(), &[]).unwrap();
        let rows = dry_run(&plan, true);
        for block in &plan.blocks {
            for state in [State::Overlapped, State::Alone] {
                let seen = rows.iter().any(|row| *row.block == block.name && row.state == state);
                // Held compute is not run alone.
                let expected = state == State::Overlapped || block.work.communicates();
                assert_eq!(seen, expected, "{name}: block `{}`, {}", block.name, state.name());
            }
        }
    }
}

#[test]
fn pairs_of_gather_and_scatter_run_at_once_and_do_not_mix() {
    let mut pairs: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for row in simulated("allgather_reducescatter.yaml").iter().filter(|row| row.rank == 0) {
        pairs.entry(row.size_bytes.unwrap()).or_default().push((row.start_ns, row.end_ns));
    }
    assert_eq!(pairs.keys().map(|size| size >> 20).collect::<Vec<_>>(), [4, 8, 16, 32, 64, 128, 256]);
    let mut before = 0;
    for pair in pairs.values() {
        let [one, two] = pair.as_slice() else { panic!("no pair: {pair:?}") };
        assert_eq!((one.0, two.0), (before, before));
        before = one.1.max(two.1);
    }
}

#[test]
fn the_layers_hide_gathers_and_expose_sums() {
    let rows = simulated("layer_overlap.yaml");
    let on = |block: &str| {
        let rows = rows.iter().filter(|row| row.rank == 0 && row.block.starts_with(block));
        rows.map(|row| (row.start_ns, row.end_ns)).collect::<Vec<_>>()
    };
    let compute: Vec<_> = ["attention", "mlp"].into_iter().flat_map(on).collect();
    let hidden = |span: &(u64, u64)| compute.iter().any(|(start, end)| *start < span.1 && span.0 < *end);
    assert_eq!((on("gather_weights").len(), on("scatter_gradients").len(), on("sum_").len()), (8, 4, 16));
    // Nothing computes before the first weights are there, nor while the last gradients are scattered.
    assert_eq!(on("gather_weights").iter().filter(|span| hidden(span)).count(), 7);
    assert_eq!(on("scatter_gradients").iter().filter(|span| hidden(span)).count(), 3);
    // A sum's own layer waits for it, and no other layer computes at that time.
    assert_eq!(on("sum_").iter().filter(|span| hidden(span)).count(), 0);
}

#[test]
fn every_stage_of_the_pipeline_sees_every_micro_batch_once() {
    let rows = simulated("pipeline.yaml");
    let count = |rank: u32, block: &str| rows.iter().filter(|row| row.rank == rank && *row.block == *block).count();
    for rank in 0..4 {
        assert_eq!((count(rank, "forward"), count(rank, "backward")), (8, 8), "stage {rank}");
    }
    // As many forwards run ahead of a stage's first backward as 1F1B allows: those of the stages after it, and its own.
    for rank in 0..4 {
        let of = |block: &'static str| rows.iter().filter(move |row| row.rank == rank && *row.block == *block);
        let first = of("backward").map(|row| row.start_ns).min().unwrap();
        assert_eq!(of("forward").filter(|row| row.start_ns < first).count(), 4 - rank as usize, "stage {rank}");
    }
}
