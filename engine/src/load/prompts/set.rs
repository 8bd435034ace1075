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
    wide: AtomicPtr<Wide>,
    count: AtomicU32,
}

/// A bitmap: one word of lanes per block, then one bit per block for "its word is not 0".
#[derive(Debug)]
pub(super) struct Wide {
    blocks: usize,
    words: Box<[AtomicU64]>,
}

/// Bitmaps not in use, by size. Taken from and given to only when a run turns wide or dies wide.
#[derive(Debug, Default)]
pub(super) struct WidePool(Mutex<Stock>);

#[derive(Debug, Default)]
struct Stock {
    /// By binary logarithm of the number of blocks.
    free: Vec<Vec<*mut Wide>>,
    /// Replaced by larger ones, maybe still read.
    limbo: VecDeque<(Stamp, *mut Wide)>,
}

// SAFETY: the pointers own what they lead to, which is made of atomics; they are touched under the
// mutex only.
unsafe impl Send for Stock {}

impl Wide {
    fn new(blocks: usize) -> *mut Wide {
        let words = blocks + blocks.div_ceil(64);
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Box::into_raw(Box::new(Wide { blocks, words }))
    }

    #[inline]
    fn mask(&self, block: u32) -> u64 {
        let block = block as usize;
        if block < self.blocks { self.words[block].load(Ordering::Relaxed) } else { 0 }
    }

    fn put(&self, block: usize, mask: u64) {
        self.words[block].store(mask, Ordering::Relaxed);
        let word = &self.words[self.blocks + block / 64];
        let (old, bit) = (word.load(Ordering::Relaxed), 1 << (block % 64));
        let new = if mask == 0 { old & !bit } else { old | bit };
        if old != new {
            word.store(new, Ordering::Relaxed);
        }
    }

    fn copy_from(&self, other: &Wide) {
        for block in 0..other.blocks {
            let mask = other.words[block].load(Ordering::Relaxed);
            if mask != 0 {
                self.put(block, mask);
            }
        }
    }
}

impl WidePool {
    /// An empty bitmap with room for `block`.
    fn take(&self, block: u32, domain: &Domain) -> *mut Wide {
        let blocks = (block as usize + 1).next_power_of_two().max(LEAST);
        let class = blocks.trailing_zeros() as usize;
        let mut stock = self.0.lock();
        stock.sweep(domain);
        let wide = stock.free.get_mut(class).and_then(Vec::pop);
        drop(stock);
        wide.unwrap_or_else(|| Wide::new(blocks))
    }

    /// Takes back a bitmap that nobody reads any more.
    ///
    /// # Safety
    /// `wide` came from `take`, is handed in once, and is reachable for no reader.
    pub(super) unsafe fn give(&self, wide: *mut Wide) {
        // SAFETY: ours alone now.
        for word in unsafe { &(*wide).words } {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
        self.0.lock().shelve(wide);
    }

    /// Takes back a bitmap that was just unlinked.
    fn retire(&self, wide: *mut Wide, domain: &Domain) {
        let stamp = domain.stamp();
        self.0.lock().limbo.push_back((stamp, wide));
    }
}

impl Stock {
    fn shelve(&mut self, wide: *mut Wide) {
        // SAFETY: owned by the stock.
        let class = unsafe { (*wide).blocks }.trailing_zeros() as usize;
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
            for word in unsafe { &(*wide).words } {
                word.store(0, Ordering::Relaxed);
            }
            self.shelve(wide);
        }
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let limbo = self.limbo.drain(..).map(|(_, wide)| wide);
        for wide in self.free.drain(..).flatten().chain(limbo) {
            // SAFETY: owned by the stock, which nobody shares any more.
            drop(unsafe { Box::from_raw(wide) });
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
    fn wide(&self) -> Option<&Wide> {
        // Acquire: pairs with the release in `widen`, for the bitmap's contents.
        // SAFETY: a bitmap is reused only a grace period after it, or its run, was unlinked; who
        // reads is pinned, who writes holds the lock of a run that is linked or its own.
        unsafe { self.wide.load(Ordering::Acquire).as_ref() }
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
            for (i, word) in wide.words[wide.blocks..].iter().enumerate() {
                let mut left = word.load(Ordering::Relaxed);
                while left != 0 {
                    let block = i as u32 * 64 + left.trailing_zeros();
                    left &= left - 1;
                    let mask = wide.mask(block);
                    if mask != 0 {
                        visit(block, mask);
                    }
                }
            }
            return;
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
    fn widen(&self, block: u32, pool: &WidePool, domain: &Domain) -> &Wide {
        let mut most = block;
        self.for_each_block(|block, _| most = most.max(block));
        let new = pool.take(most, domain);
        // SAFETY: not published yet.
        let wide = unsafe { &*new };
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
            unsafe { (*new).copy_from(wide) };
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
            drop(unsafe { Box::from_raw(wide) });
        }
    }
}
