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
use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::sync::{MODELLED, Mutex};
use std::collections::VecDeque;
use std::ptr;

/// How many slots are kept by name.
pub(super) const FEW: usize = if MODELLED { 1 } else { 8 };
/// Blocks in the smallest bitmap.
const LEAST: usize = if MODELLED { 1 } else { 64 };
/// An empty place among the few.
const NOBODY: u32 = u32::MAX;

/// A set of slots.
#[derive(Debug)]
pub(super) struct RankSet {
    few: [AtomicU32; FEW],
    /// Null while the few are enough; after that the few are no longer looked at.
    wide: AtomicPtr<Line>,
    count: AtomicU32,
}

/// A cache line of a bitmap.
#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; WORDS]);

const WORDS: usize = 8;

/// A bitmap: one word of lanes per block, then one bit per block for "its word is not 0".
///
/// Handed around as the pointer to its first line with the binary logarithm of the number of
/// blocks in the low bits, so that to look at one block is to look at one line.
#[derive(Clone, Copy, Debug)]
struct Wide<'a> {
    blocks: usize,
    lines: &'a [Line],
}

/// Bitmaps not in use, by size. Taken from and given to only when a run turns wide or dies wide.
#[derive(Debug, Default)]
pub(super) struct WidePool(Mutex<Stock>);

#[derive(Debug, Default)]
struct Stock {
    /// By binary logarithm of the number of blocks.
    free: Vec<Vec<*mut Line>>,
    /// Replaced by larger ones, maybe still read.
    limbo: VecDeque<(Stamp, *mut Line)>,
}

// SAFETY: the pointers own what they lead to, which is made of atomics; they are touched under the
// mutex only.
unsafe impl Send for Stock {}

/// How many blocks the bitmap has, as a binary logarithm.
fn class(wide: *mut Line) -> usize {
    wide.addr() % align_of::<Line>()
}

/// Lines that hold the words of so many blocks.
const fn lines(blocks: usize) -> usize {
    blocks.div_ceil(WORDS)
}

/// The bitmap's memory.
fn memory(wide: *mut Line) -> *mut [Line] {
    let blocks = 1 << class(wide);
    let first = wide.map_addr(|addr| addr - addr % align_of::<Line>());
    ptr::slice_from_raw_parts_mut(first, lines(blocks) + lines(blocks.div_ceil(64)))
}

/// An empty bitmap for `1 << class` blocks.
fn allocate(class: usize) -> *mut Line {
    let blocks = 1 << class;
    let count = lines(blocks) + lines(blocks.div_ceil(64));
    let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
    let memory: Box<[Line]> = (0..count).map(line).collect();
    let first = Box::into_raw(memory).cast::<Line>();
    first.map_addr(|addr| addr | class)
}

/// # Safety
/// `wide` came from `allocate`, and nobody else has it.
unsafe fn release(wide: *mut Line) {
    // SAFETY: it was made as a box of this size.
    drop(unsafe { Box::from_raw(memory(wide)) });
}

impl<'a> Wide<'a> {
    /// # Safety
    /// `wide` came from `allocate` and is not released for as long as `'a`.
    #[inline]
    unsafe fn new(wide: *mut Line) -> Wide<'a> {
        // SAFETY: the memory of a bitmap, by the contract of this function.
        Wide { blocks: 1 << class(wide), lines: unsafe { &*memory(wide) } }
    }

    #[inline]
    fn word(self, at: usize) -> &'a AtomicU64 {
        &self.lines[at / WORDS].0[at % WORDS]
    }

    /// The bits for 64 blocks, one for each that has a slot in it.
    #[inline]
    fn summary(self, at: usize) -> &'a AtomicU64 {
        self.word(lines(self.blocks) * WORDS + at)
    }

    #[inline]
    fn mask(self, block: u32) -> u64 {
        let block = block as usize;
        if block < self.blocks { self.word(block).load(Ordering::Relaxed) } else { 0 }
    }

    #[inline]
    fn put(self, block: usize, mask: u64) {
        let word = self.word(block);
        let emptiness_changes = (word.load(Ordering::Relaxed) == 0) != (mask == 0);
        word.store(mask, Ordering::Relaxed);
        if emptiness_changes {
            let summary = self.summary(block / 64);
            let bit = 1 << (block % 64);
            summary.store(summary.load(Ordering::Relaxed) ^ bit, Ordering::Relaxed);
        }
    }

    fn copy_from(self, other: Wide<'_>) {
        other.for_each_block(|block, mask| self.put(block as usize, mask));
    }

    #[inline]
    fn for_each_block(self, mut visit: impl FnMut(u32, u64)) {
        for at in 0..self.blocks.div_ceil(64) {
            let mut left = self.summary(at).load(Ordering::Relaxed);
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
        for word in self.lines.iter().flat_map(|line| &line.0) {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl WidePool {
    /// An empty bitmap with room for `block`.
    fn take(&self, block: u32, domain: &Domain) -> *mut Line {
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
    unsafe fn give(&self, wide: *mut Line) {
        // SAFETY: ours alone now.
        unsafe { Wide::new(wide) }.clear();
        self.0.lock().shelve(wide);
    }

    /// Takes back a bitmap that was just unlinked.
    fn retire(&self, wide: *mut Line, domain: &Domain) {
        let stamp = domain.stamp();
        self.0.lock().limbo.push_back((stamp, wide));
    }
}

impl Stock {
    fn shelve(&mut self, wide: *mut Line) {
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
            Some(wide) if (block as usize) < wide.blocks => wide,
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
            let new = pool.take(wide.blocks as u32 - 1, domain);
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
