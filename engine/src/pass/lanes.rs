//! The arithmetic of one block: 64 ranks judged, projected and compared in one walk.
//!
//! This file owns the formula of the cost; a back-end ([`super::backend`]) only says how a few
//! lanes of it are loaded, added and compared. A walk reads no live table: the caller copies the
//! rows of a block (relaxed scalar loads) into a plain buffer, and the walk runs on that. A glance
//! ([`glance`]) looks at each row once, and loads it itself: by a relaxed scalar load of its own as
//! well, never several rows by one load.
//!
//! **Why costs are f64 in tokens, not blocks.** With the default weights every term of a cost in
//! tokens (prefill tokens, prompt length, blocks times block size, three quarters of a block) is
//! an exact binary fraction far below 2^53, so no operation rounds: ranks whose costs are
//! mathematically equal have equal bits, whatever the block size, and a tie is a tie. In blocks,
//! `tokens / block_size` rounds for a block size of 48, say, and two different ways to the same
//! cost would differ in the last place. [`Terms::in_blocks`] turns a cost into public units.
//!
//! **Why every back-end gives the same bits.** Where weights are odd enough to round, every
//! back-end rounds alike: the walk uses IEEE additions, subtractions and multiplications in one
//! fixed order per lane, no sum across lanes, and no fused multiply-add (rustc never contracts).
//! A term that is left out is one that would have added or subtracted exactly 0, so the
//! specialised shapes agree with the general one, and with [`Terms::cost`], to the bit.
#![forbid(unsafe_code)]

use crate::choice::Weights;
use crate::fleet::seal::SPAN;
use crate::load::row::Limit;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::ops::{Deref, DerefMut};

/// Ranks per block.
pub(crate) const LANES: usize = 64;

/// A column of one block, aligned so that no vector load straddles a cache line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct Column<T>(pub(crate) [T; LANES]);

impl<T: Copy + Default> Default for Column<T> {
    fn default() -> Self {
        Column([T::default(); LANES])
    }
}

impl<T> Deref for Column<T> {
    type Target = [T; LANES];
    #[inline(always)]
    fn deref(&self) -> &[T; LANES] {
        &self.0
    }
}

impl<T> DerefMut for Column<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T; LANES] {
        &mut self.0
    }
}

/// A block of limits that only dead rows are past.
static NO_LIMITS: Column<u64> = Column([Limit::NONE.bits(); LANES]);

/// No credit for anybody.
pub(super) static NO_CREDIT: Column<f64> = Column([0.0; LANES]);
/// A word of 0 for everybody.
static NO_WORDS: Column<u64> = Column([0; LANES]);
/// A count of 0 for everybody.
pub(super) static NO_COUNT: Column<u32> = Column([0; LANES]);

/// What the cost of every rank is made of for one request: the pool's and the request's weights,
/// folded so that a walk only adds and multiplies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    /// Factor on the prefill part; 0 if prefill is not tracked.
    prefill: f64,
    /// Tokens per KV block; 0 if blocks are not tracked.
    blocks: f64,
    /// Tokens that one active request costs.
    request: f64,
    /// Prompt tokens of the request.
    isl: f64,
    /// Prompt blocks of the request.
    prompt_blocks: f64,
    /// Whether credit is taken off the block part, for want of a prefill part.
    credit_on_blocks: bool,
    /// Tokens per KV block.
    block_size: f64,
}

/// What a pool looks at when it weighs ranks for one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tracking {
    /// Tokens per KV block, at least 1.
    pub(crate) block_size: u32,
    /// Whether prefill tokens count, for this request.
    pub(crate) prefill: bool,
    /// Whether KV blocks count.
    pub(crate) blocks: bool,
    /// Whether the request brings overlaps.
    pub(crate) overlaps: bool,
}

impl Terms {
    /// Folds the weights for a request of `isl` tokens and `prompt_blocks` blocks.
    pub(crate) fn new(weights: &Weights, track: Tracking, isl: u32, prompt_blocks: u32) -> Terms {
        let block_size = f64::from(track.block_size);
        Terms {
            prefill: if track.prefill { weights.prefill_scale } else { 0.0 },
            blocks: if track.blocks { block_size } else { 0.0 },
            // Finite, so that a rank without requests pays 0 and not 0 times infinity.
            request: (weights.request * block_size).min(f64::MAX),
            isl: f64::from(isl),
            prompt_blocks: f64::from(prompt_blocks),
            credit_on_blocks: !track.prefill && weights.device > 0.0 && track.overlaps,
            block_size,
        }
    }

    /// The cost of one rank, in tokens: the same bits as the rank's lane in a walk. That of a dead
    /// row means nothing (and costs no instruction): nobody may choose it.
    ///
    /// `credit` is in tokens; `held` counts the request's prompt blocks that the rank holds
    /// already; `requests` its active requests.
    #[inline(always)]
    pub(crate) fn cost(&self, row: u64, credit: f64, held: u32, requests: u32) -> f64 {
        let tokens = f64::from(row as u32) + self.isl;
        let blocks = f64::from((row >> 32) as u32) + self.prompt_blocks;
        let blocks = self.blocks * (blocks - f64::from(held));
        let load = if self.credit_on_blocks {
            positive(blocks - credit)
        } else {
            self.prefill * positive(tokens - credit) + blocks
        };
        load + self.request * f64::from(requests)
    }

    /// [`cost`](Self::cost), to the bit, by terms for a request without tokens and blocks.
    #[inline(always)]
    pub(crate) fn plain_cost(&self, row: u64, requests: u32) -> f64 {
        debug_assert!(self.isl == 0.0 && self.prompt_blocks == 0.0 && !self.credit_on_blocks);
        let load =
            self.prefill * f64::from(row as u32) + self.blocks * f64::from((row >> 32) as u32);
        load + self.request * f64::from(requests)
    }

    /// Whether a rank's cost by these terms, without credit and held blocks, is its cost by `plain`
    /// [and what the request adds](Self::request): terms of the same pool, for a request without
    /// tokens and blocks.
    #[inline]
    pub(crate) fn weighs_as(&self, plain: &Terms) -> bool {
        (self.prefill, self.blocks, self.request) == (plain.prefill, plain.blocks, plain.request)
    }

    /// What the request adds to the cost of every rank that shares nothing with it.
    pub(crate) fn request(&self) -> f64 {
        self.prefill * self.isl + self.blocks * self.prompt_blocks
    }

    /// What a rank is cheaper by for `held` prompt blocks that it holds.
    pub(crate) fn bonus(&self, held: u32) -> f64 {
        self.blocks * f64::from(held)
    }

    /// The most that a rank is cheaper by for `credit`, in tokens.
    pub(crate) fn saving(&self, credit: f64) -> f64 {
        if self.credit_on_blocks { credit } else { self.prefill * credit }
    }

    /// A cost in blocks, the public unit.
    #[inline(always)]
    pub(crate) fn in_blocks(&self, cost: f64) -> f64 {
        cost / self.block_size
    }

    /// Whether active requests have a price at all; if not, a walk can do without their column.
    #[inline(always)]
    pub(crate) fn prices_requests(&self) -> bool {
        self.request != 0.0
    }

    /// Whether costs depend on anything but rows for requests that share nothing with a rank.
    #[inline(always)]
    pub(crate) fn needs_more_than_rows(&self) -> bool {
        self.credit_on_blocks || self.prices_requests()
    }

    /// Whether overlaps can change a cost; if not, a walk can do without a column of credit.
    #[inline(always)]
    pub(crate) fn takes_credit(&self) -> bool {
        self.credit_on_blocks || self.prefill != 0.0
    }
}

/// `max(0, x)`, written so that 0 comes out as +0 everywhere.
#[inline(always)]
fn positive(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.0 }
}

/// The columns of one block that a walk looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    /// Packed rows, copied from the live table.
    pub(crate) rows: &'a [u64; LANES],
    /// Limits ([`Limit`]) that a rank must not be past to be chosen.
    pub(crate) limits: &'a [u64; LANES],
    /// A second set of limits, judged but without effect on the minimum.
    pub(crate) class_limits: Option<&'a [u64; LANES]>,
    /// Credit, in tokens; `None`: none.
    pub(crate) credit: Option<&'a [f64; LANES]>,
    /// Prompt blocks of the request that each rank holds already; `None`: none.
    pub(crate) held: Option<&'a [u32; LANES]>,
    /// Active requests; `None`: not looked at.
    pub(crate) requests: Option<&'a [u32; LANES]>,
}

impl<'a> Inputs<'a> {
    /// Rows and limits, and nothing else.
    pub(crate) fn new(rows: &'a [u64; LANES], limits: &'a [u64; LANES]) -> Inputs<'a> {
        Inputs { rows, limits, class_limits: None, credit: None, held: None, requests: None }
    }
}

/// What a walk found in one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    /// Ranks past the limits, or dead. Judged for all 64 lanes, candidates or not.
    pub(crate) full: u64,
    /// Ranks past the class limits, or dead; 0 if there were none to judge by.
    pub(crate) class_full: u64,
    /// The lowest cost among the candidates that are not full; infinite if there is none.
    pub(crate) min: f64,
    /// The candidates that are not full and have that cost; 0 if it is above the bar given.
    pub(crate) ties: u64,
}

/// A few lanes at a time: what a back-end has to be able to do.
///
/// Methods are called only from functions compiled for the back-end's instruction set, which they
/// are inlined into.
pub(super) trait Vector {
    /// Lanes per vector; divides 64.
    const N: usize;
    /// `N` rows or limits.
    type Words: Copy;
    /// `N` costs.
    type Floats: Copy;
    /// `N` times yes or no.
    type Mask: Copy;

    fn load_words(column: &[u64; LANES], at: usize) -> Self::Words;
    /// Loads words from a live table, each by a relaxed scalar load of its own.
    #[inline(always)]
    fn load_live(rows: &[AtomicU64], at: usize) -> Self::Words {
        let mut copy = Column([0; LANES]);
        for (to, from) in copy.iter_mut().zip(&rows[at..at + Self::N]) {
            *to = from.load(Ordering::Relaxed);
        }
        Self::load_words(&copy, 0)
    }
    fn load_floats(column: &[f64; LANES], at: usize) -> Self::Floats;
    /// Loads counts and turns them into floats, exactly.
    fn load_counts(column: &[u32; LANES], at: usize) -> Self::Floats;
    /// Words that are floats, as such.
    fn as_floats(words: Self::Words) -> Self::Floats;
    fn store(floats: Self::Floats, column: &mut [f64; LANES], at: usize);
    fn splat(x: f64) -> Self::Floats;

    /// `BIAS + ` the low 32 bits of each word, exactly.
    fn biased_low(words: Self::Words) -> Self::Floats;
    /// `BIAS + ` the high 32 bits of each word, exactly.
    fn biased_high(words: Self::Words) -> Self::Floats;

    fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn sub(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `x > 0 ? x : +0`.
    fn positive(x: Self::Floats) -> Self::Floats;
    fn min(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn max(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// The lowest lane.
    fn lowest(x: Self::Floats) -> f64;
    /// The highest lane.
    fn highest(x: Self::Floats) -> f64;

    /// Neither half of the word exceeds that of the limit, halves as u32.
    fn fits(words: Self::Words, limits: Self::Words) -> Self::Mask;
    fn equal(a: Self::Floats, b: Self::Floats) -> Self::Mask;
    /// The lanes `at ..` of a block's mask.
    fn mask(bits: u64, at: usize) -> Self::Mask;
    fn and(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// Bit i for lane i; higher bits 0.
    fn bits(mask: Self::Mask) -> u64;
    /// Counts 1 more for each lane that [`fits`](Vector::fits) said yes to.
    fn tally(counts: Self::Words, fit: Self::Mask) -> Self::Words;
    /// The sum of such counts.
    fn total(counts: Self::Words) -> u32;
    /// `x` where the mask says so, else `other`.
    fn select(mask: Self::Mask, x: Self::Floats, other: Self::Floats) -> Self::Floats;
}

/// 2^52: a float of this exponent shows its low 52 bits as an integer, which turns a small
/// unsigned integer into a float with one OR and one subtraction, also where the instruction set
/// has no conversion for it.
pub(super) const BIAS: f64 = 4_503_599_627_370_496.0;

/// No credit, no held blocks, no price on requests.
const PLAIN: u8 = 0;
/// Held blocks only.
const HELD: u8 = 1;
/// Everything; credit against the prefill part.
const ALL: u8 = 2;
/// Everything; credit against the block part.
const ALL_ON_BLOCKS: u8 = 3;

/// One block to judge, project and compare.
pub(super) struct Walk<'a> {
    pub(super) terms: &'a Terms,
    pub(super) inputs: &'a Inputs<'a>,
    /// The lanes whose minimum is looked for.
    pub(super) candidates: u64,
    /// Ties are told only if the minimum is at or below it: a block that cannot win is spared the
    /// look.
    pub(super) bar: f64,
}

impl Walk<'_> {
    /// Walks. `costs` receives the cost of every lane, candidate or not.
    #[inline(always)]
    pub(super) fn run<V: Vector>(&self, costs: &mut [f64; LANES]) -> Found {
        if self.candidates == u64::MAX {
            self.masked::<V, false>(costs)
        } else {
            self.masked::<V, true>(costs)
        }
    }

    #[inline(always)]
    fn masked<V: Vector, const MASKED: bool>(&self, costs: &mut [f64; LANES]) -> Found {
        if self.inputs.class_limits.is_none() {
            self.classed::<V, MASKED, false>(costs)
        } else {
            self.classed::<V, MASKED, true>(costs)
        }
    }

    /// The shapes of every day get a loop of their own; the others share one that reads columns of
    /// zeros for what was not given, which changes no bit of the result.
    #[inline(always)]
    fn classed<V: Vector, const MASKED: bool, const CLASS: bool>(
        &self,
        costs: &mut [f64; LANES],
    ) -> Found {
        let inputs = self.inputs;
        if self.terms.credit_on_blocks {
            self.shaped::<V, MASKED, CLASS, ALL_ON_BLOCKS>(costs)
        } else if inputs.credit.is_some() || inputs.requests.is_some() {
            self.shaped::<V, MASKED, CLASS, ALL>(costs)
        } else if inputs.held.is_some() {
            self.shaped::<V, MASKED, CLASS, HELD>(costs)
        } else {
            self.shaped::<V, MASKED, CLASS, PLAIN>(costs)
        }
    }

    #[inline(always)]
    fn shaped<V: Vector, const MASKED: bool, const CLASS: bool, const SHAPE: u8>(
        &self,
        costs: &mut [f64; LANES],
    ) -> Found {
        let Walk { terms, inputs, candidates, bar } = *self;
        let credit = inputs.credit.unwrap_or(&NO_CREDIT);
        let held = inputs.held.unwrap_or(&NO_COUNT);
        let requests = inputs.requests.unwrap_or(&NO_COUNT);
        let class_limits = inputs.class_limits.unwrap_or(&NO_LIMITS);

        // Taking the bias off and adding the request is one subtraction: integers below 2^53,
        // exact.
        let bias_isl = V::splat(BIAS - terms.isl);
        let bias_prompt = V::splat(BIAS - terms.prompt_blocks);
        let prefill = V::splat(terms.prefill);
        let per_block = V::splat(terms.blocks);
        let per_request = V::splat(terms.request);
        let never = V::splat(f64::INFINITY);

        let (mut fits, mut class_fits) = (0, 0);
        let mut least = never;
        let mut at = 0;
        while at < LANES {
            let row = V::load_words(inputs.rows, at);
            let fit = V::fits(row, V::load_words(inputs.limits, at));
            fits |= V::bits(fit) << at;
            if CLASS {
                let fit = V::fits(row, V::load_words(class_limits, at));
                class_fits |= V::bits(fit) << at;
            }

            let tokens = V::sub(V::biased_low(row), bias_isl);
            let mut blocks = V::sub(V::biased_high(row), bias_prompt);
            if SHAPE != PLAIN {
                blocks = V::sub(blocks, V::load_counts(held, at));
            }
            let blocks = V::mul(per_block, blocks);
            let mut cost = match SHAPE {
                ALL_ON_BLOCKS => V::positive(V::sub(blocks, V::load_floats(credit, at))),
                ALL => {
                    let left = V::positive(V::sub(tokens, V::load_floats(credit, at)));
                    V::add(V::mul(prefill, left), blocks)
                }
                _ => V::add(V::mul(prefill, tokens), blocks),
            };
            if SHAPE >= ALL {
                cost = V::add(cost, V::mul(per_request, V::load_counts(requests, at)));
            }
            V::store(cost, costs, at);

            let may = if MASKED { V::and(fit, V::mask(candidates, at)) } else { fit };
            least = V::min(least, V::select(may, cost, never));
            at += V::N;
        }

        let min = V::lowest(least);
        let ties = if min <= bar { equal::<V>(costs, min) & fits & candidates } else { 0 };
        Found { full: !fits, class_full: if CLASS { !class_fits } else { 0 }, min, ties }
    }
}

/// The lanes whose cost is `x`.
#[inline(always)]
fn equal<V: Vector>(costs: &[f64; LANES], x: f64) -> u64 {
    let x = V::splat(x);
    let mut bits = 0;
    let mut at = 0;
    while at < LANES {
        bits |= V::bits(V::equal(V::load_floats(costs, at), x)) << at;
        at += V::N;
    }
    bits
}

/// The ranks past their limits, or dead.
#[inline(always)]
pub(super) fn past<V: Vector>(rows: &[u64; LANES], limits: &[u64; LANES]) -> u64 {
    let mut fits = 0;
    let mut at = 0;
    while at < LANES {
        let fit = V::fits(V::load_words(rows, at), V::load_words(limits, at));
        fits |= V::bits(fit) << at;
        at += V::N;
    }
    !fits
}

/// Blocks that are glanced at in one go, at most.
pub(crate) const GLANCES: usize = 8;

/// One block to be glanced at.
#[derive(Clone, Copy)]
pub(crate) struct Sight<'a> {
    /// The live rows.
    pub(crate) rows: &'a [AtomicU64; LANES],
    pub(crate) limits: &'a [u64; LANES],
    pub(crate) candidates: u64,
}

/// What a glance at a block shows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// The lowest cost among the candidates that are not past the limits; infinite without any.
    pub(crate) min: f64,
    /// How many those are.
    pub(crate) room: u32,
}

/// Glances at some blocks: no credit, no held blocks, no price on requests.
#[inline(always)]
pub(super) fn glance<V: Vector>(terms: &Terms, sights: &[Sight<'_>], seen: &mut [Seen]) {
    for (sight, seen) in sights.iter().zip(seen) {
        *seen = if sight.candidates == u64::MAX {
            masked_glance::<V, false>(terms, sight)
        } else {
            masked_glance::<V, true>(terms, sight)
        };
    }
}

#[inline(always)]
fn masked_glance<V: Vector, const MASKED: bool>(terms: &Terms, sight: &Sight<'_>) -> Seen {
    let Sight { rows, limits, candidates } = *sight;
    let bias_isl = V::splat(BIAS - terms.isl);
    let bias_prompt = V::splat(BIAS - terms.prompt_blocks);
    let prefill = V::splat(terms.prefill);
    let per_block = V::splat(terms.blocks);
    let never = V::splat(f64::INFINITY);
    let (mut counts, mut count) = (V::load_words(&NO_WORDS, 0), 0);
    let mut least = [never; 2];
    let mut at = 0;
    while at < LANES {
        // Two at a time: half the steps of the loop, and two minima that do not wait for each other.
        for least in &mut least {
            let row = V::load_live(rows, at);
            let mut may = V::fits(row, V::load_words(limits, at));
            if MASKED {
                may = V::and(may, V::mask(candidates, at));
                count += V::bits(may).count_ones();
            } else {
                counts = V::tally(counts, may);
            }
            // As in a walk, to the bit.
            let tokens = V::sub(V::biased_low(row), bias_isl);
            let blocks = V::mul(per_block, V::sub(V::biased_high(row), bias_prompt));
            let cost = V::add(V::mul(prefill, tokens), blocks);
            *least = V::min(*least, V::select(may, cost, never));
            at += V::N;
        }
    }
    let room = if MASKED { count } else { V::total(counts) };
    Seen { min: V::lowest(V::min(least[0], least[1])), room }
}

/// Which of the costs come to at most `bar` with `added`.
#[inline(always)]
pub(super) fn within<V: Vector>(costs: &[AtomicU64; SPAN], added: f64, bar: f64) -> u64 {
    let (added, most) = (V::splat(added), V::splat(bar));
    let (mut bits, mut at) = (0, 0);
    while at < SPAN {
        let cost = V::add(V::as_floats(V::load_live(costs, at)), added);
        bits |= V::bits(V::equal(V::min(cost, most), cost)) << at;
        at += V::N;
    }
    bits
}

/// For each place of a vector, the lowest cost among the candidates whose lane is loaded there
/// (infinite without any). Costs are not NaN.
#[inline(always)]
fn lowest_by_place<V: Vector>(costs: &[f64; LANES], candidates: u64) -> V::Floats {
    let never = V::splat(f64::INFINITY);
    let mut least = never;
    let mut at = 0;
    while at < LANES {
        let cost = V::load_floats(costs, at);
        least = V::min(least, V::select(V::mask(candidates, at), cost, never));
        at += V::N;
    }
    least
}

/// The lowest cost among the candidates (infinite without any), and the candidates that have it.
/// Costs are not NaN.
#[inline(always)]
pub(super) fn cheapest<V: Vector>(costs: &[f64; LANES], candidates: u64) -> (f64, u64) {
    let least = lowest_by_place::<V>(costs, candidates);
    // A custom scorer may answer -0: it equals 0, and comes out as 0 on every back-end.
    let min = V::lowest(least) + 0.0;
    (min, equal::<V>(costs, min) & candidates)
}

/// The lowest and the highest cost among the candidates; +infinity and -infinity without any.
/// Costs are not NaN.
#[inline(always)]
pub(super) fn extent<V: Vector>(costs: &[f64; LANES], candidates: u64) -> (f64, f64) {
    let (above, below) = (V::splat(f64::INFINITY), V::splat(f64::NEG_INFINITY));
    let (mut least, mut most) = (above, below);
    let mut at = 0;
    while at < LANES {
        let cost = V::load_floats(costs, at);
        let may = V::mask(candidates, at);
        least = V::min(least, V::select(may, cost, above));
        most = V::max(most, V::select(may, cost, below));
        at += V::N;
    }
    (V::lowest(least) + 0.0, V::highest(most) + 0.0)
}

/// The fewest prefill tokens among the candidates; `None` without any.
#[inline(always)]
pub(super) fn least_tokens<V: Vector>(rows: &[u64; LANES], candidates: u64) -> Option<u32> {
    let never = V::splat(f64::INFINITY);
    let mut least = never;
    let mut at = 0;
    while at < LANES {
        let tokens = V::biased_low(V::load_words(rows, at));
        least = V::min(least, V::select(V::mask(candidates, at), tokens, never));
        at += V::N;
    }
    (candidates != 0).then(|| (V::lowest(least) - BIAS) as u32)
}

/// Classes of lanes that [`nearest`] takes the lowest cost of: those with the same number modulo
/// this.
pub(super) const CLASSES: usize = 4;

/// The candidates at or below the dearest class's lowest cost, and that cost (minus infinity
/// without candidates). Costs are not NaN.
#[inline(always)]
pub(super) fn nearest<V: Vector>(costs: &[f64; LANES], candidates: u64) -> (f64, u64) {
    const { assert!(V::N.is_multiple_of(CLASSES)) };
    let least = lowest_by_place::<V>(costs, candidates);
    let mut leasts = [f64::INFINITY; LANES];
    V::store(least, &mut leasts, 0);
    let mut edge = f64::NEG_INFINITY;
    for class in 0..CLASSES {
        // Lanes of a class that has none but costs of infinity are as good as no lanes.
        let (low, high) = (leasts[class], leasts[class + V::N - CLASSES]);
        let least = if high < low { high } else { low };
        edge = if least > edge && least < f64::INFINITY { least } else { edge };
    }
    let (most, mut bits, mut at) = (V::splat(edge), 0, 0);
    while at < LANES {
        let cost = V::load_floats(costs, at);
        bits |= V::bits(V::equal(V::min(cost, most), cost)) << at;
        at += V::N;
    }
    (edge + 0.0, bits & candidates)
}
