//! One thread against two, each with a handle of its own.
//!
//! Both start together (each waits on a core, not in the kernel, until the other is there), and a
//! batch ends when the last one does. A batch in which a thread was not on a core all the time says
//! how busy the machine is, not how the threads get on; it is recognised by the thread's own clock
//! standing still.
//!
//! What two threads have in common moves from one core's cache to the other's, and how long that
//! takes depends on where the machine, or the host of a virtual one, has put the two: some tens of
//! nanoseconds between neighbours, hundreds across a socket, and on a shared host it changes from
//! one second to the next. So each batch of two begins by measuring it.

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
    /// What it takes to hand one word from one thread to the other, in nanoseconds; of two threads.
    pub hand_over: Option<f64>,
}

/// Times that a word goes to and fro to measure what that takes.
const HAND_OVERS: usize = 400;

/// Alone on its cache lines.
#[repr(align(128))]
struct Word(AtomicUsize);

impl Word {
    /// One side of the hand-overs, `side` 0 or 1; nanoseconds for each.
    fn hand_over(&self, side: usize) -> f64 {
        let start = Instant::now();
        for turn in (side..2 * HAND_OVERS).step_by(2) {
            while self.0.load(Ordering::Acquire) != turn {
                spin_loop();
            }
            self.0.store(turn + 1, Ordering::Release);
        }
        start.elapsed().as_nanos() as f64 / (2 * HAND_OVERS) as f64
    }
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
    let (ready, word) = (AtomicUsize::new(0), Word(AtomicUsize::new(0)));
    let times = std::thread::scope(|scope| {
        let work: Vec<_> = work
            .iter()
            .enumerate()
            .map(|(thread, work)| {
                let (pool, ready, word) = (work.bench.pool.clone(), &ready, &word);
                scope.spawn(move || {
                    let from = thread * work.requests.len() / threads;
                    // Release and Acquire: nobody starts before all are there.
                    ready.fetch_add(1, Ordering::AcqRel);
                    while ready.load(Ordering::Acquire) < threads {
                        spin_loop();
                    }
                    let hand_over = (threads == 2).then(|| word.hand_over(thread));
                    let start = Instant::now();
                    let on_core = Clock::Thread.time(|| {
                        for at in from..from + each {
                            let request = &work.requests[at % work.requests.len()];
                            drop(black_box(work.bench.book_request(&pool, request)));
                        }
                    });
                    (start, Instant::now(), on_core, hand_over)
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join();
        work.into_iter().map(|thread| join(thread).expect("no check failed")).collect::<Vec<_>>()
    });
    let (mut start, mut end, mut least) = (times[0].0, times[0].1, times[0].2);
    for &(from, to, on_core, _) in &times {
        (start, end, least) = (start.min(from), end.max(to), least.min(on_core));
    }
    let wall = end - start;
    let longest = times
        .iter()
        .all(|(from, to, on_core, _)| (*to - *from).as_secs_f64() <= on_core.as_secs_f64() * SLACK);
    let together = wall.as_secs_f64() <= least.as_secs_f64() * 2.0;
    // The side that begins waits for the last answer no longer; the other one has seen all of them.
    let hand_over = times.last().and_then(|times| times.3);
    Batch { wall, undisturbed: longest && together, hand_over }
}

/// Two threads measured against one.
#[derive(Clone, Debug, Default)]
pub struct Scaling {
    /// Wall time per operation of two threads (`a`) and of one (`b`). The pair's ratio is the
    /// throughput of two over that of one.
    pub pair: Pair,
    /// What it took to hand one word from one thread to the other before each round, in
    /// nanoseconds.
    pub hand_over: Vec<f64>,
}

impl Scaling {
    /// Only the rounds in which a word took at most `nanoseconds` to the other thread.
    pub fn within(&self, nanoseconds: f64) -> Pair {
        let near = |times: &[f64]| {
            let both = times.iter().zip(&self.hand_over);
            both.filter(|(_, took)| **took <= nanoseconds).map(|(time, _)| *time).collect()
        };
        Pair { a: near(&self.pair.a), b: near(&self.pair.b) }
    }
}

/// Measures two threads and one in turn: `rounds` undisturbed pairs of batches, or as many as eight
/// times the tries gave.
pub fn two_against_one(first: &Bench, second: &Bench, each: usize, rounds: usize) -> Scaling {
    let (first, second) = (&Work::on(first), &Work::on(second));
    let mut scaling = Scaling::default();
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
            scaling.pair.a.push(two.per_op(2, each));
            scaling.pair.b.push(one.per_op(1, each));
            scaling.hand_over.push(two.hand_over.expect("of two threads"));
            if scaling.pair.a.len() == rounds {
                break;
            }
        }
    }
    scaling
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
        assert!(batch.hand_over.is_some_and(|took| took > 0.0));
        bench.check_rows();
    }

    #[test]
    fn rounds_are_chosen_by_what_a_hand_over_took() {
        let pair = Pair { a: vec![1.0, 2.0, 4.0], b: vec![2.0, 3.0, 4.0] };
        let scaling = Scaling { pair, hand_over: vec![300.0, 100.0, 40.0] };
        let near = scaling.within(100.0);
        assert_eq!((near.a, near.b), (vec![2.0, 4.0], vec![3.0, 4.0]));
        assert!(scaling.within(39.0).a.is_empty());
    }
}
