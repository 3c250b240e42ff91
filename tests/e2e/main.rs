//! The tests of the whole: the built program, the fixtures, and the walls between the rooms. One binary, because each
//! further one would link everything again.

mod export;
mod harness;
mod patterns;
mod refused;
mod replay;
mod truth;
mod walls;
