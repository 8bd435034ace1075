//! When a row is over a threshold, written straight from the definition.

use vacancy::Thresholds;

/// What one rank carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Active prefill tokens.
    pub prefill_tokens: u64,
    /// KV blocks: prompt blocks counted once per rank, and output blocks.
    pub kv_blocks: u64,
    /// Active requests.
    pub requests: u64,
}

/// What one rank can carry; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Tokens that one rank batches at most.
    pub max_num_batched_tokens: Option<u64>,
    /// KV blocks of one rank.
    pub total_kv_blocks: Option<u64>,
}

/// Whether `n` is over `frac` of `cap`. The limit is the largest integer that satisfies either
/// form; both forms are monotone in `n`, so an integer that satisfies neither is above it.
pub fn over(n: u64, frac: f64, cap: u64) -> bool {
    let product = frac * cap as f64;
    let beyond_u64 = product >= 18_446_744_073_709_551_616.0;
    let within = n as f64 <= product || n as f64 / cap as f64 <= frac;
    !beyond_u64 && !within
}

/// Whether `row` exceeds any threshold that is set and whose capacity is known.
pub fn is_full(t: &Thresholds, row: Row, cap: Capacity) -> bool {
    if t.prefill_tokens.is_some_and(|limit| row.prefill_tokens > limit) {
        return true;
    }
    if let (Some(frac), Some(max)) = (t.prefill_frac, cap.max_num_batched_tokens)
        && over(row.prefill_tokens, frac, max)
    {
        return true;
    }
    // A total of 0 blocks counts as unknown; a batch of 0 tokens is a capacity like any other.
    matches!(
        (t.decode_frac, cap.total_kv_blocks),
        (Some(frac), Some(total)) if total > 0 && over(row.kv_blocks, frac, total)
    )
}

/// Names of the thresholds that no pool may take.
pub fn invalid(t: &Thresholds) -> Vec<&'static str> {
    let mut bad = Vec::new();
    if t.prefill_frac.is_some_and(|f| !f.is_finite() || f < 0.0) {
        bad.push("prefill_frac");
    }
    if t.decode_frac.is_some_and(|f| !f.is_finite() || !(0.0..=1.0).contains(&f)) {
        bad.push("decode_frac");
    }
    bad
}

/// Whether going from `old` to `new` can give room: a threshold cleared, or raised.
pub fn loosened(old: &Thresholds, new: &Thresholds) -> bool {
    fn looser<T: PartialOrd>(old: Option<T>, new: Option<T>) -> bool {
        match (old, new) {
            (Some(_), None) => true,
            (Some(a), Some(b)) => b > a,
            (None, _) => false,
        }
    }
    looser(old.prefill_tokens, new.prefill_tokens)
        || looser(old.prefill_frac, new.prefill_frac)
        || looser(old.decode_frac, new.decode_frac)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(prefill_tokens: u64, kv_blocks: u64) -> Row {
        Row { prefill_tokens, kv_blocks, requests: 1 }
    }

    fn cap(tokens: u64, blocks: u64) -> Capacity {
        Capacity { max_num_batched_tokens: Some(tokens), total_kv_blocks: Some(blocks) }
    }

    #[test]
    fn equal_is_not_over_where_binary_floats_miss_the_decimal() {
        assert!(!over(29, 0.29, 100));
        assert!(over(30, 0.29, 100));
        assert!(!over(7, 0.07, 100));
        assert!(over(8, 0.07, 100));
        assert!(!over(4, 0.5, 8));
        assert!(over(5, 0.5, 8));
    }

    #[test]
    fn zero_is_a_threshold_and_a_product_beyond_u64_is_none() {
        assert!(!over(0, 0.0, 100));
        assert!(over(1, 0.0, 100));
        assert!(!over(u64::MAX, 4.0, u64::MAX / 2));
        assert!(over(1, 0.5, 0) && !over(0, 0.5, 0));
    }

    #[test]
    fn a_check_without_its_capacity_or_its_threshold_never_fires() {
        let t = Thresholds::NONE.prefill_frac(0.5).decode_frac(0.5);
        let unknown = Capacity::default();
        assert!(!is_full(&t, row(u64::MAX, u64::MAX), unknown));
        let no_blocks = Capacity { total_kv_blocks: Some(0), ..unknown };
        assert!(!is_full(&t, row(0, 9), no_blocks));
        assert!(!is_full(&Thresholds::NONE, row(9, 9), cap(1, 1)));
        let mut absolute = Thresholds::NONE;
        absolute.prefill_tokens = Some(5);
        assert!(is_full(&absolute, row(6, 0), unknown));
        assert!(!is_full(&absolute, row(5, 0), unknown));
    }

    #[test]
    fn either_threshold_alone_makes_a_rank_full() {
        let t = Thresholds::NONE.prefill_frac(0.5).decode_frac(0.25);
        assert!(!is_full(&t, row(50, 25), cap(100, 100)));
        assert!(is_full(&t, row(51, 0), cap(100, 100)));
        assert!(is_full(&t, row(0, 26), cap(100, 100)));
    }
}
