//! `maestro import`: a capture becomes a pattern, and says what it saw, kept, dropped and assumed.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use maestro_importers::synthesis::{Contention, Executions, HostTime, Import, Options, Sizes, synthesise};
use maestro_importers::{Notes, Reading, capture::Capture};
use maestro_pattern::Plan;
use maestro_replay::dry::Dry;
use maestro_reports::{Fidelity, Origin, RunWriter};
use serde_json::{Value, json};

use super::compute;
use crate::cli::{self, Choice};
use crate::failure::Failure;
use crate::output::{self, columns, ms, us};
use crate::record::{self, Maker};

/// A capture that became a pattern.
pub struct Imported {
    pub capture: Capture,
    pub import: Import,
    pub notes: Notes,
    /// The pattern's text.
    pub text: String,
    /// The dry run beside the capture, or why there is none.
    pub check: Result<Fidelity, String>,
}

pub fn run(args: &cli::Import) -> Result<(), Failure> {
    let imported = import(&args.captures, &args.choice)?;
    if let Some(folder) = &args.run {
        imported.save_run(folder)?;
    }
    let written = imported.write(args)?;
    if args.json {
        output::json(&imported.document())?;
        return Ok(());
    }
    let mut text = imported.describe();
    if let Some(path) = written {
        text += &format!("Pattern written to {}\n", path.display());
    }
    if args.output.as_deref() == Some(Path::new("-")) {
        // Standard output carries the pattern; what was seen goes beside it.
        eprint!("{text}");
        output::print(&imported.text)?;
    } else {
        output::print(&text)?;
    }
    Ok(())
}

/// Reads captures, makes a pattern of them and checks it against them.
///
/// # Errors
/// What is wrong with the capture, with file and position.
pub fn import(captures: &[PathBuf], choice: &Choice) -> anyhow::Result<Imported> {
    let mut notes = Notes::default();
    let reading = Reading { strict: choice.strict, ..Reading::default() };
    let mut capture = maestro_importers::read(captures, &reading, &mut notes)?;
    if let Some(pattern) = &choice.steps {
        maestro_importers::mark_steps(&mut capture, pattern)?;
    }
    let options = Options {
        name: choice.name.clone(),
        step: choice.step.clone(),
        host: choice.host,
        exact: choice.exact,
        comm_kernels: choice.comm_kernel.clone(),
        // What is odd about that other file is no matter of this capture.
        sizes: choice.sizes.as_deref().map(|file| Sizes::read(file, &mut Notes::default())).transpose()?,
    };
    let import = synthesise(&capture, &options, &mut notes)?;
    let text = import.pattern.to_yaml();
    let check = match &import.plan {
        Ok(plan) => self_check(&import, plan),
        Err(why) => Err(format!("the pattern does not run as it is: {why}")),
    };
    Ok(Imported { capture, import, notes, text, check })
}

/// Runs the pattern by the exact simulation and compares with the capture, by the code that compares any two runs.
fn self_check(import: &Import, plan: &Plan) -> Result<Fidelity, String> {
    let simulated = Dry::step(plan).map_err(|error| error.to_string())?;
    Fidelity::of(&import.pattern, &import.measurements, &simulated).ok_or_else(|| "the step takes no time".to_owned())
}

impl Imported {
    /// Writes the pattern where it shall go; gives the path, if it is a file.
    fn write(&self, args: &cli::Import) -> anyhow::Result<Option<PathBuf>> {
        let path = match &args.output {
            Some(path) if path == Path::new("-") => return Ok(None),
            Some(path) => path.clone(),
            // JSON is for programs: they say where a file shall go, or want none.
            None if args.json => return Ok(None),
            None => {
                let path = PathBuf::from(format!("{}.yaml", self.import.pattern.name));
                if std::fs::read_to_string(&path).is_ok_and(|old| old != self.text) {
                    bail!(
                        "{}: there is another pattern in this file, maybe one that was edited; name one with -o",
                        path.display()
                    );
                }
                path
            }
        };
        std::fs::write(&path, &self.text)
            .with_context(|| format!("{}: the pattern cannot be written", path.display()))?;
        Ok(Some(path))
    }

    /// Writes the captured executions as a run.
    fn save_run(&self, folder: &Path) -> anyhow::Result<()> {
        let plan = self.import.plan.as_ref();
        let plan = plan.map_err(|why| anyhow::anyhow!("the captured run cannot be saved: {why}"))?;
        let settings = maestro_reports::Settings { iterations: 1, rounds: 1, ..Default::default() };
        let maker = Maker {
            started: SystemTime::now(),
            made_by: Origin::Import,
            backend: self.capture.format,
            settings,
            notes: Vec::new(),
        };
        let info = record::info(record::id(folder), &self.import.pattern, &self.text, &plan.world, maker);
        let writer = RunWriter::create(folder, &info, &self.text)?;
        writer.write_part(0, &self.import.measurements)?;
        Ok(())
    }

    /// What a person wants to know of an import.
    pub fn describe(&self) -> String {
        let import = &self.import;
        let device = self.capture.timelines.iter().find_map(|t| t.device_name.as_deref()).unwrap_or("unknown device");
        let mut text = format!(
            "{}: {}, {}, {}, {device}\n",
            import.pattern.name,
            self.capture.format,
            output::count(self.capture.files.len(), "file"),
            output::count(import.ranks.len(), "rank")
        );
        text += &format!("\nSteps (taken: {})\n", import.chosen_step);
        text += &self.steps();
        text += "\nCommunication of the step, a rank\n";
        text += &self.collectives();
        text += "\nWhere every activity of the step went, all ranks\n";
        text += &self.conservation();
        text += &compute::lines(&self.import.compute);
        if !import.pattern.assumed.is_empty() {
            text += "\nAssumed\n";
            for assumption in &import.pattern.assumed {
                text += &format!("  {} (confidence {})\n", assumption.what, assumption.confidence.name());
            }
        }
        if !self.notes.is_empty() {
            text += "\nNotes\n";
            for (kind, note) in self.notes.iter() {
                text += &format!("  {} {kind}; the first: {}\n", note.count, note.example);
            }
        }
        text += &format!("\n{}\n", self.verdict());
        text
    }

    fn steps(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .import
            .steps
            .iter()
            .map(|step| {
                vec![
                    step.name.to_string(),
                    step.rank.to_string(),
                    step.activities.to_string(),
                    ms(step.span_ns),
                    ms(step.compute_ns),
                    ms(step.comm_ns),
                    ms(step.exposed_ns),
                    step.overlap_pct().map_or_else(|| "-".to_owned(), |pct| format!("{pct:.1}")),
                    ms(step.host.bound_ns),
                    ms(step.host.wait_ns),
                ]
            })
            .collect();
        let head = [
            "Step",
            "Rank",
            "Activities",
            "Span (ms)",
            "Compute",
            "Communication",
            "Exposed",
            "Overlap (%)",
            "Host-bound (ms)",
            "Host waits",
        ];
        columns(&head, &rows) + &self.host()
    }

    /// What to know of the host, if it matters for this step.
    fn host(&self) -> String {
        /// Share of the step from which on the host is worth a word.
        const MATTERS: f64 = 0.05;
        let steps = self.import.steps.iter().filter(|step| step.name == self.import.chosen_step);
        let Some(most) = steps.max_by_key(|step| step.host.bound_ns) else { return String::new() };
        let share = most.host.bound_ns as f64 / most.span_ns.max(1) as f64;
        if share < MATTERS {
            return String::new();
        }
        format!(
            "The host was the limit for {} ms ({:.0} %) of the step on rank {}, launching from {}. Profiling slows the \
             host: compare with a step timed without the profiler, and adapt by --host scale=F or --host none.\n",
            ms(most.host.bound_ns),
            100.0 * share,
            most.rank,
            output::count(most.host.threads, "thread")
        )
    }

    fn collectives(&self) -> String {
        let mean = |sum: i64, count: usize| ms(sum / count.max(1) as i64);
        let rows: Vec<Vec<String>> = self
            .import
            .collectives
            .iter()
            .filter(|row| row.step == self.import.chosen_step)
            .map(|row| {
                vec![
                    row.rank.to_string(),
                    row.op.clone(),
                    row.axis.clone(),
                    row.dtype.unwrap_or("-").to_owned(),
                    row.size.map_or_else(|| "unknown".to_owned(), |size| size.to_string()),
                    row.count.to_string(),
                    mean(row.duration_ns, row.count),
                    row.wait_ns.map_or_else(|| "-".to_owned(), |wait| mean(wait, row.count)),
                    row.transfer_ns.map_or_else(|| "-".to_owned(), |transfer| mean(transfer, row.count)),
                ]
            })
            .collect();
        let head = ["Rank", "Operation", "Axis", "Type", "Size (B)", "Count", "Mean (ms)", "Wait", "Transfer"];
        columns(&head, &rows)
    }

    fn conservation(&self) -> String {
        let cell = |(count, ns): (usize, i64)| vec![count.to_string(), ms(ns)];
        let rows: Vec<Vec<String>> = self
            .import
            .conservation
            .iter()
            .map(|row| {
                let mut cells = vec![row.kind.to_owned()];
                cells.extend([row.kept, row.fused, row.dropped].into_iter().flat_map(cell));
                cells.push(row.why.unwrap_or("").to_owned());
                cells
            })
            .collect();
        columns(&["Kind", "Kept", "(ms)", "Fused", "(ms)", "Dropped", "(ms)", "Why"], &rows)
    }

    /// The self-check and the pattern in two lines.
    fn verdict(&self) -> String {
        let check = match &self.check {
            Ok(check) => {
                let start = check.collective_start_error_pct.map_or_else(String::new, |pct| {
                    format!("; communication starts {pct:.2} % of the step from where it was, on average")
                });
                let what = if self.import.host == HostTime::Captured { "Self-check" } else { "With the host adapted" };
                format!(
                    "{what}: the captured step takes {:.3} ms, the pattern by dry run {:.3} ms, {:.2} % off{start}",
                    check.captured_step_us / 1e3,
                    check.other_step_us / 1e3,
                    check.step_error_pct
                )
            }
            Err(why) => format!("Self-check: not made; {why}"),
        };
        let shape = self.shape();
        let folding = self.import.folding.map_or_else(String::new, |folding| {
            format!(
                "\nFolding: executions last {:.1} % more or less than their blocks' averages, host times {:.0} us",
                folding.duration_pct,
                folding.host_ns / 1e3
            )
        });
        format!("{check}{folding}\nPattern: {} blocks, {} lines, {} instructions a rank", shape.0, shape.1, shape.2)
    }

    /// Blocks, lines, and instructions of the longest program, host time included.
    fn shape(&self) -> (usize, usize, usize) {
        let instructions = self
            .import
            .plan
            .as_ref()
            .map_or(0, |plan| plan.programs.iter().map(|program| program.instructions.len()).max().unwrap_or(0));
        (self.import.pattern.blocks.len(), self.text.lines().count(), instructions)
    }

    /// The same for a program.
    fn document(&self) -> Value {
        let import = &self.import;
        let shape = self.shape();
        json!({
            "format": self.capture.format,
            "ranks": import.ranks,
            "chosen_step": &*import.chosen_step,
            "steps": import.steps.iter().map(|step| json!({
                "rank": step.rank, "name": &*step.name, "activities": step.activities, "span_us": us(step.span_ns),
                "compute_us": us(step.compute_ns), "comm_us": us(step.comm_ns), "exposed_us": us(step.exposed_ns),
                "overlap_pct": step.overlap_pct(), "copy_us": us(step.copy_ns), "busy_us": us(step.busy_ns),
                "idle_us": us(step.span_ns - step.busy_ns), "host_threads": step.host.threads,
                "host_bound_us": us(step.host.bound_ns), "host_wait_us": us(step.host.wait_ns),
                "steady_comm_us": us(step.steady_comm_ns),
            })).collect::<Vec<_>>(),
            "collectives": import.collectives.iter().map(|row| json!({
                "rank": row.rank, "step": &*row.step, "op": row.op, "dtype": row.dtype, "size": row.size,
                "ranks": row.ranks, "axis": row.axis, "count": row.count, "duration_us": us(row.duration_ns),
                "wait_us": row.wait_ns.map(us), "transfer_us": row.transfer_ns.map(us),
                "exposed_us": row.exposed_ns / 1e3, "inferred": row.inferred,
                "algbw_gbps": row.algbw_gbps, "busbw_gbps": row.busbw_gbps, "splits": row.splits,
                "sent_bytes": row.directions.map(|(sent, _)| sent),
                "received_bytes": row.directions.map(|(_, received)| received),
                "steady_duration_us": us(row.steady_duration_ns()),
                "first": row.first.map(|first| json!({
                    "duration_us": us(first.duration_ns), "wait_us": first.wait_ns.map(us),
                    "transfer_us": first.transfer_ns.map(us),
                })),
            })).collect::<Vec<_>>(),
            "copies": import.copies.iter().map(|row| json!({
                "rank": row.rank, "step": &*row.step, "direction": row.direction, "count": row.count,
                "bytes": row.bytes, "us": us(row.duration_ns), "gbps": row.gbps,
            })).collect::<Vec<_>>(),
            "dependencies": {
                "recorded": import.waits.0, "inferred": import.waits.1,
                "streams": import.streams.iter().map(|one| json!({
                    "rank": one.rank, "stream": one.stream, "on_stream": one.on_stream, "count": one.count,
                })).collect::<Vec<_>>(),
            },
            "contention": import.contention.iter().map(contention).collect::<Vec<_>>(),
            "overlap_gain": import.gains.iter().map(|(rank, gain)| json!({
                "rank": rank, "stretches": gain.stretches, "together_us": gain.together_ns / 1e3,
                "back_to_back_us": gain.back_to_back_ns / 1e3, "efficiency_pct": gain.efficiency_pct(),
            })).collect::<Vec<_>>(),
            "axes": import.teams.iter().map(|(name, teams)| json!({"name": name, "teams": teams})).collect::<Vec<_>>(),
            "conservation": import.conservation.iter().map(|row| json!({
                "kind": row.kind, "kept": row.kept.0, "fused": row.fused.0, "dropped": row.dropped.0, "why": row.why,
                "kept_us": us(row.kept.1), "fused_us": us(row.fused.1), "dropped_us": us(row.dropped.1),
            })).collect::<Vec<_>>(),
            "compute": compute::document(&import.compute),
            "notes": self.notes.iter().map(|(kind, note)| {
                json!({"kind": kind, "count": note.count, "example": note.example})
            }).collect::<Vec<_>>(),
            "assumed": import.pattern.assumed.iter().map(|assumption| {
                json!({"what": assumption.what, "confidence": assumption.confidence.name()})
            }).collect::<Vec<_>>(),
            "folding": import.folding.map(|folding| {
                json!({"duration_error_pct": folding.duration_pct, "host_error_us": folding.host_ns / 1e3})
            }),
            "clock_error_us": us(import.clock_error_ns),
            "host_factor": import.host.factor(),
            "clock": import.clocks.iter().map(|clock| json!({
                "rank": clock.rank, "offset_us": us(clock.offset_ns), "error_us": us(clock.error_ns),
            })).collect::<Vec<_>>(),
            "arrivals": import.clocks.iter().map(|clock| {
                json!({"rank": clock.rank, "last": clock.last, "decided": clock.decided})
            }).collect::<Vec<_>>(),
            "ties": import.ties,
            "unmatched": import.unmatched.iter().map(|one| json!({
                "step": &*one.step, "number": one.number, "ranks": one.ranks,
                "seen": one.seen.iter().map(|(rank, what)| json!({"rank": rank, "what": what})).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "self_check": self.check.as_ref().ok().map(|check| json!({
                "captured_step_us": check.captured_step_us, "dry_step_us": check.other_step_us,
                "step_error_pct": check.step_error_pct,
                "collective_start_error_pct": check.collective_start_error_pct,
                "collective_end_error_pct": check.collective_end_error_pct,
            })),
            "pattern": {"blocks": shape.0, "lines": shape.1, "instructions": shape.2},
        })
    }
}

/// What ran alone as well as overlapped, for a program.
fn contention(row: &Contention) -> Value {
    let state = |executions: &Executions| json!({"count": executions.count, "mean_us": executions.mean_ns().map(|ns| ns / 1e3)});
    json!({
        "rank": row.rank, "what": &*row.what, "kind": if row.communicates { "communication" } else { "compute" },
        "alone": state(&row.alone), "together": state(&row.together), "partly": state(&row.partly),
        "slowdown": row.slowdown(),
    })
}
