//! Runs the steps of one scenario on its pools.
#![forbid(unsafe_code)]

use super::file::{Ask, DecodeKeys, FreeKeys, LegKey, MoveKeys, ObserveKeys, Op, Scenario, Step};
use super::file::{PeerEvent, PeerKeys, Reload, WorkerKeys};
use super::names::{Leg, Names, Record};
use super::outcome::{Answer, ClassStats, Load, Outcome, State, Stats, StepOutcome};
use super::request;
use super::yaml::{Document, Int, Wrong};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use vacancy::{
    Constraints, Error, LoadChange, LoadEvent, Lost, Name, Policy, Pool, Profile, Rank, Request,
    RequestId, RouterId, Signals, Time, WorkerId, WorkerSpec,
};

/// Rounds in which a pool may claim that something is due at an instant that it was just shown.
const MAX_ROUNDS_PER_INSTANT: u32 = 1_000;

/// One pool of the scenario.
struct Station {
    pool: Pool,
    /// What the steps declared, for default ranks and for whom a spread is over.
    workers: BTreeMap<u64, Declared>,
}

struct Declared {
    spec: WorkerSpec,
    available: bool,
}

/// The pools of a scenario, its clock, and all names so far.
pub struct Runner {
    stations: Vec<Station>,
    /// Pools by name.
    index: HashMap<String, usize>,
    /// Pools in the order in which timers run: a pair before those that wait on it.
    timer_order: Vec<usize>,
    now: Time,
    names: Names,
    /// What the running step made happen to others, so far.
    events: Vec<Outcome>,
}

impl Runner {
    /// Builds the pools of `scenario`.
    ///
    /// # Errors
    /// [`Wrong`]: a pool that the engine refuses, or what this version has not.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Runner, Wrong> {
        let mut stations: Vec<Station> = Vec::new();
        let mut index = HashMap::new();
        for (name, keys) in &scenario.pools {
            let wrong = |e: Error| Wrong::at(keys.referenced.into(), request::unbuilt(name, &e));
            let mut builder = request::builder(&keys.value, seed);
            if let Some(document) = &keys.value.policy {
                builder = builder.policy(&profile(document).map_err(wrong)?);
            }
            let pool = builder.build().map_err(wrong)?;
            index.insert(name.clone(), stations.len());
            stations.push(Station { pool, workers: BTreeMap::new() });
        }
        for (station, (_, keys)) in stations.iter().zip(&scenario.pools) {
            if let Some(pair) = &keys.value.pair {
                station.pool.pair_with(&stations[index[pair]].pool);
            }
        }
        Ok(Runner {
            timer_order: scenario.pairs_first(),
            stations,
            index,
            now: Time::ZERO,
            names: Names::default(),
            events: Vec::new(),
        })
    }

    /// Runs step number `number`. Also answers, for a step with `times`, how many each eligible
    /// worker got.
    pub fn step(&mut self, number: usize, step: &Step) -> (StepOutcome, Vec<(u64, u64)>) {
        let mut out = StepOutcome { step: number, op: step.op.key(), ..StepOutcome::default() };
        let mut got = Vec::new();
        out.one = self.operate(step, &mut out, &mut got);
        self.collect();
        out.events = std::mem::take(&mut self.events);
        self.own_events(&mut out);
        (out, got)
    }

    /// Notes whose waiting ended.
    fn collect(&mut self) {
        for name in self.names.settle() {
            self.event(name);
        }
    }

    fn event(&mut self, name: String) {
        let record = self.names.get(&name).expect("an event is about somebody");
        let mut told = Outcome::default();
        record.tell(&mut told);
        self.events.push(Outcome {
            name: Some(name),
            state: told.state,
            error: told.error,
            worker: told.worker,
            rank: told.rank,
            ..Outcome::default()
        });
    }

    /// What happened to the step's own requests is its outcome, not an event.
    fn own_events(&self, out: &mut StepOutcome) {
        let own = match &mut out.each {
            Some(each) => each.as_mut_slice(),
            None => std::slice::from_mut(&mut out.one),
        };
        for one in own.iter_mut().filter(|one| one.state == Some(State::Waiting)) {
            let waited = |event: &Outcome| event.name == one.name;
            if let Some(at) = out.events.iter().position(waited) {
                out.events.remove(at);
                let name = one.name.as_deref().expect("who waits has a name");
                self.names.get(name).expect("who waits has a record").tell(one);
            }
        }
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
            Op::Policy(keys) => done(self.reload(station, keys), |()| {}),
            Op::Select(ask) => self.ask(station, ask, How::Select, out, got),
            Op::Book(ask) => self.ask(station, ask, How::Book, out, got),
            Op::Admit(ask) => self.ask(station, ask, How::Admit, out, got),
            Op::Decode(keys) => self.decode(station, keys),
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
            Op::Cancel(keys) => {
                if let Some(record) = self.names.get_mut(&keys.name) {
                    record.withdraw();
                }
                self.free(&FreeKeys { name: keys.name.clone(), leg: None })
            }
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
            Op::Observe(keys) => {
                self.observe(station, keys);
                Outcome::fine()
            }
            Op::Peer(keys) => {
                self.peer(station, keys);
                Outcome::fine()
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
        let names: Vec<_> =
            ids.filter_map(|(id, _)| self.names.of(*id).map(str::to_owned)).collect();
        (!names.is_empty()).then_some(names)
    }

    fn reload(&mut self, station: usize, keys: &Reload) -> Result<(), Error> {
        self.stations[station].pool.set_policy(&profile(&keys.policy)?);
        Ok(())
    }

    /// `select`, `book` and `admit`, once or `times`.
    fn ask(
        &mut self,
        station: usize,
        ask: &Ask,
        how: How,
        out: &mut StepOutcome,
        got: &mut Vec<(u64, u64)>,
    ) -> Outcome {
        let Some(times) = ask.times else {
            return self.ask_once(station, ask, ask.name.as_deref(), how);
        };
        let name = ask.name.as_deref().expect("checked when the file was read");
        let each: Vec<_> = (1..=times.0)
            .map(|n| self.ask_once(station, ask, Some(&format!("{name}-{n}")), how))
            .collect();
        *got = self.stations[station]
            .eligible(ask)
            .into_iter()
            .map(|id| (id, each.iter().filter(|o| o.worker == Some(id)).count() as u64))
            .collect();
        out.each = Some(each);
        Outcome { name: Some(name.to_owned()), ..Outcome::fine() }
    }

    fn ask_once(&mut self, station: usize, ask: &Ask, name: Option<&str>, how: How) -> Outcome {
        let at = &self.stations[station];
        let request = request::request(ask, self.now, |worker| at.first_rank(worker));
        match (how, name) {
            (How::Select, _) | (_, None) => {
                let mut outcome = Outcome { name: name.map(str::to_owned), ..Outcome::fine() };
                match request.and_then(|request| at.pool.select(&request)) {
                    Ok(choice) => outcome.chose(&choice),
                    Err(error) => outcome.error = Answer::Refused(error),
                }
                outcome
            }
            (How::Book, Some(name)) => {
                let placed = request.and_then(|request| {
                    let placed = at.pool.book_as(request::id_of(name), &request)?;
                    Ok((Leg::new(station, placed.choice), request))
                });
                self.booked(station, name, placed)
            }
            (How::Admit, Some(name)) => {
                let admitted = request.and_then(|request| {
                    let future = at.pool.admit_as(request::id_of(name), request.clone());
                    self.names.admit(name, station, request, future)
                });
                match admitted {
                    Ok(()) => self.of_name(name, Ok(())),
                    Err(error) => self.turned_away(station, name, error),
                }
            }
        }
    }

    /// What became of a try to book under a name.
    fn booked(
        &mut self,
        station: usize,
        name: &str,
        placed: Result<(Leg, Request), Error>,
    ) -> Outcome {
        match placed {
            Ok((leg, request)) => {
                match self.names.get_mut(name).filter(|record| record.is_live()) {
                    // The same request in another pool: its next leg.
                    Some(record) => record.legs.push(leg),
                    None => {
                        let mut record = Record::new(State::Admitted, station, Some(request));
                        record.legs.push(leg);
                        self.names.put(name, record);
                    }
                }
                self.of_name(name, Ok(()))
            }
            Err(error) => self.turned_away(station, name, error),
        }
    }

    /// A try under a name was refused. It never touches a live request of that name.
    fn turned_away(&mut self, station: usize, name: &str, error: Error) -> Outcome {
        if !self.names.get(name).is_some_and(Record::is_live) {
            let mut record = Record::new(State::Refused, station, None);
            record.error = Some(error.clone());
            self.names.put(name, record);
        }
        Outcome {
            name: Some(name.to_owned()),
            state: Some(State::Refused),
            ..Outcome::refused(error)
        }
    }

    /// Books the decode leg of a request that was admitted, out of its hold if it has one.
    fn decode(&mut self, station: usize, keys: &DecodeKeys) -> Outcome {
        let name = keys.name.as_str();
        let id = request::id_of(name);
        let admitted = self.names.get_mut(name).filter(|r| r.state == State::Admitted);
        let Some((record, asked)) = admitted.and_then(|r| r.request.clone().map(|q| (r, q))) else {
            return self.of_name(name, Err(Error::UnknownRequest { id }));
        };
        let first = &self.stations[record.first()].pool;
        let pool = &self.stations[station].pool;
        let leg = request::leg(&asked, self.now, [first, pool]);
        let placed = match first.take_hold(id) {
            None => pool.book_as(id, &leg),
            Some(hold) => pool.book_leg_as(id, hold, &leg).map_err(|refused| {
                // The hold stays with the request: it may try again.
                first.return_hold(id, refused.hold);
                refused.error
            }),
        };
        match placed {
            Ok(placed) => {
                record.hold = None;
                record.legs.push(Leg::new(station, placed.choice));
                self.of_name(name, Ok(()))
            }
            Err(error) => Outcome {
                name: Some(name.to_owned()),
                state: Some(State::Refused),
                ..Outcome::refused(error)
            },
        }
    }

    fn observe(&mut self, station: usize, keys: &ObserveKeys) {
        let rank = self.rank(station, keys.worker.0, keys.rank.map(|r| r.0));
        let signals = Signals {
            kv_used_blocks: keys.kv_used_blocks.map(|n| n.0),
            active_decode_blocks: keys.active_decode_blocks.map(|n| n.0),
        };
        // What is said of a rank that is not declared is ignored.
        self.stations[station].pool.observe(rank, signals, self.now);
    }

    /// Hands on what another router says. What is not known here is dropped by the pool, and is no
    /// failure of the step.
    fn peer(&mut self, station: usize, keys: &PeerKeys) {
        let pool = &self.stations[station].pool;
        let router = RouterId(keys.router.0);
        let rank = || {
            let worker = keys.worker.map_or(0, |w| w.0);
            self.rank(station, worker, keys.rank.map(|r| r.0))
        };
        let number = |n: Option<Int<u32>>| n.map_or(0, |n| n.0);
        let change = match keys.event {
            PeerEvent::Gone => {
                pool.peer_gone(router);
                return;
            }
            PeerEvent::Add => LoadChange::Add {
                rank: rank(),
                prefill_tokens: number(keys.prefill_tokens),
                kv_blocks: number(keys.kv_blocks),
            },
            PeerEvent::PrefillCompleted => LoadChange::PrefillCompleted,
            PeerEvent::Output => LoadChange::Output { blocks: number(keys.blocks) },
            PeerEvent::Move => LoadChange::Move { rank: rank() },
            PeerEvent::Free => LoadChange::Free,
        };
        let (seq, id) = (keys.seq.zip(keys.id.as_deref())).expect("checked when the file was read");
        let event = LoadEvent::new(router, seq.0, request::id_of(id).0, change);
        pool.apply_peer(&event, self.now);
    }

    /// The outcome of a call on a name: what the call answered, how far the name has come, and
    /// where it is.
    fn of_name(&self, name: &str, answer: Result<(), Error>) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(record) = self.names.get(name) {
            record.tell(&mut outcome);
        }
        outcome.name = Some(name.to_owned());
        outcome.error = answer.map_or_else(Answer::Refused, |()| Answer::Fine);
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
        self.of_name(&keys.name, moved)
    }

    fn free(&mut self, keys: &FreeKeys) -> Outcome {
        let id = request::id_of(&keys.name);
        let Some(record) = self.names.get_mut(&keys.name) else {
            // Asked all the same: freeing what nobody knows must do no harm.
            self.stations[0].pool.free(id);
            return self.of_name(&keys.name, Ok(()));
        };
        let first = &self.stations[record.first()].pool;
        if keys.leg != Some(LegKey::Decode) {
            first.free(id);
            if let Some(leg) = record.legs.first_mut() {
                leg.live = false;
            }
        }
        if keys.leg != Some(LegKey::Prefill) {
            record.hold = None;
            drop(first.take_hold(id));
            for leg in record.legs.iter_mut().skip(1) {
                self.stations[leg.station].pool.free(id);
                leg.live = false;
            }
        }
        record.settle();
        self.of_name(&keys.name, Ok(()))
    }

    fn state(&self, name: &str) -> Outcome {
        let Some(record) = self.names.get(name) else {
            return self.of_name(name, Err(Error::UnknownRequest { id: request::id_of(name) }));
        };
        let answer = match &record.error {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        };
        self.of_name(name, answer)
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
            // Told in the order in which it happens at one instant: due times, leases, the drain.
            let (overdue, others): (Vec<_>, Vec<_>) =
                self.names.settle().into_iter().partition(|name| {
                    let record = self.names.get(name).expect("it waited until now");
                    record.error == Some(Error::DeadlineExceeded)
                });
            overdue.into_iter().for_each(|name| self.event(name));
            for (id, _, _) in expired.leases {
                self.lapsed(id, |record| {
                    for leg in record.legs.iter_mut().filter(|leg| leg.station == station) {
                        leg.live = false;
                    }
                });
            }
            for (id, _) in expired.holds {
                self.lapsed(id, |record| record.hold = None);
            }
            others.into_iter().for_each(|name| self.event(name));
        }
    }

    /// A lease of a name ran out.
    fn lapsed(&mut self, id: RequestId, end: impl FnOnce(&mut Record)) {
        let Some(name) = self.names.of(id).map(str::to_owned) else { return };
        let Some(record) = self.names.get_mut(&name) else { return };
        end(record);
        if record.settle() {
            self.event(name);
        }
    }
}

/// What a request asks for.
#[derive(Clone, Copy)]
enum How {
    Select,
    Book,
    Admit,
}

/// The classes that a policy document declares.
fn profile(document: &Document) -> Result<Arc<Profile>, Error> {
    let policy = Policy::try_from(document.clone())?;
    Ok(Arc::clone(policy.profile(None)))
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
    fn stats(&self) -> Stats {
        let snapshot = self.pool.snapshot();
        Stats {
            ranks: snapshot.ranks.len() as u64,
            full: snapshot.full as u64,
            epoch: snapshot.epoch.as_u64(),
            selected: snapshot.counters.selected,
            rejected: snapshot.counters.rejected,
            waiting: snapshot.waiting as u64,
            admitted: snapshot.counters.admitted,
            expired: snapshot.counters.expired,
            cancelled: snapshot.counters.cancelled,
            class: snapshot
                .classes
                .iter()
                .map(|c| (c.class.to_string(), ClassStats { waiting: c.waiting, tokens: c.tokens }))
                .collect(),
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
