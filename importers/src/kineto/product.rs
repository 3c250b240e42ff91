//! Matrix products from the shapes that operators record with `record_shapes`.

use super::comm::dtype;
use super::event::{Args, Text, bare};
use crate::capture::Product;

/// Which operator multiplies matrices. Kernels carry the external id of the innermost operator, so `aten::matmul`,
/// which calls one of these, is none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Multiply {
    /// `mm(a, b)`, `_scaled_mm(a, b, ...)`
    Plain,
    /// `addmm(bias, a, b)`
    Added,
    /// `bmm(a, b)`
    Batched,
    /// `baddbmm(bias, a, b)`
    BatchedAdded,
    /// `linear(a, weight, bias)`: the weight is n x k, `a` has any number of leading dimensions
    Linear,
}

impl Multiply {
    /// The operator of this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "aten::mm" | "aten::_scaled_mm" => Some(Self::Plain),
            "aten::addmm" => Some(Self::Added),
            "aten::bmm" => Some(Self::Batched),
            "aten::baddbmm" => Some(Self::BatchedAdded),
            "aten::linear" => Some(Self::Linear),
            _ => None,
        }
    }

    /// The product that `args` give the shapes of; `None` if they do not, or give impossible ones.
    pub(super) fn product(self, args: &Args<'_>) -> Option<Product> {
        let at = match self {
            Self::Plain | Self::Batched | Self::Linear => 0,
            Self::Added | Self::BatchedAdded => 1,
        };
        let (a, b) = (shape(args, at)?, shape(args, at + 1)?);
        let types: Vec<Text<'_>> = serde_json::from_str(args.input_type?.get()).ok()?;
        let dtype = dtype(bare(Some(*types.get(at)?)))?;
        let (batch, m, n, k, inner) = match (self, a.as_slice(), b.as_slice()) {
            (Self::Plain | Self::Added, &[m, k], &[inner, n]) => (1, m, n, k, inner),
            (Self::Batched | Self::BatchedAdded, &[batch, m, k], &[same, inner, n]) if same == batch => {
                (batch, m, n, k, inner)
            }
            (Self::Linear, [rows @ .., k], &[n, inner]) => {
                (1, rows.iter().try_fold(1u64, |m, rows| m.checked_mul(*rows))?, n, *k, inner)
            }
            _ => return None,
        };
        (k == inner).then_some(Product { m, n, k, batch, dtype })
    }
}

/// The dimensions of argument `at`. Arguments that are lists of tensors have lists of dimensions, so only the wanted
/// one is read as numbers.
fn shape(args: &Args<'_>, at: usize) -> Option<Vec<u64>> {
    let shapes: Vec<Text<'_>> = serde_json::from_str(args.input_dims?.get()).ok()?;
    serde_json::from_str(shapes.get(at)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use maestro_pattern::Dtype;

    use super::*;

    fn product(name: &str, dims: &str, kind: &str) -> Option<Product> {
        let types = vec![format!("\"{kind}\""); 4].join(", ");
        let args = format!(r#"{{"Input Dims": {dims}, "Input type": [{types}]}}"#);
        Multiply::from_name(name).unwrap().product(&Args::of(&args))
    }

    #[test]
    fn shapes_of_every_operator_are_read() {
        let (dtype, bf16) = (Dtype::Bf16, "c10::BFloat16");
        let (m, n, k) = (16384, 4096, 1024);
        for (name, dims, batch) in [
            ("aten::mm", "[[16384, 1024], [1024, 4096]]", 1),
            ("aten::addmm", "[[4096], [16384, 1024], [1024, 4096], [], []]", 1),
            ("aten::bmm", "[[3, 16384, 1024], [3, 1024, 4096]]", 3),
            ("aten::baddbmm", "[[[1], [2]], [3, 16384, 1024], [3, 1024, 4096], [], []]", 3),
            ("aten::linear", "[[8, 2048, 1024], [4096, 1024], [4096]]", 1),
        ] {
            assert_eq!(product(name, dims, bf16), Some(Product { m, n, k, batch, dtype }), "{name}");
        }
        let fp8 = product("aten::_scaled_mm", "[[16, 32], [32, 64], [], []]", "c10::Float8_e4m3fn").unwrap();
        assert_eq!(fp8.dtype, Dtype::F8e4m3);
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
            assert_eq!(product(name, dims, kind), None, "{name} {dims}");
        }
    }
}
