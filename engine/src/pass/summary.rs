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
//! - per run held by few: its holders that hold nothing behind it, one by one, each block only if
//!   its lowest plain cost less the saving does not rule it out;
//! - ranks with overlaps, one by one.
//!
//! At 0, 1, 10, 50 or 100 % of holders this is the same work: per span one comparison of versions,
//! and a block or two to be computed again.
//!
//! **Ties** are drawn over everybody who has the lowest cost: the four kinds never count one rank
//! twice, because a rank that saves anything is dearer wherever it is undervalued.
//!
//! **What may be believed.** Everything here was valid when it was read, or computed by this call
//! (see `fleet::seal`), so "nobody may be chosen" is what the rows said after the call began. The
//! rank that is proposed has its row read once more. If that contradicts its block's summary, the
//! block's version is moved, so that nobody believes it any longer, and the pick begins again.
//!
//! The arithmetic is that of the full pass, and with weights that are binary fractions, as the
//! defaults are, the same to the bit; with others, costs that differ by less than rounding does
//! may be taken for each other.
#![forbid(unsafe_code)]

use crate::fleet::block::{LANES, SlotId, lanes};
use crate::fleet::board::Board;
use crate::fleet::eligible::Eligible;
use crate::fleet::seal::{SPAN, Shelf};
use crate::fleet::view::{BlockView, Limits, View};
use crate::grace::Guard;
use crate::limits::rules::RejectScope;
use crate::load::prompts::RunView;
use crate::load::row::{Limit, Row};
use crate::names::Rank;
use crate::pass::full::{
    self, Ask, Overlaps, Proposal, Tools, Verdict, sibling_with_room, stand_by_sibling,
};
use crate::pass::lanes::{Column, Inputs, Terms};
use crate::pass::pick::{Rng, nth_set};
use crate::sync::atomic::Ordering;
use bumpalo::collections::Vec as ArenaVec;

/// How often a pick begins again before the full pass is run instead: each time somebody else's
/// change of the very block that was chosen came in between.
const TRIES: usize = 4;

/// Holders of a run in a block up to which they are looked at one by one.
const FEW_LANES: u32 = 10;

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
            match Pick::new(view, tools, guard, ask, terms).run(rng) {
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
        && terms.plain() == tools.plain
}

/// Why a pick came to no end.
enum Unsettled {
    /// What was chosen has changed since it was summed up.
    Moved,
    /// Whether a full rank may be chosen depends on ranks in other blocks.
    Straddles,
}

/// Counts that go with a lowest cost, in one word: ranks past the reject thresholds, ranks that may
/// be chosen, ranks that have the lowest cost; and whether the full pass is needed.
#[derive(Clone, Copy, Default)]
struct Counts(u64);

impl Counts {
    const STRADDLES: u64 = 1 << 63;

    fn new(full: u64, may: u64, ties: u64) -> Counts {
        let count = |set: u64| u64::from(set.count_ones());
        Counts(count(full) | count(may) << 16 | count(ties) << 32)
    }

    fn full(self) -> u32 {
        u32::from(self.0 as u16)
    }

    fn may(self) -> u32 {
        u32::from((self.0 >> 16) as u16)
    }

    fn ties(self) -> u32 {
        u32::from((self.0 >> 32) as u16)
    }

    fn straddles(self) -> bool {
        self.0 & Counts::STRADDLES != 0
    }

    /// All but the ties.
    fn but_ties(self) -> u64 {
        self.0 & !(0xffff << 32)
    }
}

/// One block, summed up; the words of [`Board::each`].
#[derive(Clone, Copy)]
struct Block {
    min: f64,
    ties: u64,
    may: u64,
    counts: Counts,
}

impl Block {
    fn words(&self) -> [u64; 4] {
        [self.min.to_bits(), self.ties, self.may, self.counts.0]
    }

    fn of([min, ties, may, counts]: [u64; 4]) -> Block {
        Block { min: f64::from_bits(min), ties, may, counts: Counts(counts) }
    }
}

/// One span of blocks, summed up.
#[derive(Clone, Copy)]
struct Span<'a> {
    min: f64,
    counts: Counts,
    /// The results of this call, where they could not be put on the board.
    own: Option<&'a [Block; SPAN]>,
}

/// A run of prompt blocks that somebody holds.
struct Level<'a> {
    run: RunView<'a>,
    /// The run's first hash.
    hash: u64,
    /// Blocks of the prompt up to its end.
    held: u32,
    /// What they save.
    bonus: f64,
    /// Held by many.
    many: bool,
}

/// Ranks that share a cost, not named one by one.
#[derive(Clone, Copy)]
struct Group {
    /// Which level's holders; `None`: anybody.
    level: Option<usize>,
    span: usize,
    /// Their plain cost.
    plain: f64,
    /// How many they are.
    count: u32,
}

/// The cheapest ranks so far: some named, some in groups.
struct Contest<'a> {
    cost: f64,
    groups: ArenaVec<'a, Group>,
    grouped: u64,
    named: u64,
    slot: SlotId,
}

impl<'a> Contest<'a> {
    #[inline(always)]
    fn group(&mut self, cost: f64, group: Group) {
        if group.count != 0 && cost <= self.cost {
            if cost < self.cost {
                self.begin(cost);
            }
            self.groups.push(group);
            self.grouped += u64::from(group.count);
        }
    }

    #[inline(always)]
    fn slot(&mut self, cost: f64, slot: SlotId, rng: &mut Rng) {
        if cost <= self.cost {
            if cost < self.cost {
                self.begin(cost);
            }
            self.named += 1;
            // Of `n` named ones each is kept with the same likelihood.
            if self.named == 1 || rng.below(self.named) == 0 {
                self.slot = slot;
            }
        }
    }

    fn begin(&mut self, cost: f64) {
        self.cost = cost;
        self.groups.clear();
        self.grouped = 0;
        self.named = 0;
    }
}

struct Pick<'a> {
    view: &'a View,
    tools: &'a Tools<'a>,
    ask: &'a Ask<'a>,
    terms: Terms,
    /// What the request adds to every rank's plain cost.
    added: f64,
    overlaps: Option<Overlaps<'a>>,
    levels: ArenaVec<'a, Level<'a>>,
    spans: ArenaVec<'a, Span<'a>>,
}

impl<'a> Pick<'a> {
    fn new(
        view: &'a View,
        tools: &'a Tools<'a>,
        guard: &'a Guard<'a>,
        ask: &'a Ask<'a>,
        terms: Terms,
    ) -> Pick<'a> {
        let arena = tools.arena;
        let list = ask.request.overlaps.as_deref();
        let overlaps = list.map(|list| Overlaps::resolve(view, list, arena));
        let mut levels = ArenaVec::new_in(arena);
        if ask.track_blocks
            && let Some(prompt) = &ask.request.prompt
        {
            let hashes = prompt.hashes();
            let many = view.blocks.len() as u32;
            tools.index.descend(guard, hashes, |run, from, to| {
                levels.push(Level {
                    run,
                    hash: hashes[from as usize],
                    held: to,
                    bonus: terms.bonus(to),
                    many: run.ranks() >= many.max(16),
                });
            });
        }
        Pick {
            view,
            tools,
            ask,
            terms,
            added: terms.request(),
            overlaps,
            levels,
            spans: ArenaVec::with_capacity_in(view.boards.len(), arena),
        }
    }

    fn run(&mut self, rng: &mut Rng) -> Result<Verdict, Unsettled> {
        let view = self.view;
        let mut contest = Contest {
            cost: f64::INFINITY,
            groups: ArenaVec::new_in(self.tools.arena),
            grouped: 0,
            named: 0,
            slot: SlotId::new(0, 0),
        };
        let (mut full, mut may) = (0, 0);
        for number in 0..view.boards.len() {
            let span = self.sum_up(number);
            full += span.counts.full();
            may += span.counts.may();
            if span.counts.straddles() {
                return Err(Unsettled::Straddles);
            }
            let count = span.counts.ties();
            contest.group(
                span.min + self.added,
                Group { level: None, span: number, plain: span.min, count },
            );
            self.spans.push(span);
        }
        for level in (0..self.levels.len()).rev().filter(|&level| self.levels[level].many) {
            self.weigh_many(level, &mut contest, rng);
        }
        for level in (0..self.levels.len()).rev().filter(|&level| !self.levels[level].many) {
            self.weigh_few(level, &mut contest, rng);
        }
        let forgone = self.weigh_listed(&mut contest, rng);

        let mut verdict =
            Verdict { eligible: view.available, full, class_full: 0, may, proposal: None };
        if may > 0 {
            let slot = self.draw(&contest, rng).ok_or(Unsettled::Moved)?;
            verdict.proposal = Some(self.propose(slot, forgone).ok_or(Unsettled::Moved)?);
        }
        if let Some(class) = self.ask.class {
            let room = verdict.proposal.is_some_and(|p| p.class_room);
            verdict.class_full = self.class_full(class, room);
        }
        Ok(verdict)
    }

    /// One of the cheapest, each with the same likelihood; `None`: something has moved.
    fn draw(&self, contest: &Contest<'_>, rng: &mut Rng) -> Option<SlotId> {
        let total = contest.named + contest.grouped;
        if total == 0 {
            return None;
        }
        let mut drawn = if total == 1 { 0 } else { rng.below(total) };
        if drawn < contest.named {
            return Some(contest.slot);
        }
        drawn -= contest.named;
        for group in &contest.groups {
            let count = u64::from(group.count);
            if drawn < count {
                return self.member(group, drawn as u32);
            }
            drawn -= count;
        }
        None
    }

    /// The `n`-th of a group; `None`: it is no longer what it was.
    fn member(&self, group: &Group, mut n: u32) -> Option<SlotId> {
        let board = &*self.view.boards[group.span];
        for at in 0..board.blocks {
            let (min, ties) = match group.level {
                None => self.cheapest(board, group.span, at, group.plain)?,
                Some(level) => self.cheapest_holders(board, level, at, group.plain)?,
            };
            if min != group.plain {
                continue;
            }
            let count = ties.count_ones();
            if n < count {
                let lane = nth_set(ties, n) as usize;
                return Some(SlotId::new(group.span * SPAN + at, lane));
            }
            n -= count;
        }
        None
    }

    /// A block's lowest plain cost and who has it; who has it only if it is `wanted`. `None`: it
    /// has changed.
    fn cheapest(&self, board: &Board, span: usize, at: usize, wanted: f64) -> Option<(f64, u64)> {
        if let Some(own) = self.spans[span].own {
            return Some((own[at].min, own[at].ties));
        }
        let each = &board.each[at];
        let min = f64::from_bits(each.word(0));
        if min != wanted {
            return Some((min, 0));
        }
        let block = Block::of(each.read(board.versions.of(at))?);
        Some((block.min, block.ties))
    }

    /// The same among the holders of a run.
    fn cheapest_holders(
        &self,
        board: &Board,
        level: usize,
        at: usize,
        wanted: f64,
    ) -> Option<(f64, u64)> {
        let (shelf, edition) = board.shelf(self.levels[level].hash)?;
        let each = &shelf.each[at];
        let min = f64::from_bits(each.word(0));
        if min != wanted {
            return Some((min, 0));
        }
        let [min, ties] = each.read(board.versions.of(at))?;
        shelf.still(edition).then_some((f64::from_bits(min), ties))
    }

    /// What is known of a span; what is not known any more is computed, and published.
    #[inline]
    fn sum_up(&self, number: usize) -> Span<'a> {
        let board = &*self.view.boards[number];
        if board.whole.is_of_sum(&board.versions) {
            return Span {
                min: f64::from_bits(board.whole.word(0)),
                counts: Counts(board.whole.word(1)),
                own: None,
            };
        }
        self.sum_up_again(board, number)
    }

    #[inline(never)]
    fn sum_up_again(&self, board: &Board, number: usize) -> Span<'a> {
        let mut blocks = [Block { min: f64::INFINITY, ties: 0, may: 0, counts: Counts(0) }; SPAN];
        let mut versions = [0; SPAN];
        let mut stale = 0u32;
        let (mut min, mut counts) = (f64::INFINITY, 0);
        for at in 0..SPAN {
            versions[at] = board.versions.of(at);
            if at >= board.blocks {
                continue;
            }
            let (each, block) = (&board.each[at], &mut blocks[at]);
            if each.is_of(versions[at]) {
                block.min = f64::from_bits(each.word(0));
                block.counts = Counts(each.word(3));
            } else {
                stale |= 1 << at;
                *block = self.compute(board, number * SPAN + at);
            }
            min = min.min(block.min);
            counts += block.counts.but_ties() & !Counts::STRADDLES;
            counts |= block.counts.0 & Counts::STRADDLES;
        }
        for block in &blocks[..board.blocks] {
            if block.min == min {
                counts += u64::from(block.counts.ties()) << 32;
            }
        }
        let counts = Counts(counts);
        if let Some(turn) = board.turns.take() {
            for at in 0..board.blocks {
                if stale >> at & 1 == 1 {
                    board.each[at].put(&turn, versions[at], blocks[at].words());
                }
            }
            board.whole.put(&turn, versions.iter().sum(), [min.to_bits(), counts.0]);
            return Span { min, counts, own: None };
        }
        // Somebody else publishes: this call goes by its own results.
        for at in 0..board.blocks {
            if stale >> at & 1 == 0 {
                blocks[at] = match board.each[at].read(versions[at]) {
                    Some(words) => Block::of(words),
                    None => self.compute(board, number * SPAN + at),
                };
            }
        }
        Span { min, counts, own: Some(self.tools.arena.alloc(blocks)) }
    }

    /// Sums up one block from its rows.
    fn compute(&self, board: &Board, b: usize) -> Block {
        let view = self.view;
        let block = &*view.blocks[b];
        let open = board.open[b % SPAN];
        let mut rows = Column::default();
        let mut costs = Column::default();
        block.live.copy_rows(&mut rows);
        let mut requests = Column::default();
        let priced = self.terms.prices_requests();
        if priced {
            block.live.copy_requests(&mut requests);
        }
        let limits = if view.rules.reject.is_none() { &Limits::NONE } else { &block.reject };
        let inputs =
            Inputs { requests: priced.then_some(&*requests), ..Inputs::new(&rows, &limits.0) };
        let kernel = &self.tools.kernel;
        let found = kernel.walk(&self.tools.plain, &inputs, open, f64::INFINITY, &mut costs);
        let (mut min, mut ties, mut may) = (found.min, found.ties, open & !found.full);
        let mut straddles = 0;
        let doubtful = found.full & open & block.multi;
        if doubtful != 0 && view.rules.scope == RejectScope::Worker {
            if doubtful & block.straddling != 0 {
                straddles = Counts::STRADDLES;
            }
            let available = block.available;
            let saved = stand_by_sibling(block, available, found.full, doubtful, |_| false);
            if saved != 0 {
                may |= saved;
                (min, ties) = kernel.cheapest(&costs, may);
            }
        }
        let counts = Counts::new(found.full & block.available, may, ties);
        Block { min, ties, may, counts: Counts(counts.0 | straddles) }
    }

    /// Weighs the holders of a run that many hold.
    fn weigh_many(&self, level: usize, contest: &mut Contest<'_>, rng: &mut Rng) {
        let l = &self.levels[level];
        let saved = self.added - l.bonus;
        for (number, span) in self.spans.iter().enumerate() {
            if span.min + saved > contest.cost {
                continue;
            }
            let board = &*self.view.boards[number];
            let mut known = board.shelf(l.hash);
            if let Some((shelf, edition)) = known
                && shelf.whole.is_of_sum(&board.versions)
            {
                let plain = f64::from_bits(shelf.whole.word(0));
                let count = shelf.whole.word(1) as u32;
                if shelf.still(edition) {
                    let group = Group { level: Some(level), span: number, plain, count };
                    contest.group(plain + saved, group);
                    continue;
                }
                known = None;
            }
            self.weigh_span(level, number, known, contest, rng);
        }
    }

    /// The same in one span, block by block.
    #[inline(never)]
    fn weigh_span(
        &self,
        level: usize,
        number: usize,
        known: Option<(&Shelf, u64)>,
        contest: &mut Contest<'_>,
        rng: &mut Rng,
    ) {
        let l = &self.levels[level];
        let board = &*self.view.boards[number];
        let saved = self.added - l.bonus;
        let mut found = [(f64::INFINITY, 0u64); SPAN];
        let mut versions = [0; SPAN];
        let (mut stale, mut skipped) = (0u32, false);
        for at in 0..SPAN {
            versions[at] = board.versions.of(at);
            if at >= board.blocks {
                continue;
            }
            if let Some((shelf, _)) = known
                && shelf.each[at].is_of(versions[at])
            {
                let each = &shelf.each[at];
                found[at] = (f64::from_bits(each.word(0)), each.word(1));
            } else if self.least(number, at) + saved > contest.cost {
                skipped = true;
            } else {
                stale |= 1 << at;
                found[at] = self.compute_holders(board, number, l, at, versions[at]);
            }
        }
        if let Some((shelf, edition)) = known
            && !shelf.still(edition)
        {
            return self.weigh_span(level, number, None, contest, rng);
        }
        let min = found.iter().fold(f64::INFINITY, |min, &(one, _)| min.min(one));
        let tied = || found.iter().enumerate().filter(|(_, (one, _))| *one == min);
        let count = tied().map(|(_, (_, ties))| ties.count_ones()).sum();
        // Only what was read from the run while it was whole may be published.
        if l.run.is_current()
            && let Some(turn) = board.turns.take()
        {
            let (shelf, _) = board.claim(&turn, l.hash, rng.bits() & 1 == 0);
            for at in (0..board.blocks).filter(|at| stale >> at & 1 == 1) {
                shelf.each[at].put(&turn, versions[at], [found[at].0.to_bits(), found[at].1]);
            }
            if !skipped {
                let words = [min.to_bits(), u64::from(count)];
                shelf.whole.put(&turn, versions.iter().sum(), words);
                let group = Group { level: Some(level), span: number, plain: min, count };
                return contest.group(min + saved, group);
            }
        }
        if min + saved <= contest.cost {
            for (at, &(_, ties)) in tied() {
                for lane in lanes(ties) {
                    contest.slot(min + saved, SlotId::new(number * SPAN + at, lane), rng);
                }
            }
        }
    }

    /// The lowest plain cost in a block, as it was summed up by this call or later.
    #[inline(always)]
    fn least(&self, span: usize, at: usize) -> f64 {
        match self.spans[span].own {
            Some(own) => own[at].min,
            None => f64::from_bits(self.view.boards[span].each[at].word(0)),
        }
    }

    /// The lowest plain cost among those of a block's holders who may be chosen, and who has it.
    fn compute_holders(
        &self,
        board: &Board,
        span: usize,
        level: &Level<'_>,
        at: usize,
        version: u64,
    ) -> (f64, u64) {
        let b = span * SPAN + at;
        let holders = level.run.mask(b as u32);
        if holders & board.open[at] == 0 {
            return (f64::INFINITY, 0);
        }
        let may = match board.each[at].read(version) {
            Some(words) => Block::of(words).may,
            None => self.compute(board, b).may,
        };
        let candidates = holders & may;
        let live = &self.view.blocks[b].live;
        if candidates.count_ones() > FEW_LANES {
            let mut rows = Column::default();
            let mut costs = Column::default();
            let mut requests = Column::default();
            live.copy_rows(&mut rows);
            let priced = self.terms.prices_requests();
            if priced {
                live.copy_requests(&mut requests);
            }
            let inputs = Inputs {
                requests: priced.then_some(&*requests),
                ..Inputs::new(&rows, &Limits::NONE.0)
            };
            let kernel = &self.tools.kernel;
            let found =
                kernel.walk(&self.tools.plain, &inputs, candidates, f64::INFINITY, &mut costs);
            return (found.min, found.ties);
        }
        let (mut min, mut ties) = (f64::INFINITY, 0);
        for lane in lanes(candidates) {
            let row = live.row(lane);
            let cost = self.tools.plain.cost(row.bits(), 0.0, 0, self.requests(b, lane));
            if row.is_dead() || cost > min {
                continue;
            }
            ties = if cost < min { 0 } else { ties } | 1 << lane;
            min = cost;
        }
        (min, ties)
    }

    /// Weighs the holders of a run that few hold: those who hold nothing behind it.
    fn weigh_few(&self, level: usize, contest: &mut Contest<'_>, rng: &mut Rng) {
        let l = &self.levels[level];
        let saved = self.added - l.bonus;
        let deeper = self.levels.get(level + 1);
        l.run.for_each_block(|b, holders| {
            let (number, at) = (b as usize / SPAN, b as usize % SPAN);
            // Blocks that this call's view does not know yet are none of its candidates.
            let Some(span) = self.spans.get(number) else { return };
            if span.min + saved > contest.cost || self.least(number, at) + saved > contest.cost {
                return;
            }
            let mut left = holders & self.view.boards[number].open[at];
            if let Some(deeper) = deeper {
                left &= !deeper.run.mask(b);
            }
            if let Some(overlaps) = &self.overlaps {
                left &= !overlaps.lanes(b as usize);
            }
            for lane in lanes(left) {
                if let Some(cost) = self.weigh_one(b as usize, lane, 0.0, l.held) {
                    contest.slot(cost, SlotId::new(b as usize, lane), rng);
                }
            }
        });
    }

    /// Weighs the ranks that the request lists overlaps for. Returns the largest overlap.
    fn weigh_listed(&self, contest: &mut Contest<'_>, rng: &mut Rng) -> Option<(Rank, f64)> {
        let overlaps = self.overlaps.as_ref()?;
        let mut forgone: Option<(SlotId, f64)> = None;
        for b in overlaps.blocks() {
            let (number, at) = (b / SPAN, b % SPAN);
            let available = self.view.blocks[b].available;
            let open = self.view.boards[number].open[at];
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
                let credit = self.ask.credit(tiers, &self.terms);
                let held_by = self.holds(slot);
                let (held, bonus) = held_by.map_or((0, 0.0), |l| (l.held, l.bonus));
                let saved = self.added - bonus - self.terms.saving(credit);
                if self.least(number, at) + saved > contest.cost {
                    continue;
                }
                // Where credit saves nothing, the rank was weighed with the others already, unless
                // it was left out for being listed.
                let few = held_by.is_some_and(|l| !l.many);
                let Some(cost) = self.weigh_one(b, lane, credit, held) else { continue };
                if few || self.weigh_one(b, lane, 0.0, held).is_some_and(|plain| cost < plain) {
                    contest.slot(cost, slot, rng);
                }
            }
        }
        forgone.map(|(slot, blocks)| (self.view.blocks[slot.block()].ranks[slot.lane()], blocks))
    }

    /// The last run of the prompt that a rank holds.
    fn holds(&self, slot: SlotId) -> Option<&Level<'a>> {
        let block = slot.block() as u32;
        self.levels.iter().rev().find(|level| level.run.mask(block) & slot.bit() != 0)
    }

    /// The cost of one rank as its row stands; `None`: it is full.
    #[inline]
    fn weigh_one(&self, b: usize, lane: usize, credit: f64, held: u32) -> Option<f64> {
        let block = &*self.view.blocks[b];
        let row = block.live.row(lane);
        if row.exceeds(self.limit(block, lane)) && !self.stands_by_sibling(block, lane, row) {
            return None;
        }
        Some(self.terms.cost(row.bits(), credit, held, self.requests(b, lane)))
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
        if self.view.rules.reject.is_none() { Limit::NONE } else { block.reject.at(lane) }
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
            block.live.bump();
            return None;
        }
        let overlap = self.overlaps.as_ref().map_or([0.0; 3], |o| o.at(slot));
        let own = overlap[0] + overlap[1] + overlap[2];
        let credit = self.ask.credit(overlap, &self.terms);
        let held = self.holds(slot).map_or(0, |level| level.held);
        let requests = self.requests(slot.block(), lane);
        let cost = self.terms.cost(row.bits(), credit, held, requests);
        Some(Proposal {
            slot,
            rank: block.ranks[lane],
            cost: self.terms.in_blocks(cost),
            overlap,
            cached_tokens: self.ask.cached_tokens(overlap),
            by_sibling: full,
            class_room: self.ask.class.is_none_or(|c| !row.exceeds(block.classes[c].at(lane))),
            forgone: forgone.filter(|&(_, blocks)| blocks > own),
        })
    }

    /// How many available ranks have no room for the class; 0 as soon as one is known to have
    /// some (`room`: the proposed one), where only whether all are full is asked.
    fn class_full(&self, class: usize, room: bool) -> u32 {
        let view = self.view;
        if view.rules.classes[class].is_none() {
            return view.available - view.unmarked;
        }
        let spec = view.rules.profile.classes().get(class);
        let available = u64::from(view.available);
        let all = spec.is_some_and(|spec| spec.full_ranks_to_wait(available) >= available);
        if all && room {
            return 0;
        }
        let mut full = 0;
        for (number, board) in view.boards.iter().enumerate() {
            let here = self.class_full_in(board, number, class);
            if all && here < board.available {
                return 0;
            }
            full += here;
        }
        full
    }

    fn class_full_in(&self, board: &Board, number: usize, class: usize) -> u32 {
        let counts = &board.classes[class];
        if counts.whole.is_of_sum(&board.versions) {
            return counts.whole.word(0) as u32;
        }
        let mut versions = [0; SPAN];
        let mut found = [0u64; SPAN];
        let mut stale = 0u32;
        for at in 0..SPAN {
            versions[at] = board.versions.of(at);
            if at >= board.blocks {
                continue;
            }
            if counts.each[at].is_of(versions[at]) {
                found[at] = counts.each[at].word(0);
                continue;
            }
            stale |= 1 << at;
            let block = &*self.view.blocks[number * SPAN + at];
            let mut rows = Column::default();
            block.live.copy_rows(&mut rows);
            let past = self.tools.kernel.past(&rows, &block.classes[class].0);
            let full = (past | !board.open[at]) & block.available;
            found[at] = u64::from(full.count_ones());
        }
        let full = found.iter().sum();
        if let Some(turn) = board.turns.take() {
            for at in (0..board.blocks).filter(|at| stale >> at & 1 == 1) {
                counts.each[at].put(&turn, versions[at], [found[at]]);
            }
            counts.whole.put(&turn, versions.iter().sum(), [full]);
        }
        full as u32
    }
}

const _: () = assert!(LANES * SPAN <= u16::MAX as usize);

#[cfg(test)]
mod tests;
