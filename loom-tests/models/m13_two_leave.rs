//! Of three ranks that hold a run, or its upper part, two leave at once: what is left is one run.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["both left"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let long: Arc<[u64]> = [1, 2, 3].into();
    let short: Arc<[u64]> = [1, 2].into();
    for slot in [0, 1] {
        world.gain(0, slot, &long, 0, 3);
    }
    world.gain(0, 2, &short, 0, 2);
    let leaver = spawn({
        let (world, long) = (world.clone(), long.clone());
        move || world.lose(1, 1, &long, 0, 3)
    });
    world.lose(0, 2, &short, 0, 2);
    leaver.join().expect("who leaves ends");
    reached("both left");
    world.assert_at_rest(&long, &[(0, 3), (1, 0), (2, 0)]);
    assert_eq!(world.find(&world.pin(0), 0, &long).1, 1, "a cut outlives the booking that made it");
}
