//! The engine against the naive reference: the same operations to both, every answer and every row
//! compared after each.
#![forbid(unsafe_code)]

mod driver;
mod model;

use driver::Driver;
use model::op::{self, Op, Tape};
use proptest::prelude::*;

/// Numbers that one operation is drawn from. What it does not use does not matter; what it lacks
/// is 0, the plainest choice.
const TAPE: usize = 40;

fn config() -> impl Strategy<Value = model::Config> {
    prop::collection::vec(any::<u16>(), 16).prop_map(|t| op::config(&mut Tape(t.into_iter())))
}

/// A pool's settings, who is there at first, and what is done then.
fn case(steps: usize) -> impl Strategy<Value = (model::Config, Vec<Op>)> {
    let tapes = prop::collection::vec(prop::collection::vec(any::<u16>(), TAPE), 1..steps);
    (config(), tapes).prop_map(|(mut config, tapes)| {
        config.custom = model::custom::Custom::default();
        let draw = |t: Vec<u16>| Op::draw(&mut Tape(t.into_iter()), &config);
        let ops = tapes.into_iter().map(draw).collect();
        (config, ops)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_and_every_row_is_what_the_reference_has((config, ops) in case(120)) {
        Driver::new(config).run(ops).map_err(TestCaseError::fail)?;
    }
}
