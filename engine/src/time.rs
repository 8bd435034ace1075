//! The clock that hosts hand in.
//!
//! Nothing in this crate reads a clock. Every instant is a [`Time`]: nanoseconds since an origin
//! that the host chooses (process start, the epoch of a trace, zero in a simulation). A pool keeps
//! the largest instant it was shown; a smaller one counts as that largest one.
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

/// An instant on the host's clock, in nanoseconds since the host's own origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin of the host's clock.
    pub const ZERO: Time = Time(0);
    /// An instant that never comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// The instant `ns` nanoseconds after the origin.
    pub const fn from_nanos(ns: u64) -> Time {
        Time(ns)
    }

    /// The instant `ms` milliseconds after the origin; saturates at [`Time::NEVER`].
    pub const fn from_millis(ms: u64) -> Time {
        Time(ms.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// This instant moved later by `by`; saturates at [`Time::NEVER`].
    pub fn after(self, by: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long it is from `earlier` to this instant; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.0 as f64 / 1e6)
    }
}
