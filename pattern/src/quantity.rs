//! Durations and byte counts as people write them: `42us`, `1.5ms`, `64MiB`, `1.2GB`.
//!
//! Both are exact integers inside (nanoseconds, bytes); the text forms written here read back to the same integer.

/// Most bytes that a size may have: 1024 TiB, so that sums over the ranks of any world fit.
pub const MOST_BYTES: u64 = 1 << 50;

/// Most nanoseconds that a duration may have: 104 days, below which f64 counts them exactly.
pub const MOST_NS: u64 = 9_000_000_000_000_000;

/// Most that a count may be: times, the sides of a matrix. Far beyond any of them.
pub const MOST_COUNT: u64 = 1 << 32;

/// Smallest and largest factor of a skew.
pub const FACTORS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// Nanoseconds a unit, largest first.
const DURATIONS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Bytes a unit: powers of 1000 with a bare B, powers of 1024 with iB.
const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Reads `42us`, `1.25ms`, `3s`, `800ns` as nanoseconds. `None` if it is no duration, or not a whole number of
/// nanoseconds, or more than 104 days.
pub fn parse_duration(text: &str) -> Option<u64> {
    parse(text, &DURATIONS).filter(|ns| *ns <= MOST_NS)
}

/// Reads `4194304`, `64MiB`, `1.2GB` as bytes. `None` if it is no size, or not a whole number of bytes, or
/// more than 1024 TiB.
pub fn parse_bytes(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| parse(text, &SIZES)).filter(|bytes| *bytes <= MOST_BYTES)
}

/// Writes nanoseconds in the unit that needs no leading zeros: `8120us`, `42us`, `1.5us`, `900ns`.
///
/// Microseconds up to a second, because that is the profilers' unit and comparing down a column matters more than
/// short numbers.
pub fn format_duration(ns: u64) -> String {
    if ns != 0 && ns.is_multiple_of(1_000_000_000) {
        format!("{}s", ns / 1_000_000_000)
    } else if ns >= 1_000 {
        format!("{}us", decimal(ns, 1_000))
    } else {
        format!("{ns}ns")
    }
}

/// Writes bytes with a binary unit where that is exact and short, otherwise as a plain number.
pub fn format_bytes(bytes: u64) -> String {
    /// Beyond this, `1171875KiB` says less than the plain number does.
    const SHORT: u64 = 8192;
    for (unit, scale) in &SIZES[..4] {
        if bytes != 0 && bytes.is_multiple_of(*scale) && bytes / scale < SHORT {
            return format!("{}{unit}", bytes / scale);
        }
    }
    bytes.to_string()
}

/// `value / scale` as an exact decimal without trailing zeros; `scale` is a power of ten.
fn decimal(value: u64, scale: u64) -> String {
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = scale.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(split);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    scaled(number, *scale)
}

/// `number` x `scale`, exactly, from the decimal text.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 18 {
        return None;
    }
    let whole = whole.parse::<u128>().ok()?;
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().ok()? };
    let tens = 10u128.pow(fraction.len() as u32);
    let total = whole.checked_mul(tens)?.checked_add(part)?.checked_mul(u128::from(scale))?;
    (total % tens == 0).then(|| u64::try_from(total / tens).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parse_duration("42us"), Some(42_000));
        assert_eq!(parse_duration("1.25ms"), Some(1_250_000));
        assert_eq!(parse_duration("3 s"), Some(3_000_000_000));
        assert_eq!(parse_bytes("1.2GB"), Some(1_200_000_000));
        assert_eq!(parse_bytes("64MiB"), Some(64 << 20));
        assert_eq!(parse_bytes("4194304"), Some(4_194_304));
    }

    #[test]
    fn refuses_what_is_not_exact_or_not_a_quantity() {
        // 2^128 - 1 parts of 10^-18 and a few more.
        const OVERFLOWS: &str = "340282366920938463463.999999999999999999ns";
        for text in
            ["", "us", "1.5ns", "-3us", "3 hours", "1..2us", "1e3us", "99999999999999999999s", "9007200s", OVERFLOWS]
        {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        for text in ["", "MiB", "1.5B", "-1", "4 apples", "0.3", "1048577GiB"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for ns in [0, 1, 999, 1_000, 1_001, 42_000, 8_120_250, 1_000_000_000, 90_000_000_001] {
            assert_eq!(parse_duration(&format_duration(ns)), Some(ns), "{}", format_duration(ns));
        }
        for bytes in [0, 1, 1023, 1024, 402_759_680, 1 << 30, (1 << 30) + 1] {
            assert_eq!(parse_bytes(&format_bytes(bytes)), Some(bytes), "{}", format_bytes(bytes));
        }
    }
}
