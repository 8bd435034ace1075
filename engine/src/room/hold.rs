//! The life of a hold: one word that carries its lease and how it ended.
//!
//! ```text
//! held until L  --renew-->    held until L'
//!               --convert-->  converted     the leg has booked; the held load goes back
//!               --cancel-->   cancelled     dropped or given up; the held load goes back
//!               --expire-->   expired       L is past; the held load goes back
//! ```
//!
//! The ends race, and a compare-and-swap on the one word lets one win: only the winner gets an
//! [`Ended`], and only an `Ended` gives the held load back, so it goes back exactly once. The
//! lease is in the same word: a lease that is renewed changes the word that a reclaim has read, so
//! the reclaim loses and looks again. Beside the word, it would be renewed and reclaimed all the
//! same.
//!
//! A conversion books the leg *first*, then converts, then gives the held load back. Lost the
//! conversion: the leg is given back. The other order would lose the hold as well when the leg is
//! refused.
//!
//! All accesses are relaxed: the word decides who, and what the winner gives back (slot, life,
//! blocks) was written before the hold was shared and never changes.
#![forbid(unsafe_code)]

use crate::sync::atomic::{AtomicU64, Ordering};

/// The two top bits: how the hold stands.
const STATE: u64 = 0b11 << 62;
const HELD: u64 = 0b00 << 62;
const CONVERTED: u64 = 0b01 << 62;
const CANCELLED: u64 = 0b10 << 62;
const EXPIRED: u64 = 0b11 << 62;
/// The bits of the lease, and a lease that never runs out. In nanoseconds 62 bits are 146 years.
const LEASE: u64 = !STATE;

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Turned into a booking.
    Converted,
    /// Dropped, cancelled, or a leg failed.
    Cancelled,
    /// Its lease ran out.
    Expired,
}

impl End {
    fn of(word: u64) -> Option<End> {
        match word & STATE {
            CONVERTED => Some(End::Converted),
            CANCELLED => Some(End::Cancelled),
            EXPIRED => Some(End::Expired),
            _ => None,
        }
    }
}

/// The right, and the duty, to give the held load back: one for each hold.
#[must_use = "the held load is given back by whoever ended the hold"]
#[derive(Debug)]
pub(crate) struct Ended(());

/// What a look at the lease found.
#[must_use]
#[derive(Debug)]
pub(crate) enum Lease {
    /// It ran out, and this call ended the hold.
    Ended(Ended),
    /// It runs until this instant (nanoseconds; `u64::MAX`: for ever).
    Runs(u64),
    /// The hold had ended before.
    Over(End),
}

/// The state word of a hold. See the head of this file.
#[derive(Debug)]
pub(crate) struct HoldState {
    word: AtomicU64,
}

impl HoldState {
    /// A hold with a lease until `until` nanoseconds (`u64::MAX`: without one).
    pub(crate) fn new(until: u64) -> HoldState {
        HoldState { word: AtomicU64::new(HELD | until.min(LEASE)) }
    }

    /// The leg is booked: ends the hold as converted. `Err`: it had ended; give the leg back.
    pub(crate) fn convert(&self) -> Result<Ended, End> {
        self.end(CONVERTED)
    }

    /// Ends the hold as cancelled. `Err`: it had ended, there is nothing to do.
    pub(crate) fn cancel(&self) -> Result<Ended, End> {
        self.end(CANCELLED)
    }

    /// Ends the hold if its lease is past at `now`, that is `now >= until`.
    pub(crate) fn expire(&self, now: u64) -> Lease {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if let Some(end) = End::of(word) {
                return Lease::Over(end);
            }
            let until = lease_of(word);
            if until == u64::MAX || now < until {
                return Lease::Runs(until);
            }
            match self.swap(word, EXPIRED) {
                Ok(ended) => return Lease::Ended(ended),
                Err(live) => word = live,
            }
        }
    }

    /// Renews the lease to `until` nanoseconds. `Err`: the hold had ended.
    pub(crate) fn renew(&self, until: u64) -> Result<(), End> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if let Some(end) = End::of(word) {
                return Err(end);
            }
            match self.word.compare_exchange(
                word,
                HELD | until.min(LEASE),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(live) => word = live,
            }
        }
    }

    /// How the hold ended, or `None` while it holds.
    pub(crate) fn ended(&self) -> Option<End> {
        End::of(self.word.load(Ordering::Relaxed))
    }

    fn end(&self, state: u64) -> Result<Ended, End> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if let Some(end) = End::of(word) {
                return Err(end);
            }
            match self.swap(word, state) {
                Ok(ended) => return Ok(ended),
                Err(live) => word = live,
            }
        }
    }

    /// From exactly the word that was judged to an end.
    fn swap(&self, judged: u64, state: u64) -> Result<Ended, u64> {
        self.word
            .compare_exchange(judged, state, Ordering::Relaxed, Ordering::Relaxed)
            .map(|_| Ended(()))
    }
}

fn lease_of(word: u64) -> u64 {
    match word & LEASE {
        LEASE => u64::MAX,
        until => until,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_ends_once_whatever_ends_it() {
        let hold = HoldState::new(100);
        assert!(hold.convert().is_ok());
        assert_eq!(hold.cancel().unwrap_err(), End::Converted);
        assert!(matches!(hold.expire(u64::MAX), Lease::Over(End::Converted)));
        assert_eq!(hold.renew(200).unwrap_err(), End::Converted);
        assert_eq!(hold.ended(), Some(End::Converted));

        let hold = HoldState::new(100);
        assert!(hold.cancel().is_ok());
        assert_eq!(hold.convert().unwrap_err(), End::Cancelled);
    }

    #[test]
    fn a_lease_is_past_at_its_instant_and_not_before() {
        let hold = HoldState::new(100);
        assert!(matches!(hold.expire(99), Lease::Runs(100)));
        assert!(matches!(hold.expire(100), Lease::Ended(_)));
        assert_eq!(hold.ended(), Some(End::Expired));
    }

    #[test]
    fn a_renewed_lease_runs_until_its_new_instant() {
        let hold = HoldState::new(100);
        hold.renew(200).unwrap();
        assert!(matches!(hold.expire(150), Lease::Runs(200)));
        assert!(matches!(hold.expire(200), Lease::Ended(_)));
    }

    #[test]
    fn a_hold_without_a_lease_never_expires() {
        let hold = HoldState::new(u64::MAX);
        assert!(matches!(hold.expire(u64::MAX), Lease::Runs(u64::MAX)));
        assert_eq!(hold.ended(), None);
    }
}
