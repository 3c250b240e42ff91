//! The nouns that every room of Maestro shares.
//!
//! A [`Pattern`] says what a training step does: *blocks* of work, on *axes* that split the ranks into teams, in
//! *lanes* that run beside each other. A [`World`] gives its axes sizes. Both together lower to a checked [`Plan`],
//! which a back end runs; what it saw comes back as [`Measurement`]s.
//!
//! ```
//! let text = "
//! maestro: 1
//! name: one-gather
//! axes: {dp: {size: 2}}
//! blocks: {gather: {all_gather: {size: 4MiB, dtype: bf16}}}
//! lanes: {main: {}}
//! schedule: [{run: gather, on: dp}]
//! ";
//! let pattern = maestro_pattern::Pattern::from_yaml(text)?;
//! let plan = maestro_pattern::Plan::new(&pattern, &[])?;
//! assert_eq!(plan.world.size(), 2);
//! # Ok::<(), maestro_pattern::Error>(())
//! ```
//!
//! This crate opens no file, starts no thread, reads no clock and prints nothing: text goes in, text comes out.

mod block;
mod check;
mod classes;
mod collective;
mod communicators;
mod dtype;
mod error;
mod gemm;
mod lower;
mod measurement;
mod order;
mod pattern;
mod plan;
mod quantity;
mod setting;
mod world;
mod yaml;

pub use block::{Block, CopyDirection, CudaKernel, Direction, Kernel, Transfer, Work, exchanged};
pub use collective::{Collective, CollectiveKind, ReduceOp};
pub use dtype::Dtype;
pub use error::{Error, Place, Result};
pub use gemm::GemmLayout;
pub use measurement::{Measurement, State};
pub use pattern::{
    Assumption, Axis, AxisShape, Body, CommSettings, Confidence, Item, Lane, Motif, Pattern, Priority, Reference, Role,
    Selector, Source, Step, When,
};
pub use plan::{AxisId, BlockId, Communicator, Instruction, LaneId, Plan, Program};
pub use quantity::{
    FACTORS, MOST_BYTES, MOST_COUNT, MOST_NS, format_bytes, format_duration, parse_bytes, parse_duration,
};
pub use setting::Setting;
pub use world::{AxisSize, MOST_RANKS, World, peer};
