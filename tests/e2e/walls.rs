//! The walls between the rooms of the workspace, read from its manifests and sources.
//!
//! Each wall is a rule in a list below: to move one on purpose, change its line there and say why in
//! `docs/ARCHITECTURE.md`. A rule works on text, so that the tests at the end can plant a violation and see it caught.

mod names;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use names::{Name, names, test_modules};

/// The library crates, each in the folder of its name.
const ROOMS: [&str; 4] = ["pattern", "importers", "replay", "reports"];

/// What a library crate may depend on, beside `maestro-pattern` (which pattern itself may not). Crates for its tests
/// and benches are its own affair, other rooms excepted.
///
/// To let a new crate in, add it to its room's line, if the table of rooms in `docs/ARCHITECTURE.md` allows its kind.
const DEPENDENCIES: [(&str, &[&str]); 4] = [
    ("pattern", &["serde", "serde-saphyr", "strsim", "thiserror"]),
    ("importers", &["flate2", "prost", "rayon", "rusqlite", "serde", "serde_json", "tempfile", "thiserror", "wide"]),
    ("replay", &["bytemuck", "cudarc", "float8", "half", "libloading", "mpi", "ndarray", "thiserror"]),
    (
        "reports",
        &[
            "arrow-array",
            "arrow-ipc",
            "arrow-schema",
            "parquet",
            "polars",
            "prost",
            "rayon",
            "serde",
            "serde-saphyr",
            "serde_json",
            "statrs",
            "thiserror",
        ],
    ),
];

/// Names that a place may not use.
struct Wall {
    /// Files whose paths begin with one of these...
    inside: &'static [&'static str],
    /// ...but with none of these...
    but: &'static [&'static str],
    /// ...may not name any of these.
    forbidden: &'static [&'static str],
    /// The rule, for whoever broke it.
    rule: &'static str,
    /// Whether it also holds for tests, benches and examples.
    everywhere: bool,
}

const LIBRARIES: &[&str] = &["pattern/", "importers/", "replay/", "reports/"];

const WALLS: &[Wall] = &[
    Wall {
        inside: &["pattern/"],
        but: &[],
        forbidden: &["std::fs", "std::net", "std::path", "std::env", "std::process", "std::io", "File"],
        rule: "pattern/ takes text and gives text: it opens no file",
        everywhere: false,
    },
    Wall {
        inside: &["pattern/"],
        but: &[],
        forbidden: &["std::thread", "std::time", "std::sync::Mutex", "std::sync::mpsc", "Instant", "SystemTime"],
        rule: "pattern/ starts no thread and reads no clock",
        everywhere: false,
    },
    Wall {
        inside: LIBRARIES,
        but: &[],
        forbidden: &["print!", "println!", "eprint!", "eprintln!", "dbg!", "io::stdout", "io::stderr"],
        rule: "a library prints nothing: it returns errors and notes, and src/ prints them",
        everywhere: false,
    },
    Wall {
        inside: &["pattern/", "importers/", "replay/", "reports/", "src/"],
        but: &["src/main.rs"],
        forbidden: &["process::exit", "process::abort"],
        rule: "nothing below src/main.rs ends the process",
        everywhere: false,
    },
    Wall {
        inside: &["importers/", "replay/"],
        but: &[],
        forbidden: &[
            "fs::write",
            "fs::copy",
            "fs::rename",
            "fs::remove_file",
            "fs::remove_dir_all",
            "fs::create_dir",
            "fs::create_dir_all",
            "fs::OpenOptions",
            "OpenOptions",
            "File::create",
            "File::create_new",
            "File::options",
        ],
        rule: "importers/ and replay/ write no files: src/ writes patterns and reports/ writes run folders",
        everywhere: false,
    },
    Wall {
        inside: &["replay/"],
        but: &[],
        forbidden: &["from_yaml", "to_yaml"],
        rule: "replay/ is given a Plan and reads no YAML",
        everywhere: false,
    },
    Wall {
        inside: &["replay/src/executor.rs"],
        but: &[],
        forbidden: &["std::time", "Instant", "Work"],
        rule: "the loop that runs programs has no clock and looks into no block: time and work are the endpoint's",
        everywhere: false,
    },
    Wall {
        inside: &["reports/"],
        but: &[],
        forbidden: &["std::process", "Command", "thread::spawn", "thread::scope"],
        rule: "reports/ runs nothing",
        everywhere: false,
    },
    Wall {
        inside: &["pattern/", "importers/", "reports/"],
        but: &[],
        forbidden: &["Backend", "BACKENDS", "Endpoint"],
        rule: "only replay/ and src/ know back ends",
        everywhere: true,
    },
    Wall {
        inside: &["importers/src/"],
        but: &["importers/src/synthesis/", "importers/src/lib.rs"],
        forbidden: &["synthesis"],
        rule: "an importer reads one format and knows nothing of what is made of it",
        everywhere: false,
    },
    Wall {
        inside: LIBRARIES,
        but: &[],
        forbidden: &["maestro_importers", "maestro_replay", "maestro_reports"],
        rule: "rooms do not meet: what crosses a wall is a Pattern, a Plan or a Measurement",
        // Their own tests and benches name their own crate.
        everywhere: false,
    },
    Wall {
        inside: &["pattern/", "importers/", "replay/", "src/", "tests/"],
        but: &[],
        forbidden: &["polars"],
        rule: "only reports/ names Polars, which takes longer to build than everything else together",
        everywhere: true,
    },
    Wall {
        inside: &["importers/", "replay/", "reports/", "src/", "tests/"],
        // Rules of a gate are YAML, too, and no pattern.
        but: &["reports/src/diff/gate/rules.rs"],
        forbidden: &["serde_saphyr"],
        rule: "only pattern/ knows which YAML crate reads patterns",
        everywhere: true,
    },
    Wall {
        inside: LIBRARIES,
        but: &[],
        forbidden: &["anyhow", "clap", "indicatif"],
        rule: "a library has an error enum of its own and talks to no person: anyhow, clap and indicatif are src/'s",
        everywhere: true,
    },
];

/// What importers/ may name of maestro_pattern outside its synthesis/ and export/: the words for what a GPU did, none
/// for what a pattern is made of.
const CAPTURE_WORDS: [&str; 7] =
    ["CollectiveKind", "CopyDirection", "Direction", "Dtype", "GemmLayout", "MOST_RANKS", "ReduceOp"];

/// A source file of the workspace.
struct Source {
    /// Its path from the root, with `/`.
    path: String,
    text: String,
    /// Whether it is compiled for tests, benches or examples alone.
    aside: bool,
}

impl Source {
    /// What stands at a planted violation, too: the path says where the text would be.
    fn product(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into(), aside: false }
    }

    fn begins_with(&self, any: &[&str]) -> bool {
        any.iter().any(|start| self.path.starts_with(start))
    }
}

/// Violations of `walls` in `source`, a sentence each.
fn broken_walls(source: &Source) -> Vec<String> {
    let named = names(&source.text);
    let mut broken = Vec::new();
    for wall in WALLS {
        if !source.begins_with(wall.inside) || source.begins_with(wall.but) || (source.aside && !wall.everywhere) {
            continue;
        }
        let wrong = named.iter().filter(|name| wall.forbidden.iter().any(|word| name.holds(word)));
        broken.extend(wrong.map(|name| sentence(source, name, wall.rule)));
    }
    broken
}

/// `unsafe` is for one FFI file a native library, under replay/, and nowhere else, tests included.
fn stray_unsafe(source: &Source) -> Vec<String> {
    let file = source.path.ends_with("/ffi.rs") || source.path.contains("/ffi/");
    if source.path.starts_with("replay/src/") && file {
        return Vec::new();
    }
    // Also what is only compiled for tests: names() leaves it out, so it is looked at as text without its `cfg`.
    let text = source.text.replace("#[cfg(test)]", "");
    names(&text)
        .iter()
        .filter(|name| name.path == "unsafe")
        .map(|name| sentence(source, name, "unsafe belongs in an ffi.rs, or a folder ffi/, under replay/src/"))
        .collect()
}

/// Where importers/ may name all of maestro_pattern: what makes patterns, and what writes plans in other formats.
const PATTERN_MAKERS: [&str; 2] = ["importers/src/synthesis/", "importers/src/export/"];

/// Outside of these, importers/ names of maestro_pattern only the words of a capture.
fn importer_names_pattern(source: &Source) -> Vec<String> {
    if source.aside || !source.begins_with(&["importers/src/"]) || source.begins_with(&PATTERN_MAKERS) {
        return Vec::new();
    }
    names(&source.text)
        .iter()
        .filter(|name| {
            let mut path = name.path.split("::").skip_while(|segment| *segment != "maestro_pattern");
            path.next().is_some() && path.next().is_none_or(|word| !CAPTURE_WORDS.contains(&word))
        })
        .map(|name| {
            sentence(
                source,
                name,
                "only synthesis/ makes patterns and only export/ takes plans; a capture has words of its own",
            )
        })
        .collect()
}

fn sentence(source: &Source, name: &Name, rule: &str) -> String {
    format!("{}:{}: names `{}`; {rule}", source.path, name.line, name.path)
}

/// Violations in the manifests, given as `cargo metadata` tells them: siblings that meet, and crates that a room may
/// not use.
fn broken_manifests(metadata: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let room = name.strip_prefix("maestro-").unwrap_or(name);
        let allowed = DEPENDENCIES.iter().find(|(this, _)| *this == room).map(|(_, allowed)| *allowed);
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let other = dependency["name"].as_str().unwrap_or_default();
            let ours = other == "maestro" || other.starts_with("maestro-");
            let for_product = dependency["kind"].as_str() != Some("dev");
            match allowed {
                // The root may know every room, but how a table is computed is the business of reports/ alone.
                None if other == "polars" => {
                    broken.push(format!("{name} depends on {other}; only reports/ may"));
                }
                None => {}
                Some(_) if other == "maestro-pattern" && room != "pattern" => {}
                Some(_) if ours => broken.push(format!("{name} depends on {other}; rooms do not meet")),
                Some(allowed) if for_product && !allowed.contains(&other) => broken.push(format!(
                    "{name} depends on {other}; a room's crates are listed in DEPENDENCIES of tests/e2e/walls.rs"
                )),
                Some(_) => {}
            }
        }
    }
    broken
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every source file of the workspace.
fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    for folder in ROOMS.into_iter().chain(["src", "tests"]) {
        collect(&root().join(folder), &mut files);
    }
    files.sort();
    let texts: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let for_tests: Vec<PathBuf> = files.iter().zip(&texts).flat_map(|(file, text)| test_files(file, text)).collect();
    files
        .into_iter()
        .zip(texts)
        .map(|(file, text)| {
            let path = file.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            let aside = for_tests.iter().any(|start| file.with_extension("").starts_with(start))
                || path.split('/').any(|part| ["tests", "benches", "examples"].contains(&part));
            Source { path, text, aside }
        })
        .collect()
}

/// The files (without extension) and folders of the modules that `file` declares for tests alone.
fn test_files(file: &Path, text: &str) -> Vec<PathBuf> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let folder = if ["mod", "lib", "main"].contains(&stem) { file.with_file_name("") } else { file.with_extension("") };
    test_modules(text).into_iter().map(|module| folder.join(module)).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn metadata() -> Value {
    let arguments = ["metadata", "--no-deps", "--format-version=1", "--offline"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_wall_stands() {
    let sources = sources();
    for room in ROOMS {
        let count = sources.iter().filter(|s| !s.aside && s.path.starts_with(&format!("{room}/src/"))).count();
        assert!(count > 5, "only {count} sources found in {room}/");
    }
    let mut broken = broken_manifests(&metadata());
    for source in &sources {
        broken.extend(broken_walls(source));
        broken.extend(stray_unsafe(source));
        broken.extend(importer_names_pattern(source));
    }
    assert!(broken.is_empty(), "broken walls:\n{}", broken.join("\n"));
}

#[test]
fn every_room_has_its_list_of_crates_and_is_a_member() {
    let metadata = metadata();
    let packages: Vec<&str> =
        metadata["packages"].as_array().unwrap().iter().filter_map(|package| package["name"].as_str()).collect();
    for room in ROOMS {
        assert!(packages.contains(&format!("maestro-{room}").as_str()), "{room} is no member");
        assert!(DEPENDENCIES.iter().any(|(this, _)| *this == room), "{room} has no list");
    }
    assert_eq!(packages.len(), ROOMS.len() + 1, "a room without walls: {packages:?}");
}

#[test]
fn a_forbidden_name_is_caught_in_the_room_that_forbids_it() {
    for (path, text, word) in [
        ("pattern/src/x.rs", "use std::{fmt, fs};", "`std::fs`"),
        ("pattern/src/x.rs", "fn f() { std::thread::yield_now() }", "`std::thread::yield_now`"),
        ("pattern/src/x.rs", "use std::time::Duration;", "`std::time::Duration`"),
        ("pattern/src/x.rs", "fn f() { println!(\"x\") }", "`println!`"),
        ("importers/src/kineto/x.rs", "fn f() { eprintln!(\"x\") }", "`eprintln!`"),
        ("importers/src/x.rs", "use std::fs::OpenOptions;", "`std::fs::OpenOptions`"),
        ("importers/src/kineto/x.rs", "use crate::synthesis::steps;", "`crate::synthesis::steps`"),
        ("replay/src/x.rs", "use std::fs; fn f() { fs::write(a, b) }", "`fs::write`"),
        ("replay/src/x.rs", "fn f() { dbg!(1); }", "`dbg!`"),
        ("replay/src/x.rs", "fn f() { Pattern::from_yaml(text) }", "`Pattern::from_yaml`"),
        ("replay/src/executor.rs", "use std::time::Instant;", "`std::time::Instant`"),
        ("reports/src/x.rs", "use std::process::Command;", "`std::process::Command`"),
        ("reports/src/x.rs", "fn f(x: &dyn Backend) {}", "`Backend`"),
        ("reports/src/x.rs", "fn f() { std::process::exit(1) }", "`std::process::exit`"),
        ("reports/src/x.rs", "use maestro_replay::Settings;", "`maestro_replay::Settings`"),
        ("src/commands/x.rs", "use std::process; fn f() { process::exit(1) }", "`process::exit`"),
        ("src/commands/x.rs", "use polars::prelude::*;", "`polars::prelude::*`"),
        ("importers/src/x.rs", "use anyhow::Context;", "`anyhow::Context`"),
        ("src/x.rs", "fn f() { serde_saphyr::from_str(x) }", "`serde_saphyr::from_str`"),
    ] {
        let broken = broken_walls(&Source::product(path, text));
        assert!(broken.iter().any(|broken| broken.contains(word)), "{path}: {text}: {broken:?}");
    }
}

#[test]
fn the_same_names_are_free_elsewhere() {
    for (path, text) in [
        ("src/main.rs", "fn main() { std::process::exit(1) }"),
        ("src/output.rs", "fn f() { println!(\"x\") }"),
        ("replay/src/host/x.rs", "use std::{fs, thread, time::Instant}; fn f() { fs::read_to_string(a) }"),
        ("reports/src/x.rs", "use polars::prelude::*; use std::fs::File; fn f() { File::create(a) }"),
        ("pattern/src/x.rs", "/// Opens no std::fs.\n#[cfg(test)]\nmod tests { use std::fs; }"),
    ] {
        assert_eq!(broken_walls(&Source::product(path, text)), [""; 0], "{path}");
    }
    let bench = Source { aside: true, ..Source::product("replay/benches/x.rs", "fn main() { println!(\"x\") }") };
    assert_eq!(broken_walls(&bench), [""; 0]);
    let bench = Source { aside: true, ..Source::product("replay/benches/x.rs", "use polars::prelude::*;") };
    assert_eq!(broken_walls(&bench).len(), 1);
}

#[test]
fn unsafe_is_caught_everywhere_but_in_ffi_files() {
    let text = "fn f() { unsafe { g() } }";
    for path in ["pattern/src/x.rs", "replay/src/threads/mod.rs", "reports/src/ffi.rs", "src/ffi/x.rs"] {
        assert_eq!(stray_unsafe(&Source::product(path, text)).len(), 1, "{path}");
    }
    for path in ["replay/src/mpi/ffi.rs", "replay/src/nccl/ffi/cuda.rs"] {
        assert_eq!(stray_unsafe(&Source::product(path, text)), [""; 0]);
    }
    assert_eq!(stray_unsafe(&Source::product("src/x.rs", "// unsafe\nconst A: &str = \"unsafe\";")), [""; 0]);
    assert_eq!(stray_unsafe(&Source::product("src/x.rs", "#[cfg(test)] mod tests { unsafe fn f() {} }")).len(), 1);
}

#[test]
fn a_pattern_outside_synthesis_is_caught() {
    for text in [
        "use maestro_pattern::Pattern;",
        "use maestro_pattern::{Dtype, Plan};",
        "fn f(x: &maestro_pattern::Measurement) {}",
        "use maestro_pattern::*;",
        "use maestro_pattern as p;",
    ] {
        assert_eq!(importer_names_pattern(&Source::product("importers/src/capture.rs", text)).len(), 1, "{text}");
        assert_eq!(importer_names_pattern(&Source::product("importers/src/chakra/graph.rs", text)).len(), 1, "{text}");
        assert_eq!(importer_names_pattern(&Source::product("importers/src/synthesis/emit.rs", text)), [""; 0]);
        assert_eq!(importer_names_pattern(&Source::product("importers/src/export/chakra.rs", text)), [""; 0]);
    }
    let words = "use maestro_pattern::{CollectiveKind, Dtype};";
    assert_eq!(importer_names_pattern(&Source::product("importers/src/kineto/comm.rs", words)), [""; 0]);
}

#[test]
fn a_wrong_dependency_is_caught() {
    let depends = |package: &str, other: &str, kind: Option<&str>| {
        broken_manifests(&serde_json::json!({
            "packages": [{"name": package, "dependencies": [{"name": other, "kind": kind}]}]
        }))
    };
    for (package, other, kind) in [
        ("maestro-importers", "maestro-replay", None),
        ("maestro-replay", "maestro-importers", Some("dev")),
        ("maestro-reports", "maestro", None),
        ("maestro-pattern", "maestro-pattern", Some("dev")),
        ("maestro-pattern", "rayon", None),
        ("maestro-replay", "polars", None),
        ("maestro-importers", "serde_json5", Some("build")),
        ("maestro", "polars", None),
    ] {
        assert_eq!(depends(package, other, kind).len(), 1, "{package} on {other}");
    }
    for (package, other, kind) in [
        ("maestro-importers", "maestro-pattern", None),
        ("maestro-reports", "polars", None),
        ("maestro-replay", "criterion", Some("dev")),
        ("maestro", "maestro-replay", None),
        ("maestro", "clap", None),
    ] {
        assert_eq!(depends(package, other, kind), [""; 0], "{package} on {other}");
    }
}

#[test]
fn files_of_test_modules_are_known() {
    let text = "#[cfg(test)]\nmod tests;";
    assert_eq!(test_files(Path::new("a/src/mod.rs"), text), [Path::new("a/src/tests")]);
    assert_eq!(test_files(Path::new("a/src/dry.rs"), text), [Path::new("a/src/dry/tests")]);
}
