//! Other routers: this pool's changes of load out, theirs in, on the same rows.
//!
//! Mirrored load counts like local load in every judgement. A peer's event never creates a worker or
//! a rank. Holds are not told; limits are not judged for what is live elsewhere already.

use crate::booking::{Landed, Origin};
use crate::load::events::{EventSink, LoadChange, LoadEvent, RouterId};
use crate::load::mirror::{Act, Mirrors};
use crate::load::told::{Change, Stories};
use crate::names::{Rank, RequestId};
use crate::pass::custom::text_of;
use crate::pins::pin;
use crate::pool::land::Target;
use crate::pool::{Inner, Pool};
use crate::sync::{Arc, Mutex};
use crate::time::Time;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of a peer's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Applied {
    /// It changed a row, or is kept for when its `Add` comes.
    Taken,
    /// It is our own, come back.
    Echo,
    /// Its worker or rank is not known here, or its row is out of bits: counted and dropped.
    Dropped,
}

/// What a pool needs to tell others, and to hear them.
pub(crate) struct Peers {
    sink: Option<Arc<dyn EventSink>>,
    seq: AtomicU64,
    last_booking: AtomicU64,
    /// What was told of those that live.
    stories: Stories,
    mirrors: Mutex<Mirrors>,
    dropped: AtomicU64,
}

impl Peers {
    pub(crate) fn new(sink: Option<Arc<dyn EventSink>>) -> Peers {
        Peers {
            sink,
            seq: AtomicU64::new(0),
            last_booking: AtomicU64::new(0),
            stories: Stories::default(),
            mirrors: Mutex::default(),
            dropped: AtomicU64::new(0),
        }
    }
}

/// The name of a booking among this router's, if its changes are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    name: Option<(u64, Option<RequestId>)>,
    /// The sequence number of the change that is told next; 0: whichever is next then.
    seq: u64,
}

impl Inner {
    /// Tells a new booking, and names it.
    pub(crate) fn tell_add(&self, landed: &mut Landed, request: Option<RequestId>) {
        if self.peers.sink.is_some() {
            let booking = self.peers.last_booking.fetch_add(1, Ordering::Relaxed) + 1;
            landed.told = Told { name: Some((booking, request)), seq: 0 };
            let change = LoadChange::Add {
                rank: landed.rank,
                prefill_tokens: landed.tokens,
                kv_blocks: landed.added,
            };
            self.tell(landed.told, change);
        }
    }

    /// Numbers a change that is to be told: under the lock that the change is made under, for of
    /// two moves others take the one with the higher number.
    pub(crate) fn numbered(&self, told: Told) -> Told {
        match told.name {
            Some(_) => Told { seq: self.next_seq(), ..told },
            None => told,
        }
    }

    fn next_seq(&self) -> u64 {
        // Relaxed: only its order in itself counts; what it numbers is ordered by a lock.
        self.peers.seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Tells a change of a booking that was told. No lock may be held.
    #[inline]
    pub(crate) fn tell(&self, told: Told, change: LoadChange) {
        if let Some(name) = told.name {
            self.tell_sink(name, told.seq, change);
        }
    }

    #[cold]
    fn tell_sink(
        &self,
        (booking, request): (u64, Option<RequestId>),
        seq: u64,
        change: LoadChange,
    ) {
        let Some(sink) = &self.peers.sink else { return };
        let output = matches!(change, LoadChange::Output { .. });
        let told = catch_unwind(AssertUnwindSafe(|| {
            if output && !sink.wants_output() {
                return;
            }
            let seq = if seq == 0 { self.next_seq() } else { seq };
            self.peers.stories.take_in((seq, booking, request, change));
            sink.event(&self.event((seq, booking, request, change)));
        }));
        if let Err(panic) = told {
            tracing::warn!(what = text_of(panic), "an event sink panicked");
        }
    }

    fn event(&self, (seq, booking, request, change): Change) -> LoadEvent {
        let router = RouterId(self.settings.router_id);
        LoadEvent { router, seq, booking: booking.into(), request, change }
    }

    fn mirror(&self, rank: Rank, tokens: u32, blocks: u32) -> Option<Landed> {
        let guard = pin();
        let view = self.view.load(&guard);
        let slot = view.slot(rank)?;
        let origin = Origin {
            isl: tokens,
            prompt_blocks: blocks,
            track_prefill: self.settings.track_prefill,
            prompt: None,
            overlaps: None,
        };
        let tokens = if self.settings.track_prefill { tokens } else { 0 };
        self.land(view, &guard, slot, tokens, origin, |_| true).ok()
    }
}

impl Pool {
    /// Takes in another router's change of load at `now`. Duplicates, another order than it
    /// happened in (a free before its add), and the echo of our own events do no harm. Takes one
    /// lock, of the mirrors.
    pub fn apply_peer(&self, event: &LoadEvent, now: Time) -> Applied {
        let inner = self.inner();
        let now = inner.show(now);
        if event.router == RouterId(inner.settings.router_id) {
            return Applied::Echo;
        }
        let mut room = false;
        let applied = {
            let mut mirrors = inner.peers.mirrors.lock();
            let mut lost = None;
            let applied = match mirrors.take_in(event, now) {
                Act::Nothing => Applied::Taken,
                Act::Add { rank, prefill_tokens, kv_blocks, output } => {
                    match inner.mirror(rank, prefill_tokens, kv_blocks) {
                        Some(mut landed) => {
                            // A row that is out of bits for output shows less than there is.
                            let _ = inner.add_output(&mut landed, output);
                            mirrors.added(event, landed);
                            Applied::Taken
                        }
                        None => {
                            mirrors.keep_apart(event);
                            Applied::Dropped
                        }
                    }
                }
                Act::PrefillCompleted(mirrored) => {
                    room |= inner.complete_prefill(&mut mirrored.landed);
                    Applied::Taken
                }
                Act::Output(mirrored, blocks) => {
                    match inner.add_output(&mut mirrored.landed, blocks) {
                        Ok(()) => Applied::Taken,
                        Err(_) => Applied::Dropped,
                    }
                }
                Act::Move(mirrored, rank) => {
                    match inner.move_landed(&mut mirrored.landed, rank, Target::Declared) {
                        Ok(moved) => {
                            room |= moved;
                            Applied::Taken
                        }
                        Err(_) => {
                            lost = Some(rank);
                            Applied::Dropped
                        }
                    }
                }
                Act::Free(mut mirrored) => {
                    room |= inner.give_back(&mut mirrored.landed);
                    Applied::Taken
                }
            };
            // Its load went to a rank that is not known here: it is on none of ours any more.
            if let Some(to) = lost
                && let Some(mut mirrored) = mirrors.lose(event, to)
            {
                room |= inner.give_back(&mut mirrored.landed);
            }
            applied
        };
        if applied == Applied::Dropped {
            inner.peers.dropped.fetch_add(1, Ordering::Relaxed);
        }
        inner.signal_if(room);
        applied
    }

    /// What a peer that comes late has not heard: every live booking of this router, by value and by
    /// id, as the events that it would have got, to be handed to its
    /// [`apply_peer`](Self::apply_peer). Empty without an [`EventSink`]: nothing is told then, and
    /// nothing kept. `O(live bookings)`; takes one short lock after another.
    ///
    /// Let the peer hear what is told from now on first, then ask for this: what it gets twice does
    /// no harm. Only the output of a booking comes as one event, with the number of the last of
    /// them; an earlier one of the same booking that is still on its way would be counted again.
    pub fn export_events(&self) -> Vec<LoadEvent> {
        let inner = self.inner();
        inner.peers.stories.tell().into_iter().map(|change| inner.event(change)).collect()
    }

    /// A router is gone: all of its mirrored load comes off as one. Returns how many bookings that
    /// were.
    pub fn peer_gone(&self, router: RouterId) -> usize {
        let inner = self.inner();
        let gone = inner.peers.mirrors.lock().gone(router);
        let mut room = false;
        let count = gone.len();
        for mut mirrored in gone {
            room |= inner.give_back(&mut mirrored.landed);
        }
        inner.signal_if(room);
        count
    }

    /// How many events of other routers were dropped for naming a worker or rank that is not known
    /// here.
    pub fn peer_events_dropped(&self) -> u64 {
        self.inner().peers.dropped.load(Ordering::Relaxed)
    }

    /// How many bookings of other routers are mirrored.
    pub fn mirrored(&self) -> usize {
        self.inner().peers.mirrors.lock().len()
    }
}

impl Inner {
    /// Drops the mirrors of routers that have been silent for the whole lease.
    pub(crate) fn expire_peers(&self, now: Time) -> Vec<RouterId> {
        let Some(lease) = self.settings.lease else { return Vec::new() };
        // Found and taken out under one lock: one that is heard of in between keeps its load.
        let silent = self.peers.mirrors.lock().silent(lease, now);
        let mut room = false;
        let mut routers = Vec::with_capacity(silent.len());
        for (router, gone) in silent {
            routers.push(router);
            for mut mirrored in gone {
                room |= self.give_back(&mut mirrored.landed);
            }
        }
        routers.sort();
        self.signal_if(room);
        routers
    }

    /// When the first router's lease ends.
    pub(crate) fn next_peer_due(&self) -> Option<Time> {
        self.peers.mirrors.lock().next_due(self.settings.lease?)
    }
}
