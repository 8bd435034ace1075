//! The host's own code that pools call, which now and then panics.
//!
//! It unwinds without the panic hook, so that thousands of worlds do not fill the screen.

use crate::plan::HostCode;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vacancy::{
    Classification, Classifier, Columns, EventSink, LoadEvent, Observed, Observer, PolicyError,
    PoolBuilder, Request, Scorer,
};

/// The seed of a request that the host's code cannot stand.
pub const POISON: u64 = 0xBAD;

fn is_poisoned(request: &Request) -> bool {
    request.seed == Some(POISON)
}

/// Unwinds, in silence.
pub fn unwind() -> ! {
    resume_unwind(Box::new("host code of a world"))
}

struct Panics;

impl Scorer for Panics {
    fn name(&self) -> &str {
        "panics over some"
    }

    fn score(&self, columns: &Columns<'_>, _cost: &mut [f64]) -> Result<(), PolicyError> {
        if is_poisoned(columns.request) { unwind() } else { Ok(()) }
    }
}

impl Observer for Panics {
    fn name(&self) -> &str {
        "panics over some"
    }

    fn observe(&self, observed: &Observed<'_>) {
        if is_poisoned(observed.columns.request) {
            unwind()
        }
    }
}

impl Classifier for Panics {
    fn name(&self) -> &str {
        "panics over some"
    }

    fn classify(&self, seen: &mut Classification<'_>) -> Result<(), PolicyError> {
        if is_poisoned(seen.request()) { unwind() } else { Ok(()) }
    }
}

struct Sink(AtomicU64);

impl EventSink for Sink {
    fn event(&self, _event: &LoadEvent) {
        if self.0.fetch_add(1, Ordering::Relaxed) % 7 == 6 {
            unwind()
        }
    }
}

/// Gives a pool the host's code of a plan.
pub fn install(mut builder: PoolBuilder, host: HostCode) -> PoolBuilder {
    if host.scorer {
        builder = builder.scorer(Arc::new(Panics));
    }
    if host.observer {
        builder = builder.observer(Arc::new(Panics));
    }
    if host.classifier {
        builder = builder.classifier(Arc::new(Panics));
    }
    if host.sink {
        builder = builder.events(Arc::new(Sink(AtomicU64::new(0))));
    }
    builder
}
