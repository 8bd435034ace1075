//! Trace files: no bytes panic; what is taken is sorted, starts at 0 and stays on the clock.
#![forbid(unsafe_code)]

use crate::bytes::Bytes;
use crate::model::op::Dice;
use replay::trace::{LAST_INSTANT, Reading, TraceError, read};

#[path = "../../../engine/cli/src/replay"]
mod replay {
    pub(super) mod arrivals;
    pub(super) mod trace;
}

/// Reads `data`, of which the first bytes say how, as a trace.
///
/// # Panics
/// If what was read is not in order, or lines that may be skipped change the others.
pub fn trace(data: &[u8]) -> u64 {
    // A trace in plain text is read as it is, so that one can be handed over unchanged.
    let (how, text) = match data.first() {
        Some(b'{') | None => (&[][..], data),
        Some(_) => data.split_at(data.len().min(3)),
    };
    let mut how = Bytes::new(how);
    let how = Reading {
        block: [512, 16, 1, u32::MAX][how.roll(4) as usize],
        speedup: [1.0, 2.0, 1e-300, 1e300, 0.3][how.roll(5) as usize],
        most: [None, Some(1), Some(100)][how.roll(3) as usize],
        skip_bad: false,
    };
    let strict = read(text, how);
    let lenient = read(text, Reading { skip_bad: true, ..how });
    let lines = text.split(|b| *b == b'\n').count() as u64;
    match (&strict, &lenient) {
        (Ok(a), Ok(b)) => {
            assert_eq!((a.arrivals.len(), 0), (b.arrivals.len(), b.bad_lines));
        }
        (Ok(_), Err(e)) => panic!("read strictly, not otherwise: {e}"),
        (Err(e), _) => {
            let named = match e {
                TraceError::TooLong { line }
                | TraceError::Json { line, .. }
                | TraceError::Field { line, .. } => *line,
                TraceError::Io(e) => panic!("bytes can be read: {e}"),
                TraceError::Empty | TraceError::TooFar { .. } => 1,
            };
            assert!((1..=lines).contains(&named), "line {named} of {lines}");
            assert!(e.to_string().len() < 4096);
        }
    }
    for trace in [strict, lenient].into_iter().flatten() {
        assert!(trace.arrivals.is_sorted_by_key(|a| a.at));
        assert_eq!(trace.arrivals[0].at, 0);
        for a in &trace.arrivals {
            assert!(a.at as f64 <= LAST_INSTANT);
            assert!(a.cacheable(how.block).len() <= a.prompt_blocks(how.block) as usize);
        }
    }
    lines
}
