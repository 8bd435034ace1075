//! What may be done to a rank's row, by whom, and in which order.
//!
//! A slot is a place in a block that ranks live in, one after the other; each life has a number,
//! its *incarnation*. Three things together keep the lives apart:
//!
//! 1. the **dead bit** in the row: [`kill`] sets it by read-modify-write, so every booking and every
//!    free, which are compare-and-swaps of the same word, either comes before it or sees it;
//! 2. **quarantine**: a killed slot is reused only after everybody who was pinned at that time has
//!    unpinned (the caller sees to it with the epoch collector). Without it the value of the new
//!    life could look like the one an old booker read;
//! 3. the **incarnation**: whoever frees after that compares it, *after* the row was read.
//!
//! | who | does | pairs with |
//! |---|---|---|
//! | booker (pinned, with a view that names the slot) | [`add`]: CAS, judging the value it replaces | `kill` |
//! | holder of a booking (pinned) | [`alive`], then [`take_off`]: CAS | `kill`, `reopen` |
//! | writer of the view | [`kill`], wait out the quarantine, scrub, [`reopen`] | all of the above |
//!
//! A lost compare-and-swap proves nothing about room: the row is read and judged again.

use crate::load::row::{Load, Row};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Why a load was not put on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The value that was read did not pass the judge.
    Full(Row),
    /// The rank was removed.
    Dead,
    /// A part of the row would not fit its bits.
    Overflow,
}

/// Adds `load` if `judge` passes the very value that it is added to. Lock-free: every retry is
/// another thread's success. Returns the row that now stands.
#[inline]
pub(crate) fn add(
    row: &AtomicU64,
    load: Load,
    judge: impl Fn(Row) -> bool,
) -> Result<Row, Refusal> {
    // Acquire: a row opened by `reopen` comes with what was written before it.
    let mut seen = Row::from_bits(row.load(Ordering::Acquire));
    loop {
        if seen.is_dead() {
            return Err(Refusal::Dead);
        }
        if !judge(seen) {
            return Err(Refusal::Full(seen));
        }
        let Some(next) = seen.plus(load) else { return Err(Refusal::Overflow) };
        // AcqRel: publishes the load to whoever judges next and sees what was judged before.
        match row.compare_exchange(seen.bits(), next.bits(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Ok(next),
            // A lost swap is not a "no": look again, at a value that is read afresh.
            Err(_) => seen = Row::from_bits(row.load(Ordering::Acquire)),
        }
    }
}

/// Lands on a rank that is full because a sibling has room: lands first, then looks at the
/// sibling. Full by now: gives back and refuses.
///
/// Looked at before the landing only, the sibling may have been filled in between, and the whole
/// worker was full when the booking landed. Two that fill each other's reason both see it.
pub(crate) fn land_beside<T>(
    land: impl FnOnce() -> Result<T, Refusal>,
    sibling_has_room: impl FnOnce() -> bool,
    give_back: impl FnOnce(T) -> Refusal,
) -> Result<T, Refusal> {
    let landed = land()?;
    if sibling_has_room() { Ok(landed) } else { Err(give_back(landed)) }
}

/// Puts `on` in the place of `off` in one step, if `judge` passes the row without `off`: what is
/// judged is the row as if that load were not there. The caller was told by [`alive`] that the life
/// is the right one and has stayed pinned since.
pub(crate) fn replace(
    row: &AtomicU64,
    off: Load,
    on: Load,
    judge: impl Fn(Row) -> bool,
) -> Result<Row, Refusal> {
    let mut seen = Row::from_bits(row.load(Ordering::Acquire));
    loop {
        if seen.is_dead() {
            return Err(Refusal::Dead);
        }
        let without = seen.minus(off);
        if !judge(without) {
            return Err(Refusal::Full(without));
        }
        let Some(next) = without.plus(on) else { return Err(Refusal::Overflow) };
        // AcqRel: as in `add`.
        match row.compare_exchange(seen.bits(), next.bits(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Ok(next),
            Err(_) => seen = Row::from_bits(row.load(Ordering::Acquire)),
        }
    }
}

/// Whether the life `incarnation` still goes on in this slot. The caller is pinned and stays so
/// until it is done with the slot.
#[inline]
pub(crate) fn alive(row: &AtomicU64, lives: &AtomicU64, incarnation: u64) -> bool {
    // Row first: Acquire pairs with the release of `reopen`, so a row of a new life comes with
    // the new incarnation. The other order could read the old number and then the new row.
    let seen = Row::from_bits(row.load(Ordering::Acquire));
    !seen.is_dead() && lives.load(Ordering::Relaxed) == incarnation
}

/// Takes `load` off, if the rank has not died meanwhile. The caller was told by [`alive`] that the
/// life is the right one and has stayed pinned since. Returns the row that now stands.
#[inline]
pub(crate) fn take_off(row: &AtomicU64, load: Load) -> Option<Row> {
    let mut seen = Row::from_bits(row.load(Ordering::Acquire));
    loop {
        if seen.is_dead() {
            return None;
        }
        let next = seen.minus(load);
        // AcqRel: as in `add`; the epoch moves only after this.
        match row.compare_exchange(seen.bits(), next.bits(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(next),
            Err(_) => seen = Row::from_bits(row.load(Ordering::Acquire)),
        }
    }
}

/// Ends the life in this slot: from now on every add and every free is refused.
pub(crate) fn kill(row: &AtomicU64) -> Row {
    // AcqRel, and a read-modify-write: comes before or after each booking, never beside it.
    Row::from_bits(row.fetch_or(Row::dead_bit(), Ordering::AcqRel))
}

/// Starts the life `incarnation` in a slot that is dead, out of quarantine, and scrubbed.
pub(crate) fn reopen(row: &AtomicU64, lives: &AtomicU64, incarnation: u64) {
    lives.store(incarnation, Ordering::Relaxed);
    // Release: publishes the incarnation and the scrubbed columns to the Acquire loads above.
    row.swap(Row::EMPTY.bits(), Ordering::Release);
}
