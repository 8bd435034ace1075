//! The full pass: every block whose eligibility word is not 0 is walked once, and everything that
//! needs a look at a rank is done in that walk: the load projected for the request, the ranks past
//! the reject thresholds, those past the class's, the cost, the minimum.
//!
//! Where a request needs nothing of a rank but its row, blocks are glanced at instead, and only the
//! cheapest are walked; see [`super::glance`].
//!
//! What a pass finds is a proposal. Nothing is booked here, nothing is waited for, and a row may
//! change the moment after it was copied; the booking judges it again.
#![forbid(unsafe_code)]

use crate::choice::Weights;
use crate::fleet::block::{LANES, SlotId, lanes};
use crate::fleet::eligible::{Eligible, slots_of};
use crate::fleet::tags::Tag;
use crate::fleet::view::{BlockView, Limits, View};
use crate::grace::Guard;
use crate::limits::rules::RejectScope;
use crate::load::prompts::{PromptIndex, RunView};
use crate::load::row::{Load, Row};
use crate::names::Rank;
use crate::pass::backend::Kernel;
use crate::pass::custom::Entry;
use crate::pass::lanes::{Column, Inputs, Terms, Tracking};
use crate::pass::pick::{Best, Rng, by_temperature};
use crate::request::{Overlap, Request};
use crate::sync::atomic::Ordering;
use crate::time::Time;
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use smallvec::SmallVec;
use std::ops::Range;

/// One request, ready to be weighed: weights folded, constraints resolved.
pub(crate) struct Ask<'a> {
    pub(crate) request: &'a Request,
    /// Prompt blocks: one per hash, or the whole prompt's.
    pub(crate) prompt_blocks: u32,
    pub(crate) weights: Weights,
    pub(crate) track_prefill: bool,
    pub(crate) track_blocks: bool,
    pub(crate) block_size: u32,
    pub(crate) now: Time,
    pub(crate) eligible: Eligible<'a>,
    /// Whether what is proposed is then booked: what that writes is asked for early.
    pub(crate) books: bool,
    /// Judge by this class's limits as well.
    pub(crate) class: Option<usize>,
    /// Choose only among ranks with room for the class.
    pub(crate) class_room_only: bool,
    /// Leave out the soft judgements: marks and reject thresholds.
    pub(crate) hard_only: bool,
    /// Load that is looked at as if it were not there, a hold of the request's own; and how many of
    /// the prompt's blocks its rank holds without it.
    pub(crate) discount: Option<(SlotId, Load, u32)>,
    /// Lanes that must not be chosen, per block; nobody else's affair.
    pub(crate) barred: Option<&'a [u64]>,
}

impl Ask<'_> {
    /// Prompt tokens that a rank with this overlap has cached.
    pub(crate) fn cached_tokens(&self, overlap: [f64; 3]) -> u32 {
        cached_tokens(&self.weights, self.block_size, self.request.isl as u32, overlap)
    }

    /// Credit for a rank with this overlap, in tokens, if neither decay nor shared hits have a say.
    #[inline]
    pub(crate) fn credit(&self, overlap: [f64; 3], terms: &Terms) -> f64 {
        if !terms.takes_credit() {
            return 0.0;
        }
        let (w, [device, host, disk]) = (&self.weights, overlap);
        f64::from(self.block_size) * (w.device * device + w.host * host + w.disk * disk)
    }

    pub(crate) fn terms(&self) -> Terms {
        let track = Tracking {
            block_size: self.block_size,
            prefill: self.track_prefill,
            blocks: self.track_blocks,
            overlaps: self.request.overlaps.is_some(),
        };
        Terms::new(&self.weights, track, self.request.isl as u32, self.prompt_blocks)
    }
}

/// `min(isl, floor(block_size * (device + w_host * host + w_disk * disk)))`. Device blocks count
/// in full here, whatever their credit.
pub(crate) fn cached_tokens(
    weights: &Weights,
    block_size: u32,
    isl: u32,
    overlap: [f64; 3],
) -> u32 {
    let blocks = overlap[0] + weights.host * overlap[1] + weights.disk * overlap[2];
    let tokens = (f64::from(block_size) * blocks).floor();
    // The comparison is in f64: a huge overlap saturates instead of wrapping.
    if tokens >= f64::from(isl) { isl } else { tokens as u32 }
}

/// The rank that a pass proposes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proposal {
    pub(crate) slot: SlotId,
    pub(crate) rank: Rank,
    /// In blocks.
    pub(crate) cost: f64,
    /// Cached blocks per tier.
    pub(crate) overlap: [f64; 3],
    pub(crate) cached_tokens: u32,
    /// It was full itself, and stands because a sibling had room (worker-wide reject).
    pub(crate) by_sibling: bool,
    /// It had room under the class's limits.
    pub(crate) class_room: bool,
    /// A larger overlap that was not taken.
    pub(crate) forgone: Option<(Rank, f64)>,
}

/// What a pass found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    /// Structurally eligible ranks.
    pub(crate) eligible: u32,
    /// Of them, past the reject thresholds.
    pub(crate) full: u32,
    /// Of them, without room for the class: past its limits or softly marked. A pick from summaries
    /// says 0 as soon as it knows of one with room, if the class waits only when all are full.
    pub(crate) class_full: u32,
    /// Of them, those that may be chosen.
    pub(crate) may: u32,
    pub(crate) proposal: Option<Proposal>,
}

impl Verdict {
    /// Counts one block in.
    pub(crate) fn count(&mut self, weighed: &Weighed) {
        self.eligible += weighed.eligible.count_ones();
        self.full += (weighed.full & weighed.eligible).count_ones();
        self.class_full += (weighed.class_full & weighed.eligible).count_ones();
        self.may += weighed.may.count_ones();
    }
}

/// What the passes of one pool share.
pub(crate) struct Tools<'a> {
    pub(crate) kernel: Kernel,
    pub(crate) index: &'a PromptIndex,
    pub(crate) arena: &'a Bump,
    /// What every request of the pool weighs ranks by, unless it says otherwise.
    pub(crate) plain: Terms,
}

/// The request's overlaps, by block.
pub(crate) struct Overlaps<'a> {
    entries: ArenaVec<'a, Listed>,
    /// Per block, one more than the number of the last entry there; 0: none.
    heads: &'a mut [u32],
    /// The blocks with entries, each once.
    blocks: ArenaVec<'a, u32>,
}

struct Listed {
    slot: SlotId,
    tiers: [f64; 3],
    /// As in `heads`.
    next: u32,
}

impl<'a> Overlaps<'a> {
    pub(crate) fn resolve(view: &View, list: &[Overlap], arena: &'a Bump) -> Overlaps<'a> {
        let heads = arena.alloc_slice_fill_copy(view.blocks.len(), 0u32);
        let mut blocks = ArenaVec::new_in(arena);
        let mut entries = ArenaVec::with_capacity_in(list.len(), arena);
        for o in list {
            if let Some(slot) = view.slot(o.rank) {
                let head = &mut heads[slot.block()];
                if *head == 0 {
                    blocks.push(slot.block() as u32);
                }
                entries.push(Listed { slot, tiers: [o.device, o.host, o.disk], next: *head });
                *head = entries.len() as u32;
            }
        }
        Overlaps { entries, heads, blocks }
    }

    /// The blocks with entries.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = usize> + '_ {
        self.blocks.iter().map(|&block| block as usize)
    }

    /// The lanes of a block that have an entry.
    pub(crate) fn lanes(&self, block: usize) -> u64 {
        self.of(block).fold(0, |set, (lane, _)| set | 1 << lane)
    }

    /// The entry of a slot; nothing cached without one.
    pub(crate) fn at(&self, slot: SlotId) -> [f64; 3] {
        self.of(slot.block())
            .find(|&(lane, _)| lane == slot.lane())
            .map_or([0.0; 3], |(_, tiers)| tiers)
    }

    /// The entries of a block, each lane once: of two for one lane the last listed stands.
    pub(crate) fn of(&self, block: usize) -> impl Iterator<Item = (usize, [f64; 3])> + '_ {
        let mut at = self.heads[block];
        let mut seen = 0u64;
        std::iter::from_fn(move || {
            while at != 0 {
                let entry = &self.entries[at as usize - 1];
                at = entry.next;
                if seen & entry.slot.bit() == 0 {
                    seen |= entry.slot.bit();
                    return Some((entry.slot.lane(), entry.tiers));
                }
            }
            None
        })
    }
}

/// How many of the shared hits lie at block positions `>= device`.
fn shared_beyond(hits: &[Range<u32>], device: f64) -> f64 {
    // The first whole position at or beyond; a saturating cast keeps huge overlaps beyond all.
    let first = device.ceil() as u32;
    hits.iter().map(|hit| u64::from(hit.end.saturating_sub(hit.start.max(first)))).sum::<u64>()
        as f64
}

/// Runs one full pass.
pub(crate) fn pass(
    view: &View,
    tools: &Tools<'_>,
    guard: &Guard<'_>,
    ask: &Ask<'_>,
    rng: &mut Rng,
) -> Verdict {
    Pass::new(view, tools, guard, ask).run(rng)
}

pub(crate) struct Pass<'a> {
    pub(super) view: &'a View,
    pub(super) tools: &'a Tools<'a>,
    pub(super) ask: &'a Ask<'a>,
    pub(crate) terms: Terms,
    pub(crate) overlaps: Option<Overlaps<'a>>,
    /// Runs of the prompt that somebody holds, and how many of its blocks each stands for.
    runs: ArenaVec<'a, (RunView<'a>, u32)>,
    /// Credit of a rank that is not listed: shared hits only.
    base_credit: f64,
    /// With decay: prefill tokens of the least loaded eligible rank.
    least_tokens: u32,
    /// Preferred taints that some worker carries, with their factors.
    prefer: SmallVec<[(u32, f64); 4]>,
    /// Where the session-affinity target lives.
    affinity: SmallVec<[SlotId; 4]>,
    rows: Column<u64>,
    credit: Column<f64>,
    held: Column<u32>,
    requests: Column<u32>,
}

/// Which blocks are weighed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Those with eligible lanes.
    Eligible,
    /// All: somebody wants to see every declared rank.
    All,
}

/// What was found in one block, before anything is chosen.
#[derive(Default)]
pub(crate) struct Weighed {
    pub(crate) eligible: u64,
    pub(crate) full: u64,
    pub(crate) class_full: u64,
    pub(crate) marked: u64,
    /// Eligible, not marked, not skipped.
    pub(crate) may: u64,
    /// Whether some rank holds blocks of the prompt.
    held: bool,
    /// The minimum over `may` and who has it, if the kernel's own answer stands.
    pub(super) min: Option<(f64, u64)>,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(
        view: &'a View,
        tools: &'a Tools<'a>,
        guard: &'a Guard<'a>,
        ask: &'a Ask<'a>,
    ) -> Pass<'a> {
        let request = ask.request;
        let constraints = request.constraints.as_deref();
        let overlaps =
            request.overlaps.as_deref().map(|list| Overlaps::resolve(view, list, tools.arena));
        let mut runs = ArenaVec::new_in(tools.arena);
        if ask.track_blocks
            && let Some(prompt) = &request.prompt
        {
            tools.index.descend(guard, prompt.hashes(), |run, from, to| {
                runs.push((run, to - from));
            });
        }
        let prefer = constraints.map_or_else(SmallVec::new, |c| {
            let number = |taint: &crate::names::Name| view.tags.number(&Tag::Taint(taint.clone()));
            c.prefer.iter().filter_map(|(taint, factor)| Some((number(taint)?, *factor))).collect()
        });
        let affinity = constraints
            .and_then(|c| c.affinity)
            .map_or_else(SmallVec::new, |target| slots_of(view, target));
        let base_credit = if ask.weights.shared > 0.0 {
            f64::from(ask.block_size) * ask.weights.shared * shared_beyond(&request.shared, 0.0)
        } else {
            0.0
        };
        let mut pass = Pass {
            view,
            tools,
            ask,
            terms: ask.terms(),
            overlaps,
            runs,
            base_credit,
            least_tokens: 0,
            prefer,
            affinity,
            rows: Column::default(),
            credit: Column::default(),
            held: Column::default(),
            requests: Column::default(),
        };
        if ask.weights.decay > 0.0 && pass.overlaps.is_some() {
            pass.least_tokens = pass.least_loaded();
        }
        pass
    }

    /// Prefill tokens of the least loaded eligible rank.
    fn least_loaded(&mut self) -> u32 {
        let mut least = u32::MAX;
        for (b, block) in self.view.blocks.iter().enumerate() {
            let eligible = self.ask.eligible.lanes(self.view, b);
            if eligible != 0 {
                block.live.copy_rows(&mut self.rows);
                let tokens = self.tools.kernel.least_tokens(&self.rows, eligible);
                least = least.min(tokens.unwrap_or(u32::MAX));
            }
        }
        least
    }

    fn run(mut self, rng: &mut Rng) -> Verdict {
        if let Some(glance) = self.glance()
            && let Some(verdict) = self.settle(glance, rng)
        {
            return verdict;
        }
        self.walk(rng)
    }

    /// Weighs every block in turn.
    pub(super) fn walk(mut self, rng: &mut Rng) -> Verdict {
        let mut verdict = Verdict::default();
        let mut best = Best::new();
        let mut target = Best::new();
        // Of the block that each best is in: who was full, who was full for the class.
        let (mut best_full, mut target_full) = ((0, 0), (0, 0));
        let mut forgone: Option<(Rank, f64)> = None;
        let mut costs = Column::<f64>::default();
        let warm = self.ask.weights.temperature > 0.0;
        let blocks = if warm { self.view.blocks.len() } else { 0 };
        let mut kept_costs = ArenaVec::with_capacity_in(blocks, self.tools.arena);
        let mut kept_masks = ArenaVec::with_capacity_in(blocks, self.tools.arena);
        let mut kept_full = ArenaVec::with_capacity_in(blocks, self.tools.arena);
        let mut extent = (f64::INFINITY, f64::NEG_INFINITY);

        for b in 0..self.view.blocks.len() {
            // The second look of an affinity target needs the ties of every block.
            let bar = if self.affinity.is_empty() { best.bar() } else { f64::INFINITY };
            let weighed = self.weigh(b, bar, Look::Eligible, &mut costs);
            if warm {
                kept_costs.push(*costs);
                kept_masks.push(weighed.may);
                kept_full.push((weighed.full, weighed.class_full));
            }
            if weighed.eligible == 0 {
                continue;
            }
            verdict.count(&weighed);
            if let Some(overlaps) = &self.overlaps {
                for (lane, tiers) in overlaps.of(b) {
                    let blocks = tiers[0] + tiers[1] + tiers[2];
                    if weighed.eligible >> lane & 1 == 1
                        && forgone.is_none_or(|(_, most)| blocks > most)
                    {
                        forgone = Some((self.view.blocks[b].ranks[lane], blocks));
                    }
                }
            }
            if weighed.may == 0 {
                continue;
            }
            if warm {
                let (min, max) = self.tools.kernel.extent(&costs, weighed.may);
                extent = (extent.0.min(min), extent.1.max(max));
            }
            let (min, ties) =
                weighed.min.unwrap_or_else(|| self.tools.kernel.cheapest(&costs, weighed.may));
            best.offer(b, min, ties, rng);
            if best.get().is_some_and(|(place, _)| place.block == b) {
                best_full = (weighed.full, weighed.class_full);
            }
            let here = self.affine(b);
            if here & weighed.may != 0 {
                let (min, ties) = self.tools.kernel.cheapest(&costs, here & weighed.may);
                target.offer(b, min, ties, rng);
                if target.get().is_some_and(|(place, _)| place.block == b) {
                    target_full = (weighed.full, weighed.class_full);
                }
            }
        }

        let chosen = if warm {
            // A target that may be chosen is exclusive: the draw is among its ranks.
            if target.get().is_some() {
                extent = (f64::INFINITY, f64::NEG_INFINITY);
                for (b, mask) in kept_masks.iter_mut().enumerate() {
                    *mask &= self.affine(b);
                    if *mask != 0 {
                        let (min, max) = self.tools.kernel.extent(&kept_costs[b], *mask);
                        extent = (extent.0.min(min), extent.1.max(max));
                    }
                }
            }
            by_temperature(&kept_costs, &kept_masks, extent, self.ask.weights.temperature, rng).map(
                |place| {
                    let cost = kept_costs[place.block][place.lane as usize];
                    (place, cost, kept_full[place.block])
                },
            )
        } else {
            let target = target.get().map(|(place, cost)| (place, cost, target_full));
            target.or_else(|| best.get().map(|(place, cost)| (place, cost, best_full)))
        };
        verdict.proposal = chosen.map(|(place, cost, (full, class_full))| {
            let slot = place.slot();
            self.proposal(slot, cost, full & slot.bit() != 0, class_full & slot.bit() == 0, forgone)
        });
        verdict
    }

    /// Whether no rank has anything of the request's own that a pass looks at: overlaps, prompt
    /// blocks, a taste for it.
    pub(super) fn shares_nothing(&self) -> bool {
        self.overlaps.is_none()
            && self.runs.is_empty()
            && self.base_credit == 0.0
            && self.prefer.is_empty()
            && self.affinity.is_empty()
    }

    /// The lanes of a block that the session-affinity target names.
    fn affine(&self, b: usize) -> u64 {
        self.affinity.iter().filter(|s| s.block() == b).fold(0, |set, s| set | s.bit())
    }

    pub(crate) fn proposal(
        &self,
        slot: SlotId,
        cost: f64,
        full: bool,
        class_room: bool,
        forgone: Option<(Rank, f64)>,
    ) -> Proposal {
        let block = self.view.block(slot);
        let overlap = self.overlap_of(slot);
        let own = overlap[0] + overlap[1] + overlap[2];
        Proposal {
            slot,
            rank: block.ranks[slot.lane()],
            cost: self.terms.in_blocks(cost),
            overlap,
            cached_tokens: self.ask.cached_tokens(overlap),
            by_sibling: full,
            class_room,
            forgone: forgone.filter(|&(_, blocks)| blocks > own),
        }
    }

    /// One lane of the block that was weighed last, for host code to look at.
    pub(crate) fn entry(
        &self,
        b: usize,
        lane: usize,
        weighed: &Weighed,
        costs: &Column<f64>,
    ) -> Entry {
        let (block, slot) = (&self.view.blocks[b], SlotId::new(b, lane));
        let row = Row::from_bits(self.rows[lane]);
        let overlap = self.overlap_of(slot);
        let cached_tokens = self.ask.cached_tokens(overlap);
        let held = if weighed.held { self.held[lane] } else { 0 };
        let is = |set: u64| set >> lane & 1 == 1;
        let spec = block.owners[lane].as_ref().map(|w| &w.spec);
        Entry {
            rank: block.ranks[lane],
            slot,
            life: block.lives[lane],
            prefill_tokens: row.tokens(),
            kv_blocks: row.blocks(),
            requests: block.live.requests[lane].load(Ordering::Relaxed),
            added_tokens: if self.ask.track_prefill {
                self.ask.request.isl as u32 - cached_tokens
            } else {
                0
            },
            added_blocks: if self.ask.track_blocks {
                self.ask.prompt_blocks.saturating_sub(held)
            } else {
                0
            },
            cost: self.terms.in_blocks(costs[lane]),
            cached_tokens,
            overlap,
            max_num_batched_tokens: spec.and_then(|s| s.max_num_batched_tokens),
            total_kv_blocks: spec.and_then(|s| s.total_kv_blocks).filter(|&blocks| blocks > 0),
            eligible: is(weighed.eligible),
            full: is(weighed.full),
            marked: is(weighed.marked),
            class_full: is(weighed.class_full),
        }
    }

    /// The lanes of a block that the request has listed overlaps on.
    pub(crate) fn listed(&self, b: usize) -> u64 {
        self.overlaps.as_ref().map_or(0, |o| o.lanes(b))
    }

    pub(crate) fn overlap_of(&self, slot: SlotId) -> [f64; 3] {
        self.overlaps.as_ref().map_or([0.0; 3], |o| o.at(slot))
    }

    /// Judges and projects one block. `costs` gets the cost of every lane, in tokens.
    pub(crate) fn weigh(
        &mut self,
        b: usize,
        bar: f64,
        look: Look,
        costs: &mut Column<f64>,
    ) -> Weighed {
        let (ask, view) = (self.ask, self.view);
        let block = &*view.blocks[b];
        let eligible = ask.eligible.lanes(view, b);
        if eligible == 0 && look == Look::Eligible {
            return Weighed::default();
        }
        block.live.copy_rows(&mut self.rows);
        if let Some((slot, load, _)) = ask.discount
            && slot.block() == b
        {
            let row = &mut self.rows[slot.lane()];
            *row = Row::from_bits(*row).minus(load).bits();
        }
        let marked = if ask.hard_only { 0 } else { block.marked(ask.now) };
        let class = ask.class.map(|class| &block.classes[class].0);
        let rejects = !ask.hard_only && !view.rules.reject.is_none();
        let limits = if rejects { &block.reject.0 } else { &Limits::NONE.0 };

        let credit = self.fill_credit(b);
        let held = self.fill_held(b);
        if held
            && let Some((slot, _, without)) = ask.discount
            && slot.block() == b
        {
            self.held[slot.lane()] = without;
        }
        let requests = self.terms.prices_requests();
        if requests {
            block.live.copy_requests(&mut self.requests);
        }
        let inputs = Inputs {
            rows: &self.rows,
            limits,
            class_limits: class,
            credit: credit.then_some(&self.credit),
            held: held.then_some(&self.held),
            requests: requests.then_some(&self.requests),
        };
        let mut candidates = eligible & !marked;
        if let Some(barred) = ask.barred {
            candidates &= !barred[b];
        }
        let found = self.tools.kernel.walk(&self.terms, &inputs, candidates, bar, costs);
        let class_full = if ask.class.is_some() { found.class_full | marked } else { 0 };
        let mut may = candidates & !found.full;
        let mut stands = true;
        // Nobody full: no further work. Full ranks of several-rank workers may still stand by a
        // sibling that has room.
        let doubtful = found.full & candidates & block.multi;
        if doubtful != 0 && view.rules.scope == RejectScope::Worker {
            let elsewhere = |lane| sibling_with_room(view, &ask.eligible, block, lane);
            let saved = stand_by_sibling(block, eligible, found.full, doubtful, elsewhere);
            may |= saved;
            stands = saved == 0;
        }
        if ask.class_room_only && class_full & may != 0 {
            may &= !class_full;
            stands = false;
        }
        if !self.prefer.is_empty() {
            self.apply_preferences(block, costs);
            stands = false;
        }
        let min = stands.then_some((found.min, found.ties));
        Weighed { eligible, full: found.full, class_full, marked, may, held, min }
    }

    /// Fills the column of credit, in tokens; `false`: nobody has any.
    fn fill_credit(&mut self, b: usize) -> bool {
        let ask = self.ask;
        let listed = self.overlaps.as_ref().filter(|o| o.heads[b] != 0);
        if !self.terms.takes_credit() || (listed.is_none() && self.base_credit == 0.0) {
            return false;
        }
        self.credit.fill(self.base_credit);
        if let Some(listed) = listed {
            let block_size = f64::from(ask.block_size);
            let whole = f64::from((ask.request.isl as u32).div_ceil(ask.block_size).max(1));
            for (lane, [device, host, disk]) in listed.of(b) {
                let w = &ask.weights;
                let mut per_device = w.device;
                if w.decay > 0.0 {
                    let tokens = self.rows[lane] as u32;
                    let excess = f64::from(tokens.saturating_sub(self.least_tokens)) / block_size;
                    per_device = w.device / (1.0 + w.decay * excess / whole);
                }
                let shared = if w.shared > 0.0 {
                    w.shared * shared_beyond(&ask.request.shared, device)
                } else {
                    0.0
                };
                let blocks = per_device * device + w.host * host + w.disk * disk + shared;
                self.credit[lane] = block_size * blocks;
            }
        }
        true
    }

    /// Fills the column of prompt blocks held already; `false`: nobody holds any.
    fn fill_held(&mut self, b: usize) -> bool {
        let mut any = false;
        for (run, blocks) in &self.runs {
            let mask = run.mask(b as u32);
            if mask != 0 {
                if !any {
                    self.held.fill(0);
                    any = true;
                }
                for (lane, held) in self.held.iter_mut().enumerate() {
                    *held += blocks & ((mask >> lane & 1) as u32).wrapping_neg();
                }
            }
        }
        any
    }

    fn apply_preferences(&self, block: &BlockView, costs: &mut Column<f64>) {
        for &(number, factor) in &self.prefer {
            for lane in lanes(block.tagged(number)) {
                costs[lane] *= factor;
            }
        }
    }
}

/// Of the full lanes `doubtful`, those whose worker has an eligible rank with room: in this block,
/// or, if the worker has ranks in others as well, by what `elsewhere` says of a lane.
pub(crate) fn stand_by_sibling(
    block: &BlockView,
    eligible: u64,
    full: u64,
    doubtful: u64,
    elsewhere: impl Fn(usize) -> bool,
) -> u64 {
    let mut saved = 0;
    let mut left = doubtful;
    while left != 0 {
        let lane = left.trailing_zeros() as usize;
        let group = block.siblings[lane];
        let room_here = group & eligible & !full != 0;
        if room_here || (block.straddling >> lane & 1 == 1 && elsewhere(lane)) {
            saved |= group & doubtful;
        }
        left &= !group;
    }
    saved
}

/// Whether the worker of a lane has an eligible rank, other than that lane's, with room under the
/// reject thresholds, by a direct read of the rows.
pub(crate) fn sibling_with_room(
    view: &View,
    eligible: &Eligible<'_>,
    block: &BlockView,
    lane: usize,
) -> bool {
    let Some(owner) = &block.owners[lane] else { return false };
    let own = block.lives[lane];
    owner.slots.iter().any(|&slot| {
        let there = view.block(slot);
        let eligible = eligible.lanes(view, slot.block()) & slot.bit() != 0;
        let same = there.lives[slot.lane()] == own;
        eligible && !same && !there.live.row(slot.lane()).exceeds(there.reject.at(slot.lane()))
    })
}

const _: () = assert!(LANES == crate::pass::lanes::LANES);
