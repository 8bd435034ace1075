//! Which ranks hold all of a run: a handful by name, more as a bitmap.
//!
//! Written only under the lock of the run the set belongs to; read by anybody, with no lock, while
//! pinned. A slot is `block * 64 + lane`. A run that few ranks hold costs half a cache line; once
//! it is held by more, it gets a bitmap of one word per block of the fleet and keeps it until it
//! dies. A bitmap that is too small for a new slot is replaced by a larger one, so the fleet can
//! grow at any time.
//!
//! What a reader sees: each slot on its own, as it is at some moment between the look-up of the
//! run and the read. A set that was replaced (few by wide, wide by wider) is left as it was.

use crate::grace::{Domain, Stamp};
use crate::prefetch::{for_reading, for_writing};
use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::sync::{MODELLED, Mutex};
use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::{ptr, slice};

/// How many slots are kept by name.
pub(super) const FEW: usize = if MODELLED { 1 } else { 8 };
/// Blocks in the smallest bitmap.
const LEAST: usize = if MODELLED { 1 } else { 64 };
/// Words of a bitmap that are asked for before it is looked at: of a very large fleet few of them
/// are needed, and asking costs as well.
const ASKED: usize = 64;
/// An empty place among the few.
const NOBODY: u32 = u32::MAX;

/// A set of slots.
#[derive(Debug)]
pub(super) struct RankSet {
    few: [AtomicU32; FEW],
    /// Null while the few are enough; after that the few are no longer looked at.
    wide: AtomicPtr<AtomicU64>,
    count: AtomicU32,
}

/// A bitmap: one word of lanes per block, then one bit per block for "its word is not 0".
///
/// Handed around as the pointer to its first word, at the beginning of a cache line, with the
/// binary logarithm of the number of blocks in the low bits: to look at one block is to look at one
/// line.
#[derive(Clone, Copy, Debug)]
struct Wide<'a> {
    words: &'a [AtomicU64],
    summary: &'a [AtomicU64],
}

/// Bitmaps not in use, by size. Taken from and given to only when a run turns wide or dies wide.
#[derive(Debug, Default)]
pub(super) struct WidePool(Mutex<Stock>);

#[derive(Debug, Default)]
struct Stock {
    /// By binary logarithm of the number of blocks.
    free: Vec<Vec<*mut AtomicU64>>,
    /// Replaced by larger ones, maybe still read.
    limbo: VecDeque<(Stamp, *mut AtomicU64)>,
}

// SAFETY: the pointers own what they lead to, which is made of atomics; they are touched under the
// mutex only.
unsafe impl Send for Stock {}

/// Bytes in a cache line.
const LINE: usize = 64;

/// How many blocks the bitmap has, as a binary logarithm.
#[inline]
fn class(wide: *mut AtomicU64) -> usize {
    wide.addr() % LINE
}

#[inline]
fn first_word(wide: *mut AtomicU64) -> *mut AtomicU64 {
    wide.map_addr(|addr| addr & !(LINE - 1))
}

/// Words of summary for so many blocks.
#[inline]
const fn summary_words(blocks: usize) -> usize {
    blocks.div_ceil(64)
}

fn layout(class: usize) -> Layout {
    let blocks = 1 << class;
    Layout::array::<AtomicU64>(blocks + summary_words(blocks))
        .and_then(|layout| layout.align_to(LINE))
        .expect("a word for each rank there can be is far below the address space")
}

/// An empty bitmap for `1 << class` blocks.
fn allocate(class: usize) -> *mut AtomicU64 {
    let layout = layout(class);
    // SAFETY: a bitmap has at least two words.
    let first = unsafe { alloc::alloc(layout) }.cast::<AtomicU64>();
    if first.is_null() {
        alloc::handle_alloc_error(layout);
    }
    for at in 0..(1 << class) + summary_words(1 << class) {
        // SAFETY: within what was allocated.
        unsafe { first.add(at).write(AtomicU64::new(0)) };
    }
    first.map_addr(|addr| addr | class)
}

/// # Safety
/// `wide` came from `allocate`, and nobody else has it.
unsafe fn release(wide: *mut AtomicU64) {
    let blocks = 1 << class(wide);
    for at in 0..blocks + summary_words(blocks) {
        // SAFETY: written by `allocate`, and ours alone.
        unsafe { first_word(wide).add(at).drop_in_place() };
    }
    // SAFETY: allocated by `allocate` with this layout.
    unsafe { alloc::dealloc(first_word(wide).cast(), layout(class(wide))) };
}

impl<'a> Wide<'a> {
    /// # Safety
    /// `wide` came from `allocate` and is not released for as long as `'a`.
    #[inline]
    unsafe fn new(wide: *mut AtomicU64) -> Wide<'a> {
        let (first, blocks) = (first_word(wide), 1 << class(wide));
        // SAFETY: the words of a bitmap, by the contract of this function.
        unsafe {
            Wide {
                words: slice::from_raw_parts(first, blocks),
                summary: slice::from_raw_parts(first.add(blocks), summary_words(blocks)),
            }
        }
    }

    #[inline]
    fn mask(self, block: u32) -> u64 {
        self.words.get(block as usize).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn put(self, block: usize, mask: u64) {
        let word = &self.words[block];
        let emptiness_changes = (word.load(Ordering::Relaxed) == 0) != (mask == 0);
        word.store(mask, Ordering::Relaxed);
        if emptiness_changes {
            let summary = &self.summary[block / 64];
            let bit = 1 << (block % 64);
            summary.store(summary.load(Ordering::Relaxed) ^ bit, Ordering::Relaxed);
        }
    }

    fn copy_from(self, other: Wide<'_>) {
        other.for_each_block(|block, mask| self.put(block as usize, mask));
    }

    #[inline]
    fn for_each_block(self, mut visit: impl FnMut(u32, u64)) {
        for (at, summary) in self.summary.iter().enumerate() {
            let mut left = summary.load(Ordering::Relaxed);
            while left != 0 {
                let block = at as u32 * 64 + left.trailing_zeros();
                left &= left - 1;
                let mask = self.mask(block);
                if mask != 0 {
                    visit(block, mask);
                }
            }
        }
    }

    fn clear(self) {
        for word in self.words.iter().chain(self.summary) {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl WidePool {
    /// An empty bitmap with room for `block`.
    fn take(&self, block: u32, domain: &Domain) -> *mut AtomicU64 {
        let blocks = (block as usize + 1).next_power_of_two().max(LEAST);
        let class = blocks.trailing_zeros() as usize;
        let mut stock = self.0.lock();
        stock.sweep(domain);
        let wide = stock.free.get_mut(class).and_then(Vec::pop);
        drop(stock);
        wide.unwrap_or_else(|| allocate(class))
    }

    /// Takes back a bitmap that nobody reads any more.
    ///
    /// # Safety
    /// `wide` came from `take`, is handed in once, and is reachable for no reader.
    unsafe fn give(&self, wide: *mut AtomicU64) {
        // SAFETY: ours alone now.
        unsafe { Wide::new(wide) }.clear();
        self.0.lock().shelve(wide);
    }

    /// Takes back a bitmap that was just unlinked.
    fn retire(&self, wide: *mut AtomicU64, domain: &Domain) {
        let stamp = domain.stamp();
        self.0.lock().limbo.push_back((stamp, wide));
    }
}

impl Stock {
    fn shelve(&mut self, wide: *mut AtomicU64) {
        let class = class(wide);
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(wide);
    }

    fn sweep(&mut self, domain: &Domain) {
        while let Some(&(stamp, wide)) = self.limbo.front() {
            if !domain.passed(stamp) {
                return;
            }
            self.limbo.pop_front();
            // SAFETY: a grace period after it was replaced nobody reads it.
            unsafe { Wide::new(wide) }.clear();
            self.shelve(wide);
        }
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let limbo = self.limbo.drain(..).map(|(_, wide)| wide);
        for wide in self.free.drain(..).flatten().chain(limbo) {
            // SAFETY: owned by the stock, which nobody shares any more.
            unsafe { release(wide) };
        }
    }
}

impl RankSet {
    pub(super) fn new() -> RankSet {
        RankSet {
            few: std::array::from_fn(|_| AtomicU32::new(NOBODY)),
            wide: AtomicPtr::new(ptr::null_mut()),
            count: AtomicU32::new(0),
        }
    }

    /// How many slots are in it.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    #[inline]
    fn wide(&self) -> Option<Wide<'_>> {
        // Acquire: pairs with the release in `widen`, for the bitmap's contents.
        let wide = self.wide.load(Ordering::Acquire);
        // SAFETY: a bitmap is reused only a grace period after it, or its run, was unlinked; who
        // reads is pinned, who writes holds the lock of a run that is linked or its own.
        (!wide.is_null()).then(|| unsafe { Wide::new(wide) })
    }

    /// Asks early for what is to be looked at in the first so many blocks; of many, for a part.
    #[inline]
    pub(super) fn ask(&self, blocks: usize) {
        if let Some(wide) = self.wide() {
            let words = wide.words.iter().take(blocks.min(ASKED));
            words.step_by(LINE / size_of::<AtomicU64>()).for_each(for_reading);
            wide.summary.first().into_iter().for_each(for_reading);
        }
    }

    /// Asks early for what is written when a slot of `block` is added.
    #[inline]
    pub(super) fn ask_to_insert(&self, block: u32) {
        for_writing(self);
        if let Some(word) = self.wide().and_then(|wide| wide.words.get(block as usize)) {
            for_writing(word);
        }
    }

    /// The slots of one block, as lanes.
    #[inline]
    pub(super) fn mask(&self, block: u32) -> u64 {
        if let Some(wide) = self.wide() {
            return wide.mask(block);
        }
        let mut mask = 0;
        for few in &self.few {
            let slot = few.load(Ordering::Relaxed);
            if slot >> 6 == block {
                mask |= 1 << (slot & 63);
            }
        }
        mask
    }

    /// The blocks with a slot in them, of the 64 from `64 * part` on; maybe one without.
    #[inline]
    pub(super) fn blocks(&self, part: u32) -> u64 {
        if let Some(wide) = self.wide() {
            let word = wide.summary.get(part as usize);
            return word.map_or(0, |word| word.load(Ordering::Relaxed));
        }
        let slots = self.few.iter().map(|few| few.load(Ordering::Relaxed));
        slots
            .filter(|&slot| slot >> 12 == part && slot != NOBODY)
            .fold(0, |blocks, slot| blocks | 1 << (slot >> 6 & 63))
    }

    /// Calls `visit` for each block with a slot in it, each once; ascending if the set is wide.
    #[inline]
    pub(super) fn for_each_block(&self, mut visit: impl FnMut(u32, u64)) {
        if let Some(wide) = self.wide() {
            return wide.for_each_block(visit);
        }
        let few: [u32; FEW] = std::array::from_fn(|i| self.few[i].load(Ordering::Relaxed));
        for (i, &slot) in few.iter().enumerate() {
            let block = slot >> 6;
            if slot == NOBODY || few[..i].iter().any(|s| s >> 6 == block && *s != NOBODY) {
                continue;
            }
            let same = few[i..].iter().filter(|s| **s >> 6 == block && **s != NOBODY);
            visit(block, same.fold(0, |mask, s| mask | 1 << (s & 63)));
        }
    }

    /// Whether `slot` is in it.
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.mask(slot >> 6) >> (slot & 63) & 1 != 0
    }

    /// Adds `slot`; whether it was not there. Under the run's lock.
    pub(super) fn insert(&self, slot: u32, pool: &WidePool, domain: &Domain) -> bool {
        let (block, bit) = (slot >> 6, 1 << (slot & 63));
        let wide = match self.wide() {
            Some(wide) if (block as usize) < wide.words.len() => wide,
            Some(_) => self.widen(block, pool, domain),
            None => {
                let mut empty = None;
                for few in &self.few {
                    match few.load(Ordering::Relaxed) {
                        NOBODY => empty = Some(few),
                        there if there == slot => return false,
                        _ => {}
                    }
                }
                if let Some(few) = empty {
                    few.store(slot, Ordering::Relaxed);
                    self.count.store(self.count() + 1, Ordering::Relaxed);
                    return true;
                }
                self.widen(block, pool, domain)
            }
        };
        let mask = wide.mask(block);
        if mask & bit != 0 {
            return false;
        }
        wide.put(block as usize, mask | bit);
        self.count.store(self.count() + 1, Ordering::Relaxed);
        true
    }

    /// Replaces what is there by a bitmap that has room for all of it and for `block`.
    #[cold]
    fn widen(&self, block: u32, pool: &WidePool, domain: &Domain) -> Wide<'_> {
        let mut most = block;
        self.for_each_block(|block, _| most = most.max(block));
        let new = pool.take(most, domain);
        // SAFETY: not published yet.
        let wide = unsafe { Wide::new(new) };
        match self.wide() {
            Some(old) => wide.copy_from(old),
            None => self.for_each_block(|block, mask| wide.put(block as usize, mask)),
        }
        let old = self.wide.load(Ordering::Relaxed);
        // Release: publishes the bitmap's contents to `wide`.
        self.wide.store(new, Ordering::Release);
        if !old.is_null() {
            pool.retire(old, domain);
        }
        wide
    }

    /// Removes `slot`; whether it was there. Under the run's lock.
    pub(super) fn remove(&self, slot: u32) -> bool {
        let (block, bit) = (slot >> 6, 1 << (slot & 63));
        match self.wide() {
            Some(wide) => {
                let mask = wide.mask(block);
                if mask & bit == 0 {
                    return false;
                }
                wide.put(block as usize, mask & !bit);
            }
            None => match self.few.iter().find(|s| s.load(Ordering::Relaxed) == slot) {
                Some(few) => few.store(NOBODY, Ordering::Relaxed),
                None => return false,
            },
        }
        self.count.store(self.count() - 1, Ordering::Relaxed);
        true
    }

    /// Makes this set, which is empty and not published, equal to another whose lock is held.
    pub(super) fn copy_from(&self, other: &RankSet, pool: &WidePool, domain: &Domain) {
        if let Some(wide) = other.wide() {
            let new = pool.take(wide.words.len() as u32 - 1, domain);
            // SAFETY: not published yet.
            unsafe { Wide::new(new) }.copy_from(wide);
            self.wide.store(new, Ordering::Relaxed);
        } else {
            for (to, from) in self.few.iter().zip(&other.few) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        self.count.store(other.count(), Ordering::Relaxed);
    }

    /// Whether both have the same slots. Under both locks.
    pub(super) fn same(&self, other: &RankSet) -> bool {
        let mut same = self.count() == other.count();
        if same {
            self.for_each_block(|block, mask| same &= other.mask(block) == mask);
        }
        same
    }

    /// Empties a set that nobody reads any more, for its next use.
    ///
    /// # Safety
    /// No reader can reach it, nor will until it is published again.
    pub(super) unsafe fn reset(&self, pool: &WidePool) {
        let wide = self.wide.load(Ordering::Relaxed);
        if !wide.is_null() {
            self.wide.store(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: it was reachable through this set only.
            unsafe { pool.give(wide) };
        }
        for few in &self.few {
            few.store(NOBODY, Ordering::Relaxed);
        }
        self.count.store(0, Ordering::Relaxed);
    }
}

impl Drop for RankSet {
    fn drop(&mut self) {
        let wide = self.wide.load(Ordering::Relaxed);
        if !wide.is_null() {
            // SAFETY: dropped with the index, which nobody shares any more.
            unsafe { release(wide) };
        }
    }
}
