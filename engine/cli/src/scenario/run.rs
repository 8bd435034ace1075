//! Runs the steps of one scenario on its pools.
//!
//! What a pool holds is the pool's to know: a name's record here only remembers where the name was
//! placed and how far it came, so that the steps that name nothing but the name find its pools, and
//! so that what a step did to others can be told.
#![forbid(unsafe_code)]

use super::file::{Ask, FreeKeys, LegKey, MoveKeys, Op, Scenario, Step, WorkerKeys};
use super::outcome::{Answer, ClassStats, Load, Outcome, State, Stats, StepOutcome};
use super::request;
use super::yaml::Wrong;
use std::collections::{BTreeMap, HashMap};
use vacancy::{
    Choice, Constraints, Epoch, Error, Lost, Name, Pool, Rank, RequestId, Time, WorkerId,
    WorkerSpec,
};

/// Rounds in which a pool may claim that something is due at an instant that it was just shown.
const MAX_ROUNDS_PER_INSTANT: u32 = 1_000;

/// One pool of the scenario.
struct Station {
    pool: Pool,
    /// The epoch `stats` saw last, and the number it stands for: epochs are opaque, so a new one
    /// has a new number and nothing more can be read from it.
    epoch: (Epoch, u64),
    /// What the steps declared, for default ranks and for whom a spread is over.
    workers: BTreeMap<u64, Declared>,
}

struct Declared {
    spec: WorkerSpec,
    available: bool,
}

/// One booking of a name.
struct Leg {
    /// Index of its pool.
    station: usize,
    rank: Rank,
    /// Why that rank; gone once the leg was moved to another.
    choice: Option<Choice>,
    live: bool,
}

/// How far one name has come.
struct Record {
    state: State,
    /// Why, if it was refused.
    error: Option<Error>,
    /// The pool it asked first.
    station: usize,
    /// In the order in which they were placed: prefill, then decode.
    legs: Vec<Leg>,
}

impl Record {
    fn first(&self) -> usize {
        self.legs.first().map_or(self.station, |leg| leg.station)
    }

    fn last(&self) -> usize {
        self.legs.last().map_or(self.station, |leg| leg.station)
    }

    fn is_live(&self) -> bool {
        matches!(self.state, State::Waiting | State::Admitted)
    }

    /// A leg ended; the name ends with its last one.
    fn settle(&mut self) {
        if self.state == State::Admitted && !self.legs.iter().any(|leg| leg.live) {
            self.state = State::Freed;
        }
    }
}

/// The pools of a scenario, its clock, and all names so far.
pub struct Runner {
    stations: Vec<Station>,
    /// Pools by name.
    index: HashMap<String, usize>,
    /// Pools in the order in which timers run: a pair before those that wait on it.
    timer_order: Vec<usize>,
    now: Time,
    names: HashMap<String, Record>,
    by_id: HashMap<RequestId, String>,
    /// What the running step made happen to others, so far.
    events: Vec<Outcome>,
}

impl Runner {
    /// Builds the pools of `scenario`.
    ///
    /// # Errors
    /// [`Wrong`]: a pool that the engine refuses, or what this version has not.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Runner, Wrong> {
        let mut stations = Vec::new();
        let mut index = HashMap::new();
        for (name, keys) in &scenario.pools {
            let wrong = |message| Wrong::at(keys.referenced.into(), message);
            for (key, given) in
                [("policy", keys.value.policy.is_some()), ("pair", keys.value.pair.is_some())]
            {
                if given {
                    request::available("pool key", key).map_err(wrong)?;
                }
            }
            let pool = request::builder(&keys.value, seed)
                .build()
                .map_err(|e| wrong(request::unbuilt(name, &e)))?;
            index.insert(name.clone(), stations.len());
            let epoch = (pool.epoch(), 0);
            stations.push(Station { pool, epoch, workers: BTreeMap::new() });
        }
        for step in &scenario.steps {
            request::available("step", step.op.key()).map_err(|m| Wrong::at(step.at, m))?;
        }
        Ok(Runner {
            timer_order: scenario.pairs_first(),
            stations,
            index,
            now: Time::ZERO,
            names: HashMap::new(),
            by_id: HashMap::new(),
            events: Vec::new(),
        })
    }

    /// Runs step number `number`. Also answers, for a step with `times`, how many each eligible
    /// worker got.
    pub fn step(&mut self, number: usize, step: &Step) -> (StepOutcome, Vec<(u64, u64)>) {
        let mut out = StepOutcome { step: number, op: step.op.key(), ..StepOutcome::default() };
        let mut got = Vec::new();
        out.one = self.operate(step, &mut out, &mut got);
        out.events = std::mem::take(&mut self.events);
        (out, got)
    }

    fn operate(
        &mut self,
        step: &Step,
        out: &mut StepOutcome,
        got: &mut Vec<(u64, u64)>,
    ) -> Outcome {
        let station = step.op.pool().map_or(0, |name| self.index[name]);
        match &step.op {
            Op::Upsert(keys) => done(self.upsert(station, keys), |lost| out.lost = lost),
            Op::Reconcile(keys) => {
                done(self.reconcile(station, &keys.workers), |lost| out.lost = lost)
            }
            Op::Remove(keys) => {
                let station = &mut self.stations[station];
                station.workers.remove(&keys.worker.0);
                let lost = station.pool.remove(WorkerId(keys.worker.0));
                out.lost = self.name_lost(&lost);
                Outcome::fine()
            }
            Op::Available(keys) => {
                let station = &mut self.stations[station];
                if let Some(worker) = station.workers.get_mut(&keys.worker.0) {
                    worker.available = keys.is.0;
                }
                known(station.pool.set_available(WorkerId(keys.worker.0), keys.is.0))
            }
            Op::Overloaded(keys) => {
                let until = keys.lease_ms.map(|ms| self.now.after(ms.duration()));
                let pool = &self.stations[station].pool;
                known(pool.set_overloaded(WorkerId(keys.worker.0), keys.is.0, until))
            }
            Op::Thresholds(keys) => {
                done(request::put_thresholds(&self.stations[station].pool, keys), |()| {})
            }
            Op::Select(ask) | Op::Book(ask) => {
                self.ask(station, ask, matches!(step.op, Op::Book(_)), out, got)
            }
            Op::PrefillCompleted(keys) => {
                let at = self.names.get(&keys.name).map_or(0, Record::first);
                let id = request::id_of(&keys.name);
                let done = self.stations[at].pool.prefill_completed(id);
                self.of_name(&keys.name, done)
            }
            Op::Output(keys) => {
                let at = self.names.get(&keys.name).map_or(0, Record::last);
                let id = request::id_of(&keys.name);
                let done = self.stations[at].pool.add_output_blocks(id, keys.blocks.0);
                self.of_name(&keys.name, done)
            }
            Op::Move(keys) => self.move_to(keys),
            Op::Free(keys) => self.free(keys),
            Op::Cancel(keys) => self.free(&FreeKeys { name: keys.name.clone(), leg: None }),
            Op::State(keys) => self.state(&keys.name),
            Op::Load(keys) => {
                let rank = self.rank(station, keys.worker.0, keys.rank.map(|r| r.0));
                match self.stations[station].pool.load(rank) {
                    None => Outcome::refused(Error::NoEndpoints),
                    Some(load) => {
                        out.load = Some(Load {
                            prefill_tokens: load.prefill_tokens.into(),
                            kv_blocks: load.kv_blocks.into(),
                            requests: load.requests.into(),
                            held_blocks: load.held_blocks.into(),
                            full: load.full,
                        });
                        Outcome::fine()
                    }
                }
            }
            Op::Stats(_) => {
                out.stats = Some(self.stations[station].stats());
                Outcome::fine()
            }
            Op::Advance(keys) => self.advance(self.now.after(keys.ms.duration())),
            Op::Close(_) => {
                self.stations[station].pool.close();
                Outcome::fine()
            }
            Op::Policy(_) | Op::Admit(_) | Op::Decode(_) | Op::Observe(_) | Op::Peer(_) => {
                unreachable!("refused when the runner was made")
            }
        }
    }

    fn rank(&self, station: usize, worker: u64, rank: Option<u32>) -> Rank {
        Rank::new(worker, rank.unwrap_or_else(|| self.stations[station].first_rank(worker)))
    }

    fn upsert(&mut self, station: usize, keys: &WorkerKeys) -> Result<Option<Vec<String>>, Error> {
        let spec = request::worker(keys)?;
        let station = &mut self.stations[station];
        let lost = station.pool.upsert(spec.clone())?;
        station.declare(spec);
        Ok(self.name_lost(&lost))
    }

    fn reconcile(
        &mut self,
        station: usize,
        workers: &[WorkerKeys],
    ) -> Result<Option<Vec<String>>, Error> {
        let specs = workers.iter().map(request::worker).collect::<Result<Vec<_>, _>>()?;
        let station = &mut self.stations[station];
        let lost = station.pool.reconcile(&specs)?;
        station.workers.retain(|&id, _| specs.iter().any(|s| s.id.0 == id));
        for spec in specs {
            station.declare(spec);
        }
        Ok(self.name_lost(&lost))
    }

    /// The names of bookings that lost their rank; `None` if there are none.
    fn name_lost(&self, lost: &[Lost]) -> Option<Vec<String>> {
        let ids = lost.iter().flat_map(|l| &l.ids);
        let names: Vec<_> = ids.filter_map(|(id, _)| self.by_id.get(id).cloned()).collect();
        (!names.is_empty()).then_some(names)
    }

    /// `select` and `book`, once or `times`.
    fn ask(
        &mut self,
        station: usize,
        ask: &Ask,
        book: bool,
        out: &mut StepOutcome,
        got: &mut Vec<(u64, u64)>,
    ) -> Outcome {
        let Some(times) = ask.times else {
            return self.ask_once(station, ask, ask.name.as_deref(), book);
        };
        let name = ask.name.as_deref().expect("checked when the file was read");
        let each: Vec<_> = (1..=times.0)
            .map(|n| self.ask_once(station, ask, Some(&format!("{name}-{n}")), book))
            .collect();
        *got = self.stations[station]
            .eligible(ask)
            .into_iter()
            .map(|id| (id, each.iter().filter(|o| o.worker == Some(id)).count() as u64))
            .collect();
        out.each = Some(each);
        Outcome { name: Some(name.to_owned()), ..Outcome::fine() }
    }

    fn ask_once(&mut self, station: usize, ask: &Ask, name: Option<&str>, book: bool) -> Outcome {
        let at = &self.stations[station];
        let answer =
            request::request(ask, self.now, |worker| at.first_rank(worker)).and_then(|request| {
                match name.filter(|_| book) {
                    Some(name) => {
                        at.pool.book_as(request::id_of(name), &request).map(|placed| placed.choice)
                    }
                    None => at.pool.select(&request),
                }
            });
        let mut outcome = Outcome { name: name.map(str::to_owned), ..Outcome::fine() };
        match &answer {
            Ok(choice) => outcome.chose(choice),
            Err(error) => outcome.error = Answer::Refused(error.clone()),
        }
        if let Some(name) = name.filter(|_| book) {
            outcome.state = Some(self.booked(station, name, answer));
        }
        outcome
    }

    /// Notes what became of a try to book under a name.
    fn booked(&mut self, station: usize, name: &str, answer: Result<Choice, Error>) -> State {
        let live = self.names.get_mut(name).filter(|record| record.is_live());
        match answer {
            Ok(choice) => {
                let leg = Leg { station, rank: choice.rank, choice: Some(choice), live: true };
                match live {
                    // The same request in another pool: its next leg.
                    Some(record) => record.legs.push(leg),
                    None => self.remember(name, State::Admitted, None, station, vec![leg]),
                }
                State::Admitted
            }
            Err(error) => {
                // A refused try never touches a live request of that name.
                if live.is_none() {
                    self.remember(name, State::Refused, Some(error), station, Vec::new());
                }
                State::Refused
            }
        }
    }

    fn remember(
        &mut self,
        name: &str,
        state: State,
        error: Option<Error>,
        station: usize,
        legs: Vec<Leg>,
    ) {
        self.by_id.insert(request::id_of(name), name.to_owned());
        self.names.insert(name.to_owned(), Record { state, error, station, legs });
    }

    /// The outcome of a call on a name: what the call answered, and how far the name has come.
    fn of_name(&self, name: &str, answer: Result<(), Error>) -> Outcome {
        let mut outcome = match answer {
            Ok(()) => Outcome::fine(),
            Err(error) => Outcome::refused(error),
        };
        outcome.name = Some(name.to_owned());
        outcome.state = self.names.get(name).map(|record| record.state);
        outcome
    }

    fn move_to(&mut self, keys: &MoveKeys) -> Outcome {
        let at = self.names.get(&keys.name).map_or(0, Record::last);
        let rank = self.rank(at, keys.worker.0, keys.rank.map(|r| r.0));
        let moved = self.stations[at].pool.move_to(request::id_of(&keys.name), rank);
        if moved.is_ok()
            && let Some(leg) = self.names.get_mut(&keys.name).and_then(|r| r.legs.last_mut())
        {
            leg.rank = rank;
            leg.choice = None;
        }
        let mut outcome = self.of_name(&keys.name, moved.clone());
        if moved.is_ok() {
            outcome.placed(rank);
        }
        outcome
    }

    fn free(&mut self, keys: &FreeKeys) -> Outcome {
        let id = request::id_of(&keys.name);
        match self.names.get_mut(&keys.name) {
            // Asked all the same: freeing what nobody knows must do no harm.
            None => _ = self.stations[0].pool.free(id),
            Some(record) => {
                let legs = match keys.leg {
                    None => 0..record.legs.len(),
                    Some(LegKey::Prefill) => 0..record.legs.len().min(1),
                    Some(LegKey::Decode) => record.legs.len().min(1)..record.legs.len(),
                };
                for leg in &mut record.legs[legs] {
                    self.stations[leg.station].pool.free(id);
                    leg.live = false;
                }
                record.settle();
            }
        }
        self.of_name(&keys.name, Ok(()))
    }

    fn state(&self, name: &str) -> Outcome {
        let Some(record) = self.names.get(name) else {
            let error = Error::UnknownRequest { id: request::id_of(name) };
            return Outcome { name: Some(name.to_owned()), ..Outcome::refused(error) };
        };
        let mut outcome = self.of_name(name, Ok(()));
        if let Some(error) = &record.error {
            outcome.error = Answer::Refused(error.clone());
        }
        if let Some(leg) = record.legs.iter().rfind(|leg| leg.live) {
            match &leg.choice {
                Some(choice) => outcome.chose(choice),
                None => outcome.placed(leg.rank),
            }
        }
        outcome
    }

    /// Moves the clock to `target`, stopping at every instant at which a pool has something to do.
    fn advance(&mut self, target: Time) -> Outcome {
        let mut rounds = 0;
        loop {
            let due = self.stations.iter().filter_map(|s| s.pool.next_due()).min();
            let Some(due) = due.filter(|due| *due <= target) else { break };
            rounds = if due > self.now { 0 } else { rounds + 1 };
            if rounds > MAX_ROUNDS_PER_INSTANT {
                // A defect of the engine, told like any other failure rather than by hanging.
                return Outcome::refused(Error::PolicyFailed {
                    what: format!("timers due at {due} never end"),
                });
            }
            self.now = self.now.max(due);
            self.tick();
        }
        self.now = target;
        self.tick();
        Outcome::fine()
    }

    /// Runs what is due now.
    fn tick(&mut self) {
        for i in 0..self.timer_order.len() {
            let station = self.timer_order[i];
            let expired = self.stations[station].pool.expire(self.now);
            for (id, _, _) in expired.leases {
                self.lapsed(station, id);
            }
        }
    }

    /// The lease of a booking ran out.
    fn lapsed(&mut self, station: usize, id: RequestId) {
        let Some(name) = self.by_id.get(&id) else { return };
        let Some(record) = self.names.get_mut(name) else { return };
        for leg in record.legs.iter_mut().filter(|leg| leg.station == station) {
            leg.live = false;
        }
        record.settle();
        self.events.push(Outcome {
            name: Some(name.clone()),
            state: Some(record.state),
            ..Outcome::default()
        });
    }
}

/// The outcome of a call on a pool.
fn done<T>(answer: Result<T, Error>, keep: impl FnOnce(T)) -> Outcome {
    match answer {
        Ok(value) => {
            keep(value);
            Outcome::fine()
        }
        Err(error) => Outcome::refused(error),
    }
}

/// The outcome of a call that answers whether it knew the worker.
fn known(known: bool) -> Outcome {
    if known { Outcome::fine() } else { Outcome::refused(Error::NoEndpoints) }
}

impl Station {
    fn stats(&mut self) -> Stats {
        let snapshot = self.pool.snapshot();
        if snapshot.epoch != self.epoch.0 {
            self.epoch = (snapshot.epoch, self.epoch.1 + 1);
        }
        Stats {
            ranks: snapshot.ranks.len() as u64,
            full: snapshot.full as u64,
            epoch: self.epoch.1,
            selected: snapshot.counters.selected,
            rejected: snapshot.counters.rejected,
            class: [("default".to_owned(), ClassStats::default())].into(),
            ..Stats::default()
        }
    }

    fn first_rank(&self, worker: u64) -> u32 {
        self.workers.get(&worker).map_or(0, |w| w.spec.data_parallel_start_rank)
    }

    /// A worker that is declared again keeps its availability.
    fn declare(&mut self, spec: WorkerSpec) {
        let id = spec.id.0;
        let available = self.workers.get(&id).is_none_or(|w| w.available);
        self.workers.insert(id, Declared { spec, available });
    }

    /// The workers that are structurally eligible for a request: those a spread is over.
    fn eligible(&self, ask: &Ask) -> Vec<u64> {
        let c: Constraints = request::own_constraints(ask);
        let may = |id: u64, worker: &Declared| {
            let spec = &worker.spec;
            worker.available
                && c.pin.is_none_or(|pin| pin.worker.0 == id)
                && c.allow.as_ref().is_none_or(|ids| ids.contains(&WorkerId(id)))
                && !c.deny.contains(&WorkerId(id))
                && c.taints.iter().all(|taint| spec.taints.contains(taint))
                && c.domain.iter().all(|domain| spec.domains.contains(domain))
        };
        let mut ids: Vec<u64> =
            self.workers.iter().filter(|(id, w)| may(**id, w)).map(|(id, _)| *id).collect();
        if let Some(lora) = ask.lora.as_deref().map(Name::new)
            && c.pin.is_none()
        {
            let serves = |id: &u64| self.workers[id].spec.loras.contains(&lora);
            if ids.iter().any(serves) {
                ids.retain(serves);
            }
        }
        ids
    }
}
