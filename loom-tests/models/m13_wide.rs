//! A run's set gets a bitmap, and a larger one, while a selection looks at it; the bitmap that was
//! replaced serves another run. Who is in the set all the while is found in it.

use super::prompts::{Prompts, has};
use std::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["the newcomers were there", "a newcomer was not there"];

pub(crate) fn run() {
    let world = Arc::new(Prompts::new());
    let chain: Arc<[u64]> = [1].into();
    world.gain(0, 0, &chain, 0, 1);
    let newcomers = spawn({
        let (world, chain) = (world.clone(), chain.clone());
        move || {
            world.gain(1, 1, &chain, 0, 1);
            world.gain(1, 64, &chain, 0, 1);
            let other = [9].into();
            world.gain(1, 2, &other, 0, 1);
            world.gain(1, 3, &other, 0, 1);
        }
    });
    let guard = world.pin(0);
    let mut kept = None;
    world.index.descend(&guard, &chain, |run, _, _| kept = Some(run));
    let run = kept.expect("its first holder is there");
    let newcomer = has(&run, 1) && has(&run, 64);
    assert!(has(&run, 0), "who is in the set is not found in it");
    assert!(!has(&run, 2), "a bitmap is used again while somebody looks");
    reached(if newcomer { "the newcomers were there" } else { "a newcomer was not there" });
    drop(guard);
    newcomers.join().expect("the newcomers end");
    for slot in [0, 1, 64] {
        assert_eq!(
            world.at_rest(slot, &chain),
            1,
            "at rest the index knows less than a rank holds"
        );
    }
}
