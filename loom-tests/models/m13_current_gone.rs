//! A rank that holds a chain in two runs lets go of it, while another enters the chain and then moves
//! the version: who has seen the version and keeps the runs from before finds the newcomer in each,
//! or is told that it is not the current one.

use super::prompts::Versioned;
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] =
    &["before the newcomer", "current, with the newcomer", "no longer current"];

pub(crate) fn run() {
    let world = Arc::new(Versioned::new());
    let long: Arc<[u64]> = [1, 2, 3].into();
    let short: Arc<[u64]> = [1, 2].into();
    world.prompts.gain(0, 0, &short, 0, 2);
    world.prompts.gain(0, 0, &long, 2, 3);
    let guard = world.prompts.pin(0);
    let kept = world.keep(&guard, &long);
    let leaver = spawn({
        let (world, long) = (world.clone(), long.clone());
        move || world.prompts.lose(1, 0, &long, 0, 3)
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
