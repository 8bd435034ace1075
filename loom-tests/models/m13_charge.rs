//! Two book one prompt on one rank and one of them leaves again, while a selection descends: each
//! block is charged once, and given back once.
//!
//! `charge` and `give_back` are `Inner::land` and `Inner::give_back`, without what is not about
//! prompt blocks.

use super::load::prompts::rank::{At, Held, RankPrompts};
use super::load::row::{Load, Row};
use super::load::slot::{add, take_off};
use super::prompts::Prompts;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] =
    &["the descent found it", "the descent found nothing", "charged in full", "charged nothing"];

const SLOT: u32 = 0;

struct World {
    prompts: Prompts,
    row: AtomicU64,
    rank: Mutex<RankPrompts>,
}

impl World {
    fn charge(&self, thread: usize, chain: &Arc<[u64]>) -> Held {
        let guard = self.prompts.pin(thread);
        let at = At { index: &self.prompts.index, slot: SLOT, guard: &guard };
        let mut rank = self.rank.lock();
        let missing = rank.missing(chain);
        let blocks = missing.blocks();
        add(&self.row, Load::new(0, blocks), |_| true).expect("the rank lives");
        let held = rank.enter(missing, at);
        drop(rank);
        reached(if blocks == 0 { "charged nothing" } else { "charged in full" });
        held
    }

    fn give_back(&self, thread: usize, held: Held) {
        let guard = self.prompts.pin(thread);
        let at = At { index: &self.prompts.index, slot: SLOT, guard: &guard };
        let mut rank = self.rank.lock();
        let shared = rank.leave(held, at);
        take_off(&self.row, Load::new(0, shared)).expect("the rank lives");
    }

    /// What is charged, if nobody is at it.
    fn balance(&self) {
        let rank = self.rank.lock();
        let row = Row::from_bits(self.row.load(Ordering::Acquire));
        let charged = row.blocks();
        assert_eq!(charged, rank.held(), "what is charged is not what is held");
    }
}

pub(crate) fn run() {
    let world = Arc::new(World {
        prompts: Prompts::new(),
        row: AtomicU64::new(Row::EMPTY.bits()),
        rank: Mutex::new(RankPrompts::new()),
    });
    let chain: Arc<[u64]> = [1, 2].into();
    let passing = spawn({
        let (world, chain) = (world.clone(), chain.clone());
        move || {
            let held = world.charge(1, &chain);
            world.give_back(1, held);
        }
    });
    let (found, _) = world.prompts.find(&world.prompts.pin(0), SLOT, &chain);
    assert!(found == 0 || found == 2, "a chain is found whole or not at all");
    reached(if found > 0 { "the descent found it" } else { "the descent found nothing" });
    let held = world.charge(0, &chain);
    world.balance();
    passing.join().expect("who passes ends");
    world.balance();
    assert_eq!(
        world.prompts.at_rest(SLOT, &chain),
        2,
        "at rest the index knows less than a rank holds"
    );
    world.give_back(0, held);
    world.balance();
    assert_eq!(world.row.load(Ordering::Relaxed), Row::EMPTY.bits(), "the row is empty again");
}
