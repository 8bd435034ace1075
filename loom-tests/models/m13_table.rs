//! Chains come and go beside one that stays, in the same places of the table, until it gets a larger
//! array: what stays is found at every moment.

use super::load::prompts::chain::mix;
use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["found"];

/// The first hashes from 1 on that point to the first place of a new table.
fn crowd() -> impl Iterator<Item = u64> {
    (1..).filter(|&hash| mix(hash) & 3 == 0)
}

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let [goes, stays, comes, last] =
        [0, 1, 2, 3].map(|at| -> Arc<[u64]> { [crowd().nth(at).expect("there are more")].into() });
    world.gain(0, 0, &goes, 0, 1);
    world.gain(0, 0, &stays, 0, 1);
    let writer = spawn({
        let world = world.clone();
        move || {
            world.lose(1, 0, &goes, 0, 1);
            world.gain(1, 1, &comes, 0, 1);
            world.gain(1, 1, &last, 0, 1);
        }
    });
    let (found, _) = world.find(&world.pin(0), 0, &stays);
    assert_eq!(found, 1, "a descent finds less than the rank holds");
    reached("found");
    writer.join().expect("the writer ends");
    assert_eq!(world.at_rest(0, &stays), 1, "at rest the index knows less than a rank holds");
}
