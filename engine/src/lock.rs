//! A lock that is held for tens or hundreds of nanoseconds.
//!
//! Who finds it taken waits on its core for about as long as giving the core up and getting it back
//! would take, and only then sleeps. The mutex underneath does sleep, but before that it waits for a
//! tenth of that time and then yields, which is a call into the kernel: of two threads that now and
//! then book on one rank at the same moment, both lost more by those calls than by all lines of
//! memory that they share.
#![forbid(unsafe_code)]

use parking_lot::MutexGuard;
use std::hint::spin_loop;

/// How often it is looked at before sleeping, and how long is waited in between: in all one to five
/// microseconds, by the processor.
const LOOKS: usize = 16;
const PAUSES: usize = 4;

/// A mutex for short work; see the head of this file. Not poisoned by a panic.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        for _ in 0..LOOKS {
            (0..PAUSES).for_each(|_| spin_loop());
            // Looked at before it is tried: a try takes the line away from who holds the lock.
            if !self.0.is_locked()
                && let Some(guard) = self.0.try_lock()
            {
                return guard;
            }
        }
        self.0.lock()
    }

    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn one_holds_it_at_a_time_whether_the_others_wait_briefly_or_sleep() {
        for held in [Duration::ZERO, Duration::from_millis(2)] {
            let (mut counted, rounds) =
                (Mutex::new((0, false)), if held.is_zero() { 20_000 } else { 10 });
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..rounds {
                            let mut guard = counted.lock();
                            assert!(!std::mem::replace(&mut guard.1, true), "two hold it");
                            if !held.is_zero() {
                                thread::sleep(held);
                            }
                            guard.0 += 1;
                            guard.1 = false;
                        }
                    });
                }
            });
            assert_eq!(*counted.get_mut(), (4 * rounds, false));
        }
    }

    #[test]
    fn a_try_does_not_wait_and_a_panic_does_not_poison() {
        let lock = Mutex::new(1);
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        let panicked = thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _guard = lock.lock();
                    std::panic::resume_unwind(Box::new("a holder that fails"));
                })
                .join()
        });
        assert!(panicked.is_err());
        assert_eq!(lock.try_lock().as_deref(), Some(&1));
    }
}
