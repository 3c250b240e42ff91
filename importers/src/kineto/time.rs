//! Microseconds in decimal text to whole nanoseconds, exactly: as a binary fraction an epoch time has steps of 250 ns.

/// No time beyond this is read (the year 2043 as nanoseconds of the Unix epoch), so that a base, an offset and a
/// duration add up, and differences of such sums fit, without overflow.
pub(super) const LIMIT_NS: i64 = i64::MAX / 4;

/// Digits that can be told apart before they would overflow; more are rounded away.
const MOST_DIGITS: u32 = 36;

/// No time in microseconds has more digits before its point: with one more it would lie behind the year 5138.
const MOST_DIGITS_OF_US: usize = 17;

/// Whether a start can only be meant in nanoseconds: some tools write those of the Unix epoch, of 19 digits.
pub(super) fn is_nanoseconds(text: &str) -> bool {
    let whole = text.bytes().take_while(u8::is_ascii_digit).count();
    whole > MOST_DIGITS_OF_US && !text[whole..].contains(['e', 'E'])
}

/// Nanoseconds of `text`, a decimal number of microseconds, or of nanoseconds if it [can only be](is_nanoseconds).
pub(super) fn parse(text: &str) -> Option<i64> {
    if is_nanoseconds(text) { parse_ns(text) } else { parse_us(text) }
}

/// Nanoseconds of `text`, a decimal number of nanoseconds; rules as of [`parse_us`].
pub(super) fn parse_ns(text: &str) -> Option<i64> {
    parse_scaled(text, 0)
}

/// Nanoseconds of `text`, a decimal number of microseconds; rounded to the nearest if it is finer than that, `None` if
/// it is no number or beyond [`LIMIT_NS`].
pub(super) fn parse_us(text: &str) -> Option<i64> {
    parse_scaled(text, 3)
}

/// Nanoseconds of `text`, a decimal number of units of 10^`unit` nanoseconds.
fn parse_scaled(text: &str, unit: i64) -> Option<i64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let mut digits = 0u128;
    let mut taken = 0u32;
    for digit in whole.bytes().chain(fraction.bytes()).take(MOST_DIGITS as usize) {
        digits = digits * 10 + u128::from(digit - b'0');
        taken += 1;
    }
    // The value is `digits` x 10^scale nanoseconds.
    let scale = i64::try_from(whole.len()).ok()? - i64::from(taken) + i64::from(exponent) + unit;
    let ns = if digits == 0 {
        0
    } else if scale >= 0 {
        digits.checked_mul(10u128.checked_pow(u32::try_from(scale).ok()?)?)?
    } else {
        match 10u128.checked_pow(u32::try_from(-scale).ok()?) {
            Some(unit) => digits / unit + u128::from(digits % unit >= unit.div_ceil(2)),
            None => 0,
        }
    };
    let ns = i64::try_from(ns).ok().filter(|ns| *ns <= LIMIT_NS)?;
    Some(if negative { -ns } else { ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_exact() {
        assert_eq!(parse_us("5189716969767.146"), Some(5_189_716_969_767_146));
        assert_eq!(parse_us("1694128201435418"), Some(1_694_128_201_435_418_000));
        // As f64 this would be ...123.25.
        assert_eq!(parse_us("1712345678901123.347"), Some(1_712_345_678_901_123_347));
        assert_eq!(parse_us("226.8"), Some(226_800));
        assert_eq!(parse_us("0.001"), Some(1));
        assert_eq!(parse_us("0"), Some(0));
        assert_eq!(parse_us("-1"), Some(-1_000));
        assert_eq!(parse_us("007.5"), Some(7_500));
    }

    #[test]
    fn exponents_are_exact_too() {
        assert_eq!(parse_us("1.5e3"), Some(1_500_000));
        assert_eq!(parse_us("5.189716969767146E+12"), Some(5_189_716_969_767_146));
        assert_eq!(parse_us("25e-1"), Some(2_500));
        assert_eq!(parse_us("1e-400"), Some(0));
        assert_eq!(parse_us("0e400"), Some(0));
    }

    #[test]
    fn finer_than_a_nanosecond_rounds() {
        assert_eq!(parse_us("1.2344999"), Some(1_234));
        assert_eq!(parse_us("1.2345"), Some(1_235));
        assert_eq!(parse_us("0.1000000000000000055511151231257827021181583404541015625"), Some(100));
    }

    #[test]
    fn what_cannot_be_microseconds_is_nanoseconds() {
        assert_eq!(parse("1712345678901123347"), Some(1_712_345_678_901_123_347));
        assert_eq!(parse("1712345678901123347.5"), Some(1_712_345_678_901_123_348));
        assert_eq!(parse("1712345678901123"), Some(1_712_345_678_901_123_000));
        assert_eq!(parse_ns("42"), Some(42));
        assert!(!is_nanoseconds("5189716969767.1460000000000"));
        assert!(!is_nanoseconds("-1"));
    }

    #[test]
    fn no_number_or_too_large_is_none() {
        let far = "9".repeat(60);
        for text in ["", "-", ".5", "x", "1.2.3", "1e", "inf", "nan", "0x10", "1 2", "1e400", "9e15", &far] {
            assert_eq!(parse_us(text), None, "{text}");
        }
    }
}
