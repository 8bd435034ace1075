//! AVX2: four ranks at a time.
//!
//! Intrinsics rather than plain arrays: AVX2 lacks an unsigned comparison and a mask register, and
//! the compiler builds both out of scalar pieces.

use crate::fleet::seal::SPAN;
use crate::pass::lanes::{self, BIAS, LANES, Vector};
use crate::sync::atomic::AtomicU64;
use std::arch::asm;
use std::arch::x86_64::*;

/// Four lanes. Methods rely on AVX2: they are inlined into functions compiled for it.
struct Avx2;

super::functions!(Avx2, "avx2,bmi2");

impl Vector for Avx2 {
    const N: usize = 4;
    type Words = __m256i;
    type Floats = __m256d;
    /// The top bit set for yes; what the other bits are is nobody's business.
    type Mask = __m256i;

    #[inline(always)]
    fn load_words(column: &[u64; LANES], at: usize) -> __m256i {
        let lanes: &[u64; 4] = column[at..at + 4].try_into().expect("four lanes");
        // SAFETY: four readable words; AVX2 is there (see `Avx2`).
        unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
    }

    /// Straight into a register, each row by a load of its own (8 aligned bytes: a relaxed atomic
    /// load). By way of a buffer, the vector load would have to wait until the four narrower stores
    /// before it have all reached the cache.
    #[inline(always)]
    fn load_live(rows: &[AtomicU64], at: usize) -> __m256i {
        let lanes: &[AtomicU64; 4] = rows[at..at + 4].try_into().expect("four lanes");
        let (low, high): (__m128i, __m128i);
        // SAFETY: four aligned words, alive as long as `rows` is, read as atomics are read on x86-64; no
        // other memory is touched. AVX2 is there (see `Avx2`).
        unsafe {
            asm!(
                "vmovq {low}, qword ptr [{lanes}]",
                "vmovhps {low}, {low}, qword ptr [{lanes} + 8]",
                "vmovq {high}, qword ptr [{lanes} + 16]",
                "vmovhps {high}, {high}, qword ptr [{lanes} + 24]",
                lanes = in(reg) lanes,
                low = out(xmm_reg) low,
                high = out(xmm_reg) high,
                options(readonly, nostack, preserves_flags),
            );
            _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
        }
    }

    #[inline(always)]
    fn load_floats(column: &[f64; LANES], at: usize) -> __m256d {
        let lanes: &[f64; 4] = column[at..at + 4].try_into().expect("four lanes");
        // SAFETY: four readable floats; AVX2 is there (see `Avx2`).
        unsafe { _mm256_loadu_pd(lanes.as_ptr()) }
    }

    #[inline(always)]
    fn load_counts(column: &[u32; LANES], at: usize) -> __m256d {
        let lanes: &[u32; 4] = column[at..at + 4].try_into().expect("four lanes");
        // SAFETY: four readable counts; AVX2 is there (see `Avx2`).
        unsafe {
            let counts = _mm256_cvtepu32_epi64(_mm_loadu_si128(lanes.as_ptr().cast()));
            _mm256_sub_pd(biased(counts), _mm256_set1_pd(BIAS))
        }
    }

    #[inline(always)]
    fn as_floats(words: __m256i) -> __m256d {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_castsi256_pd(words) }
    }

    #[inline(always)]
    fn store(floats: __m256d, column: &mut [f64; LANES], at: usize) {
        let lanes: &mut [f64; 4] = (&mut column[at..at + 4]).try_into().expect("four lanes");
        // SAFETY: four writable floats; AVX2 is there (see `Avx2`).
        unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), floats) }
    }

    #[inline(always)]
    fn splat(x: f64) -> __m256d {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_set1_pd(x) }
    }

    #[inline(always)]
    fn biased_low(words: __m256i) -> __m256d {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe {
            // Takes the even (low) halves of the words and the odd (high) halves of the bias.
            let bias = _mm256_castpd_si256(_mm256_set1_pd(BIAS));
            _mm256_castsi256_pd(_mm256_blend_epi32::<0b1010_1010>(words, bias))
        }
    }

    #[inline(always)]
    fn biased_high(words: __m256i) -> __m256d {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { biased(_mm256_srli_epi64::<32>(words)) }
    }

    #[inline(always)]
    fn add(a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_add_pd(a, b) }
    }

    #[inline(always)]
    fn sub(a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_sub_pd(a, b) }
    }

    #[inline(always)]
    fn mul(a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_mul_pd(a, b) }
    }

    #[inline(always)]
    fn positive(x: __m256d) -> __m256d {
        // The instruction is `a > b ? a : b`, so -0 becomes the second operand, +0.
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_max_pd(x, _mm256_setzero_pd()) }
    }

    #[inline(always)]
    fn min(a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_min_pd(a, b) }
    }

    #[inline(always)]
    fn max(a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_max_pd(a, b) }
    }

    #[inline(always)]
    fn lowest(x: __m256d) -> f64 {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe {
            let two = _mm_min_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd::<1>(x));
            _mm_cvtsd_f64(_mm_min_sd(two, _mm_unpackhi_pd(two, two)))
        }
    }

    #[inline(always)]
    fn highest(x: __m256d) -> f64 {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe {
            let two = _mm_max_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd::<1>(x));
            _mm_cvtsd_f64(_mm_max_sd(two, _mm_unpackhi_pd(two, two)))
        }
    }

    #[inline(always)]
    fn fits(words: __m256i, limits: __m256i) -> __m256i {
        // The maximum of both halves, as u32, is the limit itself exactly if neither exceeds it.
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_cmpeq_epi64(_mm256_max_epu32(words, limits), limits) }
    }

    #[inline(always)]
    fn equal(a: __m256d, b: __m256d) -> __m256i {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_EQ_OQ>(a, b)) }
    }

    #[inline(always)]
    fn mask(bits: u64, at: usize) -> __m256i {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe {
            let bits = _mm256_set1_epi64x((bits >> at) as i64);
            _mm256_sllv_epi64(bits, _mm256_set_epi64x(60, 61, 62, 63))
        }
    }

    #[inline(always)]
    fn and(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn bits(mask: __m256i) -> u64 {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_movemask_pd(_mm256_castsi256_pd(mask)) as u64 }
    }

    #[inline(always)]
    fn tally(counts: __m256i, fit: __m256i) -> __m256i {
        // A comparison's yes is all ones, which is -1.
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_sub_epi64(counts, fit) }
    }

    #[inline(always)]
    fn total(counts: __m256i) -> u32 {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe {
            let (low, high) =
                (_mm256_castsi256_si128(counts), _mm256_extracti128_si256::<1>(counts));
            let two = _mm_add_epi64(low, high);
            _mm_cvtsi128_si32(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two))) as u32
        }
    }

    #[inline(always)]
    fn select(mask: __m256i, x: __m256d, other: __m256d) -> __m256d {
        // SAFETY: AVX2 is there (see `Avx2`).
        unsafe { _mm256_blendv_pd(other, x, _mm256_castsi256_pd(mask)) }
    }
}

/// Small integers plus [`BIAS`], as floats.
#[inline(always)]
fn biased(integers: __m256i) -> __m256d {
    // SAFETY: AVX2 is there (see `Avx2`).
    unsafe { _mm256_or_pd(_mm256_castsi256_pd(integers), _mm256_set1_pd(BIAS)) }
}
