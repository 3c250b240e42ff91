//! Pattern text: what is written reads back, what is wrong is refused with its place and the nearest right name.

use maestro_pattern::{GemmLayout, Kernel, Pattern, Plan, Work};

/// Every key that the format has.
const EVERYTHING: &str = r#"maestro: 1
name: everything
source: {format: kineto, files: 2, step: ProfilerStep#2, step_us: 190658.123, device: NVIDIA H200}
axes:
  dp: {size: 2, max_ctas: 8, cga_cluster_size: 2, split_share: true, traffic_class: 3, algorithm: Ring, nvls: false}
  ep: {teams: [[0, 3], [1, 2]]}
  pp: {size: 2}
blocks:
  gather: {all_gather: {size: 4MiB, dtype: bf16}, captured: 62.5us}
  reduce: {reduce: {size: 800, dtype: f32, op: max, root: 1}}
  route: {all_to_all: {size: 20, dtype: f32, splits: [[1, 3], [1, 2]]}}
  meet: {barrier: {}}
  lost: {all_reduce: {size: unknown, dtype: f32}}
  hand_over:
    p2p:
      - {send: {to: 1, size: 32MiB, dtype: bf16}}
      - {recv: {from: -1, size: 32MiB, dtype: bf16}}
    wrap: true
  fused: {group: [{all_reduce: {size: 1KiB, dtype: f16}}, {broadcast: {size: 2KiB, dtype: i64}}]}
  layer:
    compute:
      - {gemm: {m: 16384, n: 4096, k: 4096, dtype: bf16}, times: 4}
      - {gemm: {m: 64, n: 64, k: 64, batch: 12, dtype: f32, layout: tn}}
      - {memory: 1200000000}
      - {memory: 1KiB, lasts: 35us, times: 3}
      - {hold: 35us, sms: 132}
      - {copy: {d2d: 1KiB}, times: 2}
      - {set: 4KiB}
    captured: 8120us
    idle: 20us
    skew: [1, 0.98, 1.02, 1]
  gathered: {all_gather: {size: 4MiB, dtype: bf16, in_place: true}}
  upload: {copy: {h2d: 64KiB}}
  clear: {set: 1MiB}
  mine: {kernel: {source: mine.cu, entry: mine, grid: [132, 1, 1], threads: [256, 1, 1]}}
lanes:
  main: {}
  comm: {priority: high, min_ctas: 2, protocol: LL128, sharp: true}
motifs:
  forward:
    - {run: gather, on: dp, lane: comm, as: g}
    - {host: 42us}
    - {run: layer, lane: main, after: [g, "g[-1]"]}
schedule:
  - {repeat: 4, do: forward}
  - {do: forward, when: {pp: last}}
  - repeat: 2
    when: {dp: not first, pp: [0, 1]}
    do:
      - {run: upload, lane: main}
      - {wait: upload}
  - {wait: [g, "layer[-2]"]}
host_skew: [1.05, 0.95]
assumed:
  - {what: "splits of 4 all-to-alls taken as even", confidence: low, blocks: [route]}
  - {what: "reductions taken as sums", confidence: high}
"#;

#[test]
fn the_canonical_text_reads_back_to_the_byte() {
    let pattern = Pattern::from_yaml(EVERYTHING).unwrap();
    assert_eq!(pattern.to_yaml(), EVERYTHING);
    assert_eq!(Pattern::from_yaml(&pattern.to_yaml()).unwrap(), pattern);
}

#[test]
fn products_keep_their_layout_and_nn_is_not_written() {
    let with = |layout: &str| {
        let gemm = format!("{{gemm: {{m: 2, n: 3, k: 4, dtype: bf16{layout}}}}}");
        let text = format!(
            "maestro: 1\nname: x\nblocks:\n  c: {{compute: [{gemm}]}}\nlanes: {{main: {{}}}}\nschedule:\n  - {{run: c}}\n"
        );
        Pattern::from_yaml(&text).unwrap_or_else(|error| panic!("{layout}: {error}"))
    };
    for layout in GemmLayout::ALL {
        let pattern = with(&format!(", layout: {}", layout.name()));
        let Work::Compute(kernels) = &pattern.blocks[0].work else { panic!("{pattern:?}") };
        assert!(matches!(kernels[..], [Kernel::Gemm { layout: read, .. }] if read == layout), "{kernels:?}");
        let again = pattern.to_yaml();
        assert_eq!(again.contains("layout"), layout != GemmLayout::Nn);
        assert_eq!(Pattern::from_yaml(&again).unwrap().blocks[0].work, pattern.blocks[0].work);
        // Equal shapes in other layouts are other work.
        assert_eq!(pattern.blocks[0].work == with("").blocks[0].work, layout == GemmLayout::Nn);
    }
}

#[test]
fn roles_read_back_to_the_byte() {
    let text = "maestro: 1
name: two stages
axes:
  pp: {size: 2}
blocks:
  clear: {set: 1MiB}
lanes:
  main: {}
roles:
  head:
    when: {pp: first}
    schedule:
      - {run: clear}
  tail:
    when: {pp: 1}
    schedule:
      - {host: 3ns}
      - {run: clear}
";
    assert_eq!(Pattern::from_yaml(text).unwrap().to_yaml(), text);
}

#[test]
fn names_that_yaml_would_misread_are_quoted() {
    for name in [
        "yes",
        "1.5",
        "a: b",
        "with \"quotes\"",
        "tab\there",
        "null",
        " lead",
        "x #y",
        "",
        "[a]",
        "inf",
        "~",
        "\u{feff}x",
        "a\u{2028}b\u{85}",
        "a:",
    ] {
        let mut pattern = Pattern::from_yaml(EVERYTHING).unwrap();
        pattern.name = name.to_owned();
        assert_eq!(Pattern::from_yaml(&pattern.to_yaml()).unwrap().name, name);
    }
}

/// A pattern that is right but for one line.
fn with(section: &str, line: &str) -> String {
    let mut text = String::from("maestro: 1\nname: t\naxes: {dp: {size: 3}}\n");
    for (name, right) in [
        ("blocks", "  g: {all_gather: {size: 12, dtype: f32}}\n  c: {compute: [{hold: 5us}]}\n"),
        ("lanes", "  main: {}\n  side: {}\n"),
        ("motifs", "  m: [{run: c, lane: main}]\n"),
        ("schedule", "  - {run: g, on: dp, lane: side}\n  - {do: m}\n"),
    ] {
        text.push_str(&format!("{name}:\n{right}"));
        if name == section {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

/// The error of a pattern that is wrong in one line.
fn error(section: &str, line: &str) -> String {
    let text = with(section, line);
    let error = match Pattern::from_yaml(&text) {
        Err(error) => error,
        Ok(pattern) => Plan::new(&pattern, &[]).map(|_| ()).expect_err(line),
    };
    let place = error.place.position();
    let expected = text.lines().position(|l| l.trim() == line).map(|n| n as u32 + 1);
    assert_eq!(place.map(|(line, _)| line), expected, "{error}");
    error.to_string()
}

#[test]
fn the_frame_is_right() {
    let pattern = Pattern::from_yaml(&with("", "")).unwrap();
    assert_eq!(Plan::new(&pattern, &[]).unwrap().world.size(), 3);
}

#[test]
fn errors_name_the_place_and_the_nearest_right_name() {
    for (section, line, words) in [
        (
            "blocks",
            "x: {al_gather: {size: 12, dtype: f32}}",
            &["unknown key `al_gather`", "did you mean `all_gather`?"][..],
        ),
        ("blocks", "x: {all_gather: {size: 12, dtype: fp32}}", &["cannot be `fp32`", "did you mean `f32`?"]),
        ("blocks", "x: {all_gather: {size: lots, dtype: f32}}", &["`lots`", "64MiB"]),
        ("blocks", "x: {all_gather: {dtype: f32}}", &["lacks `size`"]),
        ("blocks", "x: {all_gather: {size: 12, dtype: f32, op: sum}}", &["unknown key `op`"]),
        ("blocks", "x: {barrier: {}, compute: []}", &["has both `barrier` and `compute`"]),
        ("blocks", "x: {captured: 5us}", &["does nothing"]),
        ("blocks", "x: {set: 4, wrap: true}", &["wrap belongs to p2p"]),
        ("blocks", "x: {compute: [{hold: 5 parsecs}]}", &["`5 parsecs`", "42us"]),
        ("blocks", "x: {all_gather: {size: 9007199254740993, dtype: f32}}", &["at most 1024TiB"]),
        ("blocks", "x: {compute: [{hold: 5us, times: 0}]}", &["from 1 to"]),
        ("blocks", "x: {compute: [{hold: 340282366920938463463.999999999999999999ns}]}", &["at most 104 days"]),
        (
            "blocks",
            "x: {compute: [{gemm: {m: 1, n: 1, k: 1, dtype: f32, layout: ntt}}]}",
            &["layout of gemm of block `x` cannot be `ntt`", "did you mean `nt`?"],
        ),
        ("lanes", "x: {priority: hihg}", &["cannot be `hihg`", "did you mean `high`?"]),
        ("schedule", "- {run: gg, on: dp, lane: side}", &["no block is named `gg`", "did you mean `g`?"]),
        ("schedule", "- {run: g, on: pd, lane: side}", &["no axis is named `pd`", "did you mean `dp`?"]),
        ("schedule", "- {run: g, lane: side}", &["needs an axis"]),
        ("schedule", "- {run: c, on: dp, lane: side}", &["needs no axis"]),
        ("schedule", "- {run: c, lane: sde}", &["no lane is named `sde`", "did you mean `side`?"]),
        ("schedule", "- {run: c}", &["runs on no lane", "main, side"]),
        ("schedule", "- {run: c, lane: main, after: [h]}", &["nothing is labelled `h`"]),
        ("schedule", "- {run: c, lane: main, as: x, after: [x]}", &["cycle", "x -> x"]),
        ("schedule", "- {do: mm}", &["no motif is named `mm`", "did you mean `m`?"]),
        ("schedule", "- {repeat: 4}", &["repeats nothing"]),
        ("schedule", "- {wait: g, run: c}", &["has both"]),
        ("schedule", "- {host: 3us, lane: main}", &["`lane` belongs to run"]),
        ("schedule", "- {do: m, when: {dp: frist}}", &["`frist`", "did you mean `first`?"]),
        ("schedule", "- {do: m, when: {tp: first}}", &["no axis is named `tp`"]),
        ("motifs", "n: [{do: n}]", &["motifs go in a cycle: n -> n"]),
    ] {
        let error = error(section, line);
        for word in words {
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}

#[test]
fn an_assumption_is_about_blocks_that_are_there() {
    let text = with("", "") + "assumed:\n  - {what: x, confidence: low, blocks: [g, gg]}\n";
    let error = Pattern::from_yaml(&text).unwrap_err();
    let line = text.lines().count() as u32;
    assert_eq!(error.place.position().map(|(line, _)| line), Some(line), "{error}");
    assert!(error.to_string().contains("no block is named `gg`") && error.to_string().contains("did you mean `g`?"));
}

/// A small generator of pseudo-random numbers (Marsaglia's xorshift64).
fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

#[test]
fn any_damage_gives_a_plan_or_an_error() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let bytes = EVERYTHING.as_bytes();
    let other = b"0123456789-[]{}:,# \n\t\"'&*!x";
    let mut refused = 0;
    for _ in 0..3_000 {
        let mut text = bytes.to_vec();
        for _ in 0..=random(&mut state) % 3 {
            let at = random(&mut state) % text.len();
            match random(&mut state) % 3 {
                0 => text[at] = other[random(&mut state) % other.len()],
                1 => drop(text.remove(at)),
                _ => text.insert(at, other[random(&mut state) % other.len()]),
            }
        }
        let text = String::from_utf8(text).unwrap();
        let outcome = Pattern::from_yaml(&text).and_then(|pattern| Plan::new(&pattern, &[]).map(|_| ()));
        refused += usize::from(outcome.is_err());
    }
    assert!(refused > 1_000, "damage that nobody sees: {refused} of 3000 refused");
}

#[test]
fn two_items_that_wait_for_each_other_are_a_cycle() {
    let text =
        with("schedule", "- {run: c, lane: main, as: x, after: [y]}\n  - {run: c, lane: side, as: y, after: [x]}");
    let error = Plan::new(&Pattern::from_yaml(&text).unwrap(), &[]).unwrap_err().to_string();
    assert!(error.contains("cycle: x -> y -> x"), "{error}");
}

#[test]
fn text_that_is_no_pattern_says_so() {
    for (text, words) in [
        ("", "lacks `maestro`"),
        ("- 1\n- 2\n", "must be a map"),
        ("name: x\n", "begins with maestro: 1"),
        ("maestro: 2\nnew_key: 1\n", "reads version 1"),
        ("maestro: 1\nname: x\n", "neither a schedule nor roles"),
        ("maestro: 1\nname: x\nschedule: []\nroles: {}\n", "both a schedule and roles"),
        ("maestro: 1\nname: [x\n", "line "),
        ("maestro: 1\nname: x\nname: y\nschedule: []\n", "line 3"),
        ("maestro: 1\n---\nname: x\n", "a second YAML document"),
        ("maestro: 1\nname: x\naxes: {3d: {size: 1}}\nschedule: []\n", "cannot be named `3d`"),
    ] {
        let error = Pattern::from_yaml(text).unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{text:?}: {error}");
    }
}

/// A pattern in which everything that has a name is called `name`.
fn all_named(name: &str) -> String {
    let name = format!("\"{name}\"");
    let back = name.replace("\"", "");
    format!(
        "maestro: 1
name: t
axes: {{{name}: {{size: 2}}}}
blocks: {{{name}: {{all_gather: {{size: 8, dtype: f32}}}}}}
lanes: {{{name}: {{}}}}
motifs:
  {name}: [{{run: {name}, on: {name}, lane: {name}, as: {name}, after: [\"{back}[-1]\"]}}]
roles:
  {name}: {{when: {{{name}: [0, 1]}}, schedule: [{{do: {name}}}, {{wait: [{name}, {name}]}}, {{host: 1us, when: {{{name}: 1}}}}]}}
"
    )
}

#[test]
fn every_name_that_is_accepted_reads_back() {
    let mut names: Vec<String> = [
        "true", "True", "FALSE", "null", "Null", "NULL", "~", "a:", "a::", ":", ":a", "::", "a:b", "a:/b", "/", "//a",
        "/a", "_", "__", "_1", "_1.5", "_-", "yes", "no", "on", "off", "y", "n", "inf", "Inf", "nan", "NaN",
        "infinity", "e5", "x1e5", "0x1", "1", "-", "-a", ".", "..", ".inf", ".nan", "---", "...", "a-", "a.", "a/",
        "a-b", "a.b", "é", "日本", "٣", "²", "first", "last", "unknown", "when", "do", "run", "null.", "true-",
        "true/", "a b", "", " a", "a ", "#", "a#", "<<", "=", "@", "*a", "&a", "!a", "|", ">", "%", "?", "[a]", "{a}",
        "a,b", "a[-1]", "'a'",
    ]
    .map(str::to_owned)
    .to_vec();
    let parts = ["a", "Z", "_", "-", ".", "/", ":", "0", "7", "true", "null", "é", "~", "e", "x", "#", " "];
    let mut state = 0x2545_f491_4f6c_dd1d;
    for _ in 0..1_000 {
        let length = 1 + random(&mut state) % 4;
        names.push((0..length).map(|_| parts[random(&mut state) % parts.len()]).collect());
    }
    let mut accepted = 0;
    for name in &names {
        match Pattern::from_yaml(&all_named(name)) {
            Err(error) => {
                assert!(error.to_string().contains(&format!("cannot be named `{name}`")), "{name:?}: {error}")
            }
            Ok(pattern) => {
                accepted += 1;
                assert_eq!(pattern.blocks[0].name, *name);
                let text = pattern.to_yaml();
                let again = Pattern::from_yaml(&text).unwrap_or_else(|error| panic!("{name:?}: {error}\n{text}"));
                assert_eq!(again, pattern, "{text}");
                assert_eq!(again.to_yaml(), text);
            }
        }
    }
    assert!(accepted > 300 && accepted < names.len(), "{accepted} of {}", names.len());
}

#[test]
fn names_of_patterns_made_in_memory_are_checked_too() {
    let mut pattern = Pattern::from_yaml(&with("", "")).unwrap();
    pattern.lanes[1].name = "null".to_owned();
    let error = Plan::new(&pattern, &[]).unwrap_err().to_string();
    assert!(error.contains("lane cannot be named `null`; YAML takes this word for a value"), "{error}");
}

#[test]
fn large_patterns_are_read_and_alias_bombs_are_not() {
    // 512 ranks, each of which sends one element to every other.
    let row = format!("[{}]", vec!["1"; 512].join(", "));
    let splits = vec![row.as_str(); 512].join(", ");
    let text = format!(
        "maestro: 1\nname: t\naxes: {{ep: {{size: 512}}}}\nblocks:\n  a: {{all_to_all: {{size: 2KiB, dtype: f32, splits: [{splits}]}}}}
lanes: {{main: {{}}}}\nschedule: [{{run: a, on: ep}}]\n"
    );
    assert_eq!(Plan::new(&Pattern::from_yaml(&text).unwrap(), &[]).unwrap().communicators.len(), 1);

    let mut bomb = String::from("maestro: 1\na0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n");
    for i in 1..9 {
        let row = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{row}]\n"));
    }
    let error = Pattern::from_yaml(&bomb).unwrap_err().to_string();
    assert!(error.contains("aliases (`*x`) of this text stand for too many values"), "{error}");

    let deep = format!("maestro: 1\nschedule: {}{}\n", "[".repeat(100), "]".repeat(100));
    let error = Pattern::from_yaml(&deep).unwrap_err().to_string();
    assert!(error.contains("lists and maps nest more than 40 deep"), "{error}");

    // One list of factors may serve every block.
    let blocks: String = (0..200).map(|i| format!("  b{i}: {{compute: [{{hold: 1us}}], skew: *s}}\n")).collect();
    let shared = format!(
        "maestro: 1\nname: t\naxes: {{dp: {{size: 2}}}}\nblocks:\n  b: {{compute: [], skew: &s [1, 2]}}\n{blocks}lanes: {{main: {{}}}}\nschedule: [{{run: b7}}]\n"
    );
    assert_eq!(Pattern::from_yaml(&shared).unwrap().blocks[7].skew, [1.0, 2.0]);
}

#[test]
fn references_without_quotes_are_recognised() {
    for (line, reference) in [
        ("- {run: c, lane: main, after: [c[-1]]}", "c[-1]"),
        ("- {run: c, lane: main, after: [\"c[-1]\", x.y[-12]]}", "x.y[-12]"),
        ("- {wait: c[-1]}", "c[-1]"),
    ] {
        let error = error("schedule", line);
        assert!(error.ends_with(&format!("if {reference} is a reference, quote it: \"{reference}\"")), "{error}");
    }
    let error = Pattern::from_yaml("maestro: 1\nx: [-1, [-2\n").unwrap_err().to_string();
    assert!(!error.contains("reference"), "{error}");
}
