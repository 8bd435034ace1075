//! AVX-512: eight ranks at a time, with the foundation instructions only.

use crate::fleet::seal::SPAN;
use crate::pass::lanes::{self, BIAS, LANES, Vector};
use crate::sync::atomic::AtomicU64;
use std::arch::x86_64::*;

/// Eight lanes. Methods rely on AVX-512F: they are inlined into functions compiled for it.
struct Avx512;

super::functions!(Avx512, "avx512f,bmi2");

impl Vector for Avx512 {
    const N: usize = 8;
    type Words = __m512i;
    type Floats = __m512d;
    type Mask = __mmask8;

    #[inline(always)]
    fn load_words(column: &[u64; LANES], at: usize) -> __m512i {
        let lanes: &[u64; 8] = column[at..at + 8].try_into().expect("eight lanes");
        // SAFETY: eight readable words; AVX-512F is there (see `Avx512`).
        unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_floats(column: &[f64; LANES], at: usize) -> __m512d {
        let lanes: &[f64; 8] = column[at..at + 8].try_into().expect("eight lanes");
        // SAFETY: eight readable floats; AVX-512F is there (see `Avx512`).
        unsafe { _mm512_loadu_pd(lanes.as_ptr()) }
    }

    #[inline(always)]
    fn load_counts(column: &[u32; LANES], at: usize) -> __m512d {
        let lanes: &[u32; 8] = column[at..at + 8].try_into().expect("eight lanes");
        // SAFETY: eight readable counts; AVX-512F is there (see `Avx512`).
        unsafe { _mm512_cvtepu32_pd(_mm256_loadu_si256(lanes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn as_floats(words: __m512i) -> __m512d {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_castsi512_pd(words) }
    }

    #[inline(always)]
    fn store(floats: __m512d, column: &mut [f64; LANES], at: usize) {
        let lanes: &mut [f64; 8] = (&mut column[at..at + 8]).try_into().expect("eight lanes");
        // SAFETY: eight writable floats; AVX-512F is there (see `Avx512`).
        unsafe { _mm512_storeu_pd(lanes.as_mut_ptr(), floats) }
    }

    #[inline(always)]
    fn splat(x: f64) -> __m512d {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_set1_pd(x) }
    }

    #[inline(always)]
    fn biased_low(words: __m512i) -> __m512d {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { biased(_mm512_and_epi64(words, _mm512_set1_epi64(0xffff_ffff))) }
    }

    #[inline(always)]
    fn biased_high(words: __m512i) -> __m512d {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { biased(_mm512_srli_epi64::<32>(words)) }
    }

    #[inline(always)]
    fn add(a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_add_pd(a, b) }
    }

    #[inline(always)]
    fn sub(a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_sub_pd(a, b) }
    }

    #[inline(always)]
    fn mul(a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_mul_pd(a, b) }
    }

    #[inline(always)]
    fn positive(x: __m512d) -> __m512d {
        // The instruction is `a > b ? a : b`, so -0 becomes the second operand, +0.
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_max_pd(x, _mm512_setzero_pd()) }
    }

    #[inline(always)]
    fn min(a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_min_pd(a, b) }
    }

    #[inline(always)]
    fn max(a: __m512d, b: __m512d) -> __m512d {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_max_pd(a, b) }
    }

    #[inline(always)]
    fn lowest(x: __m512d) -> f64 {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_reduce_min_pd(x) }
    }

    #[inline(always)]
    fn highest(x: __m512d) -> f64 {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_reduce_max_pd(x) }
    }

    #[inline(always)]
    fn fits(words: __m512i, limits: __m512i) -> __mmask8 {
        // The maximum of both halves, as u32, is the limit itself exactly if neither exceeds it.
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_cmpeq_epi64_mask(_mm512_max_epu32(words, limits), limits) }
    }

    #[inline(always)]
    fn equal(a: __m512d, b: __m512d) -> __mmask8 {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_cmp_pd_mask::<_CMP_EQ_OQ>(a, b) }
    }

    #[inline(always)]
    fn mask(bits: u64, at: usize) -> __mmask8 {
        (bits >> at) as __mmask8
    }

    #[inline(always)]
    fn and(a: __mmask8, b: __mmask8) -> __mmask8 {
        a & b
    }

    #[inline(always)]
    fn bits(mask: __mmask8) -> u64 {
        u64::from(mask)
    }

    #[inline(always)]
    fn tally(counts: __m512i, fit: __mmask8) -> __m512i {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_mask_sub_epi64(counts, fit, counts, _mm512_set1_epi64(-1)) }
    }

    #[inline(always)]
    fn total(counts: __m512i) -> u32 {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_reduce_add_epi64(counts) as u32 }
    }

    #[inline(always)]
    fn select(mask: __mmask8, x: __m512d, other: __m512d) -> __m512d {
        // SAFETY: AVX-512F is there (see `Avx512`).
        unsafe { _mm512_mask_blend_pd(mask, other, x) }
    }
}

/// Small integers plus [`BIAS`], as floats.
#[inline(always)]
fn biased(integers: __m512i) -> __m512d {
    // SAFETY: AVX-512F is there (see `Avx512`).
    unsafe {
        let bias = _mm512_castpd_si512(_mm512_set1_pd(BIAS));
        _mm512_castsi512_pd(_mm512_or_epi64(integers, bias))
    }
}
