//! Ranks that hold blocks of the prompt.
#![forbid(unsafe_code)]

use super::Pick;
use super::block::{Block, Holders, NEAR};
use super::contest::{Contest, Counts, Group};
use crate::fleet::block::{SlotId, lanes};
use crate::fleet::board::Board;
use crate::fleet::seal::SPAN;
use crate::grace::Guard;
use crate::load::prompts::RunView;
use crate::pass::full::{Ask, Tools};
use crate::pass::lanes::Terms;
use crate::pass::pick::Rng;
use bumpalo::collections::Vec as ArenaVec;
use smallvec::SmallVec;

/// Spans that one word of a run's blocks covers.
const SPANS: usize = 64 / SPAN;

/// The blocks of one span, from the lowest on.
const SPAN_MASK: u64 = (1 << SPAN) - 1;

/// Blocks of a span up to which each is looked at by itself, without what is kept of the span.
const FEW: u32 = 4;

/// Holders in all up to which their rows are simply read.
const NAMED: usize = 64;

/// A run of prompt blocks that somebody holds.
pub(super) struct Level<'a> {
    run: RunView<'a>,
    /// The run's first hash.
    hash: u64,
    /// Blocks of the prompt up to its end.
    pub(super) held: u32,
    /// What they save.
    pub(super) bonus: f64,
    /// Held by many: at least one rank per block.
    pub(super) many: bool,
}

/// The runs of a request's prompt. Who holds them is asked for and not waited for; see
/// [`Pick::ask_for_holders`].
pub(super) fn levels<'a>(
    tools: &'a Tools<'a>,
    guard: &'a Guard<'a>,
    ask: &Ask<'_>,
    terms: &Terms,
) -> ArenaVec<'a, Level<'a>> {
    let mut levels = ArenaVec::new_in(tools.arena);
    let Some(prompt) = &ask.request.prompt else { return levels };
    if !ask.track_blocks {
        return levels;
    }
    levels.reserve(8);
    let hashes = prompt.hashes();
    let found = tools.index.descend(guard, hashes, |run, from, to| {
        run.ask();
        levels.push(Level {
            run,
            hash: hashes[from as usize],
            held: to,
            bonus: terms.bonus(to),
            many: false,
        });
    });
    if let Some(&first) = hashes.get(found as usize)
        && ask.books
    {
        tools.index.ask_to_enter(guard, first);
    }
    levels
}

/// Whether there are more than `n` in a set; `n` is small.
#[inline(always)]
fn more_than(n: u32, set: u64) -> bool {
    (0..n).fold(set, |set, _| set & set.wrapping_sub(1)) != 0
}

impl Pick<'_> {
    /// Sees how many hold each run, and asks early for who. The ranks have not been looked at yet:
    /// what others have just written about both is on its way at the same time.
    #[inline(always)]
    pub(super) fn ask_for_holders(&mut self) {
        // At least one holder per block.
        let blocks = self.view.blocks.len();
        let many = (blocks as u32).max(16);
        for level in &mut self.levels {
            level.many = level.run.ranks() >= many;
            level.run.ask_for_blocks(blocks);
        }
    }

    /// Weighs the holders of all runs, those that many hold first: what they save rules out most of
    /// the others.
    pub(super) fn weigh_runs(&self, contest: &mut Contest<'_>, rng: &mut Rng) {
        for many in [true, false] {
            for level in (0..self.levels.len()).rev() {
                if self.levels[level].many == many {
                    self.weigh_run(level, contest, rng);
                }
            }
        }
    }

    fn weigh_run(&self, level: usize, contest: &mut Contest<'_>, rng: &mut Rng) {
        let l = &self.levels[level];
        if !l.many && l.run.ranks() as usize <= NAMED {
            return self.weigh_few(level, contest, rng);
        }
        let saved = self.added - l.bonus;
        // Where the best ones are likely to be: they rule out most of the others.
        let glimpse = self.glimpse(l, self.lowest) + saved;
        let first = self.lowest / SPAN;
        for number in (first..self.spans.len()).chain(0..first) {
            let span = &self.spans[number];
            let bar = contest.bar().min(glimpse);
            if span.min + saved > bar {
                continue;
            }
            let board = self.board(number);
            let blocks =
                l.run.blocks((number / SPANS) as u32) >> (number % SPANS * SPAN) & board.places();
            let within = blocks & self.within(number, saved, bar);
            if more_than(FEW, within) {
                let here = Here { level, number, blocks, within, saved };
                self.weigh_shelf(l, &here, contest, rng);
                continue;
            }
            let mut deep = 0;
            for at in lanes(within) {
                deep |= u64::from(!self.weigh_block(level, number, at, contest, rng)) << at;
            }
            if deep == 0 {
                continue;
            }
            if l.many || more_than(FEW / 2, deep) {
                let here = Here { level, number, blocks, within: deep, saved };
                self.weigh_shelf(l, &here, contest, rng);
            } else {
                for at in lanes(deep) {
                    let b = number * SPAN + at;
                    self.weigh_lanes(b, self.holders(level, b), saved, contest, rng);
                }
            }
        }
    }

    /// The same where there are few holders, one or none in most blocks: all are named first, then
    /// weighed in one go. Block by block, a processor would guess wrong at most of them how many
    /// holders come next.
    fn weigh_few(&self, level: usize, contest: &mut Contest<'_>, rng: &mut Rng) {
        let l = &self.levels[level];
        let saved = self.added - l.bonus;
        let mut named = [SlotId::new(0, 0); NAMED];
        let mut count = 0;
        for (part, spans) in self.spans.chunks(SPANS).enumerate() {
            let blocks = l.run.blocks(part as u32);
            let mut within = 0;
            for (at, span) in spans.iter().enumerate() {
                if blocks >> (at * SPAN) & SPAN_MASK != 0 && span.min + saved <= contest.bar() {
                    let here = self.within(part * SPANS + at, saved, contest.bar());
                    within |= here << (at * SPAN);
                }
            }
            for at in lanes(blocks & within) {
                let b = part * 64 + at;
                let mut holders = self.holders(level, b);
                loop {
                    if count == NAMED {
                        // More have come meanwhile: room for them.
                        self.weigh_named(&named, saved, contest, rng);
                        count = 0;
                    }
                    // Named whether there is one or not: no branch to guess.
                    named[count] = SlotId::new(b, holders.trailing_zeros() as usize % 64);
                    count += usize::from(holders != 0);
                    holders &= holders.wrapping_sub(1);
                    if holders == 0 {
                        break;
                    }
                }
            }
        }
        self.weigh_named(&named[..count], saved, contest, rng);
    }

    fn weigh_named(&self, named: &[SlotId], saved: f64, contest: &mut Contest<'_>, rng: &mut Rng) {
        for &slot in named {
            self.weigh_lane(slot, saved, contest, rng);
        }
    }

    /// The ranks of a block that hold a run, and, if few hold it, nothing behind it.
    #[inline(always)]
    fn holders(&self, level: usize, b: usize) -> u64 {
        let l = &self.levels[level];
        let holders = l.run.mask(b as u32) & self.board(b / SPAN).open[b % SPAN];
        match self.levels.get(level + 1) {
            Some(deeper) if !l.many && holders != 0 => holders & !deeper.run.mask(b as u32),
            _ => holders,
        }
    }

    /// The plain cost of some cheap holder in a block; infinite if there is none.
    fn glimpse(&self, l: &Level<'_>, b: usize) -> f64 {
        let (number, at) = (b / SPAN, b % SPAN);
        let holders = l.run.mask(b as u32);
        let Near { min, ties, near, .. } = self.near(self.board(number), number, at);
        if holders & ties != 0 { min } else { self.one_by_one(b, holders & near).0 }
    }

    /// Weighs the holders in one block. `false`: none of them is near the lowest plain cost.
    #[inline(always)]
    fn weigh_block(
        &self,
        level: usize,
        number: usize,
        at: usize,
        contest: &mut Contest<'_>,
        rng: &mut Rng,
    ) -> bool {
        let b = number * SPAN + at;
        let saved = self.added - self.levels[level].bonus;
        let holders = self.holders(level, b);
        if holders == 0 {
            return true;
        }
        let Near { min, ties, near, edge } = self.near(self.board(number), number, at);
        if holders & ties != 0 {
            for lane in lanes(holders & ties) {
                contest.slot(min + saved, SlotId::new(b, lane), rng);
            }
            return true;
        }
        self.weigh_lanes(b, holders & near, saved, contest, rng);
        // Whoever is not near costs more than the edge.
        holders & near != 0 || edge + saved > contest.bar()
    }

    /// Weighs some ranks of one block.
    #[inline(always)]
    fn weigh_lanes(
        &self,
        b: usize,
        left: u64,
        saved: f64,
        contest: &mut Contest<'_>,
        rng: &mut Rng,
    ) {
        for lane in lanes(left) {
            self.weigh_lane(SlotId::new(b, lane), saved, contest, rng);
        }
    }

    #[inline(always)]
    fn weigh_lane(&self, slot: SlotId, saved: f64, contest: &mut Contest<'_>, rng: &mut Rng) {
        let (b, lane) = (slot.block(), slot.lane());
        let block = &*self.view.blocks[b];
        let row = block.live.row(lane);
        let cost = self.tools.plain.plain_cost(row.bits(), self.requests(b, lane)) + saved;
        if cost <= contest.bar() && self.may(block, lane, row) {
            contest.slot(cost, slot, rng);
        }
    }

    /// The cheapest ranks of a block.
    #[inline(always)]
    fn near(&self, board: &Board, number: usize, at: usize) -> Near {
        if let Some(own) = self.spans[number].own {
            return Near::of(&own[at]);
        }
        let version = board.versions.of(at);
        match board.each[at].read_some(version, NEAR) {
            Some([min, ties, near, edge]) => {
                let (min, edge) = (f64::from_bits(min), f64::from_bits(edge));
                Near { min, ties, near, edge }
            }
            None => Near::of(&self.sum_up_block(board, number * SPAN + at, version)),
        }
    }

    /// Weighs the holders of a run in one span by what is kept about them.
    #[inline(never)]
    fn weigh_shelf(&self, l: &Level<'_>, here: &Here, contest: &mut Contest<'_>, rng: &mut Rng) {
        let board = self.board(here.number);
        let shelf = board.shelf(l.hash);
        if here.keep()
            && let Some((shelf, edition)) = shelf
            && let Some((_, [plain, counts, rest])) = shelf.whole.read_sum(&board.versions)
            && shelf.still(edition)
        {
            let plain = f64::from_bits(plain);
            // Blocks that were ruled out then have to be ruled out still.
            if f64::from_bits(rest) + here.saved > contest.bar().min(plain + here.saved) {
                return contest.group(plain + here.saved, here.group(plain, Counts(counts)));
            }
        }
        // First what is known: it may rule out what has to be found again.
        let mut found = Cheapest::new();
        let (mut looked_at, mut stale) = (0, here.within);
        if let Some((shelf, edition)) = shelf {
            stale = 0;
            for at in lanes(here.within) {
                if self.least(here.number, at) + here.saved
                    > contest.bar().min(found.min + here.saved)
                {
                    continue;
                }
                match shelf.each[at].read(board.versions.of(at)) {
                    Some(words) => {
                        looked_at |= 1 << at;
                        found.meet(at, Holders::of(words));
                    }
                    None => stale |= 1 << at,
                }
            }
            if shelf.still(edition) {
                contest.group(found.min + here.saved, here.group(found.min, found.counts));
            } else {
                // It was given to another run meanwhile.
                (found, looked_at, stale) = (Cheapest::new(), 0, here.within);
            }
        }
        if stale != 0 || here.keep() {
            self.find_holders(l, here, found, looked_at, stale, contest, rng);
        }
    }

    /// Finds who is the cheapest holder in the blocks `stale`, where it is not known any more, and
    /// publishes it; `found` is what is known of the blocks `looked_at`.
    #[expect(clippy::too_many_arguments, reason = "the second half of one function")]
    fn find_holders(
        &self,
        l: &Level<'_>,
        here: &Here,
        mut found: Cheapest,
        mut looked_at: u64,
        stale: u64,
        contest: &mut Contest<'_>,
        rng: &mut Rng,
    ) {
        let board = self.board(here.number);
        let known = board.shelf(l.hash);
        let mut fresh: SmallVec<[Fresh; 4]> = SmallVec::new();
        let mut now = Cheapest::new();
        for at in lanes(stale) {
            let bar = contest.bar().min(now.min + here.saved);
            if self.least(here.number, at) + here.saved > bar {
                continue;
            }
            looked_at |= 1 << at;
            let b = here.number * SPAN + at;
            let version = board.versions.of(at);
            let mask = l.run.mask(b as u32);
            let each = known.map(|(shelf, _)| &shelf.each[at]);
            let holders = self.sum_up_holders(board, b, version, mask, each);
            now.meet(at, holders);
            fresh.push(Fresh { at, version, holders });
        }
        if let Some((shelf, edition)) = known
            && !shelf.still(edition)
        {
            // What was brought up to date may have been about another run.
            for fresh in &mut fresh {
                let b = here.number * SPAN + fresh.at;
                let mask = l.run.mask(b as u32);
                fresh.holders = self.sum_up_holders(board, b, fresh.version, mask, None);
            }
            now = Cheapest::new();
            fresh.iter().for_each(|fresh| now.meet(fresh.at, fresh.holders));
        }
        // Only what was read from the run while it was whole may be published.
        if l.run.is_current()
            && let Some(turn) = board.turns.take()
        {
            let sum = self.spans[here.number].sum;
            let (shelf, edition) = board.claim(&turn, l.hash, sum);
            for fresh in &fresh {
                shelf.each[fresh.at].put(&turn, fresh.version, fresh.holders.words());
            }
            contest.group(now.min + here.saved, here.group(now.min, now.counts));
            // What was known has to stand on it still.
            if here.keep() && known.is_none_or(|(_, before)| before == edition) {
                found.join(&now);
                let ruled_out =
                    lanes(here.blocks & !looked_at).map(|at| self.least(here.number, at));
                let rest = ruled_out.fold(f64::INFINITY, f64::min);
                shelf.whole.put(&turn, sum, [found.min.to_bits(), found.counts.0, rest.to_bits()]);
            }
            return;
        }
        // They could not be found on a shelf afterwards: they are named.
        for fresh in fresh.iter().filter(|fresh| fresh.holders.min == now.min) {
            for lane in lanes(fresh.holders.ties) {
                let slot = SlotId::new(here.number * SPAN + fresh.at, lane);
                contest.slot(now.min + here.saved, slot, rng);
            }
        }
    }

    /// The holders of a run in one block who are the cheapest; `None`: the shelf is another run's by
    /// now.
    pub(super) fn cheapest_holders(
        &self,
        board: &Board,
        level: usize,
        at: usize,
    ) -> Option<(f64, u64)> {
        let (shelf, edition) = board.shelf(self.levels[level].hash)?;
        let holders = Holders::of(shelf.each[at].latest()?.1);
        shelf.still(edition).then_some((holders.min, holders.ties))
    }

    /// The last run of the prompt that a rank holds.
    pub(super) fn holds(&self, slot: SlotId) -> Option<&Level<'_>> {
        let block = slot.block() as u32;
        self.levels.iter().rev().find(|level| level.run.mask(block) & slot.bit() != 0)
    }

    /// Asks early for what a booking on a rank that holds `held` blocks of the prompt will write.
    #[inline(always)]
    pub(super) fn ask_to_join(&self, slot: SlotId, held: u32) {
        for level in self.levels.iter().rev().take_while(|level| level.held > held) {
            level.run.ask_to_join(slot.block() as u32);
        }
    }
}

/// The cheapest ranks of a block: who has the lowest plain cost, and who costs at most `edge`.
struct Near {
    min: f64,
    ties: u64,
    near: u64,
    edge: f64,
}

impl Near {
    #[cold]
    fn of(&Block { min, ties, near, edge, .. }: &Block) -> Near {
        Near { min, ties, near, edge }
    }
}

/// The blocks of one span that are weighed for a run.
struct Here {
    level: usize,
    number: usize,
    /// The blocks with holders.
    blocks: u64,
    /// Of them, those that are not ruled out.
    within: u64,
    /// What is to be added to a plain cost.
    saved: f64,
}

impl Here {
    /// Whether the span's result is worth keeping: if there are more than a few blocks.
    #[inline(always)]
    fn keep(&self) -> bool {
        more_than(FEW, self.within)
    }

    #[inline(always)]
    fn group(&self, plain: f64, counts: Counts) -> Group {
        Group { level: Some(self.level), span: self.number, plain, counts }
    }
}

/// The lowest plain cost among some blocks' holders, and how many have it.
struct Cheapest {
    min: f64,
    counts: Counts,
}

impl Cheapest {
    fn new() -> Cheapest {
        Cheapest { min: f64::INFINITY, counts: Counts(0) }
    }

    #[inline(always)]
    fn meet(&mut self, at: usize, holders: Holders) {
        if holders.min < self.min {
            *self = Cheapest { min: holders.min, counts: Counts(0) };
        }
        if holders.min == self.min {
            // Mostly one.
            let ties = holders.ties;
            let one = ties & ties.wrapping_sub(1) == 0;
            self.counts.tie(at, if one { u32::from(ties != 0) } else { ties.count_ones() });
        }
    }

    /// Takes in what was found in other blocks.
    fn join(&mut self, other: &Cheapest) {
        if other.min < self.min {
            *self = Cheapest { ..*other };
        } else if other.min == self.min {
            self.counts.join(other.counts);
        }
    }
}

/// What was found in one block and is not on the shelf yet.
struct Fresh {
    at: usize,
    version: u64,
    holders: Holders,
}
