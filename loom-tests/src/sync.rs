//! The engine's `sync`, from loom.
//!
//! Nothing here orders more than what it stands for: a published value is an atomic index and not
//! a lock, and reference counts are std's, which loom does not see and so takes no order from.

pub mod atomic {
    pub use super::seen::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    pub use loom::sync::atomic::{Ordering, fence};
}

/// Atomics of loom that also tell loom who has looked.
///
/// loom 0.7 tries the other order of two accesses of one location if one of them writes; but it
/// remembers only the *last* access. A thread that loads and then swaps hides, by its load, what
/// another loaded before: the order "it swaps, then the other loads" is never tried, and every
/// compare-and-swap loop is of this form. So each location has, for each thread, a second one: a
/// load touches the one of its own thread, and a write behind a load of the same thread those of
/// all others who have looked since the last write. Nothing is ordered by it (all is relaxed), but
/// loom sees that the two depend on each other.
mod seen {
    use crate::explore::{MAX_THREADS, alone, most_threads, thread};
    use loom::Ordering;
    use loom::sync::atomic as loom;
    use std::sync::atomic::AtomicUsize as Unseen;

    #[derive(Debug)]
    struct Seen {
        /// By thread. No more than the model has: each costs time in every run.
        by: Box<[loom::AtomicUsize]>,
        /// Threads that have loaded since the last write, as bits. Not loom's.
        since: Unseen,
        /// The thread that loaded last, if nobody has written since.
        last: Unseen,
    }

    impl Seen {
        fn new() -> Seen {
            Seen {
                by: (0..most_threads()).map(|_| loom::AtomicUsize::new(0)).collect(),
                since: Unseen::new(0),
                last: Unseen::new(MAX_THREADS),
            }
        }

        /// This thread loads. (By read-modify-write: a load would have loom try every old value.)
        fn load(&self) {
            if !alone() {
                self.by[thread()].fetch_add(0, Ordering::Relaxed);
                self.since.fetch_or(1 << thread(), Ordering::Relaxed);
                self.last.store(thread(), Ordering::Relaxed);
            }
        }

        /// This thread writes.
        fn write(&self) {
            let last = self.last.swap(MAX_THREADS, Ordering::Relaxed);
            let since = self.since.swap(0, Ordering::Relaxed);
            if alone() || last != thread() {
                return;
            }
            for (at, by) in self.by.iter().enumerate() {
                if at != thread() && since & 1 << at != 0 {
                    by.fetch_add(0, Ordering::Relaxed);
                }
            }
        }
    }

    macro_rules! atomic {
        ($name:ident $(<$t:ident>)?, $value:ty $(, $add:ident)*) => {
            #[derive(Debug)]
            pub struct $name $(<$t>)? {
                value: loom::$name $(<$t>)?,
                seen: Seen,
            }

            impl $(<$t>)? $name $(<$t>)? {
                pub fn new(value: $value) -> Self {
                    $name { value: loom::$name::new(value), seen: Seen::new() }
                }

                #[track_caller]
                pub fn load(&self, order: Ordering) -> $value {
                    self.seen.load();
                    self.value.load(order)
                }

                #[track_caller]
                pub fn store(&self, value: $value, order: Ordering) {
                    self.seen.write();
                    self.value.store(value, order);
                }

                #[track_caller]
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.seen.write();
                    self.value.swap(value, order)
                }

                #[track_caller]
                pub fn compare_exchange(
                    &self,
                    from: $value,
                    to: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.seen.write();
                    self.value.compare_exchange(from, to, success, failure)
                }

                $(
                    #[track_caller]
                    pub fn $add(&self, value: $value, order: Ordering) -> $value {
                        self.seen.write();
                        self.value.$add(value, order)
                    }
                )*
            }
        };
    }

    atomic!(AtomicBool, bool, fetch_or, fetch_and);
    atomic!(AtomicPtr<T>, *mut T);
    atomic!(AtomicU32, u32, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max);
    atomic!(AtomicU64, u64, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max);
    atomic!(AtomicUsize, usize, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max);
}

/// Whether the model checker is at work: it wants small arrays.
pub const MODELLED: bool = true;

pub use loom::thread_local;
pub use std::sync::{Arc, Weak};

pub mod thread {
    pub use loom::thread::{Thread, current, park};
}

/// loom's mutex with the engine's methods.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("loom's mutex is not poisoned")
    }

    pub fn try_lock(&self) -> Option<loom::sync::MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("loom's mutex is not poisoned")
    }
}

/// loom's checked cell.
#[derive(Debug, Default)]
pub struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        UnsafeCell(loom::cell::UnsafeCell::new(value))
    }

    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.0.with(f)
    }

    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.0.with_mut(f)
    }
}

/// A published value: all its versions, and an atomic index of the one in force.
///
/// The list is behind a lock that loom does not see: it keeps the versions alive and orders
/// nothing. What a reader may see is decided by the index alone.
pub struct Published<T> {
    at: atomic::AtomicUsize,
    versions: std::sync::Mutex<Vec<Arc<T>>>,
}

impl<T> Published<T> {
    pub fn new(value: T) -> Self {
        Published {
            at: atomic::AtomicUsize::new(0),
            versions: std::sync::Mutex::new(vec![Arc::new(value)]),
        }
    }

    pub fn load(&self) -> Arc<T> {
        let at = self.at.load(atomic::Ordering::Acquire);
        Arc::clone(&self.versions.lock().expect("not poisoned")[at])
    }

    pub fn store(&self, value: Arc<T>) {
        let at = {
            let mut versions = self.versions.lock().expect("not poisoned");
            versions.push(value);
            versions.len() - 1
        };
        self.at.store(at, atomic::Ordering::Release);
    }
}
