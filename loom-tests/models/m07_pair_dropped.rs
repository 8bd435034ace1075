//! The pair is dropped by its owner while it is asked: by a newcomer, and for one who waits. It was
//! full, and has room once it is gone.

use super::pool::{Entry, Pool, Refused, spawn};
use super::queue::waiter::Fate;
use std::sync::atomic::Ordering;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] = &[
    "the newcomer found it gone",
    "the newcomer was refused",
    "whoever asked had the last reference",
    "let in by the one who came behind",
    "let in by the owner's drop",
];

pub(crate) fn run() {
    let decode = Pool::new(0, 1, u64::MAX, None);
    let prefill = Pool::weakly_paired(3, decode.clone());
    let waits = Entry::new();
    prefill.enqueue(&waits).expect("the pool is open");
    let owner = spawn("owner", move || {
        decode.let_go();
    });
    let newcomer = Entry::new();
    match prefill.attempt(&newcomer, false) {
        Ok(()) => reached("the newcomer found it gone"),
        Err(Refused::Pair) => {
            reached("the newcomer was refused");
            prefill.enqueue(&newcomer).expect("the pool is open");
        }
        Err(refused) => panic!("{refused:?}: its own rank has room"),
    }
    owner.join().expect("the owner ends");
    assert_eq!(waits.fate(false), Some(Fate::Ready(())), "a waiter sleeps for a pair that is gone");
    assert_eq!(prefill.waiting.count(), 0, "a waiter sleeps for a pair that is gone");
    assert_eq!(prefill.carries(), 2, "both are in");
    if prefill.let_go_last.load(Ordering::Relaxed) {
        reached("whoever asked had the last reference");
    }
    match prefill.let_in_by.lock().expect("not poisoned")[0] {
        "main" => reached("let in by the one who came behind"),
        "owner" => reached("let in by the owner's drop"),
        by => panic!("let in by {by:?}"),
    }
}
