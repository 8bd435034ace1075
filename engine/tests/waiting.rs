//! Sentences of the contract about waiting that need threads or futures.

use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use vacancy::*;

fn one_class(class: ClassSpec) -> Arc<Profile> {
    let profile = Profile::new("f", [(0, Name::new("all"))], [class.family("f", "all")]);
    Arc::new(profile.unwrap())
}

/// A class that waits as soon as anything is booked.
fn strict() -> Arc<Profile> {
    let mut thresholds = Thresholds::NONE;
    thresholds.prefill_tokens = Some(0);
    one_class(ClassSpec::new("c", 100).thresholds(thresholds))
}

#[test]
fn one_that_waits_goes_in_when_room_comes_free() {
    let pool = Pool::builder().policy(&strict()).build().unwrap();
    pool.upsert(WorkerSpec::new(1)).unwrap();
    let mut first = pool.admit(Request::new(10));
    let first = first.try_take().unwrap().unwrap();
    assert!(!first.waited);
    let mut second = pool.admit(Request::new(10));
    assert!(second.try_take().is_none());
    assert_eq!(second.standing().map(|s| (s.why, s.ahead)), Some((Why::OwnPrefill, 0)));
    let third = pool.admit(Request::new(10));
    assert_eq!(third.standing().map(|s| (s.why, s.ahead)), Some((Why::OwnPrefill, 1)));
    drop(first);
    let second = second.try_take().unwrap().unwrap();
    assert!(second.waited);
    assert!(third.is_waiting());
    drop(second);
    assert!(!third.is_waiting());
    drop(third);
    assert_eq!(pool.load(Rank::new(1, 0)).unwrap().prefill_tokens, 0);
}

#[test]
fn of_64_threads_that_admit_at_once_one_goes_in_and_each_free_lets_one_in() {
    const THREADS: usize = 64;
    let rounds = 20;
    let pool = Pool::builder().policy(&strict()).build().unwrap();
    pool.upsert(WorkerSpec::new(1)).unwrap();
    let (active, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let pool = pool.clone();
            let (active, most, barrier) = (&active, &most, &barrier);
            scope.spawn(move || {
                for _ in 0..rounds {
                    barrier.wait();
                    let admitted = pool.admit(Request::new(10)).wait().unwrap();
                    most.fetch_max(active.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    active.fetch_sub(1, Ordering::SeqCst);
                    drop(admitted);
                }
            });
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert_eq!(pool.load(Rank::new(1, 0)).unwrap().requests, 0);
}

/// The quanta of two classes are equal, all costs are 3, one goes in at a time.
#[test]
fn classes_take_turns_by_deficit() {
    let mut thresholds = Thresholds::NONE;
    thresholds.prefill_tokens = Some(0);
    let classes = [
        ClassSpec::new("a", 10).thresholds(thresholds),
        ClassSpec::new("b", 10).thresholds(thresholds),
        ClassSpec::new("d", 1).family("f", "all"),
    ];
    let profile = Arc::new(Profile::new("f", [(0, Name::new("all"))], classes).unwrap());
    let pool = Pool::builder().track_blocks(false).policy(&profile).build().unwrap();
    pool.upsert(WorkerSpec::new(1)).unwrap();
    let first = pool.book(&Request::new(3)).unwrap();
    let mut waiting: Vec<(String, Admit)> = ["a", "b"]
        .into_iter()
        .flat_map(|class| (1..=4).map(move |i| (class, i)))
        .map(|(class, i)| (format!("{class}{i}"), pool.admit(Request::new(3).class(class))))
        .collect();
    drop(first);
    let mut order = Vec::new();
    while !waiting.is_empty() {
        let at = waiting.iter_mut().position(|(_, admit)| !admit.is_waiting()).expect("one is in");
        let (name, admit) = waiting.remove(at);
        assert!(waiting.iter().all(|(_, admit)| admit.is_waiting()), "one at a time");
        order.push(name);
        drop(admit);
    }
    assert_eq!(order, ["a1", "a2", "a3", "b1", "b2", "b3", "a4", "b4"]);
}
