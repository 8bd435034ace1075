//! Changes of the fleet. One writer at a time (the pool's lock) edits copies of the blocks it
//! touches and hands out a new [`View`]; nothing that is published ever changes.
//!
//! Order, which `load::slot` relies on: a slot is scrubbed and reopened before a view names it; a
//! view without a rank is published before its slot is killed; a killed slot comes back from
//! [`Writer::retired`] only when everybody who was pinned then has unpinned.

use crate::error::Error;
use crate::fleet::block::{Block, LANES, SlotId};
use crate::fleet::board::Boards;
use crate::fleet::cell::{Quarantine, Replaced};
use crate::fleet::seal::{SPAN, Versions};
use crate::fleet::spec::WorkerSpec;
use crate::fleet::tags::Tag;
use crate::fleet::view::{BlockView, View, Worker};
use crate::limits::rules::{Rules, compile};
use crate::load::monitor::{Monitor, Signals};
use crate::load::prompts::{At, PromptIndex};
use crate::load::slot;
use crate::names::{Rank, WorkerId};
use crate::pins::pin;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::time::Time;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::ops::Range;
use std::time::Duration;

/// What an edit did, for the pool to carry out and to tell.
#[derive(Default)]
pub(crate) struct Edit {
    /// The view must be published.
    pub(crate) changed: bool,
    /// Room may have appeared: the epoch must move.
    pub(crate) room: bool,
    /// Ranks that are gone, with the slot and the life they had.
    pub(crate) gone: Vec<(Rank, SlotId, u64)>,
}

/// The one place that the fleet is changed from; lives under the pool's writer lock.
pub(crate) struct Writer {
    /// The view as published, or about to be.
    pub(crate) view: View,
    index: Arc<PromptIndex>,
    /// Spans of blocks that were edited since the last [`renew_boards`](Self::renew_boards).
    edited: Vec<bool>,
    /// Lanes of each block that no rank lives in and that may be used.
    vacant: Vec<u64>,
    /// Slots of ranks that have gone.
    pub(crate) retired: Quarantine<SlotId>,
    /// Views that were replaced.
    pub(crate) replaced: Quarantine<Replaced>,
    last_life: u64,
    /// What workers say of themselves.
    monitor: Monitor,
}

impl Writer {
    pub(crate) fn new(rules: Arc<Rules>, index: Arc<PromptIndex>, signal_ttl: Duration) -> Writer {
        Writer {
            view: View::new(rules),
            index,
            edited: Vec::new(),
            vacant: Vec::new(),
            retired: Quarantine::default(),
            replaced: Quarantine::default(),
            last_life: 0,
            monitor: Monitor::new(signal_ttl),
        }
    }

    /// Adds a worker or changes one: ranks that stay keep their rows and bookings.
    pub(crate) fn upsert(&mut self, spec: &WorkerSpec) -> Result<Edit, Error> {
        spec.validate()?;
        let mut edit = Edit::default();
        self.put(spec, &mut edit);
        Ok(edit)
    }

    /// Takes a worker out.
    pub(crate) fn remove(&mut self, id: WorkerId) -> Edit {
        let mut edit = Edit::default();
        self.take_out(id, &mut edit);
        edit
    }

    /// Makes `specs` the whole set.
    pub(crate) fn reconcile(&mut self, specs: &[WorkerSpec]) -> Result<Edit, Error> {
        let mut keep = FxHashSet::default();
        for spec in specs {
            spec.validate()?;
            if !keep.insert(spec.id) {
                return Err(Error::config("worker", format!("{} given twice", spec.id)));
            }
        }
        let mut edit = Edit::default();
        let leaving: Vec<WorkerId> =
            self.view.workers.iter().map(|w| w.spec.id).filter(|id| !keep.contains(id)).collect();
        for id in leaving {
            self.take_out(id, &mut edit);
        }
        for spec in specs {
            self.put(spec, &mut edit);
        }
        Ok(edit)
    }

    /// Makes a worker available or unavailable; `None`: no such worker.
    pub(crate) fn set_available(&mut self, id: WorkerId, available: bool) -> Option<Edit> {
        self.alter(id, |worker, edit| {
            edit.changed = worker.available != available;
            // Also when it leaves: with a `busy_worker_ratio`, fewer ranks may be fewer full ones.
            edit.room = edit.changed;
            worker.available = available;
        })
    }

    /// Puts an overload mark on a worker until an instant, or takes it off; `None`: no such worker.
    pub(crate) fn set_overloaded(
        &mut self,
        id: WorkerId,
        until: Option<Time>,
        now: Time,
    ) -> Option<Edit> {
        self.alter(id, |worker, edit| {
            edit.changed = worker.overloaded != until;
            // A mark whose lease has run out already takes an earlier one off.
            edit.room = worker.overloaded.is_some() && until.is_none_or(|until| until <= now);
            worker.overloaded = until;
        })
    }

    /// Takes in what a worker says of one of its ranks; `None`: the rank is not declared.
    pub(crate) fn observe(&mut self, rank: Rank, said: Signals, now: Time) -> Option<Edit> {
        self.view.slot(rank)?;
        self.monitor.hear(rank, said, now);
        Some(self.judge_again(rank.worker, now))
    }

    /// Judges what is known of a worker's own signals by the thresholds and capacity in force.
    fn judge_again(&mut self, id: WorkerId, now: Time) -> Edit {
        let (monitor, frac) = (&self.monitor, self.view.rules.reject.decode_frac);
        let Some(worker) = self.view.workers.get(id) else { return Edit::default() };
        let latched = monitor.latches(worker, frac);
        self.alter(id, |worker, edit| {
            edit.changed = worker.latched != latched;
            let stands = |until: Option<&Time>| until.is_some_and(|&until| now < until);
            let clears = |(i, old)| stands(Some(old)) && !stands(latched.get(i));
            edit.room = worker.latched.iter().enumerate().any(clears);
            worker.latched = latched;
        })
        .unwrap_or_default()
    }

    /// Takes off the marks that have run out at `now`: the host's, whose workers are named, and
    /// the monitor's, whose evidence has fallen silent.
    pub(crate) fn lapse_marks(&mut self, now: Time, lapsed: &mut Vec<WorkerId>) -> Edit {
        let mut edit = Edit::default();
        for block in self.view.blocks.iter().filter(|block| block.next_lapse <= now) {
            let over = |w: &&Arc<Worker>| w.overloaded.is_some_and(|until| until <= now);
            lapsed.extend(block.owners.iter().flatten().filter(over).map(|w| w.spec.id));
            // A latch that is silent moves the epoch like one that is cleared, also one that marked
            // nobody or nobody but whom the host marks as well.
            edit.room = true;
        }
        lapsed.sort();
        lapsed.dedup();
        for &id in lapsed.iter() {
            if let Some(one) = self.set_overloaded(id, None, now) {
                edit.changed |= one.changed;
            }
        }
        for b in 0..self.view.blocks.len() {
            if self.view.blocks[b].next_lapse <= now {
                self.settle_lapse(b, now);
                edit.changed = true;
            }
        }
        edit
    }

    /// When the first soft mark or latch runs out.
    pub(crate) fn next_lapse(&self) -> Option<Time> {
        self.view.blocks.iter().map(|b| b.next_lapse).min().filter(|&t| t != Time::NEVER)
    }

    /// Puts other thresholds in force: every rank's limits are compiled again and swapped as one.
    pub(crate) fn set_rules(&mut self, rules: Rules, now: Time) {
        self.view.rules = Arc::new(rules);
        for b in 0..self.view.blocks.len() {
            let rules = Arc::clone(&self.view.rules);
            let block = self.block_mut(b);
            block.classes.resize(rules.classes.len(), crate::fleet::view::Limits::NONE);
            for lane in crate::fleet::block::lanes(block.declared) {
                Self::compile_lane(block, lane, &rules);
            }
        }
        // What the workers said is judged again at once.
        for id in self.monitor.workers() {
            self.judge_again(id, now);
        }
    }

    /// A block of the view, to be changed.
    fn block_mut(&mut self, b: usize) -> &mut BlockView {
        self.edited[b / SPAN] = true;
        Arc::make_mut(&mut self.view.blocks[b])
    }

    /// Gives every span of blocks that was edited a new board. Comes before the view is published.
    pub(crate) fn renew_boards(&mut self) {
        let view = &mut self.view;
        for (span, edited) in self.edited.iter_mut().enumerate() {
            if std::mem::take(edited) {
                let end = view.blocks.len().min((span + 1) * SPAN);
                let board = Arc::new(Boards::new(&view.blocks[span * SPAN..end]));
                match view.boards.get_mut(span) {
                    Some(old) => *old = board,
                    None => view.boards.push(board),
                }
            }
        }
        view.available = view.boards.iter().map(|b| b.any().available).sum();
        view.unmarked = view.boards.iter().map(|b| b.any().unmarked).sum();
        view.next_lapse =
            view.boards.iter().map(|b| b.any().next_lapse).min().unwrap_or(Time::NEVER);
    }

    fn alter(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker, &mut Edit)) -> Option<Edit> {
        let mut worker = Worker::clone(self.view.workers.get(id)?);
        let mut edit = Edit::default();
        change(&mut worker, &mut edit);
        if edit.changed {
            self.install(worker);
        }
        Some(edit)
    }

    fn put(&mut self, spec: &WorkerSpec, edit: &mut Edit) {
        let old = self.view.workers.get(spec.id).cloned();
        if old.as_ref().is_some_and(|w| *w.spec == *spec) {
            return;
        }
        edit.changed = true;
        let range = range_of(spec);
        let mut kept: Vec<Option<SlotId>> = vec![None; spec.data_parallel_size as usize];
        if let Some(old) = &old {
            for (rank, slot) in old.ranks() {
                if range.contains(&u64::from(rank.dp_rank)) {
                    kept[(rank.dp_rank - spec.data_parallel_start_rank) as usize] = Some(slot);
                } else {
                    self.vacate(rank, slot, edit);
                }
            }
            edit.room |= more_room(&old.spec, spec);
        }
        let missing = kept.iter().filter(|slot| slot.is_none()).count();
        if missing > 0 {
            edit.room = true;
            let near = kept.iter().flatten().next().map(|slot| slot.block());
            let mut fresh = self.find_slots(missing, near).into_iter();
            for slot in kept.iter_mut().filter(|slot| slot.is_none()) {
                *slot = fresh.next();
            }
            self.view.ranks += missing as u32;
        }
        self.retag(old.as_deref(), Some(spec));
        let slots = kept.into_iter().flatten().collect();
        // Availability and marks are the worker's own: a new spec does not touch them. What it
        // said of itself is judged by the new capacity and ranks.
        let (available, overloaded) =
            old.as_ref().map_or((true, None), |w| (w.available, w.overloaded));
        let mut worker = Worker {
            spec: Arc::new(spec.clone()),
            slots,
            available,
            overloaded,
            latched: SmallVec::new(),
        };
        worker.latched = self.monitor.latches(&worker, self.view.rules.reject.decode_frac);
        self.install(worker);
    }

    fn take_out(&mut self, id: WorkerId, edit: &mut Edit) {
        let Some(old) = self.view.workers.remove(id) else { return };
        edit.changed = true;
        edit.room = true;
        for (rank, slot) in old.ranks() {
            self.vacate(rank, slot, edit);
        }
        self.retag(Some(&old), None);
    }

    /// Writes a worker's properties into the columns of its lanes.
    fn install(&mut self, worker: Worker) {
        let worker = Arc::new(worker);
        let straddles = worker.straddles();
        let several = worker.slots.len() > 1;
        let rules = Arc::clone(&self.view.rules);
        let tags: SmallVec<[u32; 8]> =
            tags_of(&worker.spec).filter_map(|tag| self.view.tags.number(&tag)).collect();
        let mut touched: SmallVec<[usize; 4]> = worker.slots.iter().map(|s| s.block()).collect();
        touched.sort_unstable();
        touched.dedup();
        for (i, (rank, slot)) in worker.ranks().enumerate() {
            let block = self.block_mut(slot.block());
            let (lane, bit) = (slot.lane(), slot.bit());
            let put = |set: &mut u64, on: bool| *set = if on { *set | bit } else { *set & !bit };
            put(&mut block.declared, true);
            put(&mut block.available, worker.available);
            put(&mut block.multi, several);
            put(&mut block.straddling, straddles);
            let host = worker.overloaded.unwrap_or(Time::ZERO);
            let until = host.max(worker.monitored_until(i, rules.scope));
            put(&mut block.marks, until > Time::ZERO);
            put(&mut block.latched, worker.latched_until(i) > Time::ZERO);
            block.marked_until[lane] = until;
            block.ranks[lane] = rank;
            block.owners[lane] = Some(Arc::clone(&worker));
            // Relaxed: this thread reopened the slot, or the view it edits already named the life.
            block.lives[lane] = block.live.lives[lane].load(Ordering::Relaxed);
            block.siblings[lane] = worker
                .slots
                .iter()
                .filter(|s| s.block() == slot.block())
                .fold(0, |set, s| set | s.bit());
            Self::compile_lane(block, lane, &rules);
            untag(block, bit);
            for &number in &tags {
                match block.tags.binary_search_by_key(&number, |&(n, _)| n) {
                    Ok(at) => block.tags[at].1 |= bit,
                    Err(at) => block.tags.insert(at, (number, bit)),
                }
            }
        }
        for b in touched {
            self.settle_lapse(b, Time::ZERO);
        }
        self.view.workers.insert(worker.spec.id, worker);
    }

    fn compile_lane(block: &mut BlockView, lane: usize, rules: &Rules) {
        let Some(owner) = block.owners[lane].as_ref() else { return };
        let caps = (owner.spec.max_num_batched_tokens, owner.spec.total_kv_blocks);
        block.reject.set(lane, compile(&rules.reject, caps.0, caps.1));
        for (limits, thresholds) in block.classes.iter_mut().zip(&rules.classes) {
            limits.set(lane, compile(thresholds, caps.0, caps.1));
        }
    }

    /// Forgets marks and latches that have run out at `now`, and finds when the next one will. The
    /// host's own is one although the monitor's outlasts it, and the other way round: each is told
    /// when it ends.
    fn settle_lapse(&mut self, b: usize, now: Time) {
        let block = self.block_mut(b);
        let mut next = Time::NEVER;
        for lane in crate::fleet::block::lanes(block.marks | block.latched) {
            let bit = 1u64 << lane;
            let Some(owner) = &block.owners[lane] else { continue };
            let position = block.ranks[lane].dp_rank - owner.spec.data_parallel_start_rank;
            let latch = owner.latched_until(position as usize);
            // A worker-wide mark may end with the latch of a rank in another block.
            let marked = block.marked_until[lane];
            if marked <= now {
                block.marks &= !bit;
            }
            if latch <= now {
                block.latched &= !bit;
            }
            let ends = [marked, owner.overloaded.unwrap_or(Time::ZERO), latch];
            next = ends.into_iter().filter(|&until| until > now).fold(next, Time::min);
        }
        block.next_lapse = next;
    }

    /// Takes a rank out of the columns. Its slot stays in use until its quarantine has ended.
    fn vacate(&mut self, rank: Rank, slot: SlotId, edit: &mut Edit) {
        let block = self.block_mut(slot.block());
        let (lane, bit) = (slot.lane(), slot.bit());
        edit.room = true;
        edit.gone.push((rank, slot, block.lives[lane]));
        for set in [
            &mut block.declared,
            &mut block.available,
            &mut block.marks,
            &mut block.latched,
            &mut block.multi,
            &mut block.straddling,
        ] {
            *set &= !bit;
        }
        block.owners[lane] = None;
        untag(block, bit);
        self.settle_lapse(slot.block(), Time::ZERO);
        self.monitor.forget(rank);
        self.view.ranks -= 1;
        self.view.shape += 1;
    }

    /// Counts the tags of the old spec out and those of the new one in.
    fn retag(&mut self, old: Option<&Worker>, new: Option<&WorkerSpec>) {
        let carries = |spec: &WorkerSpec| tags_of(spec).next().is_some();
        if !old.is_some_and(|w| carries(&w.spec)) && !new.is_some_and(carries) {
            return;
        }
        self.view.shape += 1;
        let tags = Arc::make_mut(&mut self.view.tags);
        for tag in new.into_iter().flat_map(tags_of) {
            tags.take(tag);
        }
        for tag in old.into_iter().flat_map(|w| tags_of(&w.spec)) {
            tags.give_back(&tag);
        }
    }

    /// Opens `count` slots for one worker: in the block `near` its other ranks if they fit there,
    /// else in one block if they fit in any, else wherever there is a place. (A worker that has
    /// outgrown its block straddles two; the pass looks at such workers as a whole.)
    fn find_slots(&mut self, count: usize, near: Option<usize>) -> Vec<SlotId> {
        while let Some(slot) = self.retired.take() {
            self.vacant[slot.block()] |= slot.bit();
        }
        let fits = |vacant: &[u64], b: usize| vacant[b].count_ones() as usize >= count;
        let mut found = Vec::with_capacity(count);
        let first = near
            .filter(|&b| fits(&self.vacant, b))
            .or_else(|| (0..self.vacant.len()).find(|&b| fits(&self.vacant, b)));
        match first {
            Some(b) => self.open(b, count, &mut found),
            None if count <= LANES => {
                let b = self.add_block();
                self.open(b, count, &mut found);
            }
            None => {
                // More ranks than a block has lanes: whole blocks, then the rest.
                let mut left = count;
                while left > 0 {
                    let want = left.min(LANES);
                    let b = (0..self.vacant.len())
                        .find(|&b| self.vacant[b].count_ones() as usize >= want)
                        .unwrap_or_else(|| self.add_block());
                    self.open(b, want, &mut found);
                    left -= want;
                }
            }
        }
        found
    }

    fn add_block(&mut self) -> usize {
        let (b, at) = (self.view.blocks.len(), self.view.blocks.len() % SPAN);
        let versions = if at == 0 {
            self.edited.push(true);
            Arc::new(Versions::new())
        } else {
            self.edited[b / SPAN] = true;
            Arc::clone(self.view.blocks[b - 1].live.versions())
        };
        let block = Arc::new(Block::new(versions, at));
        let block = BlockView::new(block, self.view.rules.classes.len());
        self.view.blocks.push(Arc::new(block));
        self.vacant.push(u64::MAX);
        b
    }

    fn open(&mut self, b: usize, count: usize, into: &mut Vec<SlotId>) {
        let guard = pin();
        for lane in crate::fleet::block::lanes(self.vacant[b]).take(count) {
            let id = SlotId::new(b, lane);
            let live = &self.view.blocks[b].live;
            let at = At { index: &self.index, slot: id.index(), guard: &guard };
            live.prompts[lane].lock().clear(at);
            live.requests[lane].store(0, Ordering::Relaxed);
            live.held[lane].store(0, Ordering::Relaxed);
            self.last_life += 1;
            slot::reopen(&live.rows[lane], &live.lives[lane], self.last_life);
            into.push(id);
        }
        for slot in &into[into.len() - count..] {
            self.vacant[b] &= !slot.bit();
        }
    }
}

fn untag(block: &mut BlockView, bit: u64) {
    for entry in &mut block.tags {
        entry.1 &= !bit;
    }
    block.tags.retain(|entry| entry.1 != 0);
}

fn range_of(spec: &WorkerSpec) -> Range<u64> {
    let start = u64::from(spec.data_parallel_start_rank);
    start..start + u64::from(spec.data_parallel_size)
}

/// The tags that a worker carries, each once.
fn tags_of(spec: &WorkerSpec) -> impl Iterator<Item = Tag> + '_ {
    let once = |names: &'_ [crate::names::Name], i: usize| !names[..i].contains(&names[i]);
    let taints = spec.taints.iter().enumerate().filter(move |&(i, _)| once(&spec.taints, i));
    let loras = spec.loras.iter().enumerate().filter(move |&(i, _)| once(&spec.loras, i));
    taints
        .map(|(_, t)| Tag::Taint(t.clone()))
        .chain(loras.map(|(_, l)| Tag::Lora(l.clone())))
        .chain(spec.domains.iter().map(|(l, v)| Tag::Domain(l.clone(), v.clone())))
}

/// Whether a worker that stays may have room, or be eligible, where it was not before.
fn more_room(old: &WorkerSpec, new: &WorkerSpec) -> bool {
    let known = |blocks: Option<u64>| blocks.filter(|&b| b > 0);
    let raised = |old: Option<u64>, new: Option<u64>| match (old, new) {
        (Some(old), Some(new)) => new > old,
        (Some(_), None) => true,
        (None, _) => false,
    };
    raised(old.max_num_batched_tokens, new.max_num_batched_tokens)
        || raised(known(old.total_kv_blocks), known(new.total_kv_blocks))
        || old.taints != new.taints
        || old.domains != new.domains
        || old.loras != new.loras
}
