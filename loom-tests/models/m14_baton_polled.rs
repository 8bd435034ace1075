//! A drain stops at its bound and hands on to somebody who is polled at that moment.

use super::pool::{Drained, Entry, Load, Pool, spawn};
use super::queue::waiter::{Fate, Polled};
use crate::sync::Arc;
use std::sync::atomic::Ordering;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] =
    &["the holder drained at once", "the holder drained when it was woken"];

/// The executor: polls whoever was woken, until nobody is.
pub(crate) fn run_woken(pool: &Arc<Pool>, entries: &[Arc<Entry>], let_in: &mut [bool]) {
    while let Some(at) = entries.iter().position(|e| e.woken.swap(0, Ordering::Relaxed) > 0) {
        while !let_in[at] {
            match entries[at].poll() {
                Polled::Pending => break,
                Polled::Baton => {
                    pool.drain();
                }
                Polled::Done(fate) => {
                    assert_eq!(fate, Fate::Ready(()));
                    let_in[at] = true;
                }
            }
        }
    }
}

pub(crate) fn run() {
    // Three places, released at once; a drain lets one in and hands on.
    let pool = Pool::new(2, 3, 1, None);
    let entries = [(); 3].map(|()| Entry::new());
    for entry in &entries {
        pool.enqueue(entry).expect("the pool is open");
        // The look of its own has handed the baton to it; it drains, in vain.
        while matches!(entry.poll(), Polled::Baton) {
            pool.drain();
        }
    }
    for entry in &entries {
        entry.woken.store(0, Ordering::Relaxed);
    }
    let releaser = spawn("releaser", {
        let pool = pool.clone();
        move || pool.release(Load::new(3, 0))
    });
    let mut let_in = [false; 3];
    match entries[2].poll() {
        Polled::Baton => {
            reached("the holder drained at once");
            let drained = pool.drain();
            assert_ne!(drained, Drained::Marked, "the baton was handed on before it was let go");
        }
        Polled::Pending => {}
        Polled::Done(fate) => {
            assert_eq!(fate, Fate::Ready(()));
            let_in[2] = true;
        }
    }
    releaser.join().expect("the releaser ends");
    if entries[2].woken.load(Ordering::Relaxed) > 0 && entries[1].woken.load(Ordering::Relaxed) == 0
    {
        reached("the holder drained when it was woken");
    }
    // What the poll above took off the executor's hands it would have gone on with.
    while !let_in[2] {
        match entries[2].poll() {
            Polled::Pending => break,
            Polled::Baton => {
                pool.drain();
            }
            Polled::Done(_) => let_in[2] = true,
        }
    }
    run_woken(&pool, &entries, &mut let_in);
    assert_eq!(let_in, [true; 3], "a waiter sleeps beside room");
    assert_eq!(pool.carries(), 3, "the row is what was booked");
}
