//! A shelf is given to another subject while two ask for what stands on it: nobody takes what is
//! about the one for what is about the other, though both are of the same version.

use super::fleet::seal::{Shelf, Turns};
use crate::sync::Arc;
use vacancy_loom_tests::explore::{reached, spawn};

pub(crate) const BRANCHES: &[&str] = &["found", "found nothing", "given to another meanwhile"];

const VERSION: u64 = 2;

struct World {
    turns: Turns,
    shelf: Shelf,
}

impl World {
    /// What stands on the shelf about `subject`.
    fn find(&self, subject: u64) {
        let Some(edition) = self.shelf.about(subject) else { return reached("found nothing") };
        // As a pick reads it: one word without a second look, and all words with one.
        let each = &self.shelf.each[0];
        let word = each.is_of(VERSION).then(|| each.word(0));
        let words = each.read(VERSION);
        if !self.shelf.still(edition) {
            return reached("given to another meanwhile");
        }
        let about = |found: u64| assert_eq!(found, subject, "it is about another subject");
        if let Some(word) = word {
            about(word);
            reached("found");
        }
        if let Some(words) = words {
            for word in words {
                about(word);
            }
        }
    }

    fn leave(&self, subject: u64) {
        if let Some(turn) = self.turns.take() {
            if self.shelf.about(subject).is_none() {
                self.shelf.give(&turn, subject);
            }
            self.shelf.each[0].put(&turn, VERSION, [subject; 3]);
        }
    }
}

pub(crate) fn run() {
    let world = Arc::new(World { turns: Turns::new(), shelf: Shelf::default() });
    world.leave(1);
    let other = spawn({
        let world = world.clone();
        move || world.leave(2)
    });
    let third = spawn({
        let world = world.clone();
        move || world.find(2)
    });
    world.find(1);
    other.join().expect("the other one ends");
    third.join().expect("the third ends");
    world.find(2);
}
