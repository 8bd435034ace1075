//! Two runs are about to be made one, because the rank that they were cut for leaves, while a
//! newcomer enters the upper one's blocks: it joins that run, or cuts what the two have become.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["the newcomer came first", "they were one, and were cut"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let long: Arc<[u64]> = [1, 2, 3].into();
    let short: Arc<[u64]> = [1, 2].into();
    world.gain(0, 0, &long, 0, 3);
    world.gain(0, 1, &short, 0, 2);
    let leaver = spawn({
        let (world, short) = (world.clone(), short.clone());
        move || {
            world.lose(1, 1, &short, 0, 2);
            world.find(&world.pin(1), 2, &short).0
        }
    });
    world.gain(0, 2, &short, 0, 2);
    let seen = leaver.join().expect("who leaves ends");
    reached(if seen == 2 { "the newcomer came first" } else { "they were one, and were cut" });
    world.assert_at_rest(&long, &[(0, 3), (1, 0), (2, 2)]);
    world.lose(0, 0, &long, 0, 3);
    world.lose(0, 2, &short, 0, 2);
    world.assert_nothing_left(&[&long], 3);
}
