//! Fused attention from the shapes of its operators.
//!
//! Each library orders the same dimensions and arguments in its own way, hence the table. Of packed sequences (those
//! with a tensor of their ends) only the average length is known, and taken for each. Whether there is a causal mask
//! is a value of the row; where values were not recorded there is none.

use super::shapes::Row;
use crate::capture::Attention;

/// How one operator is called.
struct Form {
    /// Place of the queries; keys and values follow.
    query: usize,
    /// Whether dimensions are sequence x heads, and not heads x sequence.
    heads_last: bool,
    /// Place of the flag, or of the kind of mask, that says causal.
    causal: usize,
    /// Place of the ends of packed sequences.
    ends: Option<usize>,
}

fn form(base: &str) -> Option<Form> {
    let form = |query, heads_last, causal, ends| Form { query, heads_last, causal, ends };
    Some(match base {
        "_scaled_dot_product_flash_attention" => form(0, false, 4, None),
        "_scaled_dot_product_flash_attention_backward" => form(1, false, 11, None),
        "_flash_attention_forward" => form(0, true, 8, Some(3)),
        "_flash_attention_backward" => form(1, true, 11, Some(6)),
        "_scaled_dot_product_efficient_attention" => form(0, false, 6, None),
        "_scaled_dot_product_efficient_attention_backward" => form(1, false, 11, None),
        "_efficient_attention_forward" => form(0, true, 9, Some(4)),
        "_efficient_attention_backward" => form(1, true, 14, Some(6)),
        "_scaled_dot_product_cudnn_attention" => form(0, false, 6, None),
        "_scaled_dot_product_cudnn_attention_backward" => form(1, false, 14, None),
        "_cudnn_attention_forward" => form(0, false, 10, Some(4)),
        "_cudnn_attention_backward" => form(1, false, 14, Some(9)),
        "_scaled_dot_product_fused_attention_overrideable" => form(0, false, 5, None),
        "_scaled_dot_product_fused_attention_overrideable_backward" => form(1, false, 13, None),
        // The package flash-attn: its operators, and the function that older versions call without any.
        "_flash_attn_forward" | "FlashAttnFunc" => form(0, true, 5, None),
        "_flash_attn_backward" => form(1, true, 11, None),
        "_flash_attn_varlen_forward" => form(0, true, 9, Some(3)),
        "_flash_attn_varlen_backward" => form(1, true, 15, Some(9)),
        _ => return None,
    })
}

/// Whether an operator of this name is fused attention.
pub(super) fn attends(base: &str) -> bool {
    form(base).is_some()
}

/// The attention that a row gives the shapes of; `None` if it does not, or gives impossible ones.
pub(super) fn attention(row: &Row<'_>) -> Option<Attention> {
    let Form { query, heads_last, causal, ends } = form(row.base)?;
    let ends = ends.and_then(|at| row.dims(at)).and_then(|ends| ends.first()).filter(|ends| **ends > 1);
    let side = |at: usize| match (row.dims(at)?, ends) {
        // All sequences behind each other: tokens x heads x size, perhaps with a batch of one before it.
        (&[tokens, heads, size] | &[1, tokens, heads, size], Some(ends)) => {
            Some((ends - 1, heads, tokens / (ends - 1), size))
        }
        (&[batch, length, heads, size], None) if heads_last => Some((batch, heads, length, size)),
        (&[batch, heads, length, size], None) => Some((batch, heads, length, size)),
        _ => None,
    };
    let ((batch, heads, queries, head), (same, _, keys, inner), (.., value)) =
        (side(query)?, side(query + 1)?, side(query + 2)?);
    let causal = match row.value(causal) {
        // Of the memory-efficient kernels it is the kind of mask: 0 is none, 1 and 2 are causal from either corner.
        Some(kind @ ("0" | "1" | "2")) => kind != "0",
        _ => row.flag(causal).unwrap_or(false),
    };
    if (same, inner) != (batch, head) {
        return None;
    }
    let (batch, backward, dtype) = (batch.checked_mul(heads)?, query == 1, row.dtype(query)?);
    Some(Attention { batch, queries, keys, head, value, causal, backward, dtype })
}

#[cfg(test)]
mod tests {
    use maestro_pattern::Dtype;

    use super::super::tests::{Given, work};
    use super::*;
    use crate::kineto::work::Work;

    const Q: &str = "[8, 32, 2048, 128]";
    const Q_LAST: &str = "[8, 2048, 32, 128]";

    /// A row in which the queries stand at `query`, a causal flag at `causal`, and nothing else is told.
    fn found(name: &str, tensors: &[&str], query: usize, causal: Option<(usize, &str)>) -> Option<Attention> {
        let mut dims = vec!["[]"; 18];
        let mut types = vec!["\"\""; 18];
        let mut values = vec!["\"\"".to_owned(); 18];
        for (at, tensor) in tensors.iter().enumerate() {
            dims[query + at] = tensor;
            types[query + at] = "\"c10::BFloat16\"";
        }
        if let Some((at, value)) = causal {
            values[at] = format!("\"{value}\"");
        }
        let join = |all: &[&str]| format!("[{}]", all.join(", "));
        let values = format!("[{}]", values.join(", "));
        match work(Given { name, dims: &join(&dims), types: &join(&types), values: &values, ..Given::default() })? {
            Work::Attention(attention) => Some(attention),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_library_is_read_in_its_own_order() {
        let expected = Attention {
            batch: 8 * 32,
            queries: 2048,
            keys: 2048,
            head: 128,
            value: 128,
            causal: true,
            backward: false,
            dtype: Dtype::Bf16,
        };
        for (name, dims, query, causal) in [
            ("aten::_scaled_dot_product_flash_attention", Q, 0, 4),
            ("aten::_flash_attention_forward", Q_LAST, 0, 8),
            ("aten::_scaled_dot_product_efficient_attention", Q, 0, 6),
            ("aten::_scaled_dot_product_cudnn_attention", Q, 0, 6),
            ("aten::_cudnn_attention_forward", Q, 0, 10),
            ("flash_attn::_flash_attn_forward", Q_LAST, 0, 5),
            ("aten::_scaled_dot_product_flash_attention_backward", Q, 1, 11),
            ("aten::_flash_attention_backward", Q_LAST, 1, 11),
            ("aten::_scaled_dot_product_efficient_attention_backward", Q, 1, 11),
            ("aten::_scaled_dot_product_cudnn_attention_backward", Q, 1, 14),
            ("aten::_cudnn_attention_backward", Q, 1, 14),
            ("flash_attn::_flash_attn_backward", Q_LAST, 1, 11),
        ] {
            let expected = Attention { backward: query == 1, ..expected };
            let read = |value| found(name, &[dims; 3], query, Some((causal, value)));
            assert_eq!(read("True"), Some(expected), "{name}");
            assert_eq!(read("False"), Some(Attention { causal: false, ..expected }), "{name}");
        }
        for (name, query, mask) in
            [("aten::_efficient_attention_forward", 0, 9), ("aten::_efficient_attention_backward", 1, 14)]
        {
            let expected = Attention { backward: query == 1, ..expected };
            let read = |value| found(name, &[Q_LAST; 3], query, Some((mask, value)));
            assert_eq!(read("1"), Some(expected), "{name}");
            assert_eq!(read("0"), Some(Attention { causal: false, ..expected }), "{name}");
        }
    }

    #[test]
    fn shared_keys_and_other_lengths_are_read() {
        let (name, few) = ("flash_attn::_flash_attn_forward", "[8, 1024, 4, 128]");
        let read = found(name, &[Q_LAST, few, "[8, 1024, 4, 64]"], 0, None).unwrap();
        assert_eq!((read.batch, read.queries, read.keys, read.head, read.value), (256, 2048, 1024, 128, 64));
        assert!(!read.causal);
    }

    #[test]
    fn packed_sequences_have_their_average_length() {
        let tokens = "[16384, 32, 128]";
        let read =
            found("flash_attn::_flash_attn_varlen_forward", &[tokens, tokens, tokens, "[9]"], 0, Some((9, "True")));
        let read = read.unwrap();
        assert_eq!((read.batch, read.queries, read.keys, read.causal), (8 * 32, 2048, 2048, true));
    }

    #[test]
    fn impossible_shapes_are_no_attention() {
        let name = "aten::_cudnn_attention_forward";
        for dims in [[Q, "[8, 32, 2048, 64]", Q], [Q, "[4, 32, 2048, 128]", Q], [Q, "[8]", Q], ["[2, 3]", Q, Q]] {
            assert_eq!(found(name, &dims, 0, None), None, "{dims:?}");
        }
    }
}
