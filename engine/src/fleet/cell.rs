//! The cell that the view stands in: readers pin and load, writers swap.
//!
//! A view that was replaced is dropped once everybody who was pinned then has unpinned; the same
//! holds for slots that are retired through [`ViewCell::after_readers`]. Readers are wait-free.

use crate::fleet::view::View;
use crossbeam_epoch::{Atomic, Guard, Owned};
use std::sync::atomic::Ordering;

pub(crate) struct ViewCell {
    view: Atomic<View>,
}

impl ViewCell {
    pub(crate) fn new(view: View) -> ViewCell {
        ViewCell { view: Atomic::new(view) }
    }

    /// The view of this moment. Good for as long as the guard.
    #[inline(always)]
    pub(crate) fn load<'g>(&self, guard: &'g Guard) -> &'g View {
        // Acquire: pairs with the swap in `publish`, so the view is seen whole.
        let shared = self.view.load(Ordering::Acquire, guard);
        // SAFETY: never null (`new`, `publish`), and what it points to is destroyed only after
        // every guard of this moment is gone (`publish` defers).
        unsafe { shared.deref() }
    }

    /// Puts another view in force. Writers are serialised by the pool's writer lock.
    pub(crate) fn publish(&self, view: View, guard: &Guard) {
        // AcqRel: publishes the new view to `load`; the old one is only destroyed.
        let old = self.view.swap(Owned::new(view), Ordering::AcqRel, guard);
        // SAFETY: `old` is unlinked, and was the only link; guards that saw it keep it alive.
        unsafe { guard.defer_destroy(old) };
    }

    /// Runs `f` once everybody who is pinned now has unpinned, on some thread that pins later.
    pub(crate) fn after_readers(guard: &Guard, f: impl FnOnce() + Send + 'static) {
        guard.defer(f);
    }
}

impl Drop for ViewCell {
    fn drop(&mut self) {
        let view = std::mem::replace(&mut self.view, Atomic::null());
        // SAFETY: exclusive access: no reader is left, and the pointer is not null.
        drop(unsafe { view.into_owned() });
    }
}
