//! Request classifiers: the host's own say in class, due time, cost and soft target, before a
//! request is queued.
//!
//! Called on the caller's thread with no lock and no pin held, on every pool that has one, so on
//! both hops. What it sees is one view: class thresholds, reject thresholds and rows of the moment
//! at which classification began. A classifier that fails or panics fails its own request.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::fleet::block::{SlotId, lanes};
use crate::fleet::eligible::{Availability, resolve};
use crate::limits::thresholds::Thresholds;
use crate::names::{Name, Rank};
use crate::pass::custom::{PolicyError, text_of};
use crate::pins::pin;
use crate::pool::Inner;
use crate::pool::choose::with_arena;
use crate::queue::policy::{ClassId, Profile};
use crate::request::{Constraints, Request, Target};
use crate::sync::Arc;
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The one rule of room, for a classifier's own use: whether a row is under `thresholds`, given
/// what its rank can carry. The same limits as in selection and gate.
pub fn has_room(
    thresholds: &Thresholds,
    prefill_tokens: u32,
    kv_blocks: u32,
    max_num_batched_tokens: Option<u64>,
    total_kv_blocks: Option<u64>,
) -> bool {
    !thresholds.is_full(
        prefill_tokens.into(),
        kv_blocks.into(),
        max_num_batched_tokens,
        total_kv_blocks,
    )
}

/// One structurally eligible rank, as classification saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SeenRank {
    /// The rank.
    pub rank: Rank,
    /// Cached blocks per tier: device, host, disk.
    pub overlap: [f64; 3],
    /// Active prefill tokens.
    pub prefill_tokens: u32,
    /// KV blocks, whoever's.
    pub kv_blocks: u32,
    /// Tokens it batches at most, if known.
    pub max_num_batched_tokens: Option<u64>,
    /// KV blocks it has, if known.
    pub total_kv_blocks: Option<u64>,
}

impl SeenRank {
    /// Whether its row is under `thresholds`; see [`has_room`].
    pub fn has_room(&self, thresholds: &Thresholds) -> bool {
        has_room(
            thresholds,
            self.prefill_tokens,
            self.kv_blocks,
            self.max_num_batched_tokens,
            self.total_kv_blocks,
        )
    }
}

/// Looks at a request before it is queued.
pub trait Classifier: Send + Sync {
    /// Its name, for errors.
    fn name(&self) -> &str;

    /// Whether it wants to see every structurally eligible rank; costs a walk over them.
    fn wants_ranks(&self) -> bool {
        false
    }

    /// Looks at the request and may change class, due time, cost and soft target.
    ///
    /// # Errors
    /// Any error, and a panic, fails the request with `PolicyFailed`.
    fn classify(&self, seen: &mut Classification<'_>) -> Result<(), PolicyError>;
}

/// What a classifier sees and may change.
#[derive(Debug)]
pub struct Classification<'a> {
    request: &'a Request,
    cached_tokens: u32,
    profile: Arc<Profile>,
    class: ClassId,
    named: Option<Name>,
    reject: Thresholds,
    ranks: Vec<SeenRank>,
    due: Option<Time>,
    cost: Option<u64>,
    target: Option<Target>,
    failed: Option<Error>,
}

impl Classification<'_> {
    /// The request.
    pub fn request(&self) -> &Request {
        self.request
    }

    /// Its prompt tokens.
    pub fn prompt_tokens(&self) -> u64 {
        self.request.isl
    }

    /// The most of them that a structurally eligible rank has cached.
    pub fn cached_tokens(&self) -> u32 {
        self.cached_tokens
    }

    /// Prompt tokens that no structurally eligible rank has cached.
    pub fn uncached_tokens(&self) -> u64 {
        self.request.isl - u64::from(self.cached_tokens)
    }

    /// The class it is in, as resolved or as set here.
    pub fn class(&self) -> &Name {
        &self.profile.class(self.class).name
    }

    /// The thresholds of the class it is in, also after that was changed here.
    pub fn thresholds(&self) -> Thresholds {
        self.profile.class(self.class).thresholds
    }

    /// The thresholds of another class or family by name, resolved with this request's uncached
    /// tokens; `None`: no such name.
    pub fn thresholds_of(&self, name: &Name) -> Option<Thresholds> {
        let class = self.profile.resolve(Some(name), self.uncached_tokens(), true).ok()?;
        Some(self.profile.class(class).thresholds)
    }

    /// The reject thresholds as they were when classification began.
    pub fn reject_thresholds(&self) -> Thresholds {
        self.reject
    }

    /// Every structurally eligible rank, if [`Classifier::wants_ranks`]; else none.
    pub fn ranks(&self) -> &[SeenRank] {
        &self.ranks
    }

    /// Puts the request into another class, or another family's class for its uncached tokens.
    ///
    /// # Errors
    /// `UnknownClass`; the request fails with it.
    pub fn set_class(&mut self, name: &Name) -> Result<(), Error> {
        match self.profile.resolve(Some(name), self.uncached_tokens(), true) {
            Ok(class) => {
                self.class = class;
                self.named = Some(name.clone());
                Ok(())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Gives the request another due time.
    pub fn set_due(&mut self, due: Option<Time>) {
        self.due = due;
    }

    /// Gives the request another cost in its class's turn than its uncached tokens.
    ///
    /// # Errors
    /// `InvalidRequest` for 0; the request fails with it.
    pub fn set_cost(&mut self, tokens: u64) -> Result<(), Error> {
        if tokens == 0 {
            return Err(self.fail(Error::request("cost", 0)));
        }
        self.cost = Some(tokens);
        Ok(())
    }

    /// Gives the request another session-affinity target.
    pub fn set_target(&mut self, target: Option<Target>) {
        self.target = target;
    }

    fn fail(&mut self, error: Error) -> Error {
        self.failed.get_or_insert(error.clone());
        error
    }
}

impl Inner {
    /// Lets the classifier look at a request, and puts into it what was changed.
    ///
    /// # Errors
    /// `NoEndpoints`, `UnknownClass`, `PolicyFailed`, or what the classifier's changes earned.
    pub(crate) fn classify(&self, request: &mut Request) -> Result<(), Error> {
        let Some(classifier) = &self.classifier else { return Ok(()) };
        let mut seen = self.see(request, classifier.wants_ranks())?;
        let called = catch_unwind(AssertUnwindSafe(|| classifier.classify(&mut seen)));
        let failure = match called {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panic) => Some(format!("panicked: {}", text_of(panic))),
        };
        if let Some(error) = seen.failed {
            return Err(error);
        }
        if let Some(what) = failure {
            let name = catch_unwind(AssertUnwindSafe(|| classifier.name().to_owned()));
            let name = name.unwrap_or_else(|panic| format!("(name panicked: {})", text_of(panic)));
            return Err(Error::PolicyFailed { what: format!("classifier {name}: {what}") });
        }
        let Classification { named, due, cost, target, .. } = seen;
        if named.is_some() {
            request.class = named;
        }
        request.due = due;
        request.cost = cost;
        let old = request.constraints.as_ref().and_then(|c| c.affinity);
        if target != old {
            let mut constraints = request.constraints.as_deref().cloned().unwrap_or_default();
            constraints.affinity = target;
            request.constraints = Some(Arc::new(constraints));
        }
        Ok(())
    }

    fn see<'a>(&self, request: &'a Request, ranks: bool) -> Result<Classification<'a>, Error> {
        let guard = pin();
        let view = self.view.load(&guard);
        let cached_tokens = self.best_cached(view, request)?;
        let profile = Arc::clone(&view.rules.profile);
        let uncached = request.isl - u64::from(cached_tokens);
        let class = profile.resolve(request.class.as_ref(), uncached, request.strict_class)?;
        let mut seen = Vec::new();
        if ranks {
            let listed: FxHashMap<SlotId, [f64; 3]> = request
                .overlaps
                .iter()
                .flat_map(|list| list.iter())
                .filter_map(|o| Some((view.slot(o.rank)?, [o.device, o.host, o.disk])))
                .collect();
            with_arena(|arena| {
                let constraints: Option<&Constraints> = request.constraints.as_deref();
                let lora = request.lora.as_ref();
                let eligible = resolve(view, constraints, lora, Availability::Required, arena);
                for (b, block) in view.blocks.iter().enumerate() {
                    for lane in lanes(eligible.lanes(view, b)) {
                        let row = block.live.row(lane);
                        let spec = block.owners[lane].as_ref().map(|w| &w.spec);
                        seen.push(SeenRank {
                            rank: block.ranks[lane],
                            overlap: listed.get(&SlotId::new(b, lane)).copied().unwrap_or_default(),
                            prefill_tokens: row.tokens(),
                            kv_blocks: row.blocks(),
                            max_num_batched_tokens: spec.and_then(|s| s.max_num_batched_tokens),
                            total_kv_blocks: spec
                                .and_then(|s| s.total_kv_blocks)
                                .filter(|&n| n > 0),
                        });
                    }
                }
            });
        }
        Ok(Classification {
            request,
            cached_tokens,
            class,
            named: None,
            reject: view.rules.reject,
            ranks: seen,
            due: request.due,
            cost: None,
            target: request.constraints.as_ref().and_then(|c| c.affinity),
            failed: None,
            profile,
        })
    }
}
