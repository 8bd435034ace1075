//! What one would write on the first day: a struct per worker, all of them under one mutex, every
//! one looked at for every request. Exact, and judged under the same limits.

use crate::contest::{Contestant, Field, Promise};
use rustc_hash::FxHashMap;
use std::sync::Mutex;
use std::time::Duration;
use vacancy_bench::measure::Clock;
use vacancy_bench::workload::{
    BLOCK_SIZE, DECODE_FRAC, LIVE_PER_RANK, MAX_NUM_BATCHED_TOKENS, PREFILL_FRAC, PROMPT_TOKENS,
};

struct Worker {
    prefill_tokens: u32,
    /// How many active requests hold each block.
    blocks: FxHashMap<u64, u32>,
    requests: u32,
    max_num_batched_tokens: u64,
    total_kv_blocks: u64,
}

impl Worker {
    fn is_full(&self) -> bool {
        f64::from(self.prefill_tokens) > PREFILL_FRAC * self.max_num_batched_tokens as f64
            || self.blocks.len() as f64 > DECODE_FRAC * self.total_kv_blocks as f64
    }

    fn cost(&self, chain: &[u64]) -> f64 {
        let missing = chain.iter().filter(|hash| !self.blocks.contains_key(hash)).count();
        let prefill = f64::from(self.prefill_tokens + PROMPT_TOKENS) / f64::from(BLOCK_SIZE);
        prefill + (self.blocks.len() + missing) as f64
    }

    fn add(&mut self, chain: &[u64], tokens: u32) {
        self.prefill_tokens += tokens;
        self.requests += 1;
        for &hash in chain {
            *self.blocks.entry(hash).or_insert(0) += 1;
        }
    }

    fn take_off(&mut self, chain: &[u64], tokens: u32) {
        self.prefill_tokens -= tokens;
        self.requests -= 1;
        for &hash in chain {
            let held = self.blocks.get_mut(&hash).expect("it is held");
            *held -= 1;
            if *held == 0 {
                self.blocks.remove(&hash);
            }
        }
    }
}

pub struct Naive {
    field: Field,
    workers: Mutex<Vec<Worker>>,
}

impl Naive {
    pub fn new(field: &Field) -> Naive {
        let workload = &field.workload;
        let mut workers: Vec<Worker> = (0..workload.ranks)
            .map(|rank| Worker {
                prefill_tokens: 0,
                blocks: FxHashMap::default(),
                requests: 0,
                max_num_batched_tokens: MAX_NUM_BATCHED_TOKENS,
                total_kv_blocks: workload.kv_blocks(rank),
            })
            .collect();
        for live in &workload.live {
            let tokens = if live.prefill_completed { 0 } else { PROMPT_TOKENS };
            workers[live.rank].add(&workload.chains[live.chain], tokens);
        }
        let naive = Naive { field: field.clone(), workers: Mutex::new(workers) };
        naive.check_loads();
        naive
    }

    fn one(&self, at: usize) -> u32 {
        let chain = &self.field.workload.chains[self.field.chain(at)];
        let chosen = {
            let mut workers = self.workers.lock().expect("nobody panicked");
            let (chosen, _) = workers
                .iter()
                .enumerate()
                .filter(|(_, worker)| !worker.is_full())
                .map(|(rank, worker)| (rank, worker.cost(chain)))
                .min_by(|(_, a), (_, b)| a.total_cmp(b))
                .expect("most ranks have room");
            workers[chosen].add(chain, PROMPT_TOKENS);
            chosen
        };
        self.workers.lock().expect("nobody panicked")[chosen].take_off(chain, PROMPT_TOKENS);
        chosen as u32
    }

    fn check_loads(&self) {
        let oracle = self.field.oracle();
        let workers = self.workers.lock().expect("nobody panicked");
        for (rank, worker) in workers.iter().enumerate() {
            assert_eq!(worker.prefill_tokens, oracle.tokens[rank]);
            assert_eq!(worker.blocks.len(), oracle.held[rank].len());
            assert_eq!(worker.requests as usize, LIVE_PER_RANK);
        }
    }
}

impl Contestant for Naive {
    fn run(&mut self, at: usize, ops: usize, chosen: &mut Vec<u32>) -> Duration {
        Clock::Thread.time(|| chosen.extend((at..at + ops).map(|at| self.one(at))))
    }

    fn promise(&self) -> Promise {
        Promise { exact: true, judges_room: true }
    }

    fn check_settled(&mut self) {
        self.check_loads();
    }
}
