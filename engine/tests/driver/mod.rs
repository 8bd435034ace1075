//! Drives a pool and the reference with the same operations and compares what they answer.

mod host;

use crate::model::choose::{Candidate, Pick, same_cost};
use crate::model::op::Op;
use crate::model::queue::{LOOK_AHEAD, Order, Policy};
use crate::model::{Config, Event, Model, Outcome, Refusal, Scope};
use host::Host;
use std::collections::BTreeMap;
use std::sync::Arc;
use vacancy::{
    Admit, AdmitAs, Admitted, AdmittedAs, Attempt, Booking, Choice, ClassSpec, Error, Lost, Pool,
    Profile, QueuePolicy, Rank, RejectScope, RejectThresholds, RequestId, Time,
};

/// A difference, in words.
type Difference = String;

/// What was met on the way, and how often.
pub type Seen = BTreeMap<&'static str, u64>;

/// Somebody who asked to be admitted, by value or by id.
enum Asked {
    Value(Admit),
    Id(RequestId, AdmitAs),
}

/// What somebody was told.
#[expect(clippy::large_enum_variant, reason = "few, and short-lived")]
enum Told {
    Value(Admitted),
    Id(RequestId, AdmittedAs),
}

impl Asked {
    fn look(&mut self) -> Option<Result<Told, Error>> {
        match self {
            Asked::Value(admit) => Some(admit.try_take()?.map(Told::Value)),
            Asked::Id(id, admit) => Some(admit.try_take()?.map(|told| Told::Id(*id, told))),
        }
    }
}

impl Told {
    fn choice(&self) -> &Choice {
        match self {
            Told::Value(told) => told.booking.choice(),
            Told::Id(_, told) => &told.placed.choice,
        }
    }

    fn class(&self) -> &vacancy::Name {
        match self {
            Told::Value(told) => &told.class,
            Told::Id(_, told) => &told.class,
        }
    }
}

/// Both of them.
pub struct Driver {
    config: Config,
    reference: Config,
    pool: Pool,
    /// Another handle of the same pool: calls take turns.
    other: Pool,
    rejects: RejectThresholds,
    model: Model,
    /// The bookings held as values, in the model's order.
    values: Vec<Booking>,
    /// The engine's number of each attempt of each id, from the first one on.
    attempts: BTreeMap<RequestId, Vec<Attempt>>,
    /// Those that ask to be admitted, by the model's ticket.
    waiting: BTreeMap<u64, Asked>,
    /// The ticket of this very step.
    newest: Option<u64>,
    seen: Seen,
}

fn differ<T>(
    what: &str,
    got: impl std::fmt::Debug,
    want: impl std::fmt::Debug,
) -> Result<T, Difference> {
    Err(format!("{what}: the engine has {got:?}, the reference {want:?}"))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Result<(), Difference> {
    if got == want { Ok(()) } else { differ(what, got, want) }
}

impl Driver {
    /// A pool of these settings, and its reference.
    pub fn new(config: Config) -> Driver {
        Driver::against(config.clone(), config)
    }

    /// A pool, and a reference with settings of its own.
    pub fn against(config: Config, reference: Config) -> Driver {
        let rejects = RejectThresholds::default();
        let pool = build(&config, &rejects);
        let mut driver = Driver {
            other: pool.clone(),
            pool,
            rejects,
            model: Model::new(reference.clone()),
            config,
            reference,
            values: Vec::new(),
            attempts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            newest: None,
            seen: BTreeMap::new(),
        };
        // Time 0 is left behind, so that there is something before the clock.
        driver.step(&Op::Expire(Time::from_millis(1))).expect("nothing is there");
        driver
    }

    /// Does all of `ops`, whose times count from the clock at their turn. A closed pool is checked
    /// by the operation after it and then followed by a new one.
    pub fn run(mut self, ops: Vec<Op>) -> Result<Seen, Difference> {
        let mut closed = false;
        for (i, op) in ops.into_iter().enumerate() {
            let op = op.anchored(self.model.clock());
            std::mem::swap(&mut self.pool, &mut self.other);
            // Who waits is looked at before a newcomer is, at the newcomer's own time.
            if let Some(now) = op.now()
                && now > self.model.clock()
                && !self.waiting.is_empty()
            {
                self.step(&Op::Expire(now)).map_err(|why| format!("before {i}: {why}"))?;
            }
            self.step(&op).map_err(|why| format!("operation {i}, {}: {why}", brief(&op)))?;
            if closed {
                closed = false;
                let mut new = Driver::against(self.config.clone(), self.reference.clone());
                new.seen = std::mem::take(&mut self.seen);
                let old = std::mem::replace(&mut self, new);
                old.end()?;
            } else {
                closed = op == Op::Close;
            }
        }
        self.end()
    }

    /// Gives everything back: nothing may be left.
    fn end(mut self) -> Result<Seen, Difference> {
        while !self.waiting.is_empty() {
            self.step(&Op::Cancel(crate::model::op::Nth(0)))?;
        }
        while !self.values.is_empty() {
            self.step(&Op::Drop(crate::model::op::Nth(0)))?;
        }
        for id in self.attempts.keys().copied().collect::<Vec<_>>() {
            self.step(&Op::FreeId(id))?;
        }
        same("live at the end", self.model.live(), 0)?;
        for (rank, load) in self.pool.snapshot().ranks {
            let left = (load.prefill_tokens, load.kv_blocks, load.requests, load.held_blocks);
            same(&format!("left on {rank}"), left, (0, 0, 0, 0))?;
        }
        Ok(self.seen)
    }

    fn step(&mut self, op: &Op) -> Result<(), Difference> {
        let epoch = self.pool.epoch();
        let before = (!self.waiting.is_empty()).then(|| self.model.queue_in_words());
        let step = self.model.step(op);
        self.note(&step.outcome);
        self.answer(op, step.outcome)?;
        self.events().map_err(|why| match before {
            Some(queue) => format!("{why}\nbefore that: {queue}"),
            None => why,
        })?;
        if step.epoch_moves && self.pool.epoch() == epoch {
            return Err("room may have appeared, but the epoch stands still".into());
        }
        self.compare()
    }

    /// Counts what a step has to do with.
    fn note(&mut self, outcome: &Outcome) {
        let mut see = |what| *self.seen.entry(what).or_default() += 1;
        match outcome {
            Outcome::Pick(Err(why))
            | Outcome::Done(Err(why))
            | Outcome::Lost(Err(why))
            | Outcome::Ticket(Err(why)) => see(why.name()),
            Outcome::Pick(Ok(pick)) => {
                see("choice");
                for (what, met) in [
                    ("one of several", pick.candidates.len() > 1),
                    ("some eligible rank full", pick.full > 0),
                    ("overlap forgone", pick.candidates.iter().any(|c| c.forgone.is_some())),
                    ("uneven draw", {
                        let share = pick.candidates[0].probability;
                        pick.candidates.iter().any(|c| !same_cost(c.probability, share))
                    }),
                ] {
                    if met {
                        see(what);
                    }
                }
            }
            Outcome::Lost(Ok(lost)) if !lost.is_empty() => see("load lost its rank"),
            Outcome::Expired(leases, marks) => {
                if !leases.is_empty() {
                    see("lease ran out");
                }
                if !marks.is_empty() {
                    see("mark ended");
                }
            }
            Outcome::Flag(false) => see("no"),
            _ => {}
        }
    }

    /// Does `op` with the engine and compares the answer.
    fn answer(&mut self, op: &Op, want: Outcome) -> Result<(), Difference> {
        let pool = self.pool.clone();
        match (op, want) {
            (_, Outcome::Nothing) => Ok(()),
            (Op::Upsert(spec), Outcome::Lost(want)) => self.lost(pool.upsert(spec.clone()), want),
            (Op::Remove(worker), Outcome::Lost(want)) => self.lost(Ok(pool.remove(*worker)), want),
            (Op::Reconcile(specs), Outcome::Lost(want)) => self.lost(pool.reconcile(specs), want),
            (Op::Available(worker, is), Outcome::Flag(want)) => {
                same("known", pool.set_available(*worker, *is), want)
            }
            (Op::Overloaded(worker, is, until), Outcome::Flag(want)) => {
                same("known", pool.set_overloaded(*worker, *is, *until), want)
            }
            (Op::UpdateThresholds(t), Outcome::Done(want)) => done(self.rejects.update(*t), want),
            (Op::SetThresholds(t), Outcome::Done(want)) => done(self.rejects.set(*t), want),
            (Op::ClearThresholds, Outcome::Done(_)) => {
                self.rejects.clear();
                Ok(())
            }
            (Op::Select(request), Outcome::Pick(want)) => {
                let got = pool.select(request);
                self.picked(got.as_ref(), &want).map(drop)
            }
            (Op::Book(request), Outcome::Pick(want)) => {
                let got = pool.book(request);
                self.picked(got.as_ref().map(Booking::choice), &want)?;
                if let Ok(booking) = got {
                    same("where it is booked", booking.rank(), booking.choice().rank)?;
                    self.values.push(booking);
                }
                Ok(())
            }
            (Op::BookAs(id, request), Outcome::Pick(want)) => {
                let got = pool.book_as(*id, request);
                self.picked(got.as_ref().map(|p| &p.choice), &want)?;
                if let Ok(placed) = got {
                    self.attempt(*id, placed.attempt)?;
                }
                Ok(())
            }
            (Op::Admit(request), Outcome::Ticket(want)) => {
                self.asked(Asked::Value(pool.admit(request.clone())), want)
            }
            (Op::AdmitAs(id, request), Outcome::Ticket(want)) => {
                self.asked(Asked::Id(*id, pool.admit_as(*id, request.clone())), want)
            }
            (Op::Cancel(_), Outcome::Withdrawn(ticket)) => {
                drop(self.waiting.remove(&ticket));
                Ok(())
            }
            (Op::Reload(policy), Outcome::Done(_)) => {
                pool.set_policy(&profile(policy));
                Ok(())
            }
            (Op::ImportAs(id, rank, request), Outcome::Done(want)) => {
                match (pool.import_as(*id, *rank, request), want) {
                    (Ok(attempt), Ok(())) => self.attempt(*id, attempt),
                    (got, want) => done(got.map(drop), want),
                }
            }
            (Op::Complete(nth), Outcome::Done(_)) => {
                self.value(nth.of(self.values.len())).prefill_completed();
                Ok(())
            }
            (Op::Output(nth, blocks), Outcome::Done(want)) => {
                let i = nth.of(self.values.len());
                done(self.value(i).add_output_blocks(*blocks), want)
            }
            (Op::Move(nth, to), Outcome::Done(want)) => {
                let i = nth.of(self.values.len());
                let booking = self.value(i);
                done(booking.move_to(*to), want)?;
                same("where it is", booking.rank(), self.model.value_rank(i.expect("one")))
            }
            (Op::Free(nth), Outcome::Done(_)) => {
                let i = nth.of(self.values.len()).expect("as many as the model has");
                self.values.swap_remove(i).free();
                Ok(())
            }
            (Op::Drop(nth), Outcome::Done(_)) => {
                let i = nth.of(self.values.len()).expect("as many as the model has");
                drop(self.values.swap_remove(i));
                Ok(())
            }
            (Op::CompleteId(id), Outcome::Done(want)) => done(pool.prefill_completed(*id), want),
            (Op::OutputId(id, blocks), Outcome::Done(want)) => {
                done(pool.add_output_blocks(*id, *blocks), want)
            }
            (Op::MoveId(id, to), Outcome::Done(want)) => done(pool.move_to(*id, *to), want),
            (Op::FreeId(id), Outcome::Flag(want)) => same("freed", pool.free(*id), want),
            (Op::FreeAttempt(id, back), Outcome::Flag(want)) => {
                let known = &self.attempts[id];
                let attempt = known[known.len() - 1 - *back as usize];
                same("freed", pool.free_attempt(*id, attempt), want)
            }
            (Op::Export, Outcome::Live(want)) => {
                let got: BTreeMap<_, _> = pool.export().into_iter().map(|l| (l.id, l)).collect();
                same("ids", got.keys().collect::<Vec<_>>(), want.keys().collect())?;
                for (id, want) in want {
                    let l = &got[&id];
                    let attempt = self.number(id, want.attempt);
                    same("attempt", l.attempt, attempt)?;
                    same("rank", l.rank, want.rank)?;
                    same("prefill", u64::from(l.prefill_tokens), want.prefill_tokens)?;
                    same("prompt blocks", u64::from(l.prompt_blocks), want.prompt_blocks)?;
                    same("output blocks", u64::from(l.output_blocks), want.output_blocks)?;
                }
                Ok(())
            }
            (Op::Expire(now), Outcome::Expired(want, marks)) => {
                let got = pool.expire(*now);
                let want: Vec<_> = want
                    .into_iter()
                    .map(|(id, (a, rank))| (id, self.number(id, a), rank))
                    .collect();
                same("leases", got.leases, want)?;
                same("marks", got.marks, marks)
            }
            (Op::Close, Outcome::Done(_)) => {
                pool.close();
                Ok(())
            }
            (op, want) => unreachable!("{op:?} does not answer {want:?}"),
        }
    }

    fn asked(&mut self, mut asked: Asked, want: Result<u64, Refusal>) -> Result<(), Difference> {
        let why = match want {
            Ok(ticket) => {
                self.waiting.insert(ticket, asked);
                self.newest = Some(ticket);
                return Ok(());
            }
            Err(why) => why,
        };
        match asked.look() {
            Some(Err(error)) if why.admits(&error) => Ok(()),
            Some(Ok(told)) => differ("answer", told.choice(), why),
            Some(Err(error)) => differ("answer", error, why),
            None => differ("answer", "to wait", why),
        }
    }

    /// Compares who was let in and who was refused, in the reference's order.
    fn events(&mut self) -> Result<(), Difference> {
        let mut told = BTreeMap::new();
        for (ticket, asked) in &mut self.waiting {
            if let Some(result) = asked.look() {
                told.insert(*ticket, result);
            }
        }
        while let Some(event) = self.model.next_event() {
            let (ticket, pick) = match event {
                Event::Admitted(ticket, pick) => (ticket, Ok(pick)),
                Event::Refused(ticket, why) => (ticket, Err(why)),
            };
            let waited = Some(ticket) != self.newest;
            *self
                .seen
                .entry(match pick {
                    Ok(_) if waited => "let in after a wait",
                    Ok(_) => "let in",
                    Err(_) if waited => "refused while waiting",
                    Err(_) => "refused",
                })
                .or_default() += 1;
            let Some(got) = told.remove(&ticket) else {
                let told: Vec<_> =
                    told.iter().map(|(t, r)| (*t, r.as_ref().map(|c| c.choice().rank))).collect();
                return differ(&format!("ticket {ticket}"), told, pick);
            };
            self.waiting.remove(&ticket);
            let what = |why| format!("ticket {ticket}: {why}");
            self.picked(got.as_ref().map(Told::choice), &pick).map_err(what)?;
            if let Ok(told) = got {
                same("class", told.class().as_str(), self.model.admitted_in().as_str())?;
                match told {
                    Told::Value(told) => self.values.push(told.booking),
                    Told::Id(id, told) => self.attempt(id, told.placed.attempt)?,
                }
            }
        }
        self.newest = None;
        for (what, met) in [
            ("ten wait", self.waiting.len() >= 10),
            ("more than L wait", self.waiting.len() > 1 + LOOK_AHEAD),
            ("a head is guarded", self.model.guarded()),
        ] {
            if met {
                *self.seen.entry(what).or_default() += 1;
            }
        }
        let left: Vec<String> = told
            .into_iter()
            .map(|(ticket, got)| format!("{ticket}: {:?}", got.as_ref().map(Told::choice)))
            .collect();
        same("told, of those who wait", left, Vec::new())?;
        same("who waits", self.waiting.keys().copied().collect(), self.model.waiting())
    }

    fn value(&self, i: Option<usize>) -> &Booking {
        &self.values[i.expect("as many as the model has")]
    }

    /// The engine's number of an attempt.
    fn number(&self, id: RequestId, attempt: u64) -> Attempt {
        self.attempts[&id][attempt as usize - 1]
    }

    fn attempt(&mut self, id: RequestId, attempt: Attempt) -> Result<(), Difference> {
        let known = self.attempts.entry(id).or_default();
        if known.last().is_some_and(|last| *last >= attempt) {
            return Err(format!("attempt {attempt:?} of {id} comes after {known:?}"));
        }
        known.push(attempt);
        Ok(())
    }

    fn lost(
        &self,
        got: Result<Vec<Lost>, Error>,
        want: Result<BTreeMap<Rank, crate::model::LostLoad>, Refusal>,
    ) -> Result<(), Difference> {
        let (got, want) = match (got, want) {
            (Ok(got), Ok(want)) => (got, want),
            (got, want) => return done(got.map(drop), want.map(drop)),
        };
        let got: BTreeMap<_, _> =
            got.into_iter().map(|l| (l.rank, (u64::from(l.requests), l.ids))).collect();
        let want: BTreeMap<_, _> = want
            .into_iter()
            .map(|(rank, l)| {
                let ids: Vec<_> =
                    l.ids.into_iter().map(|(id, a)| (id, self.number(id, a))).collect();
                (rank, (l.requests, ids))
            })
            .collect();
        same("lost", got, want)
    }

    /// Compares an answer with all the right ones, and lets the reference book what was chosen.
    fn picked(
        &mut self,
        got: Result<&Choice, &Error>,
        want: &Result<Pick, Refusal>,
    ) -> Result<(), Difference> {
        let pick = match (got, want) {
            (_, Ok(pick)) => pick,
            (Err(got), Err(want)) if want.admits(got) => return Ok(()),
            (got, Err(want)) => return differ("answer", got, want),
        };
        let rank = match got {
            Ok(choice) => choice.rank,
            Err(Error::RowOverflow { rank }) => *rank,
            Err(other) => return differ("answer", other, pick),
        };
        let Some(candidate) = pick.candidates.iter().find(|c| c.rank == rank) else {
            return differ("rank", got, pick);
        };
        match (got, self.model.settle(rank)) {
            (Ok(choice), Ok(())) => explained(choice, candidate, pick),
            (Err(_), Err(_)) => Ok(()),
            (got, booked) => differ("row", got, booked),
        }
    }

    /// Compares everything that can be looked at.
    fn compare(&self) -> Result<(), Difference> {
        let snapshot = self.pool.snapshot();
        let ranks: Vec<Rank> = snapshot.ranks.iter().map(|(rank, _)| *rank).collect();
        same("ranks", ranks, self.model.ranks())?;
        for (rank, got) in &snapshot.ranks {
            let row = self.model.row(*rank).expect("declared");
            let what = |of: &str| format!("{of} of {rank}");
            same(&what("prefill"), u64::from(got.prefill_tokens), row.prefill_tokens)?;
            same(&what("blocks"), u64::from(got.kv_blocks), row.kv_blocks)?;
            same(&what("requests"), u64::from(got.requests), row.requests)?;
            same(&what("held"), got.held_blocks, 0)?;
            same(&what("full"), got.full, self.model.full(*rank))?;
            let (available, marked) = self.model.marks(rank.worker);
            same(&what("available"), got.available, available)?;
            same(&what("marked"), got.marked, marked)?;
            same(&what("load"), self.pool.load(*rank), Some(*got))?;
        }
        let full = snapshot.ranks.iter().filter(|(_, l)| l.full).count();
        same("full", snapshot.full, full)?;
        same("ids", snapshot.ids, self.model.live() - self.model.values())?;
        let counters = self.model.counters();
        same("selected", snapshot.counters.selected, counters.selected)?;
        same("rejected", snapshot.counters.rejected, counters.rejected)?;
        same("now", self.pool.now(), self.model.clock())
    }
}

/// An operation in few words: what is as it mostly is is left out.
pub fn brief(op: &Op) -> String {
    let mut text = format!("{op:?}");
    for usual in [
        "prompt: None, ",
        "overlaps: None, ",
        "shared: [], ",
        "constraints: None, ",
        "lora: None, ",
        "decode: None, ",
        "class: None, ",
        "strict_class: false, ",
        "strict_priority: 0, ",
        "priority_jump: 0.0, ",
        "due: None, ",
        "do_not_queue: false, ",
        "upstream: false, ",
        "overrides: None, ",
        ", seed: None",
        "pin: None, ",
        "affinity: None, ",
        "allow: None, ",
        "deny: [], ",
        "prefer: [], ",
        "taints: [], ",
        "domains: [], ",
        "loras: [], ",
        ", stable_id: None",
        ", domain: []",
        "max_num_batched_tokens: None, ",
        "total_kv_blocks: None, ",
    ] {
        text = text.replace(usual, "");
    }
    text
}

/// The engine's pool of these settings and workers.
pub fn build(config: &Config, rejects: &RejectThresholds) -> Pool {
    let mut pool = Pool::builder()
        .block_size(config.block_size)
        .track_prefill(config.track_prefill)
        .track_blocks(config.track_blocks)
        .weights(config.weights)
        .reject_scope(match config.scope {
            Scope::Worker => RejectScope::Worker,
            Scope::Rank => RejectScope::Rank,
        })
        .lease(config.lease)
        .reject_thresholds(rejects.clone());
    if let Some(policy) = &config.policy {
        pool = pool.policy(&profile(policy));
    }
    pool = pool.class_room_only(config.class_room_only);
    if let Some(filter) = config.custom.filter {
        pool = pool.filter(Arc::new(Host(filter)));
    }
    if let Some(scorer) = config.custom.scorer {
        pool = pool.scorer(Arc::new(Host(scorer)));
    }
    if let Some(picker) = config.custom.picker {
        pool = pool.picker(Arc::new(Host(picker)));
    }
    let pool = pool.build().expect("valid settings");
    pool.reconcile(&config.fleet).expect("valid workers");
    pool
}

/// The engine's form of a policy.
fn profile(policy: &Policy) -> Arc<Profile> {
    let classes = policy.classes.iter().map(|c| {
        let mut spec = ClassSpec::new(c.name.clone(), c.quantum).thresholds(c.thresholds);
        if let Some((family, bucket)) = &c.cell {
            spec = spec.family(family.clone(), bucket.clone());
        }
        spec.queue_policy = match c.order {
            Order::Fcfs => QueuePolicy::Fcfs,
            Order::Wspt => QueuePolicy::Wspt,
            Order::Edf => QueuePolicy::Edf,
        };
        spec.busy_worker_ratio = c.busy_worker_ratio;
        [spec.limits.requests, spec.limits.raw_isl_tokens, spec.limits.cached_tokens] = c.limits;
        spec.max_wait = c.max_wait;
        spec
    });
    let profile = Profile::new(policy.default_family.clone(), policy.buckets.clone(), classes);
    Arc::new(profile.expect("a valid policy"))
}

fn done(got: Result<(), Error>, want: Result<(), Refusal>) -> Result<(), Difference> {
    match (&got, &want) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(error), Err(refusal)) if refusal.admits(error) => Ok(()),
        _ => differ("answer", got, want),
    }
}

/// Whether a choice says of its rank what there is to say.
fn explained(got: &Choice, want: &Candidate, pick: &Pick) -> Result<(), Difference> {
    if !same_cost(got.cost, want.cost) {
        return differ("cost", got.cost, want.cost);
    }
    same("stable id", &got.stable_id, &want.stable_id)?;
    same("cached tokens", u64::from(got.cached_tokens), want.cached_tokens)?;
    same("overlap", got.overlap, want.overlap)?;
    same("eligible", got.eligible, pick.eligible)?;
    same("full", got.full, pick.full)?;
    match (&got.forgone, &want.forgone) {
        (None, None) => Ok(()),
        (Some(got), Some((blocks, ranks)))
            if got.blocks == *blocks && ranks.contains(&got.rank) =>
        {
            Ok(())
        }
        (got, want) => differ("forgone", got, want),
    }
}
