//! Element types. A closed set: adding one makes the compiler list the work.

/// Element type of a buffer, named as in NCCL and nccl-tests, short form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: binary32 cut to 8 bits of precision.
    Bf16,
    /// 8-bit float, 4 exponent and 3 mantissa bits (OCP E4M3, "fn": no infinities).
    F8e4m3,
    /// 8-bit float, 5 exponent and 2 mantissa bits (OCP E5M2).
    F8e5m2,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer; also plain bytes.
    U8,
}

impl Dtype {
    /// Every element type, widest floats first.
    pub const ALL: [Self; 10] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::F8e4m3,
        Self::F8e5m2,
        Self::I64,
        Self::I32,
        Self::I8,
        Self::U8,
    ];

    /// Bytes an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::F8e4m3 | Self::F8e5m2 | Self::I8 | Self::U8 => 1,
        }
    }

    /// The name in patterns and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F8e4m3 => "f8e4m3",
            Self::F8e5m2 => "f8e5m2",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I8 => "i8",
            Self::U8 => "u8",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_read_back() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(Dtype::from_name("float"), None);
    }
}
