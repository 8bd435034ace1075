//! The pick that need not look at every rank: the same choice as the full pass's, from what was
//! found before.
//!
//! **What does not depend on the request.** By the weights of a pool, a rank's cost is
//!
//! ```text
//! plain cost  (its row and its requests, nothing of the request)
//!     + what the request adds to every rank alike       (`Terms::request`)
//!     - what it saves here: prompt blocks held, credit for overlaps
//! ```
//!
//! So the order of ranks that share nothing with a request is the same for all requests. Per block
//! of 64 ranks, and per span of 16 blocks, the lowest plain cost is kept on the span's
//! [`Board`], with who has it and how many are full, and is computed again only where something
//! has changed since: after a booking and a free, one or two blocks. Ranks with overlaps are few
//! (the caller listed them) and are weighed one by one.
//!
//! **Prompt blocks that many ranks hold.** The runs that a prompt passes are held by ever fewer
//! ranks, each by some of those before it. Weighing the holders one by one would be a scan when a
//! system prompt is held by every tenth rank, and so would be to weigh the others when it is held
//! by nine of ten. Nor do bounds help (a block's lowest plain cost less the most that can be saved
//! there): who holds a long prefix carries its blocks, and is dearer by just what it saves. But
//! *among the holders* of one run the order does not depend on the request either. So for a run
//! with at least one holder per block of the fleet, the lowest plain cost among its holders is kept
//! per block and span like the one among all, on a [`Shelf`](crate::fleet::seal::Shelf) named by
//! the run's first hash. The best rank is then the best of
//!
//! - the lowest plain cost of all, nothing saved;
//! - per run held by many: the lowest plain cost among its holders, less what the prompt up to the
//!   end of that run saves. Holders that hold even more are undervalued here, and therefore never
//!   stand in the way of their own, lower cost;
//! - per run held by few: its holders that hold nothing behind it, one by one;
//! - ranks with overlaps, one by one.
//!
//! A block whose lowest plain cost, less the saving, is above the best so far is ruled out without a
//! look at its holders; where the fleet's costs differ by more than prompts save, that is most of
//! them. At 0, 1, 10, 50 or 100 % of holders this is the same work: per span a comparison of
//! versions, and a block or two to be brought up to date.
//!
//! **Ties** are drawn over everybody who has the lowest cost: the four kinds never count one rank
//! twice, because a rank that saves anything is dearer wherever it is undervalued.
//!
//! **What may be believed.** Everything here was valid when it was read, or computed by this call
//! (see `fleet::seal`), so "nobody may be chosen" is what the rows said after the call began. Who
//! they are that had the lowest cost is then looked up in the same results, whatever has changed
//! since: such a change is as good as one that came after the choice, as it is to a full pass. The
//! rank that is proposed has its row read once more. If that contradicts its block's summary, the
//! block's version is moved, so that nobody believes it any longer, and the pick begins again.
//!
//! The arithmetic is that of the full pass, and with weights that are binary fractions, as the
//! defaults are, the same to the bit; with others, costs that differ by less than rounding does
//! may be taken for each other.
#![forbid(unsafe_code)]

mod block;
mod contest;
mod gate;
mod runs;

use self::block::Block;
use self::contest::{Contest, Counts, Drawn, Group};
use self::runs::Level;
use crate::fleet::block::{SlotId, lanes};
use crate::fleet::board::Board;
use crate::fleet::eligible::Eligible;
use crate::fleet::seal::{SPAN, last_lane};
use crate::fleet::view::{BlockView, View};
use crate::grace::Guard;
use crate::limits::rules::RejectScope;
use crate::load::row::{Limit, Row};
use crate::names::Rank;
use crate::pass::full::{self, Ask, Overlaps, Proposal, Tools, Verdict, sibling_with_room};
use crate::pass::lanes::Terms;
use crate::pass::pick::{Rng, nth_set};
use crate::prefetch::for_reading;
use crate::sync::atomic::Ordering;
use bumpalo::collections::Vec as ArenaVec;

/// How often a pick begins again before the full pass is run instead: each time somebody else's
/// change of the very block that was chosen came in between.
const TRIES: usize = 4;

/// Picks a rank: from summaries if the request allows it, else by a full pass.
pub(crate) fn pick_for(
    view: &View,
    tools: &Tools<'_>,
    guard: &Guard<'_>,
    ask: &Ask<'_>,
    rng: &mut Rng,
) -> Verdict {
    let terms = ask.terms();
    if applies(view, tools, ask, &terms) {
        for _ in 0..TRIES {
            match Pick::new(view, tools, guard, ask, &terms).run(rng) {
                Ok(verdict) => return verdict,
                Err(Unsettled::Moved) => {}
                Err(Unsettled::Straddles) => break,
            }
        }
    }
    full::pass(view, tools, guard, ask, rng)
}

/// Whether summaries can answer the request.
fn applies(view: &View, tools: &Tools<'_>, ask: &Ask<'_>, terms: &Terms) -> bool {
    let request = ask.request;
    let plain = request
        .constraints
        .as_deref()
        .is_none_or(|c| !c.restricts() && c.affinity.is_none() && c.prefer.is_empty());
    matches!(ask.eligible, Eligible::All)
        && plain
        && ask.weights.temperature == 0.0
        && (ask.weights.decay == 0.0 || request.overlaps.is_none())
        && (ask.weights.shared == 0.0 || request.shared.is_empty())
        && !ask.hard_only
        && !ask.class_room_only
        && ask.discount.is_none()
        && ask.barred.is_none()
        // Past that, marks are judged rank by rank until the pool's timers have run.
        && ask.now < view.next_lapse
        && terms.weighs_as(&tools.plain)
}

/// Why a pick came to no end.
enum Unsettled {
    /// What was chosen has changed since it was summed up.
    Moved,
    /// Whether a full rank may be chosen depends on ranks in other blocks.
    Straddles,
}

/// One span of blocks, summed up.
struct Span<'a> {
    min: f64,
    counts: Counts,
    /// The sum of the versions that this is of.
    sum: u64,
    /// The results of this call, where they could not be put on the board.
    own: Option<&'a [Block; SPAN]>,
}

/// A span in which something has changed.
struct Changed {
    number: usize,
    /// The sum of its versions.
    sum: u64,
    /// The blocks in which something has changed.
    stale: u64,
}

/// The lowest of a span's costs, none of which is NaN.
#[inline(always)]
fn lowest(costs: &[f64; SPAN]) -> f64 {
    // Side by side, as a vector holds them.
    let less = |a: f64, b: f64| if a < b { a } else { b };
    let (mut least, rest) =
        costs.split_first_chunk::<4>().map(|(a, b)| (*a, b)).unwrap_or_default();
    for four in rest.chunks_exact(4) {
        least = std::array::from_fn(|i| less(four[i], least[i]));
    }
    less(less(least[0], least[1]), less(least[2], least[3]))
}

struct Pick<'a> {
    view: &'a View,
    /// Whose boards are looked at.
    seat: usize,
    tools: &'a Tools<'a>,
    ask: &'a Ask<'a>,
    terms: &'a Terms,
    /// What the request adds to every rank's plain cost.
    added: f64,
    /// Whether reject thresholds are in force.
    rejects: bool,
    overlaps: Option<Overlaps<'a>>,
    levels: ArenaVec<'a, Level<'a>>,
    spans: ArenaVec<'a, Span<'a>>,
    /// A block with the lowest plain cost.
    lowest: usize,
}

impl<'a> Pick<'a> {
    #[inline]
    fn new(
        view: &'a View,
        tools: &'a Tools<'a>,
        guard: &'a Guard<'a>,
        ask: &'a Ask<'a>,
        terms: &'a Terms,
    ) -> Pick<'a> {
        let arena = tools.arena;
        let list = ask.request.overlaps.as_deref();
        Pick {
            view,
            seat: guard.seat(),
            tools,
            ask,
            terms,
            added: terms.request(),
            rejects: !view.rules.reject.is_none(),
            overlaps: list.map(|list| Overlaps::resolve(view, list, arena)),
            levels: runs::levels(tools, guard, ask, terms),
            spans: ArenaVec::with_capacity_in(view.boards.len(), arena),
            lowest: 0,
        }
    }

    /// What is known of a span.
    #[inline(always)]
    fn board(&self, number: usize) -> &'a Board {
        self.view.boards[number].of(self.seat)
    }

    fn run(&mut self, rng: &mut Rng) -> Result<Verdict, Unsettled> {
        let view = self.view;
        let mut contest = Contest::new(view.boards.len() + 8, self.tools.arena);
        let (mut full, mut may) = (0, 0);
        self.ask_for_holders();
        let mut changed = ArenaVec::with_capacity_in(view.boards.len(), self.tools.arena);
        for number in 0..view.boards.len() {
            let board = self.board(number);
            let (sum, [min, counts]) = board.whole.read_sum(&board.versions).unwrap_or_else(|| {
                changed.push(self.look_for_changes(board, number));
                (0, [0; 2])
            });
            let (min, counts) = (f64::from_bits(min), Counts(counts));
            self.spans.push(Span { min, counts, sum, own: None });
        }
        for span in &changed {
            self.spans[span.number] = self.sum_up(span);
        }
        for (number, span) in self.spans.iter().enumerate() {
            full += span.counts.full();
            may += span.counts.may();
            if span.counts.straddles() {
                return Err(Unsettled::Straddles);
            }
            let Span { min: plain, counts, .. } = *span;
            if plain + self.added < contest.bar() {
                self.lowest = number * SPAN + counts.blocks().trailing_zeros() as usize % SPAN;
            }
            contest.group(plain + self.added, Group { level: None, span: number, plain, counts });
        }
        if !self.levels.is_empty() {
            self.weigh_runs(&mut contest, rng);
        }
        let forgone = match &self.overlaps {
            Some(overlaps) => self.weigh_listed(overlaps, &mut contest, rng),
            None => None,
        };

        let mut verdict =
            Verdict { eligible: view.available, full, class_full: 0, may, proposal: None };
        if may > 0 {
            let slot = match contest.draw(rng) {
                Some(Drawn::Slot(slot)) => slot,
                Some(Drawn::Of(group, n)) => self.member(group, n).ok_or(Unsettled::Moved)?,
                None => return Err(Unsettled::Moved),
            };
            verdict.proposal = Some(self.propose(slot, forgone).ok_or(Unsettled::Moved)?);
        }
        if let Some(class) = self.ask.class {
            let room = verdict.proposal.is_some_and(|p| p.class_room);
            verdict.class_full = self.class_full(class, room);
        }
        Ok(verdict)
    }

    /// The `n`-th of a group; `None`: what it was drawn from has been replaced by another result, or
    /// is being replaced.
    fn member(&self, group: &Group, mut n: u32) -> Option<SlotId> {
        let board = self.board(group.span);
        for at in lanes(group.counts.blocks()) {
            let (min, ties) = match group.level {
                Some(level) => self.cheapest_holders(board, level, at)?,
                None => match self.spans[group.span].own {
                    Some(own) => (own[at].min, own[at].ties),
                    None => {
                        let block = Block::of(board.each[at].latest()?.1);
                        (block.min, block.ties)
                    }
                },
            };
            if min != group.plain {
                return None;
            }
            let count = ties.count_ones();
            if n < count {
                let lane = if n == 0 { ties.trailing_zeros() } else { nth_set(ties, n) };
                return Some(SlotId::new(group.span * SPAN + at, lane as usize));
            }
            n -= count;
        }
        None
    }

    /// Finds the blocks of a span in which something has changed, and asks early for the rows: of
    /// all spans, before the first one is summed up.
    #[inline(never)]
    fn look_for_changes(&self, board: &Board, number: usize) -> Changed {
        let (mut sum, mut stale) = (0u64, 0u64);
        for at in 0..SPAN {
            let version = board.versions.of(at);
            sum = sum.wrapping_add(version);
            stale |= u64::from(!board.each[at].is_of(version)) << at;
        }
        stale &= board.places();
        for at in lanes(stale) {
            let live = &self.view.blocks[number * SPAN + at].live;
            for_reading(&live.rows[last_lane(board.versions.of(at))]);
        }
        Changed { number, sum, stale }
    }

    /// Sums up a span in which something has changed, and publishes what was found.
    #[inline(never)]
    fn sum_up(&self, changed: &Changed) -> Span<'a> {
        let &Changed { number, sum, stale } = changed;
        let board = self.board(number);
        let stales = stale.count_ones() as usize;
        let mut fresh = ArenaVec::with_capacity_in(stales, self.tools.arena);
        for at in lanes(stale) {
            // Read again: later than the sum's, it is as true.
            let version = board.versions.of(at);
            fresh.push((at, version, self.sum_up_block(board, number * SPAN + at, version)));
        }
        let Some(turn) = board.turns.take() else { return self.on_its_own(board, number, &fresh) };
        let mut same = true;
        for &(at, version, block) in &fresh {
            let told = (block.min.to_bits(), block.counts.0);
            same &= board.told(at) == told;
            board.note(&turn, at, version, block.words(), told);
        }
        // By now the board says all there is to say, of these versions or later ones.
        let known = if same { board.still(&turn) } else { None };
        let [min, counts] = known.unwrap_or_else(|| self.come_to(board));
        board.put_whole(&turn, sum, [min, counts]);
        Span { min: f64::from_bits(min), counts: Counts(counts), sum, own: None }
    }

    /// What the blocks of a span come to, by what was noted of them: lowest cost, and counts.
    #[inline(always)]
    fn come_to(&self, board: &Board) -> [u64; 2] {
        let leasts = board.leasts.each_ref().map(|one| f64::from_bits(one.load(Ordering::Relaxed)));
        let each = board.counts.each_ref().map(|one| Counts(one.load(Ordering::Relaxed)));
        let min = lowest(&leasts);
        let mut counts = Counts::of_all(&each);
        for at in lanes(self.tools.kernel.within(&board.leasts, 0.0, min) & board.places()) {
            counts.tie(at, each[at].ties());
        }
        [min.to_bits(), counts.0]
    }

    /// The same where somebody else publishes: this call goes by its own results.
    #[cold]
    fn on_its_own(&self, board: &Board, number: usize, fresh: &[(usize, u64, Block)]) -> Span<'a> {
        let mut own = [Block::NONE; SPAN];
        let (mut counts, mut min, mut sum) = (Counts(0), f64::INFINITY, 0u64);
        for (at, block) in own.iter_mut().enumerate() {
            let mut version = board.versions.of(at);
            if at < board.blocks {
                *block = match fresh.iter().find(|fresh| fresh.0 == at) {
                    // The sum is of what the words are of: a later one would say that they stand.
                    Some(&(_, known, block)) => {
                        version = known;
                        block
                    }
                    None => self.sum_up_block(board, number * SPAN + at, version),
                };
                counts.add(block.counts);
                min = if block.min < min { block.min } else { min };
            }
            sum = sum.wrapping_add(version);
        }
        for (at, block) in own.iter().enumerate() {
            if block.min == min {
                counts.tie(at, block.counts.ties());
            }
        }
        Span { min, counts, sum, own: Some(self.tools.arena.alloc(own)) }
    }

    /// Weighs the ranks that the request lists overlaps for. Returns the largest overlap.
    fn weigh_listed(
        &self,
        overlaps: &Overlaps<'_>,
        contest: &mut Contest<'_>,
        rng: &mut Rng,
    ) -> Option<(Rank, f64)> {
        let mut forgone: Option<(SlotId, f64)> = None;
        for b in overlaps.blocks() {
            let (number, at) = (b / SPAN, b % SPAN);
            let available = self.view.blocks[b].available;
            let open = self.board(number).open[at];
            for (lane, tiers) in overlaps.of(b) {
                let slot = SlotId::new(b, lane);
                let blocks = tiers[0] + tiers[1] + tiers[2];
                // Of equal ones, the one that a walk in the order of the blocks meets first.
                let more = |(other, most): (SlotId, f64)| {
                    blocks > most || blocks == most && b < other.block()
                };
                if available & slot.bit() != 0 && forgone.is_none_or(more) {
                    forgone = Some((slot, blocks));
                }
                if open & slot.bit() == 0 {
                    continue;
                }
                let credit = self.ask.credit(tiers, self.terms);
                let (held, bonus) = self.holds(slot).map_or((0, 0.0), |l| (l.held, l.bonus));
                let saved = self.added - bonus - self.terms.saving(credit);
                if self.least(number, at) + saved > contest.bar() {
                    continue;
                }
                // Where credit saves nothing, the rank was weighed with the others already.
                let weigh = |credit, bar| self.weigh_one(b, lane, credit, held, bar);
                if let Some(cost) = weigh(credit, contest.bar())
                    && weigh(0.0, f64::INFINITY).is_some_and(|plain| cost < plain)
                {
                    contest.slot(cost, slot, rng);
                }
            }
        }
        forgone.map(|(slot, blocks)| (self.view.blocks[slot.block()].ranks[slot.lane()], blocks))
    }

    /// The lowest plain cost of a block, as it was summed up by this call or later.
    #[inline(always)]
    fn least(&self, number: usize, at: usize) -> f64 {
        match self.spans[number].own {
            Some(own) => own[at].min,
            None => f64::from_bits(self.board(number).leasts[at].load(Ordering::Relaxed)),
        }
    }

    /// The blocks of a span whose lowest plain cost and `added` come to at most `bar`.
    #[inline(always)]
    fn within(&self, number: usize, added: f64, bar: f64) -> u64 {
        let board = self.board(number);
        let within = match self.spans[number].own {
            Some(own) => {
                let at_most = |at: usize| u64::from(own[at].min + added <= bar) << at;
                (0..SPAN).map(at_most).fold(0, |set, one| set | one)
            }
            None => self.tools.kernel.within(&board.leasts, added, bar),
        };
        within & board.places()
    }

    /// The cost of one rank as its row stands; `None`: it is above `bar`, or the rank is full.
    #[inline]
    fn weigh_one(&self, b: usize, lane: usize, credit: f64, held: u32, bar: f64) -> Option<f64> {
        let block = &*self.view.blocks[b];
        let row = block.live.row(lane);
        let cost = self.terms.cost(row.bits(), credit, held, self.requests(b, lane));
        (cost <= bar && self.may(block, lane, row)).then_some(cost)
    }

    /// Whether a rank may be chosen by the reject thresholds, given its row.
    #[inline(always)]
    fn may(&self, block: &BlockView, lane: usize, row: Row) -> bool {
        !row.exceeds(self.limit(block, lane)) || self.stands_by_sibling(block, lane, row)
    }

    #[inline(always)]
    fn requests(&self, b: usize, lane: usize) -> u32 {
        if !self.terms.prices_requests() {
            return 0;
        }
        self.view.blocks[b].live.requests[lane].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn limit(&self, block: &BlockView, lane: usize) -> Limit {
        if self.rejects { block.reject.at(lane) } else { Limit::NONE }
    }

    /// Whether a rank that is full may be chosen all the same.
    #[cold]
    fn stands_by_sibling(&self, block: &BlockView, lane: usize, row: Row) -> bool {
        !row.is_dead()
            && block.multi >> lane & 1 == 1
            && self.view.rules.scope == RejectScope::Worker
            && sibling_with_room(self.view, &self.ask.eligible, block, lane)
    }

    /// The proposal of a rank, if its row still allows it.
    fn propose(&self, slot: SlotId, forgone: Option<(Rank, f64)>) -> Option<Proposal> {
        let block = self.view.block(slot);
        let lane = slot.lane();
        let row = block.live.row(lane);
        let full = row.exceeds(self.limit(block, lane));
        if full && !self.stands_by_sibling(block, lane, row) {
            // Who changed the row may not have come to say so yet.
            block.live.bump(lane);
            return None;
        }
        let class_room = self.ask.class.is_none_or(|c| !row.exceeds(block.classes[c].at(lane)));
        // A gate that turns out to be closed has mostly no room here either.
        let books = self.ask.books && class_room;
        if books {
            block.live.prefetch(lane);
        }
        let overlap = self.overlaps.as_ref().map_or([0.0; 3], |o| o.at(slot));
        let own = overlap[0] + overlap[1] + overlap[2];
        let credit = self.ask.credit(overlap, self.terms);
        let held = self.holds(slot).map_or(0, |level| level.held);
        if books {
            self.ask_to_join(slot, held);
        }
        let requests = self.requests(slot.block(), lane);
        let cost = self.terms.cost(row.bits(), credit, held, requests);
        Some(Proposal {
            slot,
            rank: block.ranks[lane],
            cost: self.terms.in_blocks(cost),
            overlap,
            cached_tokens: self.ask.cached_tokens(overlap),
            by_sibling: full,
            class_room,
            forgone: forgone.filter(|&(_, blocks)| blocks > own),
        })
    }
}

#[cfg(test)]
mod tests;
