//! Matrix products from the shapes of the operators that multiply matrices.
//!
//! How the operands lie in memory, which decides between kernels of different speed, follows from their strides.
//!
//! Kernels carry the external id of the innermost operator, so `aten::matmul`, which calls one of these, is none.

use maestro_pattern::GemmLayout;

use super::shapes::{Row, elements};
use crate::capture::Product;

/// Whether an operator of this name multiplies matrices.
pub(super) fn multiplies(base: &str) -> bool {
    matches!(
        plain(base),
        "mm" | "_scaled_mm"
            | "_int_mm"
            | "addmm"
            | "_addmm_activation"
            | "bmm"
            | "baddbmm"
            | "linear"
            | "_grouped_mm"
            | "_scaled_grouped_mm"
    )
}

/// The name of the same operator out of place.
fn plain(base: &str) -> &str {
    base.strip_suffix('_').unwrap_or(base)
}

/// The product that a row gives the shapes of; `None` if it does not, or gives impossible ones.
pub(super) fn product(row: &Row<'_>) -> Option<Product> {
    // `addmm(bias, a, b)`; all others begin with a and b.
    let base = plain(row.base);
    let at = usize::from(matches!(base, "addmm" | "_addmm_activation" | "baddbmm"));
    let (a, b) = (row.dims(at)?, row.dims(at + 1)?);
    let dtype = row.dtype(at)?;
    let (batch, m, n, k, inner) = match (base, a, b) {
        // Any number of leading dimensions; the weight is n x k.
        ("linear", [rows @ .., k], &[n, inner]) => (1, elements(rows)?, n, *k, inner),
        // Rows in groups, a matrix for each group: each row meets one of the matrices.
        ("_grouped_mm" | "_scaled_grouped_mm", &[m, k], &[_, inner, n]) => (1, m, n, k, inner),
        // Of two matrices the inner dimension is in groups: a result for each, which as a whole cost as one.
        (_, &[m, k], &[inner, n]) => (1, m, n, k, inner),
        (_, &[batch, m, k], &[same, inner, n]) if same == batch => (batch, m, n, k, inner),
        _ => return None,
    };
    let layout = layout(row, base, at);
    (k == inner).then_some(Product { m, n, k, batch, dtype, layout })
}

/// How the operands of the product `base` lie in memory, the left of which is the argument `at`.
fn layout(row: &Row<'_>, base: &str, at: usize) -> GemmLayout {
    let (left, right) = (row.transposed(at), row.transposed(at + 1));
    match base {
        // The weight stands n x k among the arguments. Rows of several dimensions are made one, which copies them unless
        // they lie as they should.
        "linear" => {
            let matrix = row.dims(at).is_some_and(|dims| dims.len() == 2);
            GemmLayout::of(matrix && left.unwrap_or(false), !right.unwrap_or(false))
        }
        // These take a right operand that is stored transposed and no other.
        "_scaled_mm" | "_scaled_grouped_mm" => GemmLayout::of(left.unwrap_or(false), right.unwrap_or(true)),
        _ => GemmLayout::of(left.unwrap_or(false), right.unwrap_or(false)),
    }
}

#[cfg(test)]
mod tests {
    use maestro_pattern::{Dtype, GemmLayout};

    use super::super::tests::{Given, work};
    use super::*;
    use crate::kineto::work::Work;

    fn found(name: &str, dims: &str, kind: &str) -> Option<Product> {
        laid(name, dims, "", kind)
    }

    fn laid(name: &str, dims: &str, strides: &str, kind: &str) -> Option<Product> {
        let types = vec![format!("\"{kind}\""); 4].join(", ");
        match work(Given { name, dims, strides, types: &format!("[{types}]"), ..Given::default() })? {
            Work::Products(products) => products.first().copied(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn shapes_of_every_operator_are_read() {
        let (dtype, bf16) = (Dtype::Bf16, "c10::BFloat16");
        let (m, n, k) = (16384, 4096, 1024);
        for (name, dims, batch) in [
            ("aten::mm", "[[16384, 1024], [1024, 4096]]", 1),
            ("aten::addmm", "[[4096], [16384, 1024], [1024, 4096], [], []]", 1),
            ("aten::addmm_", "[[16384, 4096], [16384, 1024], [1024, 4096], [], []]", 1),
            ("aten::_addmm_activation", "[[4096], [16384, 1024], [1024, 4096], [], []]", 1),
            ("aten::bmm", "[[3, 16384, 1024], [3, 1024, 4096]]", 3),
            ("aten::baddbmm", "[[[1], [2]], [3, 16384, 1024], [3, 1024, 4096], [], []]", 3),
            ("aten::linear", "[[8, 2048, 1024], [4096, 1024], [4096]]", 1),
            // Eight experts share the rows; each row is multiplied once.
            ("aten::_grouped_mm", "[[16384, 1024], [8, 1024, 4096], [8], []]", 1),
            // The gradient of their weights: the rows are the inner dimension.
            ("aten::_grouped_mm", "[[16384, 1024], [1024, 4096], [8], []]", 1),
        ] {
            let layout = if name == "aten::linear" { GemmLayout::Nt } else { GemmLayout::Nn };
            assert_eq!(found(name, dims, bf16), Some(Product { m, n, k, batch, dtype, layout }), "{name}");
        }
        let fp8 = found("aten::_scaled_mm", "[[16, 32], [32, 64], [], []]", "c10::Float8_e4m3fn").unwrap();
        assert_eq!((fp8.dtype, fp8.layout), (Dtype::F8e4m3, GemmLayout::Nt));
    }

    #[test]
    fn strides_give_the_layout() {
        for (name, dims, strides, expected) in [
            // Forward, both gradients, and what nobody does.
            ("aten::mm", "[[2, 3], [3, 5]]", "[[3, 1], [1, 3]]", "nt"),
            ("aten::mm", "[[2, 3], [3, 5]]", "[[3, 1], [5, 1]]", "nn"),
            ("aten::mm", "[[2, 3], [3, 5]]", "[[1, 2], [5, 1]]", "tn"),
            ("aten::mm", "[[2, 3], [3, 5]]", "[[1, 2], [1, 3]]", "tt"),
            ("aten::addmm", "[[5], [2, 3], [3, 5], []]", "[[1], [3, 1], [1, 3], []]", "nt"),
            ("aten::addmm", "[[5], [2, 3], [3, 5], []]", "[[1], [1, 2], [5, 1], []]", "tn"),
            // Attention without fused kernels: its batch is spread over what is multiplied.
            ("aten::bmm", "[[4, 2, 3], [4, 3, 5]]", "[[6, 3, 1], [15, 1, 3]]", "nt"),
            ("aten::bmm", "[[4, 2, 3], [4, 3, 5]]", "[[6, 3, 1], [15, 5, 1]]", "nn"),
            ("aten::bmm", "[[4, 2, 3], [4, 3, 5]]", "[[6, 1, 2], [15, 5, 1]]", "tn"),
            ("aten::baddbmm", "[[1], [4, 2, 3], [4, 3, 5], []]", "[[1], [6, 1, 2], [15, 1, 3], []]", "tt"),
            // Of a linear layer the weight stands n x k.
            ("aten::linear", "[[7, 2, 3], [5, 3], [5]]", "[[6, 3, 1], [3, 1], [1]]", "nt"),
            ("aten::linear", "[[7, 2, 3], [5, 3], [5]]", "[[6, 1, 2], [1, 5], [1]]", "nn"),
            ("aten::linear", "[[2, 3], [5, 3], [5]]", "[[1, 2], [3, 1], [1]]", "tt"),
            ("aten::_grouped_mm", "[[2, 3], [4, 3, 5], [4]]", "[[3, 1], [15, 1, 3], [1]]", "nt"),
            ("aten::_scaled_mm", "[[2, 3], [3, 5], [], []]", "[[3, 1], [1, 3], [], []]", "nt"),
            // Strides that tell nothing.
            ("aten::mm", "[[2, 3], [3, 5]]", "[[3], [1]]", "nn"),
            ("aten::linear", "[[2, 3], [5, 3], [5]]", "[[], [], []]", "nt"),
        ] {
            let product = laid(name, dims, strides, "float").unwrap();
            assert_eq!(product.layout.name(), expected, "{name} {dims} {strides}");
        }
    }

    #[test]
    fn impossible_shapes_are_no_product() {
        for (name, dims, kind) in [
            ("aten::mm", "[[2, 3], [4, 5]]", "float"),
            ("aten::mm", "[[2, 3]]", "float"),
            ("aten::mm", "[[2, -3], [-3, 5]]", "float"),
            ("aten::mm", "[[[2, 3]], [3, 5]]", "float"),
            ("aten::mm", "[[2, 3], [3, 5]]", "TensorList"),
            ("aten::mm", "\"none\"", "float"),
            ("aten::bmm", "[[2, 3, 4], [3, 4, 5]]", "float"),
            ("aten::linear", "[[4294967296, 4294967296, 8], [8, 8]]", "float"),
            ("aten::linear", "[[], [8, 8]]", "float"),
        ] {
            assert_eq!(found(name, dims, kind), None, "{name} {dims}");
        }
    }
}
