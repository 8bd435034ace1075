//! Custom policies of a host, as plain functions of what they are shown.

use super::choose::{View, overlap, same_cost, shares};
use super::limits::is_full;
use super::queue::{Policy, uncached};
use super::{Model, Refusal};
use std::sync::Arc;
use std::time::Duration;
use vacancy::{Error, Name, Overlap, Rank, Request, Target, Thresholds};

/// Which ranks a host's filter keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Ranks with an even number.
    EvenRanks,
    /// Ranks that carry at most this many requests.
    AtMostRequests(u64),
    /// Nobody.
    Nobody,
    /// Fails.
    Fails,
}

/// What a host's scorer makes of the cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scorer {
    /// Adds this many blocks for each number of the worker.
    AddPerWorker(f64),
    /// Replaces the cost by the number of requests.
    Requests,
    /// Gives a cost that is not finite for this worker.
    NotFinite(u64),
    /// Fails.
    Fails,
    /// Panics.
    Panics,
}

/// Whom a host's picker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picker {
    /// A rank of the largest cost.
    Dearest,
    /// Fails.
    Fails,
}

/// When a host's classifier has something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Of every request.
    Always,
    /// Of those with more uncached tokens than this.
    Above(u64),
    /// Of those for which no rank that they may use has room under the thresholds of their class.
    NoRoom,
}

/// What a host's classifier makes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Say {
    /// Puts it into a class.
    Class(&'static str),
    /// Makes it due so long after its own instant, or never.
    Due(Option<Duration>),
    /// Gives it a cost.
    Cost(u64),
    /// Gives it a session-affinity target, or none.
    Target(Option<Target>),
    /// Fails.
    Fails,
    /// Panics.
    Panics,
}

/// A host's classifier.
#[derive(Clone, Debug, PartialEq)]
pub struct Classifier {
    /// When it says anything.
    pub when: When,
    /// What it says, in this order.
    pub says: Vec<Say>,
}

/// What a host's refresh gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gives {
    /// So many device blocks on this rank.
    Blocks(Rank, f64),
    /// That nothing is cached anywhere.
    Nothing,
    /// No answer.
    NoAnswer,
    /// Something that no pool can take.
    Invalid,
    /// Panics.
    Panics,
}

/// A host's overlap refresh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refresh {
    /// After how long a wait it is asked.
    pub after: Duration,
    /// What it says.
    pub gives: Gives,
}

/// What a host installed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Custom {
    /// Refuses ranks that are neither marked nor full.
    pub filter: Option<Filter>,
    /// Changes costs.
    pub scorer: Option<Scorer>,
    /// Chooses.
    pub picker: Option<Picker>,
    /// Looks at a request before it is queued.
    pub classifier: Option<Classifier>,
    /// Gives new overlaps to what has waited.
    pub refresh: Option<Refresh>,
}

/// The names that a classifier asks the thresholds of.
pub const ASKED: [&str; 5] = ["e", "f", "u", "v", "u_all"];

/// A rank, as a classifier sees it: overlap, prefill tokens, blocks, what it can carry, and whether
/// it has room under the reject thresholds.
pub type SeenRank = (Rank, [f64; 3], u64, u64, [Option<u64>; 2], bool);

/// What a classifier sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Prompt tokens, and those of them that some rank has cached.
    pub tokens: (u64, u64),
    /// Its class, and the thresholds of that.
    pub class: (Name, Thresholds),
    /// The thresholds of [`ASKED`].
    pub others: Vec<Option<Thresholds>>,
    /// The reject thresholds.
    pub reject: Thresholds,
    /// The structurally eligible ranks, by number.
    pub ranks: Vec<SeenRank>,
    /// Its class and thresholds after all was said; `None`: it was not heard to the end.
    pub after: Option<(Name, Thresholds)>,
}

impl Policy {
    /// The class of this name or family for so many uncached tokens, if there is one.
    fn named(&self, name: &Name, uncached: u64) -> Option<(Name, Thresholds)> {
        let class = self.knows(name).then(|| self.class(Some(name), uncached))?;
        Some((self.classes[class].name.clone(), self.classes[class].thresholds))
    }
}

/// What a classifier changed.
#[derive(Clone, Debug)]
pub struct Said {
    /// The request, as it goes on.
    pub request: Request,
    /// Its cost, if that is another than its uncached tokens.
    pub cost: Option<u64>,
}

impl Model {
    /// What the classifier makes of `request`, which may use `eligible`.
    pub(super) fn classify(
        &mut self,
        request: &Request,
        eligible: &[Rank],
    ) -> Result<Said, Refusal> {
        let mut said = Said { request: request.clone(), cost: None };
        let Some(classifier) = self.config.custom.classifier.clone() else { return Ok(said) };
        let view = self.view();
        let uncached = uncached(&view, request, eligible);
        let policy = &self.queue.policy;
        let class = &policy.classes[policy.class(request.class.as_ref(), uncached)];
        let mut class = (class.name.clone(), class.thresholds);
        let rank = |r: &Rank| {
            let (row, carries) = (view.row(*r), view.fleet.capacity(*r));
            let caps = [carries.max_num_batched_tokens, carries.total_kv_blocks.filter(|n| *n > 0)];
            let room = !is_full(view.thresholds, row, carries);
            (*r, overlap(request, *r), row.prefill_tokens, row.kv_blocks, caps, room)
        };
        let mut seen = Seen {
            tokens: (request.isl, request.isl - uncached),
            class: class.clone(),
            others: ASKED.map(|n| policy.named(&n.into(), uncached).map(|(_, t)| t)).into(),
            reject: self.thresholds,
            ranks: eligible.iter().map(rank).collect(),
            after: None,
        };
        let speaks = match classifier.when {
            When::Always => true,
            When::Above(tokens) => uncached > tokens,
            When::NoRoom => {
                let full = |r: &Rank| is_full(&class.1, view.row(*r), view.fleet.capacity(*r));
                eligible.iter().all(full)
            }
        };
        let mut failed = None;
        let mut heard = true;
        for say in classifier.says.iter().filter(|_| speaks) {
            match say {
                Say::Class(name) => match policy.named(&(*name).into(), uncached) {
                    Some(named) => {
                        class = named;
                        said.request.class = Some((*name).into());
                    }
                    None => {
                        let unknown = Error::UnknownClass { class: (*name).into() };
                        failed = failed.or(Some(unknown.into()));
                    }
                },
                Say::Due(wait) => said.request.due = wait.map(|wait| request.now.after(wait)),
                Say::Cost(0) => failed = failed.or(Some(Refusal::Request(vec!["cost"]))),
                Say::Cost(tokens) => said.cost = Some(*tokens),
                Say::Target(target) => {
                    let mut c = request.constraints.as_deref().cloned().unwrap_or_default();
                    c.affinity = *target;
                    said.request.constraints = Some(Arc::new(c));
                }
                Say::Fails | Say::Panics => {
                    failed = failed.or(Some(Refusal::PolicyFailed));
                    heard = false;
                    break;
                }
            }
        }
        seen.after = heard.then_some(class);
        self.seen.push(seen);
        failed.map_or(Ok(said), Err)
    }

    /// What classifiers of this pool and its pair have seen since this was last asked.
    pub fn take_seen(&mut self) -> Vec<Seen> {
        let mut seen = std::mem::take(&mut self.seen);
        seen.extend(self.pair.iter_mut().flat_map(|pair| pair.take_seen()));
        seen
    }

    /// The request of one who waits, as it is tried now.
    pub(super) fn refreshed(&self, ticket: u64) -> Request {
        let waiter = &self.queue.waiting[&ticket];
        let request = waiter.request.clone();
        match self.config.custom.refresh {
            Some(by) if self.clock > waiter.arrived.after(by.after) => match by.gives {
                Gives::Blocks(rank, blocks) => request.overlaps([Overlap::device(rank, blocks)]),
                Gives::Nothing => request.overlaps(Vec::new()),
                Gives::NoAnswer | Gives::Invalid | Gives::Panics => request,
            },
            _ => request,
        }
    }
}

impl Custom {
    /// Whether the filter keeps `rank`.
    pub fn keeps(&self, view: &View<'_>, _: &Request, rank: Rank) -> Result<bool, Refusal> {
        match self.filter {
            None => Ok(true),
            Some(Filter::EvenRanks) => Ok(rank.dp_rank.is_multiple_of(2)),
            Some(Filter::AtMostRequests(n)) => Ok(view.row(rank).requests <= n),
            Some(Filter::Nobody) => Ok(false),
            Some(Filter::Fails) => Err(Refusal::PolicyFailed),
        }
    }

    /// What the scorer makes of `plain`.
    pub fn score(
        &self,
        view: &View<'_>,
        _: &Request,
        rank: Rank,
        plain: f64,
    ) -> Result<f64, Refusal> {
        match self.scorer {
            None => Ok(plain),
            Some(Scorer::AddPerWorker(blocks)) => Ok(plain + blocks * rank.worker.0 as f64),
            Some(Scorer::Requests) => Ok(view.row(rank).requests as f64),
            Some(Scorer::NotFinite(worker)) if rank.worker.0 != worker => Ok(plain),
            Some(Scorer::NotFinite(_) | Scorer::Fails | Scorer::Panics) => {
                Err(Refusal::PolicyFailed)
            }
        }
    }

    /// How likely each of `ranks` is chosen.
    pub fn shares(&self, costs: &[f64], temperature: f64) -> Result<Vec<f64>, Refusal> {
        match self.picker {
            None => Ok(shares(costs, temperature)),
            Some(Picker::Fails) => Err(Refusal::PolicyFailed),
            Some(Picker::Dearest) => {
                let most = costs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let dearest: Vec<f64> =
                    costs.iter().map(|c| f64::from(u8::from(same_cost(*c, most)))).collect();
                let n: f64 = dearest.iter().sum();
                Ok(dearest.into_iter().map(|d| d / n).collect())
            }
        }
    }
}
