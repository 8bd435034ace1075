//! Calls that change who is there. Each takes the writer lock, never on the path of a request.
#![forbid(unsafe_code)]

use crate::booking::Lost;
use crate::error::Error;
use crate::fleet::block::SlotId;
use crate::fleet::spec::WorkerSpec;
use crate::fleet::writer::{Edit, Writer};
use crate::load::slot;
use crate::names::WorkerId;
use crate::pool::{Inner, Pool};
use crate::sync::atomic::Ordering;
use crate::time::Time;
use rustc_hash::FxHashMap;

impl Pool {
    /// Adds a worker, or changes one that is there: ranks that stay keep their rows and their
    /// bookings, and the worker keeps its availability and marks. Returns the load that lost its
    /// rank, if ranks went. `O(ranks / 64)`; blocks on other changes of the fleet only.
    ///
    /// # Errors
    /// `InvalidConfig` (see [`WorkerSpec::validate`]); nothing changed.
    pub fn upsert(&self, spec: WorkerSpec) -> Result<Vec<Lost>, Error> {
        self.inner().edit(|writer| writer.upsert(&spec))
    }

    /// Takes a worker out. What is booked on it loses its rank and is returned; giving it back
    /// later is a quiet no-op. An unknown worker is no error.
    pub fn remove(&self, worker: WorkerId) -> Vec<Lost> {
        self.inner().edit(|writer| Ok(writer.remove(worker))).expect("a removal is not refused")
    }

    /// Makes `specs` the whole set: others leave, the rest is upserted, and readers see the old
    /// set or the new one.
    ///
    /// # Errors
    /// `InvalidConfig`: a spec that cannot be taken, or one id twice; nothing changed.
    pub fn reconcile(&self, specs: &[WorkerSpec]) -> Result<Vec<Lost>, Error> {
        self.inner().edit(|writer| writer.reconcile(specs))
    }

    /// Makes a worker available or not (hard: an unavailable worker is never chosen for a
    /// newcomer; what it carries stays). `false`: no such worker.
    pub fn set_available(&self, worker: WorkerId, available: bool) -> bool {
        self.inner().edit_known(|writer| writer.set_available(worker, available))
    }

    /// Puts a soft overload mark on a worker or takes it off. With `until` the mark ends by itself
    /// at that instant. `false`: no such worker.
    pub fn set_overloaded(&self, worker: WorkerId, overloaded: bool, until: Option<Time>) -> bool {
        let mark = overloaded.then_some(until.unwrap_or(Time::NEVER));
        let now = self.inner().time();
        self.inner().edit_known(|writer| writer.set_overloaded(worker, mark, now))
    }
}

impl Inner {
    pub(crate) fn edit_known(&self, change: impl FnOnce(&mut Writer) -> Option<Edit>) -> bool {
        let mut known = true;
        let change = |writer: &mut Writer| {
            Ok(change(writer).unwrap_or_else(|| {
                known = false;
                Edit::default()
            }))
        };
        self.edit(change).expect("a mark is not refused");
        known
    }

    pub(crate) fn edit(
        &self,
        change: impl FnOnce(&mut Writer) -> Result<Edit, Error>,
    ) -> Result<Vec<Lost>, Error> {
        let (lost, room) = self.edit_untold(change)?;
        self.signal_if(room);
        Ok(lost)
    }

    /// Edits and tells nobody; `true`: room may have appeared.
    pub(crate) fn edit_untold(
        &self,
        change: impl FnOnce(&mut Writer) -> Result<Edit, Error>,
    ) -> Result<(Vec<Lost>, bool), Error> {
        let mut writer = self.writer.lock();
        let edit = change(&mut writer)?;
        if !edit.changed {
            return Ok((Vec::new(), false));
        }
        let room = edit.room;
        Ok((self.publish(&mut writer, edit), room))
    }

    /// Publishes the writer's view, then ends the lives of the ranks that left, then sends their
    /// slots into quarantine.
    pub(crate) fn publish(&self, writer: &mut Writer, edit: Edit) -> Vec<Lost> {
        writer.view.generation += 1;
        writer.renew_boards();
        let replaced = self.view.publish(writer.view.clone());
        writer.replaced.put(replaced);
        tracing::debug!(
            generation = writer.view.generation,
            workers = writer.view.workers.len(),
            ranks = writer.view.ranks,
            gone = edit.gone.len(),
            "a view was published"
        );
        let mut lost = Vec::new();
        for &(rank, slot, _) in &edit.gone {
            let live = &writer.view.block(slot).live;
            slot::kill(&live.rows[slot.lane()]);
            live.bump(slot.lane());
            // Acquire would order nothing more: a count that is just going down is a free that
            // came first, and one that is going up a booking that has lost its rank.
            let requests = live.requests[slot.lane()].load(Ordering::Relaxed);
            if requests > 0 {
                lost.push(Lost { rank, requests, ids: Vec::new() });
            }
            writer.retired.put(slot);
        }
        while writer.replaced.take().is_some() {}
        if !lost.is_empty() {
            self.name_lost(&edit, &mut lost);
        }
        lost
    }

    /// Adds the ids of the bookings that lost their rank.
    fn name_lost(&self, edit: &Edit, lost: &mut [Lost]) {
        let gone: FxHashMap<(SlotId, u64), crate::names::Rank> =
            edit.gone.iter().map(|&(rank, slot, life)| ((slot, life), rank)).collect();
        self.ids.for_each(|id, attempt, landed| {
            if let Some(rank) = gone.get(&(landed.slot, landed.life))
                && let Some(entry) = lost.iter_mut().find(|l| l.rank == *rank)
            {
                entry.ids.push((id, attempt));
            }
        });
        for entry in lost {
            entry.ids.sort();
        }
    }
}
