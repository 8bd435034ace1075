//! Two runs are made one again, because the rank that they were cut for leaves, and another rank's
//! prompt gets the lower one's place in the table, while a selection descends: what a third rank
//! holds all the while is found whole.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["found in one run", "found in two"];

/// Is put, in a table of four places, where 3 was before.
const SAME_PLACE: [u64; 1] = [8];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let long: Arc<[u64]> = [1, 2, 3].into();
    let short: Arc<[u64]> = [1, 2].into();
    world.gain(0, 0, &long, 0, 3);
    world.gain(0, 1, &short, 0, 2);
    let leaver = spawn({
        let (world, short) = (world.clone(), short.clone());
        move || world.lose(1, 1, &short, 0, 2)
    });
    let newcomer = spawn({
        let world = world.clone();
        move || world.gain(2, 2, &SAME_PLACE.into(), 0, 1)
    });
    let (found, parts) = world.find(&world.pin(0), 0, &long);
    assert_eq!(found, 3, "a descent finds less than the rank holds");
    reached(if parts == 1 { "found in one run" } else { "found in two" });
    leaver.join().expect("who leaves ends");
    newcomer.join().expect("the newcomer ends");
    world.assert_at_rest(&long, &[(0, 3), (1, 0)]);
    world.assert_at_rest(&SAME_PLACE, &[(2, 1)]);
}
