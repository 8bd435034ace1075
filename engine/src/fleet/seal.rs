//! What was found in a block, kept for as long as nothing changes there: the versions of blocks,
//! and results sealed for one version.
//!
//! | who | does | pairs with |
//! |---|---|---|
//! | writer of a block | changes rows and columns, *then* [`Versions::bump`] | [`Versions::of`], [`Sealed::read_sum`] |
//! | looker, one block | version, then rows and columns; later [`Sealed::put`] with that version | `bump` |
//! | looker, all blocks at once | [`Sealed::read_sum`]: the seal, *then* the versions | `put` |
//!
//! A result is believed only while its version is the current one, so it says what the rows said
//! at some moment after the looker asked. (Once believed, it may be looked into further by that call
//! without asking again.) Versions only grow. A flag in their place would be cleared
//! before somebody's change or after it, and stay wrong for ever.
//!
//! Results are published under a sequence lock that nobody waits for: who finds [`Turn`] taken uses
//! its own result and leaves the publishing to others. A seal is the version that its words are of,
//! made odd while they are written, so a reader that sees the same seal before and after has seen
//! the words of one result.
//!
//! One word of a result may be taken without that second look: what can stand in its place is the
//! same word of a *later* result, which is as true. Only where a [`Shelf`] is given to another
//! subject is the second look needed for one word as well.
//!
//! What has changed little need not be found anew: a version is one word that counts the changes and
//! names the lanes of the last few ([`changed`]). They lie in the word itself, because a looker on
//! another core gets both for one cache line on its way; and so no change can be counted and not
//! named, or be named in the place of another.
//!
//! Sums: the versions of a span of blocks only grow, so if their sum is the one that was sealed,
//! each of them is what it was, *provided* they are read after the seal: what the sealer had read
//! then happened before, and no version can be older than it was there.
#![forbid(unsafe_code)]

use crate::sync::MODELLED;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Blocks whose versions lie together and whose results are also kept as one.
pub(crate) const SPAN: usize = if MODELLED { 2 } else { 16 };

/// Bits that name a lane.
const LANE_BITS: u32 = 6;

/// Changes of a block whose lanes its version names. Four are a booking and its end of one thread,
/// and one of another, since either looked: with three, every fifth pick beside another thread's
/// walked a block.
const NAMED: u32 = if MODELLED { 1 } else { 4 };

/// Where a version's count of changes begins. Below it are the lanes, the latest lowest, and at the
/// very bottom a bit that is never set: it makes a seal odd.
///
/// The count has 39 bits and goes round. A result could be taken for a current or a later one only
/// if its block (its span, where sums are compared) had changed 2^39 times since, or fewer by no
/// more than [`AHEAD`] (at ten thousand a second: in the last five days of a year and three
/// quarters), and nobody had found it out of date all that time.
const COUNT_AT: u32 = 1 + NAMED * LANE_BITS;

/// Changes that may come between reading a version and finding a result that is of a later one, and
/// many times more. What seems to be ahead of a version by more than that lies behind it: the count
/// has gone round.
const AHEAD: u64 = 1 << 32;

/// The seal of what was never put.
const NOTHING: u64 = 1;

/// The versions of a span of blocks.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Versions {
    /// Dense: a pick reads them all, a change writes one.
    now: [AtomicU64; SPAN],
}

/// The version after `version` and a change in a lane.
#[inline(always)]
fn after(version: u64, lane: usize) -> u64 {
    let count = (version >> COUNT_AT).wrapping_add(1) << COUNT_AT;
    let lanes = (version << LANE_BITS) | (lane as u64) << 1;
    count | lanes & ((1 << COUNT_AT) - 2)
}

/// Whether `version` is `other` or comes after it; both may be sums of versions.
#[inline(always)]
pub(crate) fn is_as_late(version: u64, other: u64) -> bool {
    version.wrapping_sub(other) < AHEAD << COUNT_AT
}

/// The lanes of a block in which something has changed after version `from` and up to `to`;
/// `None`: `to` does not name that many, or comes before.
#[inline(always)]
pub(crate) fn changed(from: u64, to: u64) -> Option<u64> {
    // Both counts at the top of the word, so that the difference goes round with them.
    let count = |version: u64| version >> COUNT_AT << COUNT_AT;
    let times = count(to).wrapping_sub(count(from)) >> COUNT_AT;
    if times > u64::from(NAMED) {
        return None;
    }
    Some((0..times).fold(0, |set, nth| set | 1 << lane(to, nth as u32)))
}

/// The lane that changed last.
#[inline(always)]
pub(crate) fn last_lane(version: u64) -> usize {
    lane(version, 0)
}

/// The lane of the last change but `nth`.
#[inline(always)]
fn lane(version: u64, nth: u32) -> usize {
    (version >> (1 + nth * LANE_BITS)) as usize % (1 << LANE_BITS)
}

impl Versions {
    pub(crate) fn new() -> Versions {
        Versions { now: std::array::from_fn(|_| AtomicU64::new(after(0, 0))) }
    }

    /// Says that something in a lane of a block has changed. Comes after the change itself.
    #[inline(always)]
    pub(crate) fn bump(&self, at: usize, lane: usize) {
        let now = &self.now[at];
        let mut version = now.load(Ordering::Relaxed);
        // Release: who reads the new version (`of`, `sum`) sees what was changed before it.
        while let Err(other) = now.compare_exchange(
            version,
            after(version, lane),
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            version = other;
        }
    }

    /// Where a block's version lies, for who is going to move it.
    #[inline(always)]
    pub(crate) fn place(&self, at: usize) -> &AtomicU64 {
        &self.now[at]
    }

    /// The version of one block. What is looked at afterwards is at least as new.
    #[inline(always)]
    pub(crate) fn of(&self, at: usize) -> u64 {
        // Acquire: pairs with `bump`.
        self.now[at].load(Ordering::Acquire)
    }

    /// The sum of all versions. As each only grows, equal sums are of equal versions.
    #[inline(always)]
    fn sum(&self) -> u64 {
        // Acquire: as in `of`.
        self.now.iter().fold(0, |sum, one| sum.wrapping_add(one.load(Ordering::Acquire)))
    }
}

/// The right to publish, held for a few stores.
#[derive(Debug)]
pub(crate) struct Turns(AtomicBool);

/// See [`Turns`].
#[must_use]
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns(AtomicBool::new(false))
    }

    /// Takes the turn; `None`: somebody else has it, and nobody waits for it.
    #[inline]
    pub(crate) fn take(&self) -> Option<Turn<'_>> {
        // Acquire: pairs with the Release of the drop: seals are seen as they were left.
        let taken = self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // A turn is made only if it was taken: dropping it gives it up.
        taken.is_ok().then(|| Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of `take`.
        self.0.0.store(false, Ordering::Release);
    }
}

/// `N` words that were found at one version of a block, or at one sum of versions.
#[derive(Debug)]
pub(crate) struct Sealed<const N: usize> {
    /// The version; odd while the words are being written, or if there are none yet.
    seal: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Default for Sealed<N> {
    fn default() -> Self {
        Sealed { seal: AtomicU64::new(NOTHING), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<const N: usize> Sealed<N> {
    /// Whether the words are of `version`, or by now of a later one.
    #[inline(always)]
    pub(crate) fn is_of(&self, version: u64) -> bool {
        // Acquire: pairs with the Release of `put`, for the words.
        self.seal.load(Ordering::Acquire) == version
    }

    /// One word, after [`is_of`](Sealed::is_of).
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// All words of `version`, of one result.
    #[inline(always)]
    pub(crate) fn read(&self, version: u64) -> Option<[u64; N]> {
        if self.is_of(version) { self.unmixed(version) } else { None }
    }

    /// Some words of `version`, of one result.
    #[inline(always)]
    pub(crate) fn read_some<const M: usize>(
        &self,
        version: u64,
        some: [usize; M],
    ) -> Option<[u64; M]> {
        if !self.is_of(version) {
            return None;
        }
        let words = some.map(|at| self.word(at));
        self.stands(version).then_some(words)
    }

    /// All words of the versions as they are now, of one result, and the sum of those versions.
    #[inline(always)]
    pub(crate) fn read_sum(&self, versions: &Versions) -> Option<(u64, [u64; N])> {
        // Acquire, and before the versions: pairs with the Release of `put`, so that each version
        // is at least what it was for whoever sealed the sum.
        let seal = self.seal.load(Ordering::Acquire);
        let sum = versions.sum();
        if seal == sum { Some((sum, self.unmixed(sum)?)) } else { None }
    }

    /// What was put last, whatever has changed since, and for which version.
    #[inline]
    pub(crate) fn latest(&self) -> Option<(u64, [u64; N])> {
        // Acquire: as in `is_of`.
        let seal = self.seal.load(Ordering::Acquire);
        if seal & 1 == 1 { None } else { Some((seal, self.unmixed(seal)?)) }
    }

    /// The words, if the seal is still that of `version` once they were read.
    #[inline(always)]
    fn unmixed(&self, version: u64) -> Option<[u64; N]> {
        let words = std::array::from_fn(|at| self.word(at));
        self.stands(version).then_some(words)
    }

    /// Whether words that were read before are all of `version`.
    #[inline(always)]
    fn stands(&self, version: u64) -> bool {
        // Acquire: pairs with the Release fence of `put`: if a word is of a later result, the seal
        // is seen to have moved.
        fence(Ordering::Acquire);
        self.seal.load(Ordering::Relaxed) == version
    }

    /// Publishes what was found at `version`, unless what stands there is as new. Whether it did.
    #[inline]
    pub(crate) fn put(&self, _turn: &Turn<'_>, version: u64, words: [u64; N]) -> bool {
        let old = self.seal.load(Ordering::Relaxed);
        if old != NOTHING && is_as_late(old, version) {
            return false;
        }
        self.seal.store(version | 1, Ordering::Relaxed);
        // Release: pairs with the Acquire fence of `read`.
        fence(Ordering::Release);
        for (to, word) in self.words.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        // Release: publishes the words.
        self.seal.store(version, Ordering::Release);
        true
    }

    /// Makes it empty. The caller sees to it that readers notice.
    fn wipe(&self) {
        self.seal.store(NOTHING, Ordering::Relaxed);
    }
}

/// Results about one of many subjects: a span's, and one per block. It is given to another subject
/// when that one is asked for.
#[derive(Debug)]
pub(crate) struct Shelf {
    /// Odd while the subject changes.
    edition: AtomicU64,
    subject: AtomicU64,
    pub(crate) whole: Sealed<3>,
    pub(crate) each: [Sealed<3>; SPAN],
}

impl Default for Shelf {
    fn default() -> Self {
        Shelf {
            edition: AtomicU64::new(0),
            subject: AtomicU64::new(0),
            whole: Sealed::default(),
            each: Default::default(),
        }
    }
}

impl Shelf {
    /// The edition that is about `subject`; what is read is to be believed only if
    /// [`still`](Shelf::still) says so afterwards.
    #[inline]
    pub(crate) fn about(&self, subject: u64) -> Option<u64> {
        // Acquire: pairs with the Release of `give`.
        let edition = self.edition.load(Ordering::Acquire);
        (edition != 0 && edition & 1 == 0 && self.subject.load(Ordering::Relaxed) == subject)
            .then_some(edition)
    }

    /// Whether what was read since [`about`](Shelf::about) is of that edition.
    #[inline]
    pub(crate) fn still(&self, edition: u64) -> bool {
        // Acquire: pairs with the Release fences of `give` and of what is put after it.
        fence(Ordering::Acquire);
        self.edition.load(Ordering::Relaxed) == edition
    }

    /// Whether it was never given to any subject.
    pub(crate) fn is_unused(&self) -> bool {
        self.edition.load(Ordering::Relaxed) == 0
    }

    /// Gives the shelf to another subject, empty. Returns the new edition.
    pub(crate) fn give(&self, _turn: &Turn<'_>, subject: u64) -> u64 {
        let edition = self.edition.load(Ordering::Relaxed);
        self.edition.store(edition + 1, Ordering::Relaxed);
        // Release: pairs with the Acquire fence of `still`.
        fence(Ordering::Release);
        self.subject.store(subject, Ordering::Relaxed);
        self.whole.wipe();
        self.each.iter().for_each(Sealed::wipe);
        // Release: publishes the subject, and that there is nothing about it yet.
        self.edition.store(edition + 2, Ordering::Release);
        edition + 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lanes_of_the_last_changes_are_known_and_no_others() {
        let versions = Versions::new();
        let first = versions.of(3);
        assert_eq!(changed(first, first), Some(0));
        let seen: Vec<u64> = [5, 63, 0, 5, 5]
            .into_iter()
            .map(|lane| {
                versions.bump(3, lane);
                versions.of(3)
            })
            .collect();
        assert_eq!(changed(first, seen[0]), Some(1 << 5));
        assert_eq!(changed(first, seen[3]), Some(1 << 5 | 1 << 63 | 1));
        assert_eq!(changed(first, seen[4]), None, "the first one is forgotten");
        assert_eq!(changed(seen[1], seen[4]), Some(1 << 5 | 1));
        assert_eq!(changed(seen[4], seen[3]), None, "not backwards");
        assert_eq!(versions.of(2), first, "another block has not changed");
    }

    #[test]
    fn versions_grow_and_their_count_goes_round() {
        let most = u64::MAX >> COUNT_AT << COUNT_AT;
        // From lanes of the highest numbers to lane 0, and past the end of the count.
        for start in [after(0, 63), most | (63 << 1), most - (1 << COUNT_AT)] {
            let mut versions = vec![start];
            for lane in [63, 63, 63, 0, 0, 0, 17] {
                versions.push(after(versions[versions.len() - 1], lane));
            }
            for (n, &version) in versions.iter().enumerate() {
                assert_eq!(version & 1, 0, "the bit of seals is left alone");
                for &earlier in &versions[..n] {
                    assert!(is_as_late(version, earlier) && !is_as_late(earlier, version));
                    assert_ne!(version, earlier);
                }
            }
            let four = [1 << 63 | 1, 1 << 63 | 1, 1 << 63 | 1, 1 << 17 | 1];
            for (n, lanes) in four.into_iter().enumerate() {
                assert_eq!(changed(versions[n], versions[n + 4]), Some(lanes));
            }
            // A result is replaced, and found again, past the end as well.
            let (turns, sealed) = (Turns::new(), Sealed::<1>::default());
            for (n, &version) in versions.iter().enumerate() {
                assert!(sealed.put(&turns.take().unwrap(), version, [n as u64]));
                assert!(!sealed.put(&turns.take().unwrap(), version, [99]));
                assert_eq!(sealed.read(version), Some([n as u64]));
            }
        }
    }

    #[test]
    fn a_result_is_not_replaced_by_an_older_one() {
        let (versions, turns, sealed) = (Versions::new(), Turns::new(), Sealed::<1>::default());
        let turn = turns.take().unwrap();
        assert!(turns.take().is_none(), "one publishes at a time");
        let old = versions.of(0);
        versions.bump(0, 1);
        let new = versions.of(0);
        sealed.put(&turn, new, [2]);
        sealed.put(&turn, old, [1]);
        assert_eq!((sealed.read(new), sealed.read(old)), (Some([2]), None));
        assert_eq!(sealed.latest(), Some((new, [2])));
    }
}
