//! One thread against two, each with a handle of its own.
//!
//! Both start together (each waits on a core, not in the kernel, until the other is there), and a
//! batch ends when the last one does. A batch in which a thread was not on a core all the time says
//! how busy the machine is, not how the threads get on; it is recognised by the thread's own clock
//! standing still.

use crate::engine::Bench;
use crate::measure::{Clock, Pair};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vacancy::Request;

/// How much longer than its time on a core a batch may take and count as undisturbed.
const SLACK: f64 = 1.03;

/// One batch.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// From the first start to the last end.
    pub wall: Duration,
    /// Whether all threads were on a core all the time.
    pub undisturbed: bool,
}

impl Batch {
    /// Wall time per operation, over all threads, in nanoseconds.
    pub fn per_op(&self, threads: usize, each: usize) -> f64 {
        self.wall.as_nanos() as f64 / (threads * each) as f64
    }
}

/// What one thread works on: a bench, by a stream of its own.
pub struct Work<'a> {
    bench: &'a Bench,
    requests: Vec<Request>,
}

impl<'a> Work<'a> {
    /// One thread's work on a bench.
    pub fn on(bench: &'a Bench) -> Work<'a> {
        Work { bench, requests: bench.stream() }
    }
}

/// One thread per `work` (whose benches may all be the same one): each books and frees `each`
/// requests, elsewhere in the stream than the others.
pub fn batch(work: &[&Work<'_>], each: usize) -> Batch {
    let threads = work.len();
    let ready = AtomicUsize::new(0);
    let times = std::thread::scope(|scope| {
        let work: Vec<_> = work
            .iter()
            .enumerate()
            .map(|(thread, work)| {
                let (pool, ready) = (work.bench.pool.clone(), &ready);
                scope.spawn(move || {
                    let from = thread * work.requests.len() / threads;
                    // Release and Acquire: nobody starts before all are there.
                    ready.fetch_add(1, Ordering::AcqRel);
                    while ready.load(Ordering::Acquire) < threads {
                        spin_loop();
                    }
                    let start = Instant::now();
                    let on_core = Clock::Thread.time(|| {
                        for at in from..from + each {
                            let request = &work.requests[at % work.requests.len()];
                            drop(black_box(work.bench.book_request(&pool, request)));
                        }
                    });
                    (start, Instant::now(), on_core)
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join();
        work.into_iter().map(|thread| join(thread).expect("no check failed")).collect::<Vec<_>>()
    });
    let (mut start, mut end, mut least) = (times[0].0, times[0].1, times[0].2);
    for &(from, to, on_core) in &times {
        (start, end, least) = (start.min(from), end.max(to), least.min(on_core));
    }
    let wall = end - start;
    let longest = times
        .iter()
        .all(|(from, to, on_core)| (*to - *from).as_secs_f64() <= on_core.as_secs_f64() * SLACK);
    let together = wall.as_secs_f64() <= least.as_secs_f64() * 2.0;
    Batch { wall, undisturbed: longest && together }
}

/// Wall time per operation of two threads (`a`) and of one (`b`), measured in turn: `rounds`
/// undisturbed pairs of batches, or as many as eight times the tries gave. The pair's ratio is the
/// throughput of two over that of one.
pub fn two_against_one(first: &Bench, second: &Bench, each: usize, rounds: usize) -> Pair {
    let (first, second) = (&Work::on(first), &Work::on(second));
    let mut pair = Pair::default();
    for round in 0..rounds * 8 {
        let (one, two);
        if round % 2 == 0 {
            one = batch(&[first], each);
            two = batch(&[first, second], each);
        } else {
            two = batch(&[first, second], each);
            one = batch(&[first], each);
        }
        // The first round warms up.
        if round > 0 && one.undisturbed && two.undisturbed {
            pair.a.push(two.per_op(2, each));
            pair.b.push(one.per_op(1, each));
            if pair.a.len() == rounds {
                break;
            }
        }
    }
    pair
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Mode;

    #[test]
    fn both_threads_do_all_of_their_work_and_leave_nothing() {
        let bench = Bench::new(64, Mode::Reject);
        let before = bench.pool.snapshot().counters.selected;
        let batch = batch(&[&Work::on(&bench), &Work::on(&bench)], 500);
        assert_eq!(bench.pool.snapshot().counters.selected - before, 1000);
        assert!(batch.per_op(2, 500) > 0.0);
        bench.check_rows();
    }
}
