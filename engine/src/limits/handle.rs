//! The live handle of the reject thresholds: one set, any number of pools under it.
//!
//! An update merges, compiles every pool's limits aside and swaps each pool's view. Readers are
//! wait-free throughout: a selection reads the view it finds, whole. When an update returns, every
//! pool is under it. Updates are serialised by one lock, which is let go before anybody is told.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::limits::thresholds::{Thresholds, ThresholdsUpdate};
use crate::sync::Mutex;
use arc_swap::ArcSwap;
use std::fmt;
use std::sync::{Arc, Weak};

/// What is under a handle: a pool.
pub(crate) trait UnderThresholds: Send + Sync {
    /// Puts `thresholds` in force; whether room may have appeared is answered.
    fn put_in_force(&self, thresholds: Thresholds) -> bool;
    /// Tells whoever waits for room. Called with no lock held.
    fn room_appeared(&self);
}

struct Inner {
    current: ArcSwap<Thresholds>,
    pools: Mutex<Vec<Weak<dyn UnderThresholds>>>,
}

/// The reject thresholds, live: clones are one and the same handle, and it may serve several
/// pools. Reading never waits; an update never stalls a selection, and none sees half of it.
#[derive(Clone)]
pub struct RejectThresholds {
    inner: Arc<Inner>,
}

impl RejectThresholds {
    /// A handle with these thresholds.
    ///
    /// # Errors
    /// `InvalidConfig` naming the field; see [`Thresholds::validate`].
    pub fn new(thresholds: Thresholds) -> Result<RejectThresholds, Error> {
        thresholds.validate()?;
        let inner =
            Inner { current: ArcSwap::from_pointee(thresholds), pools: Mutex::new(Vec::new()) };
        Ok(RejectThresholds { inner: Arc::new(inner) })
    }

    /// The thresholds in force. Wait-free.
    pub fn get(&self) -> Thresholds {
        **self.inner.current.load()
    }

    /// Merges: what is left out stays as it is. Blocks only on other updates; `O(ranks)`.
    ///
    /// # Errors
    /// `InvalidConfig` naming the field; what was in force stays.
    pub fn update(&self, update: ThresholdsUpdate) -> Result<(), Error> {
        self.change(|old| update.merged_into(old))
    }

    /// Replaces all.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn set(&self, thresholds: Thresholds) -> Result<(), Error> {
        self.change(|_| thresholds)
    }

    /// Turns all off.
    pub fn clear(&self) {
        self.change(|_| Thresholds::NONE).expect("no threshold is a valid set");
    }

    fn change(&self, change: impl FnOnce(Thresholds) -> Thresholds) -> Result<(), Error> {
        let mut to_tell = Vec::new();
        {
            let mut pools = self.inner.pools.lock();
            let new = change(self.get());
            new.validate()?;
            self.inner.current.store(Arc::new(new));
            pools.retain(|weak| match weak.upgrade() {
                None => false,
                Some(pool) => {
                    if pool.put_in_force(new) {
                        to_tell.push(pool);
                    }
                    true
                }
            });
        }
        for pool in to_tell {
            pool.room_appeared();
        }
        Ok(())
    }

    /// Puts a pool under this handle, and the thresholds of this moment in force there.
    pub(crate) fn attach(&self, pool: Weak<dyn UnderThresholds>) {
        let mut pools = self.inner.pools.lock();
        if let Some(strong) = pool.upgrade() {
            strong.put_in_force(self.get());
        }
        pools.push(pool);
    }
}

impl Default for RejectThresholds {
    fn default() -> RejectThresholds {
        RejectThresholds::new(Thresholds::NONE).expect("no threshold is a valid set")
    }
}

impl fmt::Debug for RejectThresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RejectThresholds").field(&self.get()).finish()
    }
}
