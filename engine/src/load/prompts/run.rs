//! A run: a stretch of a chain that is held as one by some set of ranks.
//!
//! What it stands for (`Body`) is written before it is published and never while anybody can find
//! it; the set of ranks changes under the run's lock, and only while the run is not obsolete.
//! Obsolete is for good: the run is empty or was replaced, is unlinked by whoever meets it, and
//! comes back, as another run, a grace period later.

use super::chain::common;
use super::set::RankSet;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, UnsafeCell};
use std::sync::Arc;

#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Run {
    // What every descent reads, on a line of its own; what bookings write follows.
    body: UnsafeCell<Body>,
    pub(super) set: RankSet,
    obsolete: AtomicBool,
    pub(super) lock: Mutex<()>,
}

/// Blocks `start .. start + len` of `chain`.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) first: u64,
    pub(super) last: u64,
    /// The hash before the first one; meaningless if there is none.
    before: u64,
    /// The first hash of the run that this one was cut off from, if it was; a hint for [`merging`]
    /// (which looks at what it finds).
    ///
    /// [`merging`]: super::index::PromptIndex
    pub(super) next: Option<u64>,
    pub(super) start: u32,
    pub(super) len: u32,
    chain: Option<Arc<[u64]>>,
}

// SAFETY: the body is plain data, written while one thread alone can reach the run and read-only
// while it is shared; all else is atomics and a lock.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

impl Run {
    pub(super) fn new() -> Run {
        Run {
            body: UnsafeCell::new(Body::default()),
            set: RankSet::new(),
            obsolete: AtomicBool::new(false),
            lock: Mutex::new(()),
        }
    }

    /// What it stands for.
    #[inline]
    pub(super) fn body(&self) -> &Body {
        // SAFETY: written only by `refill` and `empty`, which nobody else can overlap.
        self.body.with(|body| unsafe { &*body })
    }

    /// Whether it was emptied or replaced. `false` is sure only under the lock; but whoever has seen
    /// (by acquire) what a booking did after it entered a run in this one's place, or found this one
    /// empty, is told.
    #[inline]
    pub(super) fn is_obsolete(&self) -> bool {
        // Relaxed: under the lock it is the lock that orders. Who has seen `true` without it looks
        // under the shard's lock, which whoever replaced it has held before; or has missed what was
        // unlinked behind it, and what `Table::remove` stores there is a release.
        self.obsolete.load(Ordering::Relaxed)
    }

    /// Ends it: its set stays as it is from here on. Under its lock; and before the lock of anything
    /// that takes its place is let go of for the first time. The caller unlinks it.
    pub(super) fn retire(&self) {
        self.obsolete.store(true, Ordering::Relaxed);
    }

    /// Makes it another run.
    ///
    /// # Safety
    /// It is not published, and a grace period has passed since it was.
    pub(super) unsafe fn refill(
        &self,
        chain: &Arc<[u64]>,
        start: usize,
        end: usize,
        next: Option<u64>,
    ) {
        let body = Body {
            first: chain[start],
            last: chain[end - 1],
            before: if start == 0 { 0 } else { chain[start - 1] },
            next,
            start: start as u32,
            len: (end - start) as u32,
            chain: Some(chain.clone()),
        };
        // SAFETY: ours alone, by the contract of this function.
        self.body.with_mut(|old| unsafe { *old = body });
        self.obsolete.store(false, Ordering::Relaxed);
    }

    /// Lets go of the chain.
    ///
    /// # Safety
    /// As for `refill`.
    pub(super) unsafe fn empty(&self) {
        // SAFETY: ours alone, by the contract of this function.
        self.body.with_mut(|old| unsafe { (*old).chain = None });
    }
}

impl Body {
    /// The chain it is a stretch of.
    pub(super) fn chain(&self) -> Option<&Arc<[u64]>> {
        self.chain.as_ref()
    }

    /// Where it ends.
    pub(super) fn end(&self) -> usize {
        (self.start + self.len) as usize
    }

    /// Whether the run goes on from `upper`: its chain is that one's, further down.
    pub(super) fn continues(&self, upper: &Body) -> bool {
        let at = |pos: u32| self.chain.as_ref().and_then(|chain| chain.get(pos as usize));
        self.start as usize == upper.end()
            && at(upper.start) == Some(&upper.first)
            && at(self.start - 1) == Some(&upper.last)
    }

    fn hashes(&self) -> &[u64] {
        match &self.chain {
            Some(chain) => &chain[self.start as usize..][..self.len as usize],
            None => &[],
        }
    }

    /// Whether it can stand at `pos` of `chain`: a run found by its first hash alone is the wrong
    /// one if the host's hashes are no chain.
    #[inline]
    pub(super) fn follows(&self, chain: &[u64], pos: usize) -> bool {
        self.start as usize == pos && (pos == 0 || self.before == chain[pos - 1])
    }

    /// How many leading blocks of `rest` it covers, the first one being known to be equal.
    #[inline]
    pub(super) fn covers(&self, rest: &[u64]) -> usize {
        let len = self.len as usize;
        if rest.len() >= len && rest[len - 1] == self.last {
            return len;
        }
        common(self.hashes(), rest)
    }
}
