//! A run, as reports see it: how it was made, the pattern with its world, and what was measured.

#[cfg(feature = "tables")]
use std::sync::Arc;
use std::sync::OnceLock;

use maestro_pattern::{AxisSize, Measurement, Pattern, Plan, World};

#[cfg(feature = "tables")]
use crate::Baseline;
#[cfg(feature = "tables")]
use crate::tables::Row;
use crate::{Columns, Error, Exposure, Result, Role, RunInfo};

/// One run: read from a folder by [`Run::open`], or put together in memory by [`Run::new`].
#[derive(Clone, Debug)]
pub struct Run {
    /// How it was made.
    pub info: RunInfo,
    /// The pattern that ran.
    pub pattern: Pattern,
    /// Its axes with the sizes in force.
    pub world: World,
    pub(crate) columns: Columns,
    exposure: OnceLock<Exposure>,
    /// Per block, whether it is compared by its transfer.
    by_transfer: Vec<bool>,
    /// What others measured of its blocks alone.
    #[cfg(feature = "tables")]
    pub(crate) baseline: Option<Arc<Baseline>>,
    /// What the link of a rank can carry, as declared, in decimal gigabytes a second.
    #[cfg(feature = "tables")]
    pub(crate) link_gbps: Option<f64>,
    /// The rows of the table `blocks`, which several tables are made of.
    #[cfg(feature = "tables")]
    pub(crate) block_rows: OnceLock<Vec<Row>>,
}

impl Run {
    /// The run of `pattern` that gave `measurements`, without a folder.
    ///
    /// # Errors
    /// Sizes in `info` that the pattern's axes cannot have, or a measurement of a block, axis or rank that is unknown.
    pub fn new(info: RunInfo, pattern: Pattern, measurements: &[Measurement]) -> Result<Self> {
        let world = Self::world(&info, &pattern)
            .map_err(|source| Error::Pattern { path: info.pattern.name.clone().into(), source })?;
        let mut columns = Columns::new(&pattern, &world);
        for (index, measurement) in measurements.iter().enumerate() {
            columns.push(measurement).map_err(|why| Error::Measurement { index, why })?;
        }
        Ok(Self::assemble(info, pattern, world, columns))
    }

    /// The pattern lowered onto its axes with the sizes in force.
    ///
    /// # Errors
    /// This version refuses the pattern, though the one that made the run did not.
    pub fn plan(&self) -> maestro_pattern::Result<Plan> {
        let sizes: Vec<AxisSize> = self.info.axes.iter().filter_map(crate::AxisInfo::sized).collect();
        Plan::new(&self.pattern, &sizes)
    }

    pub(crate) fn world(info: &RunInfo, pattern: &Pattern) -> maestro_pattern::Result<World> {
        let sizes: Vec<AxisSize> = info.axes.iter().filter_map(crate::AxisInfo::sized).collect();
        World::new(&pattern.axes, &sizes)
    }

    pub(crate) fn assemble(info: RunInfo, pattern: Pattern, world: World, columns: Columns) -> Self {
        let by_transfer = pattern.blocks.iter().map(|block| Role::of(&block.work) == Role::Communication).collect();
        Self {
            info,
            pattern,
            world,
            columns,
            exposure: OnceLock::new(),
            by_transfer,
            #[cfg(feature = "tables")]
            baseline: None,
            #[cfg(feature = "tables")]
            link_gbps: None,
            #[cfg(feature = "tables")]
            block_rows: OnceLock::new(),
        }
    }

    /// The same run, of which reports say how it stands to what others measured and to what the link of a rank can carry, in
    /// decimal gigabytes a second.
    #[cfg(feature = "tables")]
    pub fn beside(self, baseline: Option<Arc<Baseline>>, link_gbps: Option<f64>) -> Self {
        Self { baseline, link_gbps, block_rows: OnceLock::new(), ..self }
    }

    /// What was measured.
    pub fn measurements(&self) -> &Columns {
        &self.columns
    }

    /// What a measurement is compared by, in nanoseconds: waiting for a late rank is not contention, so communication by
    /// its transfer alone (missing where that is unknown), everything else by its latency. Panics beyond the end.
    pub fn compared_ns(&self, row: usize) -> Option<u64> {
        if self.by_transfer[self.columns.block[row] as usize] {
            self.columns.transfer_ns.get(row)
        } else {
            Some(self.columns.latency_ns(row))
        }
    }

    /// Which communication no compute hid; computed at the first call, then kept.
    pub fn exposure(&self) -> &Exposure {
        self.exposure.get_or_init(|| Exposure::of(&self.columns, &self.pattern))
    }
}
