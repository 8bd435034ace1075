//! Host code runs with nothing of ours held: while it blocks, everybody else goes on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use vacancy::*;

const THREADS: usize = 2;
const OPERATIONS: usize = 1_000_000;
/// Requests with these priorities are parked, one in the scorer and one in the observer.
const PARK_IN_SCORER: i64 = 1;
const PARK_IN_OBSERVER: i64 = 2;

/// A door that whoever comes to it waits at until it is opened.
#[derive(Default)]
struct Door {
    open: Mutex<bool>,
    moved: Condvar,
    waiting: AtomicUsize,
}

impl Door {
    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.moved.wait(open).unwrap();
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.moved.notify_all();
    }

    fn wait_until_they_wait(&self, many: usize) {
        while self.waiting.load(Ordering::SeqCst) < many {
            std::thread::yield_now();
        }
    }
}

/// Scores and observes, and parks the requests that are marked for it.
struct Parking(Arc<Door>);

impl Scorer for Parking {
    fn name(&self) -> &str {
        "parking"
    }

    fn score(&self, columns: &Columns<'_>, cost: &mut [f64]) -> Result<(), PolicyError> {
        if columns.request.strict_priority == PARK_IN_SCORER {
            self.0.pass();
        }
        for (cost, &requests) in cost.iter_mut().zip(columns.requests) {
            *cost += f64::from(requests);
        }
        Ok(())
    }
}

impl Observer for Parking {
    fn name(&self) -> &str {
        "parking"
    }

    fn observe(&self, observed: &Observed<'_>) {
        if observed.columns.request.strict_priority == PARK_IN_OBSERVER {
            self.0.pass();
        }
    }
}

fn spec(worker: u64) -> WorkerSpec {
    WorkerSpec::new(worker).max_num_batched_tokens(8192).total_kv_blocks(1000)
}

#[test]
fn with_one_thread_parked_in_a_scorer_and_one_in_an_observer_the_others_go_on() {
    let door = Arc::new(Door::default());
    let pool = Pool::builder()
        .scorer(Arc::new(Parking(Arc::clone(&door))))
        .observer(Arc::new(Parking(Arc::clone(&door))))
        .build()
        .unwrap();
    for worker in 0..4 {
        pool.upsert(spec(worker)).unwrap();
    }
    let prompt = Prompt::new([1, 2, 3, 4]).unwrap();
    let request = Request::new(64).prompt(prompt);

    std::thread::scope(|scope| {
        let parked: Vec<_> = [PARK_IN_SCORER, PARK_IN_OBSERVER]
            .into_iter()
            .map(|mark| {
                let (pool, request) = (pool.clone(), request.clone().strict_priority(mark));
                scope.spawn(move || pool.book(&request).map(|booking| booking.rank()))
            })
            .collect();
        door.wait_until_they_wait(2);

        let others: Vec<_> = (0..THREADS)
            .map(|_| {
                let (pool, request) = (pool.clone(), &request);
                scope.spawn(move || {
                    for _ in 0..OPERATIONS / THREADS {
                        let choice = pool.select(request).unwrap();
                        assert!(choice.rank.worker.0 < 5);
                        pool.book(request).unwrap().free();
                    }
                })
            })
            .collect();
        // The fleet and the thresholds change as well, and the worker that a parked thread has in
        // its columns leaves and comes back as another incarnation.
        let rejects = pool.reject_thresholds().clone();
        for _ in 0..100 {
            pool.upsert(spec(4)).unwrap();
            rejects.set(Thresholds::NONE.decode_frac(0.9)).unwrap();
            pool.remove(WorkerId(4));
            rejects.clear();
            pool.remove(WorkerId(0));
            pool.upsert(spec(0)).unwrap();
        }
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(door.waiting.load(Ordering::SeqCst), 2, "both are still parked");

        door.open();
        for parked in parked {
            assert!(parked.join().unwrap().unwrap().worker.0 < 4);
        }
    });
    for (rank, load) in pool.snapshot().ranks {
        assert_eq!((load.prefill_tokens, load.kv_blocks, load.requests), (0, 0, 0), "{rank}");
    }
}
