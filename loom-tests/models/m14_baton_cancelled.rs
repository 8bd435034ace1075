//! A drain stops at its bound and hands on to somebody who is cancelled at that moment.

use super::m14_baton_polled::run_woken;
use super::pool::{Entry, Load, Pool, spawn};
use super::queue::waiter::{Cancelled, Polled};
use std::sync::atomic::Ordering;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] = &["cancelled with the baton", "cancelled without the baton"];

pub(crate) fn run() {
    let pool = Pool::new(2, 3, 1, None);
    let entries = [(); 3].map(|()| Entry::new());
    for entry in &entries {
        pool.enqueue(entry).expect("the pool is open");
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
    match pool.cancel(&entries[2]) {
        Cancelled::Withdrawn { baton: true } => reached("cancelled with the baton"),
        Cancelled::Withdrawn { baton: false } => reached("cancelled without the baton"),
        other => panic!("nobody drains far enough to choose it: {other:?}"),
    }
    releaser.join().expect("the releaser ends");
    let mut let_in = [false; 2];
    run_woken(&pool, &entries[..2], &mut let_in);
    assert_eq!(let_in, [true; 2], "a waiter sleeps beside room");
    assert_eq!(pool.carries(), 2, "what nobody holds was given back");
}
