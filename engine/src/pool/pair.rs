//! The pair at work: a prefill pool that asks its decode pool before it lets a request go.
//!
//! ```text
//! install: add myself to the pair's parties, attach my queue to its signal, publish the pair,
//!          then move my own epoch, which drains if something waits
//! consult: read the pair's epoch, then its cached answer, then its rows
//! release at the pair: row, epoch (RMW), tell all parties: its own queue, and mine
//! ```
//!
//! A cached "no room" carries the epoch that was read before the rows, and is good until that
//! moves; a cached "room" is a witness rank, good while one load of its row says so.

use crate::error::Error;
use crate::fleet::block::SlotId;
use crate::fleet::eligible::{Availability, Eligible};
use crate::fleet::view::View;
use crate::limits::rules::compile;
use crate::limits::thresholds::Thresholds;
use crate::names::Name;
use crate::pass::custom::text_of;
use crate::pass::lanes::Column;
use crate::pins::pin;
use crate::pool::choose::with_arena;
use crate::pool::drain::Epochs;
use crate::pool::hold::{Hold, NotHeld};
use crate::pool::{Inner, Pool};
use crate::request::{Constraints, Request};
use crate::room::pair::{HoldOffer, PairAsk, PairRoom, PairTold, PairWaker, PairedPool};
use crate::room::signal::{Epoch, RoomSignal};
use crate::room::turn::Party;
use crate::sync::{Arc, Mutex, Weak};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// How a pool finds its pair.
pub(crate) enum Pair {
    /// A pool of this library.
    Own(OwnPair),
    /// The host's own.
    Foreign(Hook),
}

/// The host's own paired pool.
pub(crate) enum Hook {
    Kept(Arc<dyn PairedPool>),
    /// Has room once it is gone.
    Weak(Weak<dyn PairedPool>),
}

impl Hook {
    fn get(&self) -> Option<Arc<dyn PairedPool>> {
        match self {
            Hook::Kept(hook) => Some(Arc::clone(hook)),
            Hook::Weak(hook) => hook.upgrade(),
        }
    }
}

/// Finds the decode pool: by what does not keep it alive, or by the host's resolver.
pub(crate) struct OwnPair {
    resolver: Option<Box<Resolver>>,
    known: Mutex<Known>,
}

type Resolver = dyn Fn() -> Option<Pool> + Send + Sync;

#[derive(Default)]
struct Known {
    pool: Weak<Inner>,
    /// The signal that the queue is attached to.
    signal: Option<Arc<RoomSignal>>,
}

/// What a pool keeps of its own room, for those that have it as their pair: one for each decode
/// fraction that was asked for.
pub(crate) struct RoomCache {
    frac: f64,
    /// One more than the number of a rank that had room; 0: none known.
    witness: AtomicU64,
    /// The epoch at which there was no room, plus one; 0: not known.
    no_room: AtomicU64,
}

/// Which ranks a host asks about.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RoomFilter<'a> {
    /// Only ranks that these allow.
    pub constraints: Option<&'a Constraints>,
    /// Only ranks that serve this adapter, if any does.
    pub lora: Option<&'a Name>,
}

impl<'a> RoomFilter<'a> {
    /// Every reachable rank.
    pub const ALL: RoomFilter<'static> = RoomFilter { constraints: None, lora: None };

    /// Narrows to what constraints allow.
    #[must_use]
    pub fn constraints(mut self, constraints: &'a Constraints) -> Self {
        self.constraints = Some(constraints);
        self
    }

    /// Narrows to ranks that serve an adapter.
    #[must_use]
    pub fn lora(mut self, adapter: &'a Name) -> Self {
        self.lora = Some(adapter);
        self
    }
}

impl Pool {
    /// Whether any reachable rank that `filter` leaves has room under `thresholds`: a direct read
    /// of the rows, without a message to anybody. Marks and reject thresholds play no part. To wait
    /// for a change, take [`epoch`](Self::epoch) first and use
    /// [`room_changed`](Self::room_changed).
    pub fn any_rank_has_room(&self, thresholds: &Thresholds, filter: RoomFilter<'_>) -> bool {
        let guard = pin();
        let view = self.inner().view.load(&guard);
        with_arena(|arena| {
            let RoomFilter { constraints, lora } = filter;
            let availability = Availability::Required;
            let eligible =
                crate::fleet::eligible::resolve(view, constraints, lora, availability, arena);
            (0..view.blocks.len()).any(|b| {
                let block = &view.blocks[b];
                crate::fleet::block::lanes(eligible.lanes(view, b)).any(|lane| {
                    let spec = block.owners[lane].as_ref().map(|w| &w.spec);
                    let caps = spec
                        .map_or((None, None), |s| (s.max_num_batched_tokens, s.total_kv_blocks));
                    !block.live.row(lane).exceeds(compile(thresholds, caps.0, caps.1))
                })
            })
        })
    }

    /// Makes `decode` this pool's pair, held weakly: it may be shared by several pools, and when its
    /// last handle is dropped it counts as having room. Replaces an earlier pair.
    pub fn pair_with(&self, decode: &Pool) {
        let pair = OwnPair { resolver: None, known: Mutex::default() };
        self.handle.inner.attach_pair(&pair, &decode.handle.inner);
        self.handle.inner.install(Pair::Own(pair));
    }

    /// As [`pair_with`](Self::pair_with), for a decode pool that is not there yet: `resolver` is
    /// asked, with no lock held, until it gives one, and again when that one has gone.
    pub fn pair_resolved_by(&self, resolver: impl Fn() -> Option<Pool> + Send + Sync + 'static) {
        let pair = OwnPair { resolver: Some(Box::new(resolver)), known: Mutex::default() };
        self.handle.inner.install(Pair::Own(pair));
    }

    /// Makes the host's own paired pool this pool's pair, and keeps it alive. Replaces an earlier
    /// pair.
    pub fn pair_with_hook(&self, hook: Arc<dyn PairedPool>) {
        hook.subscribe(self.pair_waker());
        self.handle.inner.install(Pair::Foreign(Hook::Kept(hook)));
    }

    /// As [`pair_with_hook`](Self::pair_with_hook), without keeping the hook alive: once it is
    /// dropped it counts as having room, and what waits for it is let in as soon as the last of its
    /// [`PairWaker`]s has gone with it.
    pub fn pair_with_weak_hook(&self, hook: Weak<dyn PairedPool>) {
        if let Some(hook) = hook.upgrade() {
            hook.subscribe(self.pair_waker());
        }
        self.handle.inner.install(Pair::Foreign(Hook::Weak(hook)));
    }

    fn pair_waker(&self) -> PairWaker {
        let told: Arc<dyn PairTold> = Arc::clone(&self.handle.inner) as _;
        PairWaker::new(Arc::downgrade(&told))
    }
}

impl PairTold for Inner {
    fn pair_may_have_room(&self) {
        // What was refused is kept with this pool's own epoch.
        self.signal.release_and_tell();
    }
}

/// The decode pool that was found last, if it is there still. Its lock is let go before the answer
/// is used: that may turn out to be the last reference, and dropping it drains.
fn known(pair: &OwnPair) -> Option<Arc<Inner>> {
    pair.known.lock().pool.upgrade()
}

/// Runs host code of a pair; a panic fails the request that it was asked about.
fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| Error::PolicyFailed {
        what: format!("paired pool panicked: {}", text_of(panic)),
    })
}

/// A pair's answer to a gate.
pub(crate) enum Consulted {
    Room,
    NoRoom,
}

impl Inner {
    fn install(self: &Arc<Self>, pair: Pair) {
        let old = self.pair.swap(Some(Arc::new(pair)));
        if let Some(old) = old
            && let Pair::Own(old) = &*old
            && let Some(signal) = old.known.lock().signal.take()
        {
            self.bench.detach(&signal);
        }
        {
            let mut writer = self.writer.lock();
            let rules = writer.view.rules.under(&writer.view.rules.profile, true);
            writer.set_rules(rules, self.time());
            self.publish(&mut writer, crate::fleet::writer::Edit::default());
        }
        self.signal.release_and_tell();
    }

    /// Subscribes to a decode pool. Before the pair is published: see the head of this file.
    fn attach_pair(self: &Arc<Self>, pair: &OwnPair, decode: &Arc<Inner>) {
        let party: Arc<dyn Party> = Arc::clone(self) as _;
        let signal = Arc::clone(&decode.signal);
        signal.add_party(Arc::downgrade(&party));
        self.bench.attach(Arc::clone(&signal));
        let old = {
            let mut known = pair.known.lock();
            known.pool = Arc::downgrade(decode);
            known.signal.replace(signal)
        };
        if let Some(old) = old {
            self.bench.detach(&old);
        }
    }

    /// The decode pool, if it is there.
    fn decode_pool(&self, pair: &OwnPair) -> Option<Arc<Inner>> {
        if let Some(known) = known(pair) {
            return Some(known);
        }
        // Host code: no lock is held.
        let found = (pair.resolver.as_ref()?)()?;
        self.me().attach_pair(pair, &found.handle.inner);
        Some(Arc::clone(&found.handle.inner))
    }

    /// The pair's epoch, if it is a pool of this library and there.
    pub(crate) fn pair_epoch(&self) -> Option<Epoch> {
        match self.pair.load().as_deref() {
            Some(Pair::Own(pair)) => pair.known.lock().signal.as_ref().map(|signal| signal.epoch()),
            _ => None,
        }
    }

    /// Asks the pair about a request of a class with the decode fraction `frac`.
    ///
    /// # Errors
    /// `NoEndpoints`: no rank that the pair declares meets the request's decode-side constraints.
    /// `PolicyFailed`: the host's own pair, or the resolver, panicked.
    pub(crate) fn consult(
        &self,
        request: &Request,
        class: &Name,
        frac: f64,
    ) -> Result<Consulted, Error> {
        // Not there yet, or gone, is room: the decode leg will tell.
        let room = match self.pair.load().as_deref() {
            None => PairRoom::Room,
            Some(Pair::Foreign(hook)) => guarded(|| match hook.get() {
                None => PairRoom::Room,
                Some(hook) => hook.room(&PairAsk { request, class, decode_frac: frac }),
            })?,
            Some(Pair::Own(pair)) => match guarded(|| self.decode_pool(pair))? {
                None => PairRoom::Room,
                Some(decode) => decode.room_for(request, frac),
            },
        };
        match room {
            PairRoom::Room => Ok(Consulted::Room),
            PairRoom::NoRoom => Ok(Consulted::NoRoom),
            PairRoom::NoEndpoints => Err(Error::NoEndpoints),
        }
    }

    /// Sets room aside at the pair. A pair that was shut down is as good as gone: it reports room,
    /// and there is nothing to set aside.
    ///
    /// # Errors
    /// `None`: the room has gone since it was checked. `Some`: asking failed, or the rank that has
    /// room has no bits to show what would be set aside.
    pub(crate) fn hold_at_pair(
        &self,
        request: &Request,
        class: &Name,
        frac: f64,
    ) -> Result<Option<Hold>, Option<Error>> {
        if !self.settings.holds {
            return Ok(None);
        }
        match self.pair.load().as_deref() {
            None => Ok(None),
            Some(Pair::Foreign(hook)) => {
                let offer = guarded(|| match hook.get() {
                    None => HoldOffer::NotOffered,
                    Some(hook) => hook.hold(&PairAsk { request, class, decode_frac: frac }),
                });
                match offer? {
                    HoldOffer::NotOffered => Ok(None),
                    HoldOffer::Held(held) => Ok(Some(Hold::foreign(held))),
                    HoldOffer::NoRoom => Err(None),
                }
            }
            Some(Pair::Own(pair)) => match guarded(|| self.decode_pool(pair))? {
                Some(decode) if decode.check_open().is_ok() => {
                    match decode.set_aside_for(request, frac, self.settings.block_size) {
                        Ok(hold) => Ok(Some(hold)),
                        Err(NotHeld::NoRoom) => Err(None),
                        Err(NotHeld::Overflow(rank)) => Err(Some(Error::RowOverflow { rank })),
                    }
                }
                _ => Ok(None),
            },
        }
    }

    /// The shape of the pair's fleet, which decode-side constraints are checked against.
    pub(crate) fn pair_shape(&self) -> u64 {
        match self.pair.load().as_deref() {
            Some(Pair::Own(pair)) => match known(pair) {
                Some(decode) => {
                    let guard = pin();
                    decode.view.load(&guard).shape
                }
                None => 0,
            },
            _ => 0,
        }
    }

    /// Whether some declared rank of the pair meets a request's decode-side constraints.
    pub(crate) fn pair_may_ever(&self, request: &Request) -> bool {
        if !request.decode.as_ref().is_some_and(|c| c.restricts()) {
            return true;
        }
        match self.pair.load().as_deref() {
            Some(Pair::Own(pair)) => match known(pair) {
                Some(decode) => decode.check_open().is_err() || decode.declares_for(request),
                None => true,
            },
            _ => true,
        }
    }

    // From here on: the decode pool's side.

    fn declares_for(&self, request: &Request) -> bool {
        with_arena(|arena| {
            let guard = pin();
            let view = self.view.load(&guard);
            Inner::decode_lanes(view, request, Availability::Ignored, arena).any(view)
        })
    }

    /// The column of limits for a decode fraction; compiled first if nobody asked for it yet.
    pub(crate) fn column_for(&self, frac: f64) -> usize {
        loop {
            {
                let guard = pin();
                if let Some(column) = self.view.load(&guard).rules.column_for(frac) {
                    return column;
                }
            }
            let mut writer = self.writer.lock();
            if writer.view.rules.column_for(frac).is_none() {
                let rules = writer.view.rules.asking(frac);
                writer.set_rules(rules, self.time());
                self.publish(&mut writer, crate::fleet::writer::Edit::default());
            }
        }
    }

    /// Makes the cache of one decode fraction, unless there is one.
    #[cold]
    fn make_room_cache(&self, frac: f64) {
        let cache =
            Arc::new(RoomCache { frac, witness: AtomicU64::new(0), no_room: AtomicU64::new(0) });
        self.room_caches.rcu(|caches| {
            let mut caches = Vec::clone(caches);
            if caches.iter().all(|known| known.frac != frac) {
                caches.push(Arc::clone(&cache));
            }
            caches
        });
    }

    /// Whether there is room for a request's decode leg under a class's decode fraction.
    fn room_for(&self, request: &Request, frac: f64) -> PairRoom {
        if self.check_open().is_err() {
            // It will not come back: what waits for it must not sleep for ever.
            return PairRoom::Room;
        }
        // A column means something only in the view that it is looked up in: another policy here
        // moves it. Once asked for it is in every later one.
        let column = |view: &View| view.rules.column_for(frac).expect("it was asked for");
        let restricted = request.decode.as_ref().is_some_and(|c| c.restricts());
        if request.lora.is_some() || restricted {
            self.column_for(frac);
            return with_arena(|arena| {
                let guard = pin();
                let view = self.view.load(&guard);
                let eligible = Inner::decode_lanes(view, request, Availability::Required, arena);
                // An adapter alone makes nothing impossible: it is waited for like any room.
                if restricted
                    && !eligible.any(view)
                    && !Inner::decode_lanes(view, request, Availability::Ignored, arena).any(view)
                {
                    return PairRoom::NoEndpoints;
                }
                match self.first_with_room(view, &eligible, column(view)) {
                    Some(_) => PairRoom::Room,
                    None => PairRoom::NoRoom,
                }
            });
        }
        // Looked at where it lies: a count of references would be a line that all threads write.
        let caches = self.room_caches.load();
        let Some(cache) = caches.iter().find(|cache| cache.frac == frac) else {
            self.column_for(frac);
            self.make_room_cache(frac);
            return self.room_for(request, frac);
        };
        // Before the rows: a release that this epoch does not show is not in them either.
        let epoch = self.signal.epoch().as_u64() + 1;
        if cache.no_room.load(Ordering::Relaxed) == epoch {
            return PairRoom::NoRoom;
        }
        let guard = pin();
        let view = self.view.load(&guard);
        let column = column(view);
        let has_room = |slot: SlotId| {
            view.blocks.get(slot.block()).is_some_and(|block| {
                block.available & slot.bit() != 0
                    && !block.live.row(slot.lane()).exceeds(block.classes[column].at(slot.lane()))
            })
        };
        if let Some(index) = cache.witness.load(Ordering::Relaxed).checked_sub(1)
            && has_room(SlotId::from_index(index as u32))
        {
            return PairRoom::Room;
        }
        match self.first_with_room(view, &Eligible::All, column) {
            Some(slot) => {
                cache.witness.store(u64::from(slot.index()) + 1, Ordering::Relaxed);
                PairRoom::Room
            }
            None => {
                cache.no_room.store(epoch, Ordering::Relaxed);
                PairRoom::NoRoom
            }
        }
    }

    /// A rank with room under a column of limits, among those eligible.
    fn first_with_room(
        &self,
        view: &View,
        eligible: &Eligible<'_>,
        column: usize,
    ) -> Option<SlotId> {
        let mut rows = Column::<u64>::default();
        (0..view.blocks.len()).find_map(|b| {
            let lanes = eligible.lanes(view, b);
            if lanes == 0 {
                return None;
            }
            let block = &view.blocks[b];
            block.live.copy_rows(&mut rows);
            let room = lanes & !self.kernel.past(&rows, &block.classes[column].0);
            (room != 0).then(|| SlotId::new(b, room.trailing_zeros() as usize))
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The last strong reference is gone: whoever has this pool as its pair finds that now, and
        // what waited for its room goes on.
        self.signal.release_and_tell();
    }
}

impl Epochs {
    /// The epochs of a pool and of its pair.
    pub(crate) fn of(inner: &Inner) -> Epochs {
        Epochs { own: inner.signal.epoch(), pair: inner.pair_epoch() }
    }
}
