//! What workers can be asked for by name: taints, adapters, domains. Each name that some worker
//! carries has a small number, so that a block keeps one set of lanes per number.
#![forbid(unsafe_code)]

use crate::names::Name;
use rustc_hash::FxHashMap;

/// Something that a worker may carry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tag {
    /// A taint.
    Taint(Name),
    /// A LoRA adapter.
    Lora(Name),
    /// A value at a topology level.
    Domain(Name, Name),
}

/// Numbers of the tags in use; a tag that no worker carries any more gives its number back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tags {
    numbers: FxHashMap<Tag, (u32, u32)>,
    spare: Vec<u32>,
}

impl Tags {
    /// The number of `tag`, if any worker carries it.
    pub(crate) fn number(&self, tag: &Tag) -> Option<u32> {
        self.numbers.get(tag).map(|&(number, _)| number)
    }

    /// Counts one more worker that carries `tag`.
    pub(crate) fn take(&mut self, tag: Tag) -> u32 {
        let fresh = self.numbers.len() as u32 + self.spare.len() as u32;
        let spare = &mut self.spare;
        let entry = self.numbers.entry(tag).or_insert_with(|| (spare.pop().unwrap_or(fresh), 0));
        entry.1 += 1;
        entry.0
    }

    /// Counts one worker less.
    pub(crate) fn give_back(&mut self, tag: &Tag) {
        if let Some(entry) = self.numbers.get_mut(tag) {
            entry.1 -= 1;
            if entry.1 == 0 {
                self.spare.push(entry.0);
                self.numbers.remove(tag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shared_and_given_back() {
        let mut tags = Tags::default();
        let (a, b) = (Tag::Taint("a".into()), Tag::Lora("a".into()));
        let first = tags.take(a.clone());
        assert_eq!(tags.take(a.clone()), first);
        assert_ne!(tags.take(b.clone()), first);
        tags.give_back(&a);
        assert_eq!(tags.number(&a), Some(first));
        tags.give_back(&a);
        assert_eq!(tags.number(&a), None);
        assert_eq!(tags.take(Tag::Domain("z".into(), "1".into())), first);
    }
}
