//! Damaged files, read as they mostly are: each kind of damage costs what it hit, and says so.

use super::tests::{SMALL, read_as};
use super::*;

/// What was read, and the notes: kind, count, example.
type Survival = (Result<Vec<Timeline>>, Vec<(&'static str, u64, String)>);

/// Reads `content`, also by helpers, which must not change anything.
fn survive(content: &[u8]) -> Survival {
    let outcomes = [0, 2].map(|helpers| {
        let (outcome, notes) = read_as(content, &Reading { strict: false, helpers });
        let notes: Vec<_> = notes.iter().map(|(kind, note)| (kind, note.count, note.example.clone())).collect();
        (outcome, notes)
    });
    let [one, other] = outcomes;
    let rows = |outcome: &Result<Vec<Timeline>>| match outcome {
        Ok(timelines) => timelines.iter().map(|t| format!("{:?} {:?}", t.activities, t.calls)).collect(),
        Err(error) => error.to_string().split_once(": ").map_or_else(String::new, |(_, problem)| problem.to_owned()),
    };
    assert_eq!(rows(&one.0), rows(&other.0));
    one
}

/// A file of such rows, with a header before and behind them.
fn trace(rows: &[&str]) -> String {
    let head = r#"{"schemaVersion": 1, "distributedInfo": {"rank": 3},"#;
    let tail = r#""traceName": "x", "baseTimeNanoseconds": 1000}"#;
    format!("{head}\n \"traceEvents\": [\n{}\n],\n {tail}\n", rows.join(",\n"))
}

fn kernel(name: &str, ts: u32) -> String {
    let args = r#""args": {"stream": 7}"#;
    format!(r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {ts}, "dur": 5, {args}}}"#)
}

/// What survives of a kernel before, the damage, and two kernels behind: the names of the kernels, and the notes but
/// those that speak of one thing alone.
fn around(damage: &str) -> (Vec<String>, Vec<(&'static str, u64, String)>) {
    let (before, behind, last) = (kernel("before", 10), kernel("behind", 30), kernel("last", 40));
    let (outcome, notes) = survive(trace(&[&before, damage, &behind, &last]).as_bytes());
    let timelines = outcome.unwrap_or_else(|error| panic!("{damage}: {error}"));
    assert_eq!((timelines.len(), timelines[0].rank), (1, Some(3)), "{damage}");
    assert_eq!(timelines[0].activities[0].start_ns, 11_000, "the base behind the events counts: {damage}");
    (timelines[0].activities.iter().map(|activity| activity.name.to_string()).collect(), notes)
}

#[test]
fn words_that_are_no_json_are_null() {
    let words = ["inf", "-inf", "Infinity", "-Infinity", "NaN", "nan", "N/A", "None", "True", "False", "1e", "0x1"];
    for word in words {
        let (names, notes) = around(&kernel("it", 20).replace("{\"stream\"", &format!("{{\"x\": {word}, \"stream\"")));
        assert_eq!(names, ["before", "it", "behind", "last"], "{word}");
        let [(kind, 1, example)] = notes.as_slice() else { panic!("{notes:?}") };
        assert_eq!(*kind, "values that are no JSON (inf, NaN, ...), read as null");
        let byte = trace(&[&kernel("before", 10), ""]).rfind("\n\n]").unwrap()
            + 1
            + kernel("it", 20).find("\"stream\"").unwrap()
            + 5;
        assert!(example.starts_with(&format!("`{word}`, at byte {byte} ")), "{example}");
    }
}

#[test]
fn names_keep_what_should_have_been_escaped() {
    for (raw, name) in [
        (r"C:\Users\x.py", r"C:\Users\x.py"),
        (r"C:\dir\", r"C:\dir\"),
        (r#"foo("bar")baz"#, r#"foo("bar")baz"#),
        (r#"odd " one"#, r#"odd " one"#),
        (r#"braces "{" and "]"#, r#"braces "{" and "]"#),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
    ] {
        let (names, notes) = around(&kernel(raw, 20));
        assert_eq!(names, ["before", name, "behind", "last"]);
        assert!(notes.iter().any(|(kind, ..)| kind.contains("read as")), "{notes:?}");
    }
}

#[test]
fn an_event_beyond_repair_is_lost_alone() {
    let good = kernel("it", 20);
    for bad in [
        good.replace("\"ts\":", "\"ts\""),
        good.replace("{\"ph\"", "{ph"),
        good[..60].to_owned(),
        good[..100].to_owned(),
        good.replace("}}", ""),
        "garbage".to_owned(),
        "garbage } ] { \"".to_owned(),
        good[20..].to_owned(),
        "17".to_owned(),
    ] {
        let (names, notes) = around(&bad);
        let kept: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != "it").collect();
        assert_eq!(kept, ["before", "behind", "last"], "{bad}: {notes:?}");
        assert!(!notes.is_empty());
    }
}

#[test]
fn rows_that_nobody_needs_swallow_none_that_are() {
    for name in [r#"a"b"#, "a\nb", r"a\", r#"x("{")"#, r#"""""#, r#"}, {"#] {
        let row = format!(
            r#"{{"ph": "X", "cat": "python_function", "name": "{name}", "ts": 2, "dur": 1, "args": {{"a": 1}}}}"#
        );
        assert_eq!(around(&row).0, ["before", "behind", "last"], "{name}");
        // Rows on one line, too.
        let one_line =
            trace(&[&kernel("before", 10), &row, &kernel("behind", 30), &kernel("last", 40)]).replace(",\n", ", ");
        assert_eq!(survive(one_line.as_bytes()).0.unwrap()[0].activities.len(), 3, "{name}");
    }
}

#[test]
fn punctuation_is_not_worth_a_row() {
    let rows = [kernel("a", 10), kernel("b", 20), kernel("c", 30)];
    let whole = trace(&rows.each_ref().map(String::as_str));
    for (from, to) in [(",\n{", "\n{"), (",\n{", ",,\n{"), ("\n],", ",\n],"), ("1000}", "1000,}"), ("[\n", "[,\n")] {
        let (outcome, notes) = survive(whole.replace(from, to).as_bytes());
        assert_eq!(outcome.unwrap()[0].activities.len(), 3, "{from} {to}");
        assert!(notes.iter().any(|(kind, ..)| kind.starts_with("commas")), "{from} {to}: {notes:?}");
    }
}

#[test]
fn keys_given_twice_are_taken_once() {
    let (names, notes) = around(&kernel("it", 20).replace("\"dur\": 5", "\"dur\": 5, \"name\": \"last of two\""));
    assert_eq!(names, ["before", "last of two", "behind", "last"]);
    assert_eq!((notes[0].0, notes[0].1), ("rows with a key that occurs twice, the last taken", 1));
}

#[test]
fn numbers_in_quotes_are_numbers() {
    let quoted = kernel("it", 20)
        .replace("\"ts\": 20, \"dur\": 5", "\"ts\": \"20\", \"dur\": \"5\"")
        .replace("\"pid\": 0", "\"pid\": \"0\"");
    assert_eq!(around(&quoted).0, ["before", "it", "behind", "last"]);
}

#[test]
fn bytes_that_are_no_text_cost_nothing() {
    let mut text = trace(&[&kernel("before", 10), &kernel("i?t", 20)]).into_bytes();
    let at = text.iter().position(|byte| *byte == b'?').unwrap();
    text[at] = 0xff;
    let (outcome, notes) = survive(&text);
    assert_eq!(&*outcome.unwrap()[0].activities[1].name, "i\u{fffd}t");
    assert!(notes[0].2.contains(&format!("byte {at} ")), "{notes:?}");
}

#[test]
fn log_text_in_the_metadata_costs_nothing_else() {
    let rows = [kernel("a", 10)];
    let whole = trace(&rows.each_ref().map(String::as_str));
    for log in [
        r#""INFO": ["a "quoted" word", "{"],"#,
        "\"ERROR\": [\"two\nlines\"],",
        r#""ERROR": ["open", "#,
        r#""INFO": ["C:\path\", "b"],"#,
        r#""WARN": [oops],"#,
    ] {
        let before = whole.replacen("\"distributedInfo\"", &format!("{log} \"distributedInfo\""), 1);
        let behind = whole.replacen("\"traceName\"", &format!("{log} \"traceName\""), 1);
        for text in [before, behind] {
            let timelines = survive(text.as_bytes()).0.unwrap_or_else(|error| panic!("{text}: {error}"));
            let activity = &timelines[0].activities[0];
            assert_eq!((timelines[0].rank, activity.start_ns), (Some(3), 11_000), "{text}");
        }
    }
}

#[test]
fn a_trace_cut_anywhere_gives_its_whole_events() {
    let whole = SMALL.trim_end();
    let first = whole.find("[2, 3, 4]}}").unwrap() + 11;
    for length in 1..whole.len() {
        let (outcome, notes) = survive(&whole.as_bytes()[..length]);
        match outcome {
            Ok(timelines) => {
                assert!(length >= first && !timelines[0].activities.is_empty(), "{length}");
                let cut = notes.iter().find(|(kind, ..)| kind.contains("end too early")).map(|(_, _, example)| example);
                assert!(
                    cut.is_some_and(|example| example.contains(&format!("incomplete: cut at byte {length};"))),
                    "{length}: {notes:?}"
                );
            }
            Err(Error::Truncated { byte, .. }) => assert!(byte == length as u64 && length < first, "cut at {length}"),
            Err(error) => panic!("cut at {length}: {error}"),
        }
    }
}

#[test]
fn what_other_processes_wrote_behind_or_between_is_told() {
    let (mine, other) = (trace(&[&kernel("a", 10), &kernel("b", 20)]), trace(&[&kernel("c", 30), &kernel("d", 40)]));
    let (outcome, notes) = survive(format!("{mine}{other}").as_bytes());
    assert_eq!(outcome.unwrap()[0].activities.len(), 2);
    assert!(notes[0].2.contains(&format!("{} bytes from byte {} on", other.len(), mine.len())), "{notes:?}");
    let at = mine.find(",\n{").unwrap() + 30;
    let (outcome, notes) = survive(format!("{}{other}{}", &mine[..at], &mine[at..]).as_bytes());
    assert_eq!(&*outcome.unwrap()[0].activities[0].name, "a");
    assert!(notes.iter().any(|(kind, ..)| kind.contains("go on behind")), "{notes:?}");
}

#[test]
fn an_open_quote_does_not_fill_the_memory() {
    let mut text = trace(&[&kernel("before", 10)]);
    text.truncate(text.find("\n],").unwrap());
    text += ",\n{\"ph\": \"X\", \"name\": \"";
    text += &"x".repeat(17 << 20);
    let (outcome, notes) = survive(text.as_bytes());
    assert_eq!(outcome.unwrap()[0].activities.len(), 1);
    assert!(notes.iter().any(|(_, _, example)| example.contains(&format!("cut at byte {}", text.len()))), "{notes:?}");
}
