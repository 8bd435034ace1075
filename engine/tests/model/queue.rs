//! Who waits, and whose turn it is (SPEC section 7), as one plain list of waiting requests.
//!
//! Nothing is kept sorted and nothing is remembered that can be looked up: at every look the list
//! is searched for the entry that would go next. The state that is left is what the contract names:
//! each class's credit, whose turn it is, and how often a head was passed.
//!
//! Where the contract is silent:
//!
//! - The turn goes round the ring in the order of declaration. Its holder serves while its credit
//!   covers its next head; then it is granted its quantum, once a turn; when that does not cover the
//!   head either, the turn goes on. Whoever the turn comes to spends what it has before it is
//!   granted anything. A round in which every class that could go was granted and none could move
//!   is repeated as often as it takes, at once.
//! - A class that lost its turn because it was blocked, its quantum already granted, first spends
//!   the rest of it when the turn comes round, as the end of that turn: a quantum more would be
//!   earned by being blocked.
//! - A class whose queue empties ends its turn.
//! - Grants and turns count once somebody goes. A request that is refused at its turn costs its
//!   class nothing and moves nothing.
//! - Every pin has a lane, also one that names a worker only.
//! - Up to L entries are looked at behind any blocked head, of a pin's lane too ("No waiter that
//!   heads its class or lane, or is within L of the head, sleeps while its gate is open"): what is
//!   said of the decode side may hold up the head alone. The protected one is the first of the
//!   class outside the pins' lanes, if it has constraints of its own (or an adapter). Whoever stands
//!   behind it, in a lane or not, passes it by going first. Once it was passed K times on ranks it
//!   may use, the others choose among the ranks that it may not use, and wait if none of those may
//!   be chosen. Their gate looks at all ranks as ever. The head of a pin's lane is protected from
//!   those of its lane: they all want its ranks, so that after K of them nobody goes before it.
//! - Limits are asked of everybody who enters the queue: a newcomer that finds somebody waiting, of
//!   any class, enters it, except that a class without thresholds never does, and one that never
//!   queues only behind its own.
//! - A request whose gate is open and that selection then refuses is refused: the gate decides who
//!   waits, and what has stopped waiting is judged like any other.
//! - A due time that the class gave stays when a policy reload changes the class.

use super::choose::View;
use super::fleet::Fleet;
use super::limits::is_full;
use super::shared::Shared;
use std::collections::BTreeMap;
use std::time::Duration;
use vacancy::{Constraints, LimitKind, Name, Rank, Request, RequestId, Target, Thresholds, Time};

/// How far behind a blocked head is looked.
pub const LOOK_AHEAD: usize = 32;
/// How often a head may be passed on ranks that it may use.
pub const PASSES: u32 = 16;

/// How requests of one class are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First come, first served.
    Fcfs,
    /// Weighted shortest processing time.
    Wspt,
    /// Earliest due time.
    Edf,
}

/// One class of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name.
    pub name: Name,
    /// The family and the bucket that it serves; `None`: it is reached by its name.
    pub cell: Option<(Name, Name)>,
    /// Uncached tokens per round.
    pub quantum: u64,
    /// The order of its requests.
    pub order: Order,
    /// When a rank counts as full for it.
    pub thresholds: Thresholds,
    /// The share of ranks that must be full.
    pub busy_worker_ratio: Option<f64>,
    /// What may wait, per worker: requests, prompt tokens, cached prompt tokens.
    pub limits: [Option<u64>; 3],
    /// The due time of requests that bring none.
    pub max_wait: Option<Duration>,
}

impl Class {
    /// A class that is reached by its name, without thresholds or limits.
    pub fn new(name: &str, quantum: u64) -> Class {
        Class {
            name: name.into(),
            cell: None,
            quantum,
            order: Order::Fcfs,
            thresholds: Thresholds::NONE,
            busy_worker_ratio: None,
            limits: [None; 3],
            max_wait: None,
        }
    }

    /// How many of `n` ranks must be full for the class to wait: the smallest `k` that reaches the
    /// ratio in either form.
    fn full_to_wait(&self, n: usize) -> usize {
        let reaches = |k: usize, r: f64| k as f64 >= r * n as f64 || k as f64 / n as f64 >= r;
        match self.busy_worker_ratio {
            None => n,
            Some(r) => (0..=n).find(|k| reaches(*k, r)).unwrap_or(n),
        }
    }
}

/// The classes and how requests find theirs.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The family of requests that name none that exists.
    pub default_family: Name,
    /// Least uncached tokens and name of each bucket, from 0 on, increasing.
    pub buckets: Vec<(u64, Name)>,
    /// The classes, in the order of declaration.
    pub classes: Vec<Class>,
}

impl Policy {
    /// One class, `default`, that never waits.
    pub fn none() -> Policy {
        let mut class = Class::new("default", 1);
        class.cell = Some(("default".into(), "all".into()));
        Policy {
            default_family: "default".into(),
            buckets: vec![(0, "all".into())],
            classes: vec![class],
        }
    }

    /// Whether `name` is one that a request may ask for.
    pub fn knows(&self, name: &Name) -> bool {
        self.classes.iter().any(|c| match &c.cell {
            None => c.name == *name,
            Some((family, _)) => family == name,
        })
    }

    /// The class of a request that asks for `name` and has `uncached` tokens to compute.
    pub fn class(&self, name: Option<&Name>, uncached: u64) -> usize {
        let explicit = |c: &Class| c.cell.is_none() && Some(&c.name) == name;
        if let Some(i) = self.classes.iter().position(explicit) {
            return i;
        }
        let family = name.filter(|n| self.knows(n)).unwrap_or(&self.default_family);
        let (_, bucket) = self
            .buckets
            .iter()
            .rfind(|(min, _)| *min <= uncached)
            .expect("the first bucket starts at 0");
        let cell = |c: &Class| c.cell.as_ref().is_some_and(|(f, b)| f == family && b == bucket);
        self.classes.iter().position(cell).expect("every family has a class for every bucket")
    }
}

/// A request that waits.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// What it asked for.
    pub request: Request,
    /// Its id, if it is admitted by id.
    pub id: Option<RequestId>,
    /// Its class.
    pub class: usize,
    /// Tokens to compute, against the best overlap when it arrived.
    pub uncached: u64,
    /// When it arrived.
    pub arrived: Time,
    /// What serving it costs its class, if that is not its uncached tokens.
    pub costs: Option<u64>,
    /// When it must have been admitted.
    pub due: Option<Time>,
    /// How often it was passed on a rank that it may use, while it was the head.
    pub passed: u32,
}

impl Waiting {
    /// What serving it costs its class.
    pub fn cost(&self) -> u64 {
        self.costs.unwrap_or(self.uncached).max(1)
    }

    /// The pin in whose lane it waits.
    fn lane(&self) -> Option<Target> {
        self.request.constraints.as_ref()?.pin
    }

    /// Whether, a pin aside, not every rank is as good to it as any other. Soft wishes are no
    /// constraint: no rank is barred by them. Whatever is said of the decode side is one.
    fn constrained(&self) -> bool {
        let hard = |c: &Constraints| {
            c.allow.is_some() || !c.deny.is_empty() || !c.taints.is_empty() || !c.domain.is_empty()
        };
        self.request.lora.is_some()
            || self.request.decode.is_some()
            || self.request.constraints.as_deref().is_some_and(hard)
    }

    /// The structurally eligible ranks; none while the only ones are unavailable.
    fn may_use(&self, fleet: &Fleet) -> Vec<Rank> {
        fleet.eligible(&self.request).unwrap_or_default()
    }

    fn jump(&self) -> f64 {
        let jump = self.request.priority_jump;
        if jump.is_finite() && jump > 0.0 { jump } else { 0.0 }
    }
}

/// What a class has waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Requests.
    pub requests: u64,
    /// Prompt tokens.
    pub tokens: u64,
    /// Prompt tokens that were cached somewhere.
    pub cached: u64,
}

impl Depth {
    /// By kind of limit, in the order of [`Class::limits`].
    pub fn by_kind(self) -> [(LimitKind, u64); 3] {
        [
            (LimitKind::Requests, self.requests),
            (LimitKind::RawIslTokens, self.tokens),
            (LimitKind::CachedTokens, self.cached),
        ]
    }
}

/// Whose turn it is, and what each class may spend.
#[derive(Clone, Debug)]
pub struct Turns {
    /// Credit of each class, in tokens.
    pub credit: Vec<u128>,
    holder: usize,
    /// Whether the holder was granted the quantum of this turn.
    granted: bool,
    /// Classes that lost a turn, its quantum granted, because they were blocked.
    interrupted: Vec<bool>,
}

impl Turns {
    fn new(classes: usize) -> Turns {
        // As if the last class had just ended its turn: the ring starts with the first.
        Turns {
            credit: vec![0; classes],
            holder: classes - 1,
            granted: true,
            interrupted: vec![false; classes],
        }
    }
}

/// Everybody who waits. Tickets count up in the order of arrival.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The policy in force.
    pub policy: Shared<Policy>,
    /// By ticket.
    pub waiting: Shared<BTreeMap<u64, Waiting>>,
    turns: Turns,
}

impl Queue {
    /// Nobody waits.
    pub fn new(policy: Policy) -> Queue {
        let turns = Turns::new(policy.classes.len());
        Queue { policy: Shared::new(policy), waiting: Shared::default(), turns }
    }

    /// Whose turn it is.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// What `class` has waiting.
    pub fn depth(&self, class: usize) -> Depth {
        let mut d = Depth::default();
        for w in self.waiting.values().filter(|w| w.class == class) {
            d.requests += 1;
            d.tokens += w.request.isl;
            d.cached += w.request.isl - w.uncached;
        }
        d
    }

    /// Puts another policy in force.
    pub fn reload(&mut self, policy: Policy) {
        for w in self.waiting.values_mut() {
            w.class = policy.class(w.request.class.as_ref(), w.uncached);
        }
        self.turns = Turns::new(policy.classes.len());
        self.policy = Shared::new(policy);
    }

    /// Takes `ticket` out.
    pub fn leave(&mut self, ticket: u64) -> Option<Waiting> {
        let left = self.waiting.remove(&ticket)?;
        if self.depth(left.class).requests == 0 {
            self.turns.credit[left.class] = 0;
            self.turns.interrupted[left.class] = false;
            if self.turns.holder == left.class {
                self.turns.granted = true;
            }
        }
        Some(left)
    }

    /// Takes `ticket` out as admitted on `rank` at the turn that [`Queue::next`] gave it: its class
    /// pays, and the head that it passed, if it may use `rank`, counts.
    pub fn admitted(&mut self, ticket: u64, turns: Turns, rank: Rank, fleet: &Fleet) {
        let entry = &self.waiting[&ticket];
        let (class, cost) = (entry.class, u128::from(entry.cost()));
        if let Some(head) = self.passes(ticket)
            && self.waiting[&head].may_use(fleet).contains(&rank)
        {
            self.waiting.get_mut(&head).expect("waits").passed += 1;
        }
        if let Some(head) = self.lane_head(ticket) {
            self.waiting.get_mut(&head).expect("waits").passed += 1;
        }
        self.turns = turns;
        self.turns.credit[class] -= cost;
        self.leave(ticket);
    }

    /// Those who wait in `class`, first to last.
    pub fn line(&self, class: usize) -> Vec<u64> {
        let order = self.policy.classes[class].order;
        let mut line: Vec<u64> =
            self.waiting.iter().filter(|(_, w)| w.class == class).map(|(t, _)| *t).collect();
        line.sort_by(|a, b| {
            let (x, y) = (&self.waiting[a], &self.waiting[b]);
            let due = |w: &Waiting| w.due.unwrap_or(Time::NEVER);
            let priorities = match order {
                Order::Edf => due(x).cmp(&due(y)),
                Order::Fcfs | Order::Wspt => y
                    .request
                    .strict_priority
                    .cmp(&x.request.strict_priority)
                    .then(due(x).cmp(&due(y)))
                    .then(score(order, y).total_cmp(&score(order, x))),
            };
            priorities.then(a.cmp(b))
        });
        line
    }

    /// The first of each lane of `class`, and the first that is in none.
    pub fn heads(&self, class: usize) -> Vec<u64> {
        let mut seen = Vec::new();
        let mut heads = self.line(class);
        heads.retain(|t| {
            let lane = self.waiting[t].lane();
            let first = !seen.contains(&lane);
            seen.push(lane);
            first
        });
        heads
    }

    /// The head that `ticket` would pass by going: the first of its class outside the pins' lanes,
    /// if it comes before and has constraints of its own.
    fn passes(&self, ticket: u64) -> Option<u64> {
        let line = self.line(self.waiting[&ticket].class);
        let head = line.iter().copied().find(|t| self.waiting[t].lane().is_none())?;
        let place = |t: u64| line.iter().position(|x| *x == t);
        (self.waiting[&head].constrained() && place(head) < place(ticket)).then_some(head)
    }

    /// The head of the pin's lane that `ticket` is in, if it is another one.
    fn lane_head(&self, ticket: u64) -> Option<u64> {
        let pin = self.waiting[&ticket].lane()?;
        let line = self.line(self.waiting[&ticket].class);
        let head = line.into_iter().find(|t| self.waiting[t].lane() == Some(pin))?;
        (head != ticket).then_some(head)
    }

    /// The ranks that `ticket` must leave to the head before it.
    pub fn barred(&self, ticket: u64, fleet: &Fleet) -> Vec<Rank> {
        match self.passes(ticket) {
            Some(head) if self.waiting[&head].passed >= PASSES => {
                self.waiting[&head].may_use(fleet)
            }
            _ => Vec::new(),
        }
    }

    /// Whether `ticket` could go now, were it its class's turn.
    fn can_go(&self, ticket: u64, view: &View<'_>) -> bool {
        let entry = &self.waiting[&ticket];
        let ranks = entry.may_use(view.fleet);
        if !self.gate(entry.class, &entry.request, &ranks, view) {
            return false;
        }
        let barred = self.barred(ticket, view.fleet);
        barred.is_empty() || view.open(&ranks).iter().any(|r| !barred.contains(r))
    }

    /// Whether a class lets a request through that may land on `ranks`. With a pair, that one
    /// judges the decode part.
    pub fn gate(&self, of: usize, request: &Request, ranks: &[Rank], view: &View<'_>) -> bool {
        let class = &self.policy.classes[of];
        if ranks.is_empty() {
            return false;
        }
        if class.thresholds == Thresholds::NONE {
            return true;
        }
        let full = ranks.iter().filter(|r| self.full(of, **r, view)).count();
        full < class.full_to_wait(ranks.len())
            && match (view.pair, class.thresholds.decode_frac) {
                (Some(pair), Some(frac)) => pair.has_room(request, frac),
                _ => true,
            }
    }

    /// Whether `rank` has no room for `class`: past its thresholds, or marked.
    pub fn full(&self, class: usize, rank: Rank, view: &View<'_>) -> bool {
        let mut own = self.policy.classes[class].thresholds;
        if view.pair.is_some() {
            own.decode_frac = None;
        }
        is_full(&own, view.row(rank), view.fleet.capacity(rank)) || view.marked(rank)
    }

    /// Who of `class` would go now: the first in line that can, among those that are within L of
    /// the first of their lane.
    pub fn candidate(&self, class: usize, view: &View<'_>) -> Option<u64> {
        let line = self.line(class);
        let mut before = Vec::new();
        let near = line.into_iter().filter(|t| {
            let lane = self.waiting[t].lane();
            let ahead = before.iter().filter(|l| **l == lane).count();
            before.push(lane);
            let guarded = |head| self.waiting[&head].passed >= PASSES;
            ahead <= LOOK_AHEAD && !self.lane_head(*t).is_some_and(guarded)
        });
        near.collect::<Vec<_>>().into_iter().find(|t| self.can_go(*t, view))
    }

    /// Who goes next, over all classes, and whose turn it is then.
    pub fn next(&self, view: &View<'_>) -> Option<(u64, Turns)> {
        let classes = self.policy.classes.len();
        let ready: Vec<Option<u64>> = (0..classes).map(|c| self.candidate(c, view)).collect();
        if ready.iter().all(Option::is_none) {
            // Nothing at all can go: whoever has the turn keeps it.
            return None;
        }
        let quantum = |c: usize| u128::from(self.policy.classes[c].quantum);
        let lacks = |t: &Turns, c: usize, ticket: u64| {
            u128::from(self.waiting[&ticket].cost()).saturating_sub(t.credit[c])
        };
        let mut t = self.turns.clone();

        let holder = t.holder;
        match ready[holder] {
            Some(ticket) => {
                if lacks(&t, holder, ticket) > 0 && !t.granted {
                    t.credit[holder] += quantum(holder);
                    t.granted = true;
                }
                if lacks(&t, holder, ticket) == 0 {
                    return Some((ticket, t));
                }
            }
            None => t.interrupted[holder] = t.granted && self.depth(holder).requests > 0,
        }
        let ring: Vec<(usize, u64)> = (1..=classes)
            .map(|step| (holder + step) % classes)
            .filter_map(|c| Some((c, ready[c]?)))
            .collect();
        for &(c, ticket) in &ring {
            t.holder = c;
            t.granted = std::mem::take(&mut t.interrupted[c]);
            if lacks(&t, c, ticket) > 0 {
                t.credit[c] += quantum(c);
                t.granted = true;
            }
            if lacks(&t, c, ticket) == 0 {
                return Some((ticket, t));
            }
        }
        // Everybody who could go was granted a quantum in vain. The ring goes round as often as the
        // first that can pay needs; those after it are not come to in the last of these rounds.
        let needs = ring.iter().map(|(c, k)| lacks(&t, *c, *k).div_ceil(quantum(*c)));
        let rounds = needs.min().expect("somebody could go");
        ring.iter().for_each(|(c, _)| t.credit[*c] += (rounds - 1) * quantum(*c));
        for &(c, ticket) in &ring {
            t.holder = c;
            t.credit[c] += quantum(c);
            if lacks(&t, c, ticket) == 0 {
                break;
            }
        }
        let ticket = ready[t.holder].expect("it could go");
        Some((ticket, t))
    }
}

fn score(order: Order, w: &Waiting) -> f64 {
    match order {
        Order::Fcfs => w.jump() - w.arrived.as_secs_f64(),
        Order::Wspt => (1.0 + w.jump()) / w.uncached.max(1) as f64,
        Order::Edf => 0.0,
    }
}

/// Tokens to compute for `request` against the best overlap among the ranks it may use.
pub fn uncached(view: &View<'_>, request: &Request, eligible: &[Rank]) -> u64 {
    let cached = eligible.iter().map(|r| view.cached_tokens(request, *r)).max();
    request.isl - cached.unwrap_or(0)
}

/// Whether `request` waits for a rank that no change of availability can bring: it must be refused.
pub fn impossible(fleet: &Fleet, request: &Request) -> bool {
    let mut reachable = fleet.clone();
    reachable.workers.values_mut().for_each(|w| w.available = true);
    reachable.eligible(request).is_err()
}

#[cfg(test)]
mod tests;
