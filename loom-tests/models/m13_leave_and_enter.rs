//! A rank that holds a chain in two runs lets go of it; meanwhile another enters the chain, and then
//! a third one its beginning: the runs of who leaves do not pass for theirs.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["entered beside who leaves", "entered when it had left"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let long: Arc<[u64]> = [1, 2, 3].into();
    let own: Arc<[u64]> = [1, 2, 3].into();
    let short: Arc<[u64]> = [1, 2].into();
    world.gain(0, 0, &short, 0, 2);
    world.gain(0, 0, &long, 2, 3);
    let leaver = spawn({
        let (world, long) = (world.clone(), long.clone());
        move || world.lose(1, 0, &long, 0, 3)
    });
    world.gain(0, 1, &own, 0, 3);
    world.gain(0, 2, &short, 0, 2);
    leaver.join().expect("who leaves ends");
    // A run that was made for it keeps its hashes.
    let made = Arc::strong_count(&own) > 1;
    reached(if made { "entered when it had left" } else { "entered beside who leaves" });
    world.assert_at_rest(&long, &[(0, 0), (1, 3), (2, 2)]);
    // It finds its own when it lets go of the end again.
    world.lose(0, 1, &long, 2, 3);
    world.assert_at_rest(&long, &[(1, 2), (2, 2)]);
}
