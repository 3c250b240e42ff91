//! The axes with sizes: which rank has which coordinates, and who its team mates are.

use crate::{Axis, AxisShape, Error, Result, Selector, When};

/// Most ranks that a world may have.
pub const MOST_RANKS: u64 = 1 << 20;

/// A new size for a regular axis, as `--axis dp=4` gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisSize {
    /// Name of the axis.
    pub name: String,
    /// Its size.
    pub size: u32,
}

/// The axes with sizes. Ranks count row by row: the first axis is the slowest to vary.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    axes: Vec<Axis>,
    size: u32,
    /// Per axis: its teams, each a list of global ranks.
    teams: Vec<Vec<Vec<u32>>>,
    /// Per axis, per rank: (team, place in the team), if the rank is in one.
    seats: Vec<Vec<Option<(u32, u32)>>>,
}

impl World {
    /// Gives `axes` their sizes, `sizes` overriding those of regular ones.
    ///
    /// # Errors
    /// An override that names no regular axis, a size of 0, a world of more than [`MOST_RANKS`] ranks, or listed teams that are
    /// empty, overlap, or name a rank outside the world.
    pub fn new(axes: &[Axis], sizes: &[AxisSize]) -> Result<Self> {
        let mut axes = axes.to_vec();
        for wanted in sizes {
            let known: Vec<String> = axes.iter().map(|a| a.name.clone()).collect();
            let Some(axis) = axes.iter_mut().find(|axis| axis.name == wanted.name) else {
                return Err(Error::at(Default::default(), format!("no axis is named `{}`", wanted.name))
                    .nearest(&wanted.name, known.iter().map(String::as_str)));
            };
            match &mut axis.shape {
                AxisShape::Size(size) => *size = wanted.size,
                AxisShape::Teams(_) => {
                    return Err(Error::at(
                        axis.place,
                        format!("axis `{}` lists its teams and cannot be given a size", axis.name),
                    )
                    .help("change the teams in the pattern"));
                }
            }
        }
        let size = Self::count(&axes)?;
        let mut world = Self { size, teams: Vec::new(), seats: Vec::new(), axes: Vec::new() };
        let mut stride = size;
        for axis in &axes {
            let teams = match &axis.shape {
                AxisShape::Size(n) => {
                    stride /= n;
                    regular_teams(size, *n, stride)
                }
                AxisShape::Teams(teams) => teams.clone(),
            };
            let seats = seats(axis, &teams, size)?;
            world.teams.push(teams);
            world.seats.push(seats);
        }
        world.axes = axes;
        Ok(world)
    }

    fn count(axes: &[Axis]) -> Result<u32> {
        let mut regular = None;
        let mut listed = 0;
        for axis in axes {
            match &axis.shape {
                AxisShape::Size(0) => {
                    return Err(Error::at(axis.place, format!("axis `{}` has size 0", axis.name))
                        .help("the smallest axis has size 1"));
                }
                AxisShape::Size(n) => regular = Some(regular.unwrap_or(1u64).saturating_mul(u64::from(*n))),
                AxisShape::Teams(teams) => {
                    listed = teams.iter().flatten().map(|r| u64::from(*r) + 1).max().unwrap_or(0).max(listed);
                }
            }
        }
        let size = regular.unwrap_or(listed.max(1));
        if size > MOST_RANKS {
            return Err(Error::at(Default::default(), format!("the axes make {size} ranks; the most is {MOST_RANKS}"))
                .help("make an axis smaller"));
        }
        Ok(size as u32)
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The axes, with the sizes in force.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Index of the axis of this name.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes.iter().position(|axis| axis.name == name)
    }

    /// The teams of an axis, each a list of global ranks in team order.
    pub fn teams(&self, axis: usize) -> &[Vec<u32>] {
        &self.teams[axis]
    }

    /// (team, place in it) of a rank on an axis; `None` if no listed team holds it, or the world does not.
    pub fn seat(&self, axis: usize, rank: u32) -> Option<(u32, u32)> {
        self.seats[axis].get(rank as usize).copied().flatten()
    }

    /// The global rank `offset` places further on an axis; `None` beyond an end unless the axis is taken as a ring.
    pub fn peer(&self, axis: usize, rank: u32, offset: i64, wrap: bool) -> Option<u32> {
        let (team, place) = self.seat(axis, rank)?;
        let team = &self.teams[axis][team as usize];
        peer(place as usize, offset, team.len(), wrap).map(|place| team[place])
    }

    /// Whether `when` selects `rank`.
    ///
    /// # Errors
    /// An axis that does not exist. Patterns that passed the check of names have none.
    pub fn selects(&self, when: &When, rank: u32) -> Result<bool> {
        for (name, selector) in &when.0 {
            let axis = self.axis(name).ok_or_else(|| {
                Error::at(Default::default(), format!("no axis is named `{name}`"))
                    .nearest(name, self.axes.iter().map(|a| a.name.as_str()))
            })?;
            let Some((team, place)) = self.seat(axis, rank) else { return Ok(false) };
            let size = self.teams[axis][team as usize].len() as u32;
            if !Selector::matches(selector, place, size) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The seat `offset` places from `seat` in a team of `ranks`; without `wrap`, `None` beyond either end.
pub fn peer(seat: usize, offset: i64, ranks: usize, wrap: bool) -> Option<usize> {
    let there = (seat as i64).checked_add(offset)?;
    if wrap {
        Some(there.rem_euclid(ranks as i64) as usize)
    } else {
        usize::try_from(there).ok().filter(|there| *there < ranks)
    }
}

/// Teams of a dimension of size `n` whose neighbours are `stride` ranks apart.
fn regular_teams(world: u32, n: u32, stride: u32) -> Vec<Vec<u32>> {
    (0..world)
        .filter(|rank| (rank / stride).is_multiple_of(n))
        .map(|first| (0..n).map(|i| first + i * stride).collect())
        .collect()
}

/// Where each rank sits; refuses teams that are empty, overlap or leave the world.
fn seats(axis: &Axis, teams: &[Vec<u32>], world: u32) -> Result<Vec<Option<(u32, u32)>>> {
    let mut seats = vec![None; world as usize];
    for (index, team) in teams.iter().enumerate() {
        if team.is_empty() {
            return Err(Error::at(axis.place, format!("axis `{}`: team {index} is empty", axis.name))
                .help("list at least one rank"));
        }
        for (place, rank) in team.iter().enumerate() {
            let Some(seat) = seats.get_mut(*rank as usize) else {
                return Err(Error::at(
                    axis.place,
                    format!("axis `{}`: rank {rank} is outside the world of {world} ranks", axis.name),
                )
                .help(format!("ranks go from 0 to {}", world - 1)));
            };
            if seat.is_some() {
                return Err(Error::at(axis.place, format!("axis `{}`: rank {rank} is in two teams", axis.name))
                    .help("a rank may be in one team of an axis; make a second axis for the other"));
            }
            *seat = Some((index as u32, place as u32));
        }
    }
    Ok(seats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CommSettings;

    fn axis(name: &str, shape: AxisShape) -> Axis {
        Axis { name: name.into(), shape, settings: CommSettings::default(), place: Default::default() }
    }

    #[test]
    fn the_first_axis_is_the_slowest() {
        let world = World::new(&[axis("dp", AxisShape::Size(2)), axis("tp", AxisShape::Size(4))], &[]).unwrap();
        assert_eq!(world.size(), 8);
        assert_eq!(world.teams(0), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(world.teams(1), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        assert_eq!(world.seat(1, 6), Some((1, 2)));
    }

    #[test]
    fn peers_stop_at_the_ends_unless_the_axis_is_a_ring() {
        let world = World::new(&[axis("dp", AxisShape::Size(2)), axis("pp", AxisShape::Size(3))], &[]).unwrap();
        assert_eq!(world.peer(1, 4, 1, false), Some(5));
        assert_eq!(world.peer(1, 5, 1, false), None);
        assert_eq!(world.peer(1, 5, 1, true), Some(3));
        assert_eq!(world.peer(1, 3, -4, true), Some(5));
        assert_eq!(world.peer(1, 3, i64::MAX, false), None);
    }

    #[test]
    fn listed_teams_need_not_hold_every_rank() {
        let ep = axis("ep", AxisShape::Teams(vec![vec![2, 3]]));
        let world = World::new(std::slice::from_ref(&ep), &[]).unwrap();
        assert_eq!((world.size(), world.seat(0, 0), world.seat(0, 3)), (4, None, Some((0, 1))));
        let size = AxisSize { name: "ep".into(), size: 2 };
        assert!(World::new(&[ep], &[size]).unwrap_err().message.contains("lists its teams"));
    }

    #[test]
    fn wrong_teams_and_sizes_are_refused() {
        for teams in [vec![vec![0, 1], vec![1, 2]], vec![vec![]], vec![vec![0, 9]]] {
            let axes = [axis("dp", AxisShape::Size(4)), axis("x", AxisShape::Teams(teams))];
            assert!(World::new(&axes, &[]).is_err());
        }
        assert!(World::new(&[axis("dp", AxisShape::Size(0))], &[]).is_err());
        let unknown = AxisSize { name: "pd".into(), size: 2 };
        let error = World::new(&[axis("dp", AxisShape::Size(4))], &[unknown]).unwrap_err();
        assert_eq!(error.help.as_deref(), Some("did you mean `dp`?"));
    }
}
