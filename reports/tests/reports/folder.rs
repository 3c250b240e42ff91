//! Run folders: what is written reads back, and what is damaged is refused with its place and a remedy.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use maestro_pattern::{Measurement, State};
use maestro_reports::{Error, PatternInfo, Run, RunInfo, RunWriter};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::parser::parse_message_type;
use tempfile::TempDir;

use crate::common::{PATTERN, REDUCE, collective, info, local, measurements};

/// A run of one process in a new folder.
fn written(measurements: &[Measurement]) -> TempDir {
    let folder = TempDir::new().unwrap();
    RunWriter::create(folder.path(), &info("a", 2, 1), PATTERN).unwrap().write_part(0, measurements).unwrap();
    folder
}

fn refusal(folder: &Path) -> String {
    Run::open(folder).unwrap_err().to_string()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_run_reads_back_as_it_was_written() {
    let mut all = measurements(3, 2);
    // Numbers beyond the signed range, zero lengths and foreign lanes survive too.
    all.push(Measurement { lane: "elsewhere".into(), ..local(State::Alone, (9, 9), 1, "load", 1 << 63, 1 << 63) });
    let (first, second) = all.split_at(all.len() / 3);
    let folder = TempDir::new().unwrap();
    let folder = folder.path().join("runs").join("new");
    let info = RunInfo { processes: 2, ..info("a", 3, 2) };
    let writer = RunWriter::create(&folder, &info, PATTERN).unwrap();
    writer.write_part(1, second).unwrap();
    writer.write_part(0, first).unwrap();

    let run = Run::open(&folder).unwrap();
    assert_eq!(run.info, info);
    assert_eq!(run.pattern.to_yaml(), maestro_pattern::Pattern::from_yaml(PATTERN).unwrap().to_yaml());
    assert_eq!(run.world.size(), 2);
    assert_eq!(run.measurements().iter().collect::<Vec<_>>(), all);
    assert_eq!(fs::read_to_string(folder.join("pattern.yaml")).unwrap(), PATTERN);
    assert_eq!(names(&folder), ["part-0.parquet", "part-1.parquet", "pattern.yaml", "run.json"]);
}

#[test]
fn a_run_without_measurements_is_a_run() {
    let folder = written(&[]);
    assert!(Run::open(folder.path()).unwrap().measurements().is_empty());
}

#[test]
fn the_sizes_of_the_run_win_over_those_of_the_pattern() {
    let mut info = info("a", 1, 1);
    info.axes[0].size = Some(4);
    let folder = TempDir::new().unwrap();
    let last = local(State::Overlapped, (0, 0), 3, "forward", 0, 1);
    RunWriter::create(folder.path(), &info, PATTERN).unwrap().write_part(0, &[last]).unwrap();
    assert_eq!(Run::open(folder.path()).unwrap().world.size(), 4);
}

#[test]
fn any_parquet_reader_reads_a_part() {
    let folder = written(&[
        collective(State::Overlapped, (1, 2), 1, REDUCE, (1_000, 300, 5_000)),
        local(State::Alone, (1, 2), 1, "forward", 0, 7),
    ]);
    let reader = SerializedFileReader::new(File::open(folder.path().join("part-0.parquet")).unwrap()).unwrap();
    let rows: Vec<Vec<(String, Field)>> = reader
        .get_row_iter(None)
        .unwrap()
        .map(|row| row.unwrap().get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect())
        .collect();
    let text = |text: &str| Field::Str(text.into());
    let expected = |values: [Field; 13]| {
        let names = [
            "round",
            "iteration",
            "rank",
            "block",
            "axis",
            "lane",
            "instance",
            "state",
            "start_ns",
            "end_ns",
            "wait_ns",
            "transfer_ns",
            "size_bytes",
        ];
        names.into_iter().map(str::to_owned).zip(values).collect::<Vec<_>>()
    };
    assert_eq!(
        rows[0],
        expected([
            Field::UInt(1),
            Field::UInt(2),
            Field::UInt(1),
            text("reduce"),
            text("dp"),
            text("reduce"),
            Field::UInt(0),
            text("overlapped"),
            Field::ULong(1_000),
            Field::ULong(5_000),
            Field::ULong(300),
            Field::ULong(3_700),
            Field::ULong(4 << 20),
        ])
    );
    assert_eq!((&rows[1][4].1, &rows[1][7].1, &rows[1][12].1), (&Field::Null, &text("alone"), &Field::Null));
    assert_eq!(rows.len(), 2);
}

#[test]
fn run_json_is_readable_and_versioned() {
    let folder = written(&[]);
    let text = fs::read_to_string(folder.path().join("run.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["made_by"], "replay");
    assert_eq!(json["axes"], serde_json::json!([{"name": "dp", "size": 2}]));
    assert_eq!(json["pattern"]["hash"].as_str().unwrap().len(), 16);
    // Keys of later versions are no obstacle.
    let later = text.replacen("{\n", "{\n  \"unheard_of\": [1],\n", 1);
    fs::write(folder.path().join("run.json"), later).unwrap();
    Run::open(folder.path()).unwrap();
}

#[test]
fn a_new_run_replaces_an_old_one_whole() {
    let folder = TempDir::new().unwrap();
    let two = RunInfo { processes: 2, ..info("old", 1, 1) };
    let writer = RunWriter::create(folder.path(), &two, PATTERN).unwrap();
    writer.write_part(0, &measurements(1, 1)).unwrap();
    writer.write_part(1, &[]).unwrap();
    fs::write(folder.path().join("part-2.parquet.tmp"), "left by a crash").unwrap();
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();

    let writer = RunWriter::create(folder.path(), &info("new", 1, 1), PATTERN).unwrap();
    assert_eq!(names(folder.path()), ["notes.txt", "pattern.yaml", "run.json"]);
    writer.write_part(0, &[]).unwrap();
    assert_eq!(Run::open(folder.path()).unwrap().info.id, "new");
}

#[test]
fn processes_write_a_folder_together_and_it_is_no_run_before_all_have() {
    let root = TempDir::new().unwrap();
    let folder = root.path().join("runs").join("shared");
    let mark = RunWriter::offer(&folder).unwrap();
    assert_eq!(RunWriter::await_offer(&mark, Duration::ZERO).unwrap(), folder);
    RunWriter::withdraw(&mark).unwrap();
    assert_eq!(names(&folder), [""; 0]);
    let all = measurements(2, 1);
    let (first, second) = all.split_at(all.len() / 2);
    let two = RunInfo { processes: 2, ..info("shared", 2, 1) };

    let writer = RunWriter::replace(&folder).unwrap();
    RunWriter::beside(&folder).write_part(1, second).unwrap();
    assert!(matches!(Run::open(&folder), Err(Error::NotARun { .. })));
    assert!(matches!(writer.finish(&two, PATTERN), Err(Error::PartMissing { process: 0, .. })));
    assert!(matches!(Run::open(&folder), Err(Error::NotARun { .. })));
    writer.write_part(0, first).unwrap();
    writer.finish(&two, PATTERN).unwrap();
    let run = Run::open(&folder).unwrap();
    assert_eq!(run.info, two);
    assert_eq!(run.measurements().iter().collect::<Vec<_>>(), all);

    // Nothing of it is left for the next run, nor of one that was killed.
    fs::write(RunWriter::offer(&folder).unwrap(), "").unwrap();
    RunWriter::replace(&folder).unwrap().write_part(0, &[]).unwrap();
    assert_eq!(names(&folder), ["part-0.parquet", "run.json.tmp"]);
    RunWriter::replace(&folder).unwrap();
    assert_eq!(names(&folder), ["run.json.tmp"]);
}

#[test]
fn a_folder_on_another_file_system_is_said() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mark = RunWriter::offer(here.path()).unwrap();
    let seen_there = there.path().join(mark.file_name().unwrap());
    let error = RunWriter::await_offer(&seen_there, Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains(there.path().to_str().unwrap()) && error.contains("machines share"), "{error}");
    fs::write(here.path().join("thesis.tex"), "years of work").unwrap();
    RunWriter::withdraw(&mark).unwrap();
    assert!(matches!(RunWriter::offer(here.path()), Err(Error::FolderInUse { .. })));
    assert!(matches!(RunWriter::replace(here.path()), Err(Error::FolderInUse { .. })));
}

#[test]
fn what_a_killed_run_left_is_replaced() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("run.json.tmp"), "{").unwrap();
    RunWriter::check(folder.path()).unwrap();
    RunWriter::create(folder.path(), &info("a", 1, 1), PATTERN).unwrap().write_part(0, &[]).unwrap();
    assert_eq!(Run::open(folder.path()).unwrap().info.id, "a");
}

#[test]
fn a_folder_with_other_things_is_not_overwritten() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("pattern.yaml"), "mine").unwrap();
    assert!(matches!(RunWriter::check(folder.path()), Err(Error::FolderInUse { .. })));
    let error = RunWriter::create(folder.path(), &info("a", 1, 1), PATTERN).unwrap_err();
    assert!(matches!(error, Error::FolderInUse { .. }) && error.to_string().contains("choose a new folder"), "{error}");
    assert_eq!(fs::read_to_string(folder.path().join("pattern.yaml")).unwrap(), "mine");
}

#[test]
fn the_text_must_be_the_one_that_the_run_names() {
    let folder = TempDir::new().unwrap();
    let other = RunInfo { pattern: PatternInfo::new("x", "other text"), ..info("a", 1, 1) };
    let error = RunWriter::create(folder.path(), &other, PATTERN).unwrap_err();
    assert!(matches!(error, Error::PatternChanged { .. }), "{error}");
}

#[test]
fn what_is_no_run_is_refused() {
    let folder = TempDir::new().unwrap();
    let missing = refusal(&folder.path().join("nowhere"));
    assert!(missing.contains("nowhere: no such folder; give a folder that"), "{missing}");
    assert!(refusal(folder.path()).contains("no run.json"));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(refusal(&file).contains("not a run"));
}

#[test]
fn a_damaged_description_is_refused() {
    let folder = written(&[]);
    let path = folder.path().join("run.json");
    let good = fs::read_to_string(&path).unwrap();
    for (damaged, expected) in [
        (good[..good.len() / 2].to_owned(), "at line "),
        (String::new(), "at line 1 column 0"),
        ("[]".to_owned(), "at line 1 column "),
        (good.replace("\"backend\"", "\"back\""), "missing field `backend` at line "),
        (good.replace("\"schema\": 1", "\"schema\": 7"), "run format 7, this maestro reads 1"),
        (good.replace("\"size\": 2", "\"size\": 0"), "axis `dp` has size 0"),
    ] {
        fs::write(&path, damaged).unwrap();
        let error = refusal(folder.path());
        assert!(error.contains("run.json: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_changed_or_missing_pattern_is_refused() {
    let folder = written(&[]);
    let path = folder.path().join("pattern.yaml");
    fs::write(&path, PATTERN.replace("150us", "151us")).unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("pattern.yaml: the text has hash") && error.contains("put back"), "{error}");
    fs::remove_file(&path).unwrap();
    assert!(refusal(folder.path()).contains("pattern.yaml: cannot read"));
}

#[test]
fn a_missing_part_names_its_process() {
    let folder = TempDir::new().unwrap();
    let two = RunInfo { processes: 2, ..info("a", 1, 1) };
    RunWriter::create(folder.path(), &two, PATTERN).unwrap().write_part(0, &[]).unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("part-1.parquet: missing") && error.contains("process 1 ended early"), "{error}");
}

#[test]
fn a_part_of_another_run_is_refused() {
    let ok = local(State::Overlapped, (0, 0), 0, "forward", 0, 1);
    for (wrong, expected) in [
        (Measurement { block: "backward".into(), ..ok.clone() }, "no block `backward`"),
        (Measurement { axis: Some("tp".into()), ..ok.clone() }, "no axis `tp`"),
        (Measurement { rank: 2, ..ok.clone() }, "rank 2 is outside a world of 2 ranks"),
        (Measurement { start_ns: 2, ..ok.clone() }, "ends at 1 ns, before its start 2"),
    ] {
        let folder = written(&[ok.clone(), wrong.clone()]);
        let error = refusal(folder.path());
        assert!(error.contains("part-0.parquet: ") && error.contains(expected), "{error}");

        let pattern = maestro_pattern::Pattern::from_yaml(PATTERN).unwrap();
        let error = Run::new(info("a", 1, 1), pattern, &[ok.clone(), wrong]).unwrap_err().to_string();
        assert!(error.starts_with("measurement 1: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn damaged_parts_are_refused_and_never_panic() {
    let folder = written(&measurements(2, 1));
    let path = folder.path().join("part-0.parquet");
    let good = fs::read(&path).unwrap();
    for length in [0, 1, 3, 8, good.len() / 2, good.len() - 1] {
        fs::write(&path, &good[..length]).unwrap();
        let error = refusal(folder.path());
        assert!(error.contains("part-0.parquet: ") && error.contains("copy it again"), "{error}");
    }
    // A flipped bit may hit a number, which nothing can tell; what matters is that every outcome is a value.
    for place in (0..good.len()).step_by(7) {
        let mut flipped = good.clone();
        flipped[place] ^= 1 << (place % 8);
        fs::write(&path, flipped).unwrap();
        if let Err(error) = Run::open(folder.path()) {
            assert!(error.to_string().contains("part-0.parquet: "), "{error}");
        }
    }
}

/// One measurement as another program may write it: other order, everything nullable, a column of its own.
fn rewrite(path: &Path, schema: &str, round: Option<i32>) {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let fields: Vec<String> = schema.get_fields().iter().map(|field| field.name().to_owned()).collect();
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for name in fields {
        let mut column = group.next_column().unwrap().unwrap();
        let text = |text: &str| vec![ByteArray::from(text)];
        match name.as_str() {
            "block" => column.typed::<ByteArrayType>().write_batch(&text("forward"), Some(&[1]), None),
            "lane" | "extra" => column.typed::<ByteArrayType>().write_batch(&text("main"), Some(&[1]), None),
            "state" => column.typed::<ByteArrayType>().write_batch(&text("alone"), Some(&[1]), None),
            "axis" => column.typed::<ByteArrayType>().write_batch(&[], Some(&[0]), None),
            "start_ns" => column.typed::<Int64Type>().write_batch(&[3], Some(&[1]), None),
            "end_ns" => column.typed::<Int64Type>().write_batch(&[5], Some(&[1]), None),
            "wait_ns" | "transfer_ns" | "size_bytes" => column.typed::<Int64Type>().write_batch(&[], Some(&[0]), None),
            "round" => {
                let values: Vec<i32> = round.into_iter().collect();
                column.typed::<Int32Type>().write_batch(&values, Some(&[values.len() as i16]), None)
            }
            _ => column.typed::<Int32Type>().write_batch(&[1], Some(&[1]), None),
        }
        .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

const REWRITTEN: &str = "message other {
  OPTIONAL INT64 size_bytes; OPTIONAL INT64 transfer_ns; OPTIONAL INT64 wait_ns; OPTIONAL INT64 end_ns;
  OPTIONAL INT64 start_ns; OPTIONAL BYTE_ARRAY state (UTF8); OPTIONAL INT32 instance; OPTIONAL BYTE_ARRAY extra (UTF8);
  OPTIONAL BYTE_ARRAY lane (UTF8); OPTIONAL BYTE_ARRAY axis (UTF8); OPTIONAL BYTE_ARRAY block (UTF8);
  OPTIONAL INT32 rank; OPTIONAL INT32 iteration; OPTIONAL INT32 round;
}";

#[test]
fn a_part_that_another_program_wrote_again_opens() {
    let folder = written(&[]);
    let path = folder.path().join("part-0.parquet");
    rewrite(&path, REWRITTEN, Some(4));
    let run = Run::open(folder.path()).unwrap();
    let expected = local(State::Alone, (4, 1), 1, "forward", 3, 5);
    let expected = Measurement { lane: "main".into(), instance: 1, ..expected };
    assert_eq!(run.measurements().iter().collect::<Vec<_>>(), [expected]);

    rewrite(&path, REWRITTEN, None);
    assert!(refusal(folder.path()).contains("column round has a null"));
}

#[test]
fn missing_columns_are_named() {
    let folder = written(&[]);
    let path = folder.path().join("part-0.parquet");
    let lacking = REWRITTEN.replace("OPTIONAL INT64 wait_ns;", "").replace("INT32 rank", "INT32 ranks");
    rewrite(&path, &lacking, Some(1));
    let error = refusal(folder.path());
    assert!(error.contains("no column `rank` of type INT32, `wait_ns` of type INT64"), "{error}");
}
