//! Which NVTX ranges mark steps, by the names that training loops and frameworks give them, and which say nothing of a
//! step's parts.

use crate::capture::{Annotation, StepMark};

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

/// Takes the marks of steps out of `ranges`: of one thread, the one with most of them, and of nested ones the outermost.
pub(super) fn take(ranges: &mut Vec<Annotation>) -> Vec<StepMark> {
    let marked = |range: &Annotation| marks(&range.name);
    let mut threads: Vec<i64> = ranges.iter().filter(|range| marked(range)).map(|range| range.thread).collect();
    threads.sort_unstable();
    // Of equal ones the first.
    let mut most = None;
    for group in threads.chunk_by(|a, b| a == b) {
        if most.is_none_or(|(count, _)| group.len() > count) {
            most = Some((group.len(), group[0]));
        }
    }
    let Some((_, thread)) = most else { return Vec::new() };
    let mine = ranges.extract_if(.., |range| marked(range) && range.thread == thread);
    outermost(mine.map(|range| StepMark {
        name: range.name,
        thread: range.thread,
        start_ns: range.start_ns,
        end_ns: range.end_ns,
    }))
}

/// Marks by start, without those that begin before the one in front of them has ended.
pub(super) fn outermost(marks: impl Iterator<Item = StepMark>) -> Vec<StepMark> {
    let mut marks: Vec<StepMark> = marks.collect();
    marks.sort_by_key(|mark| (mark.start_ns, std::cmp::Reverse(mark.end_ns)));
    let mut end_ns = i64::MIN;
    marks.retain(|mark| {
        let first = mark.start_ns >= end_ns;
        if first {
            end_ns = mark.end_ns;
        }
        first
    });
    marks
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

    fn range(name: &str, thread: i64, start_ns: i64, end_ns: i64) -> Annotation {
        Annotation { name: name.into(), thread, start_ns, end_ns }
    }

    #[test]
    fn marks_are_the_outermost_of_the_thread_with_most() {
        let mut ranges = vec![
            range("iteration 1", 1, 0, 100),
            range("step 1", 1, 10, 50),
            range("forward", 1, 20, 30),
            range("iteration 2", 1, 100, 200),
            range("batch 7", 2, 0, 500),
        ];
        let marks = take(&mut ranges);
        let names: Vec<&str> = marks.iter().map(|mark| &*mark.name).collect();
        assert_eq!(names, ["iteration 1", "iteration 2"]);
        let left: Vec<&str> = ranges.iter().map(|range| &*range.name).collect();
        assert_eq!(left, ["forward", "batch 7"]);
    }
}
