//! The meeting point of a launch.

pub(crate) mod digest;
