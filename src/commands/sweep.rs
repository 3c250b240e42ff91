//! `maestro sweep`: the same pattern over sizes of its collectives, over settings of its communicators, or over both; a
//! run each, and one table of all.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use maestro_pattern::{CollectiveKind, Pattern, Plan, Setting, Work};
use maestro_reports::{Format, REPORTS, Run};

use super::{check, replay};
use crate::failure::Failure;
use crate::{cli, output};

/// What one run of the sweep is given.
#[derive(Clone, Debug, Default, PartialEq)]
struct Point {
    size: Option<u64>,
    settings: Vec<Setting>,
}

pub fn run(args: &cli::Sweep) -> Result<(), Failure> {
    let (fixed, points) = points(args)?;
    let world = cli::World { set: fixed, ..args.how.world.clone() };
    let ((pattern, _), _) = check::plan(&args.pattern, &world)?;
    let folder = args.how.output.clone().unwrap_or_else(|| PathBuf::from(format!("sweep-{}", pattern.name)));
    // All points are planned before the first one is run: a sweep that fails half way has cost hours.
    let planned: Vec<(Point, Pattern, Plan)> = points
        .into_iter()
        .map(|point| {
            let changed = changed(&pattern, &point, args)?;
            let plan =
                Plan::new(&changed, &world.sizes).with_context(|| format!("with {}", point.words().join(", ")))?;
            Ok((point, changed, plan))
        })
        .collect::<anyhow::Result<_>>()?;
    if args.how.plan {
        return planned.iter().try_for_each(|(point, _, plan)| {
            if !args.how.json {
                output::print(&format!("With {}: ", point.words().join(", ")))?;
            }
            replay::show_plan(plan, &args.how)
        });
    }
    let mut runs: Vec<Run> = Vec::new();
    for (point, pattern, plan) in &planned {
        let how = cli::How { output: Some(folder.join(point.name())), variant: point.given(), ..args.how.clone() };
        let replayed = replay::replay(pattern, &pattern.to_yaml(), plan, &how, args.pattern.parent())?;
        runs.extend(replayed.map(|replayed| replayed.run));
    }
    if runs.is_empty() {
        // Of the processes of a launcher only one reports.
        return Ok(());
    }
    let view = REPORTS.first().context("no report is built in")?.view(&runs)?;
    let format = if args.how.json { Format::Json } else { Format::Table };
    let mut text = view.render(format);
    if !args.how.json {
        let folder = folder.display();
        text += &format!(
            "Run folders: {folder}, one a run; `maestro report {folder} --format html -o page.html` draws the curves\n"
        );
    }
    output::print(&text)?;
    Ok(())
}

/// The settings that all runs have, and what each is given: every size with every choice of the settings' values.
///
/// # Errors
/// There is but one.
fn points(args: &cli::Sweep) -> anyhow::Result<(Vec<Setting>, Vec<Point>)> {
    let (swept, fixed): (Vec<Setting>, Vec<Setting>) =
        args.how.world.set.iter().cloned().partition(|setting| setting.value().contains(','));
    let sizes = args.size.map_or_else(|| vec![None], |size| size.sizes().into_iter().map(Some).collect());
    let mut points: Vec<Point> = sizes.into_iter().map(|size| Point { size, settings: Vec::new() }).collect();
    for setting in swept {
        let path = setting.path();
        let values: Vec<Setting> = setting
            .value()
            .split(',')
            .map(|value| format!("{path}={}", value.trim()).parse())
            .collect::<Result<_, _>>()
            .with_context(|| format!("--set {setting}"))?;
        if let Some(twice) =
            values.iter().enumerate().find_map(|(n, value)| values[..n].contains(value).then_some(value))
        {
            bail!("--set {setting}: {} is there twice; each value is a run of its own", twice.value());
        }
        let with = |point: &Point, value: &Setting| {
            let mut point = point.clone();
            point.settings.push(value.clone());
            point
        };
        points = points.iter().flat_map(|point| values.iter().map(|value| with(point, value))).collect();
    }
    if args.size.is_none() && points.len() == 1 {
        bail!(
            "there is nothing to sweep; give sizes, as --size 1MiB..1GiB, or several values of a setting, as --set \
             axis.dp.max_ctas=4,8,16"
        );
    }
    Ok((fixed, points))
}

impl Point {
    /// What run.json shall say that the run was given.
    fn given(&self) -> Vec<(String, String)> {
        let size = self.size.map(|size| ("size".to_owned(), size.to_string()));
        size.into_iter().chain(self.settings.iter().map(|one| (one.path(), one.value().to_owned()))).collect()
    }

    /// For people: `size 4096 B`, `axis.dp.max_ctas=4`.
    fn words(&self) -> Vec<String> {
        let size = self.size.map(|size| format!("size {size} B"));
        size.into_iter().chain(self.settings.iter().map(Setting::to_string)).collect()
    }

    /// The name of its run folder.
    fn name(&self) -> String {
        let size = self.size.map(|size| size.to_string());
        let parts: Vec<String> = size.into_iter().chain(self.settings.iter().map(Setting::to_string)).collect();
        parts.join("_")
    }
}

/// The pattern as `point` wants it.
///
/// # Errors
/// As [`resized`], or a setting that the pattern cannot have.
fn changed(pattern: &Pattern, point: &Point, args: &cli::Sweep) -> anyhow::Result<Pattern> {
    let mut changed = match point.size {
        Some(size) => resized(pattern, &args.block, size, &args.pattern)?,
        None => pattern.clone(),
    };
    for setting in &point.settings {
        changed.set(setting).with_context(|| format!("--set {setting}"))?;
    }
    Ok(changed)
}

/// The pattern with `size` in place of the sizes of the named blocks, or of all collectives.
///
/// # Errors
/// A name that no block has, or a block that has no one size.
fn resized(pattern: &Pattern, names: &[String], size: u64, file: &Path) -> anyhow::Result<Pattern> {
    let mut pattern = pattern.clone();
    if let Some(name) = names.iter().find(|name| pattern.blocks.iter().all(|block| block.name != **name)) {
        let known: Vec<&str> = pattern.blocks.iter().map(|block| block.name.as_str()).collect();
        bail!("{}: no block is named `{name}`; there are {}", file.display(), known.join(", "));
    }
    let mut changed = 0;
    for block in &mut pattern.blocks {
        let named = names.contains(&block.name);
        match &mut block.work {
            Work::Collective(one)
                if (named || names.is_empty()) && one.kind != CollectiveKind::Barrier && one.splits.is_empty() =>
            {
                one.size = Some(size);
                // What took so long was another size.
                block.captured_ns = None;
                block.skew = Vec::new();
                changed += 1;
            }
            _ if named => bail!(
                "{}: block `{}` has no one size to sweep; name a collective that is no barrier and has no splits",
                file.display(),
                block.name
            ),
            _ => {}
        }
    }
    if changed == 0 {
        bail!("{}: no block is a collective of one size, so there is nothing to sweep", file.display());
    }
    Ok(pattern)
}
