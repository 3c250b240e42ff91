//! How a rank's clock stands to rank 0's, from questions and answers.
//!
//! Both clocks count nanoseconds from where each began. Of many exchanges the one with the least round trip says the
//! most: whatever delayed the others is in their times. Rank 0 read its clock somewhere within it, so half of it is how
//! wrong the middle can be.

/// How often rank 0 is asked.
pub(super) const EXCHANGES: usize = 64;

/// A rank's clock against rank 0's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// Rank 0's clock less this one.
    offset_ns: i64,
    /// The least round trip; on rank 0, the largest of all ranks.
    pub(super) round_trip_ns: u64,
}

/// A question to rank 0 and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    /// When it was asked, on this rank's clock.
    pub(super) sent_ns: u64,
    /// What rank 0's clock said.
    pub(super) answer_ns: u64,
    /// When the answer was here, on this rank's clock.
    pub(super) back_ns: u64,
}

impl Clock {
    /// The clock that the best of some exchanges gives.
    pub(super) fn of(exchanges: &[Exchange]) -> Self {
        let round_trip = |exchange: &Exchange| exchange.back_ns.saturating_sub(exchange.sent_ns);
        let Some(best) = exchanges.iter().min_by_key(|exchange| round_trip(exchange)) else { return Self::default() };
        let middle = best.sent_ns + round_trip(best) / 2;
        Self { offset_ns: best.answer_ns.wrapping_sub(middle).cast_signed(), round_trip_ns: round_trip(best) }
    }

    /// Rank 0's own, with the largest round trip of all ranks.
    pub(super) fn of_rank_0(round_trip_ns: u64) -> Self {
        Self { offset_ns: 0, round_trip_ns }
    }

    /// How wrong it can be.
    pub(super) fn error_ns(&self) -> u64 {
        self.round_trip_ns.div_ceil(2)
    }

    /// A moment of rank 0's clock on this one; 0 if that was before this one began.
    pub(super) fn here_ns(&self, moment_ns: u64) -> u64 {
        moment_ns.saturating_sub_signed(self.offset_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_exchange_decides() {
        let slow = Exchange { sent_ns: 0, answer_ns: 5_000, back_ns: 900 };
        let quick = Exchange { sent_ns: 1_000, answer_ns: 6_050, back_ns: 1_101 };
        let clock = Clock::of(&[slow, quick, slow]);
        assert_eq!(clock, Clock { offset_ns: 5_000, round_trip_ns: 101 });
        assert_eq!(clock.error_ns(), 51);
        assert_eq!(clock.here_ns(7_000), 2_000);
        assert_eq!(clock.here_ns(3), 0);
    }

    #[test]
    fn rank_0_may_have_begun_later() {
        let clock = Clock::of(&[Exchange { sent_ns: 10_000, answer_ns: 40, back_ns: 10_080 }]);
        assert_eq!(clock, Clock { offset_ns: -10_000, round_trip_ns: 80 });
        assert_eq!(clock.here_ns(100), 10_100);
        assert_eq!(Clock::of(&[]), Clock::default());
    }
}
