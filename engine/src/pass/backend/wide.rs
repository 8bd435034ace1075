//! Four ranks at a time in plain arrays, which the compiler puts into whatever vectors the target
//! has: what AArch64 runs on (NEON belongs to its base). Compiled for tests everywhere, so that the
//! machine at hand can check it.
#![forbid(unsafe_code)]

use crate::fleet::seal::SPAN;
use crate::pass::lanes::{self, BIAS, LANES, Vector};
use crate::sync::atomic::AtomicU64;
use std::array::from_fn;

/// `N` lanes.
struct Wide<const N: usize>;

super::functions!(Wide<4>);

#[inline(always)]
fn map<const N: usize, A: Copy, B: Copy, C>(a: [A; N], b: [B; N], f: impl Fn(A, B) -> C) -> [C; N] {
    from_fn(|i| f(a[i], b[i]))
}

/// All ones for yes, as vector comparisons have it.
#[inline(always)]
fn yes(condition: bool) -> u64 {
    u64::from(condition).wrapping_neg()
}

impl<const N: usize> Vector for Wide<N> {
    const N: usize = N;
    type Words = [u64; N];
    type Floats = [f64; N];
    type Mask = [u64; N];

    #[inline(always)]
    fn load_words(column: &[u64; LANES], at: usize) -> [u64; N] {
        from_fn(|i| column[at + i])
    }

    #[inline(always)]
    fn load_floats(column: &[f64; LANES], at: usize) -> [f64; N] {
        from_fn(|i| column[at + i])
    }

    #[inline(always)]
    fn load_counts(column: &[u32; LANES], at: usize) -> [f64; N] {
        from_fn(|i| f64::from(column[at + i]))
    }

    #[inline(always)]
    fn as_floats(words: [u64; N]) -> [f64; N] {
        words.map(f64::from_bits)
    }

    #[inline(always)]
    fn store(floats: [f64; N], column: &mut [f64; LANES], at: usize) {
        for (i, x) in floats.into_iter().enumerate() {
            column[at + i] = x;
        }
    }

    #[inline(always)]
    fn splat(x: f64) -> [f64; N] {
        [x; N]
    }

    #[inline(always)]
    fn biased_low(words: [u64; N]) -> [f64; N] {
        words.map(|w| f64::from_bits(w & 0xffff_ffff | BIAS.to_bits()))
    }

    #[inline(always)]
    fn biased_high(words: [u64; N]) -> [f64; N] {
        words.map(|w| f64::from_bits(w >> 32 | BIAS.to_bits()))
    }

    #[inline(always)]
    fn add(a: [f64; N], b: [f64; N]) -> [f64; N] {
        map(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(a: [f64; N], b: [f64; N]) -> [f64; N] {
        map(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(a: [f64; N], b: [f64; N]) -> [f64; N] {
        map(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn positive(x: [f64; N]) -> [f64; N] {
        x.map(|x| if x > 0.0 { x } else { 0.0 })
    }

    #[inline(always)]
    fn min(a: [f64; N], b: [f64; N]) -> [f64; N] {
        map(a, b, |a, b| if b < a { b } else { a })
    }

    #[inline(always)]
    fn max(a: [f64; N], b: [f64; N]) -> [f64; N] {
        map(a, b, |a, b| if b > a { b } else { a })
    }

    #[inline(always)]
    fn lowest(x: [f64; N]) -> f64 {
        x.into_iter().fold(f64::INFINITY, |a, b| if b < a { b } else { a })
    }

    #[inline(always)]
    fn highest(x: [f64; N]) -> f64 {
        x.into_iter().fold(f64::NEG_INFINITY, |a, b| if b > a { b } else { a })
    }

    #[inline(always)]
    fn fits(words: [u64; N], limits: [u64; N]) -> [u64; N] {
        map(words, limits, |w, l| yes((w as u32 <= l as u32) & (w >> 32 <= l >> 32)))
    }

    #[inline(always)]
    fn equal(a: [f64; N], b: [f64; N]) -> [u64; N] {
        map(a, b, |a, b| yes(a == b))
    }

    #[inline(always)]
    fn mask(bits: u64, at: usize) -> [u64; N] {
        from_fn(|i| yes(bits >> (at + i) & 1 == 1))
    }

    #[inline(always)]
    fn and(a: [u64; N], b: [u64; N]) -> [u64; N] {
        map(a, b, |a, b| a & b)
    }

    #[inline(always)]
    fn bits(mask: [u64; N]) -> u64 {
        (0..N).fold(0, |bits, i| bits | mask[i] & 1 << i)
    }

    #[inline(always)]
    fn tally(counts: [u64; N], fit: [u64; N]) -> [u64; N] {
        // Yes is all ones, which is -1.
        map(counts, fit, u64::wrapping_sub)
    }

    #[inline(always)]
    fn total(counts: [u64; N]) -> u32 {
        counts.into_iter().sum::<u64>() as u32
    }

    #[inline(always)]
    fn select(mask: [u64; N], x: [f64; N], other: [f64; N]) -> [f64; N] {
        from_fn(|i| f64::from_bits(x[i].to_bits() & mask[i] | other[i].to_bits() & !mask[i]))
    }
}
