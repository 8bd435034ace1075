//! Two runs are about to be made one, because the rank that they were cut for leaves, while another
//! rank lets go of the end of the lower one: nobody is lost, and nobody stays.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["one run for all who stay", "two for all who stay"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let long: Arc<[u64]> = [1, 2, 3, 4].into();
    let short: Arc<[u64]> = [1, 2].into();
    for slot in [0, 2] {
        world.gain(0, slot, &long, 0, 4);
    }
    world.gain(0, 1, &short, 0, 2);
    let leaver = spawn({
        let world = world.clone();
        move || world.lose(1, 1, &short, 0, 2)
    });
    world.lose(0, 2, &long, 3, 4);
    leaver.join().expect("who leaves ends");
    world.assert_at_rest(&long, &[(0, 4), (1, 0), (2, 3)]);
    let parts = world.find(&world.pin(0), 2, &long[..3]).1;
    reached(if parts == 1 { "one run for all who stay" } else { "two for all who stay" });
    // What is left over of a run that nobody finds on the way shows when all have gone.
    world.lose(0, 0, &long, 0, 4);
    world.lose(0, 2, &long, 0, 3);
    world.assert_nothing_left(&[&long], 3);
}
