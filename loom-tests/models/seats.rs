//! A grace-period domain with two readers' seats taken beforehand.

use super::grace::{Domain, Guard, Seat};
use std::ops::Deref;

pub(crate) struct Seats {
    domain: Domain,
    seats: [*const Seat; 2],
}

// SAFETY: the pointers lead to seats of `domain`, which live as long as it does, and a seat can be
// shared between threads.
unsafe impl Send for Seats {}
// SAFETY: as above.
unsafe impl Sync for Seats {}

impl Seats {
    pub(crate) fn new() -> Seats {
        let domain = Domain::new();
        let seats = [domain.seat() as *const Seat, domain.seat() as *const Seat];
        Seats { domain, seats }
    }

    /// Pins the reader `at`, which is one thread of the model.
    pub(crate) fn pin_at(&self, at: usize) -> Guard<'_> {
        // SAFETY: it is a seat of this domain.
        self.domain.pin(unsafe { &*self.seats[at] })
    }
}

impl Deref for Seats {
    type Target = Domain;

    fn deref(&self) -> &Domain {
        &self.domain
    }
}
