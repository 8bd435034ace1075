//! The one grace-period domain of the process, and each thread's seat in it.
#![forbid(unsafe_code)]

use crate::grace::{Domain, Guard, Seat};
use std::sync::LazyLock;

static DOMAIN: LazyLock<Domain> = LazyLock::new(Domain::new);

struct Mine(&'static Seat);

impl Drop for Mine {
    fn drop(&mut self) {
        DOMAIN.leave(self.0);
    }
}

thread_local! {
    static MINE: Mine = Mine(DOMAIN.seat());
}

/// Pins the calling thread: what it finds from here on stays what it is until the guard is
/// dropped. Some nanoseconds; never blocks; nests.
#[inline]
pub(crate) fn pin() -> Guard<'static> {
    // A thread that is being torn down (a booking in another thread-local value, say) has lost
    // its seat.
    MINE.try_with(|mine| DOMAIN.pin(mine.0)).unwrap_or_else(|_| DOMAIN.pin_apart())
}

/// The domain that [`pin`] pins in.
pub(crate) fn domain() -> &'static Domain {
    &DOMAIN
}
