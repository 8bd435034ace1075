//! What this router has told of its live bookings, so that a peer that comes late can be told it
//! once more.
//!
//! Kept only while changes are told at all. A booking's entry is changed before its event goes out,
//! so whatever a peer is not shown here it is told afterwards.
#![forbid(unsafe_code)]

use crate::load::events::LoadChange;
use crate::names::{Rank, RequestId};
use crate::sync::Mutex;
use crossbeam_utils::CachePadded;
use rustc_hash::FxHashMap;

const SHARDS: u64 = 16;

/// A live booking, as it was told.
struct Story {
    request: Option<RequestId>,
    add: (u64, LoadChange),
    completed: Option<u64>,
    /// The last output's number, and all blocks.
    output: Option<(u64, u32)>,
    moved: Option<(u64, Rank)>,
}

/// One change that was told: its number, its booking, the request, and what it was.
pub(crate) type Change = (u64, u64, Option<RequestId>, LoadChange);

/// All live bookings, by their numbers.
#[derive(Default)]
pub(crate) struct Stories([CachePadded<Mutex<FxHashMap<u64, Story>>>; SHARDS as usize]);

impl Stories {
    /// Takes in a change that is about to be told. Changes of one booking may come in another order
    /// than they were numbered; its `Add` comes first.
    pub(crate) fn take_in(&self, (seq, booking, request, change): Change) {
        let mut stories = self.0[(booking % SHARDS) as usize].lock();
        if let LoadChange::Add { .. } = change {
            let add = (seq, change);
            let story = Story { request, add, completed: None, output: None, moved: None };
            stories.insert(booking, story);
            return;
        }
        let Some(story) = stories.get_mut(&booking) else { return };
        match change {
            LoadChange::Add { .. } => {}
            LoadChange::PrefillCompleted => story.completed = Some(seq),
            LoadChange::Output { blocks } => {
                let (last, all) = story.output.unwrap_or_default();
                story.output = Some((last.max(seq), all.saturating_add(blocks)));
            }
            LoadChange::Move { rank } => {
                if story.moved.is_none_or(|(last, _)| seq > last) {
                    story.moved = Some((seq, rank));
                }
            }
            LoadChange::Free => drop(stories.remove(&booking)),
        }
    }

    /// Every live booking as the changes that make it, in the order of their numbers.
    pub(crate) fn tell(&self) -> Vec<Change> {
        let mut told = Vec::new();
        for shard in &self.0 {
            for (&booking, story) in shard.lock().iter() {
                let mut change = |seq, change| told.push((seq, booking, story.request, change));
                change(story.add.0, story.add.1);
                if let Some(seq) = story.completed {
                    change(seq, LoadChange::PrefillCompleted);
                }
                if let Some((seq, blocks)) = story.output {
                    change(seq, LoadChange::Output { blocks });
                }
                if let Some((seq, rank)) = story.moved {
                    change(seq, LoadChange::Move { rank });
                }
            }
        }
        told.sort_unstable_by_key(|&(seq, ..)| seq);
        told
    }
}
