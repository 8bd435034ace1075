//! The front door: a pool of ranks behind one router hop.
//!
//! This file owns what a pool is made of and how it is built; each group of calls has a file of its
//! own: `fleet` (who is there), `choose` (select), `land` (rows up and down), `by_id`, `report`.

mod admit;
mod by_id;
mod choose;
mod classify;
mod custom;
mod drain;
mod fleet;
mod hold;
mod idle;
pub(crate) mod land;
mod observe;
mod pair;
pub(crate) mod peers;
mod refresh;
mod report;

pub use admit::{Admit, AdmitAs, Admitted, AdmittedAs, Standing, Why};
pub use classify::{Classification, Classifier, SeenRank, has_room};
pub use hold::{Hold, RefusedLeg};
pub use idle::Idle;
pub use pair::RoomFilter;
pub use peers::Applied;
pub use refresh::OverlapRefresh;
pub use report::{ClassLoad, Counters, RankLoad, Snapshot};

use crate::booking::Landed;
use crate::choice::Weights;
use crate::error::Error;
use crate::fleet::cell::ViewCell;
use crate::fleet::writer::Writer;
use crate::limits::handle::{RejectThresholds, UnderThresholds};
use crate::limits::rules::{RejectScope, Rules};
use crate::limits::thresholds::Thresholds;
use crate::load::events::EventSink;
use crate::load::ids::Ids;
use crate::load::prompts::PromptIndex;
use crate::pass::backend::{Backend, Kernel};
use crate::pass::custom::{Filter, Observer, Picker, Scorer};
use crate::pass::lanes::{Terms, Tracking};
use crate::pool::drain::Bench;
use crate::pool::pair::{Pair, RoomCache};
use crate::pool::peers::Peers;
use crate::pool::refresh::Refresh;
use crate::queue::baton::Baton;
use crate::queue::policy::{Policy, Profile};
use crate::queue::waiting::Waiting;
use crate::room::signal::{Epoch, RoomChanged, RoomSignal};
use crate::room::turn::Party;
use crate::sync::{Arc, Mutex, Weak};
use crate::time::Time;
use arc_swap::{ArcSwap, ArcSwapOption};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Handles share a pool's counters and random numbers by stripes, so that threads with handles of
/// their own do not write to one cache line.
pub(crate) const STRIPES: usize = 16;

/// Lease of bookings by id, unless a pool is told otherwise.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(300);

/// How long a worker's own signal counts, unless a pool is told otherwise.
pub const DEFAULT_SIGNAL_TTL: Duration = Duration::from_secs(5);

/// What a pool was told when it was built.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) block_size: u32,
    pub(crate) track_prefill: bool,
    pub(crate) track_blocks: bool,
    pub(crate) weights: Weights,
    pub(crate) scope: RejectScope,
    pub(crate) lease: Option<Duration>,
    pub(crate) signal_ttl: Duration,
    pub(crate) router_id: u64,
    pub(crate) seed: u64,
    pub(crate) class_room_only: bool,
    pub(crate) holds: bool,
}

impl Settings {
    /// What every request weighs ranks by, unless it says otherwise.
    fn plain(&self) -> Terms {
        let track = Tracking {
            block_size: self.block_size,
            prefill: self.track_prefill,
            blocks: self.track_blocks,
            overlaps: false,
        };
        Terms::new(&self.weights, track, 0, 0)
    }
}

/// The host's own say in a choice.
#[derive(Clone, Default)]
pub(crate) struct Custom {
    pub(crate) filter: Option<Arc<dyn Filter>>,
    pub(crate) scorer: Option<Arc<dyn Scorer>>,
    pub(crate) picker: Option<Arc<dyn Picker>>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl Custom {
    pub(crate) fn is_none(&self) -> bool {
        self.filter.is_none()
            && self.scorer.is_none()
            && self.picker.is_none()
            && self.observer.is_none()
    }
}

/// Counters and the random state of one stripe.
#[derive(Default)]
pub(crate) struct Stripe {
    pub(crate) random: AtomicU64,
    pub(crate) admitted: AtomicU64,
    pub(crate) queued: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) wakeups: AtomicU64,
    pub(crate) selected: AtomicU64,
    pub(crate) reselections: AtomicU64,
    pub(crate) passes: AtomicU64,
}

/// Everything of a pool that its handles share.
pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) kernel: Kernel,
    /// What every request weighs ranks by, unless it says otherwise.
    pub(crate) plain: Terms,
    pub(crate) view: ViewCell,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) index: Arc<PromptIndex>,
    /// Who drains; and the largest instant that the host has shown.
    pub(crate) baton: CachePadded<Baton>,
    /// Who waits.
    pub(crate) bench: Waiting<Bench>,
    pub(crate) closed: AtomicBool,
    pub(crate) signal: Arc<RoomSignal>,
    pub(crate) ids: Ids<Landed>,
    /// Holds at the pair of requests that were admitted by id.
    pub(crate) holds: Ids<Hold>,
    /// The paired pool.
    pub(crate) pair: ArcSwapOption<Pair>,
    /// What is known of this pool's room, for those that have it as their pair.
    pub(crate) room_caches: ArcSwap<Vec<Arc<RoomCache>>>,
    /// A release is still to be told; see `owe_signal`.
    owed: AtomicBool,
    /// Itself.
    pub(crate) me: Weak<Inner>,
    pub(crate) stripes: Box<[CachePadded<Stripe>]>,
    next_stripe: AtomicUsize,
    pub(crate) rejects: RejectThresholds,
    pub(crate) rejected: report::Rejected,
    pub(crate) custom: Custom,
    pub(crate) classifier: Option<Arc<dyn Classifier>>,
    pub(crate) peers: Peers,
    pub(crate) refresh: Option<Refresh>,
}

/// A handle of a pool: the pool, and the stripe that calls through it count on.
///
/// Alone on its cache lines: bookings count themselves in and out on it, and handles are often made
/// one after the other, for one thread each.
#[repr(align(128))]
pub(crate) struct Handle {
    pub(crate) inner: Arc<Inner>,
    stripe: usize,
}

impl Handle {
    pub(crate) fn stripe(&self) -> &Stripe {
        &self.inner.stripes[self.stripe]
    }
}

/// All ranks of one role behind one router hop.
///
/// A `Pool` is a handle; clones are handles of the same pool. Any number of threads may call
/// through one handle, but a handle of its own per thread (a clone) keeps their counters and their
/// bookings' references apart: bookings share the handle that made them.
///
/// # Consistency
/// A row is always one instant's load of its rank. What a selection answers was true of each rank
/// at some moment of the call; what a booking is judged by is true at the instant it lands. Fleet
/// and limits of one call are one view, never a mix of two.
pub struct Pool {
    pub(crate) handle: Arc<Handle>,
}

impl Clone for Pool {
    fn clone(&self) -> Pool {
        let inner = Arc::clone(&self.handle.inner);
        let stripe = inner.next_stripe.fetch_add(1, Ordering::Relaxed) % STRIPES;
        Pool { handle: Arc::new(Handle { inner, stripe }) }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = self.inner().totals();
        f.debug_struct("Pool")
            .field("workers", &snapshot.0)
            .field("ranks", &snapshot.1)
            .field("backend", &self.backend())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool with the defaults of [`PoolBuilder`], to be changed before it is built.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.handle.inner
    }

    /// Which instructions the arithmetic over ranks runs on.
    pub fn backend(&self) -> Backend {
        self.inner().kernel.backend()
    }

    /// Tokens in a KV block.
    pub fn block_size(&self) -> u32 {
        self.inner().settings.block_size
    }

    /// The live handle of the reject thresholds that the pool is under.
    pub fn reject_thresholds(&self) -> &RejectThresholds {
        &self.inner().rejects
    }

    /// The pool's epoch: moves whenever room may have appeared; compare with `!=` only. Wait-free.
    pub fn epoch(&self) -> Epoch {
        self.inner().signal.epoch()
    }

    /// Waits until the epoch is another than `since` (take it *before* looking at the rows). Any
    /// executor can poll it; [`RoomChanged::wait`] blocks a thread.
    pub fn room_changed(&self, since: Epoch) -> RoomChanged {
        RoomChanged::new(Arc::clone(&self.inner().signal), since)
    }

    /// The largest instant that the pool was shown.
    pub fn now(&self) -> Time {
        self.inner().time()
    }

    /// Whether the pool was shut down.
    pub fn is_closed(&self) -> bool {
        self.inner().check_open().is_err()
    }

    /// Shuts the pool down: every later call that places a request is refused with `Closed`.
    /// Bookings are still given back. Again is a no-op.
    pub fn close(&self) {
        // Release: pairs with the Acquire of `check_open`.
        if !self.inner().closed.swap(true, Ordering::AcqRel) {
            self.inner().close_queue();
            self.inner().signal.release_and_tell();
        }
    }
}

impl Inner {
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        // Acquire: pairs with the swap in `close`.
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// The largest instant shown so far.
    pub(crate) fn time(&self) -> Time {
        Time::from_nanos(self.baton.now())
    }

    /// Shows the pool an instant; answers the largest one shown.
    #[inline]
    pub(crate) fn show(&self, now: Time) -> Time {
        let known = self.time();
        // A read-modify-write only if it is news.
        if now <= known { known } else { Time::from_nanos(self.baton.show(now.as_nanos())) }
    }

    /// Room has appeared on a row while this thread is pinned: whoever waits is told by the next
    /// [`pay_signal`](Self::pay_signal), which no pin is held at.
    pub(crate) fn owe_signal(&self, room: bool) {
        if room {
            // Release: comes after the row, and with it to whoever pays.
            self.owed.store(true, Ordering::Release);
        }
    }

    /// Tells what is owed, whoever owes it.
    #[inline]
    pub(crate) fn pay_signal(&self) {
        // Only who has seen a debt writes. Acquire: pairs with `owe_signal`.
        if self.owed.load(Ordering::Relaxed) && self.owed.swap(false, Ordering::AcqRel) {
            self.signal.release_and_tell();
        }
    }

    /// Room may have appeared: moves the epoch and tells whoever waits. No lock may be held.
    #[inline]
    pub(crate) fn signal_if(&self, room: bool) {
        if room {
            self.signal.release_and_tell();
        }
    }
}

impl UnderThresholds for Inner {
    fn put_in_force(&self, reject: Thresholds) -> bool {
        let mut writer = self.writer.lock();
        let old = &writer.view.rules;
        if old.reject == reject {
            return false;
        }
        let rules = Rules { reject, ..Rules::clone(old) };
        let room = raises(&old.reject, &reject);
        writer.set_rules(rules, self.time());
        self.publish(&mut writer, crate::fleet::writer::Edit::default());
        room
    }

    fn room_appeared(&self) {
        self.signal.release_and_tell();
    }
}

/// Whether a change of thresholds may give some rank room: one was raised or cleared.
fn raises(old: &Thresholds, new: &Thresholds) -> bool {
    fn up<T: PartialOrd>(old: Option<T>, new: Option<T>) -> bool {
        match (old, new) {
            (Some(old), Some(new)) => new > old,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
    up(old.prefill_tokens, new.prefill_tokens)
        || up(old.prefill_frac, new.prefill_frac)
        || up(old.decode_frac, new.decode_frac)
}

/// Builds a [`Pool`].
///
/// ```
/// use vacancy::{Pool, Request, Thresholds, RejectThresholds, WorkerSpec};
/// # fn main() -> Result<(), vacancy::Error> {
/// let rejects = RejectThresholds::new(Thresholds::NONE.decode_frac(0.9))?;
/// let pool = Pool::builder().block_size(16).reject_thresholds(rejects).build()?;
/// pool.upsert(WorkerSpec::new(1).total_kv_blocks(1000))?;
/// let booking = pool.book(&Request::new(512))?;
/// assert_eq!(booking.rank().worker.0, 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct PoolBuilder {
    settings: Settings,
    rejects: RejectThresholds,
    backend: Option<Backend>,
    custom: Custom,
    policy: Arc<Profile>,
    classifier: Option<Arc<dyn Classifier>>,
    events: Option<Arc<dyn EventSink>>,
    refresh: Option<Refresh>,
}

impl Default for PoolBuilder {
    fn default() -> PoolBuilder {
        PoolBuilder {
            settings: Settings {
                block_size: 16,
                track_prefill: true,
                track_blocks: true,
                weights: Weights::default(),
                scope: RejectScope::Worker,
                lease: Some(DEFAULT_LEASE),
                signal_ttl: DEFAULT_SIGNAL_TTL,
                router_id: 0,
                seed: 0,
                class_room_only: false,
                holds: true,
            },
            rejects: RejectThresholds::default(),
            backend: None,
            custom: Custom::default(),
            policy: Arc::clone(Policy::default().profile(None)),
            classifier: None,
            events: None,
            refresh: None,
        }
    }
}

impl fmt::Debug for PoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolBuilder").field(&self.settings).finish()
    }
}

impl PoolBuilder {
    /// Tokens in a KV block (default 16); 0 is refused.
    pub fn block_size(mut self, tokens: u32) -> Self {
        self.settings.block_size = tokens;
        self
    }

    /// Whether prompt tokens are booked and weighed (default yes; a decode pool says no).
    pub fn track_prefill(mut self, track: bool) -> Self {
        self.settings.track_prefill = track;
        self
    }

    /// Whether KV blocks are booked and weighed (default yes).
    pub fn track_blocks(mut self, track: bool) -> Self {
        self.settings.track_blocks = track;
        self
    }

    /// What the cost of a rank is made of.
    pub fn weights(mut self, weights: Weights) -> Self {
        self.settings.weights = weights;
        self
    }

    /// Whether the reject thresholds skip workers (default) or single ranks.
    pub fn reject_scope(mut self, scope: RejectScope) -> Self {
        self.settings.scope = scope;
        self
    }

    /// The live reject thresholds; one handle may serve several pools. Without: none.
    pub fn reject_thresholds(mut self, rejects: RejectThresholds) -> Self {
        self.rejects = rejects;
        self
    }

    /// After how much silence a booking by id is reclaimed (default 300 s; `None`: never; 0 is
    /// refused).
    pub fn lease(mut self, lease: Option<Duration>) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long a worker's own signal counts (default 5 s; 0 is refused).
    pub fn signal_ttl(mut self, ttl: Duration) -> Self {
        self.settings.signal_ttl = ttl;
        self
    }

    /// This router's name among routers (default 0).
    pub fn router_id(mut self, id: u64) -> Self {
        self.settings.router_id = id;
        self
    }

    /// Seed of the drawing (ties, temperature): with one thread, equal seeds give equal choices.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Forces a back-end instead of the fastest one that this machine has.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Restricts the choice of `admit` to ranks with room for the request's class (default no).
    pub fn class_room_only(mut self, only: bool) -> Self {
        self.settings.class_room_only = only;
        self
    }

    /// The policy classes that `admit` goes by (default: one class that never waits).
    pub fn policy(mut self, profile: &Arc<Profile>) -> Self {
        self.policy = Arc::clone(profile);
        self
    }

    /// Whether `admit` sets room aside at the paired pool (default yes); if not, the gate is a check
    /// only.
    pub fn holds(mut self, holds: bool) -> Self {
        self.settings.holds = holds;
        self
    }

    /// A classifier that `admit` shows each request to before it is queued.
    pub fn classifier(mut self, classifier: Arc<dyn Classifier>) -> Self {
        self.classifier = Some(classifier);
        self
    }

    /// Whom every change of this router's own load is told to, for other routers.
    pub fn events(mut self, sink: Arc<dyn EventSink>) -> Self {
        self.events = Some(sink);
        self
    }

    /// Gives what has waited longer than `after` new overlaps at its turn (default: nobody does).
    pub fn refresh(mut self, after: Duration, by: Arc<dyn OverlapRefresh>) -> Self {
        self.refresh = Some(Refresh { after, by });
        self
    }

    /// A filter over the ranks that are neither marked nor full.
    pub fn filter(mut self, filter: Arc<dyn Filter>) -> Self {
        self.custom.filter = Some(filter);
        self
    }

    /// A scorer that gives those ranks other costs.
    pub fn scorer(mut self, scorer: Arc<dyn Scorer>) -> Self {
        self.custom.scorer = Some(scorer);
        self
    }

    /// A picker instead of "the lowest cost wins".
    pub fn picker(mut self, picker: Arc<dyn Picker>) -> Self {
        self.custom.picker = Some(picker);
        self
    }

    /// An observer that is handed every rank's projection and capacity.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.custom.observer = Some(observer);
        self
    }

    /// Builds the pool, empty.
    ///
    /// # Errors
    /// `InvalidConfig` naming the setting: a block size, lease or signal time of 0, a weight that
    /// is not finite or is negative, a back-end that this machine lacks.
    pub fn build(self) -> Result<Pool, Error> {
        let settings = self.settings;
        if settings.block_size == 0 {
            return Err(Error::config("block_size", 0));
        }
        settings.weights.validate()?;
        if settings.lease == Some(Duration::ZERO) {
            return Err(Error::config("lease", 0));
        }
        if settings.signal_ttl.is_zero() {
            return Err(Error::config("signal_ttl", 0));
        }
        let kernel = match self.backend {
            Some(backend) => Kernel::new(backend)?,
            None => Kernel::detect(),
        };
        let profile = self.policy;
        let rules = Rules {
            reject: self.rejects.get(),
            scope: settings.scope,
            classes: Vec::new(),
            profile: Arc::clone(&profile),
            paired: false,
            asked: Vec::new(),
        };
        let rules = rules.under(&profile, false);
        let signal = Arc::new(RoomSignal::new());
        let index = Arc::new(PromptIndex::new(crate::pins::domain()));
        let writer = Writer::new(Arc::new(rules), Arc::clone(&index), settings.signal_ttl);
        let seed = settings.seed;
        let stripe = || {
            let stripe = Stripe::default();
            stripe.random.store(seed, Ordering::Relaxed);
            CachePadded::new(stripe)
        };
        let inner = Arc::new_cyclic(|me| Inner {
            kernel,
            plain: settings.plain(),
            view: ViewCell::new(writer.view.clone()),
            writer: Mutex::new(writer),
            index,
            baton: CachePadded::new(Baton::new()),
            bench: Waiting::new(Bench::new(profile), Arc::clone(&signal)),
            closed: AtomicBool::new(false),
            signal,
            ids: Ids::new(settings.lease),
            holds: Ids::new(settings.lease),
            pair: ArcSwapOption::empty(),
            room_caches: ArcSwap::default(),
            owed: AtomicBool::new(false),
            me: Weak::clone(me),
            stripes: (0..STRIPES).map(|_| stripe()).collect(),
            next_stripe: AtomicUsize::new(1),
            rejects: self.rejects.clone(),
            rejected: report::Rejected::default(),
            custom: self.custom,
            classifier: self.classifier,
            peers: Peers::new(self.events),
            refresh: self.refresh,
            settings,
        });
        let under: Arc<dyn UnderThresholds> = Arc::clone(&inner) as _;
        self.rejects.attach(Arc::downgrade(&under));
        let party: Arc<dyn Party> = Arc::clone(&inner) as _;
        inner.signal.add_party(Arc::downgrade(&party));
        Ok(Pool { handle: Arc::new(Handle { inner, stripe: 0 }) })
    }
}
