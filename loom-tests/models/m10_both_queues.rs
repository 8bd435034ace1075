//! One release at the decode pool: its own waiter goes in, and so does one who enters the prefill
//! pool's queue at that moment.

use super::pool::{Entry, Load, Pool, spawn};
use super::queue::waiter::Fate;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] =
    &["the prefill queue was drained by its own look", "the prefill queue was woken"];

pub(crate) fn run() {
    // Room for the decode pool's own waiter, and room left for the prefill pool to see.
    let decode = Pool::new(1, 2, u64::MAX, None);
    let prefill = Pool::new(1, 0, u64::MAX, Some(decode.clone()));
    let (own, other) = (Entry::new(), Entry::new());
    decode.enqueue(&own).expect("the pool is open");
    let releaser = spawn("releaser", {
        let decode = decode.clone();
        move || decode.release(Load::new(2, 0))
    });
    prefill.enqueue(&other).expect("the pool is open");
    releaser.join().expect("the releaser ends");
    assert_eq!(own.fate(false), Some(Fate::Ready(())), "a waiter sleeps beside room");
    assert_eq!(other.fate(false), Some(Fate::Ready(())), "the paired pool's queue was not woken");
    match prefill.let_in_by.lock().expect("not poisoned")[..] {
        ["main"] => reached("the prefill queue was drained by its own look"),
        ["releaser"] => reached("the prefill queue was woken"),
        ref by => panic!("let in by {by:?}"),
    }
    assert_eq!((decode.signal.registered(), prefill.signal.registered()), (0, 0));
}
