//! The export command: files that come back as the pattern that they were made of.

use crate::harness::{capture, folder, maestro, path};

#[test]
fn an_export_comes_back_as_the_same_pattern() {
    let room = folder();
    let run = |args: &[&str]| maestro(room.path(), args).ok();
    let source = capture("fsdp_large");
    let source = source.to_str().unwrap();
    run(&["import", source, "-o", "before.yaml", "--name=same"]);
    let told = run(&["export", "before.yaml", "--format=chakra", "-o", "out/step"]);
    assert!(told.contains("100 executions of 21 blocks on 2 ranks as chakra"), "{told}");
    run(&["import", "out", "-o", "after.yaml", "--name=same"]);
    // All but where it came from and what was assumed of that.
    let pattern = |name: &str| {
        let text = std::fs::read_to_string(room.path().join(name)).unwrap();
        let end = text.find("assumed:").unwrap_or(text.len());
        text[..end].lines().filter(|line| !line.starts_with("source:")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(pattern("after.yaml"), pattern("before.yaml"));
    assert!(pattern("before.yaml").len() > 100);
    // Straight from the capture it is the same file.
    run(&["export", source, "--name=same", "-o", "straight/step"]);
    let file = |folder: &str| std::fs::read(room.path().join(folder).join("step.1.et")).unwrap();
    assert_eq!(file("straight"), file("out"));
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let room = folder();
    let refused = |args: &[&str]| maestro(room.path(), args).refused();
    let pattern = path("fixtures/patterns/pipeline.yaml");
    let sentence = refused(&["export", pattern.to_str().unwrap(), "--step", "2"]);
    assert!(sentence.contains("this is a pattern"), "{sentence}");
    let sentence = refused(&["export", "nothing.yaml"]);
    assert!(sentence.contains("nothing.yaml"), "{sentence}");
    assert_eq!(std::fs::read_dir(room.path()).unwrap().count(), 0);
}
