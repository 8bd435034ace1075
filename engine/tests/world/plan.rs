//! A world before it happens: what its pools are made of, and what is going to be done to them.
//!
//! All of it is plain data that refers to clients, workers and routers by number, and an event that
//! names somebody who is not there does nothing. So any event may be taken out of a plan and what is
//! left is a plan still, which is what the shrinker needs.

use std::fmt;
use vacancy::{ClassSpec, Profile, QueuePolicy, RejectScope, Thresholds};

/// One of the two pools of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hop {
    /// Where requests come in.
    Prefill,
    /// Its pair.
    Decode,
}

impl Hop {
    /// Both, the paired one first: the order in which timers run at one instant.
    pub const BOTH: [Hop; 2] = [Hop::Decode, Hop::Prefill];

    /// The pool's name in a scenario file.
    pub fn key(self) -> &'static str {
        match self {
            Hop::Prefill => "prefill",
            Hop::Decode => "decode",
        }
    }
}

/// A worker as it is declared.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerPlan {
    /// Its id.
    pub id: u64,
    /// Its first rank.
    pub start: u32,
    /// How many ranks it has.
    pub ranks: u32,
    /// `max_num_batched_tokens`.
    pub tokens: Option<u64>,
    /// `total_kv_blocks`.
    pub blocks: Option<u64>,
    /// Whether it carries the taint `x`.
    pub taint: bool,
    /// Whether it serves the adapter `a`.
    pub lora: bool,
}

/// One set of thresholds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// Absolute, in tokens.
    pub prefill_tokens: Option<u64>,
    /// Of `max_num_batched_tokens`.
    pub prefill_frac: Option<f64>,
    /// Of `total_kv_blocks`.
    pub decode_frac: Option<f64>,
}

impl Line {
    /// The engine's form.
    pub fn thresholds(&self) -> Thresholds {
        let mut thresholds = Thresholds::NONE;
        thresholds.prefill_tokens = self.prefill_tokens;
        thresholds.prefill_frac = self.prefill_frac;
        thresholds.decode_frac = self.decode_frac;
        thresholds
    }
}

/// One policy class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassPlan {
    /// Its name.
    pub name: &'static str,
    /// The bucket of the family `standard` that it serves; `None`: an explicit class.
    pub bucket: Option<&'static str>,
    /// Uncached tokens a round.
    pub quantum: u64,
    /// The order of its requests.
    pub order: QueuePolicy,
    /// When a rank is full for it.
    pub line: Line,
    /// The share of ranks that must be full for it to wait.
    pub ratio: Option<f64>,
    /// How many may wait per worker.
    pub limit: Option<u64>,
    /// The due time it gives, after arrival.
    pub max_wait_ms: Option<u64>,
}

/// Uncached tokens from which on a request of the family is in the bucket `large`.
pub const LARGE: u64 = 160;

/// A policy: two classes of the family `standard`, then explicit ones.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyPlan {
    /// The classes, in the order of declaration.
    pub classes: Vec<ClassPlan>,
}

impl PolicyPlan {
    /// The engine's form.
    pub fn profile(&self) -> Profile {
        let buckets = [(0, "small".into()), (LARGE, "large".into())];
        let classes = self.classes.iter().map(|plan| {
            let mut class = ClassSpec::new(plan.name, plan.quantum)
                .queue_policy(plan.order)
                .thresholds(plan.line.thresholds());
            if let Some(bucket) = plan.bucket {
                class = class.family("standard", bucket);
            }
            class.busy_worker_ratio = plan.ratio.filter(|_| class.waits());
            class.limits.requests = plan.limit;
            class.max_wait = plan.max_wait_ms.map(std::time::Duration::from_millis);
            class
        });
        Profile::new("standard", buckets, classes).expect("plans are valid policies")
    }

    /// The class of a request of that name with so many uncached tokens.
    pub fn resolve(&self, name: Option<&str>, uncached: u64) -> usize {
        let explicit = |c: &ClassPlan| c.bucket.is_none() && Some(c.name) == name;
        let bucket = if uncached >= LARGE { "large" } else { "small" };
        self.classes
            .iter()
            .position(explicit)
            .or_else(|| self.classes.iter().position(|c| c.bucket == Some(bucket)))
            .expect("the family has both buckets")
    }
}

/// A request, as its host knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Prompt tokens.
    pub isl: u32,
    /// Its block hashes, if it brings any.
    pub chain: Option<Vec<u64>>,
    /// What ranks have cached of it: worker, rank, blocks on the device.
    pub cached: Vec<(u64, u32, u32)>,
    /// Class or family.
    pub class: Option<&'static str>,
    /// Strict priority.
    pub priority: i64,
    /// Priority jump.
    pub jump: f64,
    /// Due so long after its arrival.
    pub due_in_ms: Option<u64>,
    /// Which ranks it may use at the hop where it comes in.
    pub own: Wants,
    /// Which ranks its decode leg may use.
    pub leg: Wants,
    /// Whether it needs the adapter `a`.
    pub lora: bool,
    /// Refuse rather than wait.
    pub do_not_queue: bool,
    /// How far the clock that it carries is behind.
    pub behind_ms: u64,
    /// The host's own code panics over it.
    pub poison: bool,
    /// Its decode leg chooses afresh instead of landing on its hold's rank.
    pub afresh: bool,
}

/// Constraints of a request at one hop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wants {
    /// A worker, and maybe one of its ranks.
    pub pin: Option<(u64, Option<u32>)>,
    /// Only workers with the taint `x`.
    pub taint: bool,
    /// Not this worker.
    pub deny: Option<u64>,
}

impl Wants {
    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        *self == Wants::default()
    }
}

/// How a request comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `admit`.
    Admit,
    /// `admit_as`.
    AdmitAs,
    /// `book`.
    Book,
    /// `book_as`.
    BookAs,
}

/// What another router says of one of its bookings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PeerSays {
    /// Put on a rank.
    Add {
        /// The rank.
        rank: (u64, u32),
        /// Tokens.
        tokens: u32,
        /// Blocks.
        blocks: u32,
    },
    /// Prefill over.
    Done,
    /// Grown.
    Output(u32),
    /// Moved.
    Move((u64, u32)),
    /// Gone.
    Free,
}

/// What is done to a world.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A worker is declared, or declared otherwise.
    Upsert(Hop, WorkerPlan),
    /// A worker leaves.
    Remove(Hop, u64),
    /// The whole set at once.
    Reconcile(Hop, Vec<WorkerPlan>),
    /// Availability.
    Available(Hop, u64, bool),
    /// A host's overload mark, with its lease.
    Overloaded(Hop, u64, bool, Option<u64>),
    /// Other reject thresholds, all of them.
    Thresholds(Hop, Line),
    /// Another policy.
    Policy(Hop, PolicyPlan),
    /// A worker says what it uses: worker, rank, used blocks, blocks decoding.
    Observe(Hop, u64, u32, Option<u64>, Option<u64>),
    /// Another router tells: router, sequence number, booking, what.
    Peer(Hop, u64, u64, u64, PeerSays),
    /// Another router is known to be gone.
    PeerGone(Hop, u64),
    /// Time passes, and every timer due on the way runs.
    Advance(u64),
    /// Time jumps: timers run once, at the end.
    Jump(u64),
    /// A client comes with a request; `lazy`: its future is not polled at once.
    Arrive {
        /// The client's number; its request's id as well.
        client: u32,
        /// Where.
        hop: Hop,
        /// How.
        door: Door,
        /// What.
        demand: Demand,
        /// Not polled at once.
        lazy: bool,
    },
    /// A client does the next thing of its life.
    Step(u32),
    /// A client's request grows.
    Output(u32, u32),
    /// A client's request is moved to a rank of the pool that it is in.
    Move(u32, u64, u32),
    /// A client is dropped with everything it has.
    Cancel(u32),
    /// Whoever was woken first and has not run yet is dropped.
    CancelChosen,
    /// A client unwinds with everything it has.
    Panic(u32),
    /// A client is never heard of again, and leaves what it has under its id.
    Silence(u32),
    /// A live id is used a second time.
    Duplicate(u32),
    /// A live id is freed under another attempt.
    StaleFree(u32),
    /// A pool shuts down.
    Close(Hop),
}

/// One thing that happens, and whether those who were woken run right after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What.
    pub op: Op,
    /// Whether the woken run.
    pub run: bool,
}

/// Code of the host's that a pool calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCode {
    /// A scorer, which panics over poisoned requests.
    pub scorer: bool,
    /// An observer, which does as well.
    pub observer: bool,
    /// A classifier, which does as well.
    pub classifier: bool,
    /// A sink of events that panics every so often.
    pub sink: bool,
}

/// What the pools of a world are made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The seed that the plan was made from.
    pub seed: u64,
    /// Tokens in a block, at the prefill pool and at the decode pool.
    pub block_size: [u32; 2],
    /// Whether the prefill pool tracks blocks.
    pub track_blocks: bool,
    /// Whether the decode pool tracks prefill.
    pub track_prefill: bool,
    /// Whether `admit` sets room aside at the pair.
    pub holds: bool,
    /// Worker-wide or rank by rank.
    pub scope: RejectScope,
    /// Choose only among ranks with room for the class.
    pub class_room_only: bool,
    /// The lease of bookings by id.
    pub lease_ms: Option<u64>,
    /// How long signals count.
    pub ttl_ms: u64,
    /// The policy of each pool at the start.
    pub policy: [PolicyPlan; 2],
    /// The host's code at the prefill pool.
    pub host: HostCode,
}

/// A world before it happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Its pools.
    pub setup: Setup,
    /// What is done to them.
    pub events: Vec<Event>,
}

macro_rules! faults {
    ($($fault:ident => $key:literal,)*) => {
        /// The kinds of fault that a world may suffer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault { $(#[doc = $key] $fault,)* }

        impl Fault {
            /// All of them.
            pub const ALL: &[Fault] = &[$(Fault::$fault,)*];

            /// What it is called in tables.
            pub fn key(self) -> &'static str {
                match self { $(Fault::$fault => $key,)* }
            }
        }
    };
}

faults! {
    CancelWaiting => "cancel while waiting",
    CancelChosen => "cancel between chosen and seen",
    CancelHolding => "cancel between two awaits",
    ClientPanic => "client unwinds",
    HostPanic => "host code panics",
    SlowWorker => "worker marked slow",
    SilentWorker => "worker falls silent",
    SilentClient => "client falls silent (lease)",
    WorkerLeaves => "worker leaves",
    WorkerReturns => "worker returns otherwise",
    Capacity => "capacity changes",
    Unavailable => "availability changes",
    ThresholdChange => "thresholds change",
    PolicyReload => "policy reload",
    ClockJump => "clock jumps ahead",
    ClockBehind => "clock behind",
    PeerDuplicate => "peer says it twice",
    PeerReorder => "peer out of order",
    PeerVanish => "peer vanishes",
    Shutdown => "shutdown in the middle",
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}
