//! A newcomer takes the own rank, is refused room at the pair, and gives the rank back, while
//! somebody who needs no pair enters the queue for that rank.

use super::load::slot;
use super::pool::{Entry, ONE, Pool, Refused, spawn};
use super::queue::waiter::Fate;
use crate::sync::Arc;
use std::sync::Mutex as Unseen;
use vacancy_loom_tests::explore::reached;

pub(crate) const BRANCHES: &[&str] =
    &["the newcomer got both", "its own look let it in", "the roll-back let it in"];

pub(crate) fn run() {
    // One place here; one at the pair, which is taken at that moment.
    let decode = Pool::new(0, 0, u64::MAX, None);
    let prefill = Pool::holding(0, 0, decode.clone());
    let took = Arc::new(Unseen::new(None));
    let newcomer = spawn("newcomer", {
        let (prefill, took) = (prefill.clone(), took.clone());
        // Of a class that never queues: once it is refused, it is gone.
        move || *took.lock().expect("not poisoned") = Some(prefill.attempt(&Entry::new(), false))
    });
    let filler = spawn("filler", move || {
        let _ = slot::add(&decode.row, ONE, |row| row.tokens() == 0);
    });
    let entry = Entry::unpaired();
    prefill.enqueue(&entry).expect("the pool is open");
    newcomer.join().expect("the newcomer ends");
    filler.join().expect("the filler ends");
    let took = took.lock().expect("not poisoned").expect("it has tried");
    if took.is_ok() {
        reached("the newcomer got both");
        return;
    }
    assert_eq!(entry.fate(false), Some(Fate::Ready(())), "a waiter sleeps beside room");
    assert_eq!(prefill.carries(), 1, "the row is what was booked");
    match (took, &prefill.let_in_by.lock().expect("not poisoned")[..]) {
        (_, ["main"]) => reached("its own look let it in"),
        (Err(Refused::RolledBack), ["newcomer"]) => reached("the roll-back let it in"),
        other => panic!("let in by {other:?}"),
    }
}
