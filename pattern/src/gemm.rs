//! How the operands of a matrix product lie in memory. Libraries have a kernel for each way, and some are slower.

/// The layouts of a product's two operands, the left one first, as one who thinks row by row says it: `n`, stored as it
/// is multiplied, row by row; `t`, stored transposed. A closed set.
///
/// BLAS counts column by column and swaps the operands to get a result row by row, so its own letters for [`Self::Nt`]
/// are TN, those for [`Self::Nn`] NN and those for [`Self::Tn`] NT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GemmLayout {
    /// Both as they are: m x k and k x n. The gradient of a linear layer's input.
    #[default]
    Nn,
    /// The right operand is stored n x k. A linear layer's forward pass.
    Nt,
    /// The left operand is stored k x m. The gradient of a linear layer's weight.
    Tn,
    /// Both are stored transposed: k x m and n x k.
    Tt,
}

impl GemmLayout {
    /// Every layout.
    pub const ALL: [Self; 4] = [Self::Nn, Self::Nt, Self::Tn, Self::Tt];

    /// The layout of operands of which each is stored transposed or not.
    pub fn of(left_transposed: bool, right_transposed: bool) -> Self {
        match (left_transposed, right_transposed) {
            (false, false) => Self::Nn,
            (false, true) => Self::Nt,
            (true, false) => Self::Tn,
            (true, true) => Self::Tt,
        }
    }

    /// Whether the left operand is stored transposed, k x m.
    pub fn left_transposed(self) -> bool {
        match self {
            Self::Nn | Self::Nt => false,
            Self::Tn | Self::Tt => true,
        }
    }

    /// Whether the right operand is stored transposed, n x k.
    pub fn right_transposed(self) -> bool {
        match self {
            Self::Nn | Self::Tn => false,
            Self::Nt | Self::Tt => true,
        }
    }

    /// The name in patterns.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nn => "nn",
            Self::Nt => "nt",
            Self::Tn => "tn",
            Self::Tt => "tt",
        }
    }

    /// The layout of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_each_operand_is_stored() {
        for layout in GemmLayout::ALL {
            assert_eq!(GemmLayout::from_name(layout.name()), Some(layout));
            assert_eq!(GemmLayout::of(layout.left_transposed(), layout.right_transposed()), layout);
            let letter = |transposed| if transposed { 't' } else { 'n' };
            let letters = [letter(layout.left_transposed()), letter(layout.right_transposed())];
            assert_eq!(letters.iter().collect::<String>(), layout.name());
        }
        assert_eq!(GemmLayout::from_name("NT"), None);
    }
}
