//! The queue proper: what waits, class by class, and who is to be tried next.
//!
//! Plain data, to be kept under one lock and touched only when something waits. Whoever drains it
//! asks for a candidate ([`Queue::next`]), lets go of the lock, tries to book it, and comes back to
//! say what happened. In between, anybody may push, remove, expire or reload; a candidate that has
//! left meanwhile is simply gone.
//!
//! Always: an entry is in its lane, in its class's counters and (if it has a due time) in the due
//! index until it leaves for good, once; a class is in the ring exactly while something of it
//! waits; nothing that is found blocked stays so beyond its round.
#![forbid(unsafe_code)]

use crate::error::{Error, LimitKind};
use crate::names::Name;
use crate::queue::drr::{Drr, Head, Next};
use crate::queue::due::DueIndex;
use crate::queue::lanes::{Lanes, PASSES, Slots};
use crate::queue::order::{OrderKey, Rating};
use crate::queue::policy::{ClassId, ClassSpec, Profile};
use crate::time::Time;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A request that is to wait.
#[derive(Debug)]
pub(crate) struct Arrival<T> {
    /// The class or family it named, or that a classifier gave it: it is resolved here, under the
    /// lock, so that class and limits are those of the policy in force, and again at each reload.
    pub class: Option<Name>,
    /// What its order within its class is made of.
    pub rating: Rating,
    /// The lane it waits in: one opaque key for each pin, none for the main lane.
    pub pin: Option<u64>,
    /// Whether it has constraints of its own, besides a pin, so that the class's gate for
    /// everybody else says nothing of it.
    pub constrained: bool,
    /// Prompt tokens.
    pub isl: u64,
    /// What the host wants back.
    pub payload: T,
}

/// An entry of the queue. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntryId {
    slot: u32,
    sequence: u64,
}

/// What waits in one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Requests.
    pub requests: u64,
    /// Their prompt tokens.
    pub tokens: u64,
    /// Those of them that were cached at arrival.
    pub cached_tokens: u64,
}

/// An entry that left without being admitted.
#[derive(Debug)]
pub(crate) struct Left<T> {
    /// What the host gave.
    pub payload: T,
    /// Whether it held up another entry (it headed its class or lane, or was within reach of the
    /// head): that one has to be looked at now, without a further event.
    pub held_up: bool,
}

/// What a candidate is proposed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be booked: answer [`Queue::admitted`] or [`Queue::blocked`].
    Admit,
    /// Its class cannot pay for it yet and others would go, which counts as its turn only if it
    /// could go itself: look at its gate only, and answer [`Queue::open`] or [`Queue::blocked`].
    Ask,
}

/// The head, blocked by its own constraints, that a candidate would pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passing {
    /// The head of the candidate's class.
    pub head: EntryId,
    /// It was passed as often as it may be: the candidate must not land on any rank that the head
    /// may use. If it has nowhere else to go it is blocked.
    pub barred: bool,
}

/// Whom to try next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The entry.
    pub entry: EntryId,
    /// Its class, in the profile of `generation`.
    pub class: ClassId,
    /// See [`Queue::generation`].
    pub generation: u64,
    /// Its lane's key, if it is pinned.
    pub pin: Option<u64>,
    /// Whether it has constraints of its own, besides a pin.
    pub constrained: bool,
    /// What for.
    pub purpose: Purpose,
    /// Whom it would pass, if anybody whom that may hurt.
    pub passing: Option<Passing>,
    lane: u32,
}

/// How much a refusal says, from least to most. It holds until the round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Only this entry cannot go.
    Entry,
    /// Nobody in this entry's lane can go. In the main lane the same as `Entry`.
    Lane,
    /// Nobody of the class without constraints or pin can go.
    Unconstrained,
    /// Nobody of the class can go, whatever its constraints.
    Class,
}

/// One walk over the queue, from its head to where nothing more can go. Beginning another one ends
/// it. What it found blocked is not proposed again in it.
#[derive(Debug)]
pub(crate) struct Round {
    number: u64,
}

#[derive(Debug)]
struct Entry<T> {
    id: EntryId,
    class: u32,
    lane: u32,
    key: OrderKey,
    pin: Option<u64>,
    constrained: bool,
    rating: Rating,
    isl: u64,
    named: Option<Name>,
    /// How often it was passed, while it headed the main lane or its own, on ranks it may use.
    passed: u32,
    /// The round in which it was found blocked.
    blocked: u64,
    /// The stamp at which its gate was seen open.
    open: u64,
    payload: T,
}

impl<T> Entry<T> {
    fn cost(&self) -> u64 {
        self.rating.cost.unwrap_or(self.rating.uncached).max(1)
    }

    fn cached(&self) -> u64 {
        self.isl.saturating_sub(self.rating.uncached)
    }

    /// The due time that can pass.
    fn due(&self) -> Option<Time> {
        self.rating.due.filter(|&due| due < Time::NEVER)
    }

    /// Whether one answer of the class's gate holds for it.
    fn is_unconstrained(&self) -> bool {
        self.pin.is_none() && !self.constrained
    }
}

#[derive(Debug, Default)]
struct Class {
    lanes: Lanes,
    waiting: Waiting,
    /// The stamp at which its gate for those without constraints was seen open.
    open: u64,
}

/// What waits, and in which order it goes. `T` is what the host wants back.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    profile: Arc<Profile>,
    generation: u64,
    classes: Vec<Class>,
    /// Classes in which something waits.
    ring: BTreeSet<u32>,
    drr: Drr,
    slots: Store<T>,
    sequence: u64,
    due: DueIndex,
    round: u64,
    /// Moves whenever somebody goes: an open gate may be a closed one after that.
    stamp: u64,
}

/// The entries by slot.
#[derive(Debug)]
struct Store<T> {
    entries: Vec<Option<Entry<T>>>,
    free: Vec<u32>,
}

impl<T> Store<T> {
    fn get(&self, id: EntryId) -> Option<&Entry<T>> {
        self.entries.get(id.slot as usize)?.as_ref().filter(|entry| entry.id == id)
    }

    fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry<T>> {
        self.entries.get_mut(id.slot as usize)?.as_mut().filter(|entry| entry.id == id)
    }

    fn at(&self, slot: u32) -> &Entry<T> {
        self.entries[slot as usize].as_ref().expect("lanes hold slots of entries that wait")
    }

    fn holds(&self, slot: u32, sequence: u64) -> bool {
        self.get(EntryId { slot, sequence }).is_some()
    }

    fn vacant(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as u32
        })
    }

    fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

impl<T> Slots for Store<T> {
    fn blocked(&self, slot: u32) -> u64 {
        self.at(slot).blocked
    }
    fn constrained(&self, slot: u32) -> bool {
        self.at(slot).constrained
    }
    fn passed(&self, slot: u32) -> u32 {
        self.at(slot).passed
    }
}

impl<T> Queue<T> {
    pub(crate) fn new(profile: Arc<Profile>) -> Queue<T> {
        Queue {
            classes: profile.classes().iter().map(|_| Class::default()).collect(),
            drr: Drr::new(profile.classes().iter().map(|class| class.quantum)),
            profile,
            generation: 0,
            ring: BTreeSet::new(),
            slots: Store { entries: Vec::new(), free: Vec::new() },
            sequence: 0,
            due: DueIndex::default(),
            round: 0,
            stamp: 1,
        }
    }

    /// The policy in force here.
    pub(crate) fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// How often the policy was reloaded: class ids of another generation mean nothing.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What waits in a class of the profile in force.
    pub(crate) fn waiting(&self, class: ClassId) -> Waiting {
        self.classes[class.index()].waiting
    }

    /// Whether one more may wait in a class, with `workers` known.
    ///
    /// # Errors
    /// `QueueRejected`: a limit is reached by what waits already. A limit of 0 always is.
    pub(crate) fn check_limits(&self, class: ClassId, workers: u64) -> Result<(), Error> {
        let spec = self.profile.class(class);
        let waiting = self.waiting(class);
        // A class that never queues says so, whatever other limit is reached.
        let never = spec.never_queues().is_some();
        for (kind, per_worker) in spec.limits.iter().filter(|&(_, limit)| !never || limit == 0) {
            let current = match kind {
                LimitKind::Requests => waiting.requests,
                LimitKind::RawIslTokens => waiting.tokens,
                LimitKind::CachedTokens => waiting.cached_tokens,
            };
            let limit = per_worker.saturating_mul(workers);
            if current >= limit {
                return Err(Error::QueueRejected {
                    class: spec.name.clone(),
                    kind,
                    current,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// Lets a request wait. O(log n).
    ///
    /// A request without a due time is given one if its class has a `max_wait`.
    ///
    /// # Errors
    /// The payload, with what [`Queue::check_limits`] says.
    pub(crate) fn push(&mut self, new: Arrival<T>, workers: u64) -> Result<EntryId, (Error, T)> {
        let class = self.resolve(new.class.as_ref(), new.rating.uncached);
        match self.check_limits(class, workers) {
            Ok(()) => Ok(self.push_unlimited(new)),
            Err(error) => Err((error, new.payload)),
        }
    }

    /// As [`Queue::push`], whatever the limits: for one that leaves again at once if it is not let
    /// in.
    pub(crate) fn push_unlimited(&mut self, new: Arrival<T>) -> EntryId {
        let class = self.resolve(new.class.as_ref(), new.rating.uncached);
        let mut rating = new.rating;
        let spec = self.profile.class(class);
        rating.due = due_in(spec, &rating);
        self.sequence += 1;
        let id = EntryId { slot: self.slots.vacant(), sequence: self.sequence };
        let key = OrderKey::new(spec.queue_policy, &rating, id.sequence);
        let entry = Entry {
            id,
            class: class.0,
            lane: 0,
            key,
            pin: new.pin,
            constrained: new.constrained,
            rating,
            isl: new.isl,
            named: new.class,
            passed: 0,
            blocked: 0,
            open: 0,
            payload: new.payload,
        };
        if let Some(due) = entry.due() {
            self.due.insert(due, id.slot, id.sequence);
        }
        self.place(entry);
        id
    }

    /// Names that the policy in force does not know fall to its default family.
    fn resolve(&self, named: Option<&Name>, uncached: u64) -> ClassId {
        self.profile.resolve(named, uncached, false).expect("only the strict form refuses")
    }

    /// Puts an entry into its class, lane and slot.
    fn place(&mut self, mut entry: Entry<T>) {
        let class = &mut self.classes[entry.class as usize];
        if class.waiting.requests == 0 {
            self.ring.insert(entry.class);
        }
        class.waiting.requests += 1;
        class.waiting.tokens += entry.isl;
        class.waiting.cached_tokens += entry.cached();
        let slot = entry.id.slot;
        entry.lane = class.lanes.insert(entry.pin, entry.key, slot, entry.constrained);
        self.slots.entries[slot as usize] = Some(entry);
    }

    /// Takes an entry out everywhere, and says whether it held up another one. O(log n).
    fn take(&mut self, id: EntryId) -> Option<(Entry<T>, bool)> {
        self.slots.get(id)?;
        let entry = self.slots.entries[id.slot as usize].take()?;
        self.slots.free.push(id.slot);
        let class = &mut self.classes[entry.class as usize];
        let held_up = class.lanes.remove(entry.lane, entry.key, entry.constrained);
        class.waiting.requests -= 1;
        class.waiting.tokens -= entry.isl;
        class.waiting.cached_tokens -= entry.cached();
        if class.waiting.requests == 0 {
            self.ring.remove(&entry.class);
            self.drr.emptied(entry.class);
        }
        if entry.due().is_some() {
            let slots = &self.slots;
            self.due.forget(|slot, sequence| slots.holds(slot, sequence));
        }
        Some((entry, held_up))
    }

    /// Withdraws an entry, wherever in the queue it is; `None` if it has left. O(log n).
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<Left<T>> {
        let (entry, held_up) = self.take(id)?;
        Some(Left { payload: entry.payload, held_up })
    }

    /// What waits under an id; `None` if it has left.
    pub(crate) fn get(&self, id: EntryId) -> Option<&T> {
        self.slots.get(id).map(|entry| &entry.payload)
    }

    /// The class an entry waits in; `None` if it has left.
    pub(crate) fn class_of(&self, id: EntryId) -> Option<ClassId> {
        self.slots.get(id).map(|entry| ClassId(entry.class))
    }

    /// How many are ahead of an entry in its lane; `None` if it has left. O(that number).
    pub(crate) fn position(&self, id: EntryId) -> Option<usize> {
        let entry = self.slots.get(id)?;
        Some(self.classes[entry.class as usize].lanes.ahead(entry.lane, entry.key))
    }

    /// All that waits, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EntryId, ClassId, &T)> {
        self.slots.entries.iter().flatten().map(|e| (e.id, ClassId(e.class), &e.payload))
    }

    /// Takes all that waits, in the order of arrival.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        let mut all: Vec<Entry<T>> = self.slots.entries.drain(..).flatten().collect();
        all.sort_unstable_by_key(|entry| entry.id.sequence);
        self.slots.free.clear();
        self.due = DueIndex::default();
        self.start_over();
        all.into_iter().map(|entry| entry.payload).collect()
    }

    /// Empties classes and ring; the entries are the caller's business.
    fn start_over(&mut self) {
        self.classes = self.profile.classes().iter().map(|_| Class::default()).collect();
        self.drr = Drr::new(self.profile.classes().iter().map(|class| class.quantum));
        self.ring.clear();
    }

    /// When the next entry is due. O(1).
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(due, ..)| due)
    }

    /// Takes out one entry that is due at `now` (`now >= due`), the earliest first; `None` once
    /// there is none. O(log n).
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Left<T>> {
        let (due, slot, sequence) = self.due.first()?;
        if due > now {
            return None;
        }
        self.remove(EntryId { slot, sequence })
    }

    /// Puts another policy into force. Every entry is resolved again by the name and the uncached
    /// tokens it came with, and keeps its arrival sequence and its due time; credits restart at 0;
    /// nobody is sent away by a lower limit. O(n log n).
    pub(crate) fn reload(&mut self, profile: Arc<Profile>) {
        self.profile = profile;
        self.generation += 1;
        self.start_over();
        for slot in 0..self.slots.entries.len() {
            let Some(mut entry) = self.slots.entries[slot].take() else { continue };
            let class = self.resolve(entry.named.as_ref(), entry.rating.uncached);
            let policy = self.profile.class(class).queue_policy;
            entry.class = class.0;
            entry.key = OrderKey::new(policy, &entry.rating, entry.id.sequence);
            (entry.blocked, entry.open) = (0, 0);
            self.place(entry);
        }
    }

    /// Begins a walk; nothing is known to be blocked.
    pub(crate) fn begin(&mut self) -> Round {
        self.round += 1;
        self.stamp += 1;
        Round { number: self.round }
    }

    /// Whom to try next; `None` once nothing more can go in this round (or another round has
    /// begun). Asking again without an answer in between gives the same candidate.
    /// O(classes with a backlog x log n).
    pub(crate) fn next(&mut self, round: &Round) -> Option<Candidate> {
        if round.number != self.round {
            return None;
        }
        let (classes, slots) = (&mut self.classes, &self.slots);
        let (number, stamp) = (round.number, self.stamp);
        let next = self.drr.next(&self.ring, |class| {
            let class = &mut classes[class as usize];
            let (_, slot) = class.lanes.candidate(number, slots)?;
            let entry = slots.at(slot);
            let open = entry.open == stamp || (entry.is_unconstrained() && class.open == stamp);
            Some(Head { cost: entry.cost(), open })
        });
        let (class, purpose) = match next {
            Next::Go(class) => (class, Purpose::Admit),
            Next::Ask(class) => (class, Purpose::Ask),
            Next::Nobody => return None,
        };
        let lanes = &mut self.classes[class as usize].lanes;
        let (key, slot) = lanes.candidate(number, &self.slots)?;
        let entry = self.slots.at(slot);
        let passing = lanes.passes(key, &self.slots).map(|head| {
            let head = self.slots.at(head);
            Passing { head: head.id, barred: head.passed >= PASSES }
        });
        Some(Candidate {
            entry: entry.id,
            class: ClassId(class),
            generation: self.generation,
            pin: lanes.pin(entry.lane),
            constrained: entry.constrained,
            purpose,
            passing,
            lane: entry.lane,
        })
    }

    /// Says that a candidate was booked, and takes it out; `None` if it has left meanwhile, in
    /// which case it costs its class nothing. `passed`: it landed on a rank that the head it was
    /// passing may use (of no meaning if it was passing nobody). O(log n).
    pub(crate) fn admitted(&mut self, candidate: &Candidate, passed: bool) -> Option<T> {
        let entry = self.slots.get(candidate.entry)?;
        let (class, lane, key, cost) = (entry.class, entry.lane, entry.key, entry.cost());
        let lanes = &self.classes[class as usize].lanes;
        // Who passes in a pinned lane wants the very rank that its head waits for.
        if let Some(head) = lanes.passes_in_lane(lane, key) {
            self.count_pass(head);
        }
        if let Some(passing) = candidate.passing.filter(|_| passed)
            && self.slots.get(passing.head).is_some()
        {
            self.count_pass(passing.head.slot);
        }
        self.drr.went(class, cost);
        self.stamp += 1;
        self.take(candidate.entry).map(|(entry, _)| entry.payload)
    }

    fn count_pass(&mut self, head: u32) {
        if let Some(head) = &mut self.slots.entries[head as usize] {
            head.passed = head.passed.saturating_add(1);
        }
    }

    /// Says that a candidate cannot go now, and how far that reaches. O(1).
    pub(crate) fn blocked(&mut self, candidate: &Candidate, reach: Blocked) {
        let round = self.round;
        if let Some(entry) = self.slots.get_mut(candidate.entry) {
            entry.blocked = round;
        }
        if candidate.generation != self.generation {
            return;
        }
        let lanes = &mut self.classes[candidate.class.index()].lanes;
        match reach {
            Blocked::Entry => {}
            // A lane that was emptied meanwhile may be another pin's by now.
            Blocked::Lane => {
                if candidate.pin.is_some() && lanes.pin(candidate.lane) == candidate.pin {
                    lanes.shut_lane(candidate.lane, round);
                }
            }
            Blocked::Unconstrained => lanes.shut_unconstrained(round),
            Blocked::Class => lanes.shut(round),
        }
    }

    /// Says that the gate of a candidate that was proposed with [`Purpose::Ask`] is open. O(1).
    pub(crate) fn open(&mut self, candidate: &Candidate) {
        let stamp = self.stamp;
        let Some(entry) = self.slots.get_mut(candidate.entry) else { return };
        entry.open = stamp;
        if entry.is_unconstrained() {
            let class = entry.class;
            self.classes[class as usize].open = stamp;
        }
    }

    /// The credit of a class, in tokens.
    #[cfg(test)]
    fn credit(&self, class: ClassId) -> u128 {
        self.drr.credit(class.0)
    }
}

/// The due time of a request in a class: its own, or the one that the class's `max_wait` gives it.
fn due_in(class: &ClassSpec, rating: &Rating) -> Option<Time> {
    rating.due.or_else(|| class.max_wait.map(|wait| rating.arrival.after(wait)))
}

#[cfg(test)]
mod tests;
