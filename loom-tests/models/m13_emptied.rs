//! The last holder of a run leaves while another rank enters itself: the newcomer is found
//! afterwards, in the old run or in one of its own.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["entered before the last one left", "made a run of its own"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let chain: Arc<[u64]> = [1, 2].into();
    let own: Arc<[u64]> = [1, 2].into();
    world.gain(0, 0, &chain, 0, 2);
    let leaver = spawn({
        let (world, chain) = (world.clone(), chain.clone());
        move || world.lose(1, 0, &chain, 0, 2)
    });
    world.gain(0, 1, &own, 0, 2);
    leaver.join().expect("who leaves ends");
    // A run that was made for it keeps its hashes.
    let made = Arc::strong_count(&own) > 1;
    reached(if made { "made a run of its own" } else { "entered before the last one left" });
    assert_eq!(world.at_rest(1, &chain), 2, "at rest the index knows less than a rank holds");
    assert_eq!(world.at_rest(0, &chain), 0, "at rest the index says more than a rank holds");
}
