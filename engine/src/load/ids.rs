//! Bookings by request id, for hosts that cannot keep a value: sharded tables, each under a short
//! lock, with the entries of a shard in the order in which they were last heard of.
//!
//! The lease is one length for all, so that order is also the order in which leases end: renewing
//! moves an entry to the back, expiring takes from the front, both `O(1)` and without allocating
//! once the table has grown. What is taken out is dropped by the caller, after the lock.
#![forbid(unsafe_code)]

use crate::names::{Attempt, RequestId};
use crate::sync::{MODELLED, Mutex};
use crate::time::Time;
use crossbeam_utils::CachePadded;
use std::collections::HashMap;
use std::time::Duration;

const SHARDS: usize = if MODELLED { 1 } else { 64 };
const NIL: u32 = u32::MAX;

/// What an id stands for.
enum State<T> {
    /// A call is under way that may book it; nothing can be done with it yet.
    Reserved,
    /// Booked.
    Live(T),
}

struct Entry<T> {
    id: RequestId,
    attempt: Attempt,
    touched: Time,
    prev: u32,
    next: u32,
    state: State<T>,
}

struct Shard<T> {
    // A keyed hash: ids may come from clients, who must not be able to make them collide.
    places: HashMap<RequestId, u32, foldhash::fast::RandomState>,
    entries: Vec<Option<Entry<T>>>,
    spare: Vec<u32>,
    /// Longest silent, and last heard of. Only live entries are in this list.
    front: u32,
    back: u32,
    last_attempt: u64,
}

impl<T> Shard<T> {
    fn new(hasher: foldhash::fast::RandomState) -> Shard<T> {
        Shard {
            places: HashMap::with_hasher(hasher),
            entries: Vec::new(),
            spare: Vec::new(),
            front: NIL,
            back: NIL,
            last_attempt: 0,
        }
    }

    fn at(&mut self, place: u32) -> &mut Entry<T> {
        self.entries[place as usize].as_mut().expect("places name entries that are there")
    }

    fn unlink(&mut self, place: u32) {
        let (prev, next) = (self.at(place).prev, self.at(place).next);
        match prev {
            NIL => self.front = next,
            p => self.at(p).next = next,
        }
        match next {
            NIL => self.back = prev,
            n => self.at(n).prev = prev,
        }
    }

    fn link_last(&mut self, place: u32, now: Time) {
        let back = self.back;
        let entry = self.at(place);
        entry.prev = back;
        entry.next = NIL;
        entry.touched = now;
        match back {
            NIL => self.front = place,
            b => self.at(b).next = place,
        }
        self.back = place;
    }

    fn take(&mut self, place: u32) -> Entry<T> {
        let entry =
            self.entries[place as usize].take().expect("places name entries that are there");
        self.places.remove(&entry.id);
        self.spare.push(place);
        entry
    }

    fn live(&mut self, id: RequestId) -> Option<u32> {
        let place = *self.places.get(&id)?;
        matches!(self.at(place).state, State::Live(_)).then_some(place)
    }
}

/// A lease that ran out: what it was on is handed back.
pub(crate) struct Lapsed<T> {
    pub(crate) id: RequestId,
    pub(crate) attempt: Attempt,
    pub(crate) value: T,
}

/// The table.
pub(crate) struct Ids<T> {
    shards: Box<[CachePadded<Mutex<Shard<T>>>]>,
    hasher: foldhash::fast::RandomState,
    lease: Option<Duration>,
}

impl<T> Ids<T> {
    /// A table whose entries are reclaimed after `lease` of silence; `None`: never.
    pub(crate) fn new(lease: Option<Duration>) -> Ids<T> {
        let hasher = foldhash::fast::RandomState::default();
        let shard = || CachePadded::new(Mutex::new(Shard::new(hasher.clone())));
        Ids { shards: (0..SHARDS).map(|_| shard()).collect(), hasher: hasher.clone(), lease }
    }

    fn shard(&self, id: RequestId) -> &Mutex<Shard<T>> {
        use std::hash::BuildHasher;
        // The table inside uses the low bits: the high ones choose the shard.
        &self.shards[(self.hasher.hash_one(id) >> 58) as usize % SHARDS]
    }

    /// Takes an id for a call that may book it; `None` if it is taken.
    pub(crate) fn reserve(&self, id: RequestId) -> Option<Attempt> {
        let mut shard = self.shard(id).lock();
        if shard.places.contains_key(&id) {
            return None;
        }
        shard.last_attempt += 1;
        let attempt = Attempt(shard.last_attempt);
        let entry = Entry {
            id,
            attempt,
            touched: Time::ZERO,
            prev: NIL,
            next: NIL,
            state: State::Reserved,
        };
        let place = match shard.spare.pop() {
            Some(place) => {
                shard.entries[place as usize] = Some(entry);
                place
            }
            None => {
                shard.entries.push(Some(entry));
                shard.entries.len() as u32 - 1
            }
        };
        shard.places.insert(id, place);
        Some(attempt)
    }

    /// Gives up a reservation.
    pub(crate) fn forget(&self, id: RequestId) {
        let mut shard = self.shard(id).lock();
        if let Some(&place) = shard.places.get(&id)
            && matches!(shard.at(place).state, State::Reserved)
        {
            shard.take(place);
        }
    }

    /// Makes a reservation live.
    pub(crate) fn fill(&self, id: RequestId, value: T, now: Time) {
        let mut shard = self.shard(id).lock();
        let place = *shard.places.get(&id).expect("a reservation stands until it is filled");
        shard.at(place).state = State::Live(value);
        shard.link_last(place, now);
    }

    /// Calls `f` on a live entry and renews its lease; `None` if there is none.
    pub(crate) fn with<R>(
        &self,
        id: RequestId,
        now: Time,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let mut shard = self.shard(id).lock();
        let place = shard.live(id)?;
        shard.unlink(place);
        shard.link_last(place, now);
        match &mut shard.at(place).state {
            State::Live(value) => Some(f(value)),
            State::Reserved => None,
        }
    }

    /// Takes a live entry out, if it is this attempt (`None`: whichever is current).
    pub(crate) fn remove(&self, id: RequestId, attempt: Option<Attempt>) -> Option<T> {
        let mut shard = self.shard(id).lock();
        let place = shard.live(id)?;
        if attempt.is_some_and(|a| a != shard.at(place).attempt) {
            return None;
        }
        shard.unlink(place);
        match shard.take(place).state {
            State::Live(value) => Some(value),
            State::Reserved => None,
        }
    }

    /// Takes out what has been silent for the whole lease at `now`.
    pub(crate) fn expire(&self, now: Time) -> Vec<Lapsed<T>> {
        let mut lapsed = Vec::new();
        let Some(lease) = self.lease else { return lapsed };
        for shard in &self.shards {
            let mut shard = shard.lock();
            while shard.front != NIL {
                let place = shard.front;
                if shard.at(place).touched.after(lease) > now {
                    break;
                }
                shard.unlink(place);
                let entry = shard.take(place);
                if let State::Live(value) = entry.state {
                    lapsed.push(Lapsed { id: entry.id, attempt: entry.attempt, value });
                }
            }
        }
        lapsed
    }

    /// When the first lease ends.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let lease = self.lease?;
        self.shards
            .iter()
            .filter_map(|shard| {
                let mut shard = shard.lock();
                (shard.front != NIL).then(|| {
                    let front = shard.front;
                    shard.at(front).touched.after(lease)
                })
            })
            .min()
    }

    /// Calls `f` on every live entry, shard by shard.
    pub(crate) fn for_each(&self, mut f: impl FnMut(RequestId, Attempt, &T)) {
        for shard in &self.shards {
            let shard = shard.lock();
            for entry in shard.entries.iter().flatten() {
                if let State::Live(value) = &entry.state {
                    f(entry.id, entry.attempt, value);
                }
            }
        }
    }

    /// Live entries.
    pub(crate) fn len(&self) -> usize {
        let mut n = 0;
        self.for_each(|_, _, _| n += 1);
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(100);

    #[test]
    fn leases_end_in_the_order_in_which_ids_fell_silent() {
        let ids = Ids::new(Some(LEASE));
        for i in 0..100u128 {
            ids.reserve(RequestId(i)).unwrap();
            ids.fill(RequestId(i), i, Time::from_millis(i as u64));
        }
        assert!(ids.with(RequestId(0), Time::from_millis(150), |_| ()).is_some());
        assert_eq!(ids.next_due(), Some(Time::from_millis(101)));
        let mut lapsed: Vec<u128> =
            ids.expire(Time::from_millis(120)).into_iter().map(|l| l.value).collect();
        lapsed.sort();
        assert_eq!(lapsed, (1..=20).collect::<Vec<_>>());
        assert_eq!(ids.len(), 80);
        assert_eq!(ids.reserve(RequestId(0)), None);
    }

    #[test]
    fn an_old_attempt_never_takes_a_newer_one() {
        let ids = Ids::new(None);
        let id = RequestId(7);
        let first = ids.reserve(id).unwrap();
        assert_eq!(ids.reserve(id), None);
        assert!(ids.remove(id, None).is_none(), "a reservation is not live");
        ids.fill(id, 'a', Time::ZERO);
        assert_eq!(ids.remove(id, Some(first)), Some('a'));
        let second = ids.reserve(id).unwrap();
        ids.fill(id, 'b', Time::ZERO);
        assert_eq!(ids.remove(id, Some(first)), None);
        assert_eq!(ids.remove(id, Some(second)), Some('b'));
        assert_eq!(ids.len(), 0);
    }
}
