//! A shard gets a larger array twice while a selection looks for a run: the array that it looks at
//! is given up only when it has done.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["found"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let stays: Arc<[u64]> = [1].into();
    world.gain(0, 0, &stays, 0, 1);
    world.gain(0, 0, &[2].into(), 0, 1);
    let writer = spawn({
        let world = world.clone();
        move || {
            for first in 3..=7 {
                world.gain(1, 1, &[first].into(), 0, 1);
            }
        }
    });
    let (found, _) = world.find(&world.pin(0), 0, &stays);
    assert_eq!(found, 1, "a descent finds less than the rank holds");
    reached("found");
    writer.join().expect("the writer ends");
}
