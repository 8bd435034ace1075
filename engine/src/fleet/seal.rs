//! What was found in a block, kept for as long as nothing changes there: the versions of blocks,
//! and results sealed for one version.
//!
//! | who | does | pairs with |
//! |---|---|---|
//! | writer of a block | changes rows and columns, *then* [`Versions::bump`] | [`Versions::of`], [`Versions::sum`] |
//! | looker, one block | version, then rows and columns; later [`Sealed::put`] with that version | `bump` |
//! | looker, all blocks at once | [`Sealed::is_of_sum`]: the seal, *then* the versions | `put` |
//!
//! A result is believed only while its version is the current one, so it says what the rows said
//! at some moment after the looker asked. Versions have 64 bits and only grow. A flag in their
//! place would be cleared before somebody's change or after it, and stay wrong for ever.
//!
//! Results are published under a sequence lock that nobody waits for: who finds [`Turn`] taken uses
//! its own result and leaves the publishing to others. A seal is odd while its words are written,
//! and grows with the version, so a reader that sees the same seal before and after has seen the
//! words of one result.
//!
//! One word of a result may be taken without that second look: what can stand in its place is the
//! same word of a *later* result, which is as true. Only where a [`Shelf`] is given to another
//! subject is the second look needed for one word as well.
//!
//! Sums: the versions of a span of blocks only grow, so if their sum is the one that was sealed,
//! each of them is what it was, *provided* they are read after the seal: what the sealer had read
//! then happened before, and no version can be older than it was there.
#![forbid(unsafe_code)]

use crate::sync::MODELLED;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Blocks whose versions lie together and whose results are also kept as one.
pub(crate) const SPAN: usize = if MODELLED { 2 } else { 16 };

/// The versions of a span of blocks. Dense: a pick reads them all, a change writes one.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Versions([AtomicU64; SPAN]);

impl Versions {
    pub(crate) fn new() -> Versions {
        // From 1 on, so that a seal of 0 is valid for no version.
        Versions(std::array::from_fn(|_| AtomicU64::new(1)))
    }

    /// Says that something in a block has changed. Comes after the change itself.
    #[inline(always)]
    pub(crate) fn bump(&self, at: usize) {
        // Release: who reads the new version (`of`, `sum`) sees what was changed before it.
        self.0[at].fetch_add(1, Ordering::Release);
    }

    /// The version of one block. What is looked at afterwards is at least as new.
    #[inline(always)]
    pub(crate) fn of(&self, at: usize) -> u64 {
        // Acquire: pairs with `bump`.
        self.0[at].load(Ordering::Acquire)
    }

    /// The sum of all versions.
    #[inline(always)]
    fn sum(&self) -> u64 {
        (0..SPAN).fold(0, |sum, at| sum + self.of(at))
    }
}

/// The right to publish, held for a few stores.
#[derive(Debug, Default)]
pub(crate) struct Turns(AtomicBool);

/// See [`Turns`].
#[must_use]
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Takes the turn; `None`: somebody else has it, and nobody waits for it.
    #[inline]
    pub(crate) fn take(&self) -> Option<Turn<'_>> {
        // Acquire: pairs with the Release of the drop: seals are seen as they were left.
        self.0
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then_some(Turn(self))
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
    /// Twice the version; one more while the words are being written; 0: nothing yet.
    seal: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Default for Sealed<N> {
    fn default() -> Self {
        Sealed { seal: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<const N: usize> Sealed<N> {
    /// Whether the words are of `version`, or by now of a later one.
    #[inline(always)]
    pub(crate) fn is_of(&self, version: u64) -> bool {
        // Acquire: pairs with the Release of `put`, for the words.
        self.seal.load(Ordering::Acquire) == version << 1
    }

    /// Whether the words are of the versions as they are now.
    #[inline(always)]
    pub(crate) fn is_of_sum(&self, versions: &Versions) -> bool {
        // Acquire, and before the versions: pairs with the Release of `put`, so that each version
        // is at least what it was for whoever sealed the sum.
        let seal = self.seal.load(Ordering::Acquire);
        seal == versions.sum() << 1
    }

    /// One word, after [`is_of`](Sealed::is_of) or [`is_of_sum`](Sealed::is_of_sum).
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// All words of `version`, of one result.
    #[inline(always)]
    pub(crate) fn read(&self, version: u64) -> Option<[u64; N]> {
        if !self.is_of(version) {
            return None;
        }
        let words = std::array::from_fn(|at| self.word(at));
        // Acquire: pairs with the Release fence of `put`: if a word is of a later result, the seal
        // is seen to have moved.
        fence(Ordering::Acquire);
        (self.seal.load(Ordering::Relaxed) == version << 1).then_some(words)
    }

    /// Publishes what was found at `version`, unless what stands there is as new.
    #[inline]
    pub(crate) fn put(&self, _turn: &Turn<'_>, version: u64, words: [u64; N]) {
        if self.seal.load(Ordering::Relaxed) >= version << 1 {
            return;
        }
        self.seal.store(version << 1 | 1, Ordering::Relaxed);
        // Release: pairs with the Acquire fence of `read`.
        fence(Ordering::Release);
        for (to, word) in self.words.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        // Release: publishes the words.
        self.seal.store(version << 1, Ordering::Release);
    }

    /// Makes it empty. The caller sees to it that readers notice.
    fn wipe(&self) {
        self.seal.store(0, Ordering::Relaxed);
    }
}

/// Results about one of many subjects: a span's, and one per block. It is given to another subject
/// when that one is asked for.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    /// Odd while the subject changes.
    edition: AtomicU64,
    subject: AtomicU64,
    pub(crate) whole: Sealed<2>,
    pub(crate) each: [Sealed<2>; SPAN],
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
