//! Shrinking: a failing plan without the events that it fails without.
//!
//! Delta debugging over the list of events: chunks are taken out while the same invariant breaks,
//! half of them first, then smaller ones, down to single events. What is left is run once more to be
//! written down.

use crate::plan::{Event, Op, Plan};
use crate::sim::{Options, run};
use std::time::{Duration, Instant};

/// Takes out what is not needed for `invariant` to break. Gives up after a while, with what it has.
pub fn shrink(plan: &Plan, invariant: &str, options: Options, limit: Duration) -> Plan {
    let until = Instant::now() + limit;
    let fails = |events: &[Event]| {
        let plan = Plan { setup: plan.setup.clone(), events: events.to_vec() };
        let breach = run(&plan, Options { trace: false, ..options }).breach;
        breach.is_some_and(|(_, breach)| breach.invariant == invariant)
    };
    let mut events = plan.events.clone();
    // Nothing after the breach is needed.
    if let Some((at, _)) = run(plan, Options { trace: false, ..options }).breach
        && at + 1 < events.len()
        && fails(&events[..=at])
    {
        events.truncate(at + 1);
    }
    let mut chunk = events.len().div_ceil(2).max(1);
    while Instant::now() < until {
        let before = events.len();
        let mut at = 0;
        while at < events.len() && Instant::now() < until {
            let end = (at + chunk).min(events.len());
            let mut less = events.clone();
            less.drain(at..end);
            if fails(&less) {
                events = less;
            } else {
                at = end;
            }
        }
        if chunk > 1 {
            chunk = chunk.div_ceil(2);
        } else if events.len() == before {
            break;
        }
    }
    // The woken run at once, where that makes no difference.
    for at in 0..events.len() {
        if Instant::now() < until && !events[at].run {
            let mut plainer = events.clone();
            plainer[at].run = true;
            if fails(&plainer) {
                events = plainer;
            }
        }
    }
    for at in 0..events.len() {
        simplify(&mut events, at, &fails);
    }
    Plan { setup: plan.setup.clone(), events }
}

/// Takes out of a request what it fails without.
fn simplify(events: &mut [Event], at: usize, fails: &impl Fn(&[Event]) -> bool) {
    let strips: [fn(&mut crate::plan::Demand); 6] = [
        |d| d.chain = None,
        |d| d.cached.clear(),
        |d| (d.priority, d.jump) = (0, 0.0),
        |d| (d.due_in_ms, d.behind_ms) = (None, 0),
        |d| (d.own, d.leg, d.lora) = Default::default(),
        |d| (d.poison, d.afresh, d.do_not_queue) = (false, false, false),
    ];
    for strip in strips {
        let old = events[at].clone();
        let Op::Arrive { demand, .. } = &mut events[at].op else { return };
        strip(demand);
        if events[at] != old && !fails(events) {
            events[at] = old;
        }
    }
}
