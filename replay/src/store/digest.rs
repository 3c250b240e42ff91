//! A digest of 128 bits that is the same in every build: what processes of one job prove to each other with.
//!
//! It is no cryptography. It keeps out strangers and other jobs that come by accident, not somebody who listens on the
//! wire or tries on purpose. The standard library's hashers are not used because they may change between compilers, and
//! the ranks of a job may have been built by different ones.

/// The digest of some fields, each marked off from the next.
pub(crate) fn digest(fields: &[&[u8]]) -> u128 {
    u128::from(lane(0x9e37_79b9_7f4a_7c15, fields)) << 64 | u128::from(lane(0xd1b5_4a32_d192_ed03, fields))
}

/// FNV-1a over lengths and bytes, from a beginning of its own.
fn lane(seed: u64, fields: &[&[u8]]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = fields.iter().fold(seed, |hash, field| {
        let hash = (field.len() as u64).to_le_bytes().iter().fold(hash, step);
        scatter(field.iter().fold(hash, step))
    });
    scatter(hash)
}

/// SplitMix64's last steps: every bit of the input reaches every bit of the output.
fn scatter(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn fields_are_told_apart_and_every_byte_counts() {
        let fields: [&[&[u8]]; 7] = [&[], &[b""], &[b"a"], &[b"b"], &[b"ab"], &[b"a", b"b"], &[b"", b"ab"]];
        let digests: HashSet<u128> = fields.into_iter().map(digest).collect();
        assert_eq!(digests.len(), fields.len());
    }

    #[test]
    fn it_never_changes() {
        assert_eq!(format!("{:032x}", digest(&[b"maestro"])), "2c9655afe28d5dea99a5383fdf9371dd");
    }
}
