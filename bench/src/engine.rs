//! A [`Pool`] with the fleet in it.

use crate::oracle::Oracle;
use crate::workload::{
    BLOCK_SIZE, DECODE_FRAC, MAX_NUM_BATCHED_TOKENS, PREFILL_FRAC, PROMPT_TOKENS, Workload,
};
use std::sync::Arc;
use vacancy::{
    Backend, Booking, Error, Pool, PoolBuilder, Profile, Prompt, Rank, RankLoad, RejectThresholds,
    Request, RequestId, Thresholds, WorkerSpec,
};

/// How many choices are compared with the oracle's before a bench begins.
const CHECKED: usize = 64;

/// Which limits are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// None: the tenth that would be full is as good as the others.
    Off,
    /// The reject thresholds.
    Reject,
    /// A policy class without thresholds, through which requests are admitted: nothing is judged.
    Admit,
    /// A policy class with the same thresholds, through which requests are admitted: its gate is
    /// open, because nine ranks in ten have room.
    Gate,
}

impl Mode {
    /// As it stands in the names of benches.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Reject => "reject",
            Mode::Admit => "admit",
            Mode::Gate => "gate",
        }
    }
}

/// The fleet in a pool, and the requests of the stream.
pub struct Bench {
    /// The pool.
    pub pool: Pool,
    /// The fleet.
    pub workload: Workload,
    /// The stream, one request per draw.
    pub requests: Vec<Request>,
    /// Makes the stream once more, in memory of its own.
    stream: Box<dyn Fn() -> Vec<Request> + Sync>,
    mode: Mode,
    before: Vec<(Rank, RankLoad)>,
}

impl Bench {
    /// Builds the fleet and checks it, and what the engine chooses on it, against the oracle.
    pub fn new(ranks: usize, mode: Mode) -> Bench {
        Bench::on(ranks, mode, None)
    }

    /// The same, on one back-end.
    pub fn on(ranks: usize, mode: Mode, backend: Option<Backend>) -> Bench {
        Bench::with(ranks, mode, backend, |builder| builder)
    }

    /// The same, with settings of its own.
    pub fn with(
        ranks: usize,
        mode: Mode,
        backend: Option<Backend>,
        settings: impl FnOnce(PoolBuilder) -> PoolBuilder,
    ) -> Bench {
        let workload = Workload::new(ranks);
        let pool = pool(&workload, mode, backend, settings);
        let again = workload.clone();
        let stream = Box::new(move || requests(&again));
        let before = pool.snapshot().ranks;
        let bench = Bench { pool, requests: stream(), stream, workload, mode, before };
        bench.check_choices();
        bench
    }

    /// Request number `at` of the stream.
    #[inline]
    pub fn request(&self, at: usize) -> &Request {
        &self.requests[at % self.requests.len()]
    }

    /// Replaces the stream, and takes what the ranks carry now as what they have to return to.
    pub fn settle(&mut self, stream: impl Fn() -> Vec<Request> + Sync + 'static) {
        self.requests = stream();
        self.stream = Box::new(stream);
        self.before = self.pool.snapshot().ranks;
    }

    /// The stream once more, for a thread of its own: two requests that come to a router at the
    /// same time share no memory, even if they begin with the same prompt.
    pub fn stream(&self) -> Vec<Request> {
        (self.stream)()
    }

    /// Books request number `at` and checks where it landed.
    #[inline]
    pub fn book(&self, pool: &Pool, at: usize) -> Booking {
        self.book_request(pool, self.request(at))
    }

    /// Books a request and checks where it landed.
    #[inline]
    pub fn book_request(&self, pool: &Pool, request: &Request) -> Booking {
        let booking = match self.mode {
            Mode::Admit | Mode::Gate => admit(pool, request.clone()),
            Mode::Off | Mode::Reject => pool.book(request).expect("most ranks have room"),
        };
        self.check_rank(booking.choice().rank);
        booking
    }

    /// Panics if a full rank was chosen under the thresholds.
    #[inline]
    pub fn check_rank(&self, rank: Rank) {
        let full = self.workload.full[rank.worker.0 as usize];
        assert!(!(full && self.mode == Mode::Reject), "rank {rank} is full and was chosen");
    }

    /// Panics unless every row is what it was before the first booking. Dropping checks this too.
    pub fn check_rows(&self) {
        let now = self.pool.snapshot().ranks;
        assert_eq!(self.before.len(), now.len());
        for (before, now) in self.before.iter().zip(&now) {
            assert_eq!(before, now, "a row did not return to what it was");
        }
    }

    /// Compares rows and choices with the oracle's.
    fn check_choices(&self) {
        let oracle = Oracle::new(&self.workload);
        for (rank, load) in &self.before {
            let at = rank.worker.0 as usize;
            assert_eq!(load.prefill_tokens, oracle.tokens[at], "tokens of {rank}");
            assert_eq!(load.kv_blocks as usize, oracle.held[at].len(), "blocks of {rank}");
            assert_eq!(load.full, self.mode == Mode::Reject && self.workload.full[at]);
        }
        let judged = self.mode == Mode::Reject;
        let full = if judged { self.workload.full_ranks() as u32 } else { 0 };
        for at in 0..CHECKED {
            let choice = self.pool.select(self.request(at)).expect("most ranks have room");
            let chain = &self.workload.chains[self.workload.draws[at] as usize];
            let rank = choice.rank.worker.0 as usize;
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b;
            assert!(close(choice.cost, oracle.cost(rank, chain)), "cost of draw {at}");
            assert!(close(choice.cost, oracle.cheapest(chain, judged)), "choice of draw {at}");
            assert_eq!((choice.eligible, choice.full), (self.workload.ranks as u32, full));
            self.check_rank(choice.rank);
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_rows();
        }
    }
}

/// Admits a request whose class has room.
#[inline]
pub fn admit(pool: &Pool, request: Request) -> Booking {
    let admitted = pool.admit(request).try_take().expect("nothing waits, the gate is open");
    admitted.expect("most ranks have room").booking
}

/// The thresholds that a tenth of the fleet is past.
pub fn thresholds() -> Thresholds {
    Thresholds::NONE.prefill_frac(PREFILL_FRAC).decode_frac(DECODE_FRAC)
}

/// The requests of the stream.
pub fn requests(workload: &Workload) -> Vec<Request> {
    let prompts: Vec<Prompt> = workload
        .chains
        .iter()
        .map(|chain| Prompt::new(*chain).expect("64 random bits do not repeat"))
        .collect();
    let request =
        |&draw: &u32| Request::new(u64::from(PROMPT_TOKENS)).prompt(prompts[draw as usize].clone());
    workload.draws.iter().map(request).collect()
}

fn pool(
    workload: &Workload,
    mode: Mode,
    backend: Option<Backend>,
    settings: impl FnOnce(PoolBuilder) -> PoolBuilder,
) -> Pool {
    let set = if mode == Mode::Reject { thresholds() } else { Thresholds::NONE };
    let rejects = RejectThresholds::new(set).expect("valid thresholds");
    let mut builder: PoolBuilder =
        Pool::builder().block_size(BLOCK_SIZE).lease(None).seed(1).reject_thresholds(rejects);
    if matches!(mode, Mode::Admit | Mode::Gate) {
        let set = if mode == Mode::Gate { thresholds() } else { Thresholds::NONE };
        let profile = Profile::single(set).expect("valid thresholds");
        builder = builder.policy(&Arc::new(profile));
    }
    if let Some(backend) = backend {
        builder = builder.backend(backend);
    }
    let pool = settings(builder).build().expect("a valid pool");
    fill(&pool, workload).expect("the fleet is accepted");
    pool
}

fn fill(pool: &Pool, workload: &Workload) -> Result<(), Error> {
    let specs: Vec<WorkerSpec> = (0..workload.ranks)
        .map(|rank| {
            WorkerSpec::new(rank as u64)
                .max_num_batched_tokens(MAX_NUM_BATCHED_TOKENS)
                .total_kv_blocks(workload.kv_blocks(rank))
        })
        .collect();
    pool.reconcile(&specs)?;
    let prompts: Vec<Prompt> =
        workload.chains.iter().map(|chain| Prompt::new(*chain)).collect::<Result<_, _>>()?;
    for (number, live) in workload.live.iter().enumerate() {
        let request = Request::new(u64::from(PROMPT_TOKENS)).prompt(prompts[live.chain].clone());
        let id = RequestId(number as u128);
        pool.import_as(id, Rank::new(live.rank as u64, 0), &request)?;
        if live.prefill_completed {
            pool.prefill_completed(id)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_chooses_as_the_oracle_does_and_returns_every_row() {
        for mode in [Mode::Off, Mode::Reject, Mode::Admit, Mode::Gate] {
            let bench = Bench::new(200, mode);
            let live: Vec<Booking> = (0..500).map(|at| bench.book(&bench.pool, at)).collect();
            drop(live);
            drop(bench);
        }
    }
}
