//! Rules that a change must keep: a gate for machines that decide whether it goes in.
//!
//! A rule selects blocks, names a metric, a direction and a threshold, and is judged on each block by itself: never on a
//! mean over sizes, in which small messages drown large ones or the reverse. It fails only where a change is proved, and
//! passes only where one of its threshold could have been seen; everything between is inconclusive, which is no pass.

mod judge;
mod junit;
mod rules;
mod text;

pub use judge::{Judged, Judgement, Outcome};
pub use rules::Gate;
