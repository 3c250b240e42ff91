//! Bytes that an operator reads and writes, from shapes and the operator's definition.
//!
//! Each tensor that an operator reads counts once, each that it writes once, as if no cache held anything and no kernel
//! came back to what it had read; where an operator is known to be two passes over its inputs, both count. Results are
//! not recorded, so their sizes follow from the inputs'. A tensor that is handed over for the result (`out=`) stands
//! behind the inputs in the row: a rule therefore knows how many of the first arguments are read.

use super::shapes::{Element, Row, elements};
use super::{Work, lists};

/// The traffic that a rule gives for a row: bytes; or elements of lists, the bytes of which kernels' names tell.
/// `None`: no rule, or shapes that it cannot use.
pub(super) fn traffic(row: &Row<'_>) -> Option<Work> {
    if let Some(lists) = lists::lists(row) {
        return Some(lists);
    }
    let bytes = bytes(row)?;
    (bytes > 0).then_some(Work::Traffic { bytes, guessed: false })
}

/// The traffic of an operator without a rule: its inputs read, and as much written as the largest of them has.
pub(super) fn guess(row: &Row<'_>) -> Option<Work> {
    let (mut sum, mut most) = (0u64, 0);
    for bytes in (0..row.shapes.len()).filter_map(|at| row.bytes(at)) {
        sum = sum.checked_add(bytes)?;
        most = bytes.max(most);
    }
    // Rows that compiled kernels have of their own list the results among the arguments.
    let bytes = if row.base.starts_with("triton_") { sum } else { sum.checked_add(most)? };
    (bytes > 0).then_some(Work::Traffic { bytes, guessed: true })
}

fn bytes(row: &Row<'_>) -> Option<u64> {
    let (base, in_place) = row.base.strip_suffix('_').map_or((row.base, false), |base| (base, true));
    let read = |ats: &[usize]| {
        let tensors = ats.iter().filter_map(|at| row.bytes(*at));
        tensors.fold(0u64, u64::saturating_add)
    };
    let of = |elements: u64, at: usize| Some(elements.saturating_mul(row.shapes.element(at)?.bytes));
    let map = |inputs: usize| map(row, inputs, in_place);
    Some(match base {
        "fill" | "zero" | "random" | "normal" | "uniform" | "bernoulli" | "exponential" | "geometric"
        | "log_normal" | "cauchy"
            if in_place =>
        {
            row.bytes(0)?
        }
        "copy" => row.bytes(0)?.saturating_add(row.bytes(1)?),
        "_to_copy"
        | "clone"
        | "contiguous"
        | "split_with_sizes_copy"
        | "repeat_interleave"
        | "flip"
        | "roll"
        | "tril"
        | "triu"
        | "cumsum" => row.bytes(0)?.saturating_mul(2),
        "relu"
        | "gelu"
        | "silu"
        | "sigmoid"
        | "tanh"
        | "exp"
        | "log"
        | "sqrt"
        | "rsqrt"
        | "neg"
        | "abs"
        | "sin"
        | "cos"
        | "erf"
        | "square"
        | "reciprocal"
        | "sign"
        | "floor"
        | "ceil"
        | "round"
        | "clamp"
        | "clamp_min"
        | "clamp_max"
        | "leaky_relu"
        | "elu"
        | "hardtanh"
        | "hardswish"
        | "hardsigmoid"
        | "softplus"
        | "mish"
        | "log_sigmoid_forward"
        | "logit"
        | "nan_to_num"
        | "bitwise_not"
        | "threshold" => map(1)?,
        "add"
        | "sub"
        | "rsub"
        | "mul"
        | "div"
        | "pow"
        | "atan2"
        | "fmod"
        | "remainder"
        | "floor_divide"
        | "maximum"
        | "minimum"
        | "masked_fill"
        | "bitwise_and"
        | "bitwise_or"
        | "bitwise_xor"
        | "gelu_backward"
        | "silu_backward"
        | "sigmoid_backward"
        | "tanh_backward"
        | "threshold_backward"
        | "leaky_relu_backward"
        | "hardtanh_backward"
        | "hardswish_backward"
        | "native_dropout_backward"
        | "_softmax_backward_data"
        | "_log_softmax_backward_data"
        | "mse_loss"
        | "smooth_l1_loss"
        | "huber_loss"
        | "lerp" => map(2)?,
        "where"
        | "addcmul"
        | "addcdiv"
        | "mse_loss_backward"
        | "smooth_l1_loss_backward"
        | "binary_cross_entropy_with_logits" => map(3)?,
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "logical_and" | "logical_or" | "logical_xor" | "logical_not"
        | "isnan" | "isinf" | "isfinite" => read(&[0, 1]).saturating_add(broadcast(row, 2)?),
        // A mask of bytes beside the result.
        "native_dropout" => row.bytes(0)?.saturating_mul(2).saturating_add(row.elements(0)?),
        // `half_to_float`: the result may be wider than the input.
        "_softmax" | "_log_softmax" if row.flag(2) == Some(true) => {
            row.bytes(0)?.saturating_add(row.elements(0)?.saturating_mul(4))
        }
        "_softmax" | "_log_softmax" => row.bytes(0)?.saturating_mul(2),
        "sum" | "mean" | "prod" | "amax" | "amin" | "max" | "min" | "all" | "any" | "argmax" | "argmin" | "norm"
        | "linalg_vector_norm" | "logsumexp" | "std" | "var" | "var_mean" | "std_mean" | "count_nonzero" => {
            row.bytes(0)?.saturating_add(of(reduced(row), 0)?)
        }
        "native_layer_norm" | "_fused_rms_norm" | "rms_norm" | "native_group_norm" => {
            row.bytes(0)?.saturating_mul(2).saturating_add(read(&[1, 2, 3]))
        }
        // Gradient and input are read for the input's gradient, and again for the weight's.
        "native_layer_norm_backward" | "_fused_rms_norm_backward" | "native_group_norm_backward" => {
            let each = row.bytes(0)?.saturating_add(row.bytes(1)?);
            each.saturating_mul(2).saturating_add(row.bytes(1)?)
        }
        // Statistics of a batch want all of it before any can be normalised.
        "native_batch_norm" | "cudnn_batch_norm" | "miopen_batch_norm" | "_native_batch_norm_legit" => {
            row.bytes(0)?.saturating_mul(3)
        }
        "native_batch_norm_backward" | "cudnn_batch_norm_backward" | "miopen_batch_norm_backward" => {
            let each = row.bytes(0)?.saturating_add(row.bytes(1)?);
            each.saturating_mul(2).saturating_add(row.bytes(0)?.max(row.bytes(1)?))
        }
        // Of every row one element is touched, and its target; the rest of the gradient is another operator's fill.
        "nll_loss_forward" | "nll_loss2d_forward" => row.bytes(1)?.saturating_add(of(row.elements(1)?, 0)?),
        "nll_loss_backward" | "nll_loss2d_backward" => row.bytes(2)?.saturating_add(of(row.elements(2)?, 1)?),
        // Lookups read the rows that they touch and write them.
        "embedding" => {
            let width = row.dims(0)?.last()?;
            row.bytes(1)?.saturating_add(of(row.elements(1)?.saturating_mul(*width), 0)?.saturating_mul(2))
        }
        "index_select" => {
            let taken = taken(row)?;
            row.bytes(2)?.saturating_add(of(taken, 0)?.saturating_mul(2))
        }
        // `index_copy(self, dim, index, source)`: without a trailing underscore all of self is copied first.
        "index_copy" | "index_add" => {
            let source = row.bytes(3)?.saturating_mul(if base == "index_add" { 3 } else { 2 });
            source.saturating_add(row.bytes(2)?)
        }
        // The index may be a small one stretched, which shapes do not tell: only what it picks is counted.
        "gather" => of(row.elements(2)?, 0)?.saturating_mul(2),
        "scatter" => of(row.elements(2)?, 0)?.saturating_mul(2),
        "scatter_add" => of(row.elements(2)?, 0)?.saturating_mul(3),
        "index" => of(picked(row)?, 0)?.saturating_mul(2).saturating_add(row.list_elements(1)?.saturating_mul(8)),
        // Into zeros without accumulating values are written, and with it read, added and written.
        "index_put" | "_index_put_impl" => {
            let passes = if row.flag(3) == Some(true) { 3 } else { 2 };
            // Lists of indices are often not recorded; there are mostly as many values as places.
            let index = row.list_elements(1).unwrap_or(0).saturating_mul(8);
            of(picked(row).or_else(|| row.elements(2))?, 0)?.saturating_mul(passes).saturating_add(index)
        }
        // The gradients of all places are read, and as many rows written as can differ.
        "embedding_dense_backward" => {
            let (places, grad) = (row.elements(1)?, row.elements(0)?);
            let words = row.value(2).and_then(|words| words.parse().ok()).unwrap_or(places);
            let written = grad.checked_div(places)?.saturating_mul(words.min(places));
            row.bytes(0)?.saturating_add(row.bytes(1)?).saturating_add(of(written, 0)?)
        }
        _ => return None,
    })
}

/// An element-wise operator: reads the first `inputs` tensors and writes their broadcast, or the first in place.
fn map(row: &Row<'_>, inputs: usize, in_place: bool) -> Option<u64> {
    let read = (0..inputs).filter_map(|at| row.bytes(at)).fold(0u64, u64::saturating_add);
    let written =
        if in_place { row.bytes(0)? } else { broadcast(row, inputs)?.saturating_mul(promoted(row, inputs)?.bytes) };
    Some(read.saturating_add(written))
}

/// Elements of the broadcast of the first `inputs` tensors.
fn broadcast(row: &Row<'_>, inputs: usize) -> Option<u64> {
    let tensors = || (0..inputs).filter(|at| row.shapes.element(*at).is_some()).filter_map(|at| row.dims(at));
    let axes = tensors().map(<[u64]>::len).max()?;
    let side = |axis: usize| {
        let sides = tensors().filter_map(|dims| dims.len().checked_sub(axis + 1).map(|at| dims[at]));
        // A side of one stretches to any other, to none as well.
        sides.reduce(|a, b| if a == 1 { b } else { a }).unwrap_or(1)
    };
    (0..axes).try_fold(1u64, |all, axis| all.checked_mul(side(axis)))
}

/// The type of a result of the first `inputs` tensors: the highest class, within it the widest. A tensor without
/// dimensions decides only where its class is higher than all others'.
fn promoted(row: &Row<'_>, inputs: usize) -> Option<Element> {
    let typed = (0..inputs).filter_map(|at| Some((row.shapes.element(at)?, row.dims(at)?.is_empty())));
    typed.max_by_key(|(element, scalar)| (element.class, !scalar, element.bytes)).map(|(element, _)| element)
}

/// Elements that a reduction leaves: those of the axes that its second argument does not name.
fn reduced(row: &Row<'_>) -> u64 {
    let (Some(dims), Some(axes)) = (row.dims(0), row.numbers(1)) else { return 1 };
    if axes.is_empty() {
        return 1;
    }
    let gone = |axis: usize| {
        axes.iter().any(|at| *at == axis as i64 || at.checked_add(dims.len() as i64) == Some(axis as i64))
    };
    let left: Vec<u64> = dims.iter().enumerate().filter(|(axis, _)| !gone(*axis)).map(|(_, side)| *side).collect();
    elements(&left).unwrap_or(1)
}

/// Elements that `index_select(self, dim, index)` takes; of an axis that was not recorded, the first.
fn taken(row: &Row<'_>) -> Option<u64> {
    let dims = row.dims(0)?;
    let axis: i64 = row.value(1).and_then(|axis| axis.parse().ok()).unwrap_or(0);
    let axis = if axis < 0 { axis + dims.len() as i64 } else { axis };
    let side = *dims.get(usize::try_from(axis).ok()?)?;
    row.elements(0)?.checked_div(side)?.checked_mul(row.elements(2)?)
}

/// Elements that a list of indices picks of the first argument: their broadcast times the axes that they leave.
fn picked(row: &Row<'_>) -> Option<u64> {
    let (mut places, mut indexed) = (1u64, 0);
    for index in row.shapes.list(1) {
        places = places.max(elements(index)?);
        indexed += 1;
    }
    elements(row.dims(0)?.get(indexed..)?)?.checked_mul(places).filter(|_| indexed > 0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Given, work};
    use crate::kineto::work::Work;

    fn found(name: &str, dims: &str, types: &str, values: &str) -> Option<Work> {
        let quoted =
            |all: &str| format!("[{}]", all.split(' ').map(|t| format!("\"{t}\"")).collect::<Vec<_>>().join(", "));
        work(Given { name, dims, types: &quoted(types), values: &quoted(values), ..Given::default() })
    }

    #[track_caller]
    fn bytes(name: &str, dims: &str, types: &str, values: &str, expected: u64) {
        let work = Some(Work::Traffic { bytes: expected, guessed: false });
        assert_eq!(found(name, dims, types, values), work, "{name} {dims}");
    }

    #[test]
    fn element_wise_operators_read_inputs_and_write_the_broadcast() {
        bytes("aten::gelu", "[[8, 100], []]", "c10::BFloat16 -", "", 2 * 1_600);
        bytes("aten::gelu_backward", "[[8, 100], [8, 100], []]", "c10::BFloat16 c10::BFloat16 -", "", 3 * 1_600);
        // f32 + bf16: read 4 and 2, write 4.
        bytes("aten::add", "[[8, 100], [8, 100], []]", "float c10::BFloat16 Scalar", "", 800 * 10);
        // A row and a column make a table.
        bytes("aten::mul", "[[8, 1], [100]]", "float float", "", 4 * (8 + 100 + 800));
        // A scalar tensor of a wider float does not widen the result; one of a higher class does.
        bytes("aten::mul", "[[800], []]", "float double", "", 4 * 800 + 8 + 4 * 800);
        bytes("aten::mul", "[[800], []]", "int float", "", 4 * 800 + 4 + 4 * 800);
        // In place the result is the first; a tensor for the result is not read.
        bytes("aten::add_", "[[8, 100], [100], []]", "float float Scalar", "", 4 * (800 + 100 + 800));
        bytes("aten::mul", "[[800], [800], [800]]", "float float float", "", 3 * 3_200);
        bytes("aten::lt", "[[800], []]", "float Scalar", "", 4 * 800 + 800);
        bytes("aten::where", "[[800], [800], []]", "bool float float", "", 800 + 3_200 + 4 + 3_200);
        bytes("aten::native_dropout", "[[800], [], []]", "float Scalar Scalar", "", 3_200 + 3_200 + 800);
        bytes("aten::mul", "[[0], [1]]", "float float", "", 4);
    }

    #[test]
    fn copies_and_fills_count_both_types() {
        bytes("aten::copy_", "[[800], [800], []]", "float c10::BFloat16 Scalar", "", 800 * 6);
        bytes("aten::copy_", "[[8, 100], [100], []]", "float float Scalar", "", 4 * 900);
        bytes("aten::fill_", "[[800], []]", "c10::BFloat16 Scalar", "", 1_600);
        bytes(
            "aten::split_with_sizes_copy",
            "[[2, 400], [], [], [[2, 100]]]",
            "float ScalarList Scalar TensorList",
            "",
            6_400,
        );
    }

    #[test]
    fn reductions_and_softmax_follow_their_arguments() {
        bytes("aten::sum", "[[16, 100], [], [], []]", "float ScalarList Scalar -", "- [0] True -", 4 * (1_600 + 100));
        bytes("aten::sum", "[[16, 100], [], [], []]", "float ScalarList Scalar -", "- [-1] True -", 4 * (1_600 + 16));
        bytes("aten::sum", "[[16, 100], []]", "float -", "", 4 * 1_601);
        bytes("aten::_softmax", "[[800], [], []]", "c10::Half Scalar Scalar", "- 0 False", 1_600 + 1_600);
        bytes("aten::_log_softmax", "[[800], [], []]", "c10::Half Scalar Scalar", "- 0 True", 1_600 + 3_200);
        bytes("aten::_log_softmax_backward_data", "[[800], [800], [], []]", "float float Scalar Scalar", "", 9_600);
    }

    #[test]
    fn norms_count_their_passes() {
        let types = "float ScalarList float float Scalar";
        bytes("aten::native_layer_norm", "[[8, 100], [], [100], [100], []]", types, "", 2 * 3_200 + 800);
        let dims = "[[8, 100], [8, 100], [], [8, 1], [8, 1], [100], [100], []]";
        let types = "float float ScalarList float float float float ScalarList";
        bytes("aten::native_layer_norm_backward", dims, types, "", 5 * 3_200);
        bytes("aten::native_batch_norm", "[[2, 4, 10], [4], [4]]", "float float float", "", 3 * 320);
        bytes("aten::native_batch_norm_backward", "[[2, 4, 10], [2, 4, 10], [4]]", "float float float", "", 5 * 320);
    }

    #[test]
    fn lookups_count_what_they_touch() {
        // A table of 32000 rows of 100; 50 places.
        bytes("aten::embedding", "[[32000, 100], [5, 10]]", "float long", "", 8 * 50 + 2 * 4 * 5_000);
        bytes("aten::index_select", "[[32000, 100], [], [50]]", "float Scalar long", "- 0 -", 8 * 50 + 2 * 4 * 5_000);
        bytes("aten::index_select", "[[100, 32000], [], [50]]", "float Scalar long", "- -1 -", 8 * 50 + 2 * 4 * 5_000);
        bytes(
            "aten::gather",
            "[[32000, 100], [], [50, 100], [], [50, 100]]",
            "float Scalar long Scalar float",
            "",
            40_000,
        );
        bytes("aten::index", "[[32000, 100], [[50]]]", "float TensorList", "", 40_000 + 8 * 50);
        let dims = "[[32000, 100], [[50]], [50, 100], [], []]";
        bytes("aten::_index_put_impl_", dims, "float TensorList float Scalar Scalar", "- - - True True", 60_000 + 400);
        let dims = "[[32000, 100], [], [50, 100], [], []]";
        bytes("aten::_index_put_impl_", dims, "float - float Scalar Scalar", "- - - False True", 40_000);
        let (dims, types) = ("[[5, 10, 100], [5, 10], [], [], []]", "float long Scalar Scalar Scalar");
        bytes("aten::embedding_dense_backward", dims, types, "- - 32000 -1 False", 20_000 + 400 + 20_000);
        bytes("aten::embedding_dense_backward", dims, types, "- - 10 -1 False", 20_000 + 400 + 4_000);
        bytes("aten::nll_loss_forward", "[[50, 32000], [50], [], [], []]", "float long - Scalar Scalar", "", 50 * 12);
        let dims = "[[], [50, 32000], [50], [], [], [], []]";
        bytes("aten::nll_loss_backward", dims, "float float long - Scalar Scalar float", "", 50 * 12);
    }

    #[test]
    fn what_has_no_rule_is_a_guess_that_says_so() {
        let guess = |bytes| Some(Work::Traffic { bytes, guessed: true });
        assert_eq!(found("aten::sort", "[[800], [], []]", "float Scalar Scalar", ""), guess(6_400));
        assert_eq!(found("mine::fused", "[[800], [100]]", "float c10::Half", ""), guess(3_200 + 200 + 3_200));
        assert_eq!(found("triton_poi_fused_add_0", "[[800], [800], []]", "float float int", ""), guess(2 * 3_200 + 4));
        assert_eq!(found("mine::nothing", "[[], []]", "Scalar -", ""), None);
    }
}
