//! Convolutions as matrix products: the implicit form, in which every place of the result is a row.
//!
//! Forward, a result of `places` places an image and `out` channels is a product of images x places rows, out columns
//! and in x kernel as the inner dimension, once a group. Both gradients take as many operations with the three
//! dimensions in other roles. The result's places follow from stride, padding and dilation; without these values
//! nothing is known.

use maestro_pattern::{Dtype, GemmLayout};

use super::shapes::{Row, elements};
use crate::capture::Product;

/// Where an operator keeps its arguments.
struct Places {
    stride: usize,
    padding: usize,
    dilation: Option<usize>,
    groups: Option<usize>,
    transposed: Transposed,
}

/// Whether a convolution spreads its input out instead of gathering it.
enum Transposed {
    Never,
    Always,
    Argument(usize),
}

fn places(base: &str) -> Option<Places> {
    let place =
        |stride, padding, dilation, groups, transposed| Places { stride, padding, dilation, groups, transposed };
    Some(match base {
        "convolution" | "_convolution" | "convolution_overrideable" => {
            place(3, 4, Some(5), Some(8), Transposed::Argument(6))
        }
        "cudnn_convolution" => place(3, 2, Some(4), Some(5), Transposed::Never),
        "cudnn_convolution_transpose" => place(4, 2, Some(5), Some(6), Transposed::Always),
        "cudnn_convolution_relu" => place(3, 4, Some(5), Some(6), Transposed::Never),
        "cudnn_convolution_add_relu" => place(5, 6, Some(7), Some(8), Transposed::Never),
        "miopen_convolution" => place(4, 3, Some(5), Some(6), Transposed::Never),
        "miopen_convolution_transpose" => place(5, 3, Some(6), Some(7), Transposed::Always),
        "miopen_depthwise_convolution" => place(4, 3, Some(5), Some(6), Transposed::Never),
        "_conv_depthwise2d" | "conv_depthwise3d" => place(4, 5, Some(6), None, Transposed::Never),
        "_slow_conv2d_forward" | "slow_conv3d_forward" => place(4, 5, None, None, Transposed::Never),
        "slow_conv_dilated2d" | "slow_conv_dilated3d" => place(4, 5, Some(6), None, Transposed::Never),
        _ => return None,
    })
}

/// Whether an operator of this name is a convolution, or the gradients of one.
pub(super) fn convolves(base: &str) -> bool {
    base == "convolution_backward" || places(base).is_some()
}

/// The products of a convolution, or of those of its gradients that are wanted.
pub(super) fn products(row: &Row<'_>) -> Option<Vec<Product>> {
    if row.base == "convolution_backward" {
        return backward(row);
    }
    let places = places(row.base)?;
    let transposed = match places.transposed {
        Transposed::Never => false,
        Transposed::Always => true,
        Transposed::Argument(at) => row.flag(at).unwrap_or(false),
    };
    let (input, weight) = (row.dims(0)?, row.dims(1)?);
    let form = Form::new(row, input, weight, places.groups, transposed)?;
    let spatial = input.get(2..)?;
    let gathered = if transposed {
        // Every place of the input meets the kernel.
        elements(spatial)?
    } else {
        let (stride, padding) = (row.numbers(places.stride)?, row.numbers(places.padding)?);
        let dilation = places.dilation.map_or(Some(vec![1]), |at| row.numbers(at))?;
        let kernel = &weight[2..];
        let mut all = 1u64;
        for (axis, side) in spatial.iter().enumerate() {
            // One value may stand for every axis.
            let of = |values: &[i64]| values.get(axis).or(values.first()).and_then(|value| u64::try_from(*value).ok());
            let reach = of(&dilation)?.checked_mul(kernel.get(axis)?.checked_sub(1)?)?;
            let room = side.checked_add(of(&padding)?.checked_mul(2)?)?.checked_sub(reach)?.checked_sub(1)?;
            all = all.checked_mul(room.checked_div(of(&stride)?)? + 1)?;
        }
        all
    };
    Some(vec![form.forward(gathered)?])
}

/// `convolution_backward(grad, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,
/// groups, output_mask)`: the gradient's own shape tells the places.
fn backward(row: &Row<'_>) -> Option<Vec<Product>> {
    let (grad, input, weight) = (row.dims(0)?, row.dims(1)?, row.dims(2)?);
    let transposed = row.flag(7).unwrap_or(false);
    let form = Form::new(row, input, weight, Some(9), transposed)?;
    let gathered = elements(if transposed { input } else { grad }.get(2..)?)?;
    let Product { m, n, k, batch, dtype, layout } = form.forward(gathered)?;
    // `[True, True, False]`: which of input, weight and bias want a gradient. Not recorded: both.
    let wanted = |at: usize| {
        let mask = row.value(10).unwrap_or_default();
        mask.trim_matches(['[', ']']).split(',').nth(at).is_none_or(|flag| flag.trim() != "False")
    };
    let mut products = Vec::new();
    if wanted(0) {
        products.push(Product { m, n: k, k: n, batch, dtype, layout });
    }
    if wanted(1) {
        products.push(Product { m: n, n: k, k: m, batch, dtype, layout });
    }
    Some(products).filter(|products| !products.is_empty())
}

/// What of a convolution's shapes does not depend on its result's places.
struct Form {
    images: u64,
    /// Columns of the product of one group, and its inner dimension.
    columns: u64,
    inner: u64,
    groups: u64,
    dtype: Dtype,
}

impl Form {
    fn new(row: &Row<'_>, input: &[u64], weight: &[u64], groups: Option<usize>, transposed: bool) -> Option<Self> {
        let (&[images, channels, ..], &[first, second, ..]) = (input, weight) else { return None };
        if input.len() != weight.len() || input.len() < 3 {
            return None;
        }
        let kernel = elements(&weight[2..])?;
        // A weight is out x in / groups x kernel, a transposed one in x out / groups x kernel.
        let known = groups.and_then(|at| row.value(at)).and_then(|value| value.trim().parse().ok());
        let groups = match (known, transposed) {
            (Some(groups), _) => groups,
            (None, false) => channels.checked_div(second)?,
            (None, true) => 1,
        };
        let (columns, inner) = if transposed {
            (second.checked_mul(kernel)?, channels.checked_div(groups)?)
        } else {
            (first.checked_div(groups)?, second.checked_mul(kernel)?)
        };
        Some(Self {
            images,
            columns,
            inner,
            groups,
            dtype: row.dtype(usize::from(row.base == "convolution_backward"))?,
        })
    }

    fn forward(&self, places: u64) -> Option<Product> {
        let m = self.images.checked_mul(places)?;
        // The implicit matrices lie nowhere.
        let layout = GemmLayout::Nn;
        Some(Product { m, n: self.columns, k: self.inner, batch: self.groups, dtype: self.dtype, layout })
    }
}

#[cfg(test)]
mod tests {
    use maestro_pattern::{Dtype, GemmLayout};

    use super::super::tests::{Given, work};
    use crate::kineto::work::Work;

    fn found(name: &str, dims: &str, values: &str) -> Option<Vec<(u64, u64, u64, u64)>> {
        let types = r#"["float", "float", "float", "", "", "", "", "", "", "", ""]"#;
        match work(Given { name, dims, types, values, ..Given::default() })? {
            Work::Products(products) => {
                assert!(products.iter().all(|product| (product.dtype, product.layout) == (Dtype::F32, GemmLayout::Nn)));
                Some(products.iter().map(|p| (p.m, p.n, p.k, p.batch)).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_forward_pass_is_one_product_a_group() {
        // ResNet's first layer: 224 + 2 x 3 - 7, halved, and one more: 112 places a side.
        let dims = "[[32, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], []]";
        let values = r#"["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]"#;
        let expected = Some(vec![(32 * 112 * 112, 64, 3 * 49, 1)]);
        assert_eq!(found("aten::convolution", dims, values), expected);
        let values = r#"["", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "True", "False", "True"]"#;
        assert_eq!(found("aten::cudnn_convolution", dims, values), expected);
        let values = r#"["", "", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "True", "False"]"#;
        assert_eq!(found("aten::miopen_convolution", dims, values), expected);
        // Dilated, grouped, one value for both axes: 56 + 2 x 2 - 2 x 2 - 1, and one more: 56.
        let dims = "[[8, 64, 56, 56], [128, 16, 3, 3], [128], [], [], [], [], [], []]";
        let values = r#"["", "", "", "[1]", "[2]", "[2]", "False", "[0]", "4"]"#;
        assert_eq!(found("aten::convolution", dims, values), Some(vec![(8 * 56 * 56, 32, 144, 4)]));
    }

    #[test]
    fn a_transposed_one_counts_its_inputs_places() {
        let dims = "[[4, 64, 10, 10], [64, 32, 4, 4], [], [], [], [], [], [], []]";
        let values = r#"["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[0, 0]", "1"]"#;
        assert_eq!(found("aten::convolution", dims, values), Some(vec![(400, 32 * 16, 64, 1)]));
    }

    #[test]
    fn gradients_cost_what_the_forward_pass_does_each() {
        let dims = "[[8, 128, 28, 28], [8, 64, 56, 56], [128, 64, 3, 3], [], [], [], [], [], [], [], []]";
        let values =
            |mask| format!(r#"["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "{mask}"]"#);
        let (m, n, k) = (8 * 28 * 28, 128, 64 * 9);
        let both = found("aten::convolution_backward", dims, &values("[True, True, False]"));
        assert_eq!(both, Some(vec![(m, k, n, 1), (n, k, m, 1)]));
        let weight = found("aten::convolution_backward", dims, &values("[False, True, True]"));
        assert_eq!(weight, Some(vec![(n, k, m, 1)]));
        assert_eq!(found("aten::convolution_backward", dims, &values("[False, False, True]")), None);
    }

    #[test]
    fn without_strides_nothing_is_guessed() {
        let dims = "[[32, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], []]";
        assert_eq!(found("aten::convolution", dims, ""), None);
        // A kernel larger than what it slides over.
        let values = r#"["", "", "", "[2, 2]", "[0, 0]", "[99, 99]", "False", "[0, 0]", "1"]"#;
        assert_eq!(found("aten::convolution", dims, values), None);
        let zero = r#"["", "", "", "[0, 0]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]"#;
        assert_eq!(found("aten::convolution", dims, zero), None);
    }
}
