//! A run is cut by a newcomer. Its lower part is made one with what follows, because a rank leaves,
//! perhaps before the upper part is there; a third rank, which holds all of it, is found whole, and
//! finds its own when it lets go of what follows.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["found in two runs", "found in three"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let long: Arc<[u64]> = [1, 2, 3].into();
    let middle: Arc<[u64]> = [1, 2].into();
    for slot in [0, 2] {
        world.gain(0, slot, &long, 0, 3);
    }
    world.gain(0, 1, &middle, 0, 2);
    let newcomer = spawn({
        let (world, short) = (world.clone(), [1].into());
        move || world.gain(1, 3, &short, 0, 1)
    });
    let leaver = spawn({
        let (world, middle) = (world.clone(), middle.clone());
        move || world.lose(2, 1, &middle, 1, 2)
    });
    let (found, parts) = world.find(&world.pin(0), 2, &long);
    assert_eq!(found, 3, "a descent finds less than the rank holds");
    reached(if parts == 2 { "found in two runs" } else { "found in three" });
    world.lose(0, 2, &long, 2, 3);
    newcomer.join().expect("the newcomer ends");
    leaver.join().expect("who leaves ends");
    world.assert_at_rest(&long, &[(0, 3), (1, 1), (2, 2), (3, 1)]);
}
