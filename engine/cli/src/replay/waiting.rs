//! Requests that wait in the engine's queue, and how the simulator hears that one no longer does:
//! each is a future that was polled with a waker of its own, so that an event which lets three of
//! ten thousand in costs three looks.
#![forbid(unsafe_code)]

use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use vacancy::{Admit, Admitted, Error};

/// What became of a request that waited.
pub type Settled = (u32, Result<Admitted, Error>);

/// Requests that wait.
#[derive(Default)]
pub struct Waiting {
    admits: FxHashMap<u32, Admit>,
    woken: Arc<Woken>,
}

/// The requests that were woken, in the order in which it happened.
#[derive(Default)]
struct Woken(Mutex<Vec<u32>>);

impl Woken {
    fn take(&self) -> Vec<u32> {
        // A push cannot leave the list half changed.
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Wakes one request.
struct Bell {
    request: u32,
    woken: Arc<Woken>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.request);
    }
}

impl Waiting {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.admits.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.admits.len()
    }

    /// Takes in a request that is being admitted. The answer, if it is there already.
    pub fn enter(&mut self, request: u32, mut admit: Admit) -> Option<Result<Admitted, Error>> {
        let bell = Waker::from(Arc::new(Bell { request, woken: Arc::clone(&self.woken) }));
        match Pin::new(&mut admit).poll(&mut Context::from_waker(&bell)) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => {
                self.admits.insert(request, admit);
                None
            }
        }
    }

    /// Appends those that no longer wait, in the order in which they were let in or refused.
    pub fn settled(&mut self, to: &mut Vec<Settled>) {
        loop {
            let woken = self.woken.take();
            if woken.is_empty() {
                return;
            }
            for request in woken {
                let Entry::Occupied(entry) = self.admits.entry(request) else { continue };
                let admit = entry.remove();
                to.extend(self.enter(request, admit).map(|result| (request, result)));
            }
        }
    }
}
