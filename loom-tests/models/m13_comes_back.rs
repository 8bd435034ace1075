//! A rank lets go of a prompt and enters it again, in the same place of the table, while a selection
//! looks for it: it is found as it was, as it is, or not at all.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["found as it was", "found as it is", "not found"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let chain: Arc<[u64]> = [1].into();
    world.gain(0, 0, &chain, 0, 1);
    let writer = spawn({
        let (world, chain) = (world.clone(), chain.clone());
        move || {
            // As a booking moves from rank to rank: under one pin, whose fence comes before both.
            let guard = world.pin(1);
            assert_eq!(world.index.lose(&guard, 0, &chain, 0, 1), 1, "a chain is removed whole");
            assert_eq!(world.index.gain(&guard, 1, &chain, 0, 1), 1, "a chain is entered whole");
        }
    });
    let guard = world.pin(0);
    let (was, is) = (world.find(&guard, 0, &chain).0, world.find(&guard, 1, &chain).0);
    reached(match (was, is) {
        (1, _) => "found as it was",
        (_, 1) => "found as it is",
        _ => "not found",
    });
    drop(guard);
    writer.join().expect("the writer ends");
    world.assert_at_rest(&chain, &[(0, 0), (1, 1)]);
}
