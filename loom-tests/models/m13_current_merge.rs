//! The same where two runs are made one, because the rank that they were cut for leaves.

use super::load::prompts::index::RunView;
use super::prompts::{Prompts, has};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] =
    &["before the newcomer", "current, with the newcomer", "no longer current"];

struct World {
    prompts: Prompts,
    version: AtomicU64,
}

pub(crate) fn run() {
    let world = Arc::new(World { prompts: Prompts::new(), version: AtomicU64::new(0) });
    let long: Arc<[u64]> = [1, 2, 3].into();
    let short: Arc<[u64]> = [1, 2].into();
    world.prompts.gain(0, 0, &long, 0, 3);
    world.prompts.gain(0, 1, &short, 0, 2);
    let guard = world.prompts.pin(0);
    let mut kept: Vec<RunView<'_>> = Vec::new();
    world.prompts.index.descend(&guard, &long, |run, _, _| kept.push(run));
    let leaver = spawn({
        let world = world.clone();
        move || world.prompts.lose(1, 1, &short, 0, 2)
    });
    let newcomer = spawn({
        let (world, long) = (world.clone(), long.clone());
        move || {
            world.prompts.gain(2, 2, &long, 0, 3);
            // As `Versions::bump`.
            world.version.fetch_add(1, Ordering::Release);
        }
    });
    let version = world.version.load(Ordering::Acquire);
    for run in &kept {
        let found = has(run, 2);
        if version == 0 {
            reached("before the newcomer");
        } else if run.is_current() {
            assert!(found, "a run that was replaced passes for current");
            reached("current, with the newcomer");
        } else {
            reached("no longer current");
        }
    }
    drop(guard);
    leaver.join().expect("who leaves ends");
    newcomer.join().expect("the newcomer ends");
}
