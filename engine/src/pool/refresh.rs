//! Overlap refresh: what has waited for long is tried with overlaps of the moment.
#![forbid(unsafe_code)]

use crate::pass::custom::text_of;
use crate::pool::Inner;
use crate::pool::admit::Pending;
use crate::request::{Overlap, Request};
use crate::sync::Arc;
use crate::time::Time;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Gives a waiting request new overlaps at its turn.
///
/// Called on the thread that drains, with no lock and no pin held, before each try of a request
/// that has waited longer than the pool was told. Its place and its cost stay what they were.
pub trait OverlapRefresh: Send + Sync {
    /// The overlaps of this moment; `None` keeps the old ones, as a panic and an invalid overlap
    /// do.
    fn refresh(&self, request: &Request) -> Option<Arc<[Overlap]>>;
}

/// The host's refresh, and from when on it is asked.
#[derive(Clone)]
pub(crate) struct Refresh {
    pub(crate) after: Duration,
    pub(crate) by: Arc<dyn OverlapRefresh>,
}

impl Inner {
    /// The request to try: as it came, or with new overlaps.
    pub(crate) fn refreshed<'a>(&self, pending: &'a Pending, now: Time) -> Cow<'a, Request> {
        let old = Cow::Borrowed(&pending.request);
        let Some(refresh) = &self.refresh else { return old };
        if now.since(pending.checked.now) <= refresh.after {
            return old;
        }
        match catch_unwind(AssertUnwindSafe(|| refresh.by.refresh(&pending.request))) {
            Ok(Some(overlaps)) => {
                let request = pending.request.clone().overlaps(overlaps);
                match request.blocks(self.settings.block_size) {
                    Ok(_) => Cow::Owned(request),
                    Err(error) => {
                        tracing::warn!(%error, "an overlap refresh gave what cannot be taken");
                        old
                    }
                }
            }
            Ok(None) => old,
            Err(panic) => {
                tracing::warn!(what = text_of(panic), "an overlap refresh panicked");
                old
            }
        }
    }
}
