//! A run is cut by one while another enters itself in the upper part of it and then moves the
//! version: who has seen the version and keeps the run from before is told that it is not the
//! current one, which does not have the newcomer.

use super::prompts::Versioned;
use std::sync::Arc;
use vacancy_loom_tests::explore::spawn;

pub(crate) const BRANCHES: &[&str] = &["before the newcomer", "no longer current"];

pub(crate) fn run() {
    let world = Arc::new(Versioned::new());
    let long: Arc<[u64]> = [1, 2, 3].into();
    let short: Arc<[u64]> = [1, 2].into();
    world.prompts.gain(0, 0, &long, 0, 3);
    let guard = world.prompts.pin(0);
    let kept = world.keep(&guard, &long);
    let cutter = spawn({
        let (world, short) = (world.clone(), short.clone());
        move || world.prompts.gain(1, 1, &short, 0, 2)
    });
    let newcomer = spawn({
        let world = world.clone();
        move || {
            world.prompts.gain(2, 2, &short, 0, 2);
            world.bump();
        }
    });
    world.look(&kept, "before the newcomer", |_| {
        panic!("a run that was replaced passes for current");
    });
    drop(guard);
    cutter.join().expect("who cuts ends");
    newcomer.join().expect("the newcomer ends");
}
