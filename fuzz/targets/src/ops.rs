//! Operations on two paired pools (now and then on one), against the reference step by step: every
//! answer, everybody who is let in or refused, every row, mark and counter.
#![forbid(unsafe_code)]

use crate::bytes::Bytes;
use crate::driver::{Driver, brief};
use crate::model::op::{self, Dice, Mixture, Op};
use std::cell::RefCell;
use std::iter::from_fn;

/// As many operations as one run does.
const MOST: usize = 400;

/// Steps from one look at all rows to the next. Looking is most of a step's time, and a row that is
/// wrong stays wrong; where it was wrong first is found by doing it again.
const LOOK: u64 = 16;

/// Draws settings and operations from `data` and holds the engine against the reference.
///
/// # Panics
/// If they differ, with the operations in words.
pub fn ops(data: &[u8]) -> u64 {
    let mut bytes = Bytes::new(data);
    let mixture = match bytes.roll(8) {
        0..=5 => Mixture::Pair,
        6 => Mixture::Crowd,
        _ => Mixture::Plain,
    };
    let config = op::config(&mut bytes, mixture);
    let done = RefCell::new(Vec::new());
    let draw = || {
        let more = !bytes.spent() && done.borrow().len() < MOST;
        let op = more.then(|| Op::draw(&mut bytes, &config))?;
        done.borrow_mut().push(op.clone());
        Some(op)
    };
    if let Err(why) = Driver::new(config.clone()).compare_every(LOOK).run_from(from_fn(draw)) {
        let ops = done.into_inner();
        let said: Vec<String> = ops.iter().map(brief).collect();
        let first = Driver::new(config.clone()).run(ops).err().unwrap_or(why);
        panic!("{first}\nafter\n{}\nof {config:?}", said.join("\n"));
    }
    done.into_inner().len() as u64
}
