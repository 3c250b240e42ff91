//! What a person reads of an import: steps, communication, contention, conservation, what was assumed, and the self-check.

use maestro_importers::synthesis::{Contention, Executions, HostTime};

use super::compute;
use super::import::Imported;
use crate::output::{self, columns, ms};

impl Imported {
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
        text += &self.contention();
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
                text += &format!("  {} {kind}; the first: {}\n", note.count, output::shortened(&note.example, 160));
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
             host: time a step without the profiler, and adapt by --host step=DURATION, scale=F or none.\n",
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

    /// What the step itself shows of contention, the most of it.
    fn contention(&self) -> String {
        /// Rows that a person reads.
        const MOST: usize = 8;
        let mean = |executions: &Executions| executions.mean_ns().map_or(0, |ns| ns as i64);
        let mut rows: Vec<&Contention> = self.import.contention.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.together.duration_ns));
        let cells = rows.into_iter().take(MOST).map(|row| {
            vec![
                row.rank.to_string(),
                output::shortened(&row.what, 48),
                row.alone.count.to_string(),
                ms(mean(&row.alone)),
                row.together.count.to_string(),
                ms(mean(&row.together)),
                row.slowdown().map_or_else(|| "-".to_owned(), |slowdown| format!("{slowdown:.2}")),
            ]
        });
        let cells: Vec<Vec<String>> = cells.collect();
        if cells.is_empty() {
            return String::new();
        }
        let head = ["Rank", "Kernel", "Alone", "(ms)", "Overlapped", "(ms)", "Slowdown"];
        format!("\nRun alone as well as overlapped in the step, most time first\n{}", columns(&head, &cells))
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
}
