//! What the world knows of a pool's workers, and how it judges them: who may be used, who is full,
//! whose gate is open. Written from the contract, rank by rank, with nothing kept in between.

use crate::ledger::{Ledger, Row};
use crate::plan::{ClassPlan, Line, Wants, WorkerPlan};
use std::collections::BTreeMap;
use vacancy::{Rank, RejectScope};

/// The last values of a rank's signals, and when each was heard (ns).
type Heard = [Option<(u64, u64)>; 2];

/// A worker that is declared.
#[derive(Clone, Debug)]
pub struct Worker {
    /// As it was declared last.
    pub plan: WorkerPlan,
    /// May be chosen by newcomers.
    pub available: bool,
    /// Marked as overloaded until (ns); `u64::MAX`: until it is taken off.
    pub marked_until: Option<u64>,
    /// What its ranks said.
    heard: BTreeMap<u32, Heard>,
}

impl Worker {
    fn ranks(&self) -> std::ops::Range<u32> {
        self.plan.start..self.plan.start + self.plan.ranks
    }
}

/// The workers of one pool, and its reject thresholds.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// By id.
    pub workers: BTreeMap<u64, Worker>,
    /// What sheds.
    pub reject: Line,
    /// Worker by worker, or rank by rank.
    pub scope: RejectScope,
    /// How long a signal counts (ns).
    pub ttl: u64,
    /// How many lives of ranks have begun.
    pub lives: u64,
}

/// The largest n with `n <= frac * cap` or `n / cap <= frac`.
fn share(frac: f64, cap: u64) -> u64 {
    let passes = |n: u64| n as f64 <= frac * cap as f64 || n as f64 / cap as f64 <= frac;
    let mut n = (frac * cap as f64).floor() as u64;
    while passes(n + 1) {
        n += 1;
    }
    n
}

impl Line {
    /// Whether a row exceeds any of these, on a rank of that worker.
    pub fn is_exceeded(&self, tokens: u64, blocks: u64, plan: &WorkerPlan) -> bool {
        let by_tokens = self.prefill_tokens.is_some_and(|limit| tokens > limit);
        let by_share = match (self.prefill_frac, plan.tokens) {
            (Some(frac), Some(cap)) => tokens > share(frac, cap),
            _ => false,
        };
        let by_blocks = match (self.decode_frac, plan.blocks.filter(|&b| b > 0)) {
            (Some(frac), Some(cap)) => blocks > share(frac, cap),
            _ => false,
        };
        by_tokens || by_share || by_blocks
    }

    /// Whether nothing is set.
    pub fn is_none(&self) -> bool {
        *self == Line::default()
    }
}

/// What a request asks of a rank, its adapter included.
#[derive(Clone, Copy, Debug)]
pub struct Asks<'a> {
    /// Constraints.
    pub wants: &'a Wants,
    /// The adapter `a`.
    pub lora: bool,
}

impl Fleet {
    /// Nobody, and no threshold.
    pub fn new(scope: RejectScope, ttl: u64) -> Fleet {
        Fleet { workers: BTreeMap::new(), reject: Line::default(), scope, ttl, lives: 0 }
    }

    /// A worker is declared; rows of new ranks begin, those of ranks that went end. Returns the
    /// ranks that went.
    pub fn upsert(&mut self, plan: &WorkerPlan, ledger: &mut Ledger) -> Vec<Rank> {
        let (available, marked_until, mut heard) = match self.workers.remove(&plan.id) {
            Some(old) => (old.available, old.marked_until, old.heard),
            None => (true, None, BTreeMap::new()),
        };
        let worker = Worker { plan: plan.clone(), available, marked_until, heard: BTreeMap::new() };
        let keeps = worker.ranks();
        let gone: Vec<Rank> = Self::rows_of(plan.id, ledger)
            .into_iter()
            .filter(|rank| !keeps.contains(&rank.dp_rank))
            .collect();
        for rank in &gone {
            ledger.rows.remove(rank);
        }
        heard.retain(|dp_rank, _| keeps.contains(dp_rank));
        for dp_rank in worker.ranks() {
            let lives = &mut self.lives;
            ledger.rows.entry(Rank::new(plan.id, dp_rank)).or_insert_with(|| {
                *lives += 1;
                Row::in_life(*lives)
            });
        }
        self.workers.insert(plan.id, Worker { heard, ..worker });
        gone
    }

    /// A worker leaves. Returns its ranks.
    pub fn remove(&mut self, id: u64, ledger: &mut Ledger) -> Vec<Rank> {
        self.workers.remove(&id);
        let gone = Self::rows_of(id, ledger);
        for rank in &gone {
            ledger.rows.remove(rank);
        }
        gone
    }

    fn rows_of(id: u64, ledger: &Ledger) -> Vec<Rank> {
        ledger
            .rows
            .range(Rank::new(id, 0)..=Rank::new(id, u32::MAX))
            .map(|(&rank, _)| rank)
            .collect()
    }

    /// A rank says what it uses. `false`: it is not declared.
    pub fn hear(&mut self, rank: Rank, said: [Option<u64>; 2], now: u64) -> bool {
        let Some(worker) = self.workers.get_mut(&rank.worker.0) else { return false };
        if !worker.ranks().contains(&rank.dp_rank) {
            return false;
        }
        let heard = worker.heard.entry(rank.dp_rank).or_default();
        for (slot, value) in heard.iter_mut().zip(said) {
            if let Some(value) = value {
                *slot = Some((value, now));
            }
        }
        true
    }

    fn is_latched(&self, worker: &Worker, dp_rank: u32, now: u64) -> bool {
        let line = Line { decode_frac: self.reject.decode_frac, ..Line::default() };
        let counts = |&(value, at): &(u64, u64)| {
            now - at <= self.ttl && line.is_exceeded(0, value, &worker.plan)
        };
        worker.heard.get(&dp_rank).is_some_and(|heard| heard.iter().flatten().any(counts))
    }

    /// Whether any rank is latched by what it said.
    pub fn latched(&self, now: u64) -> Vec<Rank> {
        let ranks = |w: &Worker| w.ranks().map(|r| Rank::new(w.plan.id, r)).collect::<Vec<_>>();
        let all = self.workers.values().flat_map(ranks);
        all.filter(|r| self.is_latched(&self.workers[&r.worker.0], r.dp_rank, now)).collect()
    }

    /// Whether a rank carries a soft mark, the host's or the monitor's.
    pub fn is_marked(&self, rank: Rank, now: u64) -> bool {
        let worker = &self.workers[&rank.worker.0];
        let latched = match self.scope {
            RejectScope::Rank => self.is_latched(worker, rank.dp_rank, now),
            _ => worker.ranks().all(|dp_rank| self.is_latched(worker, dp_rank, now)),
        };
        latched || worker.marked_until.is_some_and(|until| until > now)
    }

    /// The ranks that a request may use by their structure; `unavailable`: those of workers that
    /// are unavailable too.
    pub fn eligible(&self, asks: Asks<'_>, unavailable: bool) -> Vec<Rank> {
        let wants = asks.wants;
        let allowed = |w: &&Worker| {
            (w.available || unavailable)
                && wants.deny != Some(w.plan.id)
                && wants.pin.is_none_or(|(id, _)| id == w.plan.id)
                && (!wants.taint || w.plan.taint)
        };
        let workers: Vec<&Worker> = self.workers.values().filter(allowed).collect();
        let serve = |w: &&&Worker| w.plan.lora;
        let narrowed = asks.lora && wants.pin.is_none() && workers.iter().any(|w| w.plan.lora);
        let of = |w: &Worker| {
            let id = w.plan.id;
            let pinned = wants.pin.and_then(|(_, dp_rank)| dp_rank);
            let keeps = move |r: &u32| pinned.is_none_or(|p| p == *r);
            w.ranks().filter(keeps).map(move |r| Rank::new(id, r)).collect::<Vec<_>>()
        };
        workers.iter().filter(|w| !narrowed || serve(w)).flat_map(|w| of(w)).collect()
    }

    /// Whether a rank is past a line.
    pub fn is_past(&self, line: &Line, rank: Rank, ledger: &Ledger) -> bool {
        let row = &ledger.rows[&rank];
        line.is_exceeded(row.tokens, row.blocks(), &self.workers[&rank.worker.0].plan)
    }

    /// Whether the reject thresholds let a booking land on a rank: it is under them itself, or,
    /// worker by worker, another rank of its worker is.
    pub fn lets_land(&self, rank: Rank, ledger: &Ledger) -> bool {
        let worker = &self.workers[&rank.worker.0];
        let mut of = worker.ranks().map(|r| Rank::new(worker.plan.id, r));
        match self.scope {
            RejectScope::Rank => !self.is_past(&self.reject, rank, ledger),
            _ => of.any(|r| !self.is_past(&self.reject, r, ledger)),
        }
    }

    /// Whether the own pool opens a class's gate to a request. With a pair, the decode part of
    /// `line` is not for this pool.
    pub fn gate_is_open(
        &self,
        class: &ClassPlan,
        line: &Line,
        asks: Asks<'_>,
        ledger: &Ledger,
        now: u64,
    ) -> bool {
        let ranks = self.eligible(asks, false);
        let of = ranks.len() as u64;
        if of == 0 {
            return false;
        }
        if class.line.is_none() {
            return true;
        }
        let full = |r: &&Rank| self.is_marked(**r, now) || self.is_past(line, **r, ledger);
        let full = ranks.iter().filter(full).count() as u64;
        let reached = |k: u64, r: f64| k as f64 >= r * of as f64 || k as f64 / of as f64 >= r;
        let enough = match class.ratio {
            None => of,
            Some(r) => (1..=of).find(|&k| reached(k, r)).unwrap_or(of),
        };
        full < enough
    }

    /// A reachable rank with room for a class's decode fraction.
    pub fn has_decode_room(&self, frac: f64, asks: Asks<'_>, ledger: &Ledger) -> bool {
        let line = Line { decode_frac: Some(frac), ..Line::default() };
        self.eligible(asks, false).into_iter().any(|r| !self.is_past(&line, r, ledger))
    }
}
