//! A run is emptied and serves another chain while a selection that has found it looks at it.

use super::prompts::{Prompts, has};
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["found it", "found it gone"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let chain: Arc<[u64]> = [1].into();
    world.gain(0, 0, &chain, 0, 1);
    let writer = spawn({
        let (world, chain) = (world.clone(), chain.clone());
        move || {
            world.lose(1, 0, &chain, 0, 1);
            world.move_epoch();
            // Two: the first one may still take a run that was never used.
            for (slot, first) in [(1, 7), (2, 8)] {
                world.gain(1, slot, &[first].into(), 0, 1);
            }
        }
    });
    // As who sweeps elsewhere.
    world.move_epoch();
    let guard = world.pin(0);
    let mut kept = None;
    world.index.descend(&guard, &chain, |run, _, _| kept = Some(run));
    match kept {
        Some(run) => {
            let strange = has(&run, 1) || has(&run, 2);
            assert!(!strange, "a run is used again while somebody looks");
            reached("found it");
        }
        None => reached("found it gone"),
    }
    drop(guard);
    writer.join().expect("the writer ends");
}
