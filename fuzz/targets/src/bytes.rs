//! Bytes as a source of choices.
#![forbid(unsafe_code)]

use crate::model::op::Dice;

/// A tape of bytes. What is asked for past its end is 0, the plainest choice.
pub(crate) struct Bytes<'a> {
    left: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes { left: bytes }
    }

    /// Whether nothing is left.
    pub(crate) fn spent(&self) -> bool {
        self.left.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.left.split_first() {
            Some((first, rest)) => {
                self.left = rest;
                *first
            }
            None => 0,
        }
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
}

impl Dice for Bytes<'_> {
    fn roll(&mut self, sides: u32) -> u32 {
        // As few bytes as tell the sides apart: one byte changed is one choice changed.
        match sides {
            0..=1 => 0,
            2..=256 => u32::from(self.byte()) % sides,
            257..=65_536 => (u32::from(self.byte()) << 8 | u32::from(self.byte())) % sides,
            _ => self.u32() % sides,
        }
    }
}
