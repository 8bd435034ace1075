//! Thresholds as the host writes them: validation, merging, and the one integer limit that a
//! fraction of a capacity stands for.
#![forbid(unsafe_code)]

use crate::error::Error;

/// One set of thresholds; each is optional on its own. A rank is full under them if its row
/// exceeds (`>`) any one that is set. `Some(0)` is a real threshold: full as soon as anything is
/// booked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Thresholds {
    /// Active prefill tokens, absolute. Kept for compatibility: prefer `prefill_frac`, which
    /// follows the capacity of the rank.
    pub prefill_tokens: Option<u64>,
    /// Active prefill tokens as a fraction of `max_num_batched_tokens`; finite and `>= 0`.
    pub prefill_frac: Option<f64>,
    /// KV blocks as a fraction of `total_kv_blocks`; finite and in `[0, 1]`.
    pub decode_frac: Option<f64>,
}

impl Thresholds {
    /// No threshold: nothing is ever full.
    pub const NONE: Thresholds =
        Thresholds { prefill_tokens: None, prefill_frac: None, decode_frac: None };

    /// Sets the absolute prefill threshold, in tokens.
    #[must_use]
    #[deprecated(note = "use `prefill_frac`, which follows the capacity of the rank")]
    pub fn prefill_tokens(mut self, tokens: u64) -> Self {
        self.prefill_tokens = Some(tokens);
        self
    }

    /// Sets the prefill threshold as a fraction of `max_num_batched_tokens`.
    #[must_use]
    pub fn prefill_frac(mut self, frac: f64) -> Self {
        self.prefill_frac = Some(frac);
        self
    }

    /// Sets the decode threshold as a fraction of `total_kv_blocks`.
    #[must_use]
    pub fn decode_frac(mut self, frac: f64) -> Self {
        self.decode_frac = Some(frac);
        self
    }

    /// Whether nothing is set.
    pub fn is_none(&self) -> bool {
        *self == Thresholds::NONE
    }

    /// Checks the fractions.
    ///
    /// # Errors
    /// `InvalidConfig` naming the field: a fraction that is not finite or is negative, or a
    /// `decode_frac` above 1.
    pub fn validate(&self) -> Result<(), Error> {
        if let Some(f) = self.prefill_frac
            && !(f.is_finite() && f >= 0.0)
        {
            return Err(Error::config("prefill_frac", f));
        }
        if let Some(f) = self.decode_frac
            && !(f.is_finite() && (0.0..=1.0).contains(&f))
        {
            return Err(Error::config("decode_frac", f));
        }
        Ok(())
    }

    /// Whether a row is full under these thresholds, given what its rank can carry.
    ///
    /// This is the one rule: selection, gate, monitor, reports and classifiers all use its limits.
    pub fn is_full(
        &self,
        prefill_tokens: u64,
        kv_blocks: u64,
        max_num_batched_tokens: Option<u64>,
        total_kv_blocks: Option<u64>,
    ) -> bool {
        prefill_tokens > self.token_limit(max_num_batched_tokens)
            || kv_blocks > self.block_limit(total_kv_blocks)
    }

    /// The most prefill tokens a rank may carry without being full; `u64::MAX` if nothing limits
    /// them.
    pub fn token_limit(&self, max_num_batched_tokens: Option<u64>) -> u64 {
        let by_frac = match (self.prefill_frac, max_num_batched_tokens) {
            (Some(f), Some(cap)) => frac_limit(f, cap),
            _ => u64::MAX,
        };
        by_frac.min(self.prefill_tokens.unwrap_or(u64::MAX))
    }

    /// The most KV blocks a rank may carry without being full; `u64::MAX` if nothing limits them.
    /// A capacity of 0 counts as unknown.
    pub fn block_limit(&self, total_kv_blocks: Option<u64>) -> u64 {
        match (self.decode_frac, total_kv_blocks) {
            (Some(f), Some(cap)) if cap > 0 => frac_limit(f, cap),
            _ => u64::MAX,
        }
    }
}

/// What an update does to one threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Change<T> {
    /// Leave it as it is.
    #[default]
    Keep,
    /// Turn it off.
    Unset,
    /// Set it.
    Set(T),
}

impl<T: Copy> Change<T> {
    fn apply(self, old: Option<T>) -> Option<T> {
        match self {
            Change::Keep => old,
            Change::Unset => None,
            Change::Set(v) => Some(v),
        }
    }
}

/// A merge into a set of thresholds: each field is left out, unset, or given a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThresholdsUpdate {
    /// See [`Thresholds::prefill_tokens`].
    pub prefill_tokens: Change<u64>,
    /// See [`Thresholds::prefill_frac`].
    pub prefill_frac: Change<f64>,
    /// See [`Thresholds::decode_frac`].
    pub decode_frac: Change<f64>,
}

impl ThresholdsUpdate {
    /// The thresholds that `old` becomes.
    pub fn merged_into(&self, old: Thresholds) -> Thresholds {
        Thresholds {
            prefill_tokens: self.prefill_tokens.apply(old.prefill_tokens),
            prefill_frac: self.prefill_frac.apply(old.prefill_frac),
            decode_frac: self.decode_frac.apply(old.decode_frac),
        }
    }
}

/// The largest integer `n` with `n <= frac * cap` or `n / cap <= frac` in f64: *equal is not over*,
/// also where the product of two binary floats falls just below the decimal that was written (0.29
/// of 100 is 29). A product beyond `u64` is no limit (`u64::MAX`).
pub(crate) fn frac_limit(frac: f64, cap: u64) -> u64 {
    let product = frac * cap as f64;
    // `u64::MAX as f64` rounds up to 2^64: a product that reaches it does not fit.
    if product >= u64::MAX as f64 {
        return u64::MAX;
    }
    let floor = product.floor() as u64;
    if cap == 0 {
        return floor;
    }
    // The quotient form can only admit a neighbour of the product form: both are within a few
    // units in the last place of frac * cap. Where neighbouring integers share one f64 (above
    // 2^53) the same holds of the whole run of integers that round to it.
    let passes = |n: u64| n as f64 <= product || n as f64 / cap as f64 <= frac;
    let mut n = floor;
    let mut step = 1u64;
    while let Some(up) = n.checked_add(step).filter(|&up| passes(up)) {
        n = up;
        step = step.saturating_mul(2);
    }
    while step > 0 {
        match n.checked_add(step).filter(|&up| passes(up)) {
            Some(up) => n = up,
            None => step /= 2,
        }
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_is_not_over_for_decimals_that_binary_floats_miss() {
        assert_eq!(frac_limit(0.29, 100), 29);
        let t = Thresholds::NONE.decode_frac(0.29);
        assert!(!t.is_full(0, 29, None, Some(100)));
        assert!(t.is_full(0, 30, None, Some(100)));
    }

    #[test]
    fn the_limit_is_the_largest_integer_that_either_form_admits() {
        for cap in 1..=400u64 {
            for hundredths in 0..=100u64 {
                let frac = hundredths as f64 / 100.0;
                let admits =
                    |n: u64| n as f64 <= frac * cap as f64 || n as f64 / cap as f64 <= frac;
                let slow = (0..=cap + 1).rev().find(|&n| admits(n)).expect("0 is admitted");
                assert_eq!(frac_limit(frac, cap), slow, "{frac} of {cap}");
                // In exact arithmetic the limit of a whole percentage is the floor.
                assert_eq!(frac_limit(frac, cap), hundredths * cap / 100, "{frac} of {cap}");
            }
        }
    }

    #[test]
    fn zero_is_a_threshold_and_unset_is_none() {
        let zero = Thresholds { prefill_tokens: Some(0), ..Thresholds::NONE };
        assert!(!zero.is_full(0, 9, None, None));
        assert!(zero.is_full(1, 0, None, None));
        assert!(!Thresholds::NONE.is_full(u64::MAX, u64::MAX, Some(1), Some(1)));
    }

    #[test]
    fn unknown_capacity_skips_the_check_that_needs_it() {
        let t = Thresholds::NONE.prefill_frac(0.5).decode_frac(0.5);
        assert!(!t.is_full(u64::MAX, u64::MAX, None, None));
        assert!(!t.is_full(0, u64::MAX, None, Some(0)));
    }

    #[test]
    fn a_product_beyond_u64_is_no_limit() {
        assert_eq!(frac_limit(4.0, u64::MAX / 2), u64::MAX);
        assert_eq!(frac_limit(f64::MAX, 2), u64::MAX);
        assert!(frac_limit(0.5, u64::MAX) < u64::MAX);
    }

    #[test]
    fn bad_fractions_are_refused_by_name() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.1] {
            let p = Thresholds::NONE.prefill_frac(bad).validate().unwrap_err();
            assert!(matches!(p, Error::InvalidConfig { ref field, .. } if field == "prefill_frac"));
            let d = Thresholds::NONE.decode_frac(bad).validate().unwrap_err();
            assert!(matches!(d, Error::InvalidConfig { ref field, .. } if field == "decode_frac"));
        }
        assert!(Thresholds::NONE.decode_frac(1.01).validate().is_err());
        assert!(Thresholds::NONE.prefill_frac(64.0).validate().is_ok());
    }

    #[test]
    fn an_update_merges_and_tells_unset_from_left_out() {
        let old = Thresholds::NONE.prefill_frac(1.0).decode_frac(0.5);
        let new = ThresholdsUpdate {
            prefill_frac: Change::Unset,
            prefill_tokens: Change::Set(0),
            ..Default::default()
        }
        .merged_into(old);
        assert_eq!(new.prefill_frac, None);
        assert_eq!(new.prefill_tokens, Some(0));
        assert_eq!(new.decode_frac, Some(0.5));
    }
}
