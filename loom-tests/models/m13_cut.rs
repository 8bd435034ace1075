//! A run is cut by a newcomer while a selection descends: what a rank holds all the while is found
//! whole, in the run as it was or in its two parts.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["found in one run", "found in two"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let long: Arc<[u64]> = [1, 2, 3].into();
    world.gain(0, 0, &long, 0, 3);
    let newcomer = spawn({
        let (world, short) = (world.clone(), [1, 2].into());
        move || world.gain(1, 1, &short, 0, 2)
    });
    let (found, parts) = world.find(&world.pin(0), 0, &long);
    assert_eq!(found, 3, "a descent finds less than the rank holds");
    reached(if parts == 1 { "found in one run" } else { "found in two" });
    newcomer.join().expect("the newcomer ends");
    assert_eq!(world.at_rest(0, &long), 3, "at rest the index knows less than a rank holds");
    assert_eq!(world.at_rest(1, &long), 2, "at rest the index says more than a rank holds");
}
