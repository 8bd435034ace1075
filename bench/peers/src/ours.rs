//! This engine. A request is built anew for every call, as a host would, inside the clock.

use crate::contest::{Contestant, Field, Promise};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use vacancy::{Pool, Prompt, Request, RequestId};
use vacancy_bench::engine::{Bench, Mode, admit};
use vacancy_bench::measure::Clock;
use vacancy_bench::workload::PROMPT_TOKENS;

/// Ids of bookings that come and go, far from those of the live ones.
const FIRST_ID: u128 = 1 << 64;

pub struct Ours {
    bench: Bench,
    prompts: Vec<Prompt>,
    mode: Mode,
    threads: usize,
    by_id: bool,
    clock: Clock,
}

impl Ours {
    fn new(field: &Field, mode: Mode) -> Ours {
        let bench = Bench::new(field.workload.ranks, mode);
        let prompt = |chain: &[u64; 16]| Prompt::new(*chain).expect("hashes differ");
        let prompts = bench.workload.chains.iter().map(prompt).collect();
        Ours { bench, prompts, mode, threads: 1, by_id: false, clock: field.clock }
    }

    /// No limits.
    pub fn off(field: &Field) -> Ours {
        Ours::new(field, Mode::Off)
    }

    /// Under the reject thresholds.
    pub fn reject(field: &Field) -> Ours {
        Ours::new(field, Mode::Reject)
    }

    /// Admitted through a policy class with thresholds.
    pub fn gate(field: &Field) -> Ours {
        Ours::new(field, Mode::Gate)
    }

    pub fn threads(mut self, threads: usize) -> Ours {
        self.threads = threads;
        self
    }

    /// Books under an id and frees by it.
    pub fn by_id(mut self) -> Ours {
        self.by_id = true;
        self
    }

    /// One request's way through.
    #[inline]
    fn one(&self, pool: &Pool, at: usize) -> u32 {
        let draws = &self.bench.workload.draws;
        let prompt = self.prompts[draws[at % draws.len()] as usize].clone();
        let request = Request::new(u64::from(PROMPT_TOKENS)).prompt(prompt);
        if self.by_id {
            let id = RequestId(FIRST_ID + at as u128);
            let placed = pool.book_as(id, &request).expect("most ranks have room");
            pool.free(id);
            return placed.choice.rank.worker.0 as u32;
        }
        let booking = if self.mode == Mode::Gate {
            admit(pool, request)
        } else {
            pool.book(&request).expect("most ranks have room")
        };
        booking.choice().rank.worker.0 as u32
    }
}

impl Contestant for Ours {
    fn run(&mut self, at: usize, ops: usize, chosen: &mut Vec<u32>) -> Duration {
        if self.threads == 1 {
            let pool = &self.bench.pool;
            return self.clock.time(|| chosen.extend((at..at + ops).map(|at| self.one(pool, at))));
        }
        let barrier = Barrier::new(self.threads + 1);
        let this = &*self;
        std::thread::scope(|scope| {
            let work = |thread: usize| {
                let (pool, barrier) = (this.bench.pool.clone(), &barrier);
                scope.spawn(move || {
                    let mine = (at..at + ops).skip(thread).step_by(this.threads);
                    let mut chosen = Vec::with_capacity(ops);
                    barrier.wait();
                    chosen.extend(mine.map(|at| this.one(&pool, at)));
                    (Instant::now(), chosen)
                })
            };
            let threads: Vec<_> = (0..this.threads).map(work).collect();
            barrier.wait();
            let start = Instant::now();
            let mut end = start;
            for thread in threads {
                let (done, ranks) = thread.join().expect("no check failed");
                end = end.max(done);
                chosen.extend(ranks);
            }
            end - start
        })
    }

    fn promise(&self) -> Promise {
        Promise { exact: self.threads == 1, judges_room: self.mode == Mode::Reject }
    }

    fn check_settled(&mut self) {
        self.bench.check_rows();
    }
}
