//! The same where two runs are made one, because the rank that they were cut for leaves.

use super::prompts::Versioned;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] =
    &["before the newcomer", "current, with the newcomer", "no longer current"];

pub(crate) fn run() {
    let world = Arc::new(Versioned::new());
    let long: Arc<[u64]> = [1, 2, 3].into();
    let short: Arc<[u64]> = [1, 2].into();
    world.prompts.gain(0, 0, &long, 0, 3);
    world.prompts.gain(0, 1, &short, 0, 2);
    let guard = world.prompts.pin(0);
    let kept = world.keep(&guard, &long);
    let leaver = spawn({
        let world = world.clone();
        move || world.prompts.lose(1, 1, &short, 0, 2)
    });
    let newcomer = spawn({
        let (world, long) = (world.clone(), long.clone());
        move || {
            world.prompts.gain(2, 2, &long, 0, 3);
            world.bump();
        }
    });
    world.look(&kept, "before the newcomer", |found| {
        assert!(found, "a run that was replaced passes for current");
        reached("current, with the newcomer");
    });
    drop(guard);
    leaver.join().expect("who leaves ends");
    newcomer.join().expect("the newcomer ends");
}
