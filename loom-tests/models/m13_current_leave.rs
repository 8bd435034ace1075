//! A run is cut by one while another lets go of the end of it and then moves the version: who has
//! seen the version and keeps the run from before does not take it for one that the leaver is in,
//! if it passes for current.

use super::prompts::Versioned;
use std::sync::Arc;
use vacancy_loom_tests::explore::spawn;

pub(crate) const BRANCHES: &[&str] = &["before the leaver", "no longer current"];

pub(crate) fn run() {
    let world = Arc::new(Versioned::new());
    let long: Arc<[u64]> = [1, 2, 3].into();
    world.prompts.gain(0, 0, &long, 0, 3);
    world.prompts.gain(0, 2, &long, 0, 3);
    let guard = world.prompts.pin(0);
    let kept = world.keep(&guard, &long);
    let cutter = spawn({
        let (world, short) = (world.clone(), [1, 2].into());
        move || world.prompts.gain(1, 1, &short, 0, 2)
    });
    let leaver = spawn({
        let (world, long) = (world.clone(), long.clone());
        move || {
            world.prompts.lose(2, 2, &long, 2, 3);
            world.bump();
        }
    });
    world.look(&kept, "before the leaver", |found| {
        assert!(!found, "a run that was replaced passes for current");
    });
    drop(guard);
    cutter.join().expect("who cuts ends");
    leaver.join().expect("who leaves ends");
}
