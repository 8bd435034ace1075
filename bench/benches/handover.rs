//! From a release to the admitted waiter, against the same hand-over built on
//! `tokio::sync::Notify`, in one run, in turn.
//!
//! Both sides use the same engine, the same one-seat pool, the same way of blocking a thread. With
//! `Notify`, whoever frees the seat notifies one waiter, which wakes up and books for itself; here
//! whoever frees the seat lets the waiter in, which wakes up with its booking. Measured from just
//! before the seat is freed to just after the waiter has its booking; each hand-over is checked.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;
use vacancy::{
    ClassSpec, Name, Pool, Profile, Rank, RejectThresholds, Request, Thresholds, WorkerSpec,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Unpark(Thread, AtomicBool);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.store(true, Ordering::Release);
        self.0.unpark();
    }
}

/// Blocks this thread on a future; `parked` counts how often it was left pending, so that the
/// other side can tell that the waiter sleeps.
fn block_on<F: Future>(future: F, parked: &AtomicUsize) -> F::Output {
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&unpark));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                parked.fetch_add(1, Ordering::Release);
                while !unpark.1.swap(false, Ordering::Acquire) {
                    std::thread::park();
                }
            }
        }
    }
}

fn limit() -> Thresholds {
    let mut thresholds = Thresholds::NONE;
    thresholds.prefill_tokens = Some(0);
    thresholds
}

fn percentile(sorted: &[u64], p: f64) -> u64 {
    sorted[((sorted.len() - 1) as f64 * p) as usize]
}

/// Runs `count` hand-overs; `wait` blocks until it has the seat and gives it back to be timed.
fn hand_over<S: Send>(
    count: usize,
    take: impl Fn() -> S,
    free: impl Fn(S),
    wait: impl Fn(&AtomicUsize) -> S + Sync,
) -> Vec<u64> {
    let parked = AtomicUsize::new(0);
    let (go, begin) = mpsc::channel::<()>();
    let (done, took) = mpsc::channel::<Instant>();
    std::thread::scope(|scope| {
        let (parked, wait, free) = (&parked, &wait, &free);
        let (seats, freed) = mpsc::channel::<S>();
        scope.spawn(move || {
            for () in begin {
                let seat = wait(parked);
                done.send(Instant::now()).expect("the other side waits for it");
                seats.send(seat).expect("the other side waits for it");
            }
        });
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let seat = take();
            let before = parked.load(Ordering::Acquire);
            go.send(()).expect("the waiter is there");
            while parked.load(Ordering::Acquire) == before {
                std::hint::spin_loop();
            }
            // It has stored its waker; give it the time to park for good.
            for _ in 0..2_000 {
                std::hint::spin_loop();
            }
            let freed_at = Instant::now();
            free(seat);
            let in_at = took.recv().expect("the waiter answers");
            times.push(in_at.duration_since(freed_at).as_nanos() as u64);
            free(freed.recv().expect("the waiter hands its seat over"));
        }
        drop(go);
        times
    })
}

fn main() {
    // `cargo test --benches` and friends pass arguments of their own: one short run then.
    let quick = std::env::args().any(|arg| arg == "--test");
    let (rounds, count) = if quick { (1, 20) } else { (9, 2_000) };

    let class = ClassSpec::new("c", 100).family("f", "all").thresholds(limit());
    let profile = Arc::new(
        Profile::new("f", [(0, Name::new("all"))], [class]).expect("the profile is valid"),
    );
    let ours = Pool::builder().policy(&profile).build().expect("the pool is valid");
    ours.upsert(WorkerSpec::new(1)).expect("the worker is valid");
    let rejects = RejectThresholds::new(limit()).expect("the thresholds are valid");
    let theirs = Pool::builder().reject_thresholds(rejects).build().expect("the pool is valid");
    theirs.upsert(WorkerSpec::new(1)).expect("the worker is valid");
    let notify = tokio::sync::Notify::new();
    let request = || Request::new(16);

    let (mut admit, mut notified) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        admit.extend(hand_over(
            count,
            || ours.admit(request()).try_take().expect("the seat is free").expect("admitted"),
            drop,
            |parked| {
                let admitted = block_on(ours.admit(request()), parked).expect("let in");
                assert!(admitted.waited);
                admitted
            },
        ));
        notified.extend(hand_over(
            count,
            || theirs.book(&request()).expect("the seat is free"),
            |seat| {
                drop(seat);
                notify.notify_one();
            },
            |parked| {
                block_on(
                    async {
                        loop {
                            let told = notify.notified();
                            if let Ok(booking) = theirs.book(&request()) {
                                return booking;
                            }
                            told.await;
                        }
                    },
                    parked,
                )
            },
        ));
        // A notification that nobody waited for must not let the next one in early.
        while block_on(
            async {
                std::future::poll_fn(|cx| Poll::Ready(pin!(notify.notified()).poll(cx).is_ready()))
                    .await
            },
            &AtomicUsize::new(0),
        ) {}
    }
    for pool in [&ours, &theirs] {
        let load = pool.load(Rank::new(1, 0)).expect("the rank is declared");
        assert_eq!((load.prefill_tokens, load.requests), (0, 0), "everything was given back");
    }
    for (name, times) in [("admit", &mut admit), ("notify", &mut notified)] {
        times.sort_unstable();
        println!(
            "release_to_admitted/{name}: p50 {} ns, p90 {} ns, p99 {} ns, max {} ns, n {}",
            percentile(times, 0.5),
            percentile(times, 0.9),
            percentile(times, 0.99),
            percentile(times, 1.0),
            times.len(),
        );
    }
    let ratio = percentile(&admit, 0.5) as f64 / percentile(&notified, 0.5) as f64;
    println!("release_to_admitted: p50 of admit is {ratio:.3} times that of notify");
}
