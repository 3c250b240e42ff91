//! What a program reads of an import: one JSON document with the units in its keys.

use maestro_importers::synthesis::{Contention, Executions};
use serde_json::{Value, json};

use super::compute;
use super::import::Imported;
use crate::output::us;

impl Imported {
    /// The same for a program.
    pub fn document(&self) -> Value {
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
