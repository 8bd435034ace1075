//! The cell that the view stands in: readers pin and load, writers swap.
//!
//! A view that was replaced is dropped once everybody who was pinned then has unpinned; the same
//! holds for slots that were retired. Neither is handed to a collector: the writer keeps them in a
//! [`Quarantine`] and asks at its next change, so that nothing is allocated or run on the path of
//! a request, and one reader that stays pinned for long holds up what it may see and nothing else.

use crate::fleet::view::View;
use crate::grace::{Guard, Stamp};
use crate::pins::domain;
use crate::sync::atomic::{AtomicPtr, Ordering};
use std::collections::VecDeque;
use std::ptr::NonNull;

/// The view in force.
pub(crate) struct ViewCell {
    view: AtomicPtr<View>,
}

/// A view that is no longer in force and may still be looked at; dropped with this. A pointer, not
/// a box: a box says that nobody else looks.
pub(crate) struct Replaced(NonNull<View>);

// SAFETY: it owns its view, as a box would, and a view can be sent.
unsafe impl Send for Replaced {}

impl Drop for Replaced {
    fn drop(&mut self) {
        // SAFETY: it came from a box, this is its only owner, and the quarantine has ended (or the
        // pool has, and with it every reader).
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl ViewCell {
    pub(crate) fn new(view: View) -> ViewCell {
        ViewCell { view: AtomicPtr::new(Box::into_raw(Box::new(view))) }
    }

    /// The view of this moment. Good for as long as the guard. Wait-free.
    #[inline(always)]
    pub(crate) fn load<'g>(&self, _guard: &'g Guard<'_>) -> &'g View {
        // Acquire: pairs with the swap in `publish`, so the view is seen whole.
        let view = self.view.load(Ordering::Acquire);
        // SAFETY: never null, and a view that was replaced is dropped only when every guard of
        // that moment is gone (`Quarantine`).
        unsafe { &*view }
    }

    /// Puts another view in force. Writers are serialised by the pool's writer lock. The old view
    /// is given back, to be kept in quarantine.
    pub(crate) fn publish(&self, view: View) -> Replaced {
        // AcqRel: publishes the new view to `load`; the old one is only kept.
        let old = self.view.swap(Box::into_raw(Box::new(view)), Ordering::AcqRel);
        Replaced(NonNull::new(old).expect("there always is a view"))
    }
}

impl Drop for ViewCell {
    fn drop(&mut self) {
        // SAFETY: exclusive access: no reader is left; the pointer came from a box.
        drop(unsafe { Box::from_raw(*self.view.get_mut()) });
    }
}

/// What may still be looked at, in the order in which it was unlinked.
pub(crate) struct Quarantine<T>(VecDeque<(Stamp, T)>);

impl<T> Default for Quarantine<T> {
    fn default() -> Self {
        Quarantine(VecDeque::new())
    }
}

impl<T> Quarantine<T> {
    /// Takes in what was just unlinked.
    pub(crate) fn put(&mut self, thing: T) {
        self.0.push_back((domain().stamp(), thing));
    }

    /// Gives out the oldest thing that nobody looks at any more. Never waits.
    pub(crate) fn take(&mut self) -> Option<T> {
        let (stamp, _) = self.0.front()?;
        if !domain().passed(*stamp) {
            return None;
        }
        self.0.pop_front().map(|(_, thing)| thing)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::pin;

    #[test]
    fn a_thing_leaves_quarantine_when_its_readers_have_gone() {
        let mut quarantine = Quarantine::default();
        let guard = pin();
        quarantine.put(1);
        assert_eq!(quarantine.take(), None);
        drop(guard);
        // Other tests of this process may be pinned for a moment.
        while quarantine.take().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(quarantine.len(), 0);
    }
}
