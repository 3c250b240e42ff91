//! The JSON that nccl-tests writes with `-J`: one object a test.

use serde::Deserialize;

use super::{Found, Point, dtype, test, version};

/// The keys that matter; others come and go with versions.
#[derive(Deserialize)]
struct Document {
    args: Vec<String>,
    nccl_version: Option<u64>,
    config: Config,
    results: Vec<Line>,
}

#[derive(Deserialize)]
struct Config {
    nthreads: usize,
    ngpus: usize,
    /// One entry a process, whatever its threads and GPUs.
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    #[serde(default)]
    group: i64,
}

#[derive(Deserialize)]
struct Line {
    size: u64,
    #[serde(rename = "type")]
    dtype: String,
    out_of_place: Option<Body>,
    in_place: Option<Body>,
}

#[derive(Deserialize)]
struct Body {
    /// Missing where the host's time was taken.
    time: Option<f64>,
}

/// Reads the document.
pub(super) fn read(text: &str) -> Result<Found, String> {
    let document: Document = serde_json::from_str(text).map_err(|error| {
        format!("not the JSON of nccl-tests -J: {error}; give the whole file, from a test that ended by itself")
    })?;
    let program = document.args.first().map_or("", String::as_str);
    let mut found = Found { nccl: document.nccl_version.map(version), ..Found::default() };
    let Some(test) = test(program) else {
        found.skipped = Some(format!("`{program}` tests nothing that blocks do"));
        return Ok(found);
    };
    let config = &document.config;
    let groups = config.devices.iter().map(|device| device.group).collect::<std::collections::BTreeSet<_>>().len();
    let ranks = config.nthreads * config.ngpus * config.devices.len().max(1) / groups.max(1);
    for line in document.results {
        let Some(dtype) = dtype(&line.dtype) else {
            found.skipped = Some(format!("blocks have no element type `{}`", line.dtype));
            continue;
        };
        let before = found.points.len();
        for (in_place, body) in [(false, line.out_of_place), (true, line.in_place)] {
            if let Some(time_us) = body.and_then(|body| body.time).filter(|us| us.is_finite() && *us > 0.0) {
                found.points.push(Point { test, dtype, ranks, size_bytes: line.size, in_place, time_us });
            }
        }
        if found.points.len() == before {
            found.skipped = Some(format!("size {} has no time", line.size));
        }
    }
    Ok(found)
}
