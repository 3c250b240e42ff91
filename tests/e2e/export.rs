//! The export command: files that come back as the pattern that they were made of.

use std::ffi::OsStr;

use crate::harness::{capture, folder, maestro, path};

#[test]
fn an_export_comes_back_as_the_same_pattern() {
    let room = folder();
    let run = |args: &[&OsStr]| maestro(room.path(), args.iter().copied()).ok();
    let source = capture("fsdp_large");
    let to = |args: [&str; 3]| args.map(OsStr::new).to_vec();
    run(&[vec!["import".as_ref(), source.as_os_str()], to(["-o", "before.yaml", "--name=same"])].concat());
    let told =
        run(&[vec!["export".as_ref(), "before.yaml".as_ref()], to(["--format=chakra", "-o", "out/step"])].concat());
    assert!(told.contains("100 executions of 21 blocks on 2 ranks as chakra"), "{told}");
    run(&[vec!["import".as_ref(), "out".as_ref()], to(["-o", "after.yaml", "--name=same"])].concat());
    // All but where it came from and what was assumed of that.
    let pattern = |name: &str| {
        let text = std::fs::read_to_string(room.path().join(name)).unwrap();
        let end = text.find("assumed:").unwrap_or(text.len());
        text[..end].lines().filter(|line| !line.starts_with("source:")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(pattern("after.yaml"), pattern("before.yaml"));
    assert!(pattern("before.yaml").len() > 100);
    // Straight from the capture it is the same file.
    run(&[vec!["export".as_ref(), source.as_os_str()], to(["--name=same", "-o", "straight/step"])].concat());
    let file = |folder: &str| std::fs::read(room.path().join(folder).join("step.1.et")).unwrap();
    assert_eq!(file("straight"), file("out"));
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let room = folder();
    let pattern = path("fixtures/patterns/pipeline.yaml");
    let refused = |args: &[&OsStr]| maestro(room.path(), args.iter().copied()).refused();
    let sentence = refused(&["export".as_ref(), pattern.as_os_str(), "--step".as_ref(), "2".as_ref()]);
    assert!(sentence.contains("this is a pattern"), "{sentence}");
    let sentence = refused(&["export".as_ref(), "nothing.yaml".as_ref()]);
    assert!(sentence.contains("nothing.yaml"), "{sentence}");
    assert_eq!(std::fs::read_dir(room.path()).unwrap().count(), 0);
}
