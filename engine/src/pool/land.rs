//! Load onto rows and off them again: what happens between a proposal and a booking, and at its
//! end.
//!
//! With prompt hashes the rank's prompt lock is held over finding what it lacks, the swap of the
//! row, and the entry; without, no lock is taken. Order of a change: row, other columns, block
//! version, unpin, then (with no lock held) the signal.
#![forbid(unsafe_code)]

use crate::booking::{Landed, Origin};
use crate::error::Error;
use crate::fleet::block::SlotId;
use crate::fleet::view::View;
use crate::grace::Guard;
use crate::load::events::LoadChange;
use crate::load::prompts::At;
use crate::load::row::{Load, Row};
use crate::load::slot::{self, Refusal};
use crate::names::Rank;
use crate::pass::full::cached_tokens;
use crate::pins::pin;
use crate::pool::Inner;
use crate::pool::peers::Told;
use crate::prefetch::for_writing;
use crate::sync::atomic::Ordering;

/// Which ranks a booking may be moved to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Those of available workers.
    Available,
    /// All that are declared: it is there already, says another router.
    Declared,
}

/// What is put on a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A booking, with the output blocks that it brings from another rank.
    Booking {
        output: u32,
    },
    Hold,
}

impl Origin {
    /// Tokens and unshared blocks that the request puts on a rank where it has `cached` tokens.
    fn tokens(&self, cached: u32) -> u32 {
        if self.track_prefill { self.isl.saturating_sub(cached) } else { 0 }
    }
}

impl Inner {
    /// Where the prompt blocks of a slot are entered.
    fn at<'a>(&'a self, slot: SlotId, guard: &'a Guard<'a>) -> At<'a> {
        At { index: &self.index, slot: slot.index(), guard }
    }

    /// Puts a request on a slot if `judge` passes the row that it is added to.
    pub(crate) fn land(
        &self,
        view: &View,
        guard: &Guard<'_>,
        slot: SlotId,
        tokens: u32,
        origin: Origin,
        judge: impl Fn(Row) -> bool,
    ) -> Result<Landed, Refusal> {
        self.put_on(view, guard, slot, tokens, origin, Kind::Booking { output: 0 }, judge)
    }

    /// Sets a request's prompt blocks aside on a slot if `judge` passes the row.
    pub(crate) fn set_aside(
        &self,
        view: &View,
        guard: &Guard<'_>,
        slot: SlotId,
        origin: Origin,
        judge: impl Fn(Row) -> bool,
    ) -> Result<Landed, Refusal> {
        self.put_on(view, guard, slot, 0, origin, Kind::Hold, judge)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what a landing is made of; few callers, in this file"
    )]
    fn put_on(
        &self,
        view: &View,
        guard: &Guard<'_>,
        slot: SlotId,
        tokens: u32,
        origin: Origin,
        kind: Kind,
        judge: impl Fn(Row) -> bool,
    ) -> Result<Landed, Refusal> {
        let block = view.block(slot);
        let lane = slot.lane();
        let live = &block.live;
        let mut landed = Landed {
            slot,
            life: block.lives[lane],
            rank: block.ranks[lane],
            tokens,
            prefill_done: false,
            unshared: 0,
            held: None,
            set_aside: None,
            added: 0,
            told: Told::default(),
            origin,
        };
        // Counted before the row is: who kills the row then sees every request that came first
        // (the swap below releases, `kill` acquires), and `remove` can tell what it lost.
        let mut output = 0;
        if let Kind::Booking { output: brought } = kind {
            output = brought;
            live.requests[lane].fetch_add(1, Ordering::Relaxed);
        }
        let mut blocks = 0;
        let added = match &landed.origin.prompt {
            Some(prompt) if self.settings.track_blocks => {
                let mut prompts = live.prompts[lane].lock();
                let missing = prompts.missing(prompt.shared());
                blocks = missing.blocks();
                landed.unshared = output;
                // More than 32 bits hold is more than a row does.
                let load = Load::new(tokens, blocks.saturating_add(output));
                let added = slot::add(&live.rows[lane], load, judge);
                if added.is_ok() {
                    landed.held = Some(prompts.enter(missing, self.at(slot, guard)));
                }
                added
            }
            _ => {
                if self.settings.track_blocks {
                    blocks = landed.origin.prompt_blocks;
                }
                landed.unshared = blocks.saturating_add(output);
                slot::add(&live.rows[lane], Load::new(tokens, landed.unshared), judge)
            }
        };
        match (kind, added.is_ok()) {
            (Kind::Booking { .. }, true) | (Kind::Hold, false) => {}
            (Kind::Booking { .. }, false) => {
                live.requests[lane].fetch_sub(1, Ordering::Relaxed);
            }
            (Kind::Hold, true) => {
                live.held[lane].fetch_add(blocks, Ordering::Relaxed);
                landed.set_aside = Some(blocks);
            }
        }
        landed.added = blocks;
        // Also after a refusal: what proposed this rank must look at it again.
        live.bump(lane);
        added.map(|_| landed)
    }

    /// Takes off everything that is left. `true`: the row went down, the epoch must move.
    pub(crate) fn give_back(&self, landed: &mut Landed) -> bool {
        let guard = pin();
        let view = self.view.load(&guard);
        let live = &view.block(landed.slot).live;
        let lane = landed.slot.lane();
        live.prefetch(lane);
        for_writing(self.signal.place());
        if !slot::alive(&live.rows[lane], &live.lives[lane], landed.life) {
            return false;
        }
        let row = match landed.held.take() {
            Some(held) => {
                let mut prompts = live.prompts[lane].lock();
                let shared = prompts.leave(held, self.at(landed.slot, &guard));
                slot::take_off(&live.rows[lane], Load::new(landed.tokens, landed.unshared + shared))
            }
            None => slot::take_off(&live.rows[lane], Load::new(landed.tokens, landed.unshared)),
        };
        (landed.tokens, landed.unshared) = (0, 0);
        if row.is_none() {
            return false;
        }
        match landed.set_aside {
            Some(blocks) => live.held[lane].fetch_sub(blocks, Ordering::Relaxed),
            None => live.requests[lane].fetch_sub(1, Ordering::Relaxed),
        };
        live.bump(lane);
        true
    }

    /// Turns a hold into a booking on its own rank, in one step: `judge` passes the row as it would
    /// be without the hold. Refused: the hold stands as it was. `true`: the row went down by it.
    pub(crate) fn convert(
        &self,
        view: &View,
        guard: &Guard<'_>,
        hold: &mut Landed,
        tokens: u32,
        origin: Origin,
        judge: impl Fn(Row) -> bool,
    ) -> Result<(Landed, bool), Refusal> {
        let live = &view.block(hold.slot).live;
        let lane = hold.slot.lane();
        let mut landed = Landed {
            slot: hold.slot,
            life: hold.life,
            rank: hold.rank,
            tokens,
            prefill_done: false,
            unshared: 0,
            held: None,
            set_aside: None,
            added: 0,
            told: Told::default(),
            origin,
        };
        live.requests[lane].fetch_add(1, Ordering::Relaxed);
        let (off, on);
        let swapped = if self.settings.track_blocks
            && (hold.held.is_some() || landed.origin.prompt.is_some())
        {
            let mut prompts = live.prompts[lane].lock();
            let charged = prompts.held();
            let freed = match hold.held.take() {
                Some(held) => prompts.leave(held, self.at(hold.slot, guard)),
                None => 0,
            };
            off = hold.unshared + freed;
            on = match &landed.origin.prompt {
                Some(prompt) => prompts.missing(prompt.shared()).blocks(),
                None => landed.origin.prompt_blocks,
            };
            let swapped =
                slot::replace(&live.rows[lane], Load::new(0, off), Load::new(tokens, on), judge);
            // Whoever stays enters: the booking, or the hold again.
            let stays = if swapped.is_ok() { &landed.origin.prompt } else { &hold.origin.prompt };
            let entered = stays.as_ref().map(|prompt| {
                let missing = prompts.missing(prompt.shared());
                prompts.enter(missing, self.at(hold.slot, guard))
            });
            if swapped.is_ok() {
                landed.unshared = if entered.is_some() { 0 } else { on };
                landed.held = entered;
            } else {
                hold.held = entered;
                // Hashes that are no chain may be charged otherwise the second time: the row shows
                // what is charged.
                let row = &live.rows[lane];
                let (more, less) = (
                    prompts.held().saturating_sub(charged),
                    charged.saturating_sub(prompts.held()),
                );
                if more > 0 {
                    let _ = slot::add(row, Load::new(0, more), |_| true);
                }
                if less > 0 {
                    let _ = slot::take_off(row, Load::new(0, less));
                }
            }
            swapped
        } else {
            off = hold.unshared;
            on = if self.settings.track_blocks { landed.origin.prompt_blocks } else { 0 };
            landed.unshared = on;
            slot::replace(&live.rows[lane], Load::new(0, off), Load::new(tokens, on), judge)
        };
        match swapped {
            Ok(_) => {
                landed.added = on;
                let blocks = hold.set_aside.take().unwrap_or(0);
                live.held[lane].fetch_sub(blocks, Ordering::Relaxed);
                live.bump(lane);
                Ok((landed, on < off))
            }
            Err(refusal) => {
                live.requests[lane].fetch_sub(1, Ordering::Relaxed);
                live.bump(lane);
                Err(refusal)
            }
        }
    }

    /// A booking ends: all that is left comes off, and others are told. No lock may be held.
    pub(crate) fn end(&self, landed: &mut Landed) {
        let room = self.give_back(landed);
        self.tell(landed.told, LoadChange::Free);
        self.signal_if(room);
    }

    /// After [`complete_prefill`](Self::complete_prefill), with no lock held.
    pub(crate) fn prefill_was_completed(&self, done: bool, told: Told) {
        if done {
            self.tell(told, LoadChange::PrefillCompleted);
            self.signal.release_and_tell();
        }
    }

    /// After [`move_landed`](Self::move_landed), with no lock held.
    pub(crate) fn was_moved(&self, room: bool, told: Told, rank: Rank) {
        self.tell(told, LoadChange::Move { rank });
        self.signal_if(room);
    }

    /// Takes the prefill tokens off, once.
    pub(crate) fn complete_prefill(&self, landed: &mut Landed) -> bool {
        let tokens = std::mem::take(&mut landed.tokens);
        // What was cached matters to a move only while the prompt is still to be computed.
        landed.origin.overlaps = None;
        if std::mem::replace(&mut landed.prefill_done, true) || tokens == 0 {
            return false;
        }
        let guard = pin();
        let live = &self.view.load(&guard).block(landed.slot).live;
        let lane = landed.slot.lane();
        let alive = slot::alive(&live.rows[lane], &live.lives[lane], landed.life);
        if !alive || slot::take_off(&live.rows[lane], Load::new(tokens, 0)).is_none() {
            return false;
        }
        live.bump(lane);
        true
    }

    /// Adds output blocks. On a rank that is gone, or in a pool that does not track blocks, there
    /// is nothing to add them to.
    pub(crate) fn add_output(&self, landed: &mut Landed, blocks: u32) -> Result<(), Error> {
        if !self.settings.track_blocks || blocks == 0 {
            return Ok(());
        }
        let guard = pin();
        let live = &self.view.load(&guard).block(landed.slot).live;
        let lane = landed.slot.lane();
        if !slot::alive(&live.rows[lane], &live.lives[lane], landed.life) {
            // Nothing is taken off a rank that is gone; a move to another one takes this along.
            landed.unshared = landed.unshared.saturating_add(blocks);
            return Ok(());
        }
        match slot::add(&live.rows[lane], Load::new(0, blocks), |_| true) {
            Ok(_) => {
                landed.unshared += blocks;
                live.bump(lane);
                Ok(())
            }
            Err(Refusal::Overflow) => Err(Error::RowOverflow { rank: landed.rank }),
            Err(Refusal::Dead | Refusal::Full(_)) => {
                landed.unshared = landed.unshared.saturating_add(blocks);
                Ok(())
            }
        }
    }

    /// Moves a booking: onto the new rank, then off the old one. `true`: the old row went down.
    pub(crate) fn move_landed(
        &self,
        landed: &mut Landed,
        target: Rank,
        which: Target,
    ) -> Result<bool, Error> {
        let mut new = {
            let guard = pin();
            let view = self.view.load(&guard);
            let slot = view.slot(target).ok_or(Error::NoEndpoints)?;
            if which == Target::Available && view.block(slot).available & slot.bit() == 0 {
                return Err(Error::NoEndpoints);
            }
            if slot == landed.slot && view.life(slot) == landed.life {
                return Ok(false);
            }
            let origin = landed.origin.clone();
            let cached = self.cached_on(&origin, target);
            let tokens = if landed.prefill_done { 0 } else { origin.tokens(cached) };
            // All at once: there is nothing to take back if the output does not fit.
            let kind = Kind::Booking { output: landed.output() };
            let put_on = self.put_on(view, &guard, slot, tokens, origin, kind, |_| true);
            let mut new = match put_on {
                Ok(new) => new,
                Err(Refusal::Overflow) => return Err(Error::RowOverflow { rank: target }),
                // Removed since the view was read: it is unknown now.
                Err(Refusal::Dead | Refusal::Full(_)) => return Err(Error::NoEndpoints),
            };
            new.prefill_done = landed.prefill_done;
            new.told = std::mem::take(&mut landed.told);
            new
        };
        std::mem::swap(landed, &mut new);
        Ok(self.give_back(&mut new))
    }

    /// Prompt tokens that the request has cached on `rank`, by the overlaps it came with.
    pub(crate) fn cached_on(&self, origin: &Origin, rank: Rank) -> u32 {
        let overlap = origin
            .overlaps
            .iter()
            .flat_map(|list| list.iter())
            .rfind(|o| o.rank == rank)
            .map_or([0.0; 3], |o| [o.device, o.host, o.disk]);
        let settings = &self.settings;
        cached_tokens(&settings.weights, settings.block_size, origin.isl, overlap)
    }
}

impl Landed {
    /// Output blocks added since it was booked.
    pub(crate) fn output(&self) -> u32 {
        let prompt = if self.held.is_some() { 0 } else { self.origin.prompt_blocks };
        self.unshared.saturating_sub(prompt)
    }
}
