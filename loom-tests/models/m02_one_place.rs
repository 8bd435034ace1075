//! Two wait for one place; it is released while the first to wait is cancelled: if it was chosen,
//! what it gives back lets the second in.

use super::pool::{Entry, ONE, Pool, spawn};
use super::queue::waiter::{Cancelled, Fate, Polled};
use std::sync::atomic::Ordering;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] = &[
    "cancelled while it waited",
    "cancelled after it was chosen",
    "the second was let in by the cancel",
    "the second was let in by the release",
    "the second found itself let in at its poll",
    "the second was woken",
];

pub(crate) fn run() {
    let pool = Pool::new(0, 1, u64::MAX, None);
    let (first, second) = (Entry::new(), Entry::new());
    for entry in [&first, &second] {
        pool.enqueue(entry).expect("the pool is open");
    }
    let releaser = spawn("releaser", {
        let pool = pool.clone();
        move || pool.release(ONE)
    });
    let canceller = spawn("canceller", {
        let pool = pool.clone();
        move || match pool.cancel(&first) {
            Cancelled::Withdrawn { .. } => reached("cancelled while it waited"),
            Cancelled::Chosen(()) => reached("cancelled after it was chosen"),
            Cancelled::Over => {}
        }
    });
    let polled = second.poll();
    let found = matches!(polled, Polled::Done(_));
    releaser.join().expect("the releaser ends");
    canceller.join().expect("the canceller ends");
    let woken = second.woken.load(Ordering::Relaxed) > 0;
    let let_in = match polled {
        Polled::Pending => second.fate(false) == Some(Fate::Ready(())),
        polled => matches!(polled, Polled::Done(Fate::Ready(()))),
    };
    assert_eq!(pool.carries(), u32::from(let_in), "what nobody holds was given back");
    assert!(let_in && (found || woken), "a waiter sleeps beside room");
    reached(if found {
        "the second found itself let in at its poll"
    } else {
        "the second was woken"
    });
    match pool.let_in_by.lock().expect("not poisoned").last() {
        Some(&"canceller") => reached("the second was let in by the cancel"),
        Some(&"releaser") => reached("the second was let in by the release"),
        other => panic!("let in by {other:?}"),
    }
    assert_eq!((pool.waiting.count(), pool.signal.registered()), (0, 0), "nothing is left waiting");
}
