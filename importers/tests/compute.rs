//! What our captures' compute does, from the shapes of its operators. The figures follow from the models, not from this
//! code: a product of a weight costs two operations an element of the weight and row, forward, and twice that backward.

use std::path::PathBuf;

use maestro_importers::Notes;
use maestro_importers::capture::{Capture, OperatorWork};
use maestro_importers::synthesis::{Import, Options, synthesise};
use maestro_pattern::{GemmLayout, Kernel, Work};

fn read(name: &str, notes: &mut Notes) -> Capture {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/captures/kineto").join(name);
    maestro_importers::read(&[folder], &maestro_importers::Reading::default(), notes).expect("a capture")
}

fn import(name: &str) -> (Import, Notes) {
    let mut notes = Notes::default();
    let capture = read(name, &mut notes);
    let import = synthesise(&capture, &Options::default(), &mut notes).expect("a pattern");
    (import, notes)
}

/// 8 sequences of 2048 tokens a step and rank.
const TOKENS: f64 = 16_384.0;

/// Elements of the four layers' weights and of the head's, 32,000 x 4096.
const LARGE: f64 = 805_306_368.0 + 131_072_000.0;

#[test]
fn products_of_a_step_are_those_of_the_model() {
    for name in ["ddp_large", "fsdp_large", "fsdp_large_sync"] {
        let (import, _) = import(name);
        assert_eq!(import.compute.len(), 2, "{name}");
        for rank in &import.compute {
            assert_eq!(rank.product_flops, 6.0 * LARGE * TOKENS, "{name} rank {}", rank.rank);
            // Four layers of 8 x 32 heads of 128: two products forward and five backward, half of each masked.
            let product = 2.0 * 256.0 * 2048.0 * 2048.0 * 128.0;
            assert_eq!(rank.attention_flops, 4.0 * 7.0 * product / 2.0, "{name} rank {}", rank.rank);
        }
    }
    // Two stages of two layers, the head on the last.
    let (import, _) = import("pp_large");
    let stages: Vec<f64> = import.compute.iter().map(|rank| rank.product_flops).collect();
    assert_eq!(stages, [6.0 * 402_653_184.0 * TOKENS, 6.0 * (402_653_184.0 + 131_072_000.0) * TOKENS]);
}

#[test]
fn nearly_all_compute_of_the_large_steps_is_understood() {
    for name in ["ddp_large", "fsdp_large", "fsdp_large_sync", "pp_large"] {
        let (import, _) = import(name);
        for rank in &import.compute {
            assert!(rank.understood_pct() >= 99.0, "{name}: {rank:?}");
            assert_eq!(rank.gemm_ns + rank.attention_ns + rank.memory_ns + rank.held_ns, rank.kernels_ns);
            // No memory of these devices moves more than 4.8 TB/s, or seldom much less.
            let rate = rank.memory_bytes as f64 / rank.memory_ns as f64;
            assert!((1_500.0..4_800.0).contains(&rate), "{name}: {rate} bytes a ns");
            // 989 TFLOP/s is what the device does at most; a product that was read twice would pass it.
            let rate = rank.product_flops / rank.gemm_ns as f64;
            assert!((400_000.0..989_000.0).contains(&rate), "{name}: {rate} operations a ns");
        }
    }
}

#[test]
fn blocks_do_what_their_kernels_did() {
    let (import, _) = import("ddp_large");
    let plan = import.plan.as_ref().expect("a plan");
    // The pattern as a whole does on each rank what the capture did.
    let mut flops = vec![0.0; 2];
    for measurement in &import.measurements {
        let block = import.pattern.blocks.iter().find(|block| block.name == *measurement.block).expect("its block");
        if let Work::Compute(kernels) = &block.work {
            flops[measurement.rank as usize] += kernels.iter().map(Kernel::flops).sum::<f64>();
            let lines = |kind: fn(&Kernel) -> bool| kernels.iter().filter(|kernel| kind(kernel)).count();
            assert!(lines(|kernel| matches!(kernel, Kernel::Memory { .. })) <= 1, "{}", block.name);
            assert!(lines(|kernel| matches!(kernel, Kernel::Hold { .. })) <= 1, "{}", block.name);
        }
    }
    let expected: Vec<f64> = import.compute.iter().map(|rank| rank.product_flops + rank.attention_flops).collect();
    assert_eq!((flops, plan.world.size()), (expected, 2));
}

/// The layout that a library's kernel has in its name, as BLAS says it: `nvjet_..._TNN`, `cutlass_..._tn_align2`. The third
/// letter is the result's.
fn named(kernel: &str) -> Option<GemmLayout> {
    let tail = match kernel.split_once("gemm_") {
        Some((_, rest)) => rest.split("_align").next()?,
        None => kernel.strip_prefix("nvjet_")?,
    };
    let letters = tail.rsplit('_').next()?.to_ascii_lowercase();
    let transposed = |at: usize| match letters.as_bytes().get(at)? {
        b't' => Some(true),
        b'n' => Some(false),
        _ => None,
    };
    // BLAS counts column by column, and so its first operand is the right one.
    Some(GemmLayout::of(transposed(1)?, transposed(0)?))
}

#[test]
fn layouts_are_those_in_the_names_of_kernels() {
    for name in ["ddp_large", "fsdp_large", "pp_large", "moe", "fsdp"] {
        let capture = read(name, &mut Notes::default());
        let (mut products_seen, mut found) = (0, [0; 4]);
        for timeline in &capture.timelines {
            for (index, activity) in timeline.activities.iter().enumerate() {
                let Some((_, OperatorWork::Products(products))) = timeline.operator(index) else { continue };
                products_seen += 1;
                let Some(layout) = named(&activity.name) else { continue };
                assert_eq!(products[0].layout, layout, "{name}: {} of {products:?}", activity.name);
                found[layout as usize] += 1;
            }
        }
        // Forward, the input's gradient and the weight's, and no product whose kernel's name says nothing.
        assert_eq!(found.iter().sum::<usize>(), products_seen, "{name}");
        assert!(found[..3].iter().all(|count| *count >= 100), "{name}: {found:?}");
    }
}

#[test]
fn without_host_rows_nothing_is_understood() {
    let (import, _) = import("graph");
    for rank in &import.compute {
        assert_eq!((rank.understood_pct(), rank.held_ns), (0.0, rank.kernels_ns));
        assert!(rank.kernels_ns > 0 && rank.product_flops == 0.0);
        let [most, ..] = rank.held.as_slice() else { panic!("{rank:?}") };
        assert!(most.name.contains("nvjet") && most.count == 4, "{most:?}");
    }
}
