//! How a rank comes by its communicators: one for each of the plan's that it is in.
//!
//! All ranks make them in the plan's order, so that no two wait for each other in different ones: first a part of the
//! world for every axis, which all ranks make together, then of it a duplicate for every lane. These calls return when
//! everyone has come, and never if somebody is gone, so they are made by a thread that can be left behind.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use maestro_pattern::{AxisId, Plan};

use super::ffi::{Comm, Library, Native};
use crate::store::Store;
use crate::{Error, Result};

/// The communicators of one rank, by their index in the plan.
pub(super) type Comms = HashMap<u32, Comm>;

/// What a rank has to make, in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Order {
    /// Per axis that anyone communicates on: this rank's team and its seat there, if it is on it.
    axes: Vec<(AxisId, Option<(u32, u32)>)>,
    /// The plan's communicators that hold this rank, each with its axis.
    comms: Vec<(u32, AxisId)>,
}

impl Order {
    fn new(plan: &Plan, rank: u32) -> Self {
        let axes: BTreeSet<AxisId> = plan.communicators.iter().map(|communicator| communicator.axis).collect();
        let own = plan.communicators.iter().zip(0..).filter(|(communicator, _)| communicator.ranks.contains(&rank));
        Self {
            axes: axes.into_iter().map(|axis| (axis, plan.world.seat(axis as usize, rank))).collect(),
            comms: own.map(|(communicator, index)| (index, communicator.axis)).collect(),
        }
    }

    fn make(&self, library: &Library) -> Native<Comms> {
        let mut teams = BTreeMap::new();
        for (axis, place) in &self.axes {
            let (team, seat) = place.unzip();
            teams.insert(*axis, library.world.split(team, seat.unwrap_or(0))?);
        }
        let mut comms = Comms::new();
        for (index, axis) in &self.comms {
            if let Some(team) = teams.get(axis).copied().flatten() {
                comms.insert(*index, team.duplicate()?);
            }
        }
        teams.into_values().flatten().try_for_each(Comm::free)?;
        Ok(comms)
    }
}

/// Makes the communicators of `rank`, in no more time than `patience`.
///
/// # Errors
/// MPI refuses, another rank failed, or somebody does not come.
pub(super) fn communicators(
    plan: &Plan,
    rank: u32,
    library: &'static Library,
    store: &Store,
    patience: Duration,
) -> Result<Comms> {
    /// How often the other ranks are looked after meanwhile.
    const LOOK: Duration = Duration::from_millis(100);
    let order = Order::new(plan, rank);
    let (tell, told) = channel();
    // Whoever does not listen any more has given up.
    let make = move || drop(tell.send(order.make(library)));
    let thread = Builder::new().name("communicators".into()).spawn(make);
    thread.map_err(|source| Error::Thread { rank, source })?;
    let native = |what: String| Error::Native { rank, block: None, what };
    let begun = Instant::now();
    loop {
        match told.recv_timeout(LOOK) {
            Ok(made) => return made.map_err(|failure| native(failure.to_string())),
            Err(RecvTimeoutError::Disconnected) => return Err(native("it made no communicators".into())),
            Err(RecvTimeoutError::Timeout) => store.check()?,
        }
        if begun.elapsed() > patience {
            let seconds = begun.elapsed().as_secs_f64();
            return Err(native(format!("it makes communicators and has not returned for {seconds:.1} s")));
        }
    }
}

#[cfg(test)]
mod tests {
    use maestro_pattern::Pattern;

    use super::*;

    #[test]
    fn all_ranks_make_the_same_in_the_same_order() {
        let text = "
maestro: 1
name: t
axes: {dp: {size: 2}, tp: {size: 2}}
blocks: {g: {all_gather: {size: 8B, dtype: u8}}}
lanes: {x: {}, y: {}}
schedule: [{run: g, on: tp, lane: y}, {run: g, on: dp, lane: x, as: b}, {run: g, on: tp, lane: x, as: c}]
";
        let plan = Plan::new(&Pattern::from_yaml(text).unwrap(), &[]).unwrap();
        let orders: Vec<Order> = (0..4).map(|rank| Order::new(&plan, rank)).collect();
        for (rank, order) in (0..4).zip(&orders) {
            // Every rank takes part in the split of every axis.
            assert_eq!(order.axes.iter().map(|(axis, _)| *axis).collect::<Vec<_>>(), [0, 1]);
            assert_eq!(order.axes[0].1, Some((rank % 2, rank / 2)));
            assert_eq!(order.axes[1].1, Some((rank / 2, rank % 2)));
            assert_eq!(order.comms.len(), 3);
            assert!(order.comms.is_sorted());
            for (index, axis) in &order.comms {
                let communicator = &plan.communicators[*index as usize];
                assert!(communicator.axis == *axis && communicator.ranks.contains(&rank));
            }
        }
    }
}
