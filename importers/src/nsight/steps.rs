//! Which NVTX ranges mark steps, by the names that training loops and frameworks give them, and which say nothing of a
//! step's parts.

/// Words before the number of a step, in lower case: PyTorch's profiler and common loops, Megatron's, JAX's
/// (`StepTraceAnnotation`, which writes `train#step_num=5#`).
const WORDS: [&str; 13] = [
    "profilerstep",
    "step",
    "train_step",
    "train step",
    "training step",
    "training_step",
    "global_step",
    "iteration",
    "iter",
    "train_iter",
    "train iteration",
    "training iteration",
    "batch",
];

/// Domains of libraries, in lower case: their ranges tell how a library goes about its work, not which part of a step
/// that is.
const LIBRARIES: [&str; 13] = [
    "nccl", "cccl", "cub", "thrust", "cublas", "cublaslt", "cudnn", "cufft", "curand", "cusolver", "cusparse",
    "nvshmem", "ucx",
];

/// Whether a range of this name marks a step.
pub(super) fn marks(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase();
    if let Some((_, number)) = name.split_once("#step_num=") {
        let number = number.trim_end_matches('#').split([',', '#']).next().unwrap_or_default();
        return !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    }
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let word = (word.len() < name.len()).then(|| word.trim_end_matches(['#', ' ', '_', '=', ':', '-']));
    word.is_some_and(|word| WORDS.contains(&word))
}

/// Whether a domain is a library's.
pub(super) fn is_library(domain: &str) -> bool {
    LIBRARIES.contains(&domain.to_ascii_lowercase().as_str())
}

/// Whether a range is an operator's (PyTorch's `emit_nvtx`): thousands a step, and no parts of it.
pub(super) fn is_operator(name: &str) -> bool {
    name.contains(", op_id = ") || name.contains(", seq = ") || name.starts_with("aten::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_by_a_word_and_a_number() {
        for name in [
            "ProfilerStep#12",
            "step 0",
            "Step_7",
            "step=3",
            "iteration 100",
            "Iteration: 4",
            "iter_2",
            "train#step_num=5#",
            "train#step_num=5,_r=1#",
        ] {
            assert!(marks(name), "{name}");
        }
        for name in ["step", "12", "forward step 1", "optimizer_step", "layer 3", "train#step_num=#", "substep 1", ""] {
            assert!(!marks(name), "{name}");
        }
    }
}
