//! The tests of the whole: the built program, the fixtures, and the walls between the rooms. One binary, because each
//! further one would link everything again.

#[path = "../../reports/tests/reports/common.rs"]
#[expect(dead_code, reason = "the tests of reports/ use all of it")]
mod common;
#[path = "../../reports/tests/reports/timeline.rs"]
mod decoder;
mod diff;
mod export;
mod harness;
mod launched;
mod page;
mod patterns;
#[path = "../../reports/tests/reports/planted.rs"]
#[expect(dead_code, reason = "the tests of reports/ use all of it")]
mod planted;
mod refused;
mod replay;
mod reports;
mod timeline;
mod truth;
mod walls;
