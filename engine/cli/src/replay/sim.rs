//! The simulation: requests arrive, are placed, prefill, decode and leave, on a virtual clock.
//!
//! The model of a rank, the same for every strategy:
//! - Prefill is serial, first come first served, at a constant rate of tokens per second; prompt
//!   blocks cached at its start are not computed again, but at least one token always is.
//! - Decode gives one token per constant time step, and does not slow prefill down.
//! - A request starts when its prompt and its whole answer fit the rank's KV memory, so that
//!   nothing is ever pre-empted; one that does not fit holds up those behind it.
//! - What a request leaves behind stays cached until room is needed, least recently used first.
//! - With two pools, the decode leg is placed when the prefill ends. Its KV blocks move once they
//!   fit the decode rank: those that it does not have cached, at a constant rate, and without
//!   slowing anything down. The prefill rank keeps them until then; the first token is out when
//!   they are there.
//!
//! What always holds: the clock never goes back; at one instant timers come before ends, and ends
//! before arrivals; strategies see the same arrivals, and nothing of the ranks but what [`Ask`]
//! carries; who was let in by a call is taken in before the next call is made, so that landings
//! are counted in the order in which they happened.
#![forbid(unsafe_code)]

use super::arrivals::Arrival;
use super::classes::Classes;
use super::holders::Holders;
use super::kv::KvMemory;
use super::ledger::Ledger;
use super::record::{Judged, Outcome, Record};
use super::router::{Ask, Hop, Placement, Router};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

/// What a simulated rank can do.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Tokens per KV block.
    pub block: u32,
    /// Prompt tokens that one rank computes per second.
    pub prefill_tps: f64,
    /// Time per output token, in ns.
    pub token_ns: u64,
    /// KV blocks of one rank.
    pub kv_blocks: u64,
    /// Prompt tokens whose KV blocks move from a prefill to a decode rank per second.
    pub transfer_tps: f64,
}

impl Model {
    /// How long a rank computes `tokens` prompt tokens, in ns.
    pub fn prefill_ns(&self, tokens: u32) -> u64 {
        (f64::from(tokens) * 1e9 / self.prefill_tps).round() as u64
    }

    /// How long the KV blocks of `tokens` prompt tokens move, in ns.
    fn transfer_ns(&self, tokens: u32) -> u64 {
        (f64::from(tokens) * 1e9 / self.transfer_tps).round() as u64
    }
}

/// How many ranks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Ranks of the only pool, or of the prefill pool.
    pub prefill: usize,
    /// Ranks of the decode pool; 0: there is one pool.
    pub decode: usize,
}

/// What a run left.
pub struct Run {
    /// One record per arrival, in order.
    pub records: Vec<Record>,
    /// Bookings that the strategy still had when everything was over.
    pub bookings_left: u64,
    /// Requests that still waited when nothing more could happen.
    pub stuck: u64,
    /// How often the strategy believed a decode rank to carry other blocks than were on it.
    pub miscounted: u64,
    /// Wall time of the run.
    pub wall: Duration,
}

/// Runs all arrivals through `router`. `progress` is told now and then how many requests are over.
pub fn simulate(
    arrivals: &[Arrival],
    model: Model,
    layout: Layout,
    classes: &Classes,
    router: &mut dyn Router,
    progress: &mut dyn FnMut(u64),
) -> Run {
    let start = Instant::now();
    let pool = |ranks| Pool {
        ranks: (0..ranks).map(|_| SimRank::new(model.kv_blocks)).collect(),
        holders: Holders::new(ranks),
    };
    let mut sim = Sim {
        arrivals,
        model,
        two_hops: layout.decode > 0,
        classes,
        router,
        ledger: Ledger::new(layout.decode, model.block),
        changed: Vec::new(),
        miscounted: 0,
        pools: [pool(layout.prefill), pool(layout.decode)],
        events: BinaryHeap::new(),
        pushed: 0,
        now: 0,
        phases: vec![Phase::Due; arrivals.len()],
        records: vec![Record::new(); arrivals.len()],
        over: 0,
        overlaps: Vec::new(),
        evicted: Vec::new(),
        settled: Vec::new(),
    };
    sim.run(progress);
    let stuck = sim.phases.iter().filter(|p| matches!(p, Phase::Waiting(_))).count() as u64;
    let Sim { records, miscounted, .. } = sim;
    let bookings_left = router.bookings_left();
    Run { records, bookings_left, stuck, miscounted, wall: start.elapsed() }
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Has not arrived, or is being placed.
    Due,
    /// The strategy lets it wait before this hop.
    Waiting(Hop),
    /// Placed; its rank has not started on it.
    Queued(Hop),
    /// Its prompt is being computed.
    Prefilling,
    /// Its KV blocks are on their way to its decode rank.
    Moving,
    /// Its answer is being made.
    Decoding,
    /// Answered or refused.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    PrefillDone(u32),
    Moved(u32),
    /// The answer of a request needs its next block; the token that does, from 1.
    Output(u32, u32),
    End(u32),
}

struct Pool {
    ranks: Vec<SimRank>,
    holders: Holders,
}

struct SimRank {
    kv: KvMemory,
    queue: VecDeque<u32>,
    /// The request whose prompt is being computed, and how many of its blocks were cached.
    prefilling: Option<(u32, usize)>,
}

impl SimRank {
    fn new(kv_blocks: u64) -> SimRank {
        SimRank { kv: KvMemory::new(kv_blocks), queue: VecDeque::new(), prefilling: None }
    }
}

struct Sim<'a> {
    arrivals: &'a [Arrival],
    model: Model,
    two_hops: bool,
    classes: &'a Classes,
    router: &'a mut dyn Router,
    ledger: Ledger,
    /// Decode ranks whose rows have changed since they were last compared.
    changed: Vec<u32>,
    miscounted: u64,
    pools: [Pool; 2],
    /// By instant, then by the order in which they were pushed.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    now: u64,
    phases: Vec<Phase>,
    records: Vec<Record>,
    over: u64,
    overlaps: Vec<(u32, u32)>,
    evicted: Vec<u64>,
    settled: Vec<(u32, Placement)>,
}

impl Sim<'_> {
    fn run(&mut self, progress: &mut dyn FnMut(u64)) {
        let mut arrived = 0;
        let mut timers_ran_at = None;
        let mut told = 0;
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            // A timer that is overdue runs now; one that stays due after it ran waits for the
            // clock to move, so that the loop always ends.
            let timer = self.router.next_due().map(|due| due.max(self.now));
            let timer = timer.filter(|&due| timers_ran_at != Some(due));
            let arrival = self.arrivals.get(arrived).map(|a| a.at);
            let Some(now) = [event, timer, arrival].into_iter().flatten().min() else { break };
            self.now = now;
            if timer == Some(now) {
                timers_ran_at = Some(now);
                self.router.expire(now);
                self.let_in();
            } else if event == Some(now) {
                if let Some(Reverse((_, _, event))) = self.events.pop() {
                    self.happens(event);
                }
            } else {
                self.place(Hop::Prefill, arrived as u32);
                arrived += 1;
            }
            self.compare();
            if self.over >= told + 512 {
                told = self.over;
                progress(told);
            }
        }
        progress(self.over);
    }

    fn push(&mut self, after: u64, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse((self.now.saturating_add(after), self.pushed, event)));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::PrefillDone(ix) => self.prefill_done(ix),
            Event::Moved(ix) => self.moved(ix),
            // The last token may start a block: then its request is over already.
            Event::Output(ix, _) if self.phases[ix as usize] != Phase::Decoding => {}
            Event::Output(ix, token) => {
                self.router.output(ix, 1, self.now);
                if self.two_hops {
                    self.ledger.grow(ix, 1);
                    self.changed.extend(self.ledger.rank_of(ix));
                }
                self.next_output(ix, token, self.model.block);
            }
            Event::End(ix) => self.end(ix),
        }
    }

    /// Takes in what the last call let in or refused among those that waited.
    fn let_in(&mut self) {
        let mut settled = std::mem::take(&mut self.settled);
        self.router.settled(&mut settled);
        for (ix, placement) in settled.drain(..) {
            let Phase::Waiting(hop) = self.phases[ix as usize] else {
                unreachable!("request {ix} was settled without waiting");
            };
            self.landed(hop, ix, placement);
        }
        self.settled = settled;
    }

    /// Compares what the strategy believes of the decode ranks with what is on them.
    fn compare(&mut self) {
        for rank in self.changed.drain(..) {
            let believed = self.router.decode_blocks(rank);
            if believed.is_some_and(|blocks| blocks != self.ledger.blocks(rank)) {
                self.miscounted += 1;
            }
        }
    }

    fn place(&mut self, hop: Hop, ix: u32) {
        let arrival = &self.arrivals[ix as usize];
        if arrival.final_blocks(self.model.block) > self.model.kv_blocks {
            self.finish(ix, Outcome::TooLarge);
            return;
        }
        self.overlaps.clear();
        if self.router.wants_overlaps(hop) {
            let chain = arrival.cacheable(self.model.block);
            self.pools[hop as usize].holders.overlaps(chain, &mut self.overlaps);
        }
        let ask = Ask { request: ix, arrival, now: self.now, overlaps: &self.overlaps };
        let answer = self.router.place(hop, ask);
        let record = &mut self.records[ix as usize];
        match hop {
            Hop::Prefill => {
                record.decision_ns = Some(answer.decision_ns);
                // Who knows nothing of caches takes nothing for cached.
                let by_length = || self.classes.of(arrival, u64::from(arrival.isl));
                record.class = answer.class.or_else(by_length);
            }
            Hop::Decode => record.decode_decision_ns = Some(answer.decision_ns),
        }
        self.landed(hop, ix, answer.placement);
        self.let_in();
    }

    fn landed(&mut self, hop: Hop, ix: u32, placement: Placement) {
        let record = &mut self.records[ix as usize];
        match placement {
            Placement::Landed(landing) => {
                match hop {
                    Hop::Prefill => {
                        record.prefill_rank = Some(landing.rank);
                        record.admitted = Some(self.now);
                        record.expected_cached = landing.expected_cached;
                        if let Some(rank) = landing.hold {
                            record.hold_rank = Some(rank);
                            self.records[ix as usize].hold = self.lands_at_decode(ix, rank);
                        }
                    }
                    Hop::Decode => {
                        record.decode_rank = Some(landing.rank);
                        // In its hold's place it is there already.
                        if self.ledger.rank_of(ix) != Some(landing.rank) {
                            self.leaves_decode(ix);
                            self.records[ix as usize].leg = self.lands_at_decode(ix, landing.rank);
                        }
                    }
                }
                self.phases[ix as usize] = Phase::Queued(hop);
                let rank = landing.rank as usize;
                self.pools[hop as usize].ranks[rank].queue.push_back(ix);
                self.start(hop, rank);
            }
            Placement::Waits => self.phases[ix as usize] = Phase::Waiting(hop),
            Placement::Refused(error) => {
                if hop == Hop::Decode {
                    // The prefill was for nothing; a hold, if there was one, is gone too.
                    self.leaves_decode(ix);
                    self.leaves_prefill(ix);
                }
                self.finish(ix, Outcome::Refused(error));
            }
        }
    }

    /// A hold or a leg has landed on a decode rank: judged if its class has a limit there.
    fn lands_at_decode(&mut self, ix: u32, rank: u32) -> Option<Judged> {
        let entered = self.ledger.enter(ix, rank, &self.arrivals[ix as usize]);
        self.changed.push(rank);
        let class = self.records[ix as usize].class.as_ref()?;
        let limit = self.classes.block_limit(class, self.model.kv_blocks)?;
        Some(Judged { blocks: entered.before, added: entered.added, limit })
    }

    fn leaves_decode(&mut self, ix: u32) {
        self.changed.extend(self.ledger.rank_of(ix));
        self.ledger.leave(ix, &self.arrivals[ix as usize]);
    }

    /// The prefill leg of a request in two hops is over: its rank may start on others.
    fn leaves_prefill(&mut self, ix: u32) {
        let rank = self.prefill_rank(ix);
        let arrival = &self.arrivals[ix as usize];
        let (chain, private) = blocks(arrival, &self.model, self.two_hops, Hop::Prefill);
        self.pools[Hop::Prefill as usize].ranks[rank].kv.give_back(chain, private);
        self.router.free(Hop::Prefill, ix, self.now);
        self.let_in();
        self.start(Hop::Prefill, rank);
    }

    fn prefill_rank(&self, ix: u32) -> usize {
        let rank = self.records[ix as usize].prefill_rank;
        rank.expect("a request prefills on a rank") as usize
    }

    /// Starts what a rank can start: one prefill at a time, any number of decodes.
    fn start(&mut self, hop: Hop, rank: usize) {
        loop {
            let pool = &mut self.pools[hop as usize];
            let SimRank { kv, queue, prefilling } = &mut pool.ranks[rank];
            if prefilling.is_some() {
                return;
            }
            let Some(&ix) = queue.front() else { return };
            let arrival = &self.arrivals[ix as usize];
            let (chain, private) = blocks(arrival, &self.model, self.two_hops, hop);
            let Some(cached) = kv.take(chain, private, &mut self.evicted) else { return };
            queue.pop_front();
            for hash in self.evicted.drain(..) {
                pool.holders.evicted(hash, rank as u32);
            }
            if hop == Hop::Decode {
                if self.router.wants_overlaps(hop) {
                    for &hash in &chain[cached..] {
                        pool.holders.stored(hash, rank as u32);
                    }
                }
                let here = (cached as u32).saturating_mul(self.model.block).min(arrival.isl);
                self.phases[ix as usize] = Phase::Moving;
                self.push(self.model.transfer_ns(arrival.isl - here), Event::Moved(ix));
                continue;
            }
            *prefilling = Some((ix, cached));
            let most = arrival.isl.saturating_sub(1);
            let tokens = (cached as u32).saturating_mul(self.model.block).min(most);
            let record = &mut self.records[ix as usize];
            record.cached = Some(tokens);
            record.prefill_start = Some(self.now);
            self.phases[ix as usize] = Phase::Prefilling;
            self.push(self.model.prefill_ns(arrival.isl - tokens), Event::PrefillDone(ix));
        }
    }

    fn prefill_done(&mut self, ix: u32) {
        let arrival = &self.arrivals[ix as usize];
        self.records[ix as usize].prefill_end = Some(self.now);
        let rank = self.prefill_rank(ix);
        let pool = &mut self.pools[Hop::Prefill as usize];
        if let Some((_, cached)) = pool.ranks[rank].prefilling.take()
            && self.router.wants_overlaps(Hop::Prefill)
        {
            for &hash in &arrival.cacheable(self.model.block)[cached..] {
                pool.holders.stored(hash, rank as u32);
            }
        }
        self.router.prefill_completed(ix, self.now);
        self.let_in();
        if self.two_hops {
            self.place(Hop::Decode, ix);
        } else {
            self.decode(ix);
        }
        self.start(Hop::Prefill, rank);
    }

    /// The KV blocks are at the decode rank.
    fn moved(&mut self, ix: u32) {
        self.leaves_prefill(ix);
        self.decode(ix);
    }

    /// The first token is out; the others follow at their pace.
    fn decode(&mut self, ix: u32) {
        let arrival = &self.arrivals[ix as usize];
        self.records[ix as usize].first_token = Some(self.now);
        self.phases[ix as usize] = Phase::Decoding;
        let steps = u64::from(arrival.osl.saturating_sub(1));
        // What the prompt leaves free of its last block takes the first tokens.
        let spare = u64::from(arrival.prompt_blocks(self.model.block))
            * u64::from(self.model.block)
            - u64::from(arrival.isl);
        self.next_output(ix, 0, spare as u32 + 1);
        self.push(steps.saturating_mul(self.model.token_ns), Event::End(ix));
    }

    /// Announces the block that starts with the token `after` tokens behind token `token`, which
    /// comes now (0: the first token, number 1, comes now).
    fn next_output(&mut self, ix: u32, token: u32, after: u32) {
        let osl = self.arrivals[ix as usize].osl;
        if let Some(next) = token.checked_add(after).filter(|&next| next <= osl) {
            let steps = next - token.max(1);
            self.push(
                u64::from(steps).saturating_mul(self.model.token_ns),
                Event::Output(ix, next),
            );
        }
    }

    fn end(&mut self, ix: u32) {
        let arrival = &self.arrivals[ix as usize];
        let hop = if self.two_hops { Hop::Decode } else { Hop::Prefill };
        let record = &self.records[ix as usize];
        let rank = match hop {
            Hop::Prefill => record.prefill_rank,
            Hop::Decode => record.decode_rank,
        };
        let rank = rank.expect("a request decodes on a rank") as usize;
        let (chain, private) = blocks(arrival, &self.model, self.two_hops, hop);
        self.pools[hop as usize].ranks[rank].kv.give_back(chain, private);
        self.router.free(hop, ix, self.now);
        if self.two_hops {
            self.leaves_decode(ix);
        }
        self.finish(ix, Outcome::Done);
        self.let_in();
        self.start(hop, rank);
    }

    fn finish(&mut self, ix: u32, outcome: Outcome) {
        let record = &mut self.records[ix as usize];
        record.outcome = outcome;
        record.end = Some(self.now);
        self.phases[ix as usize] = Phase::Over;
        self.over += 1;
    }
}

/// What a leg takes of a rank's KV memory: the prompt's full blocks by name, and as many nameless
/// ones as its tail (and, where it decodes, its answer) fills.
fn blocks<'a>(arrival: &'a Arrival, model: &Model, two_hops: bool, hop: Hop) -> (&'a [u64], u64) {
    let chain = arrival.cacheable(model.block);
    let all = match hop {
        Hop::Prefill if two_hops => u64::from(arrival.prompt_blocks(model.block)),
        Hop::Prefill | Hop::Decode => arrival.final_blocks(model.block),
    };
    (chain, all - chain.len() as u64)
}

#[cfg(test)]
#[path = "sim_tests.rs"]
mod tests;
