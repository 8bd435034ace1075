//! The drain: whoever makes room lets in, on its own thread, those who can go.
//!
//! One thread drains a pool at a time (`queue::baton`); the others leave a mark. A step takes a
//! candidate under the queue's lock, books it without, and comes back to say what happened; fleet,
//! limits and clock are read afresh for each. Wakers, give-backs and drops of requests come after
//! the lock is let go. A release that a drain itself causes is put off until it ends
//! (`room::turn`).

use crate::error::Error;
use crate::fleet::eligible::{Availability, resolve};
use crate::load::events::LoadChange;
use crate::names::WorkerId;
use crate::pins::pin;
use crate::pool::admit::{Delivered, Pending, Standing, Why};
use crate::pool::choose::{Caller, Gate, Purpose, Tried, with_arena};
use crate::pool::report::ClassLoad;
use crate::pool::{Handle, Inner, Pool};
use crate::queue::baton::{Step, Work};
use crate::queue::policy::{ClassId, Profile};
use crate::queue::waiter::Wake;
use crate::queue::{Arrival, Blocked, Candidate, EntryId, Purpose as For, Queue, Round};
use crate::request::Target;
use crate::room::signal::Epoch;
use crate::room::turn::{self, Party};
use crate::sync::Arc;
use crate::time::Time;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

/// The epochs that a "no room" was concluded at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epochs {
    pub(crate) own: Epoch,
    pub(crate) pair: Option<Epoch>,
}

/// A gate that is known to be closed: until the epoch moves, or until a mark runs out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closure {
    epochs: Epochs,
    until: Time,
}

/// What stands under the queue's lock.
pub(crate) struct Bench {
    queue: Queue<Arc<Pending>>,
    /// The walk that a drain is in the middle of.
    round: Option<Round>,
    /// Per class: its gate, for requests without constraints, if it is known to be closed.
    closed: Vec<Option<Closure>>,
    /// The shapes of the fleet and of the pair's that what waits was last checked against.
    shape: (u64, u64),
    /// Lane keys by pin.
    lanes: FxHashMap<Target, u64>,
}

impl Bench {
    pub(crate) fn new(profile: Arc<Profile>) -> Bench {
        Bench {
            closed: vec![None; profile.classes().len()],
            queue: Queue::new(profile),
            round: None,
            shape: (0, 0),
            lanes: FxHashMap::default(),
        }
    }

    /// Requests that wait in a class; 0 if a reload has taken the class away.
    pub(crate) fn waiting(&self, class: ClassId) -> u64 {
        let known = class.index() < self.queue.profile().classes().len();
        if known { self.queue.waiting(class).requests } else { 0 }
    }

    /// The key of the lane for a pin. Keys are kept only while something waits.
    pub(crate) fn lane(&mut self, pin: Target) -> u64 {
        if self.queue.is_empty() {
            self.lanes.clear();
        }
        let next = self.lanes.len() as u64;
        *self.lanes.entry(pin).or_insert(next)
    }

    pub(crate) fn push(
        &mut self,
        arrival: Arrival<Arc<Pending>>,
        workers: u64,
        do_not_queue: bool,
    ) -> Result<EntryId, Error> {
        if do_not_queue {
            // It will not stay: no limit is asked.
            return Ok(self.queue.push_unlimited(arrival));
        }
        self.queue.push(arrival, workers).map_err(|(error, _)| error)
    }

    /// Whether an entry waits behind the gate of its class, known to be closed.
    pub(crate) fn is_closed_for(&self, entry: EntryId, epochs: Epochs, now: Time) -> bool {
        let Some(pending) = self.queue.get(entry) else { return true };
        let Some(class) = self.queue.class_of(entry) else { return true };
        !pending.request.is_constrained_or_pinned() && self.is_closed(class, epochs, now)
    }

    fn is_closed(&self, class: ClassId, epochs: Epochs, now: Time) -> bool {
        self.closed[class.index()].is_some_and(|c| c.epochs == epochs && now < c.until)
    }

    /// Puts another policy into force for what waits.
    pub(crate) fn reload(&mut self, profile: &Arc<Profile>) {
        self.queue.reload(Arc::clone(profile));
        self.closed = vec![None; profile.classes().len()];
        self.round = None;
        // What its new class asks of the pair may be impossible.
        self.shape = (u64::MAX, u64::MAX);
    }

    pub(crate) fn empty(&mut self) -> Vec<Arc<Pending>> {
        self.round = None;
        self.queue.clear()
    }

    /// What waits, class by class.
    pub(crate) fn report(&self) -> Vec<ClassLoad> {
        let classes = self.queue.profile().classes().iter().enumerate();
        classes
            .map(|(i, spec)| {
                let waiting = self.queue.waiting(ClassId(i as u32));
                ClassLoad {
                    class: spec.name.clone(),
                    waiting: waiting.requests,
                    tokens: waiting.tokens,
                }
            })
            .collect()
    }
}

/// A candidate, with what is needed to try it without the lock.
struct Turn {
    candidate: Candidate,
    pending: Arc<Pending>,
    head: Option<(Arc<Pending>, bool)>,
    profile: Arc<Profile>,
    known_closed: bool,
}

/// Waiters to be woken once no lock is held.
type Wakes = SmallVec<[Wake; 4]>;

impl Party for Inner {
    fn room(&self) {
        if self.bench.count() > 0
            && let Some(this) = self.me.upgrade()
        {
            this.baton.drain(&this, u64::MAX);
        }
    }
}

impl Work for Arc<Inner> {
    fn step(&self, now: u64) -> Step {
        let now = Time::from_nanos(now);
        let (_, held_up) = self.refuse_overdue(now);
        self.signal_if(held_up);
        self.refuse_impossible();
        loop {
            let epochs = self.epochs();
            let Some(turn) = self.bench.with(|bench| self.next_turn(bench, epochs, now)) else {
                self.bench.with(|bench| bench.round = None);
                return Step::Rest;
            };
            if turn.known_closed {
                self.bench.with(|bench| {
                    bench.queue.blocked(&turn.candidate, Blocked::Unconstrained);
                });
                continue;
            }
            if self.try_turn(&turn, epochs) {
                return Step::Went;
            }
        }
    }

    fn hand_on(&self) {
        let wake = self.bench.with(|bench| {
            bench.queue.iter().find_map(|(_, _, pending)| pending.waiter.hand_baton())
        });
        if let Some(wake) = wake {
            wake.wake();
        }
    }
}

impl Inner {
    /// The epochs now; to keep a finding, read before the rows.
    pub(crate) fn epochs(&self) -> Epochs {
        Epochs::of(self)
    }

    /// Drains on this thread, or (in the middle of another drain) as soon as that has ended.
    pub(crate) fn drain_soon(self: &Arc<Self>) {
        turn::tell(Arc::clone(self) as Arc<dyn Party>);
    }

    fn next_turn(&self, bench: &mut Bench, epochs: Epochs, now: Time) -> Option<Turn> {
        let queue = &mut bench.queue;
        let round = bench.round.get_or_insert_with(|| queue.begin());
        let candidate = queue.next(round)?;
        let pending = Arc::clone(queue.get(candidate.entry)?);
        let head = candidate
            .passing
            .and_then(|passing| Some((Arc::clone(queue.get(passing.head)?), passing.barred)));
        let alone = candidate.constrained || candidate.pin.is_some();
        Some(Turn {
            candidate,
            pending,
            head,
            profile: Arc::clone(bench.queue.profile()),
            known_closed: !alone && bench.is_closed(candidate.class, epochs, now),
        })
    }

    /// Tries a candidate. `true`: somebody left the queue.
    fn try_turn(self: &Arc<Inner>, turn: &Turn, epochs: Epochs) -> bool {
        let candidate = &turn.candidate;
        let caller = Caller { inner: self, stripe: &self.stripes[0], draining: true };
        let passing = turn.head.as_ref().map(|(head, barred)| (&head.request, *barred));
        let gate = Gate { class: candidate.class, profile: &turn.profile, passing };
        let purpose = match candidate.purpose {
            For::Admit => Purpose::Book,
            For::Ask => Purpose::Select,
        };
        let now = self.time();
        let checked = turn.pending.checked_at(now);
        let request = self.refreshed(&turn.pending, now);
        let mut into = None;
        match caller.attempt(&request, checked, purpose, Some(gate), &mut into) {
            Ok(Tried::In { .. }) if purpose == Purpose::Select => {
                self.bench.with(|bench| bench.queue.open(candidate));
                false
            }
            Ok(Tried::In { passed, hold }) => {
                let placement = into.expect("it is in");
                let class = turn.profile.class(candidate.class).name.clone();
                self.deliver(turn, Delivered { placement, class, hold }, passed);
                true
            }
            Ok(Tried::Closed(closed)) => {
                let unconstrained = !candidate.constrained && candidate.pin.is_none();
                let reach = match (unconstrained, candidate.constrained) {
                    (true, _) => Blocked::Unconstrained,
                    (false, false) => Blocked::Lane,
                    (false, true) => Blocked::Entry,
                };
                // With its head's ranks barred it was not asked about all of them.
                let barred = passing.is_some_and(|(_, barred)| barred);
                self.bench.with(|bench| {
                    if unconstrained && !barred && candidate.generation == bench.queue.generation()
                    {
                        let closure = Closure { epochs, until: closed.until };
                        bench.closed[candidate.class.index()] = Some(closure);
                    }
                    bench.queue.blocked(candidate, reach);
                });
                false
            }
            // The reload that made it stale drains when it has told the queue.
            Ok(Tried::Stale) => {
                self.bench.with(|bench| bench.queue.blocked(candidate, Blocked::Class));
                false
            }
            Err(error) if purpose == Purpose::Select => {
                // It would be refused at its turn: its gate is open.
                let _ = error;
                self.bench.with(|bench| bench.queue.open(candidate));
                false
            }
            Err(error) => {
                self.refuse(candidate.entry, error);
                true
            }
        }
    }

    fn deliver(&self, turn: &Turn, delivered: Delivered, passed: bool) {
        // Out of the queue first, so that it is counted out once, whoever else tries.
        let left = self.bench.leave(|bench| bench.queue.admitted(&turn.candidate, passed));
        match turn.pending.waiter.deliver(delivered) {
            Ok(wake) => {
                let stripe = &self.stripes[0];
                stripe.admitted.fetch_add(1, Ordering::Relaxed);
                stripe.wakeups.fetch_add(1, Ordering::Relaxed);
                drop(left);
                wake.wake();
            }
            // It left while it was being booked: give back, which signals, which looks again.
            Err(mut delivered) => {
                drop(left);
                if let Some(landed) = &mut delivered.placement.landed {
                    let room = self.give_back(landed);
                    self.signal_if(room);
                }
                drop(delivered.hold);
            }
        }
    }

    /// Refuses one that waits, for good.
    fn refuse(&self, entry: EntryId, error: Error) {
        let Some(left) = self.bench.leave(|bench| bench.queue.remove(entry)) else { return };
        self.rejected.count(&error);
        if let Ok(gone) = left.payload.waiter.refuse(error) {
            gone.wake.wake();
        }
    }

    /// Refuses those whose due time has come, and says how many they were and whether one of them
    /// held others up: the caller moves the epoch then. Never admitted late, so this comes before
    /// the walk.
    fn refuse_overdue(&self, now: Time) -> (usize, bool) {
        let mut refused = 0;
        let mut wakes = Wakes::new();
        let mut held_up = false;
        while let Some(left) = self.bench.leave(|bench| bench.queue.take_due(now)) {
            held_up |= left.held_up;
            if let Some(gone) = left.payload.waiter.expire() {
                refused += 1;
                // Whoever held the baton has left it here.
                held_up |= gone.baton;
                wakes.push(gone.wake);
            }
        }
        if refused > 0 {
            self.stripes[0].expired.fetch_add(refused as u64, Ordering::Relaxed);
        }
        wakes.into_iter().for_each(Wake::wake);
        (refused, held_up)
    }

    /// Refuses what waits for ranks that can no longer come, once per shape of the fleet.
    fn refuse_impossible(&self) {
        let suspects = {
            let guard = pin();
            let shape = (self.view.load(&guard).shape, self.pair_shape());
            let suspects: Vec<(EntryId, Arc<Pending>, bool)> = self.bench.with(|bench| {
                if bench.shape == shape {
                    return Vec::new();
                }
                bench.shape = shape;
                let queue = &bench.queue;
                let judged = |id| {
                    let class = queue.class_of(id).map(|class| queue.profile().class(class));
                    class.is_some_and(|spec| spec.thresholds.decode_frac.is_some())
                };
                let suspects = queue.iter();
                suspects.map(|(id, _, pending)| (id, Arc::clone(pending), judged(id))).collect()
            });
            suspects
        };
        if suspects.is_empty() {
            return;
        }
        let mut lost = Vec::new();
        {
            let guard = pin();
            let view = self.view.load(&guard);
            let nobody = view.ranks == 0;
            for (entry, pending, judged) in suspects {
                let request = &pending.request;
                let constraints = request.constraints.as_deref();
                // Adapters never make a wait impossible: the un-narrowed set stands for them.
                let possible = match constraints {
                    Some(c) if !nobody => with_arena(|arena| {
                        resolve(view, Some(c), None, Availability::Ignored, arena).any(view)
                    }),
                    _ => !nobody,
                };
                if !possible || (judged && !self.pair_may_ever(request)) {
                    lost.push(entry);
                }
            }
        }
        for entry in lost {
            self.refuse(entry, Error::NoEndpoints);
        }
    }

    /// One that waited was withdrawn by its owner.
    pub(crate) fn withdrawn(self: &Arc<Self>, entry: EntryId, baton: bool) {
        let left = self.bench.leave(|bench| bench.queue.remove(entry));
        let held_up = left.as_ref().is_some_and(|left| left.held_up);
        drop(left);
        if held_up {
            // Moves the epoch as well: what was concluded behind it holds no longer.
            self.signal.release_and_tell();
        }
        if held_up || baton {
            self.drain_soon();
        }
    }

    /// Closes the queue: everybody who waits is told.
    pub(crate) fn close_queue(&self) {
        let waiting = self.bench.close(Bench::empty);
        for pending in waiting {
            if let Some(left) = pending.waiter.close() {
                left.wake.wake();
            }
        }
    }
}

impl Handle {
    /// What holds up one that waits.
    pub(crate) fn standing(&self, pending: &Pending, entry: EntryId) -> Option<Standing> {
        let inner = &*self.inner;
        let (ahead, class, profile) = inner.bench.with(|bench| {
            let ahead = bench.queue.position(entry)?;
            let class = bench.queue.class_of(entry)?;
            Some((ahead, class, Arc::clone(bench.queue.profile())))
        })?;
        let gate = Gate { class, profile: &profile, passing: None };
        let checked = pending.checked_at(inner.time());
        let (caller, request) = (self.caller(), &pending.request);
        let why = match caller.attempt(request, checked, Purpose::Select, Some(gate), &mut None) {
            Ok(Tried::Closed(closed)) => caller.why_closed(closed, request, checked, gate),
            _ => Why::Behind,
        };
        Some(Standing { why, ahead })
    }
}

impl Pool {
    /// Puts another policy in force: every waiter is resolved again by its original name and
    /// uncached tokens and keeps its arrival sequence; credits restart at 0; nobody is evicted by a
    /// lower limit. `O(ranks + n log n)`.
    pub fn set_policy(&self, profile: &Arc<Profile>) {
        self.inner().put_policy(profile);
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Profile> {
        let guard = pin();
        Arc::clone(&self.inner().view.load(&guard).rules.profile)
    }

    /// Shows the pool an instant and ends what ends by then: requests whose due time has come are
    /// refused, then leases of bookings by id and soft marks end, then what waits is looked at. For
    /// hosts without timers: call it at [`next_due`](Self::next_due), or every so often.
    pub fn expire(&self, now: Time) -> crate::booking::Expired {
        let inner = &self.handle.inner;
        let now = inner.show(now);
        // Nobody is told before everything that ends at this instant has ended: a drain in between
        // would choose by what is about to go.
        let (overdue, mut room) = inner.refuse_overdue(now);
        let mut expired = crate::booking::Expired { overdue, ..Default::default() };
        for mut lapsed in inner.ids.expire(now) {
            expired.leases.push((lapsed.id, lapsed.attempt, lapsed.value.rank));
            inner.tell(lapsed.value.told, LoadChange::Free);
            room |= inner.give_back(&mut lapsed.value);
        }
        expired.leases.sort();
        let mut pairs = Vec::new();
        for lapsed in inner.holds.expire(now) {
            expired.holds.push((lapsed.id, lapsed.value.rank()));
            pairs.extend(lapsed.value.give_back_untold());
        }
        expired.holds.sort();
        expired.peers = inner.expire_peers(now, &mut room);
        let marks: &mut Vec<WorkerId> = &mut expired.marks;
        let lapsed = inner.edit_untold(|writer| Ok(writer.lapse_marks(now, marks)));
        room |= lapsed.expect("ending a mark is not refused").1;
        // A paired pool's drain before those that wait on it.
        pairs.iter().for_each(|pair| pair.signal_if(true));
        inner.signal_if(room);
        expired
    }

    /// The next instant at which [`expire`](Self::expire) has something to do.
    pub fn next_due(&self) -> Option<Time> {
        let inner = self.inner();
        let marks = inner.writer.lock().next_lapse();
        let queue = inner.bench.with(|bench| bench.queue.next_due());
        [inner.ids.next_due(), inner.holds.next_due(), inner.next_peer_due(), marks, queue]
            .into_iter()
            .flatten()
            .min()
    }
}

impl Inner {
    fn put_policy(&self, profile: &Arc<Profile>) {
        {
            let mut writer = self.writer.lock();
            let rules = writer.view.rules.under(profile, writer.view.rules.paired);
            writer.set_rules(rules, self.time());
            self.publish(&mut writer, crate::fleet::writer::Edit::default());
            // Still under the writer lock: the queue learns of policies in the order in which
            // they came into force.
            self.bench.with(|bench| bench.reload(profile));
        }
        self.signal.release_and_tell();
    }
}
