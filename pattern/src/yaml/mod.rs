//! Pattern text: YAML in, YAML out.
//!
//! Reading goes text -> tree of nodes with positions (serde-saphyr) -> Pattern by hand, not through serde's derive:
//! a derived reader knows the wrong key but not the nearest right one, and loses positions inside enums.

mod node;
mod read;
mod read_block;
mod read_item;
mod write;

pub(crate) use read::{read, setting};
pub(crate) use write::write;
