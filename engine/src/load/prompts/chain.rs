//! Chains of block hashes, compared by their ends.
#![forbid(unsafe_code)]

/// How many leading hashes two stretches have in common, given that both are stretches of chains:
/// equal at one position means equal at all before it. `O(log n)`; if the last of the shorter one
/// is equal, one comparison.
///
/// Of stretches that are not of chains it finds *some* place where they differ (or none), never
/// past the end of either, and at least 1 if the first hashes are equal.
pub(crate) fn common(a: &[u64], b: &[u64]) -> usize {
    let n = a.len().min(b.len());
    if n == 0 || a[0] != b[0] {
        return 0;
    }
    if a[n - 1] == b[n - 1] {
        return n;
    }
    let (mut equal, mut differs) = (0, n - 1);
    while differs - equal > 1 {
        let middle = equal.midpoint(differs);
        if a[middle] == b[middle] {
            equal = middle;
        } else {
            differs = middle;
        }
    }
    differs
}

/// Spreads a hash over all bits; hosts may number their blocks 1, 2, 3.
#[inline]
pub(crate) fn mix(hash: u64) -> u64 {
    let wide = u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (wide >> 64) as u64 ^ wide as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_compared_by_where_they_part() {
        for n in 0..40_u64 {
            for m in 0..40_u64 {
                for part in 0..40_u64 {
                    let a: Vec<u64> = (0..n).collect();
                    let b: Vec<u64> = (0..m).map(|i| if i < part { i } else { i + 100 }).collect();
                    assert_eq!(common(&a, &b), n.min(m).min(part) as usize);
                }
            }
        }
    }

    #[test]
    fn what_is_no_chain_is_never_compared_past_its_end() {
        assert_eq!(common(&[1, 5, 3], &[1, 2, 3, 4]), 3);
        assert_eq!(common(&[1, 5, 3, 7], &[1, 2, 3, 4]), 1);
        assert_eq!(common(&[2], &[1]), 0);
        assert_eq!(common(&[], &[1]), 0);
    }
}
