//! The tensors among a row's arguments, by the shapes and types that `record_shapes` leaves.
//!
//! `Input Dims` holds a shape a tensor, a list of shapes a list of tensors, and an empty list for everything else; so
//! an empty shape is a tensor of one number only where `Input type` says that there is a tensor.

use serde_json::Value;

use super::comm::element;
use super::event::{Args, Raw};

/// The tensors among the arguments of a row.
#[derive(Default)]
pub(super) struct Tensors {
    /// Elements of all of them.
    pub(super) elements: u64,
    /// Element type of the first, as C++ spells it.
    pub(super) dtype: String,
    /// Whether there is any.
    pub(super) any: bool,
}

impl Tensors {
    /// Those of argument `at`: a tensor or a list of some.
    pub(super) fn of(args: &Args<'_>, at: usize) -> Self {
        let (dims, types) = inputs(args);
        let mut tensors = Self::default();
        tensors.add(dims.get(at), types.get(at).map(String::as_str).unwrap_or_default());
        tensors
    }

    /// Those of all arguments.
    pub(super) fn all(args: &Args<'_>) -> Self {
        let (dims, types) = inputs(args);
        let mut tensors = Self::default();
        for (at, dims) in dims.iter().enumerate() {
            tensors.add(Some(dims), types.get(at).map(String::as_str).unwrap_or_default());
        }
        tensors
    }

    fn add(&mut self, dims: Option<&Value>, kind: &str) {
        let known = element(kind).is_some();
        let elements = dims.map_or(0, |dims| if known && dims == &Value::Array(vec![]) { 1 } else { elements(dims) });
        self.any |= known || kind.contains("List") && kind.contains("Tensor") || elements > 0;
        if self.dtype.is_empty() && known {
            kind.clone_into(&mut self.dtype);
        }
        self.elements = self.elements.saturating_add(elements);
    }
}

fn inputs(args: &Args<'_>) -> (Vec<Value>, Vec<String>) {
    let list = |raw: Raw<'_>| raw.and_then(|raw| serde_json::from_str::<Vec<Value>>(raw.get()).ok());
    let types = list(args.input_type).unwrap_or_default();
    let types = types.into_iter().map(|kind| kind.as_str().unwrap_or_default().to_owned()).collect();
    (list(args.input_dims).unwrap_or_default(), types)
}

/// Elements of a shape, or of all shapes of a list; an empty shape has none that are known.
fn elements(dims: &Value) -> u64 {
    let Value::Array(dims) = dims else { return 0 };
    if dims.first().is_some_and(Value::is_array) {
        return dims.iter().map(elements).fold(0, u64::saturating_add);
    }
    if dims.is_empty() {
        return 0;
    }
    dims.iter().try_fold(1u64, |product, side| product.checked_mul(side.as_u64()?)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(dims: &str, types: &str) -> (u64, String, bool) {
        let args = format!(r#"{{"Input Dims": {dims}, "Input type": {types}}}"#);
        let tensors = Tensors::all(&Args::of(&args));
        (tensors.elements, tensors.dtype, tensors.any)
    }

    #[test]
    fn tensors_are_counted_alone_and_in_lists() {
        assert_eq!(all("[[6144]]", r#"["float"]"#), (6144, "float".to_owned(), true));
        assert_eq!(
            all("[[2, 3], [5]]", r#"["c10::BFloat16", "c10::BFloat16"]"#),
            (11, "c10::BFloat16".to_owned(), true)
        );
        assert_eq!(all("[[[2, 3], [5]], []]", r#"["TensorList", "Scalar"]"#), (11, String::new(), true));
        assert_eq!(all("[[]]", r#"["float"]"#), (1, "float".to_owned(), true));
        assert_eq!(all("[[], []]", r#"["Scalar", ""]"#), (0, String::new(), false));
        assert_eq!(all("[[]]", r#"["TensorList"]"#), (0, String::new(), true));
    }

    #[test]
    fn what_is_no_shape_has_no_elements() {
        for dims in ["3", "[[-1, 2]]", "[[4294967296, 4294967296]]", r#"["x"]"#, "[[1.5]]"] {
            assert_eq!(all(dims, r#"["float"]"#).0, 0, "{dims}");
        }
    }
}
