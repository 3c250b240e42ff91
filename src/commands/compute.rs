//! How much of a capture's compute is understood, in words: a part of what `import` and `show` say.

use maestro_importers::synthesis::ComputeSummary;
use serde_json::{Value, json};

use crate::output::{columns, ms, us};

/// Two lines: the mean over ranks, because they are mostly alike. Nothing without compute.
pub fn lines(ranks: &[ComputeSummary]) -> String {
    let mean = |of: fn(&ComputeSummary) -> f64| ranks.iter().map(of).sum::<f64>() / ranks.len().max(1) as f64;
    let all = mean(|rank| rank.kernels_ns as f64);
    if all == 0.0 {
        return String::new();
    }
    if ranks.iter().all(|rank| rank.held_ns == rank.kernels_ns) {
        let why = "no kernel is linked to an operator with shapes";
        return format!("\nCompute: nothing of it is understood, all of it is held: {why}\n");
    }
    let pct = |of: fn(&ComputeSummary) -> f64| 100.0 * mean(of) / all;
    let held = pct(|rank| rank.held_ns as f64);
    format!(
        "\nCompute: {:.1} % of its time is understood: products {:.1} %, attention {:.1} %, memory traffic {:.1} % \
         ({:.1} % a guess)\n\
         A rank: {:.4} TFLOP of products, {:.4} TFLOP of attention, {:.1} GB read and written\n",
        100.0 - held,
        pct(|rank| rank.gemm_ns as f64),
        pct(|rank| rank.attention_ns as f64),
        pct(|rank| rank.memory_ns as f64),
        pct(|rank| rank.guessed_ns as f64),
        mean(|rank| rank.product_flops) / 1e12,
        mean(|rank| rank.attention_flops) / 1e12,
        mean(|rank| rank.memory_bytes as f64) / 1e9,
    )
}

/// A row a rank, and the largest kernels that are not understood.
pub fn table(ranks: &[ComputeSummary]) -> String {
    let rows: Vec<Vec<String>> = ranks
        .iter()
        .map(|rank| {
            let share = |ns: i64| format!("{:.1}", 100.0 * ns as f64 / rank.kernels_ns.max(1) as f64);
            vec![
                rank.rank.to_string(),
                ms(rank.kernels_ns),
                format!("{:.1}", rank.understood_pct()),
                share(rank.gemm_ns),
                share(rank.attention_ns),
                share(rank.memory_ns),
                share(rank.guessed_ns),
                format!("{:.4}", rank.product_flops / 1e12),
                format!("{:.4}", rank.attention_flops / 1e12),
                format!("{:.1}", rank.memory_bytes as f64 / 1e9),
            ]
        })
        .collect();
    let head = [
        "Rank",
        "Kernels (ms)",
        "Understood (%)",
        "Products",
        "Attention",
        "Memory",
        "Guessed",
        "Products (TFLOP)",
        "Attention",
        "Memory (GB)",
    ];
    let mut text = columns(&head, &rows);
    let held = ranks.iter().flat_map(|rank| rank.held.iter().map(move |held| (rank.rank, held)));
    let held: Vec<Vec<String>> = held
        .map(|(rank, held)| vec![rank.to_string(), ms(held.ns), held.count.to_string(), short(&held.name)])
        .collect();
    if !held.is_empty() {
        text += "\nThe largest kernels that are not understood\n";
        text += &columns(&["Rank", "Sum (ms)", "Count", "Kernel"], &held);
    }
    text
}

/// The same for a program.
pub fn document(ranks: &[ComputeSummary]) -> Value {
    let rank = |rank: &ComputeSummary| {
        json!({
            "rank": rank.rank, "kernels_us": us(rank.kernels_ns), "understood_pct": rank.understood_pct(),
            "gemm_us": us(rank.gemm_ns), "attention_us": us(rank.attention_ns), "memory_us": us(rank.memory_ns),
            "guessed_us": us(rank.guessed_ns), "held_us": us(rank.held_ns),
            "product_tflop": rank.product_flops / 1e12, "attention_tflop": rank.attention_flops / 1e12,
            "memory_bytes": rank.memory_bytes,
            "held": rank.held.iter().map(|held| {
                json!({"name": held.name, "count": held.count, "us": us(held.ns)})
            }).collect::<Vec<_>>(),
        })
    };
    ranks.iter().map(rank).collect()
}

/// A kernel's name, as long as a line can hold.
fn short(name: &str) -> String {
    const LONGEST: usize = 80;
    if name.chars().count() <= LONGEST {
        return name.to_owned();
    }
    name.chars().take(LONGEST - 3).chain("...".chars()).collect()
}
