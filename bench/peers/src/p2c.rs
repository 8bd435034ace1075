//! The power of two choices: two ranks drawn at random, the one with fewer requests taken.
//!
//! [`Atomic`] is the least that a correct one can be: one word per rank that is booked by
//! compare-and-swap under the same limits, a count of requests, no prompt blocks shared or even
//! looked at. [`SameBooking`] draws the same way and then books through this engine, prompt blocks
//! and all: what is compared is the choice.

use crate::contest::{Contestant, Field, Promise};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use vacancy::{Prompt, Rank, Request, RequestId};
use vacancy_bench::engine::{Bench, Mode};
use vacancy_bench::measure::Clock;
use vacancy_bench::workload::{
    DECODE_FRAC, LIVE_PER_RANK, MAX_NUM_BATCHED_TOKENS, PREFILL_FRAC, PROMPT_BLOCKS, PROMPT_TOKENS,
    Random,
};

struct Rank64 {
    /// Tokens in the low half, blocks in the high one.
    row: AtomicU64,
    requests: AtomicU32,
    max_tokens: u32,
    max_blocks: u32,
}

impl Rank64 {
    fn is_full(&self, row: u64) -> bool {
        row as u32 > self.max_tokens || (row >> 32) as u32 > self.max_blocks
    }

    fn book(&self) -> bool {
        let mut row = self.row.load(Ordering::Acquire);
        loop {
            if self.is_full(row) {
                return false;
            }
            match self.row.compare_exchange(row, row + LOAD, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.requests.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
                Err(seen) => row = seen,
            }
        }
    }

    fn free(&self) {
        self.row.fetch_sub(LOAD, Ordering::AcqRel);
        self.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

const LOAD: u64 = (PROMPT_BLOCKS as u64) << 32 | PROMPT_TOKENS as u64;

/// Two random choices over atomic rows.
pub struct Atomic {
    ranks: Vec<Rank64>,
    random: Random,
    before: Vec<u64>,
}

impl Atomic {
    pub fn new(field: &Field) -> Atomic {
        let oracle = field.oracle();
        let ranks: Vec<Rank64> = (0..field.workload.ranks)
            .map(|rank| Rank64 {
                row: AtomicU64::new(
                    (oracle.held[rank].len() as u64) << 32 | u64::from(oracle.tokens[rank]),
                ),
                requests: AtomicU32::new(LIVE_PER_RANK as u32),
                max_tokens: (PREFILL_FRAC * MAX_NUM_BATCHED_TOKENS as f64) as u32,
                max_blocks: (DECODE_FRAC * field.workload.kv_blocks(rank) as f64) as u32,
            })
            .collect();
        let before = ranks.iter().map(|r| r.row.load(Ordering::Relaxed)).collect();
        Atomic { ranks, random: Random::new(3), before }
    }

    fn one(&mut self) -> u32 {
        loop {
            let a = self.random.below(self.ranks.len());
            let b = self.random.below(self.ranks.len());
            let requests = |rank: usize| self.ranks[rank].requests.load(Ordering::Relaxed);
            let rank = if requests(b) < requests(a) { b } else { a };
            if self.ranks[rank].book() {
                self.ranks[rank].free();
                return rank as u32;
            }
        }
    }
}

impl Contestant for Atomic {
    fn run(&mut self, at: usize, ops: usize, chosen: &mut Vec<u32>) -> Duration {
        Clock::Thread.time(|| chosen.extend((at..at + ops).map(|_| self.one())))
    }

    fn promise(&self) -> Promise {
        Promise { exact: false, judges_room: true }
    }

    fn check_settled(&mut self) {
        for (rank, before) in self.ranks.iter().zip(&self.before) {
            assert_eq!(rank.row.load(Ordering::Relaxed), *before);
            assert_eq!(rank.requests.load(Ordering::Relaxed), LIVE_PER_RANK as u32);
        }
    }
}

/// Two random choices, booked through this engine.
pub struct SameBooking {
    bench: Bench,
    prompts: Vec<Prompt>,
    random: Random,
}

impl SameBooking {
    pub fn new(field: &Field) -> SameBooking {
        let bench = Bench::new(field.workload.ranks, Mode::Reject);
        let prompt = |chain: &[u64; 16]| Prompt::new(*chain).expect("hashes differ");
        let prompts = bench.workload.chains.iter().map(prompt).collect();
        SameBooking { bench, prompts, random: Random::new(3) }
    }

    fn one(&mut self, at: usize) -> u32 {
        let pool = &self.bench.pool;
        let draws = &self.bench.workload.draws;
        let prompt = self.prompts[draws[at % draws.len()] as usize].clone();
        let request = Request::new(u64::from(PROMPT_TOKENS)).prompt(prompt);
        loop {
            let mut draw = || Rank::new(self.random.below(self.bench.workload.ranks) as u64, 0);
            let (a, b) = (draw(), draw());
            let load = |rank: Rank| pool.load(rank).expect("it is declared");
            let (la, lb) = (load(a), load(b));
            let (rank, full) = if lb.requests < la.requests { (b, lb.full) } else { (a, la.full) };
            if !full {
                let id = RequestId((1 << 64) + at as u128);
                pool.import_as(id, rank, &request).expect("it fits");
                pool.free(id);
                return rank.worker.0 as u32;
            }
        }
    }
}

impl Contestant for SameBooking {
    fn run(&mut self, at: usize, ops: usize, chosen: &mut Vec<u32>) -> Duration {
        Clock::Thread.time(|| {
            for at in at..at + ops {
                let rank = self.one(at);
                chosen.push(rank);
            }
        })
    }

    fn promise(&self) -> Promise {
        Promise { exact: false, judges_room: true }
    }

    fn check_settled(&mut self) {
        self.bench.check_rows();
    }
}
