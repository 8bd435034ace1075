//! One cuts a run while another enters itself in all of it: both are found afterwards.

use super::prompts::Prompts;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["the whole run came first", "the cut came first"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let long: Arc<[u64]> = [1, 2, 3].into();
    let short: Arc<[u64]> = [1, 2].into();
    world.gain(0, 0, &long, 0, 3);
    let cutter = spawn({
        let (world, short) = (world.clone(), short.clone());
        move || {
            world.gain(1, 1, &short, 0, 2);
            world.find(&world.pin(1), 2, &[1, 2, 3]).0
        }
    });
    world.gain(0, 2, &long, 0, 3);
    let seen = cutter.join().expect("who cuts ends");
    reached(if seen == 3 { "the whole run came first" } else { "the cut came first" });
    world.assert_at_rest(&long, &[(0, 3), (1, 2), (2, 3)]);
}
