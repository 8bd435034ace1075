//! From a run's first hash to the run: a hash table that readers walk without a lock.
//!
//! Sharded by key. A shard is one array of (key, pointer) places, probed in order; its writers go
//! through its mutex, which nobody holds for longer than a look-up and a store (or the copying of
//! a shard that grows). An entry never moves within an array: a shard that is too full gets a new
//! array, and the old one is left as it was for those who still read it.
//!
//! An entry that is in the table for as long as a look-up takes is found by it: the places between
//! where its key points and where it lies stay occupied, or marked as left, for as long as it is
//! there.
//!
//! Each shard keeps the runs that were unlinked from it, in order, until their grace period is
//! over, and then uses them again. Memory is bounded by the most runs that were ever in use at
//! once, and what was unlinked during the longest time anybody stayed pinned. Threads of an even and
//! an odd seat have theirs apart: two threads each of whose bookings brings a run, and takes it
//! along, then keep the lines of those runs to themselves.

use super::chain::mix;
use super::run::Run;
use super::set::WidePool;
use crate::grace::{Domain, Guard, Stamp};
use crate::prefetch::{all_for_writing, for_writing};
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::sync::{MODELLED, Mutex};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::ptr;

/// Places in a new shard, and runs made at a time.
const PLACES: usize = if MODELLED { 4 } else { 32 };
const SLAB: usize = if MODELLED { 1 } else { 16 };
/// Unlinked runs that a shard lets lie before it looks whether anybody is still reading.
const PATIENCE: usize = if MODELLED { 1 } else { 8 };
/// Times that one side takes something back before it looks after the other one as well.
const QUIET: u32 = if MODELLED { 1 } else { 16 };

#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Shard]>,
    pub(super) wides: WidePool,
}

#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    places: AtomicPtr<Places>,
    /// On lines of its own: readers need none of it.
    writer: CachePadded<Mutex<Writer>>,
}

#[derive(Debug)]
struct Places {
    /// A power of two of them.
    places: Box<[Place]>,
}

#[derive(Debug)]
struct Place {
    key: AtomicU64,
    /// Null: never used since the array was made, or freed again as the last of its chain of
    /// places. [`left`]: something was here.
    run: AtomicPtr<Run>,
}

/// What the writers of a shard keep.
#[derive(Debug)]
struct Writer {
    live: usize,
    left: usize,
    /// Runs that are not linked, by the side of the thread that unlinked them; see
    /// [`Guard::side`].
    spare: Box<[Spare; 2]>,
    /// Arrays that were replaced.
    old: Vec<(Stamp, *mut Places)>,
    /// Owns all runs ever made here.
    slabs: Vec<*mut [Run]>,
}

/// Runs that were unlinked by threads of one side.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Spare {
    free: Vec<*const Run>,
    /// Unlinked, in this order.
    limbo: VecDeque<(Stamp, *const Run)>,
    /// Length of `limbo` at which to look for a grace period next.
    patience: usize,
    /// Times that the other side has taken something back since this one unlinked anything.
    quiet: u32,
}

// SAFETY: the pointers own, or lead to what the table owns; they are touched under the mutex.
unsafe impl Send for Writer {}

/// The mark of a place whose entry was removed.
fn left() -> *mut Run {
    ptr::without_provenance_mut(align_of::<Run>())
}

impl Places {
    fn new(count: usize) -> *mut Places {
        let place = |_| Place { key: AtomicU64::new(0), run: AtomicPtr::new(ptr::null_mut()) };
        Box::into_raw(Box::new(Places { places: (0..count).map(place).collect() }))
    }

    fn clear(&self) {
        for place in &self.places {
            place.run.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// Where `key` is, with its run; or where it would be put.
    ///
    /// Only for writers: what they see does not change under them.
    fn locate(&self, key: u64, hash: u64) -> Result<(usize, *mut Run), usize> {
        let mask = self.places.len() - 1;
        let mut at = hash as usize & mask;
        let mut gap = None;
        loop {
            let place = &self.places[at];
            let run = place.run.load(Ordering::Relaxed);
            if run.is_null() {
                return Err(gap.unwrap_or(at));
            }
            if run == left() {
                gap = gap.or(Some(at));
            } else if place.key.load(Ordering::Relaxed) == key {
                return Ok((at, run));
            }
            at = (at + 1) & mask;
        }
    }
}

impl Table {
    pub(super) fn new(shards: usize) -> Table {
        assert!(shards.is_power_of_two(), "{shards} shards");
        let shard = |_| Shard {
            places: AtomicPtr::new(Places::new(PLACES)),
            writer: CachePadded::new(Mutex::new(Writer {
                live: 0,
                left: 0,
                spare: Box::default(),
                old: Vec::new(),
                slabs: Vec::new(),
            })),
        };
        Table { shards: (0..shards).map(shard).collect(), wides: WidePool::default() }
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[(hash >> 48) as usize & (self.shards.len() - 1)]
    }

    /// The run that begins with `key`. Takes no lock.
    #[inline]
    pub(super) fn get<'g>(&'g self, key: u64, _guard: &'g Guard<'_>) -> Option<&'g Run> {
        let hash = mix(key);
        // Acquire: pairs with the release in `grow`, for the array's contents.
        let places = self.shard(hash).places.load(Ordering::Acquire);
        // SAFETY: arrays are freed a grace period after they were replaced.
        let places = unsafe { &(*places).places };
        let mask = places.len() - 1;
        let mut at = hash as usize & mask;
        // Bounded: a writer keeps some places free, but a reader may be overtaken.
        for _ in 0..places.len() {
            let place = &places[at];
            // Acquire: pairs with the release of `insert`, `replace` and `grow`, for the run's
            // contents.
            let run = place.run.load(Ordering::Acquire);
            if run.is_null() {
                return None;
            }
            // Acquire: pairs with the release in `insert`. The run read above may have been there
            // before, and the key be of who came after it: then it is by the key that a caller
            // sees why the run went (`PromptIndex::follow`).
            if run != left() && place.key.load(Ordering::Acquire) == key {
                // SAFETY: runs are reused a grace period after they were unlinked.
                let run = unsafe { &*run };
                // The place may have got another key since its run was read.
                if run.body().first == key {
                    return Some(run);
                }
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Asks early for what is written when a run that begins with `key` is inserted.
    #[inline]
    pub(super) fn ask_to_insert<'g>(&'g self, key: u64, _guard: &'g Guard<'_>) {
        let hash = mix(key);
        let shard = self.shard(hash);
        all_for_writing(&shard.writer);
        // Acquire, and SAFETY: as in `get`.
        let places = unsafe { &(*shard.places.load(Ordering::Acquire)).places };
        for_writing(&places[hash as usize & (places.len() - 1)]);
    }

    /// Publishes a new run that begins with `key`, made by `fill`, whose result is returned, unless
    /// there is one: that one is returned then.
    pub(super) fn insert<'g, T>(
        &'g self,
        key: u64,
        guard: &'g Guard<'_>,
        fill: impl FnOnce(&'g Run) -> T,
    ) -> Result<T, &'g Run> {
        let hash = mix(key);
        let shard = self.shard(hash);
        let mut writer = shard.writer.lock();
        let domain = guard.domain();
        // SAFETY: the current array is replaced only under the lock.
        let mut places = unsafe { &*shard.places.load(Ordering::Relaxed) };
        let mut at = match places.locate(key, hash) {
            // SAFETY: linked, and unlinked only under this lock; after that the guard protects it.
            Ok((_, run)) => return Err(unsafe { &*run }),
            Err(at) => at,
        };
        if (writer.live + writer.left + 1) * 8 > places.places.len() * 5 {
            places = shard.grow(&mut writer, domain);
            at = match places.locate(key, hash) {
                Ok(_) => unreachable!("looked for above, under the same lock"),
                Err(at) => at,
            };
        }
        let run = writer.take(&self.wides, guard);
        // SAFETY: owned by the table; nobody else has it.
        let filled = fill(unsafe { &*run });
        let place = &places.places[at];
        if place.run.load(Ordering::Relaxed) == left() {
            writer.left -= 1;
        }
        // Release, both: publishes to `get` what was done before, and the run.
        place.key.store(key, Ordering::Release);
        place.run.store(run.cast_mut(), Ordering::Release);
        writer.live += 1;
        Ok(filled)
    }

    /// Publishes a new run, made by `fill`, whose result is returned, in the place of `old`, whose
    /// lock the caller holds and which is not obsolete.
    pub(super) fn replace<'g, T>(
        &'g self,
        old: &Run,
        guard: &'g Guard<'_>,
        fill: impl FnOnce(&'g Run) -> T,
    ) -> T {
        let key = old.body().first;
        let hash = mix(key);
        let shard = self.shard(hash);
        let mut writer = shard.writer.lock();
        let run = writer.take(&self.wides, guard);
        // SAFETY: owned by the table; nobody else has it.
        let filled = fill(unsafe { &*run });
        // SAFETY: the current array is replaced only under the lock.
        let places = unsafe { &*shard.places.load(Ordering::Relaxed) };
        match places.locate(key, hash) {
            Ok((at, found)) => {
                debug_assert!(ptr::eq(found, old), "a run that is not obsolete is linked");
                // Release: publishes the run to `get`.
                places.places[at].run.store(run.cast_mut(), Ordering::Release);
                writer.spare[guard.side()].limbo.push_back((guard.domain().stamp(), old));
            }
            Err(_) => unreachable!("a run that is not obsolete is linked"),
        }
        filled
    }

    /// Unlinks `run`, which is obsolete, unless somebody else did.
    pub(super) fn remove(&self, run: &Run, guard: &Guard<'_>) {
        let key = run.body().first;
        let hash = mix(key);
        let shard = self.shard(hash);
        let mut writer = shard.writer.lock();
        // SAFETY: the current array is replaced only under the lock.
        let places = unsafe { &(*shard.places.load(Ordering::Relaxed)) };
        let Ok((mut at, found)) = places.locate(key, hash) else { return };
        if !ptr::eq(found, run) {
            return;
        }
        let places = &places.places;
        let mask = places.len() - 1;
        // Release, here and below: who no longer finds the run sees why it went, and what took its
        // place (`PromptIndex::follow`).
        places[at].run.store(left(), Ordering::Release);
        writer.live -= 1;
        writer.left += 1;
        // At the end of a chain of places nothing lies behind: what was left there is free again.
        if places[(at + 1) & mask].run.load(Ordering::Relaxed).is_null() {
            while places[at].run.load(Ordering::Relaxed) == left() {
                places[at].run.store(ptr::null_mut(), Ordering::Release);
                writer.left -= 1;
                at = at.wrapping_sub(1) & mask;
            }
        }
        let (domain, side) = (guard.domain(), guard.side());
        let spare = &mut writer.spare[side];
        spare.limbo.push_back((domain.stamp(), run));
        spare.quiet = 0;
        if spare.sweep(&self.wides, domain) {
            writer.spare[side ^ 1].sweep_if_quiet(&self.wides, domain);
        }
    }

    /// Calls `visit` for every run, shard by shard, with no lock held; runs that come or go
    /// meanwhile may be left out.
    pub(super) fn for_each<'g>(&'g self, _guard: &'g Guard<'_>, mut visit: impl FnMut(&'g Run)) {
        for shard in &self.shards {
            // Acquire, here and below: as in `get`.
            let places = shard.places.load(Ordering::Acquire);
            // SAFETY: as in `get`.
            for place in unsafe { &(*places).places } {
                let run = place.run.load(Ordering::Acquire);
                if !run.is_null() && run != left() {
                    // SAFETY: as in `get`.
                    visit(unsafe { &*run });
                }
            }
        }
    }

    /// How many runs are linked.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.writer.lock().live).sum()
    }

    /// How many runs were ever made.
    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        self.shards.iter().map(|shard| shard.writer.lock().slabs.len() * SLAB).sum()
    }
}

impl Shard {
    /// Moves the entries to a new array: a larger one if they are many, of the same size if it was
    /// full of places that were left.
    #[cold]
    fn grow<'s>(&'s self, writer: &mut Writer, domain: &Domain) -> &'s Places {
        let old = self.places.load(Ordering::Relaxed);
        // SAFETY: the current array is replaced only under the lock.
        let from = unsafe { &*old };
        let count = (writer.live * 4).next_power_of_two().max(from.places.len());
        let mut spare = None;
        writer.old.retain(|&(stamp, places)| {
            if !domain.passed(stamp) {
                return true;
            }
            // SAFETY: a grace period after it was replaced it is ours alone.
            let array = unsafe { &(*places).places };
            if spare.is_none() && array.len() == count {
                spare = Some(places);
            } else {
                // SAFETY: as above.
                drop(unsafe { Box::from_raw(places) });
            }
            false
        });
        let new = spare.unwrap_or_else(|| Places::new(count));
        // SAFETY: not published yet.
        let to = unsafe { &*new };
        to.clear();
        for place in &from.places {
            let run = place.run.load(Ordering::Relaxed);
            if run.is_null() || run == left() {
                continue;
            }
            let key = place.key.load(Ordering::Relaxed);
            if let Err(at) = to.locate(key, mix(key)) {
                to.places[at].key.store(key, Ordering::Relaxed);
                to.places[at].run.store(run, Ordering::Relaxed);
            }
        }
        writer.left = 0;
        // Release: publishes the array to `get`.
        self.places.store(new, Ordering::Release);
        writer.old.push((domain.stamp(), old));
        to
    }
}

impl Writer {
    /// A run that nobody else has: one of this side, one of the other, or a new one.
    fn take(&mut self, wides: &WidePool, guard: &Guard<'_>) -> *const Run {
        let own = guard.side();
        for side in [own, own ^ 1] {
            let spare = &mut self.spare[side];
            spare.sweep(wides, guard.domain());
            if let Some(run) = spare.free.pop() {
                return run;
            }
        }
        let slab: Box<[Run]> = (0..SLAB).map(|_| Run::new()).collect();
        let slab = Box::into_raw(slab);
        self.slabs.push(slab);
        let first = slab.cast::<Run>().cast_const();
        let free = &mut self.spare[own].free;
        // Room for all that may come back here: giving back then allocates nothing, as a rule.
        free.reserve(self.slabs.len() * SLAB);
        // SAFETY: within the slab.
        free.extend((1..SLAB).map(|i| unsafe { first.add(i) }));
        first
    }
}

impl Spare {
    /// Takes back what threads of this side left behind when they went quiet: their prompts would
    /// be kept until the other side runs out of runs.
    fn sweep_if_quiet(&mut self, wides: &WidePool, domain: &Domain) {
        self.quiet += 1;
        if self.quiet >= QUIET {
            self.quiet = 0;
            self.sweep(wides, domain);
        }
    }

    /// Takes back what nobody can be reading any more; whether there was something.
    fn sweep(&mut self, wides: &WidePool, domain: &Domain) -> bool {
        let Some(&(oldest, _)) = self.limbo.front() else { return false };
        if !domain.has_passed(oldest) {
            if self.limbo.len() < self.patience {
                return false;
            }
            if !domain.passed(oldest) {
                self.patience = self.limbo.len() + PATIENCE;
                return false;
            }
        }
        self.patience = PATIENCE;
        while let Some(&(stamp, run)) = self.limbo.front() {
            if !domain.has_passed(stamp) {
                break;
            }
            self.limbo.pop_front();
            // SAFETY: unlinked, and a grace period has passed: ours alone.
            unsafe {
                (*run).empty();
                (*run).set.reset(wides);
            }
            self.free.push(run);
        }
        true
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for shard in &mut self.shards {
            // SAFETY: nobody shares the table any more; all of it is owned by it alone.
            drop(unsafe { Box::from_raw(shard.places.load(Ordering::Relaxed)) });
            let writer = shard.writer.get_mut();
            for &(_, places) in &writer.old {
                // SAFETY: as above.
                drop(unsafe { Box::from_raw(places) });
            }
            for &slab in &writer.slabs {
                // SAFETY: as above.
                drop(unsafe { Box::from_raw(slab) });
            }
        }
    }
}
