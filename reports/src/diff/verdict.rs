//! What is said of a change.

/// What is said of a change. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// A proved change for the better.
    Better,
    /// A proved change for the worse.
    Worse,
    /// No change proved: none, or one that noise could make.
    Unclear,
    /// So few runs could not prove any change.
    TooFew,
    /// Something else changed, too, or the runs are simulated.
    Refused,
}

impl Verdict {
    /// As tables say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Unclear => "~",
            Self::TooFew => "too few",
            Self::Refused => "refused",
        }
    }
}
