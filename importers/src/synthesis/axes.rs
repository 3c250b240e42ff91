//! Seventh pass: from communicators to axes.
//!
//! Communicators of one size, one purpose and disjoint ranks are the teams of one axis. Axes that together are a grid
//! get sizes; the others list their teams. Names come from what the groups are described as; where that says nothing,
//! from what they carry, and the pattern states that as assumed.

use std::collections::HashSet;

use maestro_pattern::{Assumption, Axis, AxisShape, CollectiveKind, CommSettings, Confidence};

use super::fresh;
use super::resolve::{CommId, Communicator, Communicators, Operation, Resolved};

/// The axes, and which one each communicator is on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Axes {
    /// Axes of the pattern, in its order.
    pub axes: Vec<Axis>,
    /// Teams of each axis.
    pub teams: Vec<Vec<Vec<u32>>>,
    /// Axis of each communicator.
    pub axis_of: Vec<usize>,
    /// Names that were not read.
    pub assumed: Vec<Assumption>,
}

/// An axis in the making.
struct Draft {
    name: String,
    index: usize,
    teams: Vec<Vec<u32>>,
    members: Vec<CommId>,
    size: Option<u32>,
}

/// Makes axes of all communicators of a world of `world` ranks.
///
/// `captured` are the ranks of the capture.
pub(crate) fn axes(communicators: &Communicators, resolved: &[Vec<Resolved>], captured: &[u32], world: u32) -> Axes {
    let mut assumed = Vec::new();
    let mut drafts: Vec<Draft> = Vec::new();
    let mut order: Vec<CommId> = (0..communicators.all.len()).collect();
    order.sort_by_key(|id| (&communicators.all[*id].ranks, communicators.all[*id].index));
    for id in order {
        let communicator = &communicators.all[id];
        let (name, sure) = name(communicator, id, resolved);
        let fits = |draft: &&mut Draft| {
            draft.name == name
                && draft.index == communicator.index
                && draft.teams[0].len() == communicator.ranks.len()
                && draft.teams.iter().flatten().all(|rank| !communicator.ranks.contains(rank))
        };
        match drafts.iter_mut().find(fits) {
            Some(draft) => {
                draft.teams.push(communicator.ranks.clone());
                draft.members.push(id);
            }
            None => {
                if !sure {
                    let shown = if communicator.desc.is_empty() { "nameless" } else { &communicator.desc };
                    let what = format!("axis of the {shown} group named {name} after what it carries");
                    assumed.push(Assumption::new(what, Confidence::Medium));
                }
                drafts.push(Draft {
                    name,
                    index: communicator.index,
                    teams: vec![communicator.ranks.clone()],
                    members: vec![id],
                    size: None,
                });
            }
        }
    }
    let drafts = grid(drafts, world);
    finish(drafts, communicators.all.len(), assumed, captured, world)
}

fn finish(drafts: Vec<Draft>, communicators: usize, assumed: Vec<Assumption>, captured: &[u32], world: u32) -> Axes {
    let mut result = Axes { axis_of: vec![0; communicators], assumed, ..Axes::default() };
    for draft in drafts {
        let name = fresh(&draft.name, "", |name| result.axes.iter().any(|axis| axis.name == name));
        for id in &draft.members {
            result.axis_of[*id] = result.axes.len();
        }
        let shape = match (draft.size, completed(&draft.teams, captured, world)) {
            (Some(size), _) => AxisShape::Size(size),
            (None, None) => AxisShape::Teams(draft.teams.clone()),
            (None, Some(teams)) => {
                let what = format!("teams of axis {name} that were not captured taken to follow the others");
                result.assumed.push(Assumption::new(what, Confidence::Low));
                AxisShape::Teams(teams)
            }
        };
        result.teams.push(draft.teams);
        result.axes.push(Axis { name, shape, settings: CommSettings::default(), place: Default::default() });
    }
    result
}

/// Gives sizes to the axes that together are a grid over all ranks, slowest first, and puts the others behind them.
fn grid(mut drafts: Vec<Draft>, world: u32) -> Vec<Draft> {
    let mut chosen = Vec::new();
    let mut span = world;
    while span > 1 {
        let found = drafts.iter().position(|draft| {
            let size = draft.teams[0].len() as u32;
            size > 1 && span.is_multiple_of(size) && is_dimension(&draft.teams, world, size, span / size)
        });
        let Some(found) = found else { break };
        let mut draft = drafts.remove(found);
        let size = draft.teams[0].len() as u32;
        draft.size = Some(size);
        span /= size;
        chosen.push(draft);
    }
    if span > 1 {
        // No grid: an axis with a size would promise ranks that no axis accounts for.
        chosen.iter_mut().for_each(|draft| draft.size = None);
    }
    chosen.extend(drafts);
    chosen
}

/// All teams of a dimension of which some ranks, none of them `captured`, are in no known team. `None` if no rank is
/// missing or the known teams are no dimension.
fn completed(teams: &[Vec<u32>], captured: &[u32], world: u32) -> Option<Vec<Vec<u32>>> {
    let known: HashSet<u32> = teams.iter().flatten().copied().collect();
    let first = teams.first()?;
    let (size, stride) = (first.len() as u32, first.get(1)?.checked_sub(first[0]).filter(|stride| *stride > 0)?);
    let fits = world.is_multiple_of(size.checked_mul(stride)?) && is_dimension(teams, world, size, stride);
    if known.len() == world as usize || !fits || captured.iter().any(|rank| !known.contains(rank)) {
        return None;
    }
    let starts = (0..world).filter(|rank| (rank / stride).is_multiple_of(size));
    Some(starts.map(|start| (0..size).map(|place| start + place * stride).collect()).collect())
}

/// Whether the known teams are those of a dimension of `size` with neighbours `stride` apart. Teams that the capture
/// does not show are taken to follow the others.
fn is_dimension(teams: &[Vec<u32>], world: u32, size: u32, stride: u32) -> bool {
    teams.iter().all(|team| {
        let first = team[0];
        (first / stride).is_multiple_of(size)
            && team.iter().enumerate().all(|(i, rank)| *rank == first + i as u32 * stride && *rank < world)
    })
}

/// A short name for what a communicator is for, and whether it was read rather than inferred.
fn name(communicator: &Communicator, id: CommId, resolved: &[Vec<Resolved>]) -> (String, bool) {
    let desc = communicator.desc.to_ascii_lowercase();
    if let Some(mesh) = desc.strip_prefix("mesh_").filter(|rest| !rest.is_empty()) {
        return (sanitized(mesh), true);
    }
    let words = [
        ("expert", "ep"),
        ("tensor", "tp"),
        ("pipeline", "pp"),
        ("context", "cp"),
        ("sequence", "sp"),
        ("data", "dp"),
        ("shard", "dp"),
        ("replicate", "dp"),
    ];
    if let Some((_, name)) = words.iter().find(|(word, _)| desc.contains(word)) {
        return ((*name).to_owned(), true);
    }
    if ["dp", "tp", "pp", "ep", "cp", "sp", "fsdp"].contains(&desc.as_str()) {
        return (desc, true);
    }
    let mine =
        || resolved.iter().flatten().filter(|kernel| kernel.communicator == id && !is_barrier(&kernel.operation));
    let only = |test: &dyn Fn(&Operation) -> bool| mine().all(|kernel| test(&kernel.operation));
    let all_to_all = |operation: &Operation| match operation {
        Operation::Collective { collective, .. } => collective.kind == CollectiveKind::AllToAll,
        Operation::Group(_) | Operation::P2p(_) => false,
    };
    let name = if only(&|operation| matches!(operation, Operation::P2p(_))) {
        "pp"
    } else if only(&all_to_all) {
        "ep"
    } else {
        "dp"
    };
    (name.to_owned(), false)
}

/// Whether it is a barrier, by itself or as the all-reduce of one number that libraries make of it: that tells nothing of
/// what a group is for.
fn is_barrier(operation: &Operation) -> bool {
    const NUMBER_BYTES: u64 = 8;
    match operation {
        Operation::Collective { collective, .. } => match collective.kind {
            CollectiveKind::Barrier => true,
            CollectiveKind::AllReduce => collective.size.is_some_and(|size| size <= NUMBER_BYTES),
            _ => false,
        },
        Operation::Group(_) | Operation::P2p(_) => false,
    }
}

fn sanitized(text: &str) -> String {
    let name: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("axis_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(groups: &[(&[u32], &str)], world: u32) -> Axes {
        let all = groups
            .iter()
            .map(|(ranks, desc)| Communicator { ranks: ranks.to_vec(), index: 0, desc: (*desc).to_owned() })
            .collect();
        let captured: Vec<u32> = groups.iter().flat_map(|(ranks, _)| ranks.iter().copied()).collect();
        axes(&Communicators::listed(all), &[], &captured, world)
    }

    #[test]
    fn teams_of_one_purpose_make_an_axis_and_grids_get_sizes() {
        let axes = of(
            &[(&[0, 1], "tensor_parallel"), (&[2, 3], "tensor_parallel"), (&[0, 2], "mesh_dp"), (&[1, 3], "mesh_dp")],
            4,
        );
        let shapes: Vec<_> = axes.axes.iter().map(|a| (a.name.as_str(), a.shape.clone())).collect();
        assert_eq!(shapes, [("dp", AxisShape::Size(2)), ("tp", AxisShape::Size(2))]);
        assert_eq!(axes.axis_of, [1, 1, 0, 0]);
        assert!(axes.assumed.is_empty());
    }

    #[test]
    fn a_split_that_is_no_grid_lists_its_teams() {
        let axes = of(&[(&[0, 3], "expert_parallel"), (&[1, 2], "expert_parallel"), (&[0, 1, 2, 3], "default_pg")], 4);
        let shapes: Vec<_> = axes.axes.iter().map(|a| (a.name.as_str(), a.shape.clone())).collect();
        let listed = AxisShape::Teams(vec![vec![0, 3], vec![1, 2]]);
        assert_eq!(shapes, [("pp", AxisShape::Size(4)), ("ep", listed)]);
        assert_eq!(axes.assumed.len(), 1);
    }

    #[test]
    fn teams_of_ranks_that_were_not_captured_follow_the_others_and_that_is_said() {
        let axes = of(&[(&[2, 3], "tensor_parallel")], 8);
        let all = (0..4).map(|team| vec![2 * team, 2 * team + 1]).collect();
        assert_eq!(axes.axes[0].shape, AxisShape::Teams(all));
        assert_eq!((axes.assumed.len(), &axes.teams[0]), (1, &vec![vec![2, 3]]));
        // Not where a captured rank is in no team, nor where the known teams are no part of a dimension.
        for (ranks, captured) in [(vec![2, 3], vec![2, 3, 4]), (vec![3, 4], vec![3, 4]), (vec![5], vec![5])] {
            assert_eq!(completed(&[ranks], &captured, 8), None);
        }
    }
}
