//! A prompt index in a world of at most three threads.

use super::grace::{Domain, Guard, Seat};
use super::load::prompts::index::{PromptIndex, RunView};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, world};

pub(crate) struct Prompts {
    pub(crate) index: PromptIndex,
    seats: [*const Seat; 3],
    domain: Box<Domain>,
}

// SAFETY: the pointers lead to seats of `domain`, which live as long as it does, and a seat can be
// shared between threads.
unsafe impl Send for Prompts {}
// SAFETY: as above.
unsafe impl Sync for Prompts {}

impl Prompts {
    pub(crate) fn new() -> Prompts {
        let domain = Box::new(Domain::new());
        let seats = [(); 3].map(|()| domain.seat() as *const Seat);
        Prompts { index: PromptIndex::new(&domain), seats, domain }
    }

    /// Pins the thread `at` of the model.
    pub(crate) fn pin(&self, at: usize) -> Guard<'_> {
        // SAFETY: it is a seat of this domain.
        self.domain.pin(unsafe { &*self.seats[at] })
    }

    /// Moves the epoch on as far as it can be.
    pub(crate) fn move_epoch(&self) -> bool {
        self.domain.passed(self.domain.stamp())
    }

    /// The rank at `slot` now holds `from .. to` of `chain` as well. Under its lock: in the models
    /// that call this each rank is one thread's.
    pub(crate) fn gain(&self, at: usize, slot: u32, chain: &Arc<[u64]>, from: u32, to: u32) {
        let entered = self.index.gain(&self.pin(at), slot, chain, from, to);
        assert_eq!(entered, to - from, "a chain is entered whole");
    }

    /// The rank at `slot` holds `from .. to` of `chain` no longer.
    pub(crate) fn lose(&self, at: usize, slot: u32, chain: &Arc<[u64]>, from: u32, to: u32) {
        let removed = self.index.lose(&self.pin(at), slot, chain, from, to);
        assert_eq!(removed, to - from, "a chain is removed whole");
    }

    /// The rank at `slot` held the first `from` blocks of `chain`, and holds the first `to` now.
    pub(crate) fn change(&self, at: usize, slot: u32, chain: &[u64], from: u32, to: u32) {
        let part: Arc<[u64]> = chain[..from.max(to) as usize].into();
        match from < to {
            true => self.gain(at, slot, &part, from, to),
            false => self.lose(at, slot, &part, to, from),
        }
    }

    /// How many blocks of `chain` the rank at `slot` holds by a descent, and in how many stretches
    /// they were found. As a selection does it: the trail first, and then who is in its runs.
    pub(crate) fn find(&self, guard: &Guard<'_>, slot: u32, chain: &[u64]) -> (u32, usize) {
        let mut trail = Vec::new();
        self.index.descend(guard, chain, |run, _, to| trail.push((run, to)));
        let parts = trail.len();
        let found = trail.iter().take_while(|(run, _)| has(run, slot)).last();
        (found.map_or(0, |&(_, to)| to), parts)
    }

    /// Of each (slot, blocks of `chain`), when all is done: the rank is found to hold so many.
    pub(crate) fn assert_at_rest(&self, chain: &[u64], ranks: &[(u32, u32)]) {
        for &(slot, held) in ranks {
            let found = self.at_rest(slot, chain);
            assert!(found >= held, "at rest the index knows less than a rank holds: {slot}");
            assert!(found <= held, "at rest the index says more than a rank holds: {slot}");
        }
    }

    /// When all of `ranks` have let go of all they held of `chains`: nothing is there any more, be
    /// it found from the beginning or not.
    pub(crate) fn assert_nothing_left(&self, chains: &[&[u64]], ranks: u32) {
        let (guard, world) = (self.pin(0), world());
        for chain in chains {
            let parts = self.find(&guard, 0, chain).1;
            assert_eq!(parts, 0, "a run is left that nobody holds: in world {world}");
        }
        for slot in 0..ranks {
            let traces = self.index.scrub(&guard, slot);
            assert_eq!(
                traces, 0,
                "a run is left that nobody holds: {slot} is in it, in world {world}"
            );
        }
    }

    /// How many blocks of `chain` the rank at `slot` holds, when all is done.
    pub(crate) fn at_rest(&self, slot: u32, chain: &[u64]) -> u32 {
        self.find(&self.pin(0), slot, chain).0
    }
}

/// Prompts, and the version that who changes them moves afterwards, as a booking and a free do.
pub(crate) struct Versioned {
    pub(crate) prompts: Prompts,
    version: AtomicU64,
}

impl Versioned {
    pub(crate) fn new() -> Versioned {
        Versioned { prompts: Prompts::new(), version: AtomicU64::new(0) }
    }

    /// The runs of a chain, to be looked at later.
    pub(crate) fn keep<'g>(&'g self, guard: &'g Guard<'_>, chain: &[u64]) -> Vec<RunView<'g>> {
        let mut kept = Vec::new();
        self.prompts.index.descend(guard, chain, |run, _, _| kept.push(run));
        kept
    }

    /// As `Versions::bump`.
    pub(crate) fn bump(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Looks at runs that were kept from before, with the version acquired first: `before` it moved;
    /// after that `current` is told of those that are current whether rank 2 holds them.
    pub(crate) fn look(&self, kept: &[RunView<'_>], before: &'static str, current: impl Fn(bool)) {
        let version = self.version.load(Ordering::Acquire);
        for run in kept {
            let found = has(run, 2);
            if version == 0 {
                reached(before);
            } else if run.is_current() {
                current(found);
            } else {
                reached("no longer current");
            }
        }
    }
}

/// Whether the rank at `slot` holds the run.
pub(crate) fn has(run: &RunView<'_>, slot: u32) -> bool {
    run.mask(slot / 64) >> (slot % 64) & 1 != 0
}
