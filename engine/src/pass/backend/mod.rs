//! Which instructions the arithmetic of a block runs on.
//!
//! Chosen once, when a pool is built: a [`Kernel`] is a few function pointers. Every back-end gives
//! the same bits ([`super::lanes`] says why), so the choice is one of speed only.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;
#[cfg(any(target_arch = "aarch64", test))]
mod wide;

use super::lanes::{Found, Inputs, LANES, Terms, Walk};
use crate::error::Error;
use crate::fleet::seal::SPAN;
use crate::sync::atomic::AtomicU64;
use std::fmt;

/// Which instructions a pool's arithmetic over ranks runs on.
///
/// All of them give the same choice to the bit; [`Backend::detect`] takes the fastest one that
/// this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// One rank at a time; there on every machine.
    Scalar,
    /// Four ranks at a time, on x86-64 with AVX2.
    Avx2,
    /// Eight ranks at a time, on x86-64 with AVX-512 (F).
    Avx512,
    /// Four ranks at a time, in pairs, on every AArch64.
    Neon,
}

impl Backend {
    /// Every back-end there is, here or elsewhere, the fastest first.
    pub const ALL: [Backend; 4] = [Backend::Avx512, Backend::Avx2, Backend::Neon, Backend::Scalar];

    /// The fastest back-end that this machine has.
    pub fn detect() -> Backend {
        Backend::ALL.into_iter().find(|b| b.is_available()).unwrap_or(Backend::Scalar)
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Backend::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2"),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("bmi2")
            }
            // The instruction set's base: there is no AArch64 target of ours without it.
            #[cfg(target_arch = "aarch64")]
            Backend::Neon => true,
            #[cfg(not(target_arch = "x86_64"))]
            Backend::Avx2 | Backend::Avx512 => false,
            #[cfg(not(target_arch = "aarch64"))]
            Backend::Neon => false,
        }
    }

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Scalar => "scalar",
            Backend::Avx2 => "avx2",
            Backend::Avx512 => "avx512",
            Backend::Neon => "neon",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A block at a glance, as [`Kernel::glance`] says.
type Glance = unsafe fn(&Terms, &[AtomicU64; LANES], &[u64; LANES], u64) -> (f64, u32);

/// The functions of one back-end. They are unsafe to call on a machine that lacks its
/// instructions; a [`Kernel`] exists only where they are there.
struct Functions {
    walk: unsafe fn(&Walk<'_>, &mut [f64; LANES]) -> Found,
    glance: Glance,
    within: unsafe fn(&[AtomicU64; SPAN], f64, f64) -> u64,
    past: unsafe fn(&[u64; LANES], &[u64; LANES]) -> u64,
    cheapest: unsafe fn(&[f64; LANES], u64) -> (f64, u64),
    extent: unsafe fn(&[f64; LANES], u64) -> (f64, f64),
    least_tokens: unsafe fn(&[u64; LANES], u64) -> Option<u32>,
    nearest: unsafe fn(&[f64; LANES], u64) -> (f64, u64),
}

/// The walks over one block, on the back-end that was chosen.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    backend: Backend,
    functions: &'static Functions,
}

impl Kernel {
    /// The kernel of `backend`.
    ///
    /// # Errors
    /// `InvalidConfig` if this machine does not have it.
    pub(crate) fn new(backend: Backend) -> Result<Kernel, Error> {
        if !backend.is_available() {
            return Err(Error::config("backend", format!("{backend}, which this machine lacks")));
        }
        let functions = match backend {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => &avx2::FUNCTIONS,
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 => &avx512::FUNCTIONS,
            #[cfg(target_arch = "aarch64")]
            Backend::Neon => &wide::FUNCTIONS,
            // What is not compiled in is not available either, and was refused above.
            _ => &scalar::FUNCTIONS,
        };
        Ok(Kernel { backend, functions })
    }

    /// The kernel of plain arrays, which AArch64 runs on: here for its tests only.
    #[cfg(all(test, not(target_arch = "aarch64")))]
    fn wide() -> Kernel {
        Kernel { backend: Backend::Neon, functions: &wide::FUNCTIONS }
    }

    /// The kernel of [`Backend::detect`].
    pub(crate) fn detect() -> Kernel {
        Kernel::new(Backend::detect())
            .unwrap_or(Kernel { backend: Backend::Scalar, functions: &scalar::FUNCTIONS })
    }

    pub(crate) fn backend(&self) -> Backend {
        self.backend
    }

    /// Judges, projects and compares one block.
    ///
    /// All lanes are judged and get a cost; the minimum and its ties are taken over `candidates`
    /// that are not past `inputs.limits`. Ties are told only if the minimum is at or below `bar`
    /// (the best cost so far; `f64::INFINITY` always tells them).
    #[inline(always)]
    pub(crate) fn walk(
        &self,
        terms: &Terms,
        inputs: &Inputs<'_>,
        candidates: u64,
        bar: f64,
        costs: &mut [f64; LANES],
    ) -> Found {
        // SAFETY: a kernel is made only of a back-end that `is_available`.
        unsafe { (self.functions.walk)(&Walk { terms, inputs, candidates, bar }, costs) }
    }

    /// What a [walk](Self::walk) would find to be the lowest cost among `candidates` that are not
    /// past `limits` (infinite without any), and how many those are. For requests that need no other
    /// column: no credit, no held blocks, no price on requests. Reads the live rows itself.
    #[inline(always)]
    pub(crate) fn glance(
        &self,
        terms: &Terms,
        rows: &[AtomicU64; LANES],
        limits: &[u64; LANES],
        candidates: u64,
    ) -> (f64, u32) {
        debug_assert!(!terms.needs_more_than_rows());
        // SAFETY: a kernel is made only of a back-end that `is_available`.
        unsafe { (self.functions.glance)(terms, rows, limits, candidates) }
    }

    /// Which of the costs, bit by bit, come to at most `bar` with `added`. Costs are not NaN, and may
    /// change meanwhile.
    #[inline(always)]
    pub(crate) fn within(&self, costs: &[AtomicU64; SPAN], added: f64, bar: f64) -> u64 {
        // SAFETY: a kernel is made only of a back-end that `is_available`.
        unsafe { (self.functions.within)(costs, added, bar) }
    }

    /// The ranks past their limits, or dead.
    #[inline(always)]
    pub(crate) fn past(&self, rows: &[u64; LANES], limits: &[u64; LANES]) -> u64 {
        // SAFETY: a kernel is made only of a back-end that `is_available`.
        unsafe { (self.functions.past)(rows, limits) }
    }

    /// The lowest cost among `candidates` (infinite without any), and those that have it. Costs
    /// must not be NaN.
    #[inline(always)]
    pub(crate) fn cheapest(&self, costs: &[f64; LANES], candidates: u64) -> (f64, u64) {
        // SAFETY: a kernel is made only of a back-end that `is_available`.
        unsafe { (self.functions.cheapest)(costs, candidates) }
    }

    /// The lowest and the highest cost among `candidates`; +infinity and -infinity without any.
    /// Costs must not be NaN.
    #[inline(always)]
    pub(crate) fn extent(&self, costs: &[f64; LANES], candidates: u64) -> (f64, f64) {
        // SAFETY: a kernel is made only of a back-end that `is_available`.
        unsafe { (self.functions.extent)(costs, candidates) }
    }

    /// The fewest prefill tokens among `candidates`; `None` without any.
    #[inline(always)]
    pub(crate) fn least_tokens(&self, rows: &[u64; LANES], candidates: u64) -> Option<u32> {
        // SAFETY: a kernel is made only of a back-end that `is_available`.
        unsafe { (self.functions.least_tokens)(rows, candidates) }
    }

    /// A few of the cheapest candidates: all those at or below some cost, and that cost. Of four
    /// classes of lanes it is the dearest class's lowest, so they are four or more, some eight as a
    /// rule, if there are as many. Costs must not be NaN.
    #[inline(always)]
    pub(crate) fn nearest(&self, costs: &[f64; LANES], candidates: u64) -> (f64, u64) {
        // SAFETY: a kernel is made only of a back-end that `is_available`.
        unsafe { (self.functions.nearest)(costs, candidates) }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.backend)
    }
}

/// Compiles the generic walks for `$vector` under the target features given, as `FUNCTIONS`.
macro_rules! functions {
    ($vector:ty $(, $feature:literal)?) => {
        pub(super) static FUNCTIONS: super::Functions =
            super::Functions { walk, glance, within, past, cheapest, extent, least_tokens, nearest };

        $(#[target_feature(enable = $feature)])?
        fn walk(walk: &lanes::Walk<'_>, costs: &mut [f64; LANES]) -> lanes::Found {
            walk.run::<$vector>(costs)
        }

        $(#[target_feature(enable = $feature)])?
        fn glance(
            terms: &lanes::Terms,
            rows: &[AtomicU64; LANES],
            limits: &[u64; LANES],
            candidates: u64,
        ) -> (f64, u32) {
            lanes::glance::<$vector>(terms, rows, limits, candidates)
        }

        $(#[target_feature(enable = $feature)])?
        fn within(costs: &[AtomicU64; SPAN], added: f64, bar: f64) -> u64 {
            lanes::within::<$vector>(costs, added, bar)
        }

        $(#[target_feature(enable = $feature)])?
        fn past(rows: &[u64; LANES], limits: &[u64; LANES]) -> u64 {
            lanes::past::<$vector>(rows, limits)
        }

        $(#[target_feature(enable = $feature)])?
        fn cheapest(costs: &[f64; LANES], candidates: u64) -> (f64, u64) {
            lanes::cheapest::<$vector>(costs, candidates)
        }

        $(#[target_feature(enable = $feature)])?
        fn extent(costs: &[f64; LANES], candidates: u64) -> (f64, f64) {
            lanes::extent::<$vector>(costs, candidates)
        }

        $(#[target_feature(enable = $feature)])?
        fn least_tokens(rows: &[u64; LANES], candidates: u64) -> Option<u32> {
            lanes::least_tokens::<$vector>(rows, candidates)
        }

        $(#[target_feature(enable = $feature)])?
        fn nearest(costs: &[f64; LANES], candidates: u64) -> (f64, u64) {
            lanes::nearest::<$vector>(costs, candidates)
        }
    };
}
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), expect(unused_imports))]
use functions;

#[cfg(test)]
mod tests;
