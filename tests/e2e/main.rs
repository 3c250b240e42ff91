//! The tests of the whole: the built program, the fixtures, and the walls between the rooms. One binary, because each
//! further one would link everything again.

#[path = "../../reports/tests/reports/timeline.rs"]
mod decoder;
mod export;
mod harness;
mod launched;
mod page;
mod patterns;
mod refused;
mod replay;
mod reports;
mod timeline;
mod truth;
mod walls;
