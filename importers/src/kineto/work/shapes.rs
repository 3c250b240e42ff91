//! The arguments of an operator's row: dimensions, strides, element types, values. Read from the text, without a tree of
//! values.
//!
//! A profiler writes them as parallel lists, that of strides only of late. An argument that is a list of tensors has a
//! list of dimensions, and then its element type is only `TensorList`: what its tensors are made of stands nowhere but in
//! kernels' names.

use maestro_pattern::Dtype;

use super::super::comm::dtype;

/// An element type, as far as it decides how large a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    /// Bytes an element.
    pub bytes: u64,
    /// What of several types wins: booleans, then integers, then floats, then complex numbers.
    pub class: u8,
}

impl Element {
    /// The type of this name, as rows and kernels spell it; `None`: no tensor's.
    pub fn from_name(name: &str) -> Option<Self> {
        let (bytes, class) = match name.strip_prefix("c10::").unwrap_or(name) {
            "bool" => (1, 0),
            "unsigned char" | "signed char" | "uint8_t" | "int8_t" => (1, 1),
            "short" | "short int" | "int16_t" => (2, 1),
            "int" | "int32_t" => (4, 1),
            "long" | "long int" | "long long" | "int64_t" => (8, 1),
            "Half" | "BFloat16" => (2, 2),
            "float" => (4, 2),
            "double" => (8, 2),
            "complex<float>" => (8, 3),
            "complex<double>" => (16, 3),
            name if name.starts_with("Float8_") => (1, 2),
            _ => return None,
        };
        Some(Self { bytes, class })
    }
}

/// Dimensions, strides and types of a row's arguments. Kept from row to row, so that reading takes no memory anew.
#[derive(Default)]
pub(super) struct Shapes {
    dims: Numbers,
    strides: Numbers,
    types: Vec<Option<Element>>,
}

/// Some numbers of each tensor of each argument.
#[derive(Default)]
struct Numbers {
    numbers: Vec<u64>,
    /// Tensors, as ranges of `numbers`.
    tensors: Vec<(usize, usize)>,
    /// Arguments, as ranges of `tensors`, and whether each is a list.
    arguments: Vec<(usize, usize, bool)>,
}

impl Numbers {
    fn clear(&mut self) {
        self.numbers.clear();
        self.tensors.clear();
        self.arguments.clear();
    }

    /// Reads `[[2, 3], [], [[4], [5]]]`; `None`, and half of it, if it is nothing of that kind.
    fn read(&mut self, text: &str) -> Option<()> {
        self.clear();
        let mut depth = 0;
        let mut number = None;
        // Where the argument and the tensor that are being read begin.
        let (mut tensors, mut numbers, mut list) = (0, 0, false);
        for byte in text.bytes() {
            match byte {
                b'0'..=b'9' if depth >= 2 => {
                    let digit = u64::from(byte - b'0');
                    number = Some(number.unwrap_or(0u64).checked_mul(10)?.checked_add(digit)?);
                }
                b'[' => {
                    depth += 1;
                    match depth {
                        1 => {}
                        2 => (tensors, numbers, list) = (self.tensors.len(), self.numbers.len(), false),
                        3 => (numbers, list) = (self.numbers.len(), true),
                        _ => return None,
                    }
                }
                b',' | b' ' => self.numbers.extend(number.take()),
                b']' => {
                    self.numbers.extend(number.take());
                    match depth {
                        3 => self.tensors.push((numbers, self.numbers.len())),
                        2 => {
                            if !list {
                                self.tensors.push((numbers, self.numbers.len()));
                            }
                            self.arguments.push((tensors, self.tensors.len(), list));
                        }
                        1 => {}
                        _ => return None,
                    }
                    depth -= 1;
                }
                _ => return None,
            }
        }
        (depth == 0 && !self.arguments.is_empty()).then_some(())
    }

    /// Those of an argument that is one tensor; of anything else that is no list of tensors there are none.
    fn of(&self, at: usize) -> Option<&[u64]> {
        let (first, _, list) = *self.arguments.get(at)?;
        let (start, end) = *self.tensors.get(first).filter(|_| !list)?;
        Some(&self.numbers[start..end])
    }
}

impl Shapes {
    /// Reads dimensions and strides, each as `[[2, 3], [], [[4], [5]]]`, and `["float", "", "TensorList"]`; false if they
    /// are nothing of that kind. Strides that are not, or are missing, are none.
    pub fn read(&mut self, [dims, strides]: [&str; 2], types: &str) -> bool {
        self.types.clear();
        self.types.extend(Texts(types).map(Element::from_name));
        if self.strides.read(strides).is_none() {
            self.strides.clear();
        }
        self.dims.read(dims).is_some()
    }

    /// Number of arguments.
    pub fn len(&self) -> usize {
        self.dims.arguments.len()
    }

    /// Dimensions of an argument that is one tensor; of anything else that is no list of tensors there are none.
    pub fn dims(&self, at: usize) -> Option<&[u64]> {
        self.dims.of(at)
    }

    /// Whether an argument that is one tensor has its last two dimensions the other way round in memory; `None` if its
    /// strides were not recorded. What is dense in neither is copied before it is multiplied, and then lies as it should.
    pub fn transposed(&self, at: usize) -> Option<bool> {
        match self.strides.of(at)? {
            strides @ [.., before, last] if strides.len() == self.dims(at)?.len() => Some(*before == 1 && *last != 1),
            _ => None,
        }
    }

    /// Dimensions of the tensors of an argument that is a list of them.
    pub fn list(&self, at: usize) -> impl Iterator<Item = &[u64]> {
        let Numbers { numbers, tensors, arguments } = &self.dims;
        let (first, end) =
            arguments.get(at).map_or((0, 0), |(first, end, list)| (*first, if *list { *end } else { *first }));
        tensors[first..end].iter().map(|(start, end)| &numbers[*start..*end])
    }

    /// Element type of an argument, if it is one tensor of a known type.
    pub fn element(&self, at: usize) -> Option<Element> {
        *self.types.get(at)?
    }
}

/// A row, ready to be asked what it does.
pub(super) struct Row<'a> {
    /// Name without what it belongs to: `mm` of `aten::mm`.
    pub base: &'a str,
    pub shapes: &'a Shapes,
    /// Text of the element types.
    pub types: &'a str,
    /// Text of the values of the arguments that are no tensors; empty if it was not recorded.
    pub values: &'a str,
}

impl<'a> Row<'a> {
    /// Dimensions of an argument that is one tensor.
    pub fn dims(&self, at: usize) -> Option<&'a [u64]> {
        self.shapes.dims(at)
    }

    /// Whether an argument that is one tensor has its last two dimensions the other way round in memory; `None` if its
    /// strides were not recorded.
    pub fn transposed(&self, at: usize) -> Option<bool> {
        self.shapes.transposed(at)
    }

    /// Elements of an argument that is one tensor: of no dimensions one.
    pub fn elements(&self, at: usize) -> Option<u64> {
        self.shapes.element(at)?;
        elements(self.dims(at)?)
    }

    /// Bytes of an argument that is one tensor.
    pub fn bytes(&self, at: usize) -> Option<u64> {
        self.elements(at)?.checked_mul(self.shapes.element(at)?.bytes)
    }

    /// Elements of all tensors of an argument that is a list of them; `None` if there are none, or too many to record.
    pub fn list_elements(&self, at: usize) -> Option<u64> {
        let sum = self.shapes.list(at).try_fold(0u64, |sum, dims| sum.checked_add(elements(dims)?))?;
        Some(sum).filter(|sum| *sum > 0)
    }

    /// Name of an argument's type.
    pub fn type_name(&self, at: usize) -> Option<&'a str> {
        Texts(self.types).nth(at)
    }

    /// Element type of an argument that is one tensor, as patterns name it.
    pub fn dtype(&self, at: usize) -> Option<Dtype> {
        dtype(self.type_name(at)?)
    }

    /// The value of an argument, if it was recorded.
    pub fn value(&self, at: usize) -> Option<&'a str> {
        Texts(self.values).nth(at)
    }

    /// Whether an argument is true; `None` if its value was not recorded.
    pub fn flag(&self, at: usize) -> Option<bool> {
        match self.value(at)? {
            "True" | "true" => Some(true),
            "False" | "false" => Some(false),
            _ => None,
        }
    }

    /// An argument that is a list of whole numbers, if its value was recorded.
    pub fn numbers(&self, at: usize) -> Option<Vec<i64>> {
        let inside = self.value(at)?.trim().strip_prefix('[')?.strip_suffix(']')?;
        if inside.trim().is_empty() {
            return Some(Vec::new());
        }
        inside.split(',').map(|number| number.trim().parse().ok()).collect()
    }
}

/// Product of dimensions; `None` if it is beyond counting.
pub(super) fn elements(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1u64, |all, side| all.checked_mul(*side))
}

/// The strings of a JSON list of strings, escapes left as they are.
struct Texts<'a>(&'a str);

impl<'a> Iterator for Texts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = &self.0[self.0.find('"')? + 1..];
        let mut escaped = false;
        let end = text.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })?;
        self.0 = &text[end + 1..];
        Some(&text[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_lists_and_scalars_are_told_apart() {
        let mut shapes = Shapes::default();
        assert!(shapes.read(
            ["[[16384, 4096], [], [[2], [3, 5]], [[]]]", ""],
            r#"["c10::BFloat16", "Scalar", "TensorList", ""]"#
        ));
        assert_eq!(shapes.len(), 4);
        assert_eq!(shapes.dims(0), Some(&[16384, 4096][..]));
        assert_eq!(shapes.dims(1), Some(&[][..]));
        assert_eq!((shapes.dims(2), shapes.dims(4)), (None, None));
        assert_eq!(shapes.list(2).collect::<Vec<_>>(), [&[2][..], &[3, 5][..]]);
        assert_eq!(shapes.list(0).count(), 0);
        assert_eq!(shapes.element(0), Some(Element { bytes: 2, class: 2 }));
        assert_eq!(shapes.element(1), None);
        let row =
            Row { base: "", shapes: &shapes, types: r#"["c10::BFloat16"]"#, values: r#"["", "a \"b\"", "[1, 0]"]"# };
        assert_eq!((row.bytes(0), row.bytes(1), row.list_elements(2)), (Some(2 * 16384 * 4096), None, Some(17)));
        assert_eq!((row.dtype(0), row.value(1)), (Some(Dtype::Bf16), Some(r#"a \"b\""#)));
        assert_eq!((row.numbers(2), row.numbers(0), row.flag(2)), (Some(vec![1, 0]), None, None));
    }

    #[test]
    fn strides_tell_which_way_round_a_matrix_lies() {
        let mut shapes = Shapes::default();
        for (dims, strides, transposed) in [
            ("[2, 3]", "[3, 1]", Some(false)),
            ("[2, 3]", "[1, 2]", Some(true)),
            // A column of a wider matrix, a batch, a vector as a matrix.
            ("[2, 3]", "[1, 99]", Some(true)),
            ("[4, 2, 3]", "[6, 1, 2]", Some(true)),
            ("[4, 2, 3]", "[1, 12, 4]", Some(false)),
            ("[2, 1]", "[1, 1]", Some(false)),
            // Spread out from one number, and with gaps in both directions: copied before it is multiplied.
            ("[2, 3]", "[0, 0]", Some(false)),
            ("[2, 3]", "[12, 2]", Some(false)),
            ("[2, 3]", "[1]", None),
            ("[3]", "[1]", None),
            ("[[2, 3]]", "[[1, 2]]", None),
        ] {
            assert!(shapes.read([&format!("[{dims}]"), &format!("[{strides}]")], r#"["float"]"#));
            assert_eq!(shapes.transposed(0), transposed, "{dims} {strides}");
        }
    }

    #[test]
    fn what_is_no_list_of_dimensions_is_refused() {
        let mut shapes = Shapes::default();
        for text in
            ["", "[]", "7", "[7]", "[[2, -3]]", "[[2]", "[[[[2]]]]", "\"[[2]]\"", "[[99999999999999999999]]", "[[2]]]"]
        {
            assert!(!shapes.read([text, "[[1]]"], "[]"), "{text}");
            assert!(shapes.read(["[[2, 3]]", text], "[]"), "{text}");
            assert_eq!(shapes.transposed(0), None, "strides {text}");
        }
        assert!(shapes.read(["[[4294967296, 4294967296, 8]]", ""], r#"["float"]"#));
        let row = Row { base: "", shapes: &shapes, types: "", values: "" };
        assert_eq!((row.bytes(0), row.value(0)), (None, None));
    }
}
