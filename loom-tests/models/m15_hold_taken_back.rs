//! Room is set aside at the pair for one who is cancelled, and taken back, while somebody waits for
//! that room at the pair.

use super::pool::{Entry, ONE, Pool, spawn};
use super::queue::waiter::{Cancelled, Fate};
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] = &[
    "cancelled while it waited",
    "cancelled with a hold",
    "let in at the pair by its own look",
    "let in at the pair by what was taken back",
];

pub(crate) fn run() {
    let decode = Pool::new(0, 0, u64::MAX, None);
    let prefill = Pool::holding(0, 1, decode.clone());
    let leaver = Entry::new();
    prefill.enqueue(&leaver).expect("the pool is open");
    let releaser = spawn("releaser", {
        let prefill = prefill.clone();
        move || prefill.release(ONE)
    });
    let canceller = spawn("canceller", {
        let prefill = prefill.clone();
        move || match prefill.cancel(&leaver) {
            Cancelled::Withdrawn { .. } => reached("cancelled while it waited"),
            Cancelled::Chosen(()) => reached("cancelled with a hold"),
            Cancelled::Over => panic!("it was neither waiting nor chosen"),
        }
    });
    let entry = Entry::new();
    decode.enqueue(&entry).expect("the pool is open");
    releaser.join().expect("the releaser ends");
    canceller.join().expect("the canceller ends");
    assert_eq!(entry.fate(false), Some(Fate::Ready(())), "a waiter sleeps beside room");
    match decode.let_in_by.lock().expect("not poisoned")[..] {
        ["main"] => reached("let in at the pair by its own look"),
        _ => reached("let in at the pair by what was taken back"),
    }
    assert_eq!((prefill.carries(), decode.carries()), (0, 1), "what nobody holds was given back");
}
