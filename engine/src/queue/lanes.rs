//! The lanes of one class: the main lane, and one for each pin, so that a full rank holds up only
//! those who may go nowhere else.
//!
//! Owns the order of the waiting entries and what a round found blocked. Always: `heads` holds the
//! first key of every pinned lane and nothing else; a pinned lane that is empty is gone; every
//! pinned lane whose first key lies before the cursor is blocked in the cursor's round.
#![forbid(unsafe_code)]

use crate::queue::order::OrderKey;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// How many entries behind a blocked head are looked at.
pub(super) const LOOK_AHEAD: usize = 32;

/// How often a head that is blocked by its own constraints may be passed on ranks that it may use.
pub(super) const PASSES: u32 = 16;

/// The main lane's index.
pub(super) const MAIN: u32 = 0;

/// What the lanes need to know of an entry, which lies in the queue's slots.
pub(super) trait Slots {
    /// The round in which the entry was last found blocked by itself.
    fn blocked(&self, slot: u32) -> u64;
    fn constrained(&self, slot: u32) -> bool;
    /// How often it was passed on ranks that it may use.
    fn passed(&self, slot: u32) -> u32;
}

#[derive(Debug, Default)]
struct Lane {
    /// The pin; 0 and of no meaning in the main lane.
    pin: u64,
    waiting: BTreeMap<OrderKey, u32>,
    /// Entries with constraints of their own.
    constrained: usize,
    /// The round in which the whole lane was found blocked.
    shut: u64,
    /// The round in which each entry within reach was found blocked. Any change in the lane takes
    /// it back, for it brings others within reach.
    spent: u64,
    /// The key of the last entry within reach of the head, where it was looked up and nothing has
    /// come or gone before it since.
    reach: Option<OrderKey>,
}

impl Lane {
    fn first(&self) -> Option<OrderKey> {
        self.waiting.first_key_value().map(|(&key, _)| key)
    }

    /// The first entry within reach that is not blocked in `round`. O(`LOOK_AHEAD`).
    fn candidate(
        &self,
        round: u64,
        only_constrained: bool,
        s: &impl Slots,
    ) -> Option<(OrderKey, u32)> {
        if self.shut == round || self.spent == round {
            return None;
        }
        let reach = self.waiting.iter().take(1 + LOOK_AHEAD);
        reach.map(|(&key, &slot)| (key, slot)).find(|&(_, slot)| {
            s.blocked(slot) != round && (!only_constrained || s.constrained(slot))
        })
    }

    /// Whether `key`, which is in the lane, holds up another entry: it is the first, or it is
    /// within reach of the first and somebody is not. O(1) for most entries of a long lane.
    fn holds_up(&mut self, key: OrderKey) -> bool {
        match self.waiting.len() {
            0 | 1 => true,
            // Who leaves is mostly the first, let in.
            _ if self.first() == Some(key) => true,
            n if n <= 1 + LOOK_AHEAD => false,
            _ => {
                if self.reach.is_none() {
                    self.reach = self.waiting.keys().nth(LOOK_AHEAD).copied();
                }
                self.reach.is_some_and(|reach| key <= reach)
            }
        }
    }

    /// Says that `key` has come or gone.
    fn changed(&mut self, key: OrderKey) {
        self.spent = 0;
        self.reach = self.reach.filter(|&reach| reach < key);
    }
}

#[derive(Debug)]
pub(super) struct Lanes {
    /// The main lane, then pinned lanes and free places for some.
    lanes: Vec<Lane>,
    free: Vec<u32>,
    by_pin: FxHashMap<u64, u32>,
    heads: BTreeMap<OrderKey, u32>,
    cursor: OrderKey,
    cursor_round: u64,
    /// The round in which nothing of the class was found to go.
    shut: u64,
    /// The round in which no entry without constraints was found to go.
    shut_unconstrained: u64,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes {
            lanes: vec![Lane::default()],
            free: Vec::new(),
            by_pin: FxHashMap::default(),
            heads: BTreeMap::new(),
            cursor: OrderKey::FIRST,
            cursor_round: 0,
            shut: 0,
            shut_unconstrained: 0,
        }
    }
}

impl Lanes {
    /// Adds an entry and says in which lane. O(log n).
    pub(super) fn insert(
        &mut self,
        pin: Option<u64>,
        key: OrderKey,
        slot: u32,
        constrained: bool,
    ) -> u32 {
        let lane = match pin {
            None => MAIN,
            Some(pin) => match self.by_pin.get(&pin) {
                Some(&lane) => lane,
                None => self.open_lane(pin),
            },
        };
        let of = &mut self.lanes[lane as usize];
        let old_first = of.first();
        of.waiting.insert(key, slot);
        of.constrained += usize::from(constrained);
        of.changed(key);
        self.changed(lane, old_first);
        lane
    }

    fn open_lane(&mut self, pin: u64) -> u32 {
        let fresh = Lane { pin, ..Lane::default() };
        let lane = match self.free.pop() {
            Some(lane) => {
                self.lanes[lane as usize] = fresh;
                lane
            }
            None => {
                self.lanes.push(fresh);
                (self.lanes.len() - 1) as u32
            }
        };
        self.by_pin.insert(pin, lane);
        lane
    }

    /// Takes an entry out and says whether it held up another. O(log n).
    pub(super) fn remove(&mut self, lane: u32, key: OrderKey, constrained: bool) -> bool {
        let of = &mut self.lanes[lane as usize];
        let held_up = of.holds_up(key);
        let old_first = of.first();
        of.waiting.remove(&key);
        of.constrained -= usize::from(constrained);
        of.changed(key);
        self.changed(lane, old_first);
        let of = &self.lanes[lane as usize];
        if lane != MAIN && of.waiting.is_empty() {
            self.by_pin.remove(&of.pin);
            self.free.push(lane);
        }
        held_up
    }

    /// Brings heads and cursor up to a change in a lane.
    fn changed(&mut self, lane: u32, old_first: Option<OrderKey>) {
        if lane == MAIN {
            return;
        }
        let first = self.lanes[lane as usize].first();
        if first != old_first {
            if let Some(old) = old_first {
                self.heads.remove(&old);
            }
            if let Some(first) = first {
                self.heads.insert(first, lane);
            }
        }
        if let Some(first) = first {
            self.cursor = self.cursor.min(first);
        }
    }

    /// The first entry, over all lanes, that is within reach and not known to be blocked in
    /// `round`. Amortised O(log n) for each lane that is stepped over, once in a round.
    pub(super) fn candidate(&mut self, round: u64, s: &impl Slots) -> Option<(OrderKey, u32)> {
        if self.shut == round {
            return None;
        }
        let main = &self.lanes[MAIN as usize];
        let only_constrained = self.shut_unconstrained == round;
        let mut best = if only_constrained && main.constrained == 0 {
            None
        } else {
            main.candidate(round, only_constrained, s)
        };

        if self.cursor_round != round {
            self.cursor_round = round;
            self.cursor = OrderKey::FIRST;
        }
        let mut all_blocked = true;
        for (&head, &lane) in self.heads.range(self.cursor..) {
            if all_blocked {
                self.cursor = head;
            }
            if best.is_some_and(|(key, _)| key < head) {
                break;
            }
            let of = &mut self.lanes[lane as usize];
            match of.candidate(round, false, s).filter(|&(key, _)| key == head || of.lets_pass(s)) {
                Some(found) => {
                    all_blocked = false;
                    if best.is_none_or(|(key, _)| found.0 < key) {
                        best = Some(found);
                    }
                }
                None => of.spent = round,
            }
        }
        best
    }

    /// The head that an entry of this key would pass: the first of the main lane, if it has
    /// constraints of its own and comes before.
    pub(super) fn passes(&self, key: OrderKey, s: &impl Slots) -> Option<u32> {
        let (&first, &slot) = self.lanes[MAIN as usize].waiting.first_key_value()?;
        (first < key && s.constrained(slot)).then_some(slot)
    }

    /// The head of a pinned lane that an entry of this key would pass in it.
    pub(super) fn passes_in_lane(&self, lane: u32, key: OrderKey) -> Option<u32> {
        let (&first, &slot) = self.lanes[lane as usize].waiting.first_key_value()?;
        (lane != MAIN && first < key).then_some(slot)
    }

    /// The pin of a lane; `None` for the main lane.
    pub(super) fn pin(&self, lane: u32) -> Option<u64> {
        (lane != MAIN).then(|| self.lanes[lane as usize].pin)
    }

    /// How many come before `key` in its lane. O(that number).
    pub(super) fn ahead(&self, lane: u32, key: OrderKey) -> usize {
        self.lanes[lane as usize].waiting.range(..key).count()
    }

    pub(super) fn shut(&mut self, round: u64) {
        self.shut = round;
    }

    pub(super) fn shut_unconstrained(&mut self, round: u64) {
        self.shut_unconstrained = round;
    }

    pub(super) fn shut_lane(&mut self, lane: u32, round: u64) {
        self.lanes[lane as usize].shut = round;
    }
}

impl Lane {
    /// Whether the lane's head may still be passed by those behind it, who all want its rank.
    fn lets_pass(&self, s: &impl Slots) -> bool {
        self.waiting.first_key_value().is_some_and(|(_, &head)| s.passed(head) < PASSES)
    }
}
