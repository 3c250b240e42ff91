//! Memory traffic of lists of tensors: optimizers, `_foreach_` operators, concatenations.
//!
//! A row records their dimensions without their element types, and of more than thirty tensors not even these. The
//! kernels that do the work tell both: types stand in the arguments of their templates, and ATen's kernel for lists
//! gives every thread block the same number of elements.

use super::Work;
use super::shapes::{Element, Row};
use crate::capture::{Activity, ActivityKind, OperatorWork};

/// Elements that a thread block of ATen's `multi_tensor_apply_kernel` takes; the last of a tensor takes what is left.
const CHUNK: u64 = 65_536;

/// Lists of tensors: how many elements, and how often each is read and written.
pub(super) fn lists(row: &Row<'_>) -> Option<Work> {
    let elements = |at: usize| row.list_elements(at);
    let lists = |elements, reads, writes| Some(Work::Lists { elements, reads, writes });
    // Lists of the first arguments that are lists of tensors; more than thirty tensors are recorded as none.
    let count = (0..row.shapes.len()).take_while(|at| is_list(row, *at)).count() as u8;
    match row.base {
        // Parameters, gradients, momentum, variance, perhaps its maximum; gradients are only read.
        "_fused_adamw_" | "_fused_adam_" if row.flag(12) == Some(true) => lists(elements(0), 5, 4),
        "_fused_adamw_" | "_fused_adam_" => lists(elements(0), 4, 3),
        // Without momentum its list is empty, and that is how lists that are too long look: a length in common tells.
        "_fused_sgd_" => match (elements(0), elements(2)) {
            (Some(all), None) => lists(Some(all), 2, 1),
            (all, _) => lists(all, 3, 2),
        },
        "_fused_adagrad_" => lists(elements(0), 3, 2),
        "_foreach_copy_" => lists(elements(0), 1, 1),
        "_foreach_zero_" => lists(elements(0), 0, 1),
        "_foreach_norm" | "_foreach_max" => lists(elements(0), 1, 0),
        "_amp_foreach_non_finite_check_and_unscale_" => lists(elements(0), 1, 1),
        base if base.starts_with("_foreach_") => lists(elements(0), count.max(1), 1),
        "cat" | "stack" | "all_gather_copy_in" => lists(Some(elements(0)?), 1, 1),
        // The result is padded to whole chunks; its own shape stands last, if it was handed over.
        "_chunk_cat" | "chunk_cat" => lists(Some(row.elements(3).or_else(|| elements(0))?), 1, 1),
        _ => None,
    }
}

fn is_list(row: &Row<'_>, at: usize) -> bool {
    row.type_name(at) == Some("TensorList")
}

/// The traffic of lists of so many elements, read and written so often, once the kernels that do it are known; `None`: their
/// names and sizes do not tell enough.
pub(super) fn traffic<'a>(
    elements: Option<u64>,
    (reads, writes): (u8, u8),
    kernels: impl Iterator<Item = &'a Activity> + Clone,
) -> Option<OperatorWork> {
    let types = kernels.clone().find_map(|kernel| types(&kernel.name));
    let guessed = elements.is_none() || types.is_none();
    // No tensor is larger than its chunks; most are of single precision.
    let elements = elements.or_else(|| chunks(kernels)?.checked_mul(CHUNK))?;
    let (to, from) = types.unwrap_or((4, 4));
    let each = u64::from(reads) * from + u64::from(writes) * to;
    Some(OperatorWork::Traffic { bytes: elements.checked_mul(each)?, guessed, lasts_ns: None })
}

/// Thread blocks of the kernels that take a chunk each.
fn chunks<'a>(kernels: impl Iterator<Item = &'a Activity>) -> Option<u64> {
    let blocks =
        kernels.filter(|kernel| kernel.name.contains("multi_tensor_apply_kernel")).map(|kernel| match kernel.kind {
            ActivityKind::Kernel { blocks } => blocks,
            ActivityKind::Copy { .. } | ActivityKind::Set { .. } => 0,
        });
    Some(blocks.fold(0, u64::saturating_add)).filter(|blocks| *blocks > 0)
}

/// Bytes of the elements that a kernel writes and reads, from the arguments of its template.
fn types(name: &str) -> Option<(u64, u64)> {
    let words = |text: &str| -> Vec<u64> {
        let words = text.split(['<', '>', ',', '(', ')']).map(|word| word.trim().trim_start_matches("at::native::"));
        words.filter_map(|word| Element::from_name(word).map(|element| element.bytes)).collect()
    };
    // These name what they write and then what they read.
    for head in ["::Copy<", "CopyFunctor<", "chunk_cat_cuda_kernel<"] {
        if let Some((_, rest)) = name.split_once(head)
            && let [to, from, ..] = words(rest)[..]
        {
            return Some((to, from));
        }
    }
    if let Some((_, rest)) = name.split_once("OpaqueType<") {
        let bytes: u8 = rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()?;
        return Some((bytes.into(), bytes.into()));
    }
    words(name).first().map(|bytes| (*bytes, *bytes))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Given, work};
    use super::*;

    fn found(name: &str, dims: &str, types: &str, values: &str) -> Option<Work> {
        let quoted =
            |all: &str| format!("[{}]", all.split(' ').map(|t| format!("\"{t}\"")).collect::<Vec<_>>().join(", "));
        work(Given { name, dims, types: &quoted(types), values: &quoted(values), ..Given::default() })
    }

    #[test]
    fn lists_count_elements_until_a_kernel_tells_their_type() {
        let lists = |elements, reads, writes| Some(Work::Lists { elements, reads, writes });
        let two = "[[[8], [100]], [[8], [100]], [[8], [100]], [[8], [100]], [], [[], []]]";
        let types = "TensorList TensorList TensorList TensorList TensorList TensorList";
        assert_eq!(found("aten::_fused_adamw_", two, types, ""), lists(Some(108), 4, 3));
        let values = "- - - - - - 0.1 0.9 0.99 0.01 1e-8 False True";
        let dims = "[[], [], [], [], [], [], [], [], [], [], [], [], []]";
        assert_eq!(found("aten::_fused_adam_", dims, types, values), lists(None, 5, 4));
        assert_eq!(found("aten::_fused_sgd_", "[[[8]], [[8]], []]", types, ""), lists(Some(8), 2, 1));
        assert_eq!(
            found("aten::_foreach_copy_", "[[[8]], [[8]], []]", "TensorList TensorList Scalar", ""),
            lists(Some(8), 1, 1)
        );
        assert_eq!(
            found("aten::_foreach_add_", "[[[8]], [[8]], []]", "TensorList TensorList Scalar", ""),
            lists(Some(8), 2, 1)
        );
        assert_eq!(found("aten::_foreach_mul_", "[[[8]], []]", "TensorList Scalar", ""), lists(Some(8), 1, 1));
        assert_eq!(found("aten::_foreach_norm", "[[[8]], []]", "TensorList Scalar", ""), lists(Some(8), 1, 0));
        assert_eq!(found("aten::cat", "[[[8], [100]], []]", "TensorList Scalar", ""), lists(Some(108), 1, 1));
        let (dims, types) = ("[[[3, 4], [5]], [], [], [2, 9]]", "TensorList Scalar Scalar float");
        assert_eq!(found("fsdp::chunk_cat", dims, types, ""), lists(Some(18), 1, 1));
    }

    #[test]
    fn kernels_tell_what_lists_are_made_of() {
        let apply =
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)";
        for (rest, expected) in [
            (
                "::FusedOptimizerTensorListMetadata<4>, at::native::FusedAdamMathFunctor<float, 4, (ADAM_MODE)1, false>",
                (4, 4),
            ),
            (
                "::TensorListMetadata<2>, UnaryOpFunctor<c10::BFloat16, 2, 1, 1>, at::native::Copy<c10::BFloat16, float> >",
                (2, 4),
            ),
            ("::TensorListMetadata<1>, BinaryOpScalarFunctor<c10::Half, 1, 1, 0>, std::plus<float>, float>", (2, 2)),
        ] {
            assert_eq!(types(&format!("{apply}{rest}")), Some(expected), "{rest}");
        }
        assert_eq!(
            types("void at::native::detail::chunk_cat_cuda_kernel<float, c10::BFloat16>(c10::BFloat16**)"),
            Some((4, 2))
        );
        assert_eq!(
            types("void at::native::CatArrayBatchedCopy<at::native::OpaqueType<8u>, unsigned int, 2>"),
            Some((8, 8))
        );
        assert_eq!(types("nvjet_sm90"), None);
    }
}
