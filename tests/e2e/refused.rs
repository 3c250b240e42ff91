//! Bad input: exit code 2, one sentence with file and position, what was expected and what would help.

use std::fs;
use std::path::Path;

use crate::harness::{capture, folder, maestro, path};

/// Writes `content` to a file called `name` and imports it.
fn import(name: &str, content: &[u8]) -> String {
    let here = folder();
    fs::write(here.path().join(name), content).unwrap();
    maestro(here.path(), ["import", name]).refused()
}

/// The same for a damaged capture: refused strictly, for the reason given; else imported, with a note of what was lost.
fn survived(name: &str, content: &[u8]) -> [String; 2] {
    let here = folder();
    fs::write(here.path().join(name), content).unwrap();
    let imported = maestro(here.path(), ["import", name, "--json"]).ok();
    [maestro(here.path(), ["import", name, "--strict"]).refused(), imported]
}

/// Writes a pattern and checks it.
fn check(text: &str) -> String {
    let here = folder();
    fs::write(here.path().join("p.yaml"), text).unwrap();
    let sentence = maestro(here.path(), ["check", "p.yaml"]).refused();
    assert_eq!(maestro(here.path(), ["replay", "p.yaml"]).refused(), sentence);
    sentence
}

fn says(sentence: &str, words: &[&str]) {
    for word in words {
        assert!(sentence.contains(word), "`{word}` is missing in: {sentence}");
    }
}

/// The bytes of a real capture.
fn packed() -> Vec<u8> {
    fs::read(capture("fsdp_large").join("fsdp_large_rank0.json.gz")).unwrap()
}

#[test]
fn missing_file() {
    says(&maestro(folder().path(), ["import", "nowhere.json"]).refused(), &["nowhere.json", "no such file"]);
    says(&maestro(folder().path(), ["check", "nowhere.yaml"]).refused(), &["nowhere.yaml"]);
    says(&maestro(folder().path(), ["report", "nowhere"]).refused(), &["nowhere"]);
}

#[test]
fn empty_file() {
    says(&import("empty.json", b""), &["empty.json", "empty"]);
}

#[test]
fn folder_without_traces() {
    let here = folder();
    fs::create_dir(here.path().join("logs")).unwrap();
    fs::write(here.path().join("logs/notes.txt"), "nothing here").unwrap();
    says(&maestro(here.path(), ["import", "logs"]).refused(), &["logs", "no capture", "expected"]);
}

#[test]
fn other_json() {
    says(&import("other.json", br#"{"name": "not a trace", "items": [1, 2, 3]}"#), &["other.json", "expected"]);
    says(&import("list.json", b"[1, 2, 3]"), &["list.json"]);
}

#[test]
fn truncated_json() {
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed()[..]), &mut text).unwrap();
    text.truncate(2_000_000);
    let [strict, imported] = survived("cut.json", &text);
    says(&strict, &["cut.json", "byte 2000000"]);
    says(&imported, &["cut.json", "incomplete: cut at byte 2000000"]);
}

#[test]
fn truncated_gzip() {
    let most = &packed()[..230_000];
    let [strict, imported] = survived("cut.json.gz", most);
    says(&strict, &["cut.json.gz", "byte 230000", "gzip"]);
    says(&imported, &["cut.json.gz", "incomplete: cut at byte", "byte 230000", "gzip"]);
    // Cut before the first row of a device there is nothing to import, and the cut is why.
    says(&import("cut.json.gz", &packed()[..100_000]), &["cut.json.gz", "byte 100000", "gzip", "copy it again"]);
}

#[test]
fn two_files_of_one_rank() {
    let here = folder();
    for name in ["a.json.gz", "b.json.gz"] {
        fs::write(here.path().join(name), packed()).unwrap();
    }
    says(&maestro(here.path(), ["import", "."]).refused(), &["a.json.gz", "b.json.gz", "rank 0"]);
}

#[test]
fn a_step_that_is_not_there() {
    let file = capture("fsdp_large");
    let args = ["import".as_ref(), file.as_os_str(), "--step".as_ref(), "7".as_ref()];
    says(&maestro(folder().path(), args).refused(), &["no step `7`", "ProfilerStep#1, ProfilerStep#2"]);
}

const FRAME: &str = "maestro: 1\nname: t\naxes: {dp: {size: 2}}\nlanes: {main: {}, side: {}}\nblocks:\n";

#[test]
fn unknown_key() {
    let text = format!("{FRAME}  g: {{al_gather: {{size: 8, dtype: f32}}}}\nschedule: []\n");
    let words = ["p.yaml", "line 6, column 7", "unknown key `al_gather`", "did you mean `all_gather`?"];
    says(&check(&text), &words);
}

#[test]
fn cycle() {
    let items = "  - {run: c, lane: main, as: a, after: [b]}\n  - {run: c, lane: side, as: b, after: [a]}\n";
    let text = format!("{FRAME}  c: {{compute: [{{hold: 5us}}]}}\nschedule:\n{items}");
    says(&check(&text), &["p.yaml", "line 8", "cycle: a -> b -> a"]);
}

#[test]
fn missing_block() {
    let text = format!("{FRAME}  c: {{compute: [{{hold: 5us}}]}}\nschedule:\n  - {{run: d, lane: main}}\n");
    says(&check(&text), &["p.yaml", "line 8", "no block is named `d`", "did you mean `c`?"]);
}

#[test]
fn a_team_that_does_not_divide() {
    let schedule = "schedule:\n  - {run: g, on: dp, lane: main}\n";
    let text = format!("{FRAME}  g: {{all_gather: {{size: 10, dtype: f32}}}}\n{schedule}");
    says(&check(&text), &["p.yaml", "line 6", "all_gather of 10 B does not divide into 2 ranks", "nearest size", "8"]);
    let here = folder();
    let pattern = path("fixtures/patterns/allgather_reducescatter.yaml");
    let args = ["check".as_ref(), pattern.as_os_str(), "--axis".as_ref(), "dp=3".as_ref()];
    says(&maestro(here.path(), args).refused(), &["allgather_reducescatter.yaml", "does not divide into 3 ranks"]);
}

#[test]
fn pattern_that_is_no_text() {
    let here = folder();
    fs::write(here.path().join("p.yaml"), [b'm', b'a', 0xff, 0xfe]).unwrap();
    says(&maestro(here.path(), ["check", "p.yaml"]).refused(), &["p.yaml", "byte 2", "UTF-8"]);
}

#[test]
fn unknown_back_end_and_table() {
    let pattern = path("fixtures/patterns/pipeline.yaml");
    let args = ["replay".as_ref(), pattern.as_os_str(), "--backend".as_ref(), "smoke".as_ref()];
    says(&maestro(folder().path(), args).refused(), &["`smoke`", "dry, threads"]);
}

#[test]
fn a_folder_that_holds_other_things_is_not_taken_for_a_run() {
    let here = folder();
    fs::create_dir(here.path().join("mine")).unwrap();
    fs::write(here.path().join("mine/thesis.tex"), "years of work").unwrap();
    let pattern = path("fixtures/patterns/pipeline.yaml");
    let args = ["replay", "--backend", "dry", "-o", "mine"].map(Path::new);
    let sentence = maestro(here.path(), args.into_iter().chain([pattern.as_path()])).refused();
    says(&sentence, &["mine"]);
    assert_eq!(fs::read_to_string(here.path().join("mine/thesis.tex")).unwrap(), "years of work");
}

#[test]
fn an_edited_pattern_is_not_overwritten() {
    let here = folder();
    let file = capture("pp_large");
    let import = || maestro(here.path(), ["import".as_ref(), file.as_os_str()]);
    import().ok();
    import().ok();
    fs::write(here.path().join("pp_large.yaml"), "maestro: 1 # edited").unwrap();
    says(&import().refused(), &["pp_large.yaml", "-o"]);
    assert_eq!(fs::read_to_string(here.path().join("pp_large.yaml")).unwrap(), "maestro: 1 # edited");
}

#[test]
fn wrong_usage_exits_with_2() {
    for args in
        [&["replay"][..], &["replya"], &["report", "x", "--format", "tea"], &["check", "x", "--axis", "dp"], &[]]
    {
        let outcome = maestro(folder().path(), args);
        assert_eq!(outcome.code, 2, "{args:?}: {}", outcome.stderr);
    }
    assert_eq!(maestro(folder().path(), ["--version"]).code, 0);
}
