//! Reads SQLite exports. Tables and columns come and go with versions and with what was recorded: what is missing is
//! empty, and nothing is read but the columns that an import needs (other tables hold the environment and the command
//! lines of the recorded processes).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

use super::rows::{EventRecord, Gpu, Nvtx, Place, Rows, Sync, copy, set, some};
use super::steps;
use crate::capture::ActivityKind;
use crate::{Error, Notes, Result};

/// What a database begins with.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";

/// A table that no export lacks.
const STRINGS: &str = "StringIds";

/// Reads a database, device rows beside host rows.
pub(super) fn read(file: &Path, notes: &mut Notes) -> Result<Rows> {
    let mut device = Reader::open(file)?;
    if device.columns(STRINGS)?.is_empty() {
        return Err(Error::NoNsight { file: file.to_owned(), table: STRINGS });
    }
    device.strings()?;
    let host = Reader { strings: device.strings.clone(), ..Reader::open(file)? };
    let on_device = move || {
        let mut rows = Rows::default();
        device.devices(&mut rows)?;
        device.kernels(&mut rows, notes)?;
        device.copies(&mut rows, notes)?;
        device.graphs(&mut rows)?;
        Ok::<_, Error>(rows)
    };
    let on_host = move || {
        let mut rows = Rows::default();
        host.calls(&mut rows)?;
        host.waits(&mut rows)?;
        host.ranges(&mut rows)?;
        Ok::<_, Error>(rows)
    };
    let (device_rows, host_rows) = rayon::join(on_device, on_host);
    let mut rows = device_rows?;
    rows.append(host_rows?);
    Ok(rows)
}

fn failed(file: &Path, error: &rusqlite::Error) -> Error {
    Error::Database { file: file.to_owned(), problem: error.to_string() }
}

struct Reader<'a> {
    file: &'a Path,
    connection: Connection,
    strings: Arc<HashMap<i64, Arc<str>>>,
    /// What has no name.
    unnamed: Arc<str>,
}

/// A row of which some columns may be missing, which then hold nothing.
struct Found<'a>(&'a Row<'a>);

impl Found<'_> {
    fn value(&self, column: usize) -> ValueRef<'_> {
        self.0.get_ref(column).unwrap_or(ValueRef::Null)
    }

    fn number(&self, column: usize) -> Option<i64> {
        match self.value(column) {
            ValueRef::Integer(number) => Some(number),
            ValueRef::Real(number) => Some(number as i64),
            ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
            ValueRef::Null | ValueRef::Blob(_) => None,
        }
    }

    fn whole(&self, column: usize) -> i64 {
        self.number(column).unwrap_or(0)
    }

    fn unsigned(&self, column: usize) -> Option<u64> {
        self.number(column).and_then(|number| u64::try_from(number).ok())
    }

    /// Text, whatever its encoding: exports have been seen in those of their machines.
    fn text(&self, column: usize) -> Option<String> {
        match self.value(column) {
            ValueRef::Text(text) | ValueRef::Blob(text) => Some(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
        }
    }
}

impl<'a> Reader<'a> {
    fn open(file: &'a Path) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file, flags).map_err(|error| failed(file, &error))?;
        Ok(Self { file, connection, strings: Arc::default(), unnamed: "".into() })
    }

    fn failed(&self, error: &rusqlite::Error) -> Error {
        failed(self.file, error)
    }

    /// The columns of a table; none of one that is not there.
    fn columns(&self, table: &str) -> Result<Vec<String>> {
        let list = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self.connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
            statement.query_map([table], |row| row.get(0))?.collect()
        };
        list().map_err(|error| self.failed(&error))
    }

    /// Gives `take` every row of `table` with these columns, in this order; those that the table lacks are null.
    fn each(&self, table: &str, columns: &[&str], mut take: impl FnMut(Found<'_>)) -> Result<()> {
        let known = self.columns(table)?;
        if known.is_empty() {
            return Ok(());
        }
        let selected: Vec<String> = columns
            .iter()
            .map(|column| match known.iter().any(|known| known == column) {
                true => format!("\"{column}\""),
                false => "NULL".to_owned(),
            })
            .collect();
        let mut walk = || -> rusqlite::Result<()> {
            let text = format!("SELECT {} FROM \"{table}\"", selected.join(", "));
            let mut statement = self.connection.prepare(&text)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                take(Found(row));
            }
            Ok(())
        };
        walk().map_err(|error| self.failed(&error))
    }

    fn strings(&mut self) -> Result<()> {
        let mut strings = HashMap::new();
        self.each(STRINGS, &["id", "value"], |row| {
            if let (Some(id), Some(text)) = (row.number(0), row.text(1)) {
                strings.insert(id, text.into());
            }
        })?;
        self.strings = Arc::new(strings);
        Ok(())
    }

    fn string(&self, id: Option<i64>) -> Option<&Arc<str>> {
        self.strings.get(&id?)
    }

    fn devices(&self, rows: &mut Rows) -> Result<()> {
        self.each("TARGET_INFO_GPU", &["id", "name", "smCount"], |row| {
            let Some(id) = row.unsigned(0).and_then(|id| u32::try_from(id).ok()) else { return };
            let sms = row.unsigned(2).and_then(|sms| u32::try_from(sms).ok()).filter(|sms| *sms > 0);
            rows.gpus.insert(id, Gpu { name: row.text(1).filter(|name| !name.is_empty()), sms });
        })?;
        self.each("TARGET_INFO_CUDA_DEVICE", &["gpuId", "cudaId", "pid"], |row| {
            let ids = [0, 1].map(|column| row.unsigned(column).and_then(|id| u32::try_from(id).ok()));
            if let ([Some(gpu), Some(device)], Some(process)) = (ids, row.number(2)) {
                rows.gpu_of.insert((process, device), gpu);
            }
        })
    }

    fn kernels(&self, rows: &mut Rows, notes: &mut Notes) -> Result<()> {
        let names = ["demangledName", "shortName", "mangledName", "gridX", "gridY", "gridZ"];
        self.each("CUPTI_ACTIVITY_KIND_KERNEL", &with_place(&names), |row| {
            let name = (PLACE..PLACE + 3).find_map(|column| self.string(row.number(column))).unwrap_or(&self.unnamed);
            let mut sides = (PLACE + 3..PLACE + 6).map(|column| row.unsigned(column));
            let blocks = sides.try_fold(1u64, |blocks, side| blocks.checked_mul(side?)).unwrap_or(0);
            rows.activity(ActivityKind::Kernel { blocks }, name, &place(&row), notes);
        })
    }

    fn copies(&self, rows: &mut Rows, notes: &mut Notes) -> Result<()> {
        let mut names: HashMap<String, Arc<str>> = HashMap::new();
        let mut shared = |name: String| names.entry(name).or_insert_with_key(|name| name.as_str().into()).clone();
        let more = ["bytes", "copyKind", "srcKind", "dstKind"];
        self.each("CUPTI_ACTIVITY_KIND_MEMCPY", &with_place(&more), |row| {
            let bytes = row.unsigned(PLACE).unwrap_or(0);
            let (kind, name) = copy(row.whole(PLACE + 1), row.number(PLACE + 2), row.number(PLACE + 3), bytes);
            rows.activity(kind, &shared(name), &place(&row), notes);
        })?;
        self.each("CUPTI_ACTIVITY_KIND_MEMSET", &with_place(&["bytes", "memKind"]), |row| {
            let (kind, name) = set(row.number(PLACE + 1), row.unsigned(PLACE).unwrap_or(0));
            rows.activity(kind, &shared(name), &place(&row), notes);
        })
    }

    fn graphs(&self, rows: &mut Rows) -> Result<()> {
        self.each("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &["start"], |_| rows.whole_graphs += 1)
    }

    fn calls(&self, rows: &mut Rows) -> Result<()> {
        // Old exports have driver calls in a table of their own.
        for table in ["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"] {
            self.each(table, &["start", "end", "globalTid", "correlationId", "nameId"], |row| {
                let Some(name) = self.string(row.number(4)) else { return };
                rows.call(name, row.whole(2), (row.whole(0), row.whole(1)), row.unsigned(3));
            })?;
        }
        Ok(())
    }

    fn waits(&self, rows: &mut Rows) -> Result<()> {
        let columns =
            ["globalPid", "contextId", "streamId", "correlationId", "start", "syncType", "eventId", "eventSyncId"];
        self.each("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", &columns, |row| {
            let Some(correlation) = row.unsigned(3) else { return };
            let sync = Sync {
                context: row.whole(1),
                stream: some(row.number(2)),
                correlation,
                start_ns: row.whole(4),
                kind: row.whole(5),
                event: some(row.number(6)).map(|event| event as u64),
                recording: some(row.number(7)).map(|recording| recording as u64),
            };
            rows.sync(row.whole(0), sync);
        })?;
        let columns = ["globalPid", "streamId", "correlationId", "eventId", "eventSyncId"];
        self.each("CUPTI_ACTIVITY_KIND_CUDA_EVENT", &columns, |row| {
            let (Some(correlation), Some(event)) = (row.unsigned(2), some(row.number(3))) else { return };
            let (event, recording) = (event as u64, some(row.number(4)).map(|recording| recording as u64));
            rows.event(row.whole(0), EventRecord { stream: some(row.number(1)), correlation, event, recording });
        })
    }

    fn ranges(&self, rows: &mut Rows) -> Result<()> {
        let columns = ["eventType", "globalTid", "domainId", "text", "textId", "start", "end", "binaryData"];
        let mut texts: HashMap<String, Arc<str>> = HashMap::new();
        self.each("NVTX_EVENTS", &columns, |row| {
            let name = match (row.text(3), self.string(row.number(4))) {
                // There may be millions, each with a number in its name.
                (Some(text), _) if steps::is_operator(&text) => return,
                (Some(text), _) => texts.entry(text).or_insert_with_key(|text| text.as_str().into()).clone(),
                (None, Some(name)) => name.clone(),
                (None, None) => return,
            };
            let payload = match row.value(7) {
                ValueRef::Blob(bytes) if !bytes.is_empty() => Some(bytes.into()),
                _ => None,
            };
            rows.nvtx(Nvtx {
                kind: row.whole(0),
                thread: row.whole(1),
                domain: row.whole(2),
                name,
                start_ns: row.whole(5),
                end_ns: row.number(6),
                payload,
            });
        })
    }
}

/// Columns of a [`Place`].
const PLACE_COLUMNS: [&str; 8] =
    ["globalPid", "deviceId", "contextId", "streamId", "correlationId", "start", "end", "graphId"];

/// How many they are.
const PLACE: usize = PLACE_COLUMNS.len();

fn with_place<'a>(more: &[&'a str]) -> Vec<&'a str> {
    PLACE_COLUMNS.iter().chain(more).copied().collect()
}

fn place(row: &Found<'_>) -> Place {
    Place {
        process: row.whole(0),
        device: row.unsigned(1).and_then(|device| u32::try_from(device).ok()).unwrap_or(0),
        context: row.whole(2),
        stream: row.whole(3),
        correlation: row.unsigned(4).filter(|id| *id != 0),
        start_ns: row.whole(5),
        end_ns: row.whole(6),
        graph: row.unsigned(7).filter(|graph| *graph != 0),
    }
}
