//! How many ranks have no room for a class.
#![forbid(unsafe_code)]

use super::Pick;
use crate::fleet::board::Board;
use crate::fleet::seal::SPAN;
use crate::pass::lanes::Column;

impl Pick<'_> {
    /// How many available ranks have no room for the class; 0 as soon as one is known to have
    /// some (`room`: the proposed one), where only whether all are full is asked.
    pub(super) fn class_full(&self, class: usize, room: bool) -> u32 {
        let view = self.view;
        if view.rules.classes[class].is_none() {
            return view.available - view.unmarked;
        }
        let spec = view.rules.profile.classes().get(class);
        let available = u64::from(view.available);
        let all = spec.is_some_and(|spec| spec.full_ranks_to_wait(available) >= available);
        if all && room {
            return 0;
        }
        let mut full = 0;
        for number in 0..view.boards.len() {
            let board = self.board(number);
            let here = self.class_full_in(board, number, class);
            if all && here < board.available {
                return 0;
            }
            full += here;
        }
        full
    }

    fn class_full_in(&self, board: &Board, number: usize, class: usize) -> u32 {
        let counts = &board.classes[class];
        if let Some((_, [full])) = counts.whole.read_sum(&board.versions) {
            return full as u32;
        }
        let mut versions = [0; SPAN];
        let mut found = [0u64; SPAN];
        let mut stale = 0u32;
        for at in 0..SPAN {
            versions[at] = board.versions.of(at);
            if at >= board.blocks {
                continue;
            }
            if counts.each[at].is_of(versions[at]) {
                found[at] = counts.each[at].word(0);
                continue;
            }
            stale |= 1 << at;
            let block = &*self.view.blocks[number * SPAN + at];
            let mut rows = Column::default();
            block.live.copy_rows(&mut rows);
            let past = self.tools.kernel.past(&rows, &block.classes[class].0);
            let full = (past | !board.open[at]) & block.available;
            found[at] = u64::from(full.count_ones());
        }
        let full = found.iter().sum();
        if let Some(turn) = board.turns.take() {
            for at in (0..board.blocks).filter(|at| stale >> at & 1 == 1) {
                counts.each[at].put(&turn, versions[at], [found[at]]);
            }
            let sum = versions.iter().fold(0u64, |sum, &one| sum.wrapping_add(one));
            counts.whole.put(&turn, sum, [full]);
        }
        full as u32
    }
}
