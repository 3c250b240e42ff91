//! The page from the command line: of a capture beside its simulation, and what is refused.

use std::fs;

use maestro_reports::Run;
use serde_json::Value;

use crate::harness::{capture, folder, maestro};

/// What the scripts of a page draw.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("a page has data");
    serde_json::from_str(rest.split_once("</script>").expect("that end").0).expect("JSON")
}

#[test]
fn a_capture_over_its_simulation() {
    let folder = folder();
    let at = folder.path();
    let fsdp = capture("fsdp_large");
    maestro(at, ["import", &fsdp.to_string_lossy(), "-o", "step.yaml", "--run", "captured"]).ok();
    maestro(at, ["replay", "step.yaml", "--backend", "dry", "-o", "simulated"]).ok();
    let report = ["report", "simulated", "captured", "--format", "html", "-o", "page.html", "--link-rate", "3600Gb/s"];
    assert_eq!(maestro(at, report).ok(), "Page written to page.html; open it in a browser\n");
    let page = fs::read_to_string(at.join("page.html")).unwrap();
    let printed = maestro(at, ["report", "simulated", "captured", "--format", "html"]).ok();
    assert!(printed.starts_with("<!doctype html>") && printed.ends_with("</html>\n"), "nothing but the page");
    assert!(page.starts_with("<!doctype html>"));
    for command in ["maestro replay step.yaml --backend dry -o simulated", &report.join(" ")] {
        assert!(page.contains(&format!("{command}</code>")), "{command}");
    }

    let data = data(&page);
    assert_eq!(data["link_gbps"], 450.0);
    let roles: Vec<&Value> = data["runs"].as_array().unwrap().iter().map(|run| &run["role"]).collect();
    assert_eq!(roles, ["captured", "simulated"]);
    // The parts of each step sum to it, and the exposed ones to what the run says.
    for (fall, name) in data["waterfalls"].as_array().unwrap().iter().zip(["captured", "simulated"]) {
        let part = |key: &str| fall[key].as_u64().unwrap();
        let exposed: u64 = fall["exposed_ns"].as_array().unwrap().iter().map(|ns| ns.as_u64().unwrap()).sum();
        let parts = ["compute_ns", "copies_ns", "idle_ns", "shorter_ns"].map(part).iter().sum::<u64>() + exposed;
        assert_eq!(parts, part("step_ns"), "{name}");
        let run = Run::open(&at.join(name)).unwrap();
        assert_eq!(exposed, run.exposure().steps.iter().map(|step| step.figures.exposed_ns).sum::<u64>(), "{name}");
    }
}

#[test]
fn a_rate_without_a_unit_is_refused() {
    let folder = folder();
    for rate in ["450", "450GB", "450/s", "0GB/s", "fast"] {
        let outcome = maestro(folder.path(), ["report", "run", "--format", "html", "--link-rate", rate]);
        assert_eq!(outcome.code, 2, "{rate}");
        assert!(outcome.stderr.contains("is no rate such as 450GB/s (bytes) or 400Gb/s (bits)"), "{}", outcome.stderr);
    }
}

#[test]
fn bytes_of_many_ranks_are_drawn_by_neighbours() {
    let folder = folder();
    let at = folder.path();
    // Each rank of 300 keeps 4 B and sends 4 B to every other one.
    let text = "maestro: 1\nname: wide\naxes: {ep: {size: 300}}\nblocks:\n  \
                exchange: {all_to_all: {size: 1200, dtype: f32}, captured: 1ms}\nlanes: {comm: {}}\nschedule:\n\
                - {run: exchange, on: ep, lane: comm}\n";
    fs::write(at.join("wide.yaml"), text).unwrap();
    maestro(at, ["replay", "wide.yaml", "--backend", "dry", "-o", "wide"]).ok();
    let data = data(&maestro(at, ["report", "wide", "--format", "html"]).ok());
    let bytes = &data["bytes"][0];
    assert_eq!((bytes["ranks_a_row"].as_u64(), bytes["last"].as_u64()), (Some(3), Some(299)));
    let rows: Vec<Vec<u64>> = serde_json::from_value(bytes["bytes"].clone()).unwrap();
    assert_eq!(rows.len(), 100);
    assert!(rows.iter().all(|row| row.len() == 100 && row.iter().all(|bytes| *bytes == 3 * 3 * 4)));
}
