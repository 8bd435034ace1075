//! Who holds what of a prompt, for all ranks of a pool at once.
//!
//! The chains that are held anywhere in the pool are cut into *runs* such that each run is held
//! whole, or not at all, by each rank. A run is found by its first hash, which by contract stands
//! for the whole prefix, so that no parent is needed: a descent looks up the first hash of a
//! chain, matches the run, and goes on where the match ends.
//!
//! Who holds a block holds all blocks before it, and so it is in the index at every moment: a chain
//! is entered from its beginning on, and let go of from its end.
//!
//! Who may write what: a rank's bits change under that rank's own lock, held by the caller over
//! [`PromptIndex::gain`] and [`PromptIndex::lose`]; a run's set, and its end, under the run's
//! lock. Readers take none. Locks are taken in the order rank, run, shard; a second run's only if
//! it is free, or if nobody can have found it yet. A run that has to be cut is replaced: first its
//! lower part is published, then the upper part takes its place, so that who passes from one to the
//! other never finds less than the rank holds. An empty run is marked, then unlinked; who meets a
//! marked one unlinks it as well.
//!
//! When a rank lets go of a run, and what is left is held by the very ranks that hold the run's
//! lower part as well, the two are made one again: cuts do not outlive the bookings that made them,
//! unless somebody has the lower part's lock just then; the next one to leave makes up for it.
//! The whole is published in the upper part's place, then the lower part is unlinked; who has read
//! the upper part and misses the lower one looks again.
//!
//! What takes the place of other runs, the parts of a cut and the whole of a merge, is published
//! with its lock taken, which is let go of when they are marked. Until then it is found, and stays
//! as it is. Otherwise a whole might be cut where its old lower part, not marked yet, still lies in
//! the table, and that part be taken for one that is no chain; a lower part might be made one with
//! what follows, which would be missed by who has read the run that was cut and finds no mark; and
//! a rank might enter a part and not be looked for, because the run before it passes for current.
//!
//! A rank that gains a tail under a prefix it holds touches the tail only, never the prefix's run:
//! requests with one system prompt share no line that is written.
//!
//! # Consistency
//!
//! At rest the index says exactly what the ranks hold. A descent that runs beside bookings finds,
//! for each run, bits as they were at some moment of the descent. It proposes; the rank's own
//! record, under its lock, decides.
//!
//! Hashes that are no chains (`[1, 2]` beside `[9, 2]`) may make the index know less than a rank
//! holds. Nothing else comes to harm: `gain` and `lose` return how many blocks they entered and
//! removed, the caller keeps the balance, and clears what is left over.

use super::run::Run;
use super::table::Table;
use crate::grace::{Domain, Guard};
use crate::prefetch::for_reading;
use crate::sync::MODELLED;
use smallvec::SmallVec;
use std::ptr;
use std::sync::Arc;

/// How often a descent takes up a trail that was lost because runs were made one meanwhile. After
/// that it knows less than the ranks hold.
const TRIES: u32 = 4;
/// Runs that a rank's part of a chain is made of, as a rule.
const USUAL: usize = 8;
const SHARDS: usize = if MODELLED { 1 } else { 64 };

/// The pool-wide index of prompt blocks held.
#[derive(Debug)]
pub(crate) struct PromptIndex {
    table: Table,
    /// Whose guards protect it; compared, never looked into.
    domain: *const Domain,
}

// SAFETY: the pointer is only compared; the rest is `Send` and `Sync`.
unsafe impl Send for PromptIndex {}
// SAFETY: as above.
unsafe impl Sync for PromptIndex {}

/// A run that a descent came upon, for as long as the descent's guard lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunView<'g> {
    run: &'g Run,
}

impl RunView<'_> {
    /// Whether it has not been emptied or replaced. Asked, like [`mask`](Self::mask), after the
    /// version that the caller goes by was acquired: what the mask says is then all that was entered
    /// and removed before whoever moved that version did so.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        !self.run.is_obsolete()
    }

    /// Asks early for who holds the run, to be looked at.
    #[inline(always)]
    pub(crate) fn ask(&self) {
        for_reading(&self.run.set);
    }

    /// Asks early for the ranks that hold it, in the first so many blocks.
    #[inline]
    pub(crate) fn ask_for_blocks(&self, blocks: usize) {
        self.run.set.ask(blocks);
    }

    /// Asks early for what is written when a rank of `block` comes to hold it.
    #[inline]
    pub(crate) fn ask_to_join(&self, block: u32) {
        self.run.set.ask_to_insert(block);
    }

    /// The ranks of one block of 64 that hold all of the run, as lanes.
    #[inline]
    pub(crate) fn mask(&self, block: u32) -> u64 {
        self.run.set.mask(block)
    }

    /// How many ranks hold all of the run.
    #[inline]
    pub(crate) fn ranks(&self) -> u32 {
        self.run.set.count()
    }

    /// Of the 64 blocks from `64 * part` on, those in which a rank holds the run. (At times also one
    /// in which no rank does.)
    #[inline]
    pub(crate) fn blocks(&self, part: u32) -> u64 {
        self.run.set.blocks(part)
    }
}

/// What became of an attempt to enter a run.
enum Outcome {
    /// This many blocks of the chain are dealt with, and the rank's bit changed in so many of them.
    Done { passed: usize, changed: usize },
    /// The run was replaced or has died meanwhile: look again.
    Gone,
    /// The hashes are no chain here.
    Strange,
}

/// What happens to a slot in a part of a run that is cut.
#[derive(Clone, Copy)]
enum Change {
    None,
    Add(u32),
    Remove(u32),
}

impl PromptIndex {
    /// An empty index, to be used with guards of `domain`.
    pub(crate) fn new(domain: &Domain) -> PromptIndex {
        PromptIndex { table: Table::new(SHARDS), domain }
    }

    fn check(&self, guard: &Guard<'_>) {
        assert!(ptr::eq(self.domain, guard.domain()), "a guard of another domain protects nothing");
    }

    /// Follows `chain` through the runs held anywhere, and shows each with the blocks of `chain`
    /// that it covers: first and behind the last. Stretches are shown in order, without a gap, from
    /// block 0. A rank in the run holds all of the stretch (the last run shown may go on
    /// differently behind it). Returns how many blocks were found.
    ///
    /// Takes no lock and allocates nothing. `O(runs passed)` look-ups, and a binary search where
    /// the chain leaves a run in its middle.
    pub(crate) fn descend<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        chain: &[u64],
        mut show: impl FnMut(RunView<'g>, u32, u32),
    ) -> u32 {
        self.check(guard);
        self.follow(guard, chain, TRIES, |run, from, to| {
            show(RunView { run }, from as u32, to as u32);
            true
        }) as u32
    }

    /// Asks early for what is written when a run that begins with `first`, which was not found, is
    /// entered.
    #[inline]
    pub(crate) fn ask_to_enter(&self, guard: &Guard<'_>, first: u64) {
        self.table.ask_to_insert(first, guard);
    }

    /// Follows `chain` from run to run, until `step` says no or nothing is found; gives how many
    /// blocks were found. Stretches have no gaps; one may begin within its run.
    ///
    /// Where the trail ends behind a run that is obsolete by now, that run may have been made one
    /// with what came after it: the trail is taken up again, up to `tries` times.
    fn follow<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        chain: &[u64],
        mut tries: u32,
        mut step: impl FnMut(&'g Run, usize, usize) -> bool,
    ) -> usize {
        // How far the chain was found, and where the next run is looked for: behind, when the trail
        // is taken up again.
        let (mut pos, mut at) = (0, 0);
        let mut last: Option<&Run> = None;
        while pos < chain.len() {
            let found = self.table.get(chain[at], guard);
            match found.filter(|run| run.body().follows(chain, at)) {
                Some(run) => {
                    at += run.body().covers(&chain[at..]);
                    if at > pos {
                        if !step(run, pos, at) {
                            return at;
                        }
                        pos = at;
                    }
                    last = Some(run);
                }
                None if tries > 0 && last.is_some_and(Run::is_obsolete) => {
                    tries -= 1;
                    at = 0;
                    last = None;
                }
                None => break,
            }
        }
        pos
    }

    /// Enters that the rank at `slot` now holds blocks `from .. to` of `chain`, of which it held
    /// all before `from` and none from there on. Under the rank's lock. Returns how many blocks
    /// were entered: `to - from` unless the hashes are no chain.
    pub(crate) fn gain(
        &self,
        guard: &Guard<'_>,
        slot: u32,
        chain: &Arc<[u64]>,
        from: u32,
        to: u32,
    ) -> u32 {
        self.check(guard);
        let (mut pos, end) = (from as usize, to as usize);
        let mut entered = 0;
        while pos < end {
            let Some(run) = self.table.get(chain[pos], guard) else {
                let fresh = self.table.insert(chain[pos], guard, |run| {
                    // SAFETY: the table hands out runs that nobody else has.
                    unsafe { run.refill(chain, pos, end, None) };
                    run.set.insert(slot, &self.table.wides, guard.domain());
                });
                if fresh.is_ok() {
                    entered += end - pos;
                    break;
                }
                continue;
            };
            match self.join(guard, run, slot, chain, pos, end) {
                Outcome::Done { passed, changed } => {
                    pos += passed;
                    entered += changed;
                }
                Outcome::Gone => {}
                Outcome::Strange => break,
            }
        }
        entered as u32
    }

    /// Adds a slot to a run, or to as much of it as the chain covers.
    fn join(
        &self,
        guard: &Guard<'_>,
        run: &Run,
        slot: u32,
        chain: &[u64],
        pos: usize,
        end: usize,
    ) -> Outcome {
        let body = run.body();
        if !body.follows(chain, pos) {
            return if self.helped(guard, run) { Outcome::Gone } else { Outcome::Strange };
        }
        let covered = body.covers(&chain[pos..end]);
        let lock = run.lock.lock();
        if run.is_obsolete() {
            drop(lock);
            self.table.remove(run, guard);
            return Outcome::Gone;
        }
        let fresh = if covered == body.len as usize {
            run.set.insert(slot, &self.table.wides, guard.domain())
        } else {
            let fresh = !run.set.contains(slot);
            self.cut(guard, run, covered, Change::Add(slot), Change::None);
            fresh
        };
        let changed = if fresh { covered } else { 0 };
        Outcome::Done { passed: covered, changed }
    }

    /// Enters that the rank at `slot` no longer holds blocks `from .. to` of `chain`, of which it
    /// held all before `to` and, on this chain, none behind. Under the rank's lock. Returns how
    /// many blocks were removed: `to - from` unless the hashes are no chain.
    pub(crate) fn lose(
        &self,
        guard: &Guard<'_>,
        slot: u32,
        chain: &Arc<[u64]>,
        from: u32,
        to: u32,
    ) -> u32 {
        self.check(guard);
        let (start, mut end) = (from as usize, to as usize);
        let mut removed = 0;
        // From the end on, so that whoever holds a block holds what is before it meanwhile as well:
        // who enters behind a run that is gone already would find what follows it.
        while end > start {
            let mut trail = self.trail(guard, chain, start, end);
            end = loop {
                let Some(run) = trail.pop() else { break start };
                match self.part(guard, run, slot, chain, start, end) {
                    Some(changed) => removed += changed,
                    None => break end,
                }
                end = run.body().start as usize;
            };
        }
        removed as u32
    }

    /// The runs that cover blocks `start .. end` of `chain`, which one rank holds. Of hashes that are
    /// no chain, those that are found hash by hash.
    fn trail<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        chain: &[u64],
        start: usize,
        end: usize,
    ) -> SmallVec<[&'g Run; USUAL]> {
        let mut trail: SmallVec<[&'g Run; USUAL]> = SmallVec::new();
        let mut pos = start;
        while pos < end {
            let found = self.table.get(chain[pos], guard);
            let found = match found.filter(|run| run.body().follows(chain, pos)) {
                // It goes on across `start`, because the rank holds what is before as well.
                None if pos == start && pos > 0 => self.covering(guard, chain, pos),
                found => found,
            };
            let covered = found.map_or(0, |run| {
                let at = run.body().start as usize;
                at + run.body().covers(&chain[at..end])
            });
            if let Some(run) = found.filter(|_| covered > pos) {
                trail.push(run);
                pos = covered;
            } else if trail.last().is_some_and(|run| self.helped(guard, run)) {
                // It may have been made one with what came after it.
                trail.clear();
                pos = start;
            } else {
                pos += 1;
            }
        }
        trail
    }

    /// Takes a slot out of a run, from `start` on if the run begins before; how many blocks that
    /// were. `None`: it was replaced or has died meanwhile.
    fn part(
        &self,
        guard: &Guard<'_>,
        run: &Run,
        slot: u32,
        chain: &[u64],
        start: usize,
        end: usize,
    ) -> Option<usize> {
        let body = run.body();
        let at = body.start as usize;
        let (len, kept) = (body.len as usize, start.saturating_sub(at));
        let covered = body.covers(&chain[at..end]);
        let lock = run.lock.lock();
        if run.is_obsolete() {
            drop(lock);
            self.table.remove(run, guard);
            return None;
        }
        if covered < len || !run.set.contains(slot) {
            return Some(0);
        }
        if kept > 0 {
            self.cut(guard, run, kept, Change::None, Change::Remove(slot));
            drop(lock);
            // What is left of the lower part may now be held by the ranks that hold what follows.
            self.merge_at(guard, chain[start]);
        } else {
            run.set.remove(slot);
            if run.set.count() == 0 {
                run.retire();
                drop(lock);
                self.table.remove(run, guard);
            } else {
                self.merge(guard, run);
            }
        }
        Some(len - kept)
    }

    /// The run that covers block `pos` of `chain` but begins before it.
    fn covering<'g>(&'g self, guard: &'g Guard<'_>, chain: &[u64], pos: usize) -> Option<&'g Run> {
        let mut covering = None;
        self.follow(guard, chain, u32::MAX, |run, _, end| {
            if end > pos {
                covering = Some(run);
            }
            end <= pos
        });
        covering
    }

    /// Cuts a run behind its first `upper` blocks. The caller holds its lock and has seen that it
    /// is not obsolete.
    fn cut<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        run: &Run,
        upper: usize,
        above: Change,
        below: Change,
    ) {
        let body = run.body();
        let Some(chain) = body.chain() else { return };
        let (start, len) = (body.start as usize, body.len as usize);
        let middle = start + upper;
        let fill = |new: &'g Run, from: usize, to: usize, next: Option<u64>, change: Change| {
            // SAFETY: the table hands out runs that nobody else has.
            unsafe { new.refill(chain, from, to, next) };
            new.set.copy_from(&run.set, &self.table.wides, guard.domain());
            match change {
                Change::None => {}
                Change::Add(slot) => {
                    new.set.insert(slot, &self.table.wides, guard.domain());
                }
                Change::Remove(slot) => {
                    new.set.remove(slot);
                }
            }
            // Kept until the run is marked, as the head of this file says.
            new.lock.lock()
        };
        // What nobody holds any more is not published.
        let nobody = matches!(below, Change::Remove(slot)
            if run.set.count() == 1 && run.set.contains(slot));
        let mut lower_lock = None;
        while !nobody && lower_lock.is_none() {
            // The lower part first: whoever finds the upper part finds the lower one as well. If
            // another run begins with its first hash, the hashes are no chain, and the lower part
            // is forgotten here.
            match self.table.insert(chain[middle], guard, |new| {
                fill(new, middle, start + len, body.next, below)
            }) {
                Ok(lock) => lower_lock = Some(lock),
                Err(other) if self.helped(guard, other) => {}
                Err(_) => break,
            }
        }
        let next = (!nobody).then(|| chain[middle]);
        let upper_lock =
            self.table.replace(run, guard, |new| fill(new, start, middle, next, above));
        run.retire();
        drop((upper_lock, lower_lock));
    }

    /// Makes the run that begins with `first` one with its lower part if the same ranks hold both.
    fn merge_at(&self, guard: &Guard<'_>, first: u64) {
        let Some(upper) = self.table.get(first, guard) else { return };
        let lower = upper.body().next.and_then(|next| self.table.get(next, guard));
        if lower.is_none_or(|lower| lower.set.count() != upper.set.count()) {
            return;
        }
        let _lock = upper.lock.lock();
        if !upper.is_obsolete() {
            self.merge(guard, upper);
        }
    }

    /// Makes a run one with its lower part if the same ranks hold both. The caller holds its lock
    /// and has seen that it is not obsolete.
    fn merge(&self, guard: &Guard<'_>, upper: &Run) {
        let body = upper.body();
        let Some(lower) = body.next.and_then(|next| self.table.get(next, guard)) else { return };
        if lower.set.count() != upper.set.count() || !lower.body().continues(body) {
            return;
        }
        // Only if it is free: what is a lower part here might be an upper one elsewhere, if the
        // hashes are no chains.
        let Some(lock) = lower.lock.try_lock() else { return };
        if lower.is_obsolete() || !lower.set.same(&upper.set) {
            return;
        }
        let Some(chain) = lower.body().chain() else { return };
        let (start, end) = (body.start as usize, lower.body().end());
        let whole_lock = self.table.replace(upper, guard, |new| {
            // SAFETY: the table hands out runs that nobody else has.
            unsafe { new.refill(chain, start, end, lower.body().next) };
            new.set.copy_from(&upper.set, &self.table.wides, guard.domain());
            new.lock.lock()
        });
        upper.retire();
        lower.retire();
        drop(whole_lock);
        drop(lock);
        self.table.remove(lower, guard);
    }

    /// Unlinks a run if it is obsolete; whether it is.
    fn helped(&self, guard: &Guard<'_>, run: &Run) -> bool {
        let obsolete = run.is_obsolete();
        if obsolete {
            self.table.remove(run, guard);
        }
        obsolete
    }

    /// Removes every trace of `slot`: for what hashes that are no chains left behind. The caller
    /// sees to it that nobody enters the slot meanwhile. Looks at every run, more than once if
    /// there are traces; returns how many runs had one.
    pub(crate) fn scrub(&self, guard: &Guard<'_>, slot: u32) -> u32 {
        self.check(guard);
        let mut cleared = 0;
        loop {
            let before = cleared;
            self.table.for_each(guard, |run| {
                if !run.set.contains(slot) {
                    return;
                }
                let lock = run.lock.lock();
                // One that is obsolete by now counts as well: what took its place is looked at in
                // another round.
                cleared += 1;
                if run.is_obsolete() {
                    drop(lock);
                    self.table.remove(run, guard);
                    return;
                }
                run.set.remove(slot);
                if run.set.count() == 0 {
                    run.retire();
                    drop(lock);
                    self.table.remove(run, guard);
                }
            });
            if cleared == before {
                return cleared;
            }
        }
    }

    /// How many runs there are.
    #[cfg(test)]
    pub(crate) fn runs(&self) -> usize {
        self.table.len()
    }

    /// How many runs were ever made.
    #[cfg(test)]
    pub(crate) fn runs_made(&self) -> usize {
        self.table.made()
    }
}
